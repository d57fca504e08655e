"""The vectors of positions that a recorded run adds to its tokens: has each place its own, and each feature its own?

They are known by a name (a table called after positions) or by what made them (sines of numbers that do not depend on
the words), and only where they are added to a computed sequence. Rotations and biases of scores are other rooms.
"""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.adapters.whole.class_source import source_of
from conformance.adapters.whole.findings import Finding, once
from conformance.adapters.whole.flow import base_name, moves, pointwise
from conformance.adapters.whole.record import Op, Place, Record, Value

_POSITIONS = re.compile(r"(^|[._])(\w*pos(ition(al|s)?)?|w?pe|pos_?\w*|\w*places?)([._]|$)", re.IGNORECASE)
_OTHER = re.compile(r"rel|bias|rot|rope|type|segment", re.IGNORECASE)
_STILL = 1e-3
"""A feature that moves less than this over the places of the run tells them apart no more: slow sines look alike."""


@dataclass(frozen=True)
class Added:
    """Vectors of positions as they are added. vectors: the value; stream: what they are added to; op: the addition;
    taken: the operation that takes them from a table or makes them; held: the parameter or buffer, None for sines."""

    vectors: Value
    stream: Value
    op: Op
    taken: Op
    held: Value | None

    @property
    def table(self) -> str:
        return self.held.name if self.held is not None else ""


def place_findings(record: Record) -> list[Finding]:
    """What is wrong with vectors of positions; one finding for each claim and line."""
    everything = added_positions(record)
    return once(
        finding
        for added in everything
        for finding in (
            *_one_place(record, added),
            *_shared(record, added, everything),
            *_twins(added, record),
            *_scaled(record, added),
            *_untrained(record, added),
        )
    )


def added_positions(record: Record) -> list[Added]:
    """Every addition of vectors of positions to a computed sequence, in order."""
    found = []
    for op in record.ops:
        if base_name(op) != "add" or len(op.inputs) != 2:
            continue
        for vectors, stream in (op.inputs, op.inputs[::-1]):
            if len(stream.shape) != 3 or stream.shape != op.outputs[0].shape or not record.computed(stream):
                continue
            if (taken := _taken(record, vectors, op)) is not None:
                found.append(Added(vectors, stream, op, *taken))
    return found


def _taken(record: Record, vectors: Value, addition: Op) -> tuple[Op, Value | None] | None:
    """The operation that takes vectors of positions, the addition itself for a whole table, and from which table; None
    where they are something else, or those of places that the caller chose."""
    first: Op | None = None
    here = vectors
    while (op := record.producer(here)) is not None:
        if op.name == "embedding":
            table, ids = op.inputs[0], op.inputs[1]
            if not _is_called_so(table) or _is_handed_in(record, ids):
                return None
            return op, table
        if not (moves(op) or pointwise(op)) or not op.inputs:
            return None
        first = first or op
        if base_name(op) in ("sin", "cos"):
            return None if record.computed(here) else (first, None)
        here = next((value for value in op.inputs if value.op >= 0 or value.name), op.inputs[0])
    if not _is_called_so(here) or len(here.shape) < 2:
        return None
    return first or addition, here


def _is_called_so(value: Value) -> bool:
    return bool(_POSITIONS.search(value.name)) and not _OTHER.search(value.name)


def _is_handed_in(record: Record, value: Value) -> bool:
    """Whether a value comes from the model's caller, who may have made it within the record."""
    handed = {given for call in record.calls if call.parent < 0 for given in call.given}
    while value not in handed:
        op = record.producer(value)
        if op is None or not moves(op) or not op.inputs:
            return value.kind == "given"
        value = op.inputs[0]
    return True


# --- each place has a vector of its own


def _length(record: Record) -> int | None:
    """How many tokens a row has, where the run was given rows of ids."""
    outer = [value for call in record.calls if call.parent < 0 for value in call.given]
    ids = [value for value in outer if not value.data.is_floating_point() and value.data.dim() == 2]
    sizes = {max(value.shape) for value in ids if value.data.dtype != torch.bool}
    return sizes.pop() if len(sizes) == 1 else None


def _one_place(record: Record, added: Added) -> Iterator[Finding]:
    stream, vectors = added.stream, added.vectors.data
    length = _length(record)
    axes = [axis for axis in (0, 1) if stream.shape[axis] == length]
    axis = axes[0] if len(axes) == 1 else None
    whole = vectors.expand(stream.shape)
    if axis is None:
        if length is not None or min(stream.shape[:2]) < 2 or not _same(whole, 0) or not _same(whole, 1):
            return
    elif stream.shape[axis] < 3 or not _same(whole, axis):
        return
    along = "" if axis is None or _same(whole, 1 - axis) else " They differ along the batch."
    name = f" of {added.table}" if added.table else ""
    yield Finding(
        "positions-differ-from-place-to-place",
        f"All places of a sequence get one and the same vector{name}.{along}",
        _counted_at(record, added, axis) or (added.taken if added.table else added.op).place,
        "a vector for each place",
        "one vector for all",
        "Add rows 0, 1, 2, ... along the axis of the tokens: table[:length] for tokens (batch, length, width).",
    )


def _counted_at(record: Record, added: Added, axis: int | None) -> Place | None:
    """The line of a running count that does not rise along the tokens, where places are counted so."""
    if added.taken.name != "embedding" or axis is None:
        return None
    before = record.before([added.taken.inputs[1]])
    counts = [op for value in before if (op := record.producer(value)) is not None and base_name(op) == "cumsum"]
    flat = [op for op in counts if op.outputs[0].data.dim() == 2 and _same(op.outputs[0].data, axis)]
    return flat[0].place if flat else None


def _same(tensor: Tensor, axis: int) -> bool:
    return bool((tensor == tensor.narrow(axis, 0, 1)).all())


# --- no two places share a vector


def _shared(record: Record, added: Added, everything: list[Added]) -> Iterator[Finding]:
    """Places that come in twos or more with one vector, where others differ: rows and columns of an image, say, of
    which only the rows are told. What else is added to the sequence may tell them apart, then nothing is said."""
    if [one.stream for one in everything].count(added.stream) != 1 or _is_told_otherwise(record, added):
        return
    whole = added.vectors.data.expand(added.stream.shape)
    if not _same(whole, 0) and not _same(whole, 1):
        return
    rows = (whole[0] if _same(whole, 0) else whole[:, 0]).double()
    rows = rows[rows.abs().amax(-1) > 0]  # a class token often has none
    if len(rows) < 4 or not bool(rows.isfinite().all()):
        return
    close = torch.cdist(rows, rows, p=torch.inf) <= 1e-6 * float(rows.abs().max())
    twins = close.sum(-1)
    if int(twins.min()) < 2 or bool(close.all()):
        return
    name = f" of {added.table}" if added.table else ""
    yield Finding(
        "positions-are-told-apart",
        f"Each place of a sequence shares its vector{name} with {int(twins[0]) - 1} others of {len(rows)}.",
        _made_at(record, added) or added.taken.place,
        f"{len(rows)} different vectors",
        f"{len(torch.unique(close.int(), dim=0))} different vectors",
        "Give each place its own: of an image, half of the features tell the row and half the column.",
    )


def _is_told_otherwise(record: Record, added: Added) -> bool:
    """Whether something else that may tell places apart is added to the same sequence: before, anything but a bias;
    after, what no word has made, or what was looked up."""
    here = added.stream
    while (op := record.producer(here)) is not None and base_name(op) == "add" and len(op.inputs) == 2:
        here, bias = sorted(op.inputs, key=lambda value: -value.data.numel())
        if bias.data.numel() > bias.shape[-1]:
            return True
    whole = added.op.outputs[0]
    others = [v for op in record.consumers(whole) if base_name(op) == "add" for v in op.inputs if v is not whole]
    return any(not record.computed(value) or _is_looked_up(record, value) for value in others)


def _is_looked_up(record: Record, value: Value) -> bool:
    op = record.producer(value)
    while op is not None and moves(op) and op.inputs:
        op = record.producer(op.inputs[0])
    return op is not None and op.name == "embedding"


def _made_at(record: Record, added: Added) -> Place | None:
    """The line of the user's class that makes a table; None without a table, or where no line names it."""
    if not added.table:
        return None
    owner, _, name = added.table.rpartition(".")
    holder: type = type(record.module.get_submodule(owner))
    found = source_of(holder)
    if found is None:
        return None
    lines = linecache.getlines(found[1])
    pattern = rf"self\.{re.escape(name)}\b[^=]*=[^=]|[\"']{re.escape(name)}[\"']"
    return next((Place(found[1], n) for n, line in enumerate(lines, 1) if re.search(pattern, line)), None)


# --- each feature of fixed vectors is its own


def _twins(added: Added, record: Record) -> Iterator[Finding]:
    """Fixed vectors only: features that are the same number at every place."""
    if added.held is not None and added.held.kind == "parameter":
        return
    rows = added.vectors.data.expand(added.stream.shape).double()
    rows = rows[0] if not _same(rows, 1) else rows[:, 0]
    spread = rows.amax(0) - rows.amin(0)
    features = rows[:, spread > _STILL]
    count = features.shape[-1]
    if len(rows) < 3 or count < 2:
        return
    close = (features[:, :, None] - features[:, None, :]).abs().amax(0) < 1e-6
    twins = int((close.sum(-1) > 1).sum())
    if 2 * twins < count:
        return
    first = int((close.sum(-1) > 1).nonzero()[0, 0])
    alike = int(close[first].sum())
    many = alike > 2
    yield Finding(
        "positions-have-features-of-their-own",
        f"{alike} of {rows.shape[-1]} features of the positions are the same wave: "
        + ("the sines have one frequency." if many else "a pair lacks its sine or its cosine."),
        _sines_at(record, added, many) or added.taken.place,
        "a sine and a cosine of each frequency",
        "equal features",
        "pe[:, 0::2] = sin(position * rates), pe[:, 1::2] = cos(position * rates), with "
        "rates = 10000 ** (-torch.arange(0, d, 2) / d)",
    )


def _sines_at(record: Record, added: Added, rates: bool) -> Place | None:
    """The line of the user's file that makes the rates, or the last sine, of a table; in the run, by its operations."""
    if not added.table:
        before = record.before([added.vectors])
        ops = [record.ops[number] for number in sorted({value.op for value in before if value.op >= 0})]
        names = ("exp", "pow", "reciprocal", "div") if rates else ("sin", "cos")
        made = [op for op in ops if base_name(op) in names]
        return made[0 if rates else -1].place if made else None
    holder: type = type(record.module.get_submodule(added.table.rpartition(".")[0]))
    found = source_of(holder)
    if found is None:
        return None
    lines = linecache.getlines(found[1])
    pattern = r"\bexp\(|\bpow\(|\*\*|\b1e4\b|10000" if rates else r"\b(sin|cos)\("
    hits = [n for n, line in enumerate(lines, 1) if re.search(pattern, line.partition("#")[0])]
    return Place(found[1], hits[0 if rates else -1]) if hits else None


# --- what scales words to the size of sines scales no sines

_SMALL = 0.5
"""Words are small beside positions where their mean square has less than half of the root of the positions'."""


def _scaled(record: Record, added: Added) -> Iterator[Finding]:
    """Fixed vectors only: small words and positions whose sum is multiplied by sqrt(d), which is for the words."""
    if added.held is not None and added.held.kind == "parameter":
        return
    width = added.stream.shape[-1]
    if not any(op.name == "embedding" for value in record.before([added.stream]) if (op := record.producer(value))):
        return
    here = [added.op.outputs[0]]
    for value in here:
        here += [op.outputs[0] for op in record.consumers(value) if moves(op)]
    scaling = [op for value in here for op in record.consumers(value) if _factor(op, value) == _root(width)]
    words, places = (float(v.data.double().square().mean().sqrt()) for v in (added.stream, added.vectors))
    if not scaling or words > _SMALL * places:
        return
    yield Finding(
        "positions-are-added-to-scaled-words",
        f"The sum of words and positions is multiplied by sqrt({width}), positions and all: they stay "
        f"{places / max(words, 1e-9):.1f} times as large as the words.",
        scaling[0].place,
        "words times sqrt(d), plus positions",
        "(words plus positions) times sqrt(d)",
        "x = self.embedding(ids) * math.sqrt(d) + positions",
    )


def _root(width: int) -> float:
    return round(math.sqrt(width), 3)


def _factor(op: Op, value: Value) -> float | None:
    """The number by which an operation multiplies a value; None where it does something else."""
    if base_name(op) != "mul" or len(op.args) < 2:
        return None
    other = next((one for one in op.args[:2] if one is not value), None)
    if isinstance(other, Value):
        return round(float(other.data), 3) if other.data.numel() == 1 else None
    return round(float(other), 3) if isinstance(other, int | float) else None


# --- vectors that no formula makes are learned

_DRAWN = (
    r"""register_buffer\(\s*["']{name}["']\s*,\s*(torch\.(randn|rand|zeros|empty)\()"""
    r"""|\.{name}\s*=\s*nn\.Parameter\(\s*(torch\.(randn|rand|zeros|empty)\()[^=\n]*requires_grad\s*=\s*False"""
)
_WRITTEN = (
    r"\.{name}(\.data)?\s*(\[[^\]]*\]\s*)?[-+*/]?=(?!=)(?!\s*nn\.Parameter\()"
    r"|\.{name}(\.data)?\.(?!normal_|uniform_)\w+_\(|\b(?!\w*(normal|uniform)_\()\w*(init\w*|_)\((\w+\.)+{name}\b|setattr"
)
"""What fills a table afterwards, but for random numbers."""


def _untrained(record: Record, added: Added) -> Iterator[Finding]:
    """A table that is drawn at random or zero, that nothing writes, and that gets no gradient."""
    if added.held is None:
        return
    owner, _, name = added.table.rpartition(".")
    holder = record.module.get_submodule(owner)
    parameter = dict(holder.named_parameters(recurse=False)).get(name)
    holder_class: type = type(holder)
    found = source_of(holder_class)
    if found is None or (parameter is not None and parameter.requires_grad):
        return
    text, drawn, written = found[0], *(pattern.format(name=re.escape(name)) for pattern in (_DRAWN, _WRITTEN))
    if not re.search(drawn, text) or re.search(written, text):
        return
    yield Finding(
        "positions-that-no-formula-makes-are-learned",
        f"The positions of {added.table} are random numbers or zeros that nothing trains.",
        _made_at(record, added) or added.taken.place,
        "a parameter",
        "a buffer" if parameter is None else "a parameter without a gradient",
        f"self.{name} = nn.Parameter(...)",
    )
