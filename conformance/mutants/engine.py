"""Mutants of the autograd engine: one wrong rule each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from conformance.adapters.reference.engine import Engine, Gradients
from conformance.mutants.base import mutant
from conformance.programs import OPS, Program, Step
from conformance.protocol import Array, Arrays

# --- the driver ---------------------------------------------------------------------------------------


@mutant(
    breaks=(
        "gradients-of-a-value-used-twice-add-up",
        "gradients-of-two-losses-add",
        "a-residual-block-adds-its-upstream-gradient",
        "gradient-of-stacked-residual-blocks-is-a-product",
        "a-residual-block-can-stop-the-gradient",
    ),
    known_as="G01",
)
class GradientOverwritten(Engine):
    """A second gradient of a value replaces the first."""

    def accumulate(self, gradients: Arrays, name: str, gradient: Array) -> None:
        gradients[name] = gradient


@mutant(breaks=("gradients-of-a-value-used-twice-add-up",))
class FirstGradientKept(Engine):
    """A value that has a gradient takes no further one."""

    def accumulate(self, gradients: Arrays, name: str, gradient: Array) -> None:
        gradients.setdefault(name, gradient)


@mutant(breaks=("backward-waits-for-every-consumer",))
class BreadthFirstBackward(Engine):
    """Steps run as the walk from the output reaches them, before all of their consumers have."""

    def order(self, program: Program) -> Sequence[Step]:
        steps = {one[0]: one for one in program}
        reached: list[Step] = []
        queue = [program[-1][0]]
        while queue:
            name = queue.pop(0)
            if name in steps and steps[name] not in reached:
                reached.append(steps[name])
                queue.extend(steps[name][2])
        return reached


@mutant(breaks=("gradients-start-from-zero-at-each-step",))
class GradientsNeverCleared(Engine):
    """The gradients of earlier backward passes stay in."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        fresh, none = super().vjp(inputs, cotangent)
        self.kept = {name: gradient + getattr(self, "kept", {}).get(name, 0.0) for name, gradient in fresh.items()}
        return self.kept, none


@mutant(breaks=("gradient-of-a-broadcast-value-is-summed",), known_as="G12")
class LeadingAxesAveraged(Engine):
    """The gradient of a broadcast value is averaged, not summed, over the leading axes."""

    def drop_leading(self, gradient: Array, count: int) -> Array:
        return gradient.mean(axis=tuple(range(count)))


@mutant(breaks=("gradient-of-a-broadcast-value-is-summed",))
class FirstRowOfLeadingAxes(Engine):
    """Of the leading axes of a broadcast gradient only the first entry is taken."""

    def drop_leading(self, gradient: Array, count: int) -> Array:
        return gradient[(0,) * count]


@mutant(breaks=("gradient-of-a-broadcast-value-is-summed",))
class UnitAxesNotReduced(Engine):
    """An axis of length one that was broadcast keeps the gradient's first entry instead of the sum."""

    def unbroadcast(self, gradient: Array, shape: tuple[int, ...]) -> Array:
        gradient = self.drop_leading(gradient, gradient.ndim - len(shape))
        return gradient[tuple(slice(0, n) for n in shape)]


@mutant(breaks=("a-bare-skip-path-passes-the-gradient-unchanged",))
class GradientDecays(Engine):
    """Every step of the backward pass loses a little of the gradient."""

    def accumulate(self, gradients: Arrays, name: str, gradient: Array) -> None:
        super().accumulate(gradients, name, gradient * 0.999)


# --- elementwise --------------------------------------------------------------------------------------


@mutant(
    breaks=(
        "derivative-of-the-sigmoid",
        "gradients-of-one-sigmoid-neuron",
        "gradient-of-a-deep-sigmoid-chain-vanishes",
        "every-op-has-the-gradient-of-its-value",
    ),
    known_as="G08",
)
class SigmoidSlopeIsItsValue(Engine):
    """sigmoid' is y instead of y (1 - y)."""

    def d_sigmoid(self, g: Array, y: Array, x: Array) -> Gradients:
        return (g * y,)


@mutant(breaks=("derivative-of-the-sigmoid", "an-activation-derivative-enters-delta-once"))
class SigmoidSlopeAtTheInput(Engine):
    """sigmoid' is computed from the input, x (1 - x)."""

    def d_sigmoid(self, g: Array, y: Array, x: Array) -> Gradients:
        return (g * x * (1.0 - x),)


@mutant(breaks=("an-activation-derivative-enters-delta-once",))
class SlopeTwice(Engine):
    """The derivative of tanh and sigmoid is applied twice."""

    def d_tanh(self, g: Array, y: Array, x: Array) -> Gradients:
        return (g * (1.0 - y * y) ** 2,)

    def d_sigmoid(self, g: Array, y: Array, x: Array) -> Gradients:
        return (g * (y * (1.0 - y)) ** 2,)


@mutant(breaks=("backpropagation-is-the-chain-rule", "a-residual-block-adds-its-upstream-gradient"))
class TanhSlopeNotSquared(Engine):
    """tanh' is 1 - y instead of 1 - y^2."""

    def d_tanh(self, g: Array, y: Array, x: Array) -> Gradients:
        return (g * (1.0 - y),)


@mutant(breaks=("relu-passes-positive-values-and-their-gradients",))
class LeakyReluSlope(Engine):
    """relu passes a hundredth of the gradient of negative values."""

    def d_relu(self, g: Array, y: Array, x: Array) -> Gradients:
        return (np.where(x > 0, g, 0.01 * g),)


@mutant(breaks=("relu-passes-positive-values-and-their-gradients",))
class ReluByMultiplication(Engine):
    """relu is x * (x > 0), which is NaN at -inf."""

    def value(self, op: str, arguments: Sequence[Array], keywords: Mapping[str, Any]) -> Array:
        if op == "relu":
            return arguments[0] * (arguments[0] > 0)
        return super().value(op, arguments, keywords)


@mutant(breaks=("activations-stay-finite-at-large-inputs",), known_as="G10")
class SoftmaxUnshifted(Engine):
    """softmax exponentiates without subtracting the maximum."""

    def value(self, op: str, arguments: Sequence[Array], keywords: Mapping[str, Any]) -> Array:
        if op != "softmax":
            return super().value(op, arguments, keywords)
        with np.errstate(over="ignore", invalid="ignore"):
            exponentials = np.exp(arguments[0])
            return exponentials / exponentials.sum(axis=keywords["dim"], keepdims=True)


@mutant(breaks=("activations-stay-finite-at-large-inputs",))
class SigmoidOverflows(Engine):
    """sigmoid is exp(x) / (1 + exp(x)), NaN for large x."""

    def value(self, op: str, arguments: Sequence[Array], keywords: Mapping[str, Any]) -> Array:
        if op != "sigmoid":
            return super().value(op, arguments, keywords)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.exp(arguments[0]) / (1.0 + np.exp(arguments[0]))


@mutant(breaks=("activations-stay-finite-at-large-inputs",))
class LogOfSoftmax(Engine):
    """log-softmax is the logarithm of softmax, -inf where softmax underflows."""

    def value(self, op: str, arguments: Sequence[Array], keywords: Mapping[str, Any]) -> Array:
        if op != "log_softmax":
            return super().value(op, arguments, keywords)
        with np.errstate(divide="ignore"):
            return np.log(OPS["softmax"].value(*arguments, **keywords))


@mutant(breaks=("activations-act-element-by-element", "an-activation-derivative-enters-delta-once"))
class SharedSlope(Engine):
    """Elementwise activations use the mean slope of the row."""

    def d_tanh(self, g: Array, y: Array, x: Array) -> Gradients:
        return (g * (1.0 - y * y).mean(),)

    def d_sigmoid(self, g: Array, y: Array, x: Array) -> Gradients:
        return (g * (y * (1.0 - y)).mean(),)


@mutant(breaks=("an-activation-is-not-linear", "backpropagation-is-the-chain-rule"))
class ActivationLeftOut(Engine):
    """Activations are the identity, with a slope of one."""

    def value(self, op: str, arguments: Sequence[Array], keywords: Mapping[str, Any]) -> Array:
        return arguments[0] if op in ("relu", "sigmoid", "tanh") else super().value(op, arguments, keywords)

    def d_tanh(self, g: Array, y: Array, x: Array) -> Gradients:
        return (g,)

    d_sigmoid = d_relu = d_tanh


@mutant(breaks=("every-op-has-the-gradient-of-its-value", "gradients-of-one-sigmoid-neuron"))
class DifferenceWithoutSign(Engine):
    """The second argument of a difference gets the gradient without the minus sign."""

    def d_sub(self, g: Array, y: Array, a: Array, b: Array) -> Gradients:
        return g, g


@mutant(breaks=("every-op-has-the-gradient-of-its-value", "gradient-of-a-broadcast-value-is-summed"))
class DenominatorSlopeNotSquared(Engine):
    """The denominator of a quotient gets -g / b instead of -g a / b^2."""

    def d_div(self, g: Array, y: Array, a: Array, b: Array) -> Gradients:
        return g / b, -g / b


@mutant(breaks=("every-op-has-the-gradient-of-its-value",))
class PowerKeepsItsExponent(Engine):
    """The slope of x^n is n x^n."""

    def d_pow(self, g: Array, y: Array, x: Array, exponent: float) -> Gradients:
        return (g * exponent * y,)


@mutant(breaks=("every-op-has-the-gradient-of-its-value", "backpropagation-is-the-chain-rule"))
class GeluSlopeWithoutDensity(Engine):
    """The slope of exact GELU is the cumulative distribution alone, without x times the density."""

    def d_gelu(self, g: Array, y: Array, x: Array, approximate: str) -> Gradients:
        if approximate == "tanh":
            return super().d_gelu(g, y, x, approximate)
        return (g * np.divide(y, x, out=np.full_like(x, 0.5), where=x != 0),)


@mutant(breaks=("every-op-has-the-gradient-of-its-value",))
class GeluTanhAsExact(Engine):
    """The tanh form of GELU computes the exact one, in value and slope."""

    def value(self, op: str, arguments: Sequence[Array], keywords: Mapping[str, Any]) -> Array:
        return super().value(op, arguments, {"approximate": "none"} if op == "gelu" else keywords)

    def d_gelu(self, g: Array, y: Array, x: Array, approximate: str) -> Gradients:
        return super().d_gelu(g, y, x, "none")


# --- products and reductions --------------------------------------------------------------------------


@mutant(breaks=("gradient-of-a-matrix-product",))
class WeightGradientTransposed(Engine):
    """The gradient of a square right factor is delta^T X, where shapes do not show it."""

    def d_matmul(self, g: Array, y: Array, a: Array, b: Array) -> Gradients:
        left, right = super().d_matmul(g, y, a, b)
        square = right is not None and right.ndim == 2 and right.shape[0] == right.shape[1]
        return left, right.T if square and right is not None else right


@mutant(breaks=("gradient-of-a-matrix-product",))
class WeightGradientAveraged(Engine):
    """The gradient of the right factor is averaged over the rows of X."""

    def d_matmul(self, g: Array, y: Array, a: Array, b: Array) -> Gradients:
        left, right = super().d_matmul(g, y, a, b)
        return left, right / a.shape[-2] if right is not None and a.ndim > 1 else right


@mutant(breaks=("sensitivity-of-a-weighted-sum-is-its-weights",))
class OperandGradientsSwapped(Engine):
    """The two vectors of a dot product get each other's gradient."""

    def d_matmul(self, g: Array, y: Array, a: Array, b: Array) -> Gradients:
        left, right = super().d_matmul(g, y, a, b)
        return (right, left) if a.ndim == b.ndim == 1 else (left, right)


@mutant(breaks=("gradient-of-a-matrix-product",))
class FirstOfTheBatch(Engine):
    """A factor shared by a batch of products gets the gradient of the first alone."""

    def d_matmul(self, g: Array, y: Array, a: Array, b: Array) -> Gradients:
        left, right = super().d_matmul(g, y, a, b)
        extra = 0 if right is None else right.ndim - b.ndim
        return left, right[(0,) * extra] if right is not None and extra > 0 else right


@mutant(breaks=("every-op-has-the-gradient-of-its-value",))
class MeanNotDivided(Engine):
    """The gradient of a mean is that of a sum."""

    def d_mean(self, g: Array, y: Array, x: Array, dim: Any, keepdim: bool) -> Gradients:
        return self.d_sum(g, y, x, dim, keepdim)


@mutant(breaks=("every-op-has-the-gradient-of-its-value",))
class MaximumSharesItsGradient(Engine):
    """The gradient of a maximum goes to every entry."""

    def d_amax(self, g: Array, y: Array, x: Array, dim: Any, keepdim: bool) -> Gradients:
        return self.d_mean(g, y, x, dim, keepdim)


@mutant(breaks=("a-bare-matrix-product-is-linear",))
class BiasInTheProduct(Engine):
    """A matrix product adds one."""

    def value(self, op: str, arguments: Sequence[Array], keywords: Mapping[str, Any]) -> Array:
        return super().value(op, arguments, keywords) + (op == "matmul")


@mutant(breaks=("a-product-of-factors-below-one-vanishes",))
class SmallProductsFlushed(Engine):
    """Products below a thousandth are taken for zero."""

    def value(self, op: str, arguments: Sequence[Array], keywords: Mapping[str, Any]) -> Array:
        result = super().value(op, arguments, keywords)
        return np.where(np.abs(result) < 1e-3, 0.0, result) if op == "mul" else result


# --- normalisation and selection ----------------------------------------------------------------------


@mutant(breaks=("gradient-of-softmax", "every-op-has-the-gradient-of-its-value"), known_as="G04")
class SoftmaxDiagonalOnly(Engine):
    """The gradient of softmax leaves out the sum term, as if probabilities did not share their total."""

    def d_softmax(self, g: Array, y: Array, x: Array, dim: int) -> Gradients:
        return (y * g,)


@mutant(breaks=("gradient-of-softmax",))
class SoftmaxGradientOverTheLastAxis(Engine):
    """The gradient of softmax sums over the last axis whatever `dim` is."""

    def d_softmax(self, g: Array, y: Array, x: Array, dim: int) -> Gradients:
        return super().d_softmax(g, y, x, -1)


@mutant(breaks=("gradient-of-softmax",))
class LogSoftmaxGradientOfOneTarget(Engine):
    """The gradient of log-softmax takes the incoming gradient's sum for one."""

    def d_log_softmax(self, g: Array, y: Array, x: Array, dim: int) -> Gradients:
        return (g - np.exp(y),)


@mutant(
    breaks=("gradient-of-layer-norm", "every-op-has-the-gradient-of-its-value"),
    known_as="G05",
)
class LayerNormVarianceHeldFixed(Engine):
    """The gradient of layer norm leaves out what goes through the variance."""

    def through_statistics(self, g: Array, normal: Array, scale: Array) -> Array:
        return scale * (g - g.mean(axis=-1, keepdims=True))


@mutant(breaks=("gradient-of-layer-norm", "a-bare-skip-path-passes-the-gradient-unchanged"))
class LayerNormMeanHeldFixed(Engine):
    """The gradient of layer norm leaves out what goes through the mean."""

    def through_statistics(self, g: Array, normal: Array, scale: Array) -> Array:
        return scale * (g - normal * (g * normal).mean(axis=-1, keepdims=True))


@mutant(breaks=("gradient-of-layer-norm",))
class LayerNormWeightForgotten(Engine):
    """The gradient of layer norm's input does not pass the weight."""

    def d_layer_norm(self, g: Array, y: Array, x: Array, weight: Array, bias: Array, eps: float) -> Gradients:
        _, d_weight, d_bias = super().d_layer_norm(g, y, x, weight, bias, eps)
        d_x, _, _ = super().d_layer_norm(g, y, x, np.ones_like(weight), bias, eps)
        return d_x, d_weight, d_bias


@mutant(breaks=("gradient-of-a-repeated-row-adds", "every-op-has-the-gradient-of-its-value"))
class RepeatedRowOverwritten(Engine):
    """A row that is looked up twice keeps the gradient of its last look-up."""

    def d_index_select(self, g: Array, y: Array, x: Array, index: Array, dim: int) -> Gradients:
        gradient = np.zeros_like(x)
        np.moveaxis(gradient, dim, 0)[index] = np.moveaxis(g, dim, 0)
        return gradient, None


@mutant(breaks=("every-op-has-the-gradient-of-its-value",))
class HiddenEntriesGetGradient(Engine):
    """masked_fill passes the gradient of the entries that it replaced."""

    def d_masked_fill(self, g: Array, y: Array, x: Array, mask: Array, value: float) -> Gradients:
        return g, None


@mutant(breaks=("every-op-has-the-gradient-of-its-value",))
class BothBranchesGetGradient(Engine):
    """where gives the gradient to both branches."""

    def d_where(self, g: Array, y: Array, condition: Array, a: Array, b: Array) -> Gradients:
        return None, g, g


@mutant(breaks=("every-op-has-the-gradient-of-its-value",))
class PermutedTwice(Engine):
    """The gradient of a permutation is permuted forward again instead of back."""

    def d_permute(self, g: Array, y: Array, x: Array, dims: Sequence[int]) -> Gradients:
        return (np.transpose(g, dims).reshape(x.shape),)


@mutant(breaks=("a-small-step-against-the-gradient-lowers-the-loss", "gradients-of-one-sigmoid-neuron"))
class GradientUphill(Engine):
    """Gradients have the wrong sign."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        return super().vjp(inputs, -np.asarray(cotangent))
