"""Every function of tensors against torch: values, first and second derivatives.

One row of `CASES` is a function that reads the same in both libraries, and the shapes that it is drawn on. Shapes,
values, layouts and dtypes are drawn by hypothesis.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import minigrad as mg
import minigrad.functional as mgF

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning")  # torch of lists as indices

QUICK = settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Library:
    """A library's namespaces, so that one function can be written for both."""

    t: Any  # minigrad or torch
    F: Any


OURS, THEIRS = Library(mg, mgF), Library(torch, torch.nn.functional)

SIZES = st.integers(0, 3)
SHAPES = st.lists(SIZES, min_size=0, max_size=3).map(tuple)
NONEMPTY = st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple)


def fixed(*shapes: tuple[int, ...]) -> st.SearchStrategy[tuple[tuple[int, ...], ...]]:
    return st.just(shapes)


@st.composite
def broadcast_pair(draw: Any) -> tuple[tuple[int, ...], ...]:
    """Two shapes that broadcast against each other."""
    whole = draw(SHAPES)
    parts = []
    for _ in range(2):
        cut = draw(st.integers(0, len(whole)))
        parts.append(tuple(1 if draw(st.booleans()) else n for n in whole[cut:]))
    return tuple(parts)


ONE = SHAPES.map(lambda s: (s,))
FULL = NONEMPTY.map(lambda s: (s,))
PAIR = broadcast_pair()
MATRIX = st.tuples(SIZES, SIZES).map(lambda s: (s,))
CUBE = fixed((2, 3, 4))


@dataclass(frozen=True)
class Case:
    name: str
    call: Callable[..., Any]  # call(library, *tensors) -> tensor or tuple
    shapes: st.SearchStrategy[Any] = ONE
    values: str = "any"  # any, positive, off_zero, distinct, small, unit
    derivatives: int = 2


CASES: list[Case] = []


def case(name: str, call: Callable[..., Any], shapes: Any = ONE, values: str = "any", **parts: Any) -> None:
    CASES.append(Case(name, call, shapes, values, **parts))


# --- elementwise ----------------------------------------------------------------------------------
case("add", lambda L, a, b: a + b, PAIR)
case("sub", lambda L, a, b: a - b, PAIR)
case("mul", lambda L, a, b: a * b, PAIR)
case("div", lambda L, a, b: a / b, PAIR, "off_zero")
case("pow", lambda L, a, b: a**b, PAIR, "positive")
case("pow scalar", lambda L, a: a**3 + a**2 + a**1 + a**0)
case("pow half", lambda L, a: a**0.5 + a**-1.5 + 2.0**a, values="positive")
case("scalars", lambda L, a: 2 - (a * 3 + 1.5) / 4 + 2 / a, values="off_zero")
case("floor_divide", lambda L, a, b: a.detach() // b.detach(), PAIR, "off_zero", derivatives=0)
case("remainder", lambda L, a, b: a % b.detach(), PAIR, "off_zero", derivatives=1)
case("maximum", lambda L, a, b: L.t.maximum(a, b), PAIR, "distinct", derivatives=1)
case("minimum", lambda L, a, b: L.t.minimum(a, b), PAIR, "distinct", derivatives=1)
case("maximum ties", lambda L, a: L.t.maximum(a, a * 1.0) + L.t.minimum(a, a * 1.0), derivatives=1)
for function in ("exp", "expm1", "sin", "cos", "tanh", "sigmoid", "erf", "square"):
    case(function, lambda L, a, f=function: getattr(L.t, f)(a))
    case(f".{function}", lambda L, a, f=function: getattr(a, f)())
for function in ("log", "log1p", "log2", "log10", "sqrt", "rsqrt"):
    case(function, lambda L, a, f=function: getattr(L.t, f)(a), values="positive")
case("reciprocal", lambda L, a: a.reciprocal(), values="off_zero")
for function in ("neg", "abs", "sign", "floor", "ceil", "round"):
    case(function, lambda L, a, f=function: getattr(L.t, f)(a), values="off_zero", derivatives=1)
case("relu", lambda L, a: L.F.relu(a) + a.relu(), derivatives=1)
case("gelu", lambda L, a: L.F.gelu(a))
case("gelu tanh", lambda L, a: L.F.gelu(a, approximate="tanh"))
case("silu", lambda L, a: L.F.silu(a))
case("softplus", lambda L, a: L.F.softplus(a))
case("leaky_relu", lambda L, a: L.F.leaky_relu(a, 0.1), values="off_zero", derivatives=1)
case("clamp", lambda L, a: a.clamp(-0.5, 0.7) + a.clamp(min=0.1) + a.clamp(max=0.2), derivatives=1)
case("clamp crossed", lambda L, a: a.clamp(0.5, -0.5), derivatives=0)
case("where", lambda L, a, b: L.t.where(a > b, a * b, b), PAIR)
case("where scalars", lambda L, a: L.t.where(a > 0, a, 0.5) + L.t.where(a > 0, 1.5, a), derivatives=1)
case("masked_fill", lambda L, a: a.masked_fill(a > 0.3, -2.0), derivatives=1)
for function in ("eq", "ne", "lt", "le", "gt", "ge"):
    case(function, lambda L, a, b, f=function: getattr(L.t, f)(a, b), PAIR, "small", derivatives=0)
case("isnan", lambda L, a: L.t.isnan(a / a), values="small", derivatives=0)
case("isinf", lambda L, a: L.t.isinf(1 / a), values="small", derivatives=0)
case("isfinite", lambda L, a: L.t.isfinite(1 / a), values="small", derivatives=0)
case("logic", lambda L, a, b: ((a > 0) & (b > 0)) | ~(a < b) ^ (b < 0), PAIR, derivatives=0)

# --- products -------------------------------------------------------------------------------------
case("matmul", lambda L, a, b: a @ b, st.tuples(SIZES, SIZES, SIZES).map(lambda n: ((n[0], n[1]), (n[1], n[2]))))
case("matmul batches", lambda L, a, b: L.t.matmul(a, b), fixed((2, 1, 3, 4), (5, 4, 2)))
case("matmul 3d 2d", lambda L, a, b: a @ b, st.tuples(SIZES, SIZES).map(lambda n: ((n[0], 3, n[1]), (n[1], 2))))
case("matmul 2d 3d", lambda L, a, b: a @ b, fixed((2, 3), (4, 3, 2)))
case("matmul vectors", lambda L, a, b: (a @ b) + (a @ b), fixed((3,), (3,)))
case("matmul vector left", lambda L, a, b: a @ b, fixed((3,), (2, 3, 4)))
case("matmul vector right", lambda L, a, b: a @ b, fixed((2, 4, 3), (3,)))
case("matmul transposed", lambda L, a, b: a.t() @ b.mT, fixed((3, 2), (4, 3)))
case("bmm", lambda L, a, b: L.t.bmm(a, b), fixed((2, 3, 4), (2, 4, 5)))
case("linear", lambda L, a, w, b: L.F.linear(a, w, b), fixed((2, 3, 4), (5, 4), (5,)))
for equation, shapes in {
    "ij,jk->ik": ((2, 3), (3, 4)),
    "bhqd,bhkd->bhqk": ((2, 2, 3, 4), (2, 2, 5, 4)),
    "ij,ij->": ((2, 3), (2, 3)),
    "i,j->ij": ((2,), (3,)),
    "ij->ji": ((2, 3),),
    "ijk->j": ((2, 3, 4),),
    "ij,kj,k": ((2, 3), (4, 3), (4,)),
    "bij,bjk": ((2, 3, 4), (2, 4, 3)),
    "abc,cd,de->abe": ((2, 3, 4), (4, 2), (2, 3)),
    "ij,jk->ki": ((2, 0), (0, 4)),
    "...ij,...jk->...ik": ((2, 3, 4), (2, 4, 3)),
    "b...i,ij->b...j": ((2, 3, 1, 4), (4, 2)),
    "...i,...i": ((2, 3), (2, 3)),
    "i...->...": ((2, 3, 4),),
}.items():
    case(f"einsum {equation}", lambda L, *a, e=equation: L.t.einsum(e, *a), fixed(*shapes))

# --- reductions -----------------------------------------------------------------------------------
for keep in (False, True):
    case(f"sum {keep}", lambda L, a, k=keep: a.sum(-1, keepdim=k) + a.sum(), FULL)
    case(f"sum dims {keep}", lambda L, a, k=keep: L.t.sum(a, (0, -1), keepdim=k), CUBE)
    case(f"mean {keep}", lambda L, a, k=keep: a.mean(0, keepdim=k), FULL)
    case(f"var {keep}", lambda L, a, k=keep: a.var(-1, keepdim=k) + a.var(-1, unbiased=False, keepdim=k), CUBE)
    case(f"std {keep}", lambda L, a, k=keep: a.std((0, 2), keepdim=k), CUBE)
    case(f"norm {keep}", lambda L, a, k=keep: a.norm(dim=-1, keepdim=k), CUBE)
    case(f"prod {keep}", lambda L, a, k=keep: a.prod(1, keepdim=k), CUBE)
    case(f"amax {keep}", lambda L, a, k=keep: a.amax((0, 1), keepdim=k), CUBE, "distinct", derivatives=1)
    case(f"amin {keep}", lambda L, a, k=keep: a.amin(-2, keepdim=k), CUBE, "distinct", derivatives=1)
    case(f"max dim {keep}", lambda L, a, k=keep: tuple(a.max(-1, keepdim=k)), FULL, "distinct")
    case(f"min dim {keep}", lambda L, a, k=keep: tuple(L.t.min(a, 0, keepdim=k)), FULL, "distinct")
    case(f"argmax {keep}", lambda L, a, k=keep: a.argmax(-1, keepdim=k), FULL, "distinct", derivatives=0)
    case(f"argmin {keep}", lambda L, a, k=keep: a.argmin(0, keepdim=k), FULL, "distinct", derivatives=0)
    case(f"argmax all {keep}", lambda L, a, k=keep: a.argmax(keepdim=k), FULL, "distinct", derivatives=0)
    case(f"all {keep}", lambda L, a, k=keep: (a > 0).all(-1, keepdim=k), FULL, derivatives=0)
    case(f"any {keep}", lambda L, a, k=keep: (a > 0).any(0, keepdim=k), FULL, derivatives=0)
    case(f"logsumexp {keep}", lambda L, a, k=keep: a.logsumexp(-1, keepdim=k), FULL)
case("sum over nothing", lambda L, a: a.sum(1) + a.prod(1) + a.sum(), fixed((2, 0)))
case("mean over nothing", lambda L, a: a.mean(1), fixed((2, 0)), derivatives=1)
case("mean all", lambda L, a: a.mean(), FULL)
case("max all ties", lambda L, a: L.t.cat([a, a]).max() + a.min(), FULL, "small", derivatives=1)
case("amax ties", lambda L, a: L.t.cat([a, a]).amax(0), FULL, "small", derivatives=1)
case("all any", lambda L, a: L.t.stack([(a > 0).all(), (a > 0).any()]), derivatives=0)
case("var one", lambda L, a: a.var(-1, unbiased=False) + a.std(-1, correction=0) * 0.0, fixed((3, 1)), derivatives=0)
case("all any of nothing", lambda L, a: L.t.cat([(a > 0).all(dim=()), (a > 0).any(())]), FULL, derivatives=0)
case("cumsum", lambda L, a: a.cumsum(-1) + L.t.cumsum(a, 0), FULL)
case("sort", lambda L, a: a.sort(-1)[0] + a.sort(-1, descending=True)[0] * 2, FULL, "distinct")
case("argsort", lambda L, a: L.t.argsort(a, -1), FULL, "distinct", derivatives=0)
case("topk", lambda L, a: (a.topk(2, -1)[0] * a.topk(2, 1, largest=False)[0], a.topk(2)[1]), fixed((3, 4)), "distinct")
case("softmax", lambda L, a: a.softmax(-1), FULL)
case("softmax first", lambda L, a: L.t.softmax(a, 0), FULL)
case("softmax empty", lambda L, a: L.F.softmax(a, 1), fixed((2, 0)))
case("log_softmax", lambda L, a: L.F.log_softmax(a, dim=-1), FULL)
case("layer_norm", lambda L, a, w, b: L.F.layer_norm(a, (4,), w, b), fixed((2, 3, 4), (4,), (4,)))
case("layer_norm plain", lambda L, a: L.F.layer_norm(a, (3, 4)), CUBE)
case("rms_norm", lambda L, a, w: L.F.rms_norm(a, *([(4,), w, 1e-6] if L is THEIRS else [w, 1e-6])), fixed((2, 4), (4,)))
case("normalize", lambda L, a: L.F.normalize(a, dim=-1), CUBE)

# --- shapes ---------------------------------------------------------------------------------------
case("reshape", lambda L, a: a.reshape(4, -1) * a.contiguous().view(4, 6), CUBE)
case("reshape transposed", lambda L, a: a.transpose(0, 2).reshape(-1, 2), CUBE)
case("permute", lambda L, a: a.permute(2, 0, 1) * 2, CUBE)
case("transpose", lambda L, a: a.transpose(-1, 0) + a.mT.transpose(0, 1).sum(), CUBE)
case("expand", lambda L, a: a.expand(2, -1, 4) * 3, fixed((3, 1)))
case("expand new", lambda L, a: a.expand(2, 3) + a.expand_as(L.t.zeros(2, 3)), fixed(()))
case("unsqueeze", lambda L, a: a.unsqueeze(0) * a.unsqueeze(-1).squeeze(-1))
case("squeeze none", lambda L, a: a.squeeze(()) * a.squeeze((0, 1)), fixed((2, 1, 3)))
case("squeeze", lambda L, a: a.squeeze() * a.squeeze(1).sum(), fixed((2, 1, 3)))
case("flatten", lambda L, a: a.flatten(1) * a.flatten(-2, -1), CUBE)
case("unflatten", lambda L, a: a.unflatten(1, (3, 2)), fixed((2, 6)))
case("cat", lambda L, a, b: L.t.cat([a, b * 2, a], dim=-1), fixed((2, 3), (2, 1)))
case("stack", lambda L, a, b: L.t.stack((a, b, a * b), dim=1), fixed((2, 3), (2, 3)))
case("split", lambda L, a: a.split(3, dim=-1), fixed((2, 7)))
case("split sizes", lambda L, a: L.t.split(a, [1, 2, 4], 1), fixed((2, 7)))
case("chunk nothing", lambda L, a: a.chunk(3, 1), fixed((2, 0)))
case("chunk", lambda L, a: a.chunk(3, 1), fixed((2, 7)))
case("unbind", lambda L, a: a.unbind(1), CUBE)
case("narrow", lambda L, a: a.narrow(-1, 1, 2) + a.narrow(-1, -3, 2), CUBE)
case("repeat", lambda L, a: a.repeat(2, 1, 3), fixed((2, 3)))
case("repeat_interleave", lambda L, a: a.repeat_interleave(2, dim=-1), FULL)
case("repeat_interleave flat", lambda L, a: L.t.repeat_interleave(a, 2), FULL)
case("repeat_interleave counts", lambda L, a: a.repeat_interleave(ids(L, [2, 0, 1]), dim=1), CUBE)
case("flip scalar", lambda L, a: L.t.flip(a, ()) * a, fixed(()))
case("flip", lambda L, a: L.t.flip(a, (0, -1)), CUBE)
case("roll", lambda L, a: a.roll(2, 1) + a.roll(-1, -1), CUBE)
case("roll dims", lambda L, a: L.t.roll(a, (1, -2), (0, 2)), CUBE)
case("roll flat", lambda L, a: L.t.roll(a, 3), CUBE)
for diagonal in (-1, 0, 2):
    case(f"tril {diagonal}", lambda L, a, d=diagonal: a.tril(d) * L.t.triu(a, -d), st.just(((3, 4),)))
case("contiguous", lambda L, a: a.t().contiguous() + a.t().clone(), MATRIX)
case("T", lambda L, a: a.T, MATRIX)


# --- gathering, losses ----------------------------------------------------------------------------
def ids(L: Library, values: Any) -> Any:
    return L.t.tensor(values)


LISTS: dict[str, Callable[[Any], list[Any]]] = {  # a list that holds more than numbers indexes as a tuple does
    "tensor": lambda i: [i],
    "tensors": lambda i: [i, i],
    "tensor and number": lambda i: [i, 0],
    "lists": lambda i: [[0, 1], [1, 0]],
    "list": lambda i: [[0, 1]],
    "array": lambda i: [np.array([0, 1])],
    "slice": lambda i: [slice(0, 1), i],
    "none": lambda i: [None, 0],
    "dots": lambda i: [..., 0],
    "numbers": lambda i: [0, 1],
}
for which, index in LISTS.items():
    case(f"index list {which}", lambda L, a, f=index: a[f(ids(L, [0, 1]))], CUBE)
case("gather", lambda L, a: a.gather(1, ids(L, [[0, 2], [1, 1]])), fixed((2, 3)))
case("gather smaller", lambda L, a: L.t.gather(a, 0, ids(L, [[0, 2]])), fixed((3, 4)))
case("scatter", lambda L, a, b: a.scatter(1, ids(L, [[0, 2], [1, 0]]), b), fixed((2, 3), (2, 2)))
case("scatter larger", lambda L, a, b: a.scatter(0, ids(L, [[0, 2]]), b), fixed((3, 4), (2, 3)), derivatives=0)
case("scatter number", lambda L, a: a.scatter(0, ids(L, [[0, 2, 1]]), 1.5), fixed((3, 4)))
case("scatter_add", lambda L, a, b: a.scatter_add(1, ids(L, [[0, 2], [1, 1]]), b), fixed((2, 3), (2, 2)))
case("index_select one", lambda L, a: a.index_select(1, ids(L, 2)), fixed((2, 3)))
case("index_select", lambda L, a: a.index_select(1, ids(L, [2, 0, 2])), fixed((2, 3)))
case("embedding", lambda L, w: L.F.embedding(ids(L, [[0, 2], [2, 3]]), w), fixed((4, 3)))
case("embedding padding", lambda L, w: L.F.embedding(ids(L, [0, 2, 2, 1]), w, padding_idx=2), fixed((4, 3)))
for options in ({}, {"label_smoothing": 0.1}, {"ignore_index": 2}, {"reduction": "sum"}, {"reduction": "none"}):
    case(
        f"cross_entropy {options}",
        lambda L, a, o=options: L.F.cross_entropy(a, ids(L, [1, 2, 4, 0]), **o),
        fixed((4, 5)),
    )
for reduction in ("mean", "sum", "none"):
    case(
        f"cross_entropy, all ignored, {reduction}",
        lambda L, a, r=reduction: L.F.cross_entropy(a, ids(L, [-100] * 4), reduction=r),
        fixed((4, 5)),
    )
case("cross_entropy 3d", lambda L, a: L.F.cross_entropy(a, ids(L, [[1, 2], [0, 1]])), fixed((2, 3, 2)))
case("nll_loss", lambda L, a: L.F.nll_loss(a, ids(L, [1, -100, 0])), fixed((3, 3)))
for reduction in ("mean", "sum", "none"):
    case(f"mse_loss {reduction}", lambda L, a, b, r=reduction: L.F.mse_loss(a, b, reduction=r), fixed((2, 3), (2, 3)))
case("pad", lambda L, a: L.F.pad(a, (1, 2, 0, 1), value=0.5), CUBE)
case(
    "attention",
    lambda L, q, k, v: L.F.scaled_dot_product_attention(q, k, v),
    fixed((2, 3, 4), (2, 5, 4), (2, 5, 2)),
)
case(
    "attention mask",
    lambda L, q, k, v: L.F.scaled_dot_product_attention(q, k, v, attn_mask=L.t.ones(3, 5).tril(1) > 0),
    fixed((2, 3, 4), (2, 5, 4), (2, 5, 2)),
)
case(
    "attention causal",
    lambda L, q, k, v: L.F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
    fixed((2, 3, 4), (2, 3, 4), (2, 3, 2)),
)
case(
    "attention additive",
    lambda L, q, k, v, m: L.F.scaled_dot_product_attention(q, k, v, attn_mask=m),
    fixed((2, 3, 4), (2, 5, 4), (2, 5, 2), (3, 5)),
)


# --- how a case is run ----------------------------------------------------------------------------


def values(kind: str, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    if kind == "positive":
        return rng.uniform(0.4, 2.5, shape)
    if kind == "off_zero":
        return rng.uniform(0.4, 2.0, shape) * rng.choice([-1.0, 1.0], shape)
    if kind == "small":
        return rng.integers(-1, 2, shape).astype(float)
    if kind == "distinct":
        return (rng.permutation(math.prod(shape)).reshape(shape) - 2.0) * 0.37 + rng.uniform(0, 0.1)
    return rng.standard_normal(shape)


def layout(array: np.ndarray, how: str) -> np.ndarray:
    """The same values in another memory layout."""
    if how == "fortran":
        return np.asfortranarray(array)
    if how == "gaps" and array.ndim:
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    return array


def ours(array: np.ndarray, grad: bool) -> mg.Tensor:
    return mg.from_numpy(array).requires_grad_(grad)


def theirs(array: np.ndarray, grad: bool) -> Any:
    return torch.from_numpy(array).requires_grad_(grad)


def outputs(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def run(library: Library, make: Any, case_: Case, arrays: Sequence[np.ndarray], seed: int, order: int) -> list[Any]:
    """Values, then the derivatives up to `order` along random directions."""
    rng = np.random.default_rng(seed)
    inputs = [make(a, order > 0) for a in arrays]
    level = outputs(case_.call(library, *inputs))
    found = [*level]
    for depth in range(order):
        seeds = [make(np.asarray(rng.standard_normal(tuple(r.shape)), arrays[0].dtype), False) for r in level]
        pairs = [(r, s) for r, s in zip(level, seeds, strict=True) if r.requires_grad]
        level = [None] * len(inputs)
        if pairs:  # else the derivative before this one is constant
            grad = torch.autograd.grad if library.t is torch else mg.grad
            results, directions = zip(*pairs, strict=True)
            level = grad(results, inputs, directions, create_graph=depth + 1 < order, allow_unused=True)
        level = [x * 0 if g is None else g for g, x in zip(level, inputs, strict=True)]
        found += level
    return [r.detach().numpy() for r in found]


def same(ours_: Sequence[np.ndarray], theirs_: Sequence[np.ndarray], rtol: float, atol: float) -> None:
    assert len(ours_) == len(theirs_)
    for a, b in zip(ours_, theirs_, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


BY_NAME = {c.name: c for c in CASES}


@pytest.mark.parametrize("name", BY_NAME)
def test_case(name: str) -> None:
    """float64 with both derivatives, float32 with the first, over shapes and memory layouts."""
    chosen = BY_NAME[name]

    @QUICK
    @given(chosen.shapes, st.integers(0, 1000), st.sampled_from(("plain", "fortran", "gaps")))
    def check(shapes: Any, seed: int, how: str) -> None:
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        arrays = [layout(np.asarray(values(chosen.values, rng, shape)), how) for shape in shapes]
        order = chosen.derivatives
        same(run(OURS, ours, chosen, arrays, seed, order), run(THEIRS, theirs, chosen, arrays, seed, order), 1e-7, 1e-9)
        arrays = [layout(a.astype(np.float32), how) for a in arrays]
        order = min(order, 1)
        same(run(OURS, ours, chosen, arrays, seed, order), run(THEIRS, theirs, chosen, arrays, seed, order), 1e-4, 2e-5)

    check()


HALF = {"float16": 2.0**-9, "bfloat16": 2.0**-6}  # two to three units in the last place: torch rounds between steps


@pytest.mark.parametrize("name", [c.name for c in CASES if "remainder" not in c.name and "floor" not in c.name])
def test_half_types_forward(name: str) -> None:
    """float16 and bfloat16 are computed in float32 and rounded, as torch does on the CPU."""
    chosen = BY_NAME[name]

    @settings(QUICK, max_examples=2)
    @given(chosen.shapes, st.sampled_from(sorted(HALF)))
    def check(shapes: Any, dtype: str) -> None:
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        arrays = [np.asarray(values(chosen.values, rng, shape), np.float32) for shape in shapes]
        got = outputs(chosen.call(OURS, *[mg.tensor(a).to(getattr(mg, dtype)) for a in arrays]))
        want = outputs(chosen.call(THEIRS, *[torch.tensor(a).to(getattr(torch, dtype)) for a in arrays]))
        for a, b in zip(got, want, strict=True):
            assert str(a.dtype) == str(b.dtype).removeprefix("torch.")
            scale = max(1.0, float(b.float().abs().nan_to_num().max())) if b.numel() else 1.0
            bound = 2 * HALF[dtype]
            np.testing.assert_allclose(a.float().numpy(), b.float().numpy(), rtol=bound, atol=bound * scale)

    check()
