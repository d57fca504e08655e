"""Bad input: one clear sentence each, with what was wrong and what to do. And the odd corners of good input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional as F
from minigrad import io, nn, optim
from minigrad.compiler import compile
from minigrad.nn.utils import clip_grad_norm_, clip_grad_value_
from minigrad.study import gradgradcheck

A, B, V = mg.ones(2, 3), mg.ones(4, 5), mg.ones(3)
IDS, MASK = mg.tensor([0, 1]), mg.tensor([True, False])
SWAPPED = np.ones(2, np.dtype(np.float32).newbyteorder())

ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "broadcast": (lambda: A + B, ValueError, r"add: shapes \[2, 3\] and \[4, 5\] do not broadcast"),
    "operand": (lambda: A + "x", TypeError, "expected a tensor or a number, got str"),
    "hook": (lambda: A.register_hook(print), RuntimeError, "a hook needs a tensor that requires a gradient"),
    "none": (lambda: A * None, TypeError, "got NoneType"),
    "bool minus": (lambda: MASK - MASK, TypeError, "sub is not defined for bool"),
    "float and": (lambda: A & A, TypeError, "bitwise_and is not defined for float32"),
    "float not": (lambda: ~A, TypeError, "compare with 0 first"),
    "int power": (lambda: IDS**-1, ValueError, "negative integer power"),
    "int division": (lambda: IDS // 0, ZeroDivisionError, "division by zero"),
    "where": (lambda: mg.where(A, A, A), TypeError, "condition must be bool"),
    "masked_fill": (lambda: A.masked_fill(A, 0), TypeError, "mask must be bool"),
    "clamp": (lambda: A.clamp(), ValueError, "min, max, or both"),
    "masked value": (lambda: A.masked_fill(A > 0, "x"), TypeError, "the value must be a number, got str"),
    "dim is bool": (lambda: A.sum(True), TypeError, "a dimension must be an integer, got True"),
    "dims are no list": (lambda: A.sum({}), TypeError, "integers or a list of them, got dict"),
    "no such dim": (lambda: mg.max(mg.tensor(1.0), 7), IndexError, "dimension 7 is out of range"),
    "norm p": (lambda: A.norm("nuc"), ValueError, "must be a number or 'fro'"),
    "topk k": (lambda: V.topk(0.5), TypeError, "k must be an integer, got 0.5"),
    "chunks": (lambda: V.chunk([2]), TypeError, "number of chunks must be an integer"),
    "narrow from": (lambda: V.narrow(0, 0.5, 1), TypeError, "the start must be an integer, got 0.5"),
    "repeats": (lambda: V.repeat_interleave(0.5), TypeError, "repeats must be an integer, got 0.5"),
    "counts": (lambda: V.repeat_interleave(V), TypeError, "counts must be integers, got float32"),
    "negative counts": (lambda: V.repeat_interleave(mg.tensor([1, -1, 2])), ValueError, "not be negative, got -1"),
    "unflatten": (lambda: A.unflatten(0, 3.0), TypeError, "a size must be an integer"),
    "view_as": (lambda: A.view_as([1]), TypeError, r"view_as: other must be a tensor, got list: make it one with"),
    "expand_as": (lambda: A.expand_as(np.ones(3)), TypeError, "expand_as: other must be a tensor, got ndarray"),
    "type_as": (lambda: A.type_as("x"), TypeError, "expected a tensor or a number, got str"),
    "contains": (lambda: "x" in A, TypeError, "expected a tensor or a number, got str"),
    "ragged index": (lambda: A[:, [[0], [0, 1]]], IndexError, "numbers, or lists of equal length"),
    "softmax dtype": (lambda: A.softmax(0, 3), TypeError, "a dtype is expected, like mg.float32, got int"),
    "sum dtype": (lambda: A.sum(0, dtype="x"), TypeError, "'x' is no dtype"),
    "to": (lambda: A.to(5), TypeError, "a dtype is expected"),
    "ones dtype": (lambda: mg.ones(2, dtype=V), TypeError, "a dtype is expected, like mg.float32, got Tensor"),
    "eye dtype": (lambda: mg.eye(2, dtype=np.dtype(complex)), TypeError, "no dtype complex128"),
    "linspace dtype": (lambda: mg.linspace(0, 1, 3, dtype=np.dtype(complex)), TypeError, "no dtype complex128"),
    "linspace steps": (lambda: mg.linspace(0, 1, 0.5), TypeError, "number of steps must be an integer, got 0.5"),
    "linspace ends": (lambda: mg.linspace(0, [1], 3), TypeError, "the end must be a number, got list"),
    "arange of a list": (lambda: mg.arange([3]), TypeError, "the start must be a number, got list"),
    "eye": (lambda: mg.eye([2]), TypeError, "a size must be an integer"),
    "negative ones": (lambda: mg.ones(2, -1), ValueError, r"a size cannot be negative: \[2, -1\]"),
    "full of many": (lambda: mg.full_like(A, [1, 2, 3]), TypeError, "the value must be a number, got list"),
    "ragged tensors": (lambda: mg.tensor([A, V]), ValueError, "different lengths"),
    "device number": (lambda: mg.ones(2, device=3), TypeError, "a device is 'cpu' or 'cuda', got 3"),
    "linear weight": (lambda: F.linear(V, V), ValueError, r"the weight must be \(n_out, n_in\), got shape \[3\]"),
    "attention of numbers": (
        lambda: F.scaled_dot_product_attention(V[0], V, V, V),
        ValueError,
        r"query \[\], key \[3\], value \[3\] do not fit",
    ),
    "layer_norm shape": (lambda: F.layer_norm(A, 0.5), TypeError, "a size must be an integer"),
    "pad of one": (lambda: F.pad(A, 0.5), TypeError, "a size must be an integer, got 0.5"),
    "slope": (lambda: F.leaky_relu(A, "x"), TypeError, "the slope must be a number, got str"),
    "smoothing": (lambda: F.cross_entropy(A, IDS, label_smoothing=[1]), TypeError, "label_smoothing must be a number"),
    "dropout p": (lambda: F.dropout(A, "x"), TypeError, "the probability must be a number, got str"),
    "padding_idx": (lambda: F.embedding(IDS, A, 0.5), TypeError, "padding_idx must be an integer, got 0.5"),
    "clip arrays": (lambda: clip_grad_norm_([np.ones(2)], 1.0), TypeError, r"got ndarray among them: pass model.param"),
    "clip numbers": (lambda: clip_grad_value_([1.0], 1.0), TypeError, "must be tensors, got float among them"),
    "clip a module": (lambda: clip_grad_norm_(nn.Linear(2, 3), 1.0), TypeError, "got Linear: pass model.parameters"),
    "clip at text": (lambda: clip_grad_norm_([V], "1"), TypeError, "max_norm must be a number, got str"),
    "optimizer of a module": (lambda: optim.SGD(nn.Linear(2, 3)), TypeError, "got Linear: pass model.parameters"),
    "group": (lambda: optim.SGD([{}]), TypeError, 'a group must be a dict like {"params": tensors'),
    "lr": (lambda: optim.Adam([V], lr="1e-3"), TypeError, "Adam: lr must be a number, got str"),
    "betas": (lambda: optim.Adam([V], betas=0.9), TypeError, "betas must be two numbers, got 0.9"),
    "schedule": (lambda: optim.StepLR(nn.Linear(2, 3), 1), TypeError, "StepLR needs an optimizer, got Linear"),
    "init": (lambda: nn.init.normal_(np.ones(2)), TypeError, "normal_: tensor must be a tensor, got ndarray"),
    "state dict": (lambda: nn.Linear(2, 3).load_state_dict("f"), TypeError, r"got str: minigrad.io.load_file\(path\)"),
    "save": (lambda: io.save_file(nn.Linear(2, 3), "f"), TypeError, "got Linear: pass model.state_dict"),
    "matmul inner": (lambda: A @ B, ValueError, r"\[2, 3\] and \[4, 5\] do not fit.*\(3\).*\(4\)"),
    "matmul batch": (lambda: mg.ones(2, 3, 4) @ mg.ones(5, 4, 3), ValueError, "leading dimensions"),
    "matmul 0d": (lambda: mg.tensor(1.0) @ A, ValueError, r"use \*"),
    "matmul number": (lambda: A @ 2.0, TypeError, "matmul: b must be a tensor, got float"),
    "outer": (lambda: mg.outer(A, V), ValueError, "two vectors"),
    "dot": (lambda: mg.dot(V, mg.ones(2)), ValueError, "one length"),
    "einsum count": (lambda: mg.einsum("ij,jk->ik", A), ValueError, "names 2 operands, got 1"),
    "einsum size": (lambda: mg.einsum("ij,jk->ik", A, A), ValueError, "index 'j'.*sizes 3 and 2"),
    "einsum rank": (lambda: mg.einsum("ijk->i", A), ValueError, "names 3 dimensions"),
    "einsum twice": (lambda: mg.einsum("ii->i", A), ValueError, "letters, each once"),
    "einsum output": (lambda: mg.einsum("ij->ik", A), ValueError, "must name indices"),
    "dim": (lambda: A.sum(2), IndexError, r"dimension 2 is out of range.*\(-2 to 1\)"),
    "dim twice": (lambda: A.sum((0, -2)), ValueError, "repeated"),
    "mean of ints": (lambda: IDS.mean(), TypeError, r"convert it with .float\(\)"),
    "max of nothing": (lambda: mg.ones(0, 2).max(0), ValueError, "empty dimension"),
    "argmax of nothing": (lambda: mg.ones(0).argmax(), ValueError, "empty dimension"),
    "topk": (lambda: V.topk(4), ValueError, "k = 4 is not between 0 and 3"),
    "view size": (lambda: A.view(4), ValueError, r"cannot view shape \[2, 3\]"),
    "view strides": (lambda: A.t().view(6), RuntimeError, r"contiguous\(\)"),
    "two guesses": (lambda: A.reshape(-1, -1), ValueError, "cannot view"),
    "permute": (lambda: A.permute(0, 0), ValueError, "each of 2 dimensions once"),
    "t": (lambda: mg.ones(1, 2, 3).t(), ValueError, "at most 2"),
    "expand": (lambda: A.expand(4, 3), ValueError, "does not expand"),
    "expand minus": (lambda: V.expand(-1, 3), ValueError, "does not expand"),
    "cat nothing": (lambda: mg.cat([]), ValueError, "at least one"),
    "cat": (lambda: mg.cat([A, B]), ValueError, "differ in another dimension"),
    "stack": (lambda: mg.stack([A, B]), ValueError, "differ"),
    "split": (lambda: A.split([1, 1], 1), ValueError, "add up to 3, the size of dimension 1"),
    "split negative": (lambda: V.split([-1, 4]), ValueError, "must not be negative"),
    "split 0d": (lambda: mg.tensor(1.0).split(1), ValueError, "without dimensions"),
    "cat 0d": (lambda: mg.cat([mg.tensor(1.0)]), ValueError, "without dimensions"),
    "narrow": (lambda: V.narrow(0, 2, 2), IndexError, "2 elements from 2 do not lie in dimension 0 of size 3"),
    "narrow negative": (lambda: V.narrow(0, 0, -1), IndexError, "-1 elements"),
    "repeat negative": (lambda: V.repeat(-1), ValueError, "must not be negative"),
    "repeat_interleave counts": (lambda: V.repeat_interleave(mg.tensor([1, 2])), ValueError, "one for each element"),
    "roll": (lambda: V.roll((1, 2), 0), ValueError, "2 shifts for 1 dimensions"),
    "index_select negative": (lambda: V.index_select(0, mg.tensor([-1])), IndexError, "index -1 is out of range"),
    "index_select matrix": (lambda: V.index_select(0, mg.tensor([[0]])), ValueError, "vector of integers"),
    "complex zeros": (lambda: mg.zeros(2, dtype=np.dtype("complex64")), TypeError, "no dtype complex64"),
    "NaN as int": (lambda: mg.tensor([float("nan")], dtype=mg.int64), OverflowError, "out of range for int64"),
    "300 as int8": (lambda: mg.tensor([300], dtype=mg.int8), OverflowError, "out of range for int8, -128 to 127"),
    "float seed": (lambda: mg.manual_seed(1.5), TypeError, "a seed must be an integer"),
    "float bound": (lambda: mg.randint(0, 2.5, (2,)), TypeError, "a bound must be an integer"),
    "number as gradient": (lambda: setattr(mg.ones(1), "grad", 1.0), TypeError, "a tensor or None, got float"),
    "float size": (lambda: mg.zeros(2.5), TypeError, "a size must be an integer, got 2.5"),
    "text size": (lambda: V.reshape("3"), TypeError, "a size must be an integer, got '3'"),
    "float dim": (lambda: V.sum(1.0), TypeError, "a dimension must be an integer"),
    "float slice": (lambda: V[0:1.5], TypeError, "a bound of a slice must be an integer"),
    "softmax 0d": (lambda: mg.tensor(1.0).softmax(4), IndexError, "dimension 4 is out of range"),
    "minus bool": (lambda: -MASK, TypeError, "use ~"),
    "relu bool": (lambda: MASK.relu(), TypeError, "relu is not defined for bool"),
    "NaN bound": (lambda: V.clamp(max=float("nan")), ValueError, "NaN is no bound"),
    "where shapes": (lambda: mg.where(MASK, A, V), ValueError, r"where: shapes \[2\], \[2, 3\], \[3\]"),
    "mask shape": (lambda: A.masked_fill(MASK, 0), ValueError, "masked_fill: shapes"),
    "out of int8": (lambda: mg.zeros(1, dtype=mg.int8) + 300, OverflowError, "300 is out of range for int8"),
    "inf in ints": (lambda: IDS.masked_fill(MASK, float("inf")), OverflowError, "inf is out of range for int64"),
    "mask assignment": (lambda: V.clone().__setitem__(V > 0, mg.ones(2)), ValueError, "does not fit there"),
    "bernoulli": (lambda: mg.bernoulli(V * 2), ValueError, r"lie in \[0, 1\]"),
    "chunk": (lambda: A.chunk(0), ValueError, "positive"),
    "unbind": (lambda: list(mg.tensor(1.0)), TypeError, "iterated"),
    "tril": (lambda: V.tril(), ValueError, "at least 2 dimensions"),
    "gather": (lambda: V.gather(0, mg.tensor([3])), IndexError, "index 3 is out of range"),
    "gather negative": (lambda: V.gather(0, mg.tensor([-1])), IndexError, "index -1"),
    "gather floats": (lambda: V.gather(0, V), TypeError, "integer tensor"),
    "gather large": (lambda: A.gather(1, mg.zeros(3, 1).long()), ValueError, "must not be larger"),
    "scatter large": (lambda: A.scatter(1, mg.zeros(2, 2).long(), mg.ones(2, 1)), ValueError, "must not be larger"),
    "one_hot": (lambda: F.one_hot(mg.tensor([3]), 3), ValueError, "outside 0 to 2"),
    "embedding": (lambda: F.embedding(mg.tensor([4]), B), IndexError, "id 4 is outside the vocabulary of 4"),
    "embedding ids": (lambda: F.embedding(V, B), TypeError, "integers"),
    "cross_entropy shape": (lambda: F.cross_entropy(A, mg.tensor([0])), ValueError, r"need targets of shape \[2\]"),
    "cross_entropy id": (lambda: F.cross_entropy(A, mg.tensor([0, 3])), ValueError, "target 3 is not a class id"),
    "cross_entropy floats": (lambda: F.cross_entropy(A, A), TypeError, "class ids"),
    "reduction": (lambda: F.mse_loss(A, A, "avg"), ValueError, "mean, sum, none"),
    "mse": (lambda: F.mse_loss(A, V), ValueError, "differ"),
    "layer_norm": (lambda: F.layer_norm(A, 4), ValueError, "does not end in"),
    "layer_norm weight": (lambda: F.layer_norm(A, 3, mg.ones(2)), ValueError, "last dimension"),
    "attention": (lambda: F.scaled_dot_product_attention(A, B, B), ValueError, "do not fit"),
    "attention mask": (
        lambda: F.scaled_dot_product_attention(A, A, A, mg.ones(2, 2).long()), TypeError, "must be bool"
    ),
    "attention mask shape": (
        lambda: F.scaled_dot_product_attention(A, A, A, mg.ones(3, 3) > 0), ValueError, "does not broadcast"
    ),
    "linear": (lambda: F.linear(A, B), ValueError, "number of columns"),
    "dropout": (lambda: F.dropout(A, 1.5), ValueError, r"\[0, 1\]"),
    "gelu": (lambda: F.gelu(A, "fast"), ValueError, "approximate"),
    "pad": (lambda: F.pad(A, (1,)), ValueError, "pairs"),
    "item": (lambda: A.item(), ValueError, "exactly one element"),
    "truth": (lambda: bool(A), ValueError, "ambiguous"),
    "len": (lambda: len(mg.tensor(1)), TypeError, "no length"),
    "device": (lambda: A.to("cuda:7"), ValueError, "no device 'cuda:7'"),
    "dtype": (lambda: mg.tensor([1j]), TypeError, "minigrad has no dtype complex128"),
    **{
        f"other bytes, {name}": (call, TypeError, r"bytes of [<>]\w\d are in the order .* use .astype\('\w+'\) first")
        for name, call in {
            "tensor": lambda: mg.tensor(SWAPPED),
            "shared": lambda: mg.from_numpy(SWAPPED),
            "as_tensor": lambda: mg.as_tensor(SWAPPED),
            "operand": lambda: mg.ones(2) + SWAPPED,
            "index": lambda: mg.ones(2)[SWAPPED.astype(np.dtype(np.int64).newbyteorder())],
            "to": lambda: mg.ones(2).to(SWAPPED.dtype),
            "zeros": lambda: mg.zeros(2, dtype=SWAPPED.dtype),
        }.items()
    },
    "no numbers": (lambda: mg.tensor(["a", None]), TypeError, r"numbers are expected, got \['a', None\]"),
    "nothing": (lambda: mg.tensor(None), TypeError, "numbers are expected, got None"),
    "no function to trace": (lambda: mg.trace(A), TypeError, "trace: a function is expected, got Tensor"),
    "no function to compile": (lambda: mg.compile(3), TypeError, "compile: a function is expected, got int"),
    "ragged": (lambda: mg.tensor([[1], [1, 2]]), ValueError, "different lengths"),
    "from_numpy": (lambda: mg.from_numpy([1]), TypeError, r"use tensor\(\)"),
    "arange": (lambda: mg.arange(0, 3, 0), ValueError, "must not be zero"),
    "arange away": (lambda: mg.arange(5, 0), ValueError, "steps of 1 do not lead from 5 to 0"),
    "arange for ever": (lambda: mg.arange(float("inf")), ValueError, "steps of 1 do not lead from 0 to inf"),
    "None as element": (lambda: V.clone().__setitem__(0, None), TypeError, "no dtype object"),
    "full of None": (lambda: mg.full((2,), None), TypeError, "the value must be a number, got NoneType"),
    "float classes": (lambda: F.one_hot(IDS, 2.5), TypeError, "num_classes must be an integer"),
    "float diagonal": (lambda: A.tril(0.5), TypeError, "a diagonal must be an integer"),
    "meshgrid": (lambda: mg.meshgrid(A, V), ValueError, r"needs vectors, got shapes \[2, 3\], \[3\]"),
    "2**63": (lambda: mg.tensor([2**63]), OverflowError, "out of range for int64"),
    "padding row": (lambda: F.embedding(IDS, B, padding_idx=7), ValueError, "padding_idx 7 is outside the table of 4"),
    "embedding table": (lambda: F.embedding(IDS, V), ValueError, r"\(vocabulary, width\), got shape \[3\]"),
    "one_hot of nothing": (lambda: F.one_hot(IDS[:0]), ValueError, "needs num_classes"),
    "attention of integers": (
        lambda: F.scaled_dot_product_attention(IDS[None], IDS[None], IDS[None]), TypeError, "be floating, got int64"
    ),
    "nothing to derive": (lambda: gradgradcheck(lambda x: x, [V]), ValueError, "needs at least one input"),
    "negative size": (lambda: mg.rand(-1), ValueError, "negative"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_bad_input_is_refused_in_one_sentence(name: str) -> None:
    call, error, message = ERRORS[name]
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


INDICES = {
    "gather": lambda x, ids: x.gather(0, ids),
    "scatter": lambda x, ids: x.scatter(0, ids, 1.0),
    "scatter_add": lambda x, ids: x.scatter_add(0, ids, x),
    "index_select": lambda x, ids: x.index_select(0, ids),
    "one_hot": lambda x, ids: F.one_hot(ids, 3),
    "nll_loss": lambda x, ids: F.nll_loss(x.unsqueeze(0), ids[-1:]),
}


@pytest.mark.parametrize("outside", [-1, 3])
@pytest.mark.parametrize("op", INDICES)
def test_indices_are_refused_alike_in_a_compiled_step(op: str, outside: int) -> None:
    x, ids = mg.tensor([1.0, 2.0, 3.0]), mg.tensor([0, 1, outside])
    with pytest.raises((IndexError, ValueError)) as eager:
        INDICES[op](x, ids)
    with pytest.raises(eager.type) as compiled:
        compile(INDICES[op])(x, ids)
    assert str(compiled.value) == str(eager.value)


def test_a_number_is_its_own_only_element() -> None:
    x, first = mg.tensor(2.0), mg.tensor(0)
    assert x.gather(0, first).item() == 2
    assert x.scatter(0, first, 5.0).item() == 5
    assert x.scatter_add(0, first, x).item() == 4


def test_nan_is_the_largest_everywhere() -> None:
    """As in torch: NaN wins max, min and argmax, and sorts last."""
    x = mg.tensor([1.0, float("nan"), 3.0, float("nan")])
    assert np.isnan(x.max().item())
    assert np.isnan(x.min().item())
    assert x.argmax().item() == 1
    assert x.max(0)[1].item() == 1
    assert x.argsort().tolist() == [0, 2, 1, 3]
    assert x.argsort(descending=True).tolist() == [1, 3, 2, 0]
    assert x.topk(2)[1].tolist() == [1, 3]
    assert np.isnan(mg.maximum(x, mg.zeros(4))[1].item())
    assert np.isnan(x.clamp(0, 2)[1].item())
    assert x.relu()[2].item() == 3
    assert x.sign()[1].item() == 0
    assert (x == x).tolist() == [True, False, True, False]


def test_ties_are_taken_in_order() -> None:
    x = mg.tensor([2.0, 1.0, 2.0])
    assert x.argmax().item() == 0
    assert x.max(0)[1].item() == 0
    assert x.sort()[1].tolist() == [1, 0, 2]
    assert x.sort(descending=True)[1].tolist() == [0, 2, 1]


def test_infinities_make_no_warnings(recwarn: Any) -> None:
    x = mg.tensor([0.0, -1.0, float("inf"), 1e38], requires_grad=True)
    y = x.log() + 1 / x + x.exp() * 2 + x.sqrt() + (x - x) / x + mg.softmax(x, 0)
    y.sum().backward()
    x.detach().half()
    assert not recwarn.list


def test_comparing_tensors() -> None:
    x = mg.tensor([1.0, 2.0])
    assert x.equal(mg.tensor([1.0, 2.0]))
    assert not x.equal(mg.tensor([[1.0, 2.0]]))
    assert mg.allclose(x, x + 1e-7)
    assert not mg.allclose(x, x + 1e-3)
    infinite = mg.tensor([float("inf"), float("nan")])
    assert mg.allclose(infinite, infinite, equal_nan=True)
    assert not mg.allclose(infinite, infinite)
    assert not mg.allclose(x, mg.tensor([1.0, float("inf")]))
    assert (x == "a") is False
    assert (x != None) is True  # noqa: E711
    assert 2.0 in x


def test_values_and_indices_have_names() -> None:
    x = mg.tensor([[1.0, 3.0], [5.0, 2.0]])
    assert x.max(dim=1).values.tolist() == [3.0, 5.0]
    assert x.min(dim=0).indices.tolist() == [0, 1]
    assert x.topk(1).indices.tolist() == [[1], [0]]
    values, indices = x.sort(dim=0)
    assert values.tolist() == [[1.0, 2.0], [5.0, 3.0]]
    assert indices.tolist() == [[0, 1], [1, 0]]
    graph = mg.trace(lambda x: x.max(dim=1))(x)
    assert graph.run(x).indices.tolist() == [1, 0]


def test_one_element_and_no_dimension() -> None:
    x = mg.tensor(3.0, requires_grad=True)
    (x.sum() * x.reshape(1, 1).mean() + x.max() + x.cumsum(0) + x.softmax(0) + x.sort(0)[0]).backward()
    assert x.grad.item() == 2 * 3 + 3
    assert x.argmax(0).item() == 0
    assert x.max(0)[1].item() == 0
    assert np.isnan(mg.ones(1).var().item())
    assert np.isnan(mg.ones(0).mean().item())
    assert mg.ones(1).var(unbiased=False).item() == 0


def test_a_compiled_step_refuses_values_as_the_op_does() -> None:
    refused: tuple[tuple[Callable[[mg.Tensor], mg.Tensor], float, type[Exception], str], ...] = (
        (lambda x: IDS ** x.long(), -2, ValueError, "convert the base"),
        (lambda x: IDS // x.long(), 0, ZeroDivisionError, "division by zero"),
        (lambda x: mg.bernoulli(x - 1), 2.5, ValueError, r"lie in \[0, 1\]"),
        (lambda x: mg.bernoulli(x - 1), float("nan"), ValueError, r"lie in \[0, 1\]"),
    )
    for function, bad, error, sentence in refused:
        for run in (function, compile(function)):
            assert run(mg.tensor([1.0, 1.0])).sum().item() in (0, 1)
            with pytest.raises(error, match=sentence):
                run(mg.tensor([1.0, bad]))


def test_numbers_of_one_element_are_bounds() -> None:
    assert mg.arange(mg.tensor(3)).tolist() == [0, 1, 2]
    assert mg.arange(np.int64(1), mg.tensor(4), mg.tensor([2])).tolist() == [1, 3]
    assert mg.arange(0).tolist() == mg.arange(3, 3, -1).tolist() == []
    made = mg.arange(mg.tensor(2.5), 4)
    assert (made.tolist(), made.dtype) == ([2.5, 3.5], mg.float32)
    assert mg.full((2,), mg.tensor(3)).dtype == mg.int64


def test_results_as_torch_has_them() -> None:
    """Arguments by torch's order, NaN where a bound or a logarithm has none, dtypes of both operands."""
    x = mg.tensor([[3.0, 4.0], [6.0, 8.0]])
    assert x.norm(2).item() == pytest.approx(125**0.5)
    assert x.norm(2, 1).tolist() == x.norm(dim=1).tolist() == [5.0, 10.0]
    nan = float("nan")
    np.testing.assert_equal(mg.ones(2).clamp(min=mg.tensor([nan, 2.0])).tolist(), [nan, 2.0])
    np.testing.assert_equal(mg.ones(2).clamp(max=mg.tensor([nan, 0.5])).tolist(), [nan, 0.5])
    np.testing.assert_equal(F.kl_div(mg.zeros(2), mg.tensor([-1.0, 0.0]), "none").tolist(), [nan, 0.0])
    assert F.mse_loss(mg.tensor([1, 2]), mg.ones(2, dtype=mg.float16)).dtype == mg.float16
    assert F.l1_loss(mg.tensor([1, 2]), mg.ones(2, dtype=mg.float16)).dtype == mg.float16
