"""What the stand-in once refused, or did otherwise than torch, one call after the other on both sides.

Each call takes the module (torch or the stand-in) and a float64 array (2, 3, 4); compared are the value and the
gradient of its sum of squares, eager and from a plan.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import minigrad as mg  # noqa: E402
import minigrad.torch as standin  # noqa: E402

VALUES = np.random.default_rng(0).standard_normal((2, 3, 4))
Call = Callable[[Any, Any], Any]


def attend(t: Any, x: Any) -> Any:
    y = t.nn.functional.scaled_dot_product_attention(x, x, x)
    return y * 2.0 if t is torch else y.mul_(2.0)  # some of torch's kernels keep their output, others do not


def changed(t: Any, x: Any, change: Callable[[Any], Any]) -> Any:
    y = x * 1.0
    change(y)
    return y


RUNS: dict[str, Call] = {
    "attention, changed in place": attend,
    "expand to the same shape, in place": lambda t, x: changed(t, x, lambda y: y.expand(2, 3, 4).mul_(2.0)),
    "view of what a list indexes": lambda t, x: x.transpose(0, 1)[[1, 0]].view(-1),
    "write into a view of what a list indexes": lambda t, x: changed(t, x, lambda y: y[[0, 1]].flatten().mul_(3.0)),
    "view of softmax of transposed": lambda t, x: x.transpose(1, 2).softmax(-1).view(-1),
    "view of cat of transposed": lambda t, x: t.cat([x.transpose(1, 2), x.transpose(1, 2)]).view(-1),
    "diagonal is a view": lambda t, x: changed(t, x, lambda y: y[0].diagonal().mul_(2.0)),
    "gradient of one input": lambda t, x: t.autograd.grad((x**3).sum(), x, create_graph=True)[0],
    "cosine_similarity broadcasts": lambda t, x: t.nn.functional.cosine_similarity(x, x[:, :1] + 1.0, -1),
    "sort(stable=)": lambda t, x: x.sort(stable=True, dim=1)[0],
    "div(rounding_mode=)": lambda t, x: x.div(0.3, rounding_mode="floor") + x,
    "round(decimals=)": lambda t, x: x.round(decimals=1) + x,
    "scatter(reduce=)": lambda t, x: x.detach().scatter(1, t.zeros(2, 2, 3, dtype=t.int64), 2.0, reduce="multiply") + x,
    "topk by position": lambda t, x: x.topk(2, 1, False, True)[0],
    "cumsum(dtype=)": lambda t, x: x.cumsum(1, dtype=t.float64),
    "add(alpha=)": lambda t, x: x.add(x, alpha=2.0),
    "cross_entropy(weight=)": lambda t, x: t.nn.functional.cross_entropy(
        x[0], t.tensor([1, 0, 3]), weight=t.tensor([0.5, 1.0, 2.0, 0.1], dtype=t.float64)
    ),
    "nll_loss(weight=)": lambda t, x: t.nn.functional.nll_loss(
        x[0], t.tensor([1, 0, 3]), weight=t.tensor([0.5, 1.0, 2.0, 0.1], dtype=t.float64)
    ),
    "class probabilities": lambda t, x: t.nn.functional.cross_entropy(x[0], x[1].detach().softmax(-1)),
    "norm(p)": lambda t, x: x.norm(3, 1),
    "nll_loss of (N, C, d)": lambda t, x: t.nn.functional.nll_loss(x, t.tensor([[0, 2, 1, 1], [2, 2, 0, 1]])),
    "rms_norm(x, shape)": lambda t, x: t.nn.functional.rms_norm(x, (3, 4)),
    "mse_loss broadcasts": lambda t, x: t.nn.functional.mse_loss(x, x[:, :1].detach()),
    "relu6": lambda t, x: t.nn.functional.relu6(x * 4.0),
    "gradient of relu": lambda t, x: t.relu(x),
    "F.binary_cross_entropy": lambda t, x: t.nn.functional.binary_cross_entropy(x.sigmoid(), x.detach().sigmoid()),
    "d = 0 attention": lambda t, x: t.nn.functional.scaled_dot_product_attention(x[..., :0], x[..., :0], x),
    # twenty small names
    "clamp_min": lambda t, x: x.clamp_min(0.1),
    "clamp_max": lambda t, x: x.clamp_max(0.1),
    "median": lambda t, x: x.median(1)[0],
    "var_mean": lambda t, x: t.var_mean(x, 1)[0],
    "nan_to_num": lambda t, x: (x / (x > 0).to(x.dtype)).nan_to_num(0.0, 1.0, -1.0).detach() + x,
    "trunc": lambda t, x: x.trunc() + x,
    "fmod": lambda t, x: x.fmod(0.3),
    "diff": lambda t, x: x.diff(dim=1),
    "mv": lambda t, x: t.mv(x[0], x[1, 0]),
    "ravel": lambda t, x: x.transpose(0, 1).ravel(),
    "reshape_as": lambda t, x: x.reshape_as(t.zeros(6, 4)),
    "select": lambda t, x: x.select(2, -1),
    "take": lambda t, x: x.take(t.tensor([0, 5, 23, 5])),
    "index_copy": lambda t, x: x.index_copy(1, t.tensor([2, 0]), x[:, :2] * 2.0),
    "unfold": lambda t, x: x.unfold(2, 2, 1),
    "cummax": lambda t, x: x.cummax(1)[0],
    "logaddexp": lambda t, x: t.logaddexp(x, x * 2.0),
    "atan2": lambda t, x: t.atan2(x, x + 3.0),
    "broadcast_tensors": lambda t, x: t.broadcast_tensors(x[:, :1], x)[0],
    "tensor_split": lambda t, x: x.tensor_split((1, 3), 2)[1],
    "atleast_1d": lambda t, x: t.atleast_1d(x.sum()),
    "atleast_2d": lambda t, x: t.atleast_2d(x[0, 0]),
    "atleast_3d": lambda t, x: t.atleast_3d(x[0]),
    "diag_embed": lambda t, x: t.diag_embed(x),
    "smooth_l1": lambda t, x: t.nn.functional.smooth_l1_loss(x, t.zeros_like(x)),
    "group_norm": lambda t, x: t.nn.functional.group_norm(x, 3),
}


def outcome(t: Any, call: Call, x: Any) -> list[Any]:
    result = call(t, x)
    return [result, *t.autograd.grad((result * result).sum(), [x])]


@pytest.mark.parametrize("name", RUNS)
def test_a_call_gives_torchs_value_and_gradient_eager_and_compiled(name: str) -> None:
    call = RUNS[name]
    expected = outcome(torch, call, torch.from_numpy(VALUES.copy()).requires_grad_())
    x = mg.from_numpy(VALUES.copy()).requires_grad_()

    def step(x: Any) -> list[Any]:
        return outcome(standin, call, x)

    plan = mg.compile(step)
    plan(x)
    for found in (step(x), plan(x)):
        for one, other in zip(expected, found, strict=True):
            assert other.dtype.name == str(one.dtype).removeprefix("torch.")
            np.testing.assert_allclose(other.detach().numpy(), one.detach().numpy(), rtol=1e-9, atol=1e-12)


CONSTANT: dict[str, Callable[[Any], Any]] = {
    "arange of integers by floats": lambda t: t.arange(0.1, -7.9, -4.0, dtype=t.int64),
    "linspace of integers": lambda t: t.linspace(-3, 5, 4, dtype=t.int64),
    "cumprod(int)": lambda t: t.tensor([2, 3], dtype=t.int32).cumprod(0),
    "relu6(int)": lambda t: t.nn.functional.relu6(t.tensor([-2, 3, 9])),
    "all(uint8)": lambda t: t.tensor([2, 0], dtype=t.uint8).all(),
    "any(uint8)": lambda t: t.tensor([2, 0], dtype=t.uint8).any(),
    "baddbmm(int)": lambda t: t.baddbmm(t.ones(1, 2, 2, dtype=t.int64), t.ones(1, 2, 3, dtype=t.int64),
                                        t.ones(1, 3, 2, dtype=t.int64), beta=2, alpha=3),
    "unique(dim=None)": lambda t: t.tensor([3, 1, 3]).unique(dim=None),
    "eye(requires_grad=False)": lambda t: t.eye(2, requires_grad=False),
    "empty(size=)": lambda t: t.empty(size=(2, 3)).fill_(1.0),
    "zeros(size=)": lambda t: t.zeros(size=(2, 3)),
    "median of two": lambda t: t.tensor([[1.0, 4.0]]).median(1).indices,
    "max of a dimension": lambda t: t.tensor([[1.0, 4.0]]).max(1).values,
    "searchsorted": lambda t: t.searchsorted(t.tensor([1.0, 2.0, 2.0, 5.0]), t.tensor([2.0, 9.0, 0.0]), right=True),
    "cummax of NaN": lambda t: t.tensor([1.0, 3.0, float("nan"), 4.0, 3.0]).cummax(0).indices,
    "cummin of equal numbers": lambda t: t.tensor([[2, 1, 1, 3, 0, 0, 0]]).cummin(1).indices,
    "0-dim nonzero": lambda t: t.tensor(3.0).nonzero(),
    "0-dim index_fill": lambda t: t.tensor(3.0).index_fill(0, t.tensor([0]), 2.0),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTANT)
def test_a_call_gives_torchs_value_and_dtype(name: str) -> None:
    one, other = CONSTANT[name](torch), CONSTANT[name](standin)
    assert other.dtype.name == str(one.dtype).removeprefix("torch.")
    np.testing.assert_array_equal(other.numpy(), one.numpy())


COPIES: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: x.sort()[0],
    "topk": lambda x: x.topk(1)[0],
    "max(0)": lambda x: x.max(0)[0],
    "min(0)": lambda x: x.min(0)[0],
    "repeat_interleave(1)": lambda x: x.reshape(1).repeat_interleave(1),
}


@pytest.mark.parametrize("name", [*COPIES, "pad of nothing"])
def test_a_copy_of_one_number_is_none_of_its_memory(name: str) -> None:
    x = standin.tensor(3.0)
    made = COPIES[name](x) if name in COPIES else standin.nn.functional.pad(x.reshape(1), (0, 0))
    made.add_(1.0)
    assert x.item() == 3.0


REFUSED: dict[str, Callable[[Any], Any]] = {
    "movedim": lambda t: t.ones(2, 3).movedim(2, 0),
    "diagonal": lambda t: t.ones(2, 3).diagonal(0, 0, 2),
    "diag of 3-d": lambda t: t.ones(2, 3, 4).diag(),
    "scatter of another dtype": lambda t: t.ones(2).scatter(0, t.tensor([0]), t.ones(1, dtype=t.float64)),
    "multinomial of 0": lambda t: t.ones(2).multinomial(0),
    "reflect": lambda t: t.nn.functional.pad(t.ones(2), (3, 0), "reflect"),
    "logical_and of a number": lambda t: t.logical_and(t.ones(2), 2),
    "hstack of nothing": lambda t: t.hstack(()),
    "V = 0": lambda t: t.nn.functional.cross_entropy(t.ones(3, 0), t.zeros(3, dtype=t.int64)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused_in_one_short_sentence(name: str) -> None:
    with pytest.raises((RuntimeError, IndexError, ValueError, TypeError)):
        REFUSED[name](torch)
    with pytest.raises((RuntimeError, IndexError, ValueError, TypeError)) as caught:
        REFUSED[name](standin)
    assert 10 < len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["nn.Conv2d", "polar", "fft", "nn.functional.conv2d"])
def test_a_missing_name_ends_in_one_short_sentence(name: str) -> None:
    where, _, last = f"torch.{name}".rpartition(".")
    module = standin if where == "torch" else operator.attrgetter(where.removeprefix("torch."))(standin)
    with pytest.raises(AttributeError, match="stand-in for torch has no torch") as caught:
        getattr(module, last)
    assert len(str(caught.value)) < 150
    assert "\n" not in str(caught.value)
