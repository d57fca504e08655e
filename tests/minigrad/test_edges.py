"""Edges at which minigrad once gave other values than torch: dtypes, memory, rounding, infinities."""

import numpy as np
import pytest
import torch

import minigrad as mg
import minigrad.torch as standin
from minigrad import functional as F
from minigrad import kernels

SPECIAL = np.array([0.0, np.inf, 1e-40, 4.0, 1.0, 2.0, 3.0, 1e30], np.float32)


@pytest.mark.parametrize(
    "function",
    [lambda x: x.rsqrt() * 2, lambda x: 1 / x.sqrt() + 1, lambda x: (x + 1) / (x.sqrt() * 3), lambda x: x.reciprocal()],
    ids=["rsqrt", "one by root", "by a product of a root", "reciprocal"],
)
def test_plans_divide_by_roots_of_zero_and_infinity_as_eager_ops_do(function):
    x = mg.from_numpy(np.tile(SPECIAL, 20))
    plan = mg.compile(function)
    plan(x)
    np.testing.assert_allclose(plan(x).numpy(), function(x).numpy(), rtol=1e-6)


@pytest.mark.parametrize("norm", [lambda x: F.rms_norm(x), lambda x: F.layer_norm(x, 8)], ids=["rms", "layer"])
def test_a_row_with_an_infinity_is_normalised_as_the_reference_does(norm):
    x = mg.from_numpy(np.array([[np.inf, 1, 2, 3, 4, 5, 6, 7]], np.float32))
    with kernels.use("always"):
        fast = norm(x).numpy()
    with kernels.use("reference"):
        np.testing.assert_array_equal(fast, norm(x).numpy())


@pytest.mark.parametrize("norm", [lambda x: F.rms_norm(x), lambda x: F.layer_norm(x, 3)], ids=["rms", "layer"])
def test_a_norm_of_transposed_rows_lies_in_row_major_order_as_torchs_does(norm):
    y = norm(mg.tensor(np.arange(12.0).reshape(3, 4)).permute(1, 0))
    same = y.contiguous()
    y.zero_()
    assert not same.numpy().any()


def test_what_a_list_indexes_lies_in_row_major_order_and_a_flat_view_of_it_writes_into_it():
    x = mg.arange(125.0).reshape(5, 5, 5)
    y = x[:, :, [0, 3]]
    assert y.is_contiguous()
    flat = y.flatten()
    flat.zero_()
    assert float(y.abs().sum()) == 0


@pytest.mark.parametrize(
    "make",
    [lambda x: x.t().softmax(-1),
     lambda x: mg.cat([x.transpose(0, 1), x.transpose(0, 1)]), lambda x: x.transpose(0, 1)[[1, 0]],
     lambda x: x.transpose(0, 1).log_softmax(0)],
    ids=["softmax", "cat", "list", "log_softmax"],
)  # fmt: skip
def test_results_that_torch_keeps_contiguous_can_be_viewed(make):
    x = mg.from_numpy(np.random.default_rng(0).standard_normal((3, 4)))
    expected = make(x).numpy().ravel()
    np.testing.assert_array_equal(make(x).view(-1).numpy(), expected)
    plan = mg.compile(lambda x: make(x).view(-1) * 1.0)
    plan(x)
    np.testing.assert_array_equal(plan(x).numpy(), expected)


@pytest.mark.parametrize(
    "copy",
    [lambda x: x.sort()[0], lambda x: x.topk(1)[0], lambda x: x.max(0)[0], lambda x: x.min(0)[0],
     lambda x: x.reshape(1).repeat_interleave(1), lambda x: x.reshape(1).repeat_interleave(3),
     lambda x: x.reshape(1).scatter(0, mg.zeros(0, dtype=mg.int64), mg.zeros(0))],
    ids=["sort", "topk", "max", "min", "once", "thrice", "scatter nothing"],
)  # fmt: skip
def test_a_change_of_a_copy_leaves_its_source(copy):
    x = mg.tensor(3.0)
    copy(x).mul_(2.0)
    assert float(x) == 3.0


def test_a_view_that_expands_to_its_own_shape_can_be_changed():
    x = mg.ones(2, 3)
    x.expand(2, 3).mul_(2.0)
    x.expand(1, 2, 3).add_(1.0)
    assert x.tolist() == [[3.0] * 3] * 2


@pytest.mark.parametrize(
    "call",
    [lambda m: m.arange(0.1, -7.9, -4.0, dtype=m.int64), lambda m: m.arange(0, 1, 0.3), lambda m: m.arange(5, 0, -2),
     lambda m: m.linspace(-3, 5, 4, dtype=m.int64), lambda m: m.linspace(0.9, 5.9, 3, dtype=m.int64),
     lambda m: m.linspace(0, 1, 7), lambda m: m.tensor([2, 0], dtype=m.uint8).all(0), lambda m: m.ones(2, 3).prod(
        dtype=m.float64), lambda m: m.tensor([1, 2]).cumsum(0, dtype=m.float32),
     lambda m: m.tensor([3, 0], dtype=m.uint8).any(), lambda m: m.tensor([7, -7, 5]).div(2, rounding_mode="trunc"),
     lambda m: m.tensor([7.5, -7.5]).div(2, rounding_mode="trunc"),
     lambda m: m.tensor([7.5, -7.5]).div(2, rounding_mode="floor"), lambda m: m.tensor([0.125, 25.5]).round(decimals=1),
     lambda m: m.tensor([125.0, -375.0]).round(decimals=-1), lambda m: m.tensor([3.0, -4.0, 0.0]).norm(1),
     lambda m: m.tensor([3.0, -4.0, 0.0]).norm(0), lambda m: m.tensor([3.0, -4.0, 0.0]).norm(float("inf")),
     lambda m: m.tensor([3.0, -4.0]).norm(-float("inf")), lambda m: m.tensor([[3.0, -4.0]]).norm(3, 1),
     lambda m: m.tensor([1.0, 2.0, 4.0]).var(False), lambda m: m.tensor([1.0, 5.0]).std(0, correction=0),
     lambda m: m.meshgrid([m.arange(2), m.arange(3)], indexing="xy")[0], lambda m: m.tensor(3.0).gather(0, m.tensor([0])
        ), lambda m: m.tensor(3.0).index_select(0, m.tensor([0])), lambda m: m.flip(m.tensor([[1, 2]]), dims=[1]),
     lambda m: m.tensor([1.0, 2.0]).scatter(0, m.tensor([0]), 9.0), lambda m: m.tensor([1.0, 2.0]).scatter(
        0, m.tensor([0, 0]), m.tensor([1.0, 1.0]), reduce="add"), lambda m: m.eye(2, requires_grad=False)],
)  # fmt: skip
def test_values_and_dtypes_are_torchs(call):
    one, other = call(torch), call(mg)
    assert str(one.dtype).removeprefix("torch.") == other.dtype.name
    np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-6)


def test_the_gradient_of_relu_passes_at_nan():
    values = np.array([-1.0, 0.0, 2.0, np.nan])
    x = mg.from_numpy(values.copy()).requires_grad_()
    x.relu().sum().backward()
    y = torch.from_numpy(values.copy()).requires_grad_()
    y.relu().sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.grad.numpy())


def test_variance_far_from_zero_keeps_its_digits():
    values = (1e4 + 1e-3 * np.random.default_rng(0).standard_normal(1000)).astype(np.float32)
    exact = values.astype(np.float64)
    x = mg.from_numpy(values)
    for function in (lambda x: x.var(), lambda x: x.std() ** 2):
        assert float(function(x)) == pytest.approx(exact.var(ddof=1), rel=1e-4)
        plan = mg.compile(function)
        plan(x)
        assert float(plan(x)) == pytest.approx(exact.var(ddof=1), rel=1e-4)


def test_the_deviation_of_enormous_and_tiny_numbers_is_finite_and_not_zero():
    values = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    for scale in (1e30, 1e-30):
        x = mg.from_numpy(values * np.float32(scale))
        assert float(x.std()) == pytest.approx(values.astype(np.float64).std(ddof=1) * scale, rel=1e-5)
        assert float(x.norm()) == pytest.approx(np.linalg.norm(values.astype(np.float64)) * scale, rel=1e-5)


def test_running_sums_are_added_in_float64():
    values = np.random.default_rng(0).standard_normal(8193).astype(np.float32)
    exact = values.astype(np.float64).cumsum()
    assert np.abs(mg.from_numpy(values).cumsum(0).numpy() - exact).max() < 1e-5


@pytest.mark.parametrize("compiled", [False, True])
def test_cross_entropy_of_logits_near_ten_thousand(compiled):
    rng = np.random.default_rng(0)
    values = (1e4 + rng.standard_normal((2, 4097))).astype(np.float32)
    targets = rng.integers(0, 4097, 2)

    def step(x):
        loss = F.cross_entropy(x, mg.from_numpy(targets))
        return loss, mg.grad(loss, x)

    x = mg.from_numpy(values).requires_grad_()
    run = mg.compile(step) if compiled else step
    run(x)
    loss, gradient = run(x)
    y = torch.from_numpy(values.astype(np.float64)).requires_grad_()
    exact = torch.nn.functional.cross_entropy(y, torch.from_numpy(targets))
    exact.backward()
    assert float(loss) == pytest.approx(exact.item(), rel=1e-6)
    np.testing.assert_allclose(gradient.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-12)


def test_linear_cross_entropy_of_logits_near_ten_thousand():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 8)).astype(np.float32), rng.standard_normal((600, 8)).astype(np.float32)
    x[:, 0], w[:, 0] = 100.0, 100.0
    targets = rng.integers(0, 600, 3)
    with kernels.use("always"):
        given = mg.from_numpy(x).requires_grad_()
        loss = F.linear_cross_entropy(given, mg.from_numpy(w), mg.from_numpy(targets), label_smoothing=0.1)
        loss.backward()
    y = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    logits = y @ torch.from_numpy(w.astype(np.float64)).T
    torch.nn.functional.cross_entropy(logits, torch.from_numpy(targets), label_smoothing=0.1).backward()
    np.testing.assert_allclose(given.grad.numpy()[:, 1:], y.grad.numpy()[:, 1:], rtol=2e-3, atol=2e-4)


REFUSED = {
    "value of one": (lambda: mg.ones(2).masked_fill(mg.ones(2) > 0, mg.ones(1)), ValueError, "without dimensions"),
    "no shift": (lambda: mg.ones(2).roll([]), ValueError, "at least one shift"),
    "dtype": (lambda: mg.ones(2).scatter(0, mg.tensor([0]), mg.ones(1, dtype=mg.float64)), TypeError, "convert"),
    "decimals": (lambda: mg.arange(3).round(decimals=1), TypeError, "floating"),
    "mode": (lambda: mg.ones(2).div(2, rounding_mode="up"), ValueError, "'trunc' or 'floor'"),
    "no vectors": (lambda: mg.meshgrid(), ValueError, "at least one"),
    "two sources": (lambda: mg.ones(2).scatter(0, mg.tensor([0]), 1.0, value=2.0), TypeError, "src or value"),
    "reduce": (lambda: mg.ones(2).scatter(0, mg.tensor([0]), 1.0, reduce="mean"), ValueError, "'add'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused_in_one_sentence(name):
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("compiled", [False, True])
def test_what_division_and_attention_gave_may_be_changed_in_place(compiled):
    rng = np.random.default_rng(0)
    values = [rng.standard_normal((1, 2, 3, 4)) for _ in range(3)]

    def step(t, q, k, v):
        y = t.nn.functional.scaled_dot_product_attention(q, k, v)
        y = y * 2.0 if t is torch else y.mul_(2.0)  # on a CPU torch refuses this change for some shapes
        z = q / (k * k + 1.0)
        z[..., 0] = 3.0
        return (y * y).sum() + (z * z).sum()

    x = [torch.from_numpy(a.copy()).requires_grad_() for a in values]
    expected = torch.autograd.grad(step(torch, *x), x)
    given = [mg.from_numpy(a.copy()).requires_grad_() for a in values]

    def run(*xs):
        return mg.grad(step(standin, *xs), list(xs))

    run = mg.compile(run) if compiled else run
    run(*given)
    for one, other in zip(expected, run(*given), strict=True):
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-9)


def test_other_outputs_that_a_derivative_needs_may_not():
    x = mg.ones(3, requires_grad=True)
    y = x.exp()
    y.mul_(2.0)
    with pytest.raises(RuntimeError, match="changed in place after it was saved"):
        y.sum().backward()


def test_a_plan_copies_what_a_view_cannot_show():
    """The window of windows, and a diagonal of an expanded tensor, whose strides allow no view of a plan's memory."""

    def function(x):
        return mg.grad((x.unfold(0, 2, 1).unfold(1, 1, 1).sum() * x.expand(2, 3, 2).diagonal(-1, 1, 2).sum()), x)

    x = mg.from_numpy(np.arange(6.0).reshape(3, 2)).requires_grad_()
    plan = mg.compile(function)
    plan(x)
    np.testing.assert_array_equal(plan(x).numpy(), function(x).numpy())
    v = mg.from_numpy(np.arange(4.0)).requires_grad_()

    def double(v):
        y = v.unsqueeze(0).expand(2, 4).diagonal(-1)
        return mg.grad((y * y).sum(), v)

    plan = mg.compile(double)
    plan(v)
    np.testing.assert_array_equal(plan(v).numpy(), double(v).numpy())


def test_views_of_parts_write_into_their_memory():
    x = mg.zeros(4, 6)
    x[::2, ::3].diagonal().add_(1.0)
    x[:, 1].unfold(0, 2, 2).add_(5.0)
    y = torch.zeros(4, 6)
    y[::2, ::3].diagonal().add_(1.0)
    y[:, 1].unfold(0, 2, 2).add_(5.0)
    assert x.tolist() == y.tolist()


def test_windows_that_overlap_are_not_changed_in_place():
    x = mg.arange(6.0)
    with pytest.raises(RuntimeError, match="its elements share memory"):
        x.unfold(0, 3, 2).tanh_()
    x.unfold(0, 3, 3).zero_()
    assert x.tolist() == [0.0] * 6


def test_a_trace_knows_that_what_has_one_long_dimension_lies_in_order():
    def function(x):
        y = x.diagonal(0, 1, 2) * 2.0  # its strides have gaps, and the product's have none
        same = y.contiguous()
        y.clamp_(-0.5, 0.5)
        return same * 1.0

    x = mg.from_numpy(np.random.default_rng(0).standard_normal((2, 1, 3)))
    np.testing.assert_array_equal(np.asarray(mg.trace(function)(x).run(x)), function(x).numpy())


def test_empty_vectors_join_anything():
    assert mg.cat([mg.ones(2, 3), mg.ones(0)]).shape == (2, 3)
    with pytest.raises(ValueError, match="differ in another dimension"):
        mg.cat([mg.ones(2, 3), mg.ones(1)])


def test_a_trace_refuses_what_it_would_lose_a_gradient_of():
    x = mg.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="does not follow a gradient into a detached tensor"):
        mg.trace(lambda x: x.detach().add_(x))(x)
    mg.trace(lambda x: x.detach().add_(1.0))(mg.ones(3))


@pytest.mark.parametrize("mode", ["auto", "always"])
def test_heads_without_size_attend_equally(mode):
    q, v = mg.ones(1, 2, 3, 0), mg.arange(24.0).reshape(1, 2, 3, 4)
    with kernels.use(mode):
        out = F.scaled_dot_product_attention(q, q, v)
    np.testing.assert_allclose(out.numpy(), np.broadcast_to(v.numpy().mean(2, keepdims=True), (1, 2, 3, 4)))


def test_logits_without_classes_have_no_target():
    with pytest.raises(ValueError, match="without any class"):
        F.cross_entropy(mg.ones(3, 0), mg.zeros(3, dtype=mg.int64))
