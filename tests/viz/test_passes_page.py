"""The page of the compiler's passes: what each changed is told and marked, and the memory of the plan is drawn."""

import json
import re

import pytest

import minigrad as mg
from minigrad.compiler import optimise
from minigrad.compiler.layout import Layout
from minigrad.viz import layout
from minigrad.viz.passfile import memory_svg, write_passes
from minigrad.viz.picture import Options
from minigrad.viz.stages import MOST_BOXES

try:
    layout.prepare()
except layout.LayoutError as error:
    pytest.skip(str(error), allow_module_level=True)


def twice(x):
    return ((x @ x).tanh() * 2.0 + (x @ x).tanh()).sum()


def stages_of(function, *inputs):
    return optimise(mg.trace(function)(*inputs))


def data_of(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1])


@pytest.fixture(scope="module")
def shown():
    return {stage["name"]: stage for stage in data_of(write_passes(stages_of(twice, mg.ones(3, 3)), Options()))}


def test_every_pass_says_what_it_does_made_and_took_away(shown):
    assert next(iter(shown)) == "trace"
    assert [*shown][-1] == "memory"
    assert all(stage["does"] for stage in shown.values())
    assert "matmul" in shown["share_equal"]["gone"]
    assert "tanh" in shown["share_equal"]["gone"]
    assert shown["share_equal"]["nodes"] < shown["trace"]["nodes"]
    assert not shown["join_slices"]["gone"] + shown["join_slices"]["new"]
    assert "fused" in shown["fuse_elementwise"]["new"]


def test_what_is_new_is_marked_and_nothing_else(shown):
    assert 'class="box made ' in shown["fuse_elementwise"]["picture"]
    assert "made" not in shown["join_slices"]["picture"]
    ids = [id for stage in shown.values() for id in re.findall(r'<g id="([^"]+)"', stage["picture"])]
    assert len(ids) == len(set(ids))


def test_memory_shows_every_value_of_the_plan(shown):
    graph = stages_of(twice, mg.ones(3, 3))[-1][1]
    picture, told = memory_svg(graph)
    assert picture.count('<g class="value') == len(Layout(graph).buffers) > 0
    assert 'class="peak"' in picture
    assert told in shown["memory"]["does"]


def test_what_a_program_named_is_no_markup():
    def step(x):
        return x.exp() + x

    graph = mg.trace(step)(mg.ones(2))
    graph.inputs[0].name = "</script><script>boom()"
    page = write_passes(optimise(graph), Options())
    assert "<script>boom" not in page
    assert "<script>boom" not in data_of(page)[0]["picture"]


def test_a_stage_of_too_many_boxes_is_told_in_lines():
    def long(x):
        for _ in range(MOST_BOXES):
            x = (x @ x).tanh()
        return x

    last = {
        stage["name"]: stage for stage in data_of(write_passes(stages_of(long, mg.ones(2, 2)), Options(boxes=1000)))
    }
    assert "too many to draw" in last["fuse_elementwise"]["picture"]
    assert "fused" in last["fuse_elementwise"]["picture"]
    assert "test_passes_page.py" in last["fuse_elementwise"]["picture"]


def test_an_empty_graph_has_a_page():
    assert data_of(write_passes(stages_of(lambda: None), Options()))[-1]["name"] == "memory"
