"""Are the rotations of an attention core rotations: do they keep lengths, and leave the scores to the distance alone?

The same content is put into every token, behind the projections and norms, and what becomes of it at each position is
looked at. So it does not matter how a rotation is written: halves, neighbours, complex numbers, a part of the vector.
"""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.adapters.whole.attention import AttentionCore, Side
from conformance.adapters.whole.attention_positions import turning_factors
from conformance.adapters.whole.class_source import source_of
from conformance.adapters.whole.configs import settings_of
from conformance.adapters.whole.findings import Finding, numbers
from conformance.adapters.whole.flow import base_name, carriers, carry, moves
from conformance.adapters.whole.record import Op, Place, Record, Value

_SUMS = {"add", "sub", "neg", "clone", "copy", "rsub", "written", "complex"}
_CLOSE = 2e-3
"""Tables of sines are made in float32, and their angles may be large."""
_BASE = re.compile(r"(?i)(rope|rotary)?_?(theta|base)|(rope|rotary)_\w*(theta|base)")
_STRETCHES = re.compile(r"(?i)rope_?scal|ntk|yarn|scaling_?factor|interpol|rotary_(scal|dim|pct|perc)|partial")
_TURNS = 1e-9
"""A pair that turns by less a position stands still: the slowest of any base in use turns by more."""
_FEWEST, _MOST = 20.0, 1e10
"""Between these lies every base of a rotation that is in use: 100 in vision models, 5e7 for long texts."""


@dataclass(frozen=True)
class Turned:
    """What contents become at each position. vectors: (K, N, T, d) for K contents. learned: by a parameter."""

    vectors: Tensor
    learned: bool

    @property
    def stretch(self) -> Tensor:
        """(K, N, T): the length of each vector beside that at the first position."""
        lengths = self.vectors.norm(dim=-1)
        return lengths / lengths[..., :1].clamp(min=1e-30)

    @property
    def stands_still(self) -> bool:
        return bool((self.vectors - self.vectors[:, :, :1]).abs().max() < 1e-6 * self.vectors.abs().max())


def turns(core: AttentionCore) -> Iterator[Finding]:
    """Self-attention only, where constants that begin as a cosine and a sine multiply queries or keys."""
    query, key = core.sides["query"], core.sides["key"]
    if not query.projections or [p.base for p in query.projections] != [p.base for p in key.projections]:
        return
    factors = [(op, factor) for side in (query, key) for op, factor in turning_factors(core, side)]
    steps, length = core.raw.shape[-2] if core.folded is None else core.folded.shape[-1], core.raw.shape[-1]
    if steps != length:  # a window of queries: where they stand among the keys is not known
        return
    if not _begin_unturned([f.select(f.shape.index(length), 0) for _, f in factors]):
        return
    first, second = _turned(core, query, core.flipped), _turned(core, key, not core.flipped)
    if first and second and first.stands_still and second.stands_still:  # the norms come behind the rotation
        first, second = _turned(core, query, core.flipped, True), _turned(core, key, not core.flipped, True)
        if (first and first.learned) or (second and second.learned):
            return
    if first is None or second is None or len(first.vectors[0]) != len(second.vectors[0]):
        return
    if first.stands_still or second.stands_still:
        return  # `rotation` says so
    place = factors[-1][0].place
    scores = first.vectors @ second.vectors.mT
    stretches = [side.stretch.mean(0) for side in (first, second)]
    even = scores / (stretches[0].unsqueeze(-1) * stretches[1].unsqueeze(-2)).clamp(min=1e-30)
    if _by_distance(scores) or _by_distance(even):
        yield from _angles(core, first)
    elif any(float((side.stretch.amax(0) - side.stretch.amin(0)).max()) > _CLOSE for side in (first, second)):
        yield Finding(
            "attention-rotation-keeps-lengths",
            "The rotation of queries and keys changes their lengths: it is no rotation. A sign, a half or an angle is "
            "not that of its partner.",
            place,
            "(a cos - b sin, a sin + b cos): lengths times 1",
            "lengths times " + numbers(torch.stack([first.stretch, second.stretch])),
            "Turn each pair as (a cos - b sin, a sin + b cos), with one angle for both.",
            paths=(core.path,),
        )
    elif _reads_tokens(core.record):
        yield Finding(
            "attention-rotated-scores-depend-on-distance",
            "The score of a rotated query and key depends on where they stand, not on their distance alone: they are "
            "turned by different angles, or in different directions.",
            factors[-1][0].caller or place,
            "one score for all pairs of one distance",
            "for neighbours " + numbers(scores[0, 0].diagonal(-1)),
            "Turn queries and keys by the same angles, in the same direction.",
            paths=(core.path,),
        )


def _begin_unturned(firsts: list[Tensor]) -> bool:
    """Is there a cosine and a sine among the factors of the first position, 1 and 0, or a turn of a complex number?"""
    real = [factor for factor in firsts if not factor.is_complex()]
    unit = any(float(f.max()) > 0 and bool((f - f.reshape(-1)[0]).abs().max() < 1e-6) for f in real)
    return len(real) < len(firsts) or (unit and any(bool(f.abs().max() < 1e-6) for f in real))


def _turned(core: AttentionCore, side: Side, transposed: bool, norms: bool = False) -> Turned | None:
    """What becomes of equal tokens; None where they cannot be made equal, or where positions are added."""
    record = core.record
    starts = _starts(record, side.value, norms)
    bases = {projection.base for projection in side.projections}
    labels = {projection.value: projection.tokens for projection in side.projections}
    orders = {}
    for start in starts:
        tokens = carry(record, labels, start)
        if len(bases) != 1 or tokens is None or bool((tokens < 0).any()):
            return None
        flat = tokens.reshape(-1)
        count = len(flat.unique())
        if flat.numel() % count or len(set(flat.unique(return_counts=True)[1].tolist())) > 1:
            return None
        orders[start] = flat.argsort(stable=True).reshape(count, -1)

    def result(draw: torch.Generator | None) -> Tensor:
        given = {}
        for start, order in orders.items():
            made = torch.zeros(order.shape[1], dtype=start.data.dtype)
            if draw is not None:
                made = torch.randn(order.shape[1], generator=draw, dtype=torch.float64).to(start.data.dtype)
            numbers = torch.empty(start.data.numel(), dtype=start.data.dtype)
            numbers[order] = made.expand(order.shape)
            given[start] = numbers.reshape(start.shape)
        [vectors] = record.replay([side.value], given)
        vectors = vectors.double().transpose(-1, -2) if transposed else vectors.double()
        return core.of_heads(vectors if vectors.dim() == 3 else vectors.unsqueeze(0), side)

    none = result(None)
    if bool((none - none[:, :1]).abs().max() > 1e-9):
        return None
    draw = torch.Generator().manual_seed(0)
    width = side.vectors.shape[-1]
    count = width + 2 if width <= 128 else 3
    learned = any(value.kind == "parameter" for value in record.before([side.value], beyond=starts))
    return Turned(torch.stack([result(draw) - none for _ in range(count)]), learned)


def _starts(record: Record, value: Value, norms: bool) -> list[Value]:
    """The values of which `value` is a linear function with constant coefficients, as near to it as can be; with
    `norms`, also a function of their lengths."""
    found: list[Value] = []
    seen, stack = {value}, [value]
    while stack:
        here = stack.pop()
        op = record.producer(here)
        behind = _behind(record, op, norms) if op is not None else []
        if not behind:
            found.append(here)
        for given in behind:
            if given not in seen:
                seen.add(given)
                stack.append(given)
    return found


def _behind(record: Record, op: Op, norms: bool) -> list[Value]:
    """The inputs that an operation carries on by constant factors, or by one factor a vector; none for others."""
    behind = [given for given in carriers(op) if record.computed(given)]
    name = base_name(op)
    if norms and name in ("mul", "div") and len(behind) == 2:
        behind = behind[:1] if _is_even(behind[1]) else behind[1:] if _is_even(behind[0]) and name == "mul" else []
    elif norms and op.name in ("native_layer_norm", "_fused_rms_norm"):
        return behind
    linear = moves(op) or name in _SUMS or (name == "mul" and len(behind) == 1)
    return behind if linear or (name == "div" and behind == [op.inputs[0]]) else []


def _is_even(value: Value) -> bool:
    """Is it one number for each vector?"""
    return bool((value.data == value.data[..., :1]).all())


def _by_distance(scores: Tensor) -> bool:
    """(K, N, T, T): is every diagonal one number?"""
    length, scale = scores.shape[-1], float(scores.abs().max())
    if scores.shape[-2] != length:
        return True
    diagonals = (scores.diagonal(offset, -2, -1) for offset in range(1 - length, length))
    return all(bool((line - line[..., :1]).abs().max() <= _CLOSE * scale) for line in diagonals)


def _reads_tokens(record: Record) -> bool:
    """Does the model read rows of token ids, so that a position is one number?"""
    outer = [value for call in record.calls if call.parent < 0 for value in call.given]
    return any(not value.data.is_floating_point() and value.data.dim() == 2 for value in outer)


def _angles(core: AttentionCore, turned: Turned) -> Iterator[Finding]:
    """By which angles does a rotation turn from one position to the next?"""
    record = core.record
    first, second = turned.vectors[:, 0, 0], turned.vectors[:, 0, 1]
    if turned.learned or len(first) <= first.shape[-1] or not _reads_tokens(record):
        return
    found = torch.linalg.lstsq(first, second).solution
    angles = torch.linalg.eigvals(found).angle().abs().sort(descending=True).values[::2]
    angles = angles[angles > _TURNS]
    wrong = ""
    if len(angles) and float(angles[0]) > 1 + _CLOSE:
        wrong = "The fastest pair turns by more than one radian from a position to the next"
    elif len(angles) > 1:
        step = -float(angles.log().diff().mean())
        even = bool((angles.log().diff() + step).abs().max() < 1e-2 * step)
        # pairs that stand still may have been left out on purpose: they count where they make the base larger
        least, most = math.exp(step * len(angles)), math.exp(min(step * (first.shape[-1] // 2), 700.0))
        said = _said_bases(record)
        if even and (least > _MOST or most < _FEWEST):
            wrong = f"The angles fall as those of base {least if least > _MOST else most:.4g}"
        elif even and said and not any(0.9 * least < base < 1.1 * most for base in said):
            wrong = f"The angles fall as those of base {most:.4g}, and the model's own base is {said[0]:.6g}"
    if wrong:
        yield Finding(
            "attention-rotation-angles-are-those-of-a-base",
            f"{wrong}: the exponents of the base are not 2i / d.",
            _frequencies_at(record) or core.scores_place,
            "base ** (-2 i / d) for pair i: 1, and then less",
            numbers(angles) + f" for {len(angles)} pairs",
            "1.0 / base ** (torch.arange(0, d, 2) / d)",
            paths=(core.path,),
        )


def _said_bases(record: Record) -> list[float]:
    """The bases of a rotation that the model or its config says; none where it speaks of stretching them, too."""
    found: list[float] = []
    for module in record.module.modules():
        for items in settings_of(module):
            if any(_STRETCHES.search(name) and value not in (None, False, 1, 1.0) for name, value in _plain(items)):
                return []
            bases = [value for name, value in _plain(items) if _BASE.fullmatch(name)]
            found += [float(base) for base in bases if isinstance(base, int | float) and base > 1]
    return sorted(set(found))


def _plain(items: Mapping[str, object]) -> list[tuple[str, object]]:
    """The numbers, texts and dicts among attributes."""
    return [
        (name, value) for name, value in items.items() if value is None or isinstance(value, int | float | str | dict)
    ]


def _frequencies_at(record: Record) -> Place | None:
    """The line of the user's file that makes the angles: a power of a range."""
    classes: list[type] = [type(part) for part in record.module.modules()]
    files = dict.fromkeys(found[1] for cls in classes if (found := source_of(cls)))
    for pattern in (
        r"\*\*.*(arange|/)|arange.*\*\*|exp\(.*arange|arange.*exp\(",
        r"inv_freq\w*\s*=|freqs?\w*\s*=|theta\w*\s*=",
    ):
        for file in files:
            for number, line in enumerate(linecache.getlines(file), 1):
                if re.search(pattern, line.partition("#")[0]) and re.search(
                    r"freq|theta|base|rope|rot|10000|exp", line
                ):
                    return Place(file, number)
    return None
