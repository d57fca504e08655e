"""The writers that `minigrad.viz.WRITERS` names: a graph and options to the content of a file."""

from __future__ import annotations

from minigrad.graph import Graph
from minigrad.viz import dotfile, raster, svgfile
from minigrad.viz.picture import Options, Picture, picture
from minigrad.viz.view import View


def _picture(graph: Graph, options: Options) -> Picture:
    return picture(View(graph), options)


def write_dot(graph: Graph, options: Options) -> str:
    return dotfile.dot(_picture(graph, options))


def write_svg(graph: Graph, options: Options) -> str:
    return svgfile.svg(_picture(graph, options))


def write_png(graph: Graph, options: Options) -> bytes:
    return raster.png(svgfile.svg(_picture(graph, options)))


def write_text(graph: Graph, options: Options) -> str:
    return f"{graph}\n"
