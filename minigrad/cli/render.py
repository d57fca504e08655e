"""`minigrad render`: draw a computation graph into a file whose ending chooses the format."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from minigrad import viz
from minigrad.cli import Refusal
from minigrad.cli.subject import BLANK, EXAMPLES, example, subject
from minigrad.compiler import optimise
from minigrad.graph import Graph
from minigrad.viz import layout
from minigrad.viz.difference import difference_page, difference_picture, difference_text
from minigrad.viz.passfile import write_passes
from minigrad.viz.picture import Options
from minigrad.viz.raster import RasterError, png
from minigrad.viz.view import SIDES


def configure(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to draw")
    what.add_argument(
        "spec", nargs="?", metavar="SPEC", help="file.py:name, package.module:name or file.py:Class(64, Config(n=4))"
    )
    what.add_argument("--example", metavar="NAME", help=", ".join(EXAMPLES))
    what.add_argument("--input", action="append", default=[], metavar="SHAPE", help="2x3, or i64:2x3 (again for each)")
    what.add_argument("--backward", action="store_true", help="with the gradients of the summed outputs")
    what.add_argument(
        "--passes",
        action="store_true",
        help="what each pass of the compiler changes: with -o FILE.html "
        "one page with a slider, else one picture after each",
    )
    what.add_argument("--against", metavar="SPEC", help="the difference to another one: .svg, .png, .html, .txt")
    what.add_argument("--unfold", action="append", default=[], metavar="GLOB", help="open composite ops: softmax, '*'")
    what.add_argument("--values", action="store_true", help="run it, and colour boxes by the size of their values")
    how = parser.add_argument_group("how much of it")
    how.add_argument("--boxes", type=int, default=Options.boxes, help="about how many boxes at most (%(default)s)")
    how.add_argument("--depth", type=int, help="open modules to this depth instead (0: one box)")
    how.add_argument("--expand", action="append", default=[], metavar="GLOB", help="open modules by path or class")
    how.add_argument("--collapse", action="append", default=[], metavar="GLOB", help="keep modules closed")
    how.add_argument("--no-fold", action="store_true", help="draw every repeat of a block")
    how.add_argument("--side", action="append", choices=SIDES, help="only this side (again for several)")
    how.add_argument("--plain", action="store_true", help="without sizes, FLOPs and source lines")
    parser.add_argument("-o", "--output", default="graph.svg", metavar="FILE", help=f"ends in {', '.join(viz.WRITERS)}")


def run(arguments: argparse.Namespace) -> int:
    if (arguments.spec is None) == (arguments.example is None):
        raise Refusal("name one thing to draw: a SPEC, or --example NAME")
    target = Path(arguments.output)
    if target.suffix.lower() not in viz.WRITERS:
        raise Refusal(f"{target} ends in none of {', '.join(viz.WRITERS)}: the ending chooses the format")
    if not target.absolute().parent.is_dir():
        raise Refusal(f"there is no folder {target.parent} to write {target.name} into")
    if target.suffix.lower() in (".svg", ".png") or (
        (arguments.passes or arguments.against) and target.suffix.lower() == ".html"
    ):
        layout.prepare()
    chosen = example(arguments.example) if arguments.example else subject(arguments.spec, arguments.input)
    graph = chosen.graph(arguments.backward)
    options: dict[str, Any] = {
        "boxes": arguments.boxes,
        "depth": arguments.depth,
        "expand": tuple(arguments.expand),
        "collapse": tuple(arguments.collapse),
        "fold": not arguments.no_fold,
        "sides": tuple(arguments.side or SIDES),
        "details": not arguments.plain,
        "unfold": tuple(arguments.unfold),
    }
    if arguments.values:
        if chosen.foreign:
            raise Refusal("--values needs a graph of minigrad's own ops, this one is torch's")
        if arguments.example in BLANK:
            raise Refusal(f"--values needs a model with values, {arguments.example} is traced without any")
        options["inputs"] = chosen.arguments
    if arguments.against:
        other = _other(arguments, chosen.foreign)
        return _write([(target, _difference(arguments, target, graph, other, options))])
    return _write(_pictures(graph, target, arguments.passes, chosen.foreign, options))


def _write(pictures: list[tuple[Path, Callable[[Path], Any]]]) -> int:
    for path, save in pictures:
        try:
            save(path)
        except (layout.LayoutError, RasterError, ValueError) as error:
            raise Refusal(str(error)) from error
        except OSError as error:
            raise Refusal(f"{path} cannot be written: {error.strerror}") from error
        print(path)
    return 0


def _other(arguments: argparse.Namespace, foreign: bool) -> Graph:
    """The graph that the first is compared with."""
    other = example(arguments.against) if arguments.against in EXAMPLES else subject(arguments.against, arguments.input)
    if other.foreign != foreign:
        raise Refusal("--against compares two graphs of minigrad, or two of torch: their ops have other names")
    return other.graph(arguments.backward)


def _difference(
    arguments: argparse.Namespace, target: Path, first: Graph, second: Graph, options: dict[str, Any]
) -> Callable[[Path], Any]:
    """What writes the difference of two graphs into the file."""
    if arguments.passes or arguments.values:
        raise Refusal("--against takes neither --passes nor --values")
    names = arguments.example or arguments.spec, arguments.against
    ending, chosen = target.suffix.lower(), Options(**options)
    if ending == ".txt":
        return lambda path: viz.write_file(path, difference_text(first, second))
    if ending == ".html":
        return lambda path: viz.write_file(path, difference_page(first, second, names, chosen))
    if ending == ".svg":
        return lambda path: viz.write_file(path, difference_picture(first, second, names, chosen))
    if ending == ".png":
        return lambda path: viz.write_file(path, png(difference_picture(first, second, names, chosen)))
    raise Refusal(f"--against writes .svg, .png, .html or .txt, and {target.name} ends in none of these")


def _pictures(
    graph: Graph, target: Path, passes: bool, foreign: bool, options: dict[str, Any]
) -> list[tuple[Path, Callable[[Path], Any]]]:
    """The files to write, and what writes each: the graph; or a page with a slider through the compiler's passes; or
    what each pass leaves of it, step.svg to step-06-drop_dead.svg."""
    if not passes:
        return [(target, partial(viz.save, graph, **options))]
    if foreign:
        raise Refusal("--passes shows minigrad's compiler, which cannot run torch's ops")
    stages = optimise(graph)
    if target.suffix.lower() == ".html":
        return [(target, lambda path: viz.write_file(path, write_passes(stages, Options(**options))))]
    names = [target.with_name(f"{target.stem}-{i:02}-{name}{target.suffix}") for i, (name, _) in enumerate(stages)]
    return [(name, partial(viz.save, stage, **options)) for name, (_, stage) in zip(names, stages, strict=True)]
