"""`explain("softmax")`: what an op computes, how its derivative is found, and that it is right, on numbers."""

from __future__ import annotations

import difflib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import minigrad.optim  # noqa: F401  (its ops are ops, too)
from minigrad import kernels
from minigrad.autograd import grad
from minigrad.decomposition import run_decomposition
from minigrad.ops.derivation import Derivation
from minigrad.ops.registry import OPS, Array, Op
from minigrad.ops.rules import unbroadcast
from minigrad.study.composed import composed
from minigrad.study.derivations import derivation_of, symbols
from minigrad.study.history import history
from minigrad.study.notation import DEFINED, WORDS
from minigrad.study.typeset import can_show, typeset
from minigrad.tensor import Tensor
from minigrad.viz.format import meta, quantity, short


class Text(str):
    """Text that a prompt shows as it reads."""

    def __repr__(self) -> str:
        return str(self)


def explain(subject: str | Op | Tensor, of: Tensor | None = None, notation: bool | None = None) -> Text:
    """An op or a function (by name) or a tensor in words. For a tensor, `of` is the loss whose gradient is taken apart.

    A function that is no op, such as `mean`, is told by the ops that it is made of. notation: True for formulas as
    books print them (``∂L/∂x``), False for ASCII (``dL/dx``); without it, what standard output can show. Raises
    ValueError for a name that is neither, with the nearest names.
    """
    if isinstance(subject, Tensor):
        return Text(history(subject, of))
    if of is not None:
        raise TypeError("explain(op) takes no loss: `of` belongs to explain(tensor, of=loss)")
    if isinstance(subject, str) and subject not in OPS and (lines := composed(subject)):
        return Text("\n".join(lines))
    op = subject if isinstance(subject, Op) else find(subject)
    return Text("\n".join(_lines(op, typeset if (can_show() if notation is None else notation) else str)))


def find(name: str) -> Op:
    """The op called `name`. Raises ValueError with the nearest names."""
    if name not in OPS:
        near = difflib.get_close_matches(name, OPS, 4)
        hint = f": did you mean {', '.join(near)}?" if near else "; `minigrad explain` lists the ops that are here"
        raise ValueError(f"there is no op {name!r}, and no function of that name that is made of ops{hint}")
    return OPS[name]


# --- the worked example -------------------------------------------------------------------------------


@dataclass
class Worked:
    """An op on small numbers. `derived`, `ruled`, `numeric`: the gradient of each input that has one, from the
    derivation's last line, from the engine's rule, and from central differences of the values."""

    arrays: list[Array]
    attrs: dict[str, Any]
    outputs: list[Array]
    seeds: list[Array]
    derived: dict[str, Array]
    ruled: dict[str, Array]
    numeric: dict[str, Array]

    def error(self) -> float:
        """The largest difference among the three, as a part of 1 + |gradient|."""
        worst = 0.0
        for name, derived in self.derived.items():
            for other in (self.ruled[name], self.numeric[name]):
                worst = max(worst, float(np.max(np.abs(derived - other) / (1 + np.abs(derived)), initial=0.0)))
        return worst


def work(op: Op) -> Worked | None:
    """The worked example of `op`, in float64; None for an op that has no example (a user's composite)."""
    derivation = derivation_of(op)
    sample = _example(op, derivation)
    if sample is None:
        return None
    arrays, attrs = sample
    outputs = list(op.evaluate(arrays, attrs))
    if not derivation.results:
        return Worked(arrays, attrs, outputs, [], {}, {}, {})
    rng = np.random.default_rng(5)
    seeds = [np.asarray(np.round(rng.standard_normal(o.shape), 2)) for o in outputs[: len(outputs) - op.aux]]
    names = _names(op, arrays)
    wanted = [i for i, name in enumerate(names) if name in derivation.results or _rest(op, i) in derivation.results]
    derived = _last_lines(op, derivation, arrays, attrs, outputs, seeds)
    return Worked(
        arrays, attrs, outputs, seeds, {names[i]: unbroadcast(derived[names[i]], arrays[i].shape) for i in wanted},
        dict(zip([names[i] for i in wanted], _ruled(op, arrays, attrs, seeds, wanted), strict=True)),
        {names[i]: _numeric(op, arrays, attrs, seeds, i) for i in wanted},
    )  # fmt: skip


def _example(op: Op, derivation: Derivation) -> tuple[list[Array], dict[str, Any]] | None:
    """The derivation's own example; else the op's first sample of two dimensions, cut to 2 x 3 where that fits."""
    if derivation.example is not None:
        arrays, attrs = derivation.example()
        return [np.asarray(a) for a in arrays], attrs
    samples = [] if op.samples is None else list(op.samples(np.random.default_rng(0)))
    if not samples:
        return None
    given, attrs = next((s for s in samples if np.ndim(s[0][0]) == 2 and np.size(s[0][0])), samples[0])
    arrays = [np.asarray(a) for a in given]
    arrays = [np.asarray(np.round(a, 2)) if a.dtype == np.float64 else a for a in arrays]
    shapes = {a.shape for a in arrays}
    if len(shapes) == 1 and set(attrs) <= {"dim", "dims", "keepdim", "diagonal", "negative_slope", "descending"}:
        arrays = [a[:2, :3] if a.ndim == 2 else a for a in arrays]
    return arrays, dict(attrs)


def _names(op: Op, arrays: Sequence[Array]) -> list[str]:
    """A name for each input; those of a list are numbered."""
    return [*op.inputs, *(f"{op.rest}[{i}]" for i in range(len(arrays) - len(op.inputs)))]


def _rest(op: Op, i: int) -> str | None:
    return op.rest if i >= len(op.inputs) else None


def _numbered(symbol: str, values: Sequence[Array]) -> dict[str, Array]:
    return {symbol + (str(i) if i else ""): value for i, value in enumerate(values)}


def _last_lines(
    op: Op, derivation: Derivation, arrays: list[Array], attrs: dict[str, Any], outputs: list[Array], seeds: list[Array]
) -> dict[str, Array]:
    """The derivation's last lines, evaluated."""
    out, arriving = symbols(op)
    rest = arrays[len(op.inputs) :]
    names: dict[str, Any] = {**WORDS, **attrs, **dict(zip(op.inputs, arrays, strict=False)), **_numbered(out, outputs)}
    names.update(_numbered(arriving, seeds))
    if op.rest:
        names[op.rest] = rest

    def moved(*given: Array) -> Array:
        return op.evaluate([*given, *arrays[len(given) :]], attrs)[0]

    names["moved"] = moved
    for name, expression in derivation.let.items():
        names[name] = eval(expression, names)
    results: dict[str, Array] = {}
    for name, expression in derivation.results.items():
        value = eval(expression, names)
        results.update({f"{name}[{i}]": part for i, part in enumerate(value)} if name == op.rest else {name: value})
    return results


def _ruled(
    op: Op, arrays: list[Array], attrs: dict[str, Any], seeds: list[Array], wanted: list[int]
) -> list[Array]:  # fmt: skip
    tensors = [Tensor(a.copy()) for a in arrays]
    for i in wanted:
        tensors[i].requires_grad_()
    with kernels.use("reference"):
        results = op(*tensors, **attrs)
        outputs = list(results if isinstance(results, tuple) else (results,))[: len(seeds)]
        found = grad(outputs, [tensors[i] for i in wanted], [Tensor(s.copy()) for s in seeds])
    return [f.array for f in found]


def _numeric(
    op: Op, arrays: list[Array], attrs: dict[str, Any], seeds: list[Array], which: int, eps: float = 1e-6
) -> Array:  # fmt: skip
    """Central differences of <seeds, outputs>. A fused gradient is differentiated as the function that it stands for
    (its decomposition): the statistics that it is handed are functions of its other inputs."""
    given = [a.copy() for a in arrays]

    def value() -> float:
        composite = op.decomposition is not None
        outputs = run_decomposition(op, given, attrs) if composite else op.evaluate(given, attrs)
        return float(sum(np.sum(o * s) for o, s in zip(outputs, seeds, strict=False)))

    result = np.zeros(arrays[which].shape)
    for index in np.ndindex(result.shape):
        for sign in (1, -1):
            given[which][index] = arrays[which][index] + sign * eps
            result[index] += sign * value() / (2 * eps)
        given[which][index] = arrays[which][index]
    return result


# --- the text -----------------------------------------------------------------------------------------


def _lines(op: Op, write: Callable[[str], str]) -> list[str]:
    """write: how a line with a formula is written."""
    out, arriving = symbols(op)
    derivation = derivation_of(op)
    arguments = [*op.inputs, *([f"*{op.rest}"] if op.rest else []), *[f"{a}=" for a in op.attributes]]
    lines = [f"{op.name}({', '.join(arguments)})", *_block("formula", [write(f"{out} = {op.formula}")])]
    if op.source:
        lines += _block("source", [op.source])
    lines += _block("derivative", map(write, _derivation(op, derivation, arriving, out)))
    lines += _block("saved for the backward pass", map(write, _saved(op)))
    worked = work(op)
    lines += _block("cost", _cost(op, worked))
    lines += _block("runs as", _kernels(op))
    if worked is not None:
        lines += _block("example", _shown(op, worked, out, arriving, write))
    return lines


def _block(title: str, lines: Iterable[str]) -> list[str]:
    return ["", title, *[f"  {line}" if line else "" for line in lines]]


def _derivation(op: Op, derivation: Derivation, arriving: str, out: str) -> list[str]:
    if not derivation.steps:
        if op.decomposition is None or not op.differentiable:
            return ["none is recorded"]
        return ["that of its decomposition: the function is run again on the saved inputs, and differentiated op by op"]
    if not derivation.results:
        return list(derivation.steps)
    lines = [f"{arriving} = dL/d{out} arrives; dL = <{arriving}, d{out}>", *derivation.steps]
    lines += [f"where {name} = {value}" for name, value in derivation.let.items()]
    lines += _glossary(" ".join((*derivation.let.values(), *derivation.results.values())))
    width = max(len(name) for name in derivation.results)
    return [*lines, *[f"dL/d{name.ljust(width)} = {value}" for name, value in derivation.results.items()]]


def _glossary(expressions: str) -> list[str]:
    """What the words in last lines mean, for those that do not say it themselves."""
    used = dict.fromkeys(re.findall(r"[a-z_]+(?=\()", expressions))
    said = {"moved": "this op itself, on other values"}
    said.update({word: DEFINED[word].__doc__ for word in used if word in DEFINED})
    return [f"{word} means {said[word]}" for word in used if word in said]


def _saved(op: Op) -> list[str]:
    if not op.differentiable or not op.has_vjp:
        return ["nothing: it has no gradient"]
    if op.joint is None and not op.rules:
        return ["all inputs, to run the decomposition again"]
    readers: dict[str, list[str]] = {}
    joint = op.joint is not None
    for position, slots in enumerate(op.slots):
        for kind, what in slots:
            if kind == "saved":
                name = op.inputs[what] if what >= 0 else "the output" if what == ~0 else f"output {~what}"
            elif kind == "rest":
                name = f"*{op.rest}"
            else:
                continue
            readers.setdefault(name, []).append("" if joint else op.inputs[position])
    if not readers:
        return ["nothing: the rule needs only what arrives" + (" and shapes" if any(op.slots) else "")]
    lines = []
    for name, inputs in readers.items():
        who = "the gradients" if joint else " and ".join(f"dL/d{i}" for i in inputs)
        why = f"{who} read{'s' if not joint and len(inputs) == 1 else ''} it"
        extra = "; it exists anyway, so keeping it costs nothing more" if name == "the output" else ""
        extra = "; small, and dear to compute again" if name.startswith("output ") and op.aux else extra
        lines.append(f"{name}: {why}{extra}")
    return lines


def _cost(op: Op, worked: Worked | None) -> list[str]:
    if worked is None:
        return ["that of its decomposition"]
    metas = [(a.shape, np.dtype(np.float32) if a.dtype == np.float64 else a.dtype) for a in worked.arrays]
    outputs = [(o.shape, np.dtype(np.float32) if o.dtype == np.float64 else o.dtype) for o in worked.outputs]
    flops, moved = op.cost(metas, outputs, worked.attrs)
    shapes = ", ".join(meta(*m) for m in metas)
    if op.view:
        return ["none: a view of the same memory"]
    ratio = f", {flops / moved:.2g} FLOP for every byte" if moved and flops else ""
    return [f"{quantity(flops, 'FLOP')} and {quantity(moved, 'B')} read and written for {shapes}{ratio}"]


def _kernels(op: Op) -> list[str]:
    served: dict[tuple[str, str], list[str]] = {}
    for device in ("cpu", "cuda"):
        for dtype, spec in kernels.specs(op, device).items():
            served.setdefault((device, spec.replace(":", ".")), []).append(dtype)
    lines = [f"kernel on {device}, {', '.join(names)}: {spec}" for (device, spec), names in served.items()]
    function = op.reference or op.decomposition
    code = inspect.unwrap(function).__code__ if function is not None else None
    if code is not None:
        kind = "numpy reference" if op.reference else "decomposition"
        lines.append(f"{kind}: {_relative(code.co_filename)}:{code.co_firstlineno}")
    return lines


def _relative(path: str) -> str:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return os.path.relpath(path, root) if path.startswith(root) else path


def _shown(op: Op, worked: Worked, out: str, arriving: str, write: Callable[[str], str]) -> list[str]:
    names = _names(op, worked.arrays)
    given = dict(zip(names, worked.arrays, strict=True))
    given.update({name: np.asarray(short(value)) for name, value in worked.attrs.items()})
    lines = [line for name, array in given.items() for line in _matrix(name, array)]
    for name, array in _numbered(out, worked.outputs).items():
        lines += _matrix(name, array)
    if not worked.derived:
        return lines
    for name, array in _numbered(arriving, worked.seeds).items():
        lines += _matrix(name, array)
    lines.append("")
    for name, array in worked.derived.items():
        lines += _matrix(write(f"dL/d{name}"), array)
    lines += [
        "",
        "the last line, the engine's rule and central differences agree to "
        f"{max(worked.error(), np.finfo(np.float64).eps):.0e} (as a part of 1 + |gradient|)",
    ]
    return lines


def _matrix(name: str, array: Array) -> list[str]:
    """name = rows of numbers, aligned."""
    array = np.asarray(array)
    if array.dtype.kind in "US":
        return [f"{name} = {array}"]
    text = np.array2string(array, precision=4, suppress_small=True, floatmode="maxprec", max_line_width=100)
    head, *tail = text.splitlines()
    pad = " " * (len(name) + 3)
    return [f"{name} = {head}", *[pad + line for line in tail]]
