"""Elementwise ops: arithmetic, comparison, exponentials, casts, where. Operands broadcast by torch's (numpy's) rule."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.ops import expression, rules
from minigrad.ops.derivation import derive
from minigrad.ops.expression import word
from minigrad.ops.registry import ANY_DTYPE, NAMES, Array, Op, Refusal, Sample, op, parameters
from minigrad.state import state
from minigrad.tensor import LITERAL, Tensor

_NONE: dict[str, Any] = {}  # attributes: to call the interpreter instead of the op saves 0.3 us
_LN2, _LN10 = math.log(2.0), math.log(10.0)
_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)

# --- operands: Python scalars are weak, dtypes meet by torch's rule ---------------------------------


def as_operand(value: Any, other: Tensor | None = None) -> Tensor:
    """A tensor, or a Python number or array beside `other` as one. Raises TypeError for anything else."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
        dtype = dtypes.of_scalar(value, None if other is None else other.array.dtype)
        return Tensor(dtypes.scalar(value, dtype), LITERAL)
    if isinstance(value, np.ndarray):
        dtypes.category(value.dtype)
        return Tensor(value)
    raise TypeError(f"expected a tensor or a number, got {type(value).__name__}: make it a tensor with mg.tensor(...)")


def pair(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Two operands of one dtype."""
    if not isinstance(a, Tensor):
        b = as_operand(b)
        a = as_operand(a, b)
    elif not isinstance(b, Tensor):
        b = as_operand(b, a)
    first, second = a.array.dtype, b.array.dtype
    if first is second:
        return a, b
    target = dtypes.promote(first, second, a.array.ndim == 0, b.array.ndim == 0)
    return cast(a, dtype=target), cast(b, dtype=target)


def floating(x: Any) -> Tensor:
    """An operand of a function that has only floating values: integers become float32."""
    x = as_operand(x)
    return x if dtypes.is_floating(x.array.dtype) else cast(x, dtype=dtypes.DEFAULT)


BOOL, INTEGER, FLOATING = 0, 1, 2  # categories of dtypes
NUMBERS = (INTEGER, FLOATING)


def _binary(
    primitive: Op, force_float: bool = False, accepts: Sequence[int] = (BOOL, INTEGER, FLOATING)
) -> Callable[[Any, Any], Tensor]:
    limited = len(accepts) < 3

    def call(a: Any, b: Any) -> Tensor:
        if not (isinstance(a, Tensor) and isinstance(b, Tensor) and a.array.dtype is b.array.dtype):
            a, b = pair(a, b)
        dtype = a.array.dtype
        if force_float and not dtypes.is_floating(dtype):
            a, b = floating(a), floating(b)
        elif limited and dtypes.category(dtype) not in accepts:
            raise TypeError(f"{primitive.name} is not defined for {dtypes.name(dtype)}: convert the operands first")
        try:
            return state.interpreter.apply(primitive, (a, b), _NONE)
        except ValueError:
            _check_broadcast(primitive.name, a, b)
            raise

    call.__name__ = call.__qualname__ = primitive.name
    call.__doc__ = f"{primitive.formula}, with broadcasting. Raises ValueError where shapes do not broadcast."
    return call


def _check_broadcast(name: str, a: Tensor, b: Tensor) -> None:
    try:
        rules.broadcast(a.array.shape, b.array.shape)
    except ValueError:
        raise ValueError(
            f"{name}: shapes {list(a.array.shape)} and {list(b.array.shape)} do not broadcast: from the last dimension "
            "backwards, sizes must be equal or 1"
        ) from None


def _unary(primitive: Op, take: Callable[[Any], Tensor] = floating) -> Callable[[Any], Tensor]:
    """take: makes a tensor of what the function is given, of a dtype that it is defined for; its words say so."""

    def call(x: Any) -> Tensor:
        return state.interpreter.apply(primitive, (take(x),), _NONE)

    call.__name__ = call.__qualname__ = primitive.name
    says = {floating: "integers become float32.", as_operand: "the dtype stays."}.get(take, take.__doc__)
    call.__doc__ = f"{primitive.formula}, elementwise; {says}"
    return call


def no_booleans(name: str, instead: str) -> Callable[[Any], Tensor]:
    """For `_unary`: an operand that is no boolean."""

    def take(x: Any) -> Tensor:
        """the dtype stays. Raises TypeError for booleans."""
        x = as_operand(x)
        if x.array.dtype.kind == "b":
            raise TypeError(f"{name} is not defined for bool: {instead}")
        return x

    return take


# --- samples ----------------------------------------------------------------------------------------

_PAIRS = (((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (2, 3)), ((0, 3), (3,)), ((1,), (2, 3)))


def two(draw: Callable[[np.random.Generator, tuple[int, ...]], Array]) -> Callable[..., Iterable[Sample]]:
    """Pairs of inputs over broadcasting, scalar and empty shapes."""

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for first, second in _PAIRS:
            yield (draw(rng, first), draw(rng, second)), {}

    return samples


def one(draw: Callable[[np.random.Generator, tuple[int, ...]], Array]) -> Callable[..., Iterable[Sample]]:
    """Single inputs of several ranks, one empty."""

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for shape in ((), (5,), (2, 3), (2, 0), (2, 3, 4)):
            yield (draw(rng, shape),), {}

    return samples


def anywhere(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(0.3, 3.0, shape)


def off_zero(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Away from the kinks and poles at zero."""
    return rng.uniform(0.3, 2.0, shape) * np.where(rng.random(shape) < 0.5, -1.0, 1.0)


# --- comparison and logic ---------------------------------------------------------------------------

_TRUTH = derive("the result is true or false: it has no rate of change, and no gradient flows through it")
_BITS = derive("inputs and result are booleans or integers: there is nothing to differentiate")


def _comparison(name: str, reference: Callable[[Array, Array], Array], formula: str) -> Callable[[Any, Any], Tensor]:
    return _binary(
        op(
            name,
            reference,
            shape=rules.boolean,
            flops=rules.per_element(1),
            samples=two(lambda rng, shape: rng.integers(-1, 2, shape).astype(np.float64)),
            formula=formula,
            differentiable=False,
            exact_dtype=True,
            elementwise=True,
            planned={"numba.compare": "int64"},
            derivation=_TRUTH,
        )
    )


eq = _comparison("eq", lambda a, b: np.equal(a, b), "a = b")
ne = _comparison("ne", lambda a, b: np.not_equal(a, b), "a != b")
lt = _comparison("lt", lambda a, b: np.less(a, b), "a < b")
le = _comparison("le", lambda a, b: np.less_equal(a, b), "a <= b")
gt = _comparison("gt", lambda a, b: np.greater(a, b), "a > b")
ge = _comparison("ge", lambda a, b: np.greater_equal(a, b), "a >= b")


def _bits(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.random(shape) < 0.5


def _bitwise(name: str, reference: Callable[[Array, Array], Array], formula: str) -> Callable[[Any, Any], Tensor]:
    return _binary(
        op(
            name,
            reference,
            shape=rules.elementwise,
            samples=two(_bits),
            formula=formula,
            differentiable=False,
            elementwise=True,
            derivation=_BITS,
        ),
        accepts=(BOOL, INTEGER),
    )


bitwise_and = _bitwise("bitwise_and", lambda a, b: np.bitwise_and(a, b), "a and b")
bitwise_or = _bitwise("bitwise_or", lambda a, b: np.bitwise_or(a, b), "a or b")
bitwise_xor = _bitwise("bitwise_xor", lambda a, b: np.bitwise_xor(a, b), "a xor b")
bitwise_not_op = op(
    "bitwise_not", lambda x: np.invert(x), shape=rules.like_first, samples=one(_bits), formula="not x",
    differentiable=False, elementwise=True, derivation=_BITS,
)  # fmt: skip


def bitwise_not(x: Tensor) -> Tensor:
    """Logical not of booleans, bitwise of integers. Raises TypeError for floating tensors."""
    x = as_operand(x)
    if dtypes.is_floating(x.array.dtype):
        raise TypeError(f"~ needs a bool or integer tensor, got {dtypes.name(x.array.dtype)}: compare with 0 first")
    return bitwise_not_op(x)


def _test(name: str, function: Callable[[Array], Array], formula: str) -> Callable[[Any], Tensor]:
    primitive = op(
        name, lambda x: function(x), shape=rules.boolean,
        samples=one(lambda rng, shape: np.where(rng.random(shape) < 0.5, np.nan, rng.standard_normal(shape))),
        formula=formula, differentiable=False, elementwise=True, derivation=_TRUTH,
    )  # fmt: skip
    call = _unary(primitive, as_operand)
    call.__doc__ = f"Elementwise: {formula}? (bool)"
    return call


isnan = _test("isnan", np.isnan, "x is NaN")
isinf = _test("isinf", np.isinf, "x is infinite")
isfinite = _test("isfinite", np.isfinite, "x is finite")


# --- arithmetic -------------------------------------------------------------------------------------


def _arithmetic(
    name: str, reference: Callable[..., Array], vjp: Any, formula: str, draw: Any = anywhere, **parts: Any
) -> Op:
    return op(
        name, reference, vjp, shape=rules.elementwise, flops=rules.per_element(1), samples=two(draw), formula=formula,
        **{"elementwise": "expression" not in parts, **parts},
    )  # fmt: skip


add_op = _arithmetic(
    "add", lambda a, b: np.add(a, b), {"a": lambda g: g, "b": lambda g: g}, "a + b",
    derivation=derive("y = a + b, so dy = da + db", "dL = <g, da> + <g, db>"),
)  # fmt: skip
sub_op = _arithmetic(
    "sub", lambda a, b: np.subtract(a, b), {"a": lambda g: g, "b": lambda g: -g}, "a - b",
    derivation=derive("y = a - b, so dy = da - db", "dL = <g, da> + <-g, db>"),
)  # fmt: skip
mul_op = _arithmetic(
    "mul", lambda a, b: np.multiply(a, b), {"a": lambda g, b: g * b, "b": lambda g, a: g * a}, "a b",
    derivation=derive("y = a b, so dy = b da + a db", "dL = <g b, da> + <g a, db>"),
)  # fmt: skip


div_op = _arithmetic(
    "div", lambda a, b: np.true_divide(a, b), {"a": lambda g, b: g / b, "b": lambda g, b, out: -g * out / b}, "a / b",
    off_zero, keeps_output=True,
    derivation=derive("y = a / b, so dy = da / b - a / b^2 db", "a / b is y: dy = (da - y db) / b"),
)  # fmt: skip


def _pow_base(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return g * b * a ** where(b == 0, 0.0, b - 1)  # no pole at a = 0 where b = 0


def _pow_exponent(g: Tensor, a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    return g * where((a == 0) & (b >= 0), 0.0, out * log(a))


FRACTION: Refusal = (
    ValueError,
    "pow: an integer to a negative integer power is a fraction: convert the base with .float()",
)


def _power(a: Array, b: Array) -> Array:
    if b.dtype.kind == "i" and (b < 0).any():
        error, sentence = FRACTION
        raise error(sentence)
    return np.power(a, b)


pow_op = _arithmetic(
    "pow", _power, {"a": _pow_base, "b": _pow_exponent}, "a^b", positive, refuses=FRACTION, expression=np.power,
    derivation=derive(
        "y = a^b = e^(b ln a), so dy = y (b / a da + ln a db)",
        "y b / a = b a^(b-1), which has no pole at a = 0 where b >= 1; where b = 0 it is taken as 0",
        "0^b stays 0 for every b > 0: there, and at 0^0, the rule gives b the slope 0 (y ln a would be NaN)",
        a="g * b * a ** (b - 1)", b="g * y * log(a)",
    ),
)  # fmt: skip


def _share(chosen: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Where `chosen` holds the gradient passes; at a tie each side gets half."""

    def rule(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return g * (cast(chosen(a, b), dtype=g.array.dtype) + 0.5 * cast(a == b, dtype=g.array.dtype))

    return rule


maximum_op = _arithmetic(
    "maximum", lambda a, b: np.maximum(a, b), {"a": _share(gt), "b": _share(lt)}, "max(a, b)",
    derivation=derive(
        "y = a where a > b, so there dy = da; elsewhere dy = db",
        "at a tie both one-sided derivatives are right: each side gets half",
    ),
)  # fmt: skip
minimum_op = _arithmetic(
    "minimum", lambda a, b: np.minimum(a, b), {"a": _share(lt), "b": _share(gt)}, "min(a, b)",
    derivation=derive(
        "y = a where a < b, so there dy = da; elsewhere dy = db",
        "at a tie both one-sided derivatives are right: each side gets half",
    ),
)  # fmt: skip


BY_ZERO: Refusal = (ZeroDivisionError, "integer division by zero")


def _whole(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def reference(a: Array, b: Array) -> Array:
        if b.dtype.kind in "iu" and not b.all():
            error, sentence = BY_ZERO
            raise error(sentence)
        return function(a, b)

    return reference


floor_divide_op = op(
    "floor_divide", _whole(np.floor_divide), shape=rules.elementwise, flops=rules.per_element(1), samples=two(off_zero),
    formula="floor(a / b)", differentiable=False, refuses=BY_ZERO, expression=np.floor_divide,
    derivation=derive("constant between its jumps: its derivative is 0 wherever it has one, so none is recorded"),
)  # fmt: skip
remainder_op = op(
    "remainder", _whole(np.remainder), {"a": lambda g: g, "b": lambda g, a, b: -g * (a // b)}, shape=rules.elementwise,
    flops=rules.per_element(1), samples=two(off_zero), formula="a - b floor(a / b)", refuses=BY_ZERO,
    expression=np.remainder,
    derivation=derive("y = a - b q, q = floor(a / b)", "q is constant between its jumps: dy = da - q db"),
)  # fmt: skip

add, sub, mul = _binary(add_op), _binary(sub_op, accepts=NUMBERS), _binary(mul_op)
true_divide, pow = _binary(div_op, force_float=True), _binary(pow_op, accepts=NUMBERS)
maximum, minimum = _binary(maximum_op), _binary(minimum_op)
floor_divide, remainder = _binary(floor_divide_op, accepts=NUMBERS), _binary(remainder_op, accepts=NUMBERS)


def div(a: Any, b: Any, *, rounding_mode: str | None = None) -> Tensor:
    """a / b, with broadcasting; rounded towards zero ("trunc") or down ("floor"), where the dtype of integers stays.

    Raises ValueError for another rounding mode, ZeroDivisionError for integers rounded after a division by zero.
    """
    if rounding_mode is None:
        return true_divide(a, b)
    if rounding_mode not in ("trunc", "floor"):
        raise ValueError(f"div: rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")
    a, b = pair(a, b)
    whole = floor_divide(a, b)
    if rounding_mode == "trunc":
        if dtypes.is_floating(whole.array.dtype):
            exact = true_divide(a, b)
            whole = where(exact < 0, ceil(exact), floor(exact))
        else:
            whole = whole + cast((whole < 0) & (remainder(a, b) != 0), dtype=whole.array.dtype)
    if not dtypes.is_floating(whole.array.dtype):
        return whole
    return where(whole == whole, whole, true_divide(a, b))  # its derivative is 0, not missing


# --- one operand ------------------------------------------------------------------------------------


def elementwise(
    name: str,
    reference: Callable[..., Array],
    vjp: Any,
    formula: str = "",
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array] = anywhere,
    *,
    flops: int = 0,
    names: str = "mg method",
    take: Callable[[Any], Tensor] = floating,
    **parts: Any,
) -> Callable[..., Tensor]:
    """Declare an op of single elements, and return the function that calls it, under the names that it has.

    reference: of one input or two, written with operators and numpy's elementwise functions (or with an `expression`
    beside it); the kernels of both devices are made of it. vjp: a function for each input, or the only one. The formula
    is the reference's text unless it is given; flops counts its words; draw makes sample inputs. names: where the
    function is found, of "mg", "method" and "functional"; the stand-in for torch has these names, too. take: what the
    only input goes through; without it inputs become floating. parts: others of `Op`.
    """
    element = parts.get("expression", reference)
    inputs, _, attributes = parameters(reference)
    text = expression.written(name, element, inputs, attributes)
    primitive = op(
        name, reference, vjp if isinstance(vjp, dict) else {inputs[0]: vjp}, shape=rules.elementwise,
        flops=rules.per_element(flops or expression.count(text)), samples=(one if len(inputs) == 1 else two)(draw),
        formula=formula or expression.shown(text, [*inputs, *attributes]),
        **{"elementwise": "expression" not in parts, **parts},
    )  # fmt: skip
    call = _unary(primitive, take) if len(inputs) == 1 else _binary(primitive, force_float=True)
    for room in names.split():
        if room == "method":
            setattr(Tensor, name, call)
        else:
            NAMES[room][name] = call
    return call


neg = elementwise(
    "neg", lambda x: np.negative(x), lambda g: -g, "-x", derivation=derive("y = -x, so dy = -dx"),
    take=no_booleans("neg", "use ~ for the logical not, or convert it first"),
)  # fmt: skip
abs = elementwise(
    "abs", lambda x: np.abs(x), lambda g, x: g * x.sign(), "|x|", off_zero, take=as_operand,
    derivation=derive("y = x where x > 0, -x where x < 0", "at 0 the slope is taken as 0"),
)  # fmt: skip


def _step(
    name: str,
    reference: Callable[[Array], Array],
    formula: str,
    expression: Callable[[Any], Any],
    names: str = "mg method",
) -> Callable[[Any], Tensor]:
    """A piecewise constant function; the dtype stays, integers are their own value."""
    call = elementwise(
        name, reference, lambda g: g * 0.0, formula, lambda rng, s: rng.integers(-3, 3, s) + rng.uniform(0.2, 0.4, s),
        names=names, expression=expression, take=as_operand,
        derivation=derive("constant between its jumps, so dy = 0", "the jumps go unseen: no way to train"),
    )  # fmt: skip
    call.__doc__ = f"{formula}; the dtype stays, the derivative is 0."
    return call


def _rounded(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(x) if x.dtype.kind == "f" else x.copy()


sign = _step(
    "sign",
    lambda x: np.subtract(x > 0, x < 0, dtype=np.int8).astype(x.dtype),
    "-1, 0 (also for NaN) or 1",
    np.sign,
)
floor = _step("floor", _rounded(np.floor), "the largest integer <= x", np.floor)
ceil = _step("ceil", _rounded(np.ceil), "the smallest integer >= x", np.ceil)
_nearest = _step("round", _rounded(np.round), "the nearest integer, ties to even", np.rint, "")


def round(x: Any, *, decimals: int = 0) -> Tensor:
    """x with so many decimals (negative: tens, hundreds), ties to even; the dtype stays, the derivative is 0.

    Raises TypeError for decimals of integers.
    """
    x = as_operand(x)
    decimals = rules.integer(decimals, "round: the number of decimals")
    if not decimals:
        return _nearest(x)
    if not dtypes.is_floating(x.array.dtype):
        raise TypeError(f"round: decimals are for floating tensors, this one is {dtypes.name(x.array.dtype)}")
    scale = 10.0 ** builtins.abs(decimals)
    return _nearest(x * scale) / scale if decimals > 0 else _nearest(x / scale) * scale


exp = elementwise(
    "exp", lambda x: np.exp(x), lambda g, out: g * out, "e^x", flops=10,
    derivation=derive("y = e^x is its own derivative: dy = y dx"),
)  # fmt: skip
expm1 = elementwise(
    "expm1", lambda x: np.expm1(x), lambda g, out: g * (out + 1), "e^x - 1", flops=10,
    derivation=derive("y = e^x - 1, dy = e^x dx, and e^x = y + 1"),
)  # fmt: skip
log = elementwise(
    "log", lambda x: np.log(x), lambda g, x: g / x, "ln x", positive, flops=10,
    derivation=derive("x = e^y, so dx = x dy and dy = dx / x"),
)  # fmt: skip
log1p = elementwise(
    "log1p", lambda x: np.log1p(x), lambda g, x: g / (1 + x), "ln(1 + x)", positive, flops=10,
    derivation=derive("with u = 1 + x: dy = du / u, du = dx"),
)  # fmt: skip
log2 = elementwise(
    "log2", lambda x: np.log2(x), lambda g, x: g / (x * _LN2), "log2 x", positive, flops=10,
    derivation=derive("y = ln x / ln 2", x="g / (x * log(2))"),
)  # fmt: skip
log10 = elementwise(
    "log10", lambda x: np.log10(x), lambda g, x: g / (x * _LN10), "log10 x", positive, flops=10,
    derivation=derive("y = ln x / ln 10", x="g / (x * log(10))"),
)  # fmt: skip
sqrt = elementwise(
    "sqrt", lambda x: np.sqrt(x), lambda g, out: g / (2 * out), "x^(1/2)", positive,
    derivation=derive("y^2 = x, so 2 y dy = dx"),
)  # fmt: skip
rsqrt = elementwise(
    "rsqrt", lambda x: 1 / np.sqrt(x), lambda g, out: g * (-0.5 * out * out * out), "x^(-1/2)", positive, flops=2,
    derivation=derive("y = x^(-1/2), dy = -x^(-3/2) / 2 dx, and x^(-3/2) = y^3", x="-g * y**3 / 2"),
)  # fmt: skip
reciprocal = elementwise(
    "reciprocal", lambda x: 1 / x, lambda g, out: -g * out * out, "1 / x", off_zero,
    derivation=derive("x y = 1, so x dy + y dx = 0", "dy = -y / x dx = -y^2 dx"),
)  # fmt: skip


def _counted(x: Any) -> Tensor:
    """the dtype stays, booleans become int64."""
    x = as_operand(x)
    return x if x.array.dtype.kind != "b" else cast(x, dtype=dtypes.int64)


square = elementwise(
    "square", lambda x: np.square(x), lambda g, x: g * (2 * x), "x^2", take=_counted,
    derivation=derive("y = x x, so dy = 2 x dx"),
)  # fmt: skip
sin = elementwise(
    "sin", lambda x: np.sin(x), lambda g, x: g * x.cos(), "sin x", flops=10, derivation=derive("dy = cos x dx")
)
cos = elementwise(
    "cos", lambda x: np.cos(x), lambda g, x: -g * sin(x), "cos x", flops=10, derivation=derive("dy = -sin x dx")
)
atan2 = elementwise(
    "atan2", lambda a, b: np.arctan2(a, b),
    {"a": lambda g, a, b: g * (b / (a * a + b * b)), "b": lambda g, a, b: -g * (a / (a * a + b * b))},
    "the angle of the point (b, a), in (-pi, pi]", off_zero, flops=20,
    on_host="an angle is asked for rarely, on small arrays",
    derivation=derive("tan y = a / b, so (1 + (a / b)^2) dy = da / b - a / b^2 db"),
)  # fmt: skip
tanh = elementwise(
    "tanh", lambda x: np.tanh(x), lambda g, out: g * (1 - out * out), "tanh x", flops=10,
    derivation=derive("y = sinh x / cosh x", "dy = (cosh^2 x - sinh^2 x) / cosh^2 x dx = (1 - y^2) dx"),
)  # fmt: skip


def _sigmoid(x: Array) -> Array:
    decay = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1 / (1 + decay), decay / (1 + decay)).astype(x.dtype, copy=False)


sigmoid = elementwise(
    "sigmoid", _sigmoid, lambda g, out: g * (out * (1 - out)), "1 / (1 + e^-x)", flops=12,
    expression=lambda x: 1 / (1 + np.exp(-x)),
    derivation=derive(
        "y = 1 / (1 + e^-x), dy = e^-x / (1 + e^-x)^2 dx", "e^-x / (1 + e^-x) = 1 - y, so dy = y (1 - y) dx"
    ),
)  # fmt: skip


@word
def _erf(x: Array) -> Array:
    flat = [math.erf(v) for v in np.asarray(x, np.float64).ravel().tolist()]
    return np.array(flat, np.float64).reshape(x.shape).astype(x.dtype)


def _erf_vjp(g: Tensor, x: Tensor) -> Tensor:
    return g * (_TWO_OVER_SQRT_PI * exp(-x * x))


erf = elementwise(
    "erf", lambda x: _erf(x), _erf_vjp, "2/sqrt(pi) integral_0^x e^(-t^2) dt", flops=20,
    derivation=derive(
        "the derivative of an integral is what stands under it: dy = 2 / sqrt(pi) e^(-x^2) dx",
        x="g * 2 / sqrt(pi) * exp(-x**2)",
    ),
)  # fmt: skip

relu = elementwise(
    "relu", lambda x: np.maximum(x, 0), lambda g, out: where(out <= 0, 0.0, g),  # NaN lets g pass, as in torch
    "max(x, 0)", off_zero, take=no_booleans("relu", "convert it first"),
    derivation=derive("y = x where x > 0, else 0: dy = dx or 0", "at 0 the slope is taken as 0"),
)  # fmt: skip


# --- casts, choice, limits --------------------------------------------------------------------------


def _cast(x: Array, *, dtype: np.dtype) -> Array:
    """Its elements lie as those of x do, in row-major order where these overlap or leave gaps."""
    if x.flags.c_contiguous:
        return x.astype(dtype)
    reach = 1 + builtins.sum((n - 1) * stride for n, stride in zip(x.shape, x.strides, strict=True)) // x.itemsize
    dense = 0 not in x.strides and reach == x.size
    return x.astype(dtype, order="K" if dense else "C")


cast_op = op(
    "cast", _cast, {"x": lambda g: g}, shape=lambda metas, *, dtype: [(metas[0][0], dtype)],
    samples=lambda rng: [((rng.standard_normal((2, 3)),), {"dtype": dtypes.float64})], formula="x in another dtype",
    exact_dtype=True, kernels={"cuda.elementwise": ANY_DTYPE},
    derivation=derive(
        "y = x but for rounding, so dy = dx", "the driver casts the gradient back to the dtype of x", x="g"
    ),
)  # fmt: skip


def cast(x: Tensor, *, dtype: np.dtype) -> Tensor:
    """`x` as `dtype`; itself if it has that dtype."""
    if x.array.dtype is dtype:
        return x
    dtype = dtypes.resolve(dtype)
    return x if x.array.dtype == dtype else cast_op(x, dtype=dtype)


def type_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` in the dtype of `other`."""
    return cast(x, dtype=as_operand(other).array.dtype)


where_op = op(
    "where", lambda condition, a, b: np.where(condition, a, b),
    {
        "a": lambda g, condition: where(condition, g, 0.0),
        "b": lambda g, condition: where(condition, 0.0, g),
    },
    shape=lambda metas, **_: [(np.broadcast_shapes(*[shape for shape, _ in metas]), metas[1][1])],
    flops=rules.per_element(1),
    samples=lambda rng: [
        ((rng.random(s) < 0.5, rng.standard_normal(t), rng.standard_normal(u)), {})
        for s, t, u in (((2, 3), (2, 3), (2, 3)), ((3,), (2, 1), ()), ((2, 0), (1,), (2, 0)))
    ],
    formula="a where the condition holds, else b", elementwise=True, exact_dtype=True,
    derivation=derive(
        "y = a where the condition holds, else b",
        "each element of y is one element of a or of b; the other has no part in it",
    ),
)  # fmt: skip


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """`a` where `condition` (bool) holds, else `b`; all broadcast.

    Raises TypeError for another kind of condition, ValueError where shapes do not broadcast.
    """
    condition = as_operand(condition)
    if condition.array.dtype != dtypes.bool_:
        raise TypeError(f"where: the condition must be bool, got {dtypes.name(condition.array.dtype)}")
    return _choose("where", condition, *pair(a, b))


def _choose(name: str, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Raises ValueError where shapes do not broadcast."""
    try:
        return where_op(condition, a, b)
    except ValueError:
        shapes = ", ".join(str(list(x.array.shape)) for x in (condition, a, b))
        raise ValueError(
            f"{name}: shapes {shapes} do not broadcast: from the last dimension backwards, sizes must be equal or 1"
        ) from None


def masked_fill(x: Tensor, mask: Any, value: Any) -> Tensor:
    """`value` where `mask` is True, else `x`; the dtype of `x` stays.

    Raises TypeError for a mask that is not bool, OverflowError for a value that this dtype does not hold.
    """
    x, mask = as_operand(x), as_operand(mask)
    if mask.array.dtype != dtypes.bool_:
        raise TypeError(f"masked_fill: the mask must be bool, got {dtypes.name(mask.array.dtype)}")
    if isinstance(value, Tensor):
        if value.array.ndim:
            raise ValueError(
                f"masked_fill: the value must be a number or a tensor without dimensions, got shape "
                f"{list(value.array.shape)}: use where(mask, value, x)"
            )
        filler = value
    else:
        value = rules.number(value, "masked_fill: the value")
        filler = Tensor(dtypes.scalar(value, x.array.dtype, exact=True), LITERAL)
    return _choose("masked_fill", mask, cast(filler, dtype=x.array.dtype), x)


def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """`x` limited to [min, max]; the gradient passes inside the limits, bounds included.

    NaN where an element of a bound is. Raises ValueError without a bound, and for a number that is NaN as a bound.
    """
    x = as_operand(x)
    if min is None and max is None:
        raise ValueError("clamp needs min, max, or both")
    if any(isinstance(bound, float) and math.isnan(bound) for bound in (min, max)):
        raise ValueError(f"clamp: NaN is no bound, got min {min} and max {max}")
    if min is not None:
        x = where(_beyond(x < min, min), min, x)
    return x if max is None else where(_beyond(x > max, max), max, x)


def _beyond(outside: Tensor, bound: Any) -> Tensor:
    """Where the bound is the result: where x is outside, and where a tensor's element is NaN."""
    return outside | isnan(bound) if isinstance(bound, Tensor) and dtypes.is_floating(bound.array.dtype) else outside
