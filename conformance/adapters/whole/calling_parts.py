"""How the forward of a component is called: several inputs of numbers, in the shapes that its tables and maps suggest.

`part_calling(module)` proposes inputs by the names of forward's parameters and runs the module. Of the ways that run,
one in which the rows of a batch stay apart is taken first. So does `first_that_runs`, with ways that are known.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.adapters.inference.masks import ENCODINGS
from conformance.adapters.whole import names
from conformance.adapters.whole.calling import (
    LENGTHS,
    B,
    Calling,
    Input,
    Lookups,
    T,
    quiet_evaluation,
)
from conformance.adapters.whole.names import families_of
from conformance.adapters.whole.part_fillers import (
    COS,
    COUNT,
    SIN,
    UNIT,
    Maker,
    Turning,
    filler_of,
    head_width_in,
    heads_in,
    masks_hiding_nothing,
    opened,
    pair_filler,
    pairs_in,
    widths_in,
)
from conformance.adapters.whole.shapes import image_sizes, table_lengths
from conformance.adapters.whole.told import names_the_batch_first, used_as_masks
from conformance.adapters.whole.used_functions import text_of
from conformance.places import innermost_line

ATTEMPTS, SECONDS = 600, 6.0
"""So many ways to call are tried, for so long."""

_CONTEXT = re.compile(
    r"mem(ory)?|context|enc(oder)?(_.*)?|.*_?enc(oded)?(_.*)?|src|source|cross.*|kv|kv_input|media|e_out(puts?)?"
)
_KEYS = re.compile(r"k(eys?)?|v(al(ues?)?)?|(proj_|input_)?(key|value)s?(_layer|_states?)?|x[kv]|[kv]_?(in|x|input)")
_QUERIES = re.compile(r"q(uer(y|ies))?|(input_)?quer(y|ies)(_layer|_states?)?|xq|q_?(in|x|input)")
_HEAD_AXES = re.compile(r"attn|attention|attend|dot|rope|rotary|sdpa", re.IGNORECASE)


class PartCalling(Calling):
    """A calling whose answer has any shape: "(B, ...)", "(T, B, ...)", or "(...)" where it has no rows of a batch."""

    @property
    def main(self) -> Input:
        return self.inputs[0]

    @property
    def two_sided(self) -> bool:
        return False

    def answer(self, result: Any, inputs: Mapping[str, Tensor]) -> Tensor | None:
        floating = answers_in(result)
        if not self.answer_at < len(floating):
            return None
        tensor = floating[self.answer_at]
        return tensor.transpose(0, 1) if self.layout == "(T, B, ...)" else tensor


def answers_in(result: Any) -> list[Tensor]:
    """The results that hold numbers; complex ones as pairs."""
    found = [torch.view_as_real(t) if t.is_complex() else t for t in tensors_in(result)]
    return [t for t in found if t.is_floating_point() and t.ndim]


def part_calling(module: nn.Module) -> Calling:
    """How to call a component. Raises Unresolved, with what the first attempts raised, when no way was found."""
    finder = _PartFinder(module)
    with quiet_evaluation(module):
        return finder.find()


def first_that_runs(module: nn.Module, callings: Iterator[Calling]) -> Calling:
    """The first of these ways to call a component that runs, if possible one whose rows stay apart.

    Raises Unresolved where none runs.
    """
    with quiet_evaluation(module):
        return _PartFinder(module).first_that_runs(callings)


@dataclass(frozen=True)
class _Parameter:
    """A parameter of forward. kind: "x", "keys", "context", "ids", "mask", or "" for what `filler_of` fills."""

    name: str
    kind: str
    required: bool


class _PartFinder:
    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.errors: list[BaseException] = []
        self.parameters: list[_Parameter] = []
        self.pairs = pairs_in(text_of(type(module).forward))
        for p in inspect.signature(module.forward).parameters.values():
            if p.kind is p.VAR_KEYWORD or (p.kind is p.VAR_POSITIONAL and self.parameters):
                continue
            required = p.default is p.empty and p.kind is not p.VAR_POSITIONAL
            kind = "" if p.name in self.pairs else _kind(p.name, required)
            self.parameters.append(_Parameter(p.name, kind, required))
        data = [p.name for p in self.parameters if p.kind == "x"]
        masks = used_as_masks(module, data[1:])
        self.parameters = [replace(p, kind="mask") if p.name in masks else p for p in self.parameters]
        self.widths = widths_in(module)
        self.heads = heads_in(module)

    def find(self) -> Calling:
        return self.first_that_runs(self.callings())

    def first_that_runs(self, callings: Iterator[Calling]) -> Calling:
        start, mixed = time.monotonic(), None
        for calling in islice(callings, ATTEMPTS):
            for length in self.lengths(calling):
                if time.monotonic() - start > SECONDS:
                    break
                found, apart = self.attempt(calling, length)
                if found is not None and apart:
                    return self.said(found)
                mixed = mixed or found
                if found is not None:
                    break
        if mixed is not None:
            return self.said(mixed)
        name = type(self.module).__name__
        if not self.errors:
            raise Unresolved(f"{name}.forward takes no input that is known")
        error = self.errors[0]
        place = innermost_line(error)
        raise Unresolved(
            f"{name} cannot be called: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            f"{f' at {place}' if place else ''}; write a module without arguments that calls it"
        )

    def lengths(self, calling: Calling) -> list[int]:
        free = any(one.vocab or None in one.shape for one in calling.inputs)
        return list(dict.fromkeys([*LENGTHS, *(n for n in table_lengths(self.module) if n <= 64)])) if free else [T]

    def callings(self) -> Iterator[Calling]:
        """Ways to call, the likeliest first: token ids where it has a table, then numbers in shape after shape."""
        data = [p for p in self.parameters if p.kind in ("x", "keys", "context") and p.required]
        if not data:
            data = [p for p in self.parameters if p.kind in ("x", "keys", "context")][:1]
        for form in self.forms():
            given = {
                p.name: pair_filler(self.pairs[p.name], form) if p.name in self.pairs else filler_of(p.name, form)
                for p in self.parameters
                if p.required and p.kind == ""
            }
            yield from self.with_data(data, {name: make for name, make in given.items() if make is not None})

    def forms(self) -> Iterator[Turning]:
        """Forms of what turns queries and keys, where it takes that."""
        lower = [p.name.lower().strip("_") for p in self.parameters if p.required]
        yield Turning()
        if self.pairs:
            width = head_width_in(self.module)
            yield from (Turning(1 / self.heads, rows=rows, width=width) for rows in (False, True))
        if any(UNIT.fullmatch(n) or COS.fullmatch(n) for n in lower):
            yield from (
                Turning(1 / self.heads),
                Turning(1 / self.heads, pairs=True),
                Turning(0.5 / self.heads),
                Turning(0.5),
            )

    def with_data(self, data: list[_Parameter], fixed: Mapping[str, Maker]) -> Iterator[Calling]:
        required_masks = [p.name for p in self.parameters if p.kind == "mask" and p.required]
        masks = list(masks_hiding_nothing(required_masks))
        if any(isinstance(part, nn.Embedding) for part in self.module.modules()) and data:
            inputs = tuple(Input(_meaning(i, p), p.name, vocab=1) for i, p in enumerate(data[:1]))
            others = tuple(
                Input(_meaning(i, p), p.name, shape=(None, w)) for w in self.widths[:1] for i, p in enumerate(data) if i
            )
            for mask in masks:
                yield PartCalling((*inputs, *others), fixed=fixed, masks=mask)
        mixes = not families_of(type(self.module).__name__) <= {"norm", "feed-forward"}  # else one that mixes is wrong
        for shape in self.shapes():
            for contexts, mask in product(self.contexts(shape, data), masks):
                shapes = [contexts if p.kind in ("context", "x") and i else shape for i, p in enumerate(data)]
                inputs = tuple(
                    Input(_meaning(i, p), p.name, shape=s) for i, (p, s) in enumerate(zip(data, shapes, strict=True))
                )
                if inputs:
                    for first in self.orders() if shape[0] is None and len(shape) == 2 and mixes else (True,):
                        yield PartCalling(inputs, fixed=fixed, masks=mask, batch_first=first)

    def orders(self) -> tuple[bool, ...]:
        """Whether the batch stands first, the likelier first: a table that the first size cuts is one of places. Only
        so where a part names the batch first."""
        if names_the_batch_first(self.module):
            return (True,)
        cut = re.search(r"\[\s*:\s*\w+\.(size\(0\)|shape\[0\])", text_of(type(self.module).forward))
        return (False, True) if cut else (True, False)

    def contexts(self, shape: tuple[int | None, ...], data: list[_Parameter]) -> list[tuple[int | None, ...]]:
        """Shapes of the inputs beside the main one: its own, then other widths of what is attended to."""
        if not any(p.kind in ("context", "x") for p in data[1:]) or len(shape) != 2:
            return [shape]
        if all(p.kind == "x" for p in data[1:]):  # perhaps one vector for the whole sequence
            return [shape, *((width,) for width in self.widths[:6])]
        return [shape, *((None, width) for width in self.widths[:6] if width != shape[-1])]

    def shapes(self) -> Iterator[tuple[int | None, ...]]:
        """Shapes of the main input without the batch."""
        for part in self.module.modules():
            if isinstance(part, nn.Conv1d | nn.ConvTranspose1d):
                yield from ((part.in_channels, None), (None, part.in_channels))
                break
            if isinstance(part, nn.Conv2d | nn.ConvTranspose2d):
                yield from ((part.in_channels, size, size) for size in image_sizes(self.module, {}))
                break
            if isinstance(part, nn.Conv3d | nn.ConvTranspose3d):
                yield from ((part.in_channels, size, size, size) for size in (16, 8, 32))
                break
            if isinstance(part, nn.Linear):
                break
        per_head = [w // self.heads for w in self.widths if w % self.heads == 0]
        split = [
            shape
            for w in dict.fromkeys([*self.widths, *per_head])
            for shape in ((self.heads, None, w), (None, self.heads, w))
        ]
        flat = [(None, w) for w in self.widths]
        by_heads = bool(_HEAD_AXES.search(type(self.module).__name__)) and not any(
            True for _ in self.module.parameters()
        )
        takes_heads = by_heads and any(p.kind == "keys" for p in self.parameters)
        yield from [*split[:6], *flat, *split[6:]] if takes_heads else [*flat, *split]
        yield from ((size, size, w) for w in self.widths[:4] for size in (8, 7, 4, 14))
        if families_of(type(self.module).__name__) != {"attention"}:  # which needs several tokens
            yield from ((w,) for w in self.widths)
        yield from ((planes, size, size) for planes in (3, 1) for size in image_sizes(self.module, {}))

    def attempt(self, calling: Calling, length: int) -> tuple[Calling | None, bool]:
        """The calling completed by running it, None when it does not run; and whether its batch rows stay apart."""
        data = part_data(calling, length)
        try:
            with Lookups() as lookups:
                result = self.module(**calling.arguments(data))
            self.run_with_another_row(calling, data)
            vocabs = [lookups.vocab_of(data[one.meaning]) if one.vocab else 0 for one in calling.inputs]
            if any(not vocab and one.vocab for vocab, one in zip(vocabs, calling.inputs, strict=True)):
                return None, False
            only = None if length == T else length
            inputs = tuple(replace(one, vocab=v, length=only) for one, v in zip(calling.inputs, vocabs, strict=True))
            found = _laid(replace(calling, inputs=inputs), data, result)
            if found is None:
                return None, False
            found = self.with_open_masks(found, data)
            return found, self.rows_apart(found, data)
        except Exception as error:
            self.errors.append(error)
            return None, False

    def run_with_another_row(self, calling: Calling, data: Mapping[str, Tensor]) -> None:
        """Raises Unresolved where it does not run with one row more: what stands beside its rows, such as edges of a
        graph, belongs to so many; or a tensor of two rows is unpacked into two names."""
        try:
            self.module(**calling.arguments({name: torch.cat([x, x[:1]]) for name, x in data.items()}))
        except Exception as error:
            raise Unresolved(f"it takes {B} rows only: {' '.join(str(error).split())}") from error

    def with_open_masks(self, calling: Calling, data: dict[str, Tensor]) -> Calling:
        """The calling with its masks in the encoding that hides least: the one in which most parameters matter."""
        if not any(mask.encoding for mask in calling.masks):
            return calling
        offered = [replace(calling, masks=opened(calling.masks, encoding)) for encoding in ENCODINGS]
        return max(offered, key=lambda one: self.alive(one, data))

    def alive(self, calling: Calling, data: dict[str, Tensor]) -> int:
        """How many parameters and inputs the answer depends on, by its gradient; -1 where it does not run."""
        leaves = [p for p in self.module.parameters() if p.requires_grad and p.is_floating_point()]
        given = {name: x.clone().requires_grad_() if x.is_floating_point() else x for name, x in data.items()}
        leaves += [x for x in given.values() if x.requires_grad]
        try:
            with torch.enable_grad():
                out = calling(self.module, given)["out"]
                weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(5), dtype=out.dtype)
                gradients = torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True)
        except Exception:
            return -1
        if not bool(out.isfinite().all()):
            return -1
        sizes = [0.0 if g is None else float(g.abs().max()) for g in gradients]
        return sum(size > 1e-12 * max(sizes) for size in sizes)

    def rows_apart(self, calling: Calling, data: dict[str, Tensor]) -> bool:
        """Whether a change of the first row changes its answer and no other row's."""
        if calling.layout == "(...)":
            return False
        before = calling(self.module, data)["out"]
        changed = {name: x.clone() for name, x in data.items()}
        for one in calling.inputs:
            x = changed[one.meaning]
            x[0] = x[0].flip(0) + (0 if one.vocab else 1 + x[0])
        after = calling(self.module, changed)["out"]
        if before.shape != after.shape or not bool(before.isfinite().all()):
            return False
        apart = float((before[1:] - after[1:]).abs().max()) <= 1e-5 * float(before.abs().max() + 1e-9)
        return apart and not torch.equal(before[0], after[0])

    def said(self, calling: Calling) -> Calling:
        shown = []
        for one in calling.inputs:
            what = f"token ids of {one.vocab}" if one.vocab else f"numbers {one.shape}".replace("None", "T")
            shown.append(f"{one.parameter} = {what}")
        order = "(B, T, ...)" if calling.batch_first else "(T, B, ...)"
        masks = [f"{mask.parameter} = {mask.how}" for mask in calling.masks]
        evidence = "found by running it"
        call = Fact("call", ", ".join([*shown, *calling.fixed, *masks]), evidence)
        return replace(calling, facts=(call, Fact("layout", f"{order} in, {calling.layout} out", evidence)))


def _kind(name: str, required: bool) -> str:
    lower = name.lower().strip("_")
    if UNIT.fullmatch(lower) or COS.fullmatch(lower) or SIN.fullmatch(lower):
        return ""
    said = names.meaning_of(lower)
    if said in ("mask", "types", "positions", "offset", "cache", "lengths", "labels", "flag"):
        return "mask" if said == "mask" else "" if filler_of(name, Turning()) is not None else "x"
    if _KEYS.fullmatch(lower):
        return "keys"
    if _CONTEXT.fullmatch(lower):
        return "context"
    return "" if COUNT.fullmatch(lower) else "x"


def _meaning(at: int, parameter: _Parameter) -> str:
    """The name of an input among the data: "x" is the main one; what is attended to may be longer."""
    if at == 0:
        return "x"
    return f"memory_{parameter.name}" if parameter.kind in ("keys", "context") else f"x_{parameter.name}"


def part_data(calling: Calling, length: int) -> dict[str, Tensor]:
    """The first data of a component: noise, or small ids."""
    generator = torch.Generator().manual_seed(3)
    data: dict[str, Tensor] = {}
    for one in calling.inputs:
        if one.shape:
            shape = [length if axis is None else axis for axis in one.shape]
            data[one.meaning] = torch.randn(B, *shape, generator=generator, dtype=torch.get_default_dtype())
        else:
            data[one.meaning] = torch.arange(B * length).reshape(B, length) % 3 + 1
    return data


def _laid(calling: Calling, data: Mapping[str, Tensor], result: Any) -> Calling | None:
    """The calling with the layout of the first result that holds numbers."""
    main = next(iter(data.values()))
    found = answers_in(result)
    if not found or not bool(found[0].isfinite().all()):
        return None
    shape = found[0].shape
    if not calling.batch_first:
        layout = "(T, B, ...)" if len(shape) > 1 and shape[1] == len(main) else ""
    else:
        layout = "(B, ...)" if shape[0] == len(main) else "(...)"
    return replace(calling, layout=layout, outputs=shape[-1]) if layout else None
