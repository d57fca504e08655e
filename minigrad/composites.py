"""`@composite`: a plain function of tensors as one recorded node, whose decomposition is that function.

    @composite
    def mish(x):
        return x * mg.tanh(mg.log1p(mg.exp(x)))

The node's value, derivative and higher derivatives all come from the decomposition; a graph shows one box.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minigrad.ops.operands import as_operand
from minigrad.ops.registry import OPS, Array, Meta, op
from minigrad.tensor import Tensor
from minigrad.tracing import metas_of


def composite(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as one op: positional parameters are tensors (or numbers), keyword-only parameters are attributes.

    The function returns a tensor or a tuple of tensors, computed from its arguments alone: a tensor from outside that
    requires a gradient, a random draw, and a change of an argument in place raise RuntimeError. Decorate at module
    level: every decoration registers an op for the life of the program.
    """
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise TypeError(f"composite {function.__name__}: name the keyword-only parameters, ** cannot be recorded")

    def shape(metas: Sequence[Meta], **attrs: Any) -> Sequence[Meta]:
        return metas_of(lambda *tensors: function(*tensors, **attrs), metas)

    primitive = op(
        _free_name(function.__name__),
        None,
        decomposition=function,
        shape=shape,
        samples=_no_samples,
        formula=inspect.getdoc(function) or function.__name__,
    )
    defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is not p.empty}

    @functools.wraps(function)
    def call(*arguments: Any, **attrs: Any) -> Any:
        first = next((a for a in arguments if isinstance(a, Tensor)), None)
        _check_attributes(primitive.name, primitive.inputs, attrs)
        return primitive(*[as_operand(a, first) for a in arguments], **{**defaults, **attrs})

    return call


def _free_name(name: str) -> str:
    """`name`, or name_2, name_3, ... where an op has it: graphs made before a redefinition keep their meaning."""
    if name not in OPS:
        return name
    return next(numbered for i in itertools.count(2) if (numbered := f"{name}_{i}") not in OPS)


def _no_samples(rng: np.random.Generator) -> Sequence[tuple[Sequence[Array], dict[str, Any]]]:
    return ()


def _check_attributes(name: str, inputs: Sequence[str], attrs: Mapping[str, Any]) -> None:
    for key, value in attrs.items():
        if key in inputs or isinstance(value, Tensor):
            raise TypeError(f"composite {name}: pass {key!r} by position; only plain values go by keyword")
