"""Indexing, views and changes in place against torch: values, gradients, and what has to be refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg

torch = pytest.importorskip("torch")

# --- reading and writing ----------------------------------------------------------------------------

SHAPE = (3, 4, 5)
# an index is written with numbers, slices, None, ..., and ("ids", nested list) or ("mask", seed, shape)
INDICES: list[tuple[Any, ...]] = [
    (1,),
    (-1,),
    (slice(1, 3),),
    (slice(None, None, 2), slice(-3, None)),
    (slice(1, 100), 0),
    (slice(2, 2),),
    (None, 1, None),
    (..., 2),
    (0, ..., slice(0, 2)),
    (1, 2, 3),
    (...,),
    (True,),
    (False,),
    (("ids", [0, 2, 2]),),
    (("ids", [-1, 0]),),
    (("ids", [[0, 1], [2, 0]]),),
    (("ids", []),),
    (slice(None), ("ids", [3, 0, 0])),
    (..., ("ids", [4, 1])),
    (("ids", [0, 2]), ("ids", [1, 3])),
    (("ids", [[0], [2]]), ("ids", [1, 3, 0])),
    (("ids", [0, 2]), slice(None), ("ids", [1, 3])),
    (0, slice(None), ("ids", [1, 3])),
    (slice(None), 1, ("ids", [1, 3])),
    (None, ("ids", [0, 2]), slice(1, 3)),
    (("ids", [0, 2]), None, ("ids", [1, 3])),
    (slice(None), ("ids", [0, 2]), None, ("ids", [1, 3])),
    (("ids", 1),),
    (slice(None), ("ids", 2), slice(0, 3)),
    (("mask", 1, (3,)),),
    (("mask", 2, (3, 4)),),
    (("mask", 3, (3, 4, 5)),),
    (slice(None), ("mask", 4, (4,))),
    (..., ("mask", 5, (5,))),
    (1, ("mask", 6, (4, 5))),
    (("mask", 7, (3,)), ("ids", [1])),
]


def built(index: tuple[Any, ...], library: Any) -> Any:
    def item(value: Any) -> Any:
        if isinstance(value, tuple) and value[0] == "ids":
            return library.tensor(value[1]).long()
        if isinstance(value, tuple):
            return library.tensor(np.random.default_rng(value[1]).random(value[2]) < 0.6)
        return value

    items = tuple(item(value) for value in index)
    return items if len(items) > 1 else items[0]


def data(seed: int = 0, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def both(program: Callable[[Any, Any], Any], shape: tuple[int, ...] = SHAPE) -> None:
    """`program(library, x)` gives the same values in both libraries, and the same first and second derivatives."""
    found = []
    for library in (mg, torch):
        grad = mg.grad if library is mg else torch.autograd.grad
        x = library.tensor(data(0, shape)).requires_grad_()
        y = program(library, x)
        y = y * y * y + 0 * x.sum()  # depends on x, also where the program overwrote all of it
        (first,) = grad([y], [x], [library.tensor(data(1, tuple(y.shape)))], create_graph=True)
        (second,) = grad([(first * first).sum() + 0 * x.sum()], [x])
        found.append([y, first, second])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_reading(index: tuple[Any, ...]) -> None:
    both(lambda t, x: x[built(index, t)])


@pytest.mark.parametrize("index", [i for i in INDICES if "mask" not in str(i) and not isinstance(i[0], bool)], ids=str)
def test_a_trace_knows_the_shape_of_what_is_read(index: tuple[Any, ...]) -> None:
    x, place = mg.tensor(data()), built(index, mg)
    ((node, output),) = mg.trace(lambda x: x[place])(x).outputs
    assert node.outputs[output] == (x[place].shape, x.dtype)


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("value", ["number", "tensor", "broadcast"])
@pytest.mark.parametrize("recorded", [True, False])
def test_writing(index: tuple[Any, ...], value: str, recorded: bool) -> None:
    def program(t: Any, x: Any) -> Any:
        place = built(index, t)
        y = x * 2 if recorded else x.detach().clone()
        shape = tuple(y[place].shape)
        if ("ids", [0, 2, 2]) in index or ("ids", [3, 0, 0]) in index:
            y[place] = 1.5  # which of several values stays is not defined
        elif value == "number":
            y[place] = 1.5
        elif value == "broadcast":
            y[place] = x[0, 0, :1] * 3 if recorded else t.tensor([7.0]).double()
        else:
            y[place] = (x.sum() * t.tensor(data(3, shape))) if recorded else t.tensor(data(3, shape))
        return y

    both(program)


# --- views and changes in place ---------------------------------------------------------------------


def column_add(t: Any, x: Any) -> Any:
    y = x * 2
    y[:, 0] += x[:, 1]
    return y


def row_scale_through_a_view(t: Any, x: Any) -> Any:
    y = x * 2
    row = y[1]
    row.mul_(x[0])
    return y + row.sum()


def stale_view_sees_the_new_history(t: Any, x: Any) -> Any:
    y = x * 2
    row = y[1]
    y.mul_(x)
    return row * 3


def stale_view_first_seen_under_no_grad(t: Any, x: Any) -> Any:
    y = x * 2
    row = y[1]
    y.mul_(x)
    with t.no_grad():
        row.sum()
    return row * 3


def two_views_of_one_base(t: Any, x: Any) -> Any:
    y = x * 1
    a, b = y[0], y[:, 1]
    a.mul_(2)
    b.add_(a[:1])
    a.sub_(b.sum())
    return y * a[0, 0] + b.sum()


def view_of_a_view(t: Any, x: Any) -> Any:
    y = x.sin()
    y.view(-1)[3:20].view(17)[2:5].mul_(x[0, 0, :3])
    return y


def base_that_lies_transposed(t: Any, x: Any) -> Any:
    y = x.permute(2, 0, 1) * 2
    y[1].mul_(x[:, :, 0])
    y[:, 2].exp_()
    return y


def stale_view_of_a_transposed_base(t: Any, x: Any) -> Any:
    y = x.permute(2, 0, 1) * 2
    part = y[1:3, :, 0]
    y.mul_(x.permute(2, 0, 1))
    return part * x[0, 0, 0]


def constant_base_takes_a_history(t: Any, x: Any) -> Any:
    y = t.zeros(3, 4, 5).double()
    y.add_(x)
    y[1].mul_(2)
    return y * y[1].sum()


def write_through_a_view_of_constants(t: Any, x: Any) -> Any:
    y = t.zeros(3, 4, 5).double()
    y[1].copy_(x[0] * 2)
    y[2][1:3] = x[0, :2]
    return y


def masked(t: Any, x: Any) -> Any:
    y = x * 2
    y.masked_fill_(x.detach() > 0.5, 1.0)
    y[y.detach() < -0.5] = 3.0
    return y


def overwritten(t: Any, x: Any) -> Any:
    y = x * 2
    row = y[0]
    y[0] = 5.0
    return y * row.sum()


def zeroed_row(t: Any, x: Any) -> Any:
    y = x * 2
    y[0].zero_()
    y[1].fill_(2.0)
    return y


def detached_view_stays_constant(t: Any, x: Any) -> Any:
    y = x * 2
    constant = y.detach()
    y = y + 1
    y.mul_(3)
    return y * constant


def change_of_a_copy(t: Any, x: Any) -> Any:
    y = x.clone()
    y.transpose(0, 2)[1].mul_(2)
    y.clamp_(-0.7, 0.7)
    return y.pow_(2)


def narrow_parts(t: Any, x: Any) -> Any:
    y = x * 1
    first, second = y.narrow(1, 0, 2), y.narrow(1, 2, 2)
    first.mul_(second.clone())
    return y * first.sum()


def expanded_reader(t: Any, x: Any) -> Any:
    y = x[:1, :1] * 1
    wide = y.expand(3, 4, 5)
    y.mul_(2)
    return wide * x


def changed_under_no_grad(t: Any, x: Any) -> Any:
    y = x + 1  # add saves nothing, so the change is legal, and the history is the old one
    with t.no_grad():
        y[0] = 4.0
    return y


PROGRAMS = [
    column_add, row_scale_through_a_view, stale_view_sees_the_new_history, stale_view_first_seen_under_no_grad,
    two_views_of_one_base, view_of_a_view, base_that_lies_transposed, stale_view_of_a_transposed_base,
    constant_base_takes_a_history, write_through_a_view_of_constants, masked, overwritten, zeroed_row,
    detached_view_stays_constant, change_of_a_copy, narrow_parts, expanded_reader, changed_under_no_grad,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_changes_in_place(program: Callable[[Any, Any], Any]) -> None:
    both(program)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("row", "column", "flat", "transposed", "part", "whole")),
        st.sampled_from(("mul", "add", "fill", "copy", "exp")),
    ),
    min_size=1,
    max_size=5,
)


def view_of(y: Any, which: str) -> Any:
    return {
        "row": lambda: y[1],
        "column": lambda: y[:, 2],
        "flat": lambda: y.view(-1)[2:9:3],
        "transposed": lambda: y.transpose(0, 1)[1:3],
        "part": lambda: y[1:, 1:3].unsqueeze(0),
        "whole": lambda: y,
    }[which]()


def change(t: Any, view: Any, how: str, x: Any) -> None:
    if how == "mul":
        view.mul_(x[0, 0])
    elif how == "add":
        view.add_(view.detach().sum() * 0.01 + x[1, 1])
    elif how == "fill":
        view.fill_(0.3)
    elif how == "copy":
        view.copy_(x[2, 3])
    else:
        view.copy_((view * 0.1).exp())


@settings(max_examples=40, deadline=None, derandomize=True)
@given(STEPS)
def test_any_sequence_of_changes_through_views(steps: list[tuple[str, str]]) -> None:
    def program(t: Any, x: Any) -> Any:
        y = x * 2
        views = [view_of(y, which) for which, _ in steps]  # all taken before the first change
        for view, (_, how) in zip(views, steps, strict=True):
            change(t, view, how, x)
        total = y * 1
        for view in views:
            total = total + view.sum()
        return total

    both(program, (4, 4))


def test_a_detached_view_shares_memory_and_version_but_not_history() -> None:
    x = mg.ones(3, requires_grad=True)
    y = x * 2
    d = y.detach()
    y.mul_(3)
    assert d.tolist() == [6.0, 6.0, 6.0]
    assert not d.requires_grad
    assert not (d * 2).requires_grad


def test_copies_are_not_views() -> None:
    x = mg.arange(6).reshape(2, 3)
    for copy in (x.clone(), x[mg.tensor([0, 1])], x.t().reshape(-1), x.repeat(1, 1), x.flip(0)):
        copy.zero_()
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    x.t()[0].zero_()
    assert x.tolist() == [[0, 1, 2], [0, 4, 5]]


def test_what_cannot_be_changed_in_place() -> None:
    leaf = mg.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf that requires a gradient"):
        leaf.mul_(2)
    with pytest.raises(RuntimeError, match="leaf that requires a gradient"):
        leaf[0] = 1.0
    with mg.no_grad():
        leaf.mul_(2)
        part = (leaf * 1)[:2]
    assert leaf.tolist() == [2.0, 2.0, 2.0]
    y = leaf * 2
    with mg.no_grad():
        part = y[:2]
    with pytest.raises(RuntimeError, match="taken under no_grad"):
        part.mul_(2)
    with pytest.raises(RuntimeError, match="expanded view"):
        mg.ones(1).expand(3).add_(1)
    with pytest.raises(ValueError, match="cannot change the shape"):
        mg.ones(1).add_(mg.ones(3))
    with pytest.raises(TypeError, match="cannot be stored in place"):
        mg.ones(3, dtype=mg.int64).add_(0.5)
    with pytest.raises(ValueError, match="does not fit there"):
        mg.ones(3, 2)[0] = mg.ones(3)


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (5, IndexError, "shape"),
        ((0, 0, 0), IndexError, "too many"),
        (mg.tensor([0, 7]), IndexError, "shape"),
        (1.5, TypeError, "indexed with float"),
        (mg.tensor([0.5]), TypeError, "float32 tensor"),
        (slice(None, None, -1), ValueError, "flip"),
        ("a", TypeError, "str"),
    ],
)
def test_bad_indices(index: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mg.ones(3, 2)[index]


def test_in_place_operators_keep_dtype_and_memory() -> None:
    x = mg.arange(6).float()
    alias = x
    x += 1
    x *= 2.0
    x -= mg.ones(6)
    x /= 2
    x **= 2
    x //= 2
    x %= 3
    assert x is alias
    assert x.dtype == mg.float32
    mask = mg.tensor([True, False])
    mask &= True
    mask |= mg.tensor([False, True])
    mask ^= True
    assert mask.tolist() == [False, False]


def test_a_cast_lies_as_what_it_casts_and_row_by_row_where_that_has_gaps_or_overlaps():
    x = mg.from_numpy(np.arange(6.0).reshape(2, 3))
    assert x.T.to(mg.float32).stride() == (1, 3)
    assert x.T[:, :1].to(mg.float32).stride() == (1, 1)
    assert mg.from_numpy(np.arange(12.0).reshape(3, 4)).T[:2].to(mg.float32).stride() == (3, 1)
    assert mg.ones(3).expand(2, 3).T.to(mg.float64).stride() == (2, 1)
