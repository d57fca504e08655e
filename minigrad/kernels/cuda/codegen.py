"""Kernels written as text: one pass over memory that computes several elementwise steps, whatever the layouts.

The twin of `minigrad.compiler.codegen` for the device. A thread computes four neighbouring elements (16-byte loads and
stores of float32) where the innermost dimension allows it, else one. Where an array is read or written, its text says:

    DENSE     at the element's number: row-major order
    SINGLE    at 0: one number for all
    Strided   by the strides of a group of arrays that step alike: along the innermost dimension by 0, by 1, or by any

Sizes and strides are arguments, so that one kernel serves all shapes with as many dimensions (after `layout.collapse`).
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from minigrad.kernels.cuda import intrinsics, language, words
from minigrad.kernels.cuda.expressions import NAMES
from minigrad.kernels.cuda.faults import FAULT
from minigrad.kernels.cuda.language import KERNELS, Kernel, cuda, kernel
from minigrad.kernels.cuda.layout import quotient
from minigrad.ops.expression import Value, lines
from minigrad.ops.registry import OPS

THREADS = 256
VECTOR = 4  # elements a thread computes where it can
DENSE, SINGLE = "dense", "single"


class Strided(NamedTuple):
    """An array of group `group`, stepped through along the innermost dimension by 0, 1, or "any"."""

    group: int
    inner: int | str


Access = str | Strided
Step = tuple[str, tuple[int, ...]]  # an op and its operands: below the number of inputs an input, else a step


class Operand(NamedTuple):
    """An input or output: its dtype's name and where its elements are; for an input that is a number, its text."""

    dtype: str
    access: Access
    number: str | None = None  # "-0.0" and "0.0" are equal as numbers


class Form(NamedTuple):
    """All that decides a kernel's text. body: steps ("cast", (i,)) are followed by a dtype: ("cast:float32", (i,))."""

    body: tuple[Step, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    kept: tuple[int, ...]
    dims: int
    width: int  # elements a thread computes


STORED = {"bool": "uint8", "float16": "uint16", "bfloat16": "uint16"}  # how a dtype lies in memory, where not as itself
_SCOPE: dict[str, Any] = {
    **NAMES,
    **{name: getattr(language, name) for name in language.TYPES},
    "cuda": cuda,
    "quotient": quotient,
    "load4": intrinsics.load4,
    "store4": intrinsics.store4,
    **{f"{way}_{half}": getattr(intrinsics, f"{way}_{half}") for way in ("widen", "narrow") for half in words.HALVES},
}


def pointer(dtype: str) -> str:
    """A dtype's pointer in a signature."""
    return STORED.get(dtype, dtype) + "*"


@cache
def made(form: Form) -> Kernel:
    """The kernel of a form."""
    groups = 1 + max(
        (o.access.group for o in (*form.inputs, *form.outputs) if isinstance(o.access, Strided)), default=-1
    )
    arrays = [(f"y{i}", o) for i, o in enumerate(form.outputs)]
    arrays += [(f"x{i}", o) for i, o in enumerate(form.inputs) if o.number is None]
    sizes = [f"{what}{d}" for d in range(1, form.dims) for what in ("n", "m", "s")]
    steps = [name for g in range(groups) for name in (f"o{g}", *(f"t{g}_{d}" for d in range(form.dims)))]
    refused = written(form).refused
    arguments = [name for name, _ in arrays] + ["n", *sizes, *steps, *map(_fault, refused)]
    types = [pointer(o.dtype) for _, o in arrays] + ["int32"] * (1 + len(sizes) + len(steps)) + [FAULT] * len(refused)
    text = "\n".join([*compute_text(form), "", "", *_loop(form, arguments, groups), ""])
    name = "fused_" + hashlib.sha256(f"{types} {text}".encode()).hexdigest()[:16]
    if name in KERNELS:
        return KERNELS[name]
    scope = executed(text, name)
    dtypes = [operand.dtype for operand in (*form.inputs, *form.outputs)]
    large = "math.sin" in text or "math.cos" in text  # libdevice reduces their huge arguments in double precision
    double = large or "float64" in dtypes or "float64" in text
    return kernel(", ".join(types), name=name, threads=THREADS, float64=double)(scope["fused"])


def executed(text: str, name: str) -> dict[str, Any]:
    """What a kernel's text defines; tracebacks show its lines."""
    file = f"<minigrad kernel {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope = {**_SCOPE, "__name__": __name__}
    exec(compile(text, file, "exec"), scope)
    return scope


def typed(body: Sequence[Step]) -> tuple[Step, ...]:
    """The steps of a fused node as this module takes them: its casts are to float32."""
    return tuple(("cast:float32" if name == "cast" else name, operands) for name, operands in body)


class Body(NamedTuple):
    """A body as text: constants, the lines of every step, each value's name; and which steps refuse some values."""

    constants: list[str]
    lines: list[str]
    names: list[str]
    refused: list[int]


def written(form: Form) -> Body:
    """Raises TypeError for a step that no kernel computes."""
    values = [
        Value(f"v{i}" if operand.number is None else f"C{i}", words.widened(operand.dtype))
        for i, operand in enumerate(form.inputs)
    ]
    constants = [f"C{i} = {_number(o)}" for i, o in enumerate(form.inputs) if o.number is not None]
    numbers: dict[str, str] = {}
    made: list[str] = []
    refused: list[int] = []

    def number(value: Any, dtype: str) -> str | None:
        """A constant; one with a fraction has a name (see `language`)."""
        text = words.number(value, dtype)
        return numbers.setdefault(text, f"K{len(numbers)}") if text is not None and "(" in text else text

    for step, (name, operands) in enumerate(form.body):
        op, _, target = name.partition(":")
        given = [values[i] for i in operands]
        found: tuple[list[str], str] | None
        if op == "cast":
            text, dtype = words.cast(given[0].dtype, words.widened(target)), words.widened(target)
            found = [f"v{len(values)} = {text.format(given[0].name)}"], dtype
        else:
            tree = OPS[op].tree
            found = None if tree is None else lines(tree, given, f"v{len(values)}", words.text, number)
        if found is None:
            raise TypeError(f"a kernel cannot compute {op} of {', '.join(value.dtype for value in given)}")
        if any(words.FAULT in line for line in found[0]):
            refused.append(step)
        made += [line.replace(words.FAULT, _fault(step)) for line in found[0]]
        values.append(Value(f"v{len(values)}", found[1]))
    constants += [f"{name} = {text}" for text, name in numbers.items()]
    return Body(constants, made, [value.name for value in values], refused)


def _fault(step: int) -> str:
    return f"words{step}, fault{step}"


def compute_text(form: Form) -> list[str]:
    """The function of one element: operands (and `FAULT` for every step that refuses some values) to kept values."""
    constants, steps, names, refused = written(form)
    parameters = [f"v{i}" for i, o in enumerate(form.inputs) if o.number is None]
    head = f"def compute({', '.join([*parameters, *map(_fault, refused)])}):"
    results = ", ".join(names[k] for k in form.kept)
    steps = ["    " + line for line in steps]
    return [*constants, *[""] * 2 * bool(constants), head, *steps, f"    return {results}"]


def _number(operand: Operand) -> str:
    """The constant's text: of a floating dtype, a number that is not a literal of Python's float64."""
    if operand.dtype in ("float32", "float64", *words.HALVES):
        return f'{"float64" if operand.dtype == "float64" else "float32"}("{operand.number}")'
    return str(operand.number)


def _loop(form: Form, arguments: Sequence[str], groups: int) -> list[str]:
    head = [f"def fused({', '.join(arguments)}):"]
    if form.width == 1:
        start = "    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x"
    else:
        start = f"    i = {form.width} * (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)"
    flat = form.dims == 1 and form.width > 1  # its end may be ragged; more dimensions are cut into whole vectors
    lines = [*head, start, f"    if i + {form.width} <= n:" if flat else "    if i < n:"]
    lines += ["        " + line for line in (*_places(form, groups, "i"), *_elements(form, form.width, "i"))]
    if flat:
        lines.append("    else:")
        lines.append("        for k in range(i, n):")
        lines += ["            " + line for line in (*_places(form, groups, "k"), *_elements(form, 1, "k"))]
    return lines


def _places(form: Form, groups: int, element: str) -> list[str]:
    """Coordinates of an element, and the place of every group there."""
    if not groups:
        return []
    lines, rest = [], element
    for d in range(form.dims - 1, 0, -1):
        lines += [f"q{d} = quotient({rest}, m{d}, s{d})", f"c{d} = {rest} - q{d} * n{d}"]
        rest = f"q{d}"
    lines.append(f"c0 = {rest}")
    for g in range(groups):
        lines.append(f"p{g} = o{g} + " + " + ".join(f"c{d} * t{g}_{d}" for d in range(form.dims)))
    return lines


def _elements(form: Form, width: int, first: str) -> list[str]:
    """Load `width` elements of every input, compute, store. `first` is the number of the first of them."""
    lines: list[str] = []
    values: list[list[str]] = []
    for i, operand in enumerate(form.inputs):
        if operand.number is not None:
            continue
        access, names = operand.access, [f"a{i}_{k}" for k in range(width)]
        if access == SINGLE or (isinstance(access, Strided) and access.inner == 0):
            at = f"p{access.group}" if isinstance(access, Strided) else "0"
            lines.append(f"{names[0]} = {_load(operand.dtype, f'x{i}[{at}]')}")
            names = names[:1] * width
        elif width > 1 and operand.dtype == "float32" and _consecutive(access):
            lines.append(f"{', '.join(names)} = load4(x{i}, {_base(access, first)})")
        else:
            lines += [
                f"{name} = {_load(operand.dtype, f'x{i}[{_at(access, k, form, first)}]')}"
                for k, name in enumerate(names)
            ]
        values.append(names)
    faults = [*map(_fault, written(form).refused)]
    for k in range(width):
        results = ", ".join(f"r{j}_{k}" for j in range(len(form.outputs)))
        lines.append(f"{results} = compute({', '.join([*(names[k] for names in values), *faults])})")
    for j, operand in enumerate(form.outputs):
        computed = [f"r{j}_{k}" for k in range(width)]
        if width > 1 and operand.dtype == "float32" and _consecutive(operand.access):
            lines.append(
                f"store4(y{j}, {_base(operand.access, first)}, {', '.join(f'float32({r})' for r in computed)})"
            )
        else:
            lines += [
                f"y{j}[{_at(operand.access, k, form, first)}] = {_stored(operand.dtype, r)}"
                for k, r in enumerate(computed)
            ]
    return lines


def _consecutive(access: Access) -> bool:
    return access == DENSE or (isinstance(access, Strided) and access.inner == 1)


def _base(access: Access, first: str) -> str:
    return f"p{access.group}" if isinstance(access, Strided) else first


def _at(access: Access, k: int, form: Form, first: str) -> str:
    """The place of a thread's k-th element."""
    base = _base(access, first)
    if k == 0:
        return base
    if isinstance(access, Strided) and access.inner == "any":
        return f"{base} + {k} * t{access.group}_{form.dims - 1}"
    return f"{base} + {k}"


def _load(dtype: str, element: str) -> str:
    if dtype == "bool":
        return f"{element} != 0"
    return f"widen_{dtype}({element})" if dtype in words.HALVES else element


def _stored(dtype: str, value: str) -> str:
    if dtype in words.HALVES:
        return f"narrow_{dtype}({value})"
    return f"{STORED.get(dtype, dtype)}({value})"
