"""The reference engine: a reverse-mode interpreter of `conformance.programs`, one written-out VJP an op.

Forward keeps every value; backward walks the steps in reverse, asks the step's op for the gradients of its
arguments given the gradient `g` of its result `y`, sums them down to the arguments' shapes, and adds them up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from conformance.adapters.reference.base import ReferenceSubject, reference
from conformance.programs import OPS, Program, Step, free_names
from conformance.protocol import Array, Arrays
from conformance.reference.engine import derivative

Gradients = tuple[Array | None, ...]


def reduced_axes(dim: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """The axes that a reduction over `dim` removes, counted from the front."""
    dims = range(ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    return tuple(d % ndim for d in dims)


@reference("autograd")
class Engine(ReferenceSubject):
    """`d_<op>(g, y, *arguments, **keywords)` is the VJP of <op>; a None means that the argument has no gradient."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        program: Program = self.config["program"]
        return {"out": self.run(program, inputs)[program[-1][0]]}

    def run(self, program: Program, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Every value by name."""
        values = {name: np.asarray(inputs[name]) for name in free_names(program)}
        for result, op, arguments, keywords in program:
            values[result] = self.value(op, [values[name] for name in arguments], keywords)
        return values

    def value(self, op: str, arguments: Sequence[Array], keywords: Mapping[str, Any]) -> Array:
        return np.asarray(OPS[op].value(*arguments, **keywords))

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        program: Program = self.config["program"]
        cast = {name: self._cast(value) for name, value in inputs.items()}
        values = self.run(program, cast)
        gradients = {program[-1][0]: np.broadcast_to(np.asarray(cotangent, self.dtype), values[program[-1][0]].shape)}
        for result, op, arguments, keywords in self.order(program):
            if result not in gradients:
                continue
            given = [values[name] for name in arguments]
            wanted = getattr(self, f"d_{op}")(gradients[result], values[result], *given, **keywords)
            for name, gradient in zip(arguments, wanted, strict=True):
                if gradient is not None:
                    self.accumulate(gradients, name, self.unbroadcast(np.asarray(gradient), values[name].shape))
        floating = {name: value for name, value in cast.items() if np.asarray(value).dtype.kind == "f"}
        return {name: gradients.get(name, np.zeros(np.shape(value))) for name, value in floating.items()}, {}

    def order(self, program: Program) -> Sequence[Step]:
        """Every step after all the steps that use its result."""
        return program[::-1]

    def accumulate(self, gradients: Arrays, name: str, gradient: Array) -> None:
        gradients[name] = gradients[name] + gradient if name in gradients else gradient

    def unbroadcast(self, gradient: Array, shape: tuple[int, ...]) -> Array:
        """Sum over the axes along which a value of `shape` was repeated."""
        gradient = self.drop_leading(gradient, gradient.ndim - len(shape))
        repeated = tuple(i for i, n in enumerate(shape) if n == 1 and gradient.shape[i] != 1)
        return gradient.sum(axis=repeated, keepdims=True) if repeated else gradient

    def drop_leading(self, gradient: Array, count: int) -> Array:
        return gradient.sum(axis=tuple(range(count)))

    # --- elementwise ----------------------------------------------------------------------------------

    def d_add(self, g: Array, y: Array, a: Array, b: Array) -> Gradients:
        return g, g

    def d_sub(self, g: Array, y: Array, a: Array, b: Array) -> Gradients:
        return g, -g

    def d_mul(self, g: Array, y: Array, a: Array, b: Array) -> Gradients:
        return g * b, g * a

    def d_div(self, g: Array, y: Array, a: Array, b: Array) -> Gradients:
        return g / b, -g * y / b

    def d_neg(self, g: Array, y: Array, x: Array) -> Gradients:
        return (-g,)

    def d_exp(self, g: Array, y: Array, x: Array) -> Gradients:
        return (g * y,)

    def d_log(self, g: Array, y: Array, x: Array) -> Gradients:
        return (g / x,)

    def d_sqrt(self, g: Array, y: Array, x: Array) -> Gradients:
        return (g / (2.0 * y),)

    def d_tanh(self, g: Array, y: Array, x: Array) -> Gradients:
        return (g * (1.0 - y * y),)

    def d_sigmoid(self, g: Array, y: Array, x: Array) -> Gradients:
        return (g * y * (1.0 - y),)

    def d_relu(self, g: Array, y: Array, x: Array) -> Gradients:
        return (np.where(x > 0, g, 0.0),)

    def d_gelu(self, g: Array, y: Array, x: Array, approximate: str) -> Gradients:
        if approximate == "tanh":
            c, cubic = math.sqrt(2.0 / math.pi), 0.044715
            t = np.tanh(c * (x + cubic * x**3))
            return (g * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * c * (1.0 + 3.0 * cubic * x * x)),)
        return (g * derivative("gelu", x),)

    def d_silu(self, g: Array, y: Array, x: Array) -> Gradients:
        s = OPS["sigmoid"].value(x)
        return (g * s * (1.0 + x * (1.0 - s)),)

    def d_pow(self, g: Array, y: Array, x: Array, exponent: float) -> Gradients:
        return (g * exponent * np.power(x, exponent - 1),)

    # --- products and reductions ----------------------------------------------------------------------

    def d_matmul(self, g: Array, y: Array, a: Array, b: Array) -> Gradients:
        left, right = a if a.ndim > 1 else a[None, :], b if b.ndim > 1 else b[:, None]
        if b.ndim == 1:
            g = g[..., None]
        if a.ndim == 1:
            g = g[..., None, :]
        d_left, d_right = g @ np.swapaxes(right, -1, -2), np.swapaxes(left, -1, -2) @ g
        return d_left[..., 0, :] if a.ndim == 1 else d_left, d_right[..., 0] if b.ndim == 1 else d_right

    def d_sum(self, g: Array, y: Array, x: Array, dim: Any, keepdim: bool) -> Gradients:
        return (np.broadcast_to(self.restore(g, x, dim, keepdim), x.shape),)

    def d_mean(self, g: Array, y: Array, x: Array, dim: Any, keepdim: bool) -> Gradients:
        return (np.broadcast_to(self.restore(g, x, dim, keepdim), x.shape) * (y.size / x.size),)

    def d_amax(self, g: Array, y: Array, x: Array, dim: Any, keepdim: bool) -> Gradients:
        chosen = x == self.restore(y, x, dim, keepdim)
        ties = chosen.sum(axis=reduced_axes(dim, x.ndim), keepdims=True)
        return (chosen * self.restore(g, x, dim, keepdim) / ties,)

    def restore(self, reduced: Array, x: Array, dim: Any, keepdim: bool) -> Array:
        """`reduced` with the axes that the reduction of `x` took away, at length one."""
        return reduced if keepdim else np.expand_dims(reduced, reduced_axes(dim, x.ndim))

    # --- normalisation --------------------------------------------------------------------------------

    def d_softmax(self, g: Array, y: Array, x: Array, dim: int) -> Gradients:
        return (y * (g - (g * y).sum(axis=dim, keepdims=True)),)

    def d_log_softmax(self, g: Array, y: Array, x: Array, dim: int) -> Gradients:
        return (g - np.exp(y) * g.sum(axis=dim, keepdims=True),)

    def d_layer_norm(self, g: Array, y: Array, x: Array, weight: Array, bias: Array, eps: float) -> Gradients:
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = 1.0 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)
        normal = centred * scale
        return self.through_statistics(g * weight, normal, scale), g * normal, g

    def through_statistics(self, g: Array, normal: Array, scale: Array) -> Array:
        """What reaches x: the direct path, less what the mean and the variance take back."""
        through_mean = g.mean(axis=-1, keepdims=True)
        through_variance = normal * (g * normal).mean(axis=-1, keepdims=True)
        return scale * (g - through_mean - through_variance)

    # --- shape and selection --------------------------------------------------------------------------

    def d_reshape(self, g: Array, y: Array, x: Array, shape: Any) -> Gradients:
        return (g.reshape(x.shape),)

    def d_transpose(self, g: Array, y: Array, x: Array, dim0: int, dim1: int) -> Gradients:
        return (np.swapaxes(g, dim0, dim1),)

    def d_permute(self, g: Array, y: Array, x: Array, dims: Sequence[int]) -> Gradients:
        return (np.transpose(g, np.argsort(dims)),)

    def d_expand(self, g: Array, y: Array, x: Array, size: Any) -> Gradients:
        return (g,)

    def d_cat(self, g: Array, y: Array, *tensors: Array, dim: int) -> Gradients:
        return tuple(np.split(g, np.cumsum([t.shape[dim] for t in tensors])[:-1], axis=dim))

    def d_narrow(self, g: Array, y: Array, x: Array, dim: int, start: int, length: int) -> Gradients:
        gradient = np.zeros_like(x)
        np.moveaxis(gradient, dim, 0)[start : start + length] = np.moveaxis(g, dim, 0)
        return (gradient,)

    def d_index_select(self, g: Array, y: Array, x: Array, index: Array, dim: int) -> Gradients:
        gradient = np.zeros_like(x)
        np.add.at(np.moveaxis(gradient, dim, 0), index, np.moveaxis(g, dim, 0))
        return gradient, None

    def d_where(self, g: Array, y: Array, condition: Array, a: Array, b: Array) -> Gradients:
        return None, np.where(condition, g, 0.0), np.where(condition, 0.0, g)

    def d_masked_fill(self, g: Array, y: Array, x: Array, mask: Array, value: float) -> Gradients:
        return np.where(mask, 0.0, g), None
