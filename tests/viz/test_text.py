"""Listings: readable, and read back as graphs that compute the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import programs, with_gradients

import minigrad as mg
from minigrad import functional as F
from minigrad import nn
from minigrad.optim import AdamW
from minigrad.state import scope
from minigrad.tracing.nests import flatten
from minigrad.viz.parse import named_constants, parse


def flat(graph, *inputs):
    return [np.asarray(value) for value in flatten([mg.tensor(a) for a in _arrays(graph.run(*inputs))])[0]]


def _arrays(result):
    if result is None:
        return []
    return [a for part in result for a in _arrays(part)] if isinstance(result, tuple | list) else [result]


def assert_round_trip(graph, *inputs):
    text = str(graph)
    again = parse(text, named_constants(graph))
    assert [line.split("  #")[0].rstrip() for line in str(again).splitlines()] == [
        line.split("  #")[0].rstrip() for line in text.splitlines()
    ]
    for got, expected in zip(flat(again, *inputs), flat(graph, *inputs), strict=True):
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype


@settings(max_examples=60, deadline=None, derandomize=True)
@given(program=programs, rows=st.integers(1, 5), columns=st.integers(1, 7), double=st.booleans())
def test_a_listing_parses_back_and_computes_the_same(program, rows, columns, double):
    rng = np.random.default_rng(rows)
    dtype = mg.float64 if double else mg.float32
    a, b = (mg.tensor(rng.standard_normal((rows, columns)), dtype=dtype, requires_grad=True) for _ in range(2))
    assert_round_trip(mg.trace(with_gradients(program))(a, b), a.detach().numpy(), b.detach().numpy())


def test_a_training_step_reads_back_with_its_gradients_and_updates():
    model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    optimizer = AdamW(model.parameters())

    def step(x, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    x, labels = mg.randn(5, 3), mg.tensor([0, 1, 1, 0, 1])
    graph = mg.trace(step)(x, labels)
    again = parse(str(graph), named_constants(graph))
    assert len(again.gradients) == len(graph.gradients) == 4
    assert len(again.mutations) == len(graph.mutations) > 4
    np.testing.assert_array_equal(again.run(x, labels), graph.run(x, labels))


def test_what_a_listing_says():
    def scaled(x):
        return (x * weight).sum() / 2

    weight = mg.tensor([1.0, 0.5], requires_grad=True)
    text = str(mg.trace(scaled)(mg.ones(3, 2)))
    assert text.splitlines()[0] == "graph(x: f32[3, 2]):"
    assert "weight = parameter f32[2] [1.0, 0.5]" in text
    assert "div(%1, 2.0) -> f32[]" in text
    assert "test_text.py:" in text


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 1e-30, -2.5])
def test_literals_that_python_writes_strangely(value):
    assert_round_trip(mg.trace(lambda x: mg.where(x > 0, x, value))(mg.ones(3)), np.array([1.0, -1, 0], np.float32))


def test_names_that_could_be_read_as_something_else_are_quoted():
    graph = mg.trace(lambda *parts: parts[0] + parts[1])(mg.ones(2), mg.ones(2))
    for node, name in zip(graph.inputs, ['a, b) -> # "', "注意 力"], strict=True):
        node.name = name
    assert_round_trip(graph, np.ones(2, np.float32), np.ones(2, np.float32))


def test_a_module_of_any_name_stays_in_its_comment():
    def function(x):
        with scope("first\nreturn x\u2028", "Odd"):
            return x + mg.tensor([1.0, 2.0])

    assert_round_trip(mg.trace(function)(mg.ones(2)), np.ones(2, np.float32))


def test_two_nodes_of_one_name_stay_apart():
    graph = mg.trace(lambda x, y: x - y)(mg.ones(2), mg.ones(2))
    graph.inputs[1].name = "x"
    assert_round_trip(graph, np.ones(2, np.float32), np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph(x: f32[2]):\n    return y", "line 2 .*nothing is called y"),
        ("graph(x: f32[2]):\n    %0 = neg(x) -> f99[2]\n    return %0", "line 2 .*there is no dtype f99"),
        ("graph(x: f32[2]):\n    x = neg(x) -> f32[2]\n    return x", "defined twice"),
        ("graph(x: f32[2]):\n    %0 = neg(x) -> f32[2]", "no line that begins with return"),
        ("graph(x: f32[2]: y):\n    return x", r"line 1 .*'f32\[2\]: y' is no shape and dtype"),
        ("graph(x: f32[2]):\n    return x.1", "an output that input does not have"),
        ("graph(x: f32[2]):\n    return x\n    return x", "nothing may follow return"),
        (
            "graph(x: f32[2]):\n    %0 = sum(x, dims=-(1, 2)) -> f32[]\n    return %0",
            r"line 2 .*-\(1, 2\) is no number",
        ),
        ("graph(x: f32[2]):\n    x <- x\n    return x", "line 2 .*x is no parameter or constant"),
        ("graph(x: f32[2]):\n    y <- x\n    return x", "line 2 .*nothing is called y"),
        ("graph(x: f32[2]):\n    c = constant f32[1] [f32]\n    return c", "line 2 of the listing cannot be read"),
        (
            f"graph(x: f32[2]):\n    c = constant i64[1] [{'9' * 30}]\n    return c",
            "line 2 of the listing cannot be read",
        ),
        (f"graph(x: f32[2]):\n    %0 = sum(x, dims={'-' * 200_000}1) -> f32[]\n    return %0", "line 2 .* too deeply"),
    ],
)
def test_what_is_no_listing_is_refused_with_its_line(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_a_large_constant_must_be_given():
    table = mg.randn(30)
    graph = mg.trace(lambda x: x + table)(mg.ones(30))
    with pytest.raises(KeyError, match="only names the constant table"):
        parse(str(graph))
    assert_round_trip(graph, np.ones(30, np.float32))
