"""The page of a graph: what is in it. What it does in a browser is in test_page_in_browser.py and beside it."""

import itertools
import json
import re

import numpy as np
import pytest
from pages import hostile_graph, numbers, traced_model, training

import minigrad as mg
from minigrad import viz
from minigrad.viz import htmlfile


def data_of(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1])


@pytest.fixture
def traced():
    return traced_model()


def test_the_page_is_self_contained(traced):
    page = traced[2].html()
    assert not re.findall(r"""(?:src|href)\s*=|url\((?!#)|@import|fetch\(|XMLHttpRequest|import\s*\(""", page)
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "%" + "DATA%" not in page


def test_every_op_and_wire_is_in_it(traced):
    _, _, graph = traced
    data = data_of(graph.html())
    assert len([c for c in data["cards"].values() if c["kind"] == "op"]) == sum(
        node.op not in ("input", "leaf", "constant", "literal") for node in graph
    )
    inside = [member for held in data["scopes"].values() for member in held["members"]]
    assert sorted(inside) == sorted({*data["cards"], *data["scopes"]} - {data["root"]})  # each exactly once
    for id, held in data["scopes"].items():
        for member in held["members"]:
            assert {**data["cards"], **data["scopes"]}[member]["parent"] == id
    assert [s["title"] for s in data["scopes"].values() if "×4" in s["title"]]
    assert all(source in data["cards"] and target in data["cards"] for source, target, *_ in data["wires"])


def test_every_member_has_its_row_and_its_place(traced):
    """Also in the scopes around runs, which the view does not have."""
    data = data_of(traced[2].html())
    items = {**data["cards"], **data["scopes"]}
    assert any(id.startswith("g") for id in data["scopes"])
    for held in data["scopes"].values():
        row = {member: number for number, row in enumerate(held["rows"]) for member in row}
        assert sorted(row) == list(range(len(held["members"])))
        assert all(row[a] < row[b] for a, b in held["pairs"])
        boxes = {i: items[member]["box"] for i, member in enumerate(held["members"])}
        for members in held["rows"]:
            for a, b in itertools.pairwise(members):
                assert boxes[a][0] + boxes[a][1] / 2 < boxes[b][0] - boxes[b][1] / 2
    assert [data["scopes"][side]["side"] for side in data["sides"]] == ["forward", "backward"]
    assert len(data["scopes"][data["root"]]["rows"]) == 1


def test_steps_are_those_of_the_driver_and_end_at_its_gradients(traced):
    model, x, graph = traced
    data = data_of(graph.html(inputs=[x]))
    training(model)(x)
    names = {data["cards"][s["node"]]["name"]: s for s in data["steps"] if s["leaf"]}
    for name, parameter in model.named_parameters():
        shown = names[name]["arrived"][0]["value"]
        np.testing.assert_allclose(numbers(shown), parameter.grad.numpy().ravel(), rtol=1e-4, atol=1e-5)
    waiting = set()
    for step in data["steps"]:
        assert step is data["steps"][0] or step["node"] in waiting
        waiting.discard(step["node"])
        waiting.update(left["to"] for left in step["left"])
    assert not waiting
    assert any(left["count"] == 2 and "total" in left for step in data["steps"] for left in step["left"])


def test_of_large_gradients_the_steps_show_statistics(traced, monkeypatch):
    _, x, graph = traced
    monkeypatch.setattr(htmlfile, "KEPT", 4)
    left = [left for step in data_of(graph.html(inputs=[x]))["steps"] for left in step["left"]]
    assert sum("norm" in entry.get("value", "") for entry in left) > len(left) / 2
    summed = [entry for entry in left if entry["count"] == 2]
    assert summed
    assert all("total" not in entry for entry in summed)


def test_a_graph_without_recorded_steps_has_those_of_its_derivatives(traced):
    graph = traced[2]
    graph.visits = []
    data = data_of(graph.html())
    assert [data["cards"][s["node"]]["title"] for s in data["steps"]][:1] == ["sum"]
    assert all(step["made"] for step in data["steps"])


def test_unfolded_optimised_and_empty_graphs():
    def softmax(x):
        y = x.softmax(-1)
        y[0, 0].backward()
        return y

    x = mg.randn(2, 3, requires_grad=True)
    graph = mg.trace(softmax)(x)
    assert "softmax" in {s["title"].split(": ")[-1] for s in data_of(graph.html(unfold=("*",)))["scopes"].values()}
    from minigrad.compiler import optimise

    for _, stage in optimise(graph):
        data_of(stage.html())
    assert data_of(mg.trace(lambda: None)().html())["steps"] == []
    assert data_of(mg.trace(lambda x: x + 1)(mg.ones(2)).html())["sides"] == []


def test_hostile_names_stay_data():
    page = hostile_graph().html()
    assert page.lower().count("<script") == 2
    assert page.lower().count("</script>") == 2
    assert "<img" not in page
    titles = " ".join(held["title"] for held in data_of(page)["scopes"].values())
    assert "onerror" in titles
    assert "\u202e" not in titles


def test_the_ending_chooses_the_page(tmp_path, traced):
    path = viz.save(traced[2], tmp_path / "graph.html")
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
