"""What an op is, declared once: reference, derivative, shape rule, cost, formula, sample inputs.

    mul = op("mul", lambda a, b: a * b, {"a": lambda g, b: g * b, "b": lambda g, a: g * a}, formula="a b")

Calling an op on tensors computes and records it (`minigrad.interpreter`). Derivatives are written in Tensor ops, so a
backward pass is itself a graph. The *names of their parameters* say what has to be saved:

    g, g1, ...     gradient of output 0, 1, ... (g1... may be None)     out, out1, ...   that output
    <input>        that input                                        <input>_shape    its shape
    <attribute>    that keyword argument                             needs, shapes    per input: is its gradient
    <*inputs>      the list of them                                                   wanted; its shape
A derivative is a mapping from input to function (one formula an input), or one function that returns a gradient or
None for every input. Reducing a gradient over broadcast axes, and its dtype, are the driver's work, never a rule's.

A *composite* has a `decomposition`, a plain function of tensors; its derivative defaults to the decomposition's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.decomposition import run_decomposition
from minigrad.node import Meta
from minigrad.ops.derivation import Derivation
from minigrad.ops.expression import Symbol, ufunc_of, written
from minigrad.state import silently, state

Array = np.ndarray
Sample = tuple[Sequence[Array], dict[str, Any]]
Refusal = tuple[type[Exception], str]

# dtypes that kernels take
HALVES = "float16 bfloat16"
FLOATS = "float32 float16 bfloat16"
DOUBLES = "float32 float16 bfloat16 float64"
INTEGERS = "int8 int16 int32 int64 uint8"
NUMBERS = f"{DOUBLES} {INTEGERS}"
ANY_DTYPE = f"{NUMBERS} bool"

OPS: dict[str, Op] = {}
# functions that ops are called by, by where else they are found: `minigrad` ("mg") and `minigrad.functional`
NAMES: dict[str, dict[str, Callable[..., Any]]] = {"mg": {}, "functional": {}}


def parameters(function: Callable[..., Any]) -> tuple[tuple[str, ...], str | None, tuple[str, ...]]:
    """(positional, the one behind *, keyword-only) parameter names; `inspect` costs ten times as much at import."""
    code = function.__code__
    names, count, keywords = code.co_varnames, code.co_argcount, code.co_kwonlyargcount
    rest = names[count + keywords] if code.co_flags & 0x04 else None
    return names[:count], rest, names[count : count + keywords]


class Op:
    """A registered op. See the module's docstring for the meaning of the parts.

    view          its output may share its input's memory
    aux           how many trailing outputs carry no gradient (statistics kept for the derivative)
    differentiable  False for comparisons, indices and the like
    shape_rule    (metas of inputs, attrs) -> metas of outputs; used while tracing only
    flops         (metas of inputs, metas of outputs, attrs) -> floating-point operations
    wide          how many trailing outputs stay float32 for half types: statistics that a half would spoil
    samples       rng -> inputs and attributes on which the op is tested
    keeps_output  its output may be changed in place: what its derivative needs of it is copied first
    row_major     its results lie in row-major order, whatever the strides of its inputs
    moves         its result is on the device that its attribute `device` names
    joins         of a view: (shape of the input, attrs) -> must strides say whether the result is a view or a copy?
    tree          of an elementwise op, what it does with one element (`minigrad.ops.expression`): the kernels of both
                  devices are made of it. `elementwise`: it is written as the reference; else `expression`, a function
                  of the same inputs, where the reference looks at dtypes or keeps numpy from overflowing
    refuses       (error, sentence) for values that it has no result for: its reference raises it, the kernels of a
                  device note it, and it is raised where the host waits next
    kernels       module of `minigrad.kernels` -> the dtypes of the first input for which its function with the op's
                  name computes it; `planned`: in compiled plans only. An elementwise op needs none on the device
    derivation    how its derivative is found, for `explain` (`minigrad.ops.derivation`)
    on_host       why there is no kernel for the device
    ufunc         the function of numpy that the reference is: a plan lets it write into memory that is there
    any_strides   its kernels read and write arrays of any strides; `same_place`: they read and write each element at
                  the same place, so that a result may lie where an input did
    """

    def __init__(
        self,
        name: str,
        reference: Callable[..., Any] | None,
        vjp: Mapping[str, Callable[..., Any]] | Callable[..., Any] | None = None,
        *,
        shape: Callable[..., Sequence[Meta]] | None = None,
        flops: Callable[..., int] | None = None,
        samples: Callable[[np.random.Generator], Iterable[Sample]] | None = None,
        formula: str = "",
        source: str = "",
        view: bool = False,
        aux: int = 0,
        wide: int = 0,
        differentiable: bool = True,
        decomposition: Callable[..., Any] | None = None,
        exact_dtype: bool = False,
        keeps_output: bool = False,
        row_major: bool = False,
        moves: bool = False,
        joins: Callable[..., bool] | None = None,
        refuses: Refusal | None = None,
        kernels: Mapping[str, str] | None = None,
        planned: Mapping[str, str] | None = None,
        on_host: str = "",
        ufunc: np.ufunc | None = None,
        any_strides: bool = False,
        same_place: bool = False,
        derivation: Derivation | None = None,
        elementwise: bool = False,
        expression: Callable[..., Any] | None = None,
    ) -> None:
        self.name = name
        self.reference = reference
        self.shape_rule = shape
        self.flops = flops
        self.samples = samples
        self.formula = formula
        self.source = source
        self.view = view
        self.aux = aux
        self.wide = wide
        self.differentiable = differentiable
        self.decomposition = decomposition
        self.exact_dtype = exact_dtype  # moves or casts data: no float32 detour for half types
        self.keeps_output = keeps_output
        self.row_major = row_major
        self.moves = moves
        self.joins = joins
        self.refuses = refuses
        self.on_host = on_host
        self.derivation = derivation
        self.any_strides = any_strides
        self.same_place = same_place
        self.kernels = _by_dtype(name, kernels or {})
        self.planned = _by_dtype(name, planned or {})
        self.fast_on_cpu = any(device == "cpu" for device, _ in self.kernels)
        function = reference or decomposition
        assert function is not None, f"op {name!r} has neither reference nor decomposition"
        self.inputs, self.rest, self.attributes = parameters(function)
        element = function if elementwise else expression
        self.tree: Symbol | None = None if element is None else written(name, element, self.inputs, self.attributes)
        self.ufunc = ufunc or (ufunc_of(self.tree, len(self.inputs)) if elementwise else None)
        self.set_vjp(vjp)

    def set_vjp(self, vjp: Mapping[str, Callable[..., Any]] | Callable[..., Any] | None) -> None:
        """Install a derivative and read from its parameter names what it uses."""
        self.joint: Callable[..., Any] | None = vjp if callable(vjp) else None
        self.rules: tuple[Callable[..., Any] | None, ...] = ()
        self.slots: tuple[tuple[tuple[str, Any], ...], ...] = ()
        if self.joint is not None:
            self.slots = (self._slots(self.joint),)
        elif vjp is not None:
            assert not callable(vjp)
            unknown = set(vjp) - set(self.inputs)
            assert not unknown, f"op {self.name!r}: derivatives of {unknown}, but inputs are {self.inputs}"
            self.rules = tuple(vjp.get(name) for name in self.inputs)
            self.slots = tuple(self._slots(rule) if rule else () for rule in self.rules)
        self.saves: dict[tuple[bool, ...], tuple[int, ...]] = {}

    def _slots(self, function: Callable[..., Any]) -> tuple[tuple[str, Any], ...]:
        slots: list[tuple[str, Any]] = []
        positional, rest, keywords = parameters(function)
        for name in (*positional, *([rest] if rest else []), *keywords):
            if name == "g" or (name[0] == "g" and name[1:].isdigit()):
                slots.append(("grad", int(name[1:] or 0)))
            elif name == "out" or (name.startswith("out") and name[3:].isdigit()):
                slots.append(("saved", ~int(name[3:] or 0)))
            elif name in self.inputs:
                slots.append(("saved", self.inputs.index(name)))
            elif name.endswith("_shape") and name[:-6] in self.inputs:
                slots.append(("shape", self.inputs.index(name[:-6])))
            elif name in ("needs", "shapes", "attrs"):
                slots.append((name, None))
            elif name == self.rest:
                slots.append(("rest", None))
            elif name in self.attributes:
                slots.append(("attr", name))
            else:
                raise TypeError(f"op {self.name!r}: its derivative asks for {name!r}, which it does not have")
        return tuple(slots)

    @property
    def has_vjp(self) -> bool:
        return self.joint is not None or bool(self.rules) or self.decomposition is not None

    def saves_for(self, needs: tuple[bool, ...]) -> tuple[int, ...]:
        """What to save when the inputs `needs` want gradients: i for an input, ~i for an output."""
        found = self.saves.get(needs)
        if found is None:
            if self.joint is not None:
                used = self.slots
            elif self.rules:
                used = tuple(slots for slots, need in zip(self.slots, needs, strict=True) if need)
            else:
                return tuple(range(len(needs)))  # the decomposition is run again from all inputs
            wanted = dict.fromkeys(what for slots in used for kind, what in slots if kind == "saved")
            if any(kind == "rest" for slots in used for kind, _ in slots):
                wanted.update(dict.fromkeys(range(len(self.inputs), len(needs))))
            found = tuple(wanted)
            self.saves[needs] = found
        return found

    def evaluate(self, arrays: Sequence[Array], attrs: Mapping[str, Any]) -> tuple[Array, ...]:
        """The reference on arrays. Half types are computed in float32 and rounded once."""
        half = None
        for array in arrays:
            if array.dtype is not dtypes.float32 and dtypes.is_half(array.dtype) and not self.exact_dtype:
                half = array.dtype
        if half is not None:
            arrays = [a.astype(dtypes.float32) if dtypes.is_half(a.dtype) else a for a in arrays]
        if self.reference is None:
            result = run_decomposition(self, arrays, attrs)
        elif self.view or state.quiet:
            result = self.reference(*arrays, **attrs)
        else:
            result = silently(self.reference, *arrays, **attrs)
        if half is None and type(result) is np.ndarray:
            return (result,)
        outputs = result if type(result) is tuple else (result,)
        if half is None:
            return tuple(o if type(o) is np.ndarray else np.asarray(o) for o in outputs)
        narrow = len(outputs) - self.wide
        return tuple(
            np.asarray(o, half) if i < narrow and np.asarray(o).dtype == dtypes.float32 else np.asarray(o)
            for i, o in enumerate(outputs)
        )

    def output_metas(self, metas: Sequence[Meta], attrs: Mapping[str, Any]) -> tuple[Meta, ...]:
        """Shapes and dtypes of the outputs without computing them."""
        if self.shape_rule is None:
            raise TypeError(f"op {self.name!r} has no shape rule and cannot be traced without values")
        return tuple(self.shape_rule(metas, **attrs))

    def cost(self, metas: Sequence[Meta], outputs: Sequence[Meta], attrs: Mapping[str, Any]) -> tuple[int, int]:
        """(FLOPs, bytes read and written)."""
        moved = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in (*metas, *outputs))
        return (self.flops(metas, outputs, **attrs) if self.flops else 0), (0 if self.view else moved)

    def __call__(self, *tensors: Any, **attrs: Any) -> Any:
        return state.interpreter.apply(self, tensors, attrs)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


def _by_dtype(op: str, modules: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """(device, dtype) -> "module:function"."""
    return {
        ("cuda" if module.startswith("cuda.") else "cpu", dtype): f"minigrad.kernels.{module}:{op}"
        for module, names in modules.items()
        for dtype in names.split()
    }


def op(name: str, reference: Callable[..., Any] | None, vjp: Any = None, **parts: Any) -> Op:
    """Declare and register an op. Raises ValueError when the name is taken."""
    if name in OPS:
        raise ValueError(f"op {name!r} is declared twice")
    OPS[name] = Op(name, reference, vjp, **parts)
    return OPS[name]
