"""The program language of role "autograd": what the ops are, and what a program's value and gradient must be.

A program is a tuple of steps ``(result, op, argument names, keywords)``; the last result is its output:

    (step("z", "matmul", "x", "w"), step("a", "sigmoid", "z"))      # a = sigmoid(x @ w)

Names that no step defines are the program's inputs. Every name is defined once. Ops are torch functions under
torch's names, keywords by torch's names; `OPS` lists them with their numpy value. An adapter maps each name to
its engine's function: tensors positionally in the order given (`cat` takes them as one list), keywords as they are.

Floating inputs have gradients, of the input's shape; one on which the output does not depend has a gradient of
zeros. Integer and bool inputs (an index, a condition, a mask) have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.differences import differences
from conformance.protocol import REQUIRED
from conformance.reference import feed_forward as activations
from conformance.reference.attention import softmax
from conformance.reference.norms import layer_norm
from conformance.reference.training import log_softmax

Array = np.ndarray
Step = tuple[str, str, tuple[str, ...], dict[str, Any]]
Program = tuple[Step, ...]


@dataclass(frozen=True)
class Op:
    """One op. value: its numpy function; tensors: how many it takes (None: one or more); keywords: name -> default."""

    value: Callable[..., Any]
    tensors: int | None = 1
    keywords: Mapping[str, Any] = field(default_factory=dict)
    doc: str = ""


_REDUCTION = {"dim": None, "keepdim": False}

OPS: dict[str, Op] = {
    # elementwise, two tensors that broadcast
    "add": Op(np.add, 2),
    "sub": Op(np.subtract, 2),
    "mul": Op(np.multiply, 2),
    "div": Op(np.divide, 2),
    # elementwise, one tensor
    "neg": Op(np.negative),
    "exp": Op(np.exp),
    "log": Op(np.log),
    "sqrt": Op(np.sqrt),
    "tanh": Op(np.tanh),
    "sigmoid": Op(activations.sigmoid),
    "relu": Op(activations.relu, doc="its derivative at 0 is 0"),
    "gelu": Op(
        lambda x, approximate: activations.gelu_tanh(x) if approximate == "tanh" else activations.gelu(x),
        keywords={"approximate": "none"},
        doc="approximate: 'none' or 'tanh'",
    ),
    "silu": Op(activations.silu),
    "pow": Op(
        lambda x, exponent: np.power(x, exponent), keywords={"exponent": REQUIRED}, doc="exponent: a Python number"
    ),
    # products
    "matmul": Op(np.matmul, 2, doc="with torch's rules: vectors, matrices, batches that broadcast"),
    # reductions. dim: an int, a tuple of ints, or None for all
    "sum": Op(lambda x, dim, keepdim: np.sum(x, axis=dim, keepdims=keepdim), keywords=_REDUCTION),
    "mean": Op(lambda x, dim, keepdim: np.mean(x, axis=dim, keepdims=keepdim), keywords=_REDUCTION),
    "amax": Op(
        lambda x, dim, keepdim: np.max(x, axis=dim, keepdims=keepdim),
        keywords={"dim": REQUIRED, "keepdim": False},
        doc="the values of the maximum; dim: an int or a tuple of ints",
    ),
    # normalisation
    "softmax": Op(softmax, keywords={"dim": REQUIRED}),
    "log_softmax": Op(log_softmax, keywords={"dim": REQUIRED}),
    "layer_norm": Op(layer_norm, 3, {"eps": 1e-5}, "x, weight, bias; over the last axis"),
    # shape
    "reshape": Op(lambda x, shape: np.reshape(x, shape), keywords={"shape": REQUIRED}),
    "transpose": Op(lambda x, dim0, dim1: np.swapaxes(x, dim0, dim1), keywords={"dim0": REQUIRED, "dim1": REQUIRED}),
    "permute": Op(lambda x, dims: np.transpose(x, dims), keywords={"dims": REQUIRED}),
    "expand": Op(lambda x, size: np.broadcast_to(x, size), keywords={"size": REQUIRED}, doc="Tensor.expand(size)"),
    "cat": Op(lambda *tensors, dim: np.concatenate(tensors, axis=dim), None, {"dim": 0}),
    "narrow": Op(
        lambda x, dim, start, length: np.take(x, np.arange(start, start + length), axis=dim),
        keywords={"dim": REQUIRED, "start": REQUIRED, "length": REQUIRED},
    ),
    # selection
    "index_select": Op(
        lambda x, index, dim: np.take(x, index, axis=dim),
        2,
        {"dim": REQUIRED},
        "x, index: 1-d int64, may repeat. torch.index_select(x, dim, index)",
    ),
    "where": Op(np.where, 3, doc="condition (bool), a, b"),
    "masked_fill": Op(
        lambda x, mask, value: np.where(mask, value, x),
        2,
        {"value": REQUIRED},
        "x, mask (bool, broadcasts to x): `value` where the mask is True",
    ),
}


def step(result: str, op: str, *tensors: str, **keywords: Any) -> Step:
    """One step of a program, its keywords complete. Raises ValueError when `OPS` has no such op or form of it."""
    if op not in OPS:
        raise ValueError(f"the program language has no op {op!r}; it has {', '.join(OPS)}")
    known = OPS[op]
    if len(tensors) != known.tensors and (known.tensors is not None or not tensors):
        raise ValueError(f"{op} takes {known.tensors or 'one or more'} tensors, got {len(tensors)}")
    if unknown := set(keywords) - set(known.keywords):
        raise ValueError(f"{op} has no keyword {', '.join(sorted(unknown))}; it has {', '.join(known.keywords)}")
    complete = {**known.keywords, **keywords}
    if missing := [name for name, value in complete.items() if value is REQUIRED]:
        raise ValueError(f"{op} needs a value for {', '.join(missing)}")
    return result, op, tuple(tensors), complete


def free_names(program: Iterable[Step]) -> tuple[str, ...]:
    """The inputs of a program, in order of first use. Raises ValueError when a name is defined twice or after use."""
    inputs: dict[str, None] = {}
    defined: set[str] = set()
    for result, _, arguments, _ in program:
        inputs.update(dict.fromkeys(name for name in arguments if name not in defined))
        if result in defined or result in inputs:
            raise ValueError(f"the program defines {result!r} where that name is already in use; rename the result")
        defined.add(result)
    return tuple(inputs)


def evaluate(program: Program, inputs: Mapping[str, Array]) -> Array:
    """The program's output in numpy, in the dtype of the inputs."""
    values = dict(inputs)
    for result, op, arguments, keywords in program:
        values[result] = np.asarray(OPS[op].value(*(values[name] for name in arguments), **keywords))
    return values[program[-1][0]]


def gradients(program: Program, inputs: Mapping[str, Array], cotangent: Array | float = 1.0) -> dict[str, Array]:
    """The gradient of ``sum(output * cotangent)`` for every floating input, in float64, by central differences.

    Good to `conformance.differences.ERROR`; inputs must keep away from kinks (relu at 0, ties of amax) by its step.
    """
    moved = {name: np.array(value, np.float64) for name, value in inputs.items() if np.asarray(value).dtype.kind == "f"}
    full = {**inputs, **moved}
    return {
        name: differences(lambda: float(np.sum(evaluate(program, full) * cotangent)), array)
        for name, array in moved.items()
    }
