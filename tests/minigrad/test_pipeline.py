"""The compiler's passes: what each needs was ensured before it, and every stage keeps what was ensured until there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import programs, with_gradients

import minigrad as mg
from minigrad import functional as F
from minigrad import nn
from minigrad.compiler.pipeline import PIPELINES, PassError, check, faults, optimise
from minigrad.compiler.rewrite import assemble, like
from minigrad.optim import AdamW

DEVICES = sorted(PIPELINES)


@pytest.mark.parametrize("device", DEVICES)
def test_what_a_pass_needs_was_ensured_and_not_spoiled(device):
    held = set()
    for step in PIPELINES[device]:
        assert held.issuperset(step.needs), f"{step.name} needs more than what passes before it ensure"
        held = (held | {*step.ensures}) - {*step.spoils}


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(program=programs, rows=st.integers(1, 5), columns=st.integers(1, 7))
def test_every_stage_of_a_random_program_is_in_order(device, program, rows, columns):
    a, b = (mg.ones(rows, columns, requires_grad=True) for _ in range(2))
    check(optimise(mg.trace(with_gradients(program))(a, b), device), device)


@pytest.mark.parametrize("device", DEVICES)
def test_transposes_that_cancel_between_reshapes_leave_one_reshape(device):
    stages = optimise(mg.trace(lambda x: x.reshape(2, 3).permute(1, 0).permute(1, 0).reshape(6))(mg.ones(6)), device)
    check(stages, device)
    assert not [node for node in stages[-1][1] if node.op in ("reshape", "permute")]


def training_step():
    mg.manual_seed(0)
    embedding, qkv, out, norm = nn.Embedding(11, 8), nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)
    parameters = [p for module in (embedding, qkv, out, norm) for p in module.parameters()]
    optimizer = AdamW(parameters, 1e-3)

    def step(ids):
        optimizer.zero_grad()
        x = embedding(ids)
        query, key, value = qkv(x).chunk(3, -1)
        x = norm(x + F.dropout(out(F.scaled_dot_product_attention(query, key, value, is_causal=True)), 0.1))
        loss = F.cross_entropy((F.gelu(x) @ embedding.weight.T).reshape(-1, 11), ids.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss

    return mg.trace(step)(mg.tensor([[1, 2, 3], [4, 5, 6]]))


@pytest.mark.parametrize("device", DEVICES)
def test_every_stage_of_a_training_step_is_in_order(device):
    stages = optimise(training_step(), device)
    check(stages, device)
    last = {node.op for node in stages[-1][1]}
    assert "fused" in last
    assert ("fused_matmul" in last) == (device == "cuda")


def after(name, change, monkeypatch):
    """The stages of a training step where the pass of that name also does `change`."""
    steps = tuple(
        step._replace(run=lambda graph, run=step.run: change(run(graph))) if step.name == name else step
        for step in PIPELINES["cpu"]
    )
    monkeypatch.setitem(PIPELINES, "cpu", steps)
    return optimise(training_step())


def an_alias_more(graph):
    node = next(node for node in graph.nodes if node.op == "matmul")
    alias = like(node, ((node, 0),), op="alias", attrs={})
    place = graph.nodes.index(node) + 1
    return assemble(graph, [*graph.nodes[:place], alias, *graph.nodes[place:]], {})


def a_gradient_shared(graph):
    first, second = [leaf for leaf in graph.gradients if leaf.outputs[0][0] == (8,)][:2]
    graph.gradients[first] = graph.gradients[second]
    return graph


def backwards(graph):
    graph.nodes = graph.nodes[::-1]
    return graph


def another_shape(graph):
    node = next(node for node in graph.nodes if node.op == "matmul")
    node.outputs = (((1, 2, 3), np.dtype(np.float32)),)
    return graph


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("share_equal", an_alias_more, "breaks no_alias_is_left"),
        ("own_gradients", a_gradient_shared, "breaks gradients_lie_apart"),
        ("fold_constants", backwards, "which is not computed before it"),
        ("drop_aliases", another_shape, "not those of its op's rule"),
    ],
)
def test_a_pass_that_breaks_something_is_named(name, change, said, monkeypatch):
    with pytest.raises(PassError, match=said):
        check(after(name, change, monkeypatch))


def test_a_graph_that_lacks_a_result_is_not_well_formed():
    graph = mg.trace(lambda x: x.exp())(mg.ones(2))
    graph.nodes = graph.nodes[:-1]
    assert any("does not compute" in fault for fault in faults(graph))
