"""The writers that `minigrad.viz.WRITERS` names: a graph and options to the content of a file."""

from __future__ import annotations

from minigrad.graph import Graph
from minigrad.viz import dotfile, raster, svgfile
from minigrad.viz.picture import Options, Picture, picture
from minigrad.viz.statistics import measure
from minigrad.viz.unfold import unfold
from minigrad.viz.view import View


def view(graph: Graph, options: Options) -> View:
    """The view that `options` ask for: composites unfolded, values measured."""
    if options.unfold:
        graph = unfold(graph, options.unfold)
    return View(graph, None if options.inputs is None else measure(graph, *options.inputs))


def _picture(graph: Graph, options: Options) -> Picture:
    return picture(view(graph, options), options)


def write_dot(graph: Graph, options: Options) -> str:
    return dotfile.dot(_picture(graph, options))


def write_svg(graph: Graph, options: Options) -> str:
    return svgfile.svg(_picture(graph, options))


def write_png(graph: Graph, options: Options) -> bytes:
    return raster.png(svgfile.svg(_picture(graph, options)))


def write_text(graph: Graph, options: Options) -> str:
    return f"{graph}\n"
