"""The backward pass: order, memory, hooks, higher derivatives, and the errors that name what went wrong."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional as F
from minigrad import nn, optim, state
from minigrad.ops.registry import OPS
from minigrad.study import gradcheck, gradgradcheck


def leaf(*shape: int, seed: int = 0, dtype: Any = mg.float64) -> mg.Tensor:
    return mg.tensor(np.random.default_rng(seed).standard_normal(shape), dtype=dtype, requires_grad=True)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


# --- size and memory --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_chain_of_100_000_ops_runs_backward_and_is_freed(no_collector: None) -> None:
    x = leaf(2)
    y = x
    for _ in range(100_000):
        y = y + x.detach()
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    node = weakref.ref(y.node)
    del y
    assert node() is None


PROGRAMS: dict[str, Callable[[mg.Tensor], mg.Tensor]] = {
    "plain": lambda x: (x * 2).sum(),
    "outputs saved": lambda x: (x.exp().tanh().sigmoid()).sum(),
    "composites": lambda x: F.layer_norm(F.softmax(x, -1), 3).sum() + F.gelu(x).sum(),
    "views": lambda x: x.t()[0].reshape(-1).sum(),
    "in place": lambda x: (x * 1).mul_(2).t().add_(x.t()).sum(),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x).sum(),
    "cross_entropy": lambda x: F.cross_entropy(x, mg.tensor([0, 1, 2])),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("order", [0, 1, 2])
def test_memory_is_freed_by_reference_counting_alone(no_collector: None, program: str, order: int) -> None:
    x = leaf(3, 3)
    y = PROGRAMS[program](x)
    watched = [weakref.ref(y), weakref.ref(y.node), weakref.ref(y.storage)]
    result = y
    for _ in range(order):
        result = mg.grad(result, x, create_graph=True, allow_unused=True)
        if result is None or not result.requires_grad:
            break
        result = (result * result).sum()
        watched += [weakref.ref(result), weakref.ref(result.node)]
    del result, y
    assert [r() for r in watched] == [None] * len(watched)


def test_hooks_and_retained_gradients_make_no_cycles(no_collector: None) -> None:
    x = leaf(3)
    y = x * 2
    y.retain_grad()
    seen: list[Any] = []
    y.register_hook(seen.append)
    y.sum().backward()
    node = weakref.ref(y.node)
    del y
    assert node() is None


def test_a_thousand_training_steps_hold_memory_constant(no_collector: None) -> None:
    rng = np.random.default_rng(0)
    weights = [mg.tensor(rng.standard_normal(s) * 0.3, dtype=mg.float32, requires_grad=True) for s in ((8, 4), (1, 8))]
    x = mg.tensor(rng.standard_normal((16, 4)), dtype=mg.float32)
    target = mg.tensor(rng.standard_normal((16, 1)), dtype=mg.float32)

    def step() -> float:
        loss = F.mse_loss(F.linear(F.linear(x, weights[0]).tanh(), weights[1]), target)
        for weight in weights:
            weight.grad = None
        loss.backward()
        with mg.no_grad():
            for weight in weights:
                weight -= 0.1 * weight.grad
        return loss.item()

    first = step()
    for _ in range(1000):  # Python's free lists fill up
        step()
    before = sys.getallocatedblocks()
    for _ in range(1000):
        last = step()
    grown = sys.getallocatedblocks() - before
    assert grown < 500, f"{grown} more Python objects after 1,000 steps"
    assert last < first


# --- derivatives ------------------------------------------------------------------------------------

MASK = mg.tensor([[True, False, True], [True, True, False], [False, False, False]])
SMOOTH: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "softmax": (lambda x: F.softmax(x, -1), [(2, 3)]),
    "log_softmax": (lambda x: F.log_softmax(x, 0), [(2, 3)]),
    "logsumexp": (lambda x: F.logsumexp(x, -1), [(2, 3)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, 3, w, b), [(2, 3), (3,), (3,)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, w), [(2, 3), (3,)]),
    "gelu": (F.gelu, [(2, 3)]),
    "gelu tanh": (lambda x: F.gelu(x, "tanh"), [(2, 3)]),
    "silu": (F.silu, [(3,)]),
    "softplus": (F.softplus, [(3,)]),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [(2, 2), (3, 2), (3, 1)]),
    "masked attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, MASK), [(3, 2), (3, 2), (3, 1)]),
    "cross_entropy": (lambda x: F.cross_entropy(x, mg.tensor([1, 0]), label_smoothing=0.1), [(2, 3)]),
    "std": (lambda x: x.std(-1), [(2, 3)]),
    "norm": (lambda x: x.norm(dim=0), [(2, 3)]),
    "prod": (lambda x: x.prod(-1), [(2, 3)]),
    "pow": (lambda x: x**4, [(3,)]),
    "matmul": (lambda a, b: a @ b, [(2, 3), (3, 2)]),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_three_derivatives(name: str) -> None:
    """First and second against differences; the third by differences of the second."""
    function, shapes = SMOOTH[name]
    inputs = [leaf(*shape, seed=i) for i, shape in enumerate(shapes)]
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)

    def curvature(*arguments: mg.Tensor) -> Any:
        with mg.enable_grad():
            total = (function(*arguments) ** 2).sum()
            (first, *_) = mg.grad(total, list(arguments), create_graph=True)
            return mg.grad((first**2).sum(), arguments[0], create_graph=True)

    assert gradcheck(curvature, inputs, atol=1e-4)


def test_fourth_derivative_of_a_power() -> None:
    for start, expected in ((0.0, [0, 0, 0, 6, 24]), (2.0, [16, 32, 48, 48, 24])):
        x = mg.tensor(start, dtype=mg.float64, requires_grad=True)
        y = x**4 if start else x**4 + x**3
        found = [y.item()]
        for _ in range(4):
            y = mg.grad(y, x, create_graph=True)
            found.append(y.item())
        assert found == expected


@pytest.mark.parametrize("function", [lambda x: x.norm(), lambda x: F.normalize(x, dim=0), lambda x: x.std()])
def test_lengths_have_gradient_zero_at_zero(function: Callable[[mg.Tensor], mg.Tensor]) -> None:
    x = mg.zeros(3, requires_grad=True)
    function(x).sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_accumulation_and_fan_out() -> None:
    x = leaf(3)
    y = x * 2
    (y + y * y + y.detach()).sum().backward()
    expected = 2 + 8 * x.detach()
    np.testing.assert_allclose(x.grad.numpy(), expected.numpy())
    (x * 1).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), (expected + 1).numpy())
    x.grad = None
    assert x.grad is None


def test_gradients_add_up_where_they_cannot_be_added_in_their_own_memory() -> None:
    half = leaf(3, dtype=mg.float16)
    for _ in range(2):
        (half * 2).sum().backward()
    assert half.grad.tolist() == [4.0] * 3
    given = leaf(3)
    given.grad = mg.ones(1, dtype=mg.float64).expand(3)
    (given * 2).sum().backward()
    assert given.grad.tolist() == [3.0] * 3
    x = leaf(2)
    (x**2).sum().backward()
    (x**3).sum().backward(create_graph=True)
    np.testing.assert_allclose(x.grad.detach(), 2 * x.detach() + 3 * x.detach() ** 2)
    np.testing.assert_allclose(mg.grad(x.grad.sum(), x), 6 * x.detach())


def test_gradients_of_two_leaves_share_no_memory() -> None:
    a, b = leaf(3), leaf(3)
    seed = mg.ones(3, dtype=mg.float64)
    (a + b).backward(seed)
    a.grad.zero_()
    assert b.grad.tolist() == [1, 1, 1]
    assert seed.tolist() == [1, 1, 1]
    c, d = leaf(3), leaf(3)
    ((c + d) ** 2).sum().backward(create_graph=True)
    with mg.no_grad():
        c.grad.zero_()
    assert d.grad.abs().sum().item() > 0


def test_grad_leaves_grad_alone_and_handles_unused_inputs() -> None:
    x, unused = leaf(3), leaf(2)
    y = x * x
    gradient = mg.grad(y.sum(), x, retain_graph=True)
    np.testing.assert_allclose(gradient.numpy(), 2 * x.detach().numpy())
    assert x.grad is None
    with pytest.raises(RuntimeError, match=r"input 1 of grad.* allow_unused"):
        mg.grad(y.sum(), [x, unused], retain_graph=True)
    assert mg.grad(y.sum(), [x, unused], allow_unused=True)[1] is None
    with pytest.raises(RuntimeError, match="does not require one"):
        mg.grad(leaf(2).sum(), mg.ones(2))


def test_grad_of_an_intermediate_and_of_several_outputs() -> None:
    x = leaf(3)
    y = x.exp()
    z = (y * y).sum()
    np.testing.assert_allclose(mg.grad(z, y, retain_graph=True).numpy(), 2 * y.detach().numpy())
    weights = mg.tensor([1.0, 2.0, 3.0], dtype=mg.float64)
    total = mg.grad([y, z], [x], [weights, None])[0]
    np.testing.assert_allclose(total.numpy(), (y * weights + 2 * y * y).detach().numpy())


def test_zero_size_gradients() -> None:
    x, w = leaf(0, 3), leaf(3, 2)
    (F.softmax(x, -1) @ w).sum().backward()
    assert x.grad.shape == (0, 3)
    assert w.grad.tolist() == [[0, 0]] * 3


def test_hooks_see_complete_gradients_may_replace_them_and_can_be_removed() -> None:
    x = leaf(3)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    remove = y.register_hook(lambda g: g * 10)
    (y * 3 + y * 4).sum().backward(retain_graph=True)
    assert seen == [[7.0] * 3]
    assert x.grad.tolist() == [140.0] * 3
    remove()
    x.grad = None
    x.register_hook(lambda g: -g)
    y.sum().backward()
    assert x.grad.tolist() == [-2.0] * 3
    z = leaf(3)
    z.register_hook(lambda g: g.sum())
    with pytest.raises(RuntimeError, match=r"a hook of leaf .*shape"):
        (z * 1).sum().backward()


def test_retain_grad_keeps_and_accumulates() -> None:
    x = leaf(3)
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    assert y.grad is None
    z = (y * 3).sum()
    z.backward(retain_graph=True)
    assert y.grad.tolist() == [3.0] * 3
    z.backward()
    assert y.grad.tolist() == [6.0] * 3
    assert (x * 1).grad is None


def test_create_graph_gradients_can_be_differentiated() -> None:
    x = leaf(3)
    (x**3).sum().backward(create_graph=True)
    gradient = x.grad
    assert gradient.requires_grad
    np.testing.assert_allclose(mg.grad(gradient.sum(), x).numpy(), 6 * x.detach().numpy())


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op.differentiable and op.has_vjp and n != "cast"])
def test_float32_stays_float32_through_backward(name: str) -> None:
    """Also the nodes on the way, which the driver would cast at the end."""
    op = OPS[name]

    def derivatives(attrs: dict[str, Any], *given: mg.Tensor) -> Any:
        result = op(*given, **attrs)
        results = [r for r in (result if isinstance(result, tuple) else (result,)) if r.requires_grad]
        assert all(r.dtype == mg.float32 for r in results)
        targets = [t for t in given if t.requires_grad]
        return mg.grad(results, targets, [mg.ones_like(r) for r in results], allow_unused=True)

    for inputs, attrs in op.samples(np.random.default_rng(0)):
        arrays = [np.asarray(a) for a in inputs]
        tensors = [mg.tensor(a.astype(np.float32) if a.dtype == np.float64 else a) for a in arrays]
        for t in tensors:
            t.requires_grad_(t.is_floating_point())
        if any(a.dtype == bool for a in arrays) and name in ("take", "put_add", "put"):
            continue  # a boolean index cannot be traced
        for node in mg.trace(derivatives)(attrs, *tensors):
            assert all(dtype != np.float64 for _, dtype in node.outputs), f"{node} in the backward pass of {name}"


# --- errors -----------------------------------------------------------------------------------------


def test_a_saved_value_changed_in_place_names_the_op_and_its_line() -> None:
    x = leaf(3)
    y = x * 2
    z = y * x
    y.add_(1)
    with pytest.raises(RuntimeError, match=r"input 0 of mul \(test_autograd.py:\d+\).*float64\[3\].*clone"):
        z.sum().backward()
    x = leaf(3)
    z = x.exp()
    w = z.sum()
    z.zero_()
    with pytest.raises(RuntimeError, match=r"the output of exp \(test_autograd.py:\d+\)"):
        w.backward()
    x = leaf(3)
    mask = mg.ones(3, dtype=mg.float64)
    z = x * mask
    mask[0] = 0.0
    with pytest.raises(RuntimeError, match="input 1 of mul"):
        z.sum().backward()
    z = x * mask
    mask[mg.tensor([1, 2])] = 0.0
    with pytest.raises(RuntimeError, match="input 1 of mul"):
        z.sum().backward()


def test_a_gradient_to_which_another_is_added_has_changed() -> None:
    x, w = leaf(3), leaf(3, seed=1)
    (x * 2).sum().backward()
    product = (x.grad * w).sum()
    (x * 3).sum().backward()
    with pytest.raises(RuntimeError, match="changed in place after it was saved"):
        product.backward()


def test_backward_twice_says_what_was_freed() -> None:
    x = leaf(3)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match=r"mul \(test_autograd.py:\d+\) were freed.*retain_graph=True"):
        y.backward()


def test_backward_without_a_gradient_to_compute() -> None:
    with pytest.raises(RuntimeError, match="no gradient to compute"):
        mg.ones(3).sum().backward()
    with pytest.raises(RuntimeError, match=r"needs a scalar.*\[3\]"):
        (leaf(3) * 2).backward()
    with pytest.raises(ValueError, match="they must agree"):
        (leaf(3) * 2).backward(mg.ones(2))
    with pytest.raises(RuntimeError, match="int64"):
        mg.tensor([1]).requires_grad_()
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
        leaf(2).numpy()
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
        np.asarray(leaf(2))
    with pytest.raises(ValueError, match="does not fit"):
        leaf(2).grad = mg.ones(3)


# --- modes and threads ------------------------------------------------------------------------------


def test_gradient_modes_nest_and_decorate() -> None:
    x = leaf(2)
    with mg.no_grad():
        assert not (x * 2).requires_grad
        with mg.enable_grad():
            assert (x * 2).requires_grad
            with mg.set_grad_enabled(False):
                assert not mg.is_grad_enabled()
        assert not mg.is_grad_enabled()

    @mg.no_grad()
    def frozen(depth: int) -> bool:
        return bool((x * 2).requires_grad) or (depth > 0 and frozen(depth - 1))

    assert not frozen(2)
    with pytest.raises(KeyError), mg.no_grad():
        raise KeyError
    assert mg.is_grad_enabled()


def test_a_decorated_function_may_run_in_two_threads_at_once() -> None:
    first_inside, second_inside = threading.Event(), threading.Event()

    @mg.no_grad()
    def overlap(mine: threading.Event, other: threading.Event) -> None:
        mine.set()
        other.wait(10)

    modes: list[Any] = []

    def first() -> None:
        overlap(first_inside, second_inside)
        modes.append(mg.is_grad_enabled())

    def second() -> None:
        first_inside.wait(10)
        with mg.no_grad():
            overlap(second_inside, first_inside)
            modes.append(not mg.is_grad_enabled())

    threads = [threading.Thread(target=f) for f in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert modes == [True, True]


def test_state_belongs_to_its_thread() -> None:
    results: list[Any] = []
    inside, done = threading.Event(), threading.Event()

    def quiet_thread() -> None:
        with mg.no_grad():
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=quiet_thread)
    thread.start()
    inside.wait(10)
    assert mg.is_grad_enabled()
    done.set()
    thread.join()

    def train(seed: int) -> None:
        x = leaf(20, seed=seed)
        for _ in range(50):
            y = ((x * x).sum() * 0.5).exp().log()
            x.grad = None
            y.backward()
        results.append(np.allclose(x.grad.numpy(), x.detach().numpy()))

    threads = [threading.Thread(target=train, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [True] * 4


def test_a_view_made_a_leaf_stays_one() -> None:
    data = mg.zeros(2, 3, dtype=mg.float64)
    row = data[0].requires_grad_()
    data.add_(1)
    (row * row).sum().backward()
    assert row.grad.tolist() == [2.0, 2.0, 2.0]


def test_leaves_can_be_copied_and_pickled() -> None:
    x = leaf(3)
    (x * x).sum().backward()
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), copy.copy(x)):
        assert other.requires_grad
        assert other.equal(x)
        with mg.no_grad():
            other.zero_()
        assert not other.equal(x)
    with pytest.raises(RuntimeError, match="only leaves"):
        pickle.dumps(x * 2)


def test_gradcheck_finds_a_wrong_derivative() -> None:
    x = leaf(3)
    with pytest.raises(AssertionError, match=r"analytic .* numeric"):
        gradcheck(lambda x: x * x.detach(), [x])
    with pytest.raises(TypeError, match="float64"):
        gradcheck(lambda x: x, [leaf(3, dtype=mg.float32)])


@pytest.fixture(params=["in numpy's variable", "somewhere else"])
def handling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How numpy handles floating-point errors is kept where this one keeps it, or where nobody knows."""
    assert state._HANDLING is not None, "this numpy keeps it elsewhere: every kernel pays for np.errstate"
    if request.param == "somewhere else":
        monkeypatch.setattr(state, "_HANDLING", None)


@pytest.mark.usefixtures("handling")
def test_infinity_and_nan_are_values_here_and_numpys_warnings_stay_what_they_were() -> None:
    x = mg.tensor([3e38, -1.0, 0.0], requires_grad=True)
    model, optimizer = nn.Linear(1, 1), optim.SGD([x], lr=1e30)
    with warnings.catch_warnings(), np.errstate(over="raise", divide="raise", invalid="raise"):
        warnings.simplefilter("error")
        before = np.geterr()
        y = (x * x + x.log() + 1 / x).sum()
        y.backward()
        optimizer.step()
        model(mg.full((1, 1), float("inf")) * 0)
        assert np.isnan(y.item())
        with pytest.raises(ValueError, match="broadcast"):
            mg.ones(2) + mg.ones(3)
        assert np.geterr() == before
        with pytest.raises(FloatingPointError):
            np.float32(3e38) * np.float32(10)


@pytest.mark.usefixtures("handling")
def test_context_variables_that_a_hook_sets_are_set() -> None:
    seen: ContextVar[int] = ContextVar("seen", default=0)
    x = leaf(3)
    x.register_hook(lambda gradient: seen.set(seen.get() + 1) and None)
    for count in (1, 2):
        (x * 2).sum().backward()
        assert seen.get() == count


@pytest.mark.parametrize("gradient", [3.0, np.ones(2, np.float32), "ones"])
def test_a_gradient_that_is_no_tensor_is_named(gradient: Any) -> None:
    x = mg.ones(2, requires_grad=True)
    told = f"must be a tensor, or None for a scalar, got {type(gradient).__name__}: make it one with mg.tensor"
    for start in (
        lambda y: y.backward(gradient),
        lambda y: mg.autograd.backward([y], [gradient]),
        lambda y: mg.autograd.grad(y, x, gradient),
    ):
        with pytest.raises(TypeError, match=told):
            start(x * 2)
