"""The viewers: each gets a model and its inputs, and says what its picture holds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import torch
from torch import Tensor, nn

from tools.browser import Browser, missing

PORT = 18099


@dataclass(frozen=True)
class Drawing:
    """opened: boxes in the picture as it opens. whole: boxes when everything is open. frames: how many modules then
    have a frame of their own. text: all that a reader can read in the picture, or by a click in it."""

    opened: int
    whole: int
    frames: int
    text: str


def _nodes_of_dot(source: str) -> int:
    """The boxes in graphviz's language: statements that are no edges, no subgraphs and no settings."""
    return len(re.findall(r"^\s*(?!node|edge|graph)\w+ \[", source, re.M))


def _frames_of_dot(source: str) -> int:
    return source.count("subgraph cluster")


def torchviz(model: nn.Module, inputs: tuple[Tensor, ...]) -> Drawing:
    """The graph of autograd, from the result back to the parameters."""
    import torchviz as viewer

    source = viewer.make_dot(model(*inputs).sum(), params=dict(model.named_parameters()), show_attrs=True).source
    return Drawing(_nodes_of_dot(source), _nodes_of_dot(source), _frames_of_dot(source), source)


def torchview(model: nn.Module, inputs: tuple[Tensor, ...]) -> Drawing:
    """Modules and functions of a forward pass; `depth` says how deep it goes."""
    import torchview as viewer

    def draw(depth: float) -> str:
        graph = viewer.draw_graph(model, input_data=inputs, depth=depth, expand_nested=True, mode="eval")
        return str(graph.visual_graph.source)

    opened, whole = draw(3), draw(100)
    return Drawing(_nodes_of_dot(opened), _nodes_of_dot(whole), _frames_of_dot(whole), whole)


def model_explorer(model: nn.Module, inputs: tuple[Tensor, ...]) -> Drawing:
    """The exported program, in layers that open and close. It opens with one box, the model; a click opens that."""
    from model_explorer.pytorch_exported_program_adapter_impl import PytorchExportedProgramAdapterImpl

    exported = torch.export.export(model.eval(), inputs)
    graphs = PytorchExportedProgramAdapterImpl(exported, {"const_element_count_limit": 16}).convert()
    text = json.dumps(graphs, default=vars)
    nodes = [node for graph in json.loads(text)["graphs"] for node in graph["nodes"]]
    layers = {node["namespace"] for node in nodes}
    first = {"/".join([*node["namespace"].split("/"), node["id"]][:2]) for node in nodes}
    return Drawing(len(first), len(nodes), len(layers), text)


def netron(model: nn.Module, inputs: tuple[Tensor, ...]) -> Drawing:
    """The exported program in its page."""
    if missing():
        raise ModuleNotFoundError(f"netron draws in a browser, and {missing()} is not here")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.pt2"
        torch.export.save(torch.export.export(model.eval(), inputs), file)
        with _served(file) as address:
            browser = Browser()
            try:
                browser.go(address)
                browser.wait("return document.getElementById('message-button')?.offsetParent != null")
                browser.run("document.getElementById('message-button').click()")
                browser.wait("return document.querySelectorAll('.node-border').length > 0", 30)
                boxes = browser.run("return document.querySelectorAll('.graph-node').length")
                text = browser.run("return [...document.querySelectorAll('svg text')].map(x => x.textContent).join()")
            finally:
                browser.close()
    return Drawing(boxes, boxes, 0, text)


@contextmanager
def _served(file: Path) -> Iterator[str]:
    """Netron's own server, with the file."""
    address = f"http://127.0.0.1:{PORT}/"
    command = [sys.executable, "-c", "import netron; netron.main()", "--port", str(PORT), str(file)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                urlopen(address, timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        server.wait(10)


def ours(model: nn.Module, inputs: tuple[Tensor, ...]) -> Drawing:
    """`minigrad render`: the page, which holds what its boxes say when they are clicked; and every op as a picture."""
    from minigrad import viz
    from minigrad.viz.foreign import record

    graph = record(model.eval(), *inputs)
    page = viz.html(graph)
    opened, whole = viz.dot(graph), viz.dot(graph, expand=("*",), fold=False)
    backward = viz.dot(record(model, *inputs, backward=True))
    return Drawing(_nodes_of_dot(opened), _nodes_of_dot(whole), _frames_of_dot(whole), f"{page}\n{whole}\n{backward}")


@dataclass(frozen=True)
class Viewer:
    """package: its name on PyPI."""

    name: str
    package: str
    draw: Callable[[nn.Module, tuple[Tensor, ...]], Drawing]

    @property
    def version(self) -> str:
        return version(self.package)


VIEWERS: tuple[Viewer, ...] = (
    Viewer("minigrad render", "minigrad-conformance", ours),
    Viewer("Netron", "netron", netron),
    Viewer("Model Explorer", "ai-edge-model-explorer", model_explorer),
    Viewer("torchview", "torchview", torchview),
    Viewer("torchviz", "torchviz", torchviz),
)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began
