"""Where the boxes of a page stand: what `minigrad.viz.arrangement` promises, without a browser."""

import itertools
import random

import pytest

import minigrad as mg
from minigrad import nn
from minigrad.graph import Graph
from minigrad.viz.arrangement import BESIDE, GAP, MOST, Held, arrange, belonging, letters

ROOT = "root"


def held(members, **scopes):
    """A root with these members; other scopes by name. What is no scope is a card."""
    tree = {ROOT: members, **scopes}
    parent = {member: scope for scope, inside in tree.items() for member in inside}
    return {
        id: Held(id, ["f32[2]"] * (len(id) % 3), "forward", parent.get(id, ""), tree.get(id))
        for id in dict.fromkeys([*tree, *parent])
    }


def drawn(seed):
    """Cards of a random program, each of which reads some before it."""
    draw = random.Random(seed)
    cards = ["card" + "x" * draw.randrange(30) + str(i) for i in range(draw.randrange(2, 60))]
    wires = [(draw.choice(cards[:i]), cards[i]) for i in range(1, len(cards)) for _ in range(draw.randrange(4))]
    return held(cards), wires


def row_of(arranged):
    return {member: number for number, row in enumerate(arranged.rows) for member in row}


def spaces(arranged, items):
    """Between the boxes of each row, from left to right."""
    for row in arranged.rows:
        for a, b in itertools.pairwise(row):
            yield arranged.x[b] - arranged.x[a] - (items[a].box[0] + items[b].box[0]) / 2


@pytest.mark.parametrize("seed", range(20))
def test_wires_run_downwards_and_boxes_stand_apart(seed):
    items, wires = drawn(seed)
    found = arrange(items, wires)[ROOT]
    row = row_of(found)
    assert sorted(member for row in found.rows for member in row) == sorted(items[ROOT].members)
    assert set(found.pairs) == set(wires)
    assert all(row[a] < row[b] for a, b in wires)
    assert all(space > GAP - 0.2 for space in spaces(found, items))
    assert all(1 <= len(row) <= MOST for row in found.rows)


@pytest.mark.parametrize("seed", range(3))
def test_backward_scopes_run_upwards(seed):
    items, wires = drawn(seed)
    down = arrange(items, wires)[ROOT]
    items[ROOT] = Held(ROOT, [], "backward", "", items[ROOT].members)
    up = arrange(items, wires)[ROOT]
    assert up.rows == down.rows[::-1]
    assert up.pairs == [(b, a) for a, b in down.pairs]
    assert up.x == down.x


def test_a_chain_stands_in_one_column_and_branches_stand_around_their_source():
    items = held(["a", "b", "c", "left", "right", "join"])
    found = arrange(items, [("a", "b"), ("b", "c"), ("c", "left"), ("c", "right"), ("left", "join"), ("right", "join")])
    assert found[ROOT].rows == [["a"], ["b"], ["c"], ["left", "right"], ["join"]]
    x = found[ROOT].x
    assert x["a"] == x["b"] == x["c"] == x["join"] == pytest.approx((x["left"] + x["right"]) / 2)


def test_lines_do_not_cross_where_another_order_avoids_it():
    items = held(["a", "b", "of b", "of a"])
    assert arrange(items, [("a", "of a"), ("b", "of b")])[ROOT].rows == [["a", "b"], ["of a", "of b"]]


def test_what_reads_nothing_stands_right_above_its_first_reader():
    items = held(["x", "weight", "one", "two", "product"])
    wires = [("x", "one"), ("one", "two"), ("two", "product"), ("weight", "product")]
    row = row_of(arrange(items, wires)[ROOT])
    assert row["weight"] == row["two"] == row["product"] - 1


def test_a_wire_belongs_to_the_innermost_scope_that_holds_both_ends():
    items = held(["x", "outer"], outer=["first", "second"], first=["a"], second=["b", "c"])
    wires = [("x", "a"), ("a", "b"), ("b", "c"), ("x", "c")]
    assert belonging(items, wires) == {
        ROOT: [("x", "outer"), ("x", "outer")],
        "outer": [("first", "second")],
        "second": [("b", "c")],
    }
    assert arrange(items, wires)[ROOT].pairs == [("x", "outer")]


def test_a_wire_against_the_order_of_the_program_moves_nothing():
    """A scope whose first op feeds a card, and whose last op reads it, stands on both sides of it."""
    items = held(["module", "between"], module=["a", "b"])
    found = arrange(items, [("a", "between"), ("between", "b")])[ROOT]
    assert found.rows == [["module"], ["between"]]
    assert found.pairs == [("module", "between")]


def test_a_scope_of_no_and_of_one_member():
    found = arrange(held(["full", "empty"], full=["only"], empty=[]), [])
    assert found["empty"].rows == found["empty"].pairs == []
    assert found["empty"].x == {}
    assert found["full"].rows == [["only"]]
    assert found["full"].x == {"only": 0}


def test_many_that_nothing_joins_are_broken_into_rows():
    members = [f"card{i}" for i in range(2 * MOST + 1)]
    assert [len(row) for row in arrange(held(members), [])[ROOT].rows] == [MOST, MOST, 1]


def test_sides_stand_beside_each_other():
    items = held(["forward", "backward"], forward=["a"], backward=["b"])
    found = arrange(items, [("a", "b")], ["forward", "backward"])[ROOT]
    assert found.rows == [["forward", "backward"]]
    assert found.pairs == []
    assert list(spaces(found, items)) == pytest.approx([BESIDE], abs=0.2)


def test_a_box_is_as_large_as_its_texts():
    assert Held("add", [], "forward", "").box == (54, 22)
    assert letters("名前") == pytest.approx(3.8)
    assert Held("add", ["f32[2]", "f" * 40], "forward", "").box == (238, 46)
    card, scope = Held("a long title", [], "forward", ""), Held("a long title", [], "forward", "", [])
    assert scope.box > card.box
    assert scope.frame < scope.box[0]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).tanh() + x
        return x


def traced() -> Graph:
    mg.manual_seed(0)
    model = Model()

    def step(x):
        loss = model(x).sum()
        loss.backward()
        return loss

    return mg.trace(step)(mg.ones(2, 3))


def test_the_same_graph_gives_the_same_bytes():
    assert traced().html() == traced().html()
