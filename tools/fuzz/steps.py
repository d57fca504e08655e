"""The steps of random programs, written once for torch and for minigrad's stand-in, which share their names.

A step takes the module `t` (torch or the stand-in), the tensors that it reads, and integers that were drawn for it; it
makes of the integers what fits the tensors, so a shrunk program stays a program. It raises Unfit where nothing fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Step = Callable[[Any, Sequence[Any], Sequence[int]], Any]


class Unfit(Exception):
    """A step that these tensors do not allow."""


def need(condition: bool) -> None:
    if not condition:
        raise Unfit


def _dim(x: Any, number: int) -> int:
    need(x.ndim > 0)
    return number % (2 * x.ndim) - x.ndim


def _dims(x: Any, number: int) -> tuple[int, ...]:
    """Some dimensions: the bits of a number."""
    return tuple(d for d in range(x.ndim) if number >> d & 1)


def _order(x: Any, number: int) -> list[int]:
    left, order = list(range(x.ndim)), []
    while left:
        number, place = divmod(number, len(left))
        order.append(left.pop(place))
    return order


def _factor(size: int, number: int) -> int:
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    return divisors[number % len(divisors)]


def _slice(x: Any, n: Sequence[int]) -> Any:
    d = _dim(x, n[0]) % x.ndim
    size = x.shape[d]
    start, step = n[1] % (size + 1), n[2] % 2 + 1
    return x[(slice(None),) * d + (slice(start, start + n[3] % (size - start + 1) if n[3] % 3 else None, step),)]


def _reshape(x: Any, number: int) -> tuple[int, ...]:
    size = x.numel()
    need(size > 0)
    first = _factor(size, number)
    return ((first, size // first), (size,), (1, first, -1))[number % 3]


def _ids(t: Any, x: Any, dim: int, n: Sequence[int]) -> Any:
    need(x.shape[dim] > 0)
    return t.tensor([number % x.shape[dim] for number in n])


def _gathered(t: Any, x: Any, n: Sequence[int]) -> Any:
    d = _dim(x, n[0])
    need(x.shape[d] > 0)
    places = t.arange(x.numel()).reshape(x.shape) * (n[1] + 1) % x.shape[d]
    return x.gather(d, places)


def _matmul(t: Any, a: Any, b: Any) -> Any:
    need(a.ndim > 1 and b.ndim > 1)
    for left, right in ((a, b), (a, b.transpose(-1, -2)), (a.transpose(-1, -2), b)):
        if left.shape[-1] == right.shape[-2]:
            return left @ right * 0.3
    raise Unfit


def _pointwise(function: Callable[[Any, Any], Any]) -> Step:
    return lambda t, x, n: function(t, x[0])


PURE: dict[str, tuple[int, Step]] = {
    # elementwise
    "exp": (1, _pointwise(lambda t, a: (a * 0.3).clamp(max=3.0).exp())),
    "tanh": (1, _pointwise(lambda t, a: a.tanh())),
    "sigmoid": (1, _pointwise(lambda t, a: a.sigmoid())),
    "sin": (1, _pointwise(lambda t, a: a.sin())),
    "relu": (1, _pointwise(lambda t, a: a.relu())),
    "gelu": (1, _pointwise(lambda t, a: t.nn.functional.gelu(a))),
    "silu": (1, _pointwise(lambda t, a: t.nn.functional.silu(a))),
    "softplus": (1, _pointwise(lambda t, a: t.nn.functional.softplus(a))),
    "abs": (1, _pointwise(lambda t, a: (a + 0.01).abs())),
    "square": (1, _pointwise(lambda t, a: a.square() * 0.5)),
    "log": (1, _pointwise(lambda t, a: (a * a + 1.0).log())),
    "sqrt": (1, _pointwise(lambda t, a: (a * a + 0.5).sqrt())),
    "rsqrt": (1, _pointwise(lambda t, a: (a * a + 0.5).rsqrt())),
    "neg": (1, _pointwise(lambda t, a: 1.0 - a)),
    "clamp": (1, _pointwise(lambda t, a: a.clamp(-0.7, 0.9))),
    "detach": (1, _pointwise(lambda t, a: a.detach())),
    "masked_fill": (1, _pointwise(lambda t, a: a.masked_fill(a.detach() > 0.5, 0.25))),
    "add": (2, lambda t, x, n: x[0] + x[1]),
    "sub": (2, lambda t, x, n: x[0] - x[1] * 0.5),
    "mul": (2, lambda t, x, n: x[0] * x[1]),
    "div": (2, lambda t, x, n: x[0] / (x[1] * x[1] + 1.0)),
    "maximum": (2, lambda t, x, n: t.maximum(x[0], x[1])),
    "minimum": (2, lambda t, x, n: t.minimum(x[0], x[1] + 0.3)),
    "where": (2, lambda t, x, n: t.where(x[0] > x[1] + 0.2, x[0], x[1] * 2.0)),
    "matmul": (2, lambda t, x, n: _matmul(t, x[0], x[1])),
    # views
    "transpose": (1, lambda t, x, n: x[0].transpose(_dim(x[0], n[0]), _dim(x[0], n[1]))),
    "permute": (1, lambda t, x, n: x[0].permute(_order(x[0], n[0]))),
    "reshape": (1, lambda t, x, n: x[0].reshape(_reshape(x[0], n[0]))),
    "flatten": (1, lambda t, x, n: x[0].flatten()),
    "unsqueeze": (1, lambda t, x, n: x[0].unsqueeze(n[0] % (x[0].ndim + 1))),
    "squeeze": (1, lambda t, x, n: x[0].squeeze()),
    "slice": (1, lambda t, x, n: _slice(x[0], n)),
    "select": (1, lambda t, x, n: x[0].select(d := _dim(x[0], n[0]), n[1] % max(x[0].shape[d], 1))),
    "expand": (1, lambda t, x, n: x[0].unsqueeze(0).expand(n[0] % 3 + 1, *x[0].shape)),
    "diagonal": (1, lambda t, x, n: (need(x[0].ndim > 1), x[0].diagonal(n[0] % 3 - 1, -2, -1))[1]),
    "unfold": (1, lambda t, x, n: x[0].unfold(d := _dim(x[0], n[0]), n[1] % (x[0].shape[d] + 1), n[2] % 2 + 1)),
    "chunk": (1, lambda t, x, n: (parts := x[0].chunk(2, _dim(x[0], n[0])))[n[1] % len(parts)]),
    # copies
    "cat": (2, lambda t, x, n: t.cat([x[0], x[1]], _dim(x[0], n[0]))),
    "stack": (2, lambda t, x, n: t.stack([x[0], x[1]], n[0] % (x[0].ndim + 1))),
    "flip": (1, lambda t, x, n: x[0].flip(_dim(x[0], n[0]))),
    "roll": (1, lambda t, x, n: x[0].roll(n[1] % 3, _dim(x[0], n[0]))),
    "list": (1, lambda t, x, n: x[0][(slice(None),) * (_dim(x[0], n[0]) % x[0].ndim) + ([0, -1, 0],)]),
    "index_select": (1, lambda t, x, n: x[0].index_select(d := _dim(x[0], n[0]), _ids(t, x[0], d, n[1:]))),
    "gather": (1, lambda t, x, n: _gathered(t, x[0], n)),
    "tril": (1, lambda t, x, n: (need(x[0].ndim > 1), x[0].tril(n[0] % 3 - 1))[1]),
    "pad": (1, lambda t, x, n: (need(x[0].ndim > 0), t.nn.functional.pad(x[0], (n[0] % 2, n[1] % 3), value=0.5))[1]),
    "repeat": (1, lambda t, x, n: x[0].repeat(*[number % 2 + 1 for number in n[: max(x[0].ndim, 1)]])),
    "clone": (1, lambda t, x, n: x[0].clone()),
    "contiguous": (1, lambda t, x, n: x[0].contiguous()),
    "repeat_interleave": (1, lambda t, x, n: x[0].repeat_interleave(n[1] % 3, _dim(x[0], n[0]))),
    # reductions
    "sum": (1, lambda t, x, n: x[0].sum(_dims(x[0], n[0]) or None, keepdim=bool(n[1] % 2)) * 0.5),
    "mean": (1, lambda t, x, n: (need(x[0].numel() > 0), x[0].mean(_dim(x[0], n[0]), keepdim=bool(n[1] % 2)))[1]),
    "amax": (1, lambda t, x, n: (need(x[0].numel() > 0), x[0].amax(_dim(x[0], n[0])))[1]),
    "var": (1, lambda t, x, n: x[0].var(d := _dim(x[0], n[0]), keepdim=(need(x[0].shape[d] > 1), True)[1])),
    "norm": (1, lambda t, x, n: (x[0] + 0.1).norm(dim=_dim(x[0], n[0]))),
    "prod": (1, lambda t, x, n: (need(x[0].numel() < 12), x[0].prod(_dim(x[0], n[0])))[1]),
    "cumsum": (1, lambda t, x, n: x[0].cumsum(_dim(x[0], n[0])) * 0.5),
    "softmax": (1, lambda t, x, n: x[0].softmax(_dim(x[0], n[0]))),
    "log_softmax": (1, lambda t, x, n: x[0].log_softmax(_dim(x[0], n[0]))),
    "logsumexp": (1, lambda t, x, n: (need(x[0].numel() > 0), x[0].logsumexp(_dim(x[0], n[0])))[1]),
    "layer_norm": (
        1,
        lambda t, x, n: (
            need(x[0].ndim > 0 and x[0].numel() > 0 and x[0].shape[-1] > 1),
            t.nn.functional.layer_norm(x[0], (x[0].shape[-1],), eps=0.1),
        )[1],
    ),
    "sort": (1, lambda t, x, n: x[0].sort(dim=_dim(x[0], n[0]), stable=True)[0]),
    "max": (1, lambda t, x, n: (need(x[0].numel() > 0), x[0].max(_dim(x[0], n[0]))[0])[1]),
}


def _window(x: Any, n: Sequence[int]) -> Any:
    """An index of a part of x."""
    if not x.ndim:
        return ...
    size = x.shape[0]
    need(size > 0)
    return (n[0] % size, slice(n[0] % size, None), slice(None, None, 2), [n[0] % size], ...)[n[1] % 5]


def _assign(t: Any, x: Sequence[Any], n: Sequence[int]) -> Any:
    x[0][_window(x[0], n)] = x[1]
    return x[0]


def _add_to_part(t: Any, x: Sequence[Any], n: Sequence[int]) -> Any:
    x[0][_window(x[0], n)] += 0.5
    return x[0]


CHANGING: dict[str, tuple[int, Step]] = {
    "add_": (2, lambda t, x, n: x[0].add_(x[1])),
    "sub_": (2, lambda t, x, n: x[0].sub_(x[1] * 0.5)),
    "mul_": (2, lambda t, x, n: x[0].mul_(x[1])),
    "div_": (1, lambda t, x, n: x[0].div_(2.0)),
    "copy_": (2, lambda t, x, n: x[0].copy_(x[1])),
    "tanh_": (1, lambda t, x, n: x[0].tanh_()),
    "relu_": (1, lambda t, x, n: x[0].relu_()),
    "sigmoid_": (1, lambda t, x, n: x[0].sigmoid_()),
    "clamp_": (1, lambda t, x, n: x[0].clamp_(-0.7, 0.9)),
    "zero_": (1, lambda t, x, n: x[0].zero_()),
    "fill_": (1, lambda t, x, n: x[0].fill_(0.5)),
    "masked_fill_": (1, lambda t, x, n: x[0].masked_fill_(x[0].detach() > 0.4, 0.25)),
    "assign": (2, _assign),
    "add to a part": (1, _add_to_part),
}
STEPS: dict[str, tuple[int, Step]] = {**PURE, **CHANGING}
