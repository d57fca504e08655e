"""Traces: replayed they give the same numbers bit for bit, they leave the outside alone, and they can be read."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional as F
from minigrad.graph import Graph
from minigrad.node import Node
from minigrad.ops.registry import OPS
from minigrad.state import state

HERE = Path(__file__).name


def sampled() -> list[tuple[str, int]]:
    return [(name, i) for name, op in OPS.items() for i, _ in enumerate(op.samples(np.random.default_rng(0)))]


def leaf(*shape: int, seed: int = 0) -> mg.Tensor:
    return mg.tensor(np.random.default_rng(seed).standard_normal(shape), requires_grad=True)


def flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


# --- the same numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "i"), sampled())
def test_every_op_replays_bit_for_bit(name: str, i: int) -> None:
    """Forward and backward, in float64."""
    op = OPS[name]
    inputs, attrs = list(op.samples(np.random.default_rng(0)))[i]
    arrays = [np.asarray(a) for a in inputs]
    if name in ("take", "put", "put_add") and any(a.dtype == bool for a in arrays):
        pytest.skip("a boolean index cannot be traced")
    tensors = [mg.tensor(a) for a in arrays]
    for t in tensors:
        t.requires_grad_(t.is_floating_point())

    def program(*given: mg.Tensor) -> list[mg.Tensor]:
        results = flat(op(*given, **attrs))
        wanted = [t for t in given if t.requires_grad]
        roots = [r for r in results if r.requires_grad]
        if not roots or not op.has_vjp:
            return results
        gradients = mg.grad(roots, wanted, [mg.ones_like(r) * 0.7 for r in roots], allow_unused=True)
        return results + [g for g in gradients if g is not None]

    graph = mg.trace(program)(*tensors)
    replayed, eager = graph.run(*tensors), program(*tensors)
    assert len(replayed) == len(eager)
    for got, want in zip(replayed, eager, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want.detach().numpy())


def network(x: mg.Tensor, weights: list[mg.Tensor]) -> mg.Tensor:
    hidden = F.layer_norm(F.gelu(F.linear(x, weights[0])), 8)
    heads = hidden.reshape(-1, 2, 4).transpose(0, 1)
    mixed = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    return F.linear(mixed.transpose(0, 1).reshape(-1, 8), weights[1])


def training_step(x: mg.Tensor, target: mg.Tensor, weights: list[mg.Tensor], momentum: list[mg.Tensor]) -> mg.Tensor:
    loss = F.cross_entropy(network(x, weights), target)
    for weight in weights:
        weight.grad = None
    loss.backward()
    with mg.no_grad():
        for weight, m in zip(weights, momentum, strict=True):
            m.mul_(0.9).add_(weight.grad)
            weight -= 0.1 * m
            weight[0].clamp_(-1.0, 1.0)
    return loss


def test_a_training_step_replays_and_leaves_the_outside_alone() -> None:
    rng = np.random.default_rng(0)
    x, target = mg.tensor(rng.standard_normal((6, 3))), mg.tensor(rng.integers(0, 5, 6))
    weights = [leaf(8, 3), leaf(5, 8, seed=1)]
    momentum = [mg.ones_like(w) for w in weights]
    weights[0].grad = mg.ones_like(weights[0])
    before = [t.detach().numpy().copy() for t in (*weights, *momentum)]
    versions = [t.storage.version for t in (*weights, *momentum)]

    graph = mg.trace(lambda x, target: training_step(x, target, weights, momentum))(x, target)

    for t, values, version in zip((*weights, *momentum), before, versions, strict=True):
        np.testing.assert_array_equal(t.detach().numpy(), values)
        assert t.storage.version == version
        assert t.requires_grad == any(t is w for w in weights)
    assert weights[0].grad.tolist() == np.ones((8, 3)).tolist()
    assert weights[1].grad is None
    assert not state.interpreter.tracing
    assert len(graph.constants) >= 4
    changed = [tensor for tensor, _ in graph.mutations]
    assert {id(t) for t in changed} == {id(t) for t in (*weights, *momentum)}
    assert set(graph.gradients) == {w.node for w in weights}

    everything = Graph(graph.nodes, graph.inputs, [*graph.outputs, *(e for _, e in graph.mutations),
                       *graph.gradients.values()], graph.constants)  # fmt: skip
    loss, *rest = everything.run(x, target)
    assert graph.run(x, target) == loss
    assert training_step(x, target, weights, momentum).item() == loss
    for tensor, replayed in zip(changed, rest, strict=False):
        np.testing.assert_array_equal(replayed, tensor.detach().numpy())
    for node, replayed in zip(graph.gradients, rest[len(changed) :], strict=True):
        weight = next(w for w in weights if w.node is node)
        np.testing.assert_array_equal(replayed, weight.grad.numpy())


def test_views_and_changes_in_place_inside_a_trace() -> None:
    outside = mg.arange(6).double().reshape(2, 3)
    transposed = mg.tensor(np.arange(6.0).reshape(3, 2)).t() * 1

    def program(x: mg.Tensor) -> mg.Tensor:
        y = x * 2
        row = y[0]
        y[:, 1] += 5
        row.mul_(3)
        y.t()[2].fill_(-1.0)
        outside[1] = row
        transposed[0].add_(row)
        constant = outside.detach() * 1
        outside.data = outside * 2
        return y + row + constant + transposed + y.data

    x = leaf(2, 3)
    graph = mg.trace(program)(x)
    assert outside.tolist() == [[0, 1, 2], [3, 4, 5]]
    np.testing.assert_array_equal(graph.run(x), program(x).detach().numpy())
    assert outside.tolist() != [[0, 1, 2], [3, 4, 5]]


def test_random_numbers_advance_with_the_graph_not_with_the_trace() -> None:
    mg.manual_seed(3)
    state_before = mg.random.default_generator.get_state().tolist()
    graph = mg.trace(lambda x: F.dropout(x, 0.5) + mg.randn(4))(mg.ones(4))
    assert mg.random.default_generator.get_state().tolist() == state_before
    assert [id(tensor) for tensor, _ in graph.mutations] == [id(mg.random.default_generator.state)]
    first = graph.run(mg.ones(4))
    np.testing.assert_array_equal(first, (F.dropout(mg.ones(4), 0.5) + mg.randn(4)).numpy())


def test_structures_in_and_out() -> None:
    Pair = namedtuple("Pair", "a b")

    def program(batch: dict[str, Any], scale: float, *, extra: Any) -> Any:
        return {"sum": batch["x"] + batch["y"][0], "pair": Pair(batch["x"] * scale, "text"), "extra": extra.a}

    x, y = mg.ones(2), mg.full((2,), 3.0)
    graph = mg.trace(program)({"x": x, "y": [y]}, 2.0, extra=Pair(y, None))
    result = graph.run(x, y, y)
    assert result["sum"].tolist() == [4.0, 4.0]
    assert isinstance(result["pair"], Pair)
    assert result["pair"].a.tolist() == [2.0, 2.0]
    assert result["pair"].b == "text"
    with pytest.raises(ValueError, match="takes 3 inputs, got 1"):
        graph.run(x)
    with pytest.raises(ValueError, match="traced as float32"):
        graph.run(mg.ones(3), y, y)


def test_a_history_from_outside_is_not_freed_by_a_trace() -> None:
    x = leaf(3)
    y = x * x
    graph = mg.trace(lambda z: mg.grad((y * z).sum(), x))(mg.ones(3, dtype=mg.float64))
    np.testing.assert_array_equal(graph.run(mg.ones(3, dtype=mg.float64)), 2 * x.detach().numpy())
    y.sum().backward()
    assert x.grad is not None


# --- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.sum().item(),
        lambda x: 1.0 if x.sum() > 0 else 2.0,
        lambda x: x.tolist(),
        lambda x: x.detach().numpy(),
        lambda x: np.asarray(x.detach()),
        lambda x: float(x[0]),
        lambda x: [0, 1, 2][x.long()[0]],
        lambda x: f"{x[0]:.3f}",
    ],
)
def test_looking_at_values_is_an_error_that_says_why(look: Any) -> None:
    with pytest.raises(RuntimeError, match=r"only being traced.*use where\(\) instead of if"):
        mg.trace(look)(mg.ones(3))
    assert not state.interpreter.tracing


def test_values_of_the_outside_are_gone_once_the_trace_changed_them() -> None:
    counter = mg.zeros(1)

    def program(x: mg.Tensor) -> mg.Tensor:
        assert counter.item() == 0.0
        counter.add_(1)
        return x * counter.item()

    with pytest.raises(RuntimeError, match="only being traced"):
        mg.trace(program)(mg.ones(1))
    assert counter.item() == 0.0


def test_what_cannot_be_traced() -> None:
    x = mg.ones(3)
    with pytest.raises(RuntimeError, match=r"boolean tensor.*masked_fill"):
        mg.trace(lambda x: x[x > 0])(x)
    with pytest.raises(RuntimeError, match="num_classes"):
        mg.trace(lambda x: F.one_hot(x.long()))(x)
    kept: list[mg.Tensor] = []
    mg.trace(lambda x: kept.append(x * 2))(x)
    with pytest.raises(RuntimeError, match="earlier trace"):
        mg.trace(lambda x: x + kept[0])(x)
    assert "traced" in repr(kept[0])


def test_a_traced_function_may_trace_another_one() -> None:
    inner: list[Graph] = []

    def program(x: mg.Tensor) -> mg.Tensor:
        y = x * 2
        inner.append(mg.trace(lambda z: (z * z).sum() + z.amax())(y))
        return y + len(inner[0])

    x = leaf(3)
    graph = mg.trace(program)(x)
    assert [node.op for node in inner[0]] == ["leaf", "mul", "sum", "amax", "add"]
    assert [node.op for node in graph] == ["leaf", "literal", "mul", "literal", "add"]
    np.testing.assert_array_equal(graph.run(x), x.detach().numpy() * 2 + 5)
    values = mg.tensor([1.0, 2.0, 3.0], dtype=mg.float64)
    assert inner[0].run(values) == 14 + 3


def test_a_trace_inside_another_sees_what_it_is_given_and_says_so() -> None:
    def reads(x: mg.Tensor) -> Any:
        y = x * 2
        return mg.trace(lambda z: z + y)(x)

    with pytest.raises(RuntimeError, match=r"trace around this one \(then pass it as an argument\)"):
        mg.trace(reads)(mg.ones(3))

    def replays(x: mg.Tensor) -> Any:
        return mg.trace(lambda z: z + 1)(x).run(x)

    with pytest.raises(RuntimeError, match="only being traced"):
        mg.trace(replays)(mg.ones(3))
    assert not state.interpreter.tracing


def test_a_trace_leaves_what_an_outer_trace_changed_as_it_was() -> None:
    weight, outside = leaf(2), mg.zeros(2)

    def inner(z: mg.Tensor) -> mg.Tensor:
        outside.add_(1)
        (z * weight).sum().backward()
        return weight.grad

    def program(x: mg.Tensor) -> mg.Tensor:
        found = mg.trace(inner)(x)
        assert weight.grad is None
        assert len(found.mutations) == 1
        return x + outside

    graph = mg.trace(program)(mg.ones(2, dtype=mg.float64))
    assert not graph.mutations
    assert graph.run(mg.ones(2, dtype=mg.float64)).tolist() == [1.0, 1.0]
    assert outside.tolist() == [0.0, 0.0]


# --- reading a graph --------------------------------------------------------------------------------


class Block:
    """Stands for a module: pushes its scope."""

    def __init__(self, name: str, kind: str = "Block") -> None:
        self.scope = (name, kind)

    def __call__(self, x: mg.Tensor) -> mg.Tensor:
        before = state.scope
        state.scope = (*before, self.scope)
        try:
            return x.exp() * 2
        finally:
            state.scope = before


def hostile(name: str = 'a"b\\n\\"; evil [label=x] {') -> Graph:
    graph = mg.trace(lambda x: Block(name, "Kind\n<b>")(x))(leaf(2))
    graph.nodes[0].name = 'in"put\\'
    return graph


def test_nodes_know_the_users_lines_and_scopes() -> None:
    def program(x: mg.Tensor) -> mg.Tensor:
        y = F.softmax(Block("layers.0")(x), -1)  # the line that is looked for
        y[0] = 1.0
        return y.sum()

    graph = mg.trace(program)(mg.ones(2, 3))
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    by_op = {node.op: node for node in graph if node.inputs}
    assert all(Path(node.source[0]).name == HERE for node in by_op.values())
    assert "the line that is looked for" in lines[by_op["softmax"].source[1] - 1]
    assert "x.exp() * 2" in lines[by_op["exp"].source[1] - 1]
    assert "y.sum()" in lines[by_op["sum"].source[1] - 1]
    assert by_op["exp"].path == "layers.0"
    assert by_op["softmax"].scope == ()
    assert re.fullmatch(rf"{HERE}:\d+, in layers.0", by_op["exp"].place)


def test_the_listing_reads_like_a_program() -> None:
    def program(x: mg.Tensor) -> Any:
        loss = (Block("block")(x) ** 2).sum()
        return loss, mg.grad(loss, x)

    text = str(mg.trace(program)(leaf(2, 3)))
    lines = text.splitlines()
    assert lines[0] == "graph(x: f64[2, 3] requires_grad):"
    assert re.match(r"    %0 = exp\(x\) -> f64\[2, 3\] +# block, test_trace.py:\d+$", lines[1])
    assert "backward of %" in text
    assert lines[-1].startswith("    return %")
    assert all(len(line) < 160 for line in lines)


@pytest.mark.parametrize("make", [hostile, lambda: mg.trace(lambda x: (Block("a")(x).sum(), x))(leaf(2))])
def test_dot_is_valid_graphviz(make: Any) -> None:
    graph = make()
    text = graph.dot()
    assert text == graph.dot()
    quoted = re.compile(r'"(?:[^"\\]|\\.)*"')
    bare = quoted.sub('""', text)
    assert '"' not in bare.replace('""', "")
    assert bare.count("{") == bare.count("}")
    assert bare.count("[") == bare.count("]")
    declared = set(re.findall(r"^\s*(\w+) \[", bare, re.MULTILINE))
    arrows = re.findall(r"(\w+) -> (\w+)", bare)
    assert arrows
    assert {end for arrow in arrows for end in arrow} <= declared
    assert "evil" not in bare
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=text.encode(), check=True, capture_output=True, timeout=60)


def test_nodes_that_no_op_registers_can_be_drawn_and_listed() -> None:
    a = Node("input", {}, (), (((2,), mg.float32),))
    b = Node("aten.mish", {"inplace": False}, ((a, 0), None), (((2,), mg.float32),))
    graph = Graph([a, b], [a], [(b, 0)], {})
    assert "aten.mish(%0, _, inplace=False)" in str(graph)
    assert "aten.mish" in graph.dot()
