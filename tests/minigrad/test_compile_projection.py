"""A projection to many words and its cross-entropy: compiled in chunks, equal to the loss of the whole logits."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import functional as F
from minigrad.compiler import compile


def values(result):
    return [r.detach().numpy() for r in result if r is not None]


@pytest.mark.parametrize("tokens", [3, 300])
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1, "ignore_index": 0, "reduction": "sum"}])
def test_a_large_projection_is_computed_in_chunks(monkeypatch, tokens, options):
    monkeypatch.setattr("minigrad.compiler.projection.LARGE", 0)
    rng = np.random.default_rng(0)
    x, weight = (mg.tensor(rng.standard_normal(s), dtype=mg.float32, requires_grad=True) for s in ((tokens, 4), (9, 4)))
    targets = mg.from_numpy(rng.integers(0, 9, tokens))

    def step(x, weight, targets):
        loss = F.cross_entropy(F.linear(x, weight), targets, **options)
        return (loss, *mg.grad(loss * 2, [x, weight]))

    expected = values(step(x, weight, targets))
    compiled = compile(step)
    got = values(compiled(x, weight, targets))
    [(_, stages)] = compiled.plans.values()
    ops = [node.op for node in stages[-1][1].nodes]
    assert "linear_cross_entropy_grad" in ops
    assert "matmul" not in ops
    for mine, want in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-5, atol=1e-5)


def test_a_projection_stays_whole_where_its_logits_are_read(monkeypatch):
    monkeypatch.setattr("minigrad.compiler.projection.LARGE", 0)
    x, weight = (mg.ones(*shape).requires_grad_() for shape in ((3, 4), (9, 4)))

    def step(x, weight):
        logits = F.linear(x, weight)
        loss = F.cross_entropy(logits, mg.tensor([0, 1, 2]))
        return (loss, logits, *mg.grad(loss, [x, weight]))

    compiled = compile(step)
    np.testing.assert_allclose(compiled(x, weight)[1].detach().numpy(), 4)
    [(_, stages)] = compiled.plans.values()
    assert all(node.op != "linear_cross_entropy_grad" for node in stages[-1][1].nodes)


@pytest.mark.parametrize("itself", [True, False])
def test_a_gradient_of_the_loss_that_depends_on_the_loss(itself, monkeypatch):
    monkeypatch.setattr("minigrad.compiler.projection.LARGE", 0)
    x, weight = (mg.randn(*shape, generator=mg.Generator(0)).requires_grad_() for shape in ((3, 4), (9, 4)))

    def step(x, weight):
        loss = F.cross_entropy(F.linear(x, weight), mg.tensor([0, 1, 2]))
        return (loss, *mg.grad(loss if itself else loss * loss, [x, weight], loss.detach()))

    compiled = compile(step)
    for got, want in zip(values(compiled(x, weight)), values(step(x, weight)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    ((plan, _),) = compiled.plans.values()
    assert all(node.op != "linear_cross_entropy_grad" for node in plan.graph.nodes)


def test_the_loss_of_a_projection_is_that_of_its_logits():
    rng = np.random.default_rng(0)
    x, weight = (mg.tensor(rng.standard_normal(s), requires_grad=True) for s in ((2, 3, 4), (9, 4)))
    targets = mg.from_numpy(rng.integers(0, 9, (2, 3)))
    one = F.linear_cross_entropy(x, weight, targets, label_smoothing=0.1)
    two = F.cross_entropy(F.linear(x, weight).reshape(-1, 9), targets.reshape(-1), label_smoothing=0.1)
    np.testing.assert_allclose(one.item(), two.item(), rtol=1e-12)
    for mine, want in zip(mg.grad(one, [x, weight]), mg.grad(two, [x, weight]), strict=True):
        np.testing.assert_allclose(mine.numpy(), want.numpy(), atol=1e-12)


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (((3, 4), (9, 5), (3,)), {}, "must be \\(..., d\\) and"),
        (((3, 4), (9, 4), (2,)), {}, "needs targets of shape \\[3\\]"),
        (((3, 4), (9, 4), (3,)), {"reduction": "none"}, "use cross_entropy"),
        (((3, 4), (9, 4), (3,)), {"label_smoothing": 2.0}, "must lie in"),
    ],
)
def test_bad_projections_are_refused_in_one_sentence(shapes, options, message):
    x, weight, targets = shapes
    with pytest.raises(ValueError, match=message):
        F.linear_cross_entropy(mg.ones(*x), mg.ones(*weight), mg.zeros(*targets, dtype=mg.int64), **options)
