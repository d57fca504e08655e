"""Products: matmul (vectors, matrices, batches) and einsum, which is transposes, products and one matmul."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import Any

import numpy as np

from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.derivation import derive, grid
from minigrad.ops.elementwise import mul
from minigrad.ops.operands import as_operand, pair
from minigrad.ops.registry import FLOATS, Meta, Op, op
from minigrad.ops.shape import reshape, transpose, unsqueeze
from minigrad.tensor import Tensor


def _shape(metas: Sequence[Meta]) -> list[Meta]:
    (a, dtype), (b, _) = metas
    return [((*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1]), dtype)]


def _samples(rng: np.random.Generator) -> Any:
    for a, b in (((2, 3), (3, 4)), ((2, 1, 3, 4), (5, 4, 2)), ((3, 3), (3, 3)), ((0, 3), (3, 2)), ((2, 0), (0, 3))):
        yield (rng.standard_normal(a), rng.standard_normal(b)), {}


matmul_op: Op = op(
    "matmul",
    lambda a, b: np.matmul(a, b),
    {"a": lambda g, b: matmul_op(g, transpose(b, -1, -2)), "b": lambda g, a: matmul_op(transpose(a, -1, -2), g)},
    shape=_shape,
    flops=lambda metas, outputs: 2 * metas[0][0][-1] * rules.size(outputs[0]),
    samples=_samples,
    formula="A B, over leading batch dimensions",
    kernels={"numba.matvec": "float32", "cuda.products": FLOATS},
    planned={"numba.gemm": "float32"},
    ufunc=np.matmul,
    derivation=derive(
        "Y = A B, so dY = dA B + A dB",
        "<G, dA B> = trace(G^T dA B) = trace(B G^T dA) = <G B^T, dA>",
        "<G, A dB> = trace(G^T A dB) = <A^T G, dB>",
        a="g @ T(b)",
        b="T(a) @ g",
        example=lambda: ([grid(2, 3), grid(3, 2, seed=1)], {}),
    ),
)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """``(..., m, k) @ (..., k, n)``; a vector counts as a row on the left and a column on the right.

    Raises ValueError with both shapes where they do not fit, TypeError for operands that are not tensors.
    """
    left, right = a.array.shape, b.array.shape
    a, b = pair(a, b)
    if not left or not right:
        raise ValueError("matmul: a zero-dimensional tensor cannot be multiplied as a matrix: use *")
    inner = right[-2] if len(right) > 1 else right[0]
    if left[-1] != inner:
        raise ValueError(
            f"matmul: shapes {list(left)} and {list(right)} do not fit: the last dimension of the first ({left[-1]}) "
            f"must equal the {'last' if len(right) == 1 else 'second to last'} of the second ({inner})"
        )
    _check_batches(left, right)
    if len(left) > 2 and len(right) == 2:  # one product instead of many; so are both gradients
        rows = int(np.prod(left[:-1]))
        return reshape(matmul_op(reshape(a, rows, left[-1]), b), (*left[:-1], right[-1]))
    if len(left) > 1 and len(right) > 1:
        return matmul_op(a, b)
    result = matmul_op(unsqueeze(a, 0) if len(left) == 1 else a, unsqueeze(b, 1) if len(right) == 1 else b)
    shape = result.array.shape
    if len(right) == 1:
        shape = shape[:-1]
    if len(left) == 1:
        shape = shape[:-2] + shape[-1:] if len(right) > 1 else shape[:-1]
    return reshape(result, shape)


def outer(a: Tensor, b: Tensor) -> Tensor:
    """a_i b_j ``(n, m)`` of two vectors. Raises ValueError for anything but vectors."""
    if a.array.ndim != 1 or b.array.ndim != 1:
        raise ValueError(f"outer needs two vectors, got shapes {list(a.array.shape)} and {list(b.array.shape)}")
    return mul(unsqueeze(a, 1), b)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """sum a_i b_i of two vectors. Raises ValueError for anything but vectors of one length."""
    if a.array.ndim != 1 or a.array.shape != b.array.shape:
        raise ValueError(
            f"dot needs two vectors of one length, got shapes {list(a.array.shape)} and {list(b.array.shape)}"
        )
    return matmul(a, b)


def _check_batches(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    try:
        np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        raise ValueError(
            f"matmul: the leading dimensions of {list(left)} and {list(right)} do not broadcast: "
            "sizes must be equal or 1"
        ) from None


def einsum(equation: str, *operands: Any) -> Tensor:
    """Einstein summation of one or more tensors ("bhqd,bhkd->bhqk", "...ij,jk->...ik"); no index twice in one operand.

    Raises ValueError where the equation and the shapes disagree.
    """
    if not isinstance(equation, str):
        raise TypeError(f"einsum: the equation must be text like 'ij,jk->ik', got {type(equation).__name__}")
    text = equation.replace(" ", "")
    left, arrow, output = text.partition("->")
    terms = left.split(",")
    if len(operands) == 1 and not isinstance(operands[0], Tensor):
        operands = tuple(operands[0])
    operands = tuple(as_operand(operand) for operand in operands)
    if len(terms) != len(operands):
        raise ValueError(f"einsum: {equation!r} names {len(terms)} operands, got {len(operands)}")
    terms, dots = _spell_out(terms, operands)
    if arrow:
        output = output.replace("...", dots)
    else:
        joined = "".join(terms)
        output = dots + "".join(sorted(c for c in set(joined) - set(dots) if joined.count(c) == 1))
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        if len(set(term)) != len(term) or not all(c.isalpha() for c in term):
            raise ValueError(f"einsum: the term {term!r} of {equation!r} is not supported: letters, each once")
        if len(term) != operand.array.ndim:
            raise ValueError(f"einsum: {term!r} names {len(term)} dimensions, its operand has {operand.array.ndim}")
        for letter, n in zip(term, operand.array.shape, strict=True):
            if sizes.setdefault(letter, n) != n:
                raise ValueError(f"einsum: index {letter!r} of {equation!r} has sizes {sizes[letter]} and {n}")
    if len(set(output)) != len(output) or not set(output) <= set(sizes):
        raise ValueError(f"einsum: the output {output!r} of {equation!r} must name indices of the inputs, each once")
    term, value = terms[0], operands[0]
    for position, (next_term, operand) in enumerate(zip(terms[1:], operands[1:], strict=True)):
        needed = set(output).union(*terms[position + 2 :])
        term, value = _contract(term, value, next_term, operand, needed, sizes)
    term, value = _sum_out(term, value, set(output))
    return value.permute(*[term.index(c) for c in output]) if output != term else value


def _spell_out(terms: Sequence[str], operands: Sequence[Tensor]) -> tuple[list[str], str]:
    """The terms with letters of their own for "...", which line up at its last dimension; and those letters."""
    free = [c for c in ascii_letters if c not in "".join(terms)]
    counts = [
        max(x.array.ndim - len(term) + 3, 0) if "..." in term else 0 for term, x in zip(terms, operands, strict=True)
    ]
    letters = "".join(free[: max(counts)])
    spelled = [term.replace("...", letters[len(letters) - n :]) for term, n in zip(terms, counts, strict=True)]
    return spelled, letters


def _sum_out(term: str, value: Tensor, keep: set[str]) -> tuple[str, Tensor]:
    gone = tuple(i for i, c in enumerate(term) if c not in keep)
    return ("".join(c for c in term if c in keep), value.sum(gone)) if gone else (term, value)


def _contract(
    a_term: str, a: Tensor, b_term: str, b: Tensor, needed: set[str], sizes: dict[str, int]
) -> tuple[str, Tensor]:
    """Two operands to one: shared needed indices are batches, shared others are summed by a matmul."""
    a_term, a = _sum_out(a_term, a, needed | set(b_term))
    b_term, b = _sum_out(b_term, b, needed | set(a_term))
    batch = [c for c in a_term if c in b_term and c in needed]
    inner = [c for c in a_term if c in b_term and c not in needed]
    rows = [c for c in a_term if c not in b_term]
    columns = [c for c in b_term if c not in a_term]

    def arranged(term: str, tensor: Tensor, groups: Sequence[list[str]]) -> Tensor:
        order = [c for group in groups for c in group]
        moved = tensor.permute(*[term.index(c) for c in order]) if order else tensor
        return reshape(moved, [int(np.prod([sizes[c] for c in group])) for group in groups])

    left = arranged(a_term, a, (batch, rows, inner))
    right = arranged(b_term, b, (batch, inner, columns))
    left, right = pair(left, right)
    product = matmul_op(left, right)
    term = "".join((*batch, *rows, *columns))
    return term, reshape(product, [sizes[c] for c in term])


expect_tensors(globals())
