"""What losses of several answers got: CTC's frames and labels, pairs that are compared, temperatures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from conformance.watch.details import Frames, Pairs
from conformance.watch.targets import fingerprints

EXACT = 1e-3
"""Up to this share two numbers are one: far above rounding in float32, far below what a mistake makes of it."""


def frames_of(
    scores: Tensor, labels: Tensor, frames: Sequence[int], lengths: Sequence[int], blank: int, given: Sequence[Tensor]
) -> Frames:
    """What a CTC loss got. scores: (T, N, C) or (T, C); labels: (N, S), or (sum of lengths,); frames, lengths: of each
    text; given: what the model was given."""
    rows = [row[:length] for row, length in zip(labels, lengths, strict=True)] if labels.dim() == 2 else [labels]
    blanks = sum(int((row == blank).sum()) for row in rows)
    short = sum(few < many for few, many in zip(frames, lengths, strict=True))
    is_whole = all(number == scores.shape[0] for number in frames)
    padded = int((real_lengths(given, len(frames)) < 0.8).sum()) if is_whole else 0
    return Frames(len(frames), blanks, padded, short)


def real_lengths(given: Sequence[Tensor], rows: int) -> Tensor:
    """Which share (N,) of the frames of each row is not filled up with zeros, where the rows of a given tensor
    (N, T, F) or (N, F, T) end with zeros in several lengths; else ones."""
    for one in given:
        if one.dim() != 3 or one.shape[0] != rows or not one.is_floating_point():
            continue
        for axis in (1, 2):
            tail = zero_tail(one, axis)
            if len(tail.unique()) >= 3 and int(tail.min()) == 0:
                return 1 - tail / one.shape[axis]
    return torch.ones(rows)


def zero_tail(features: Tensor, axis: int) -> Tensor:
    """How many zero frames (N,) each row (N, T, F) ends with; axis: that of time."""
    is_zero = (features == 0).all(3 - axis)
    return is_zero.flip(1).cumprod(1).sum(1)


def pairs_of(scores: Tensor, labels: Tensor) -> Pairs | None:
    """What a cross-entropy got that asks each row (N,) of scores (N, N) for its own column; None for another one."""
    size = scores.shape[0]
    if scores.dim() != 2 or scores.shape[1] != size or size < 4 or not torch.equal(labels, torch.arange(size)):
        return None
    values = scores.detach().float()
    digests = [hash(fingerprints(one.contiguous().numpy())) for one in (values, values.T)]
    return Pairs((digests[0], digests[1]), tuple(_spreads(scores.grad_fn)), tuple(values.diagonal().tolist()))


def asks_in_columns(rows: Tensor, labels: Tensor) -> bool:
    """Whether logarithms of probabilities (N, N), of which each row is asked for its own column, sum to one along the
    columns and not along the rows: each column is asked for its own row."""
    size = rows.shape[0]
    if rows.shape != (size, size) or size < 2 or not torch.equal(labels, torch.arange(size)):
        return False
    over_rows, over_columns = (rows.detach().double().logsumexp(axis).abs().max() for axis in (1, 0))
    return bool(over_columns < 1e-4 < over_rows)


def are_cut_anew(scores: Tensor) -> bool:
    """Whether scores (B, C, T) are those of (B, T, C) in another shape, and not turned: a view that begins each row of
    classes where the numbers of a word begin."""
    base = scores._base
    if scores.dim() != 3 or base is None or not scores.is_contiguous() or base.numel() != scores.numel():
        return False
    classes, length = scores.shape[1:]
    return base.dim() > 1 and base.shape[-1] == classes != length > 1


def holds_itself(scores: Tensor, labels: Tensor) -> bool:
    """Whether scores (N, N) compare each with each and with itself, which is never asked for: on the diagonal stands
    one number, the largest of each row, as of vectors of one length with themselves."""
    size = scores.shape[0]
    if scores.dim() != 2 or scores.shape[1] != size or size < 4 or labels.shape != (size,):
        return False
    values = scores.detach().float()
    own = values.diagonal()
    is_one = bool((own - own[0]).abs().max() < 1e-3 * own[0].abs().clamp(min=1e-6))
    is_asked = bool((labels == torch.arange(size)).any())
    return is_one and not is_asked and bool((values.amax(1) - own < 1e-4 * own[0].abs()).all())


def _spreads(node: Any, deep: int = 8) -> Iterator[float]:
    """By how much the vectors of both sides of the product behind some scores differ in length."""
    waiting = [(node, deep)]
    while waiting:
        node, deep = waiting.pop(0)
        if node is None or deep <= 0:
            continue
        if type(node).__name__ in ("MmBackward0", "BmmBackward0"):
            first, second = node._saved_self, node._saved_mat2
            if first is not None and second is not None:
                for lengths in (first.float().norm(dim=-1), second.float().norm(dim=-2)):
                    yield float(lengths.max() / lengths.min().clamp(min=1e-12))
            return
        if type(node).__name__.startswith(_PASSING):
            waiting += [(one, deep - 1) for one, _ in node.next_functions]


_PASSING = ("Mul", "Div", "T", "Transpose", "Permute", "View", "UnsafeView", "Squeeze", "Unsqueeze", "Clone", "ToCopy")
"""Operations that leave scores what they are but for a factor, a precision or a shape."""


class Side(NamedTuple):
    """A side of a divergence among the answers of modules. factor: by what the answer's logits were multiplied: 0.5 of
    temperature 2. place: where the first rows stand in the answer (M, V); shape: of the answer."""

    factor: float
    place: Tensor
    shape: torch.Size


SOME = 16
"""So many rows of a side are looked for in the answers."""


def sides_of(rows: Tensor, wanted: Tensor, answers: Sequence[Tensor]) -> list[Side]:
    """Both sides of a divergence. rows: log-probabilities (N, V); wanted: probabilities (N, V); answers: what modules
    gave. Empty where one is found among none of them."""
    both = [_side(one.double(), answers) for one in (rows, wanted.clamp(min=1e-30).log())]
    return [one for one in both if one is not None] if None not in both else []


def apart(sides: Sequence[Side]) -> int | None:
    """How far the rows of the second side stand behind those of the first, in answers of one shape: what holds for most
    of them. None where nothing does, as with rows that are alike."""
    if len(sides) != 2 or sides[0].shape != sides[1].shape:
        return None
    far = sides[1].place - sides[0].place
    most = int(far.mode().values)
    return most if float((far == most).float().mean()) > SURE else None


SURE = 0.8


def _side(rows: Tensor, answers: Sequence[Tensor]) -> Side | None:
    """The answer whose softmax has these logarithms: all of it, in order, or some of its rows in any order."""
    centred = rows - rows.mean(-1, keepdim=True)
    flat = [(one, one.detach().double().flatten(0, -2)) for one in answers if one.is_floating_point()]
    for one, logits in flat:
        if logits.shape == centred.shape:
            logits = logits - logits.mean(-1, keepdim=True)
            size = float((logits * logits).sum())
            factor = float((logits * centred).sum()) / size if size > 0 else 0.0
            if factor > 0 and float((centred - factor * logits).norm()) < EXACT * float(centred.norm()):
                return Side(factor, torch.arange(min(len(centred), SOME)), one.shape)
    for one, logits in flat:
        if len(logits) >= len(centred) and logits.shape[-1] == centred.shape[-1]:
            found = _some(centred[:SOME], logits)
            if found is not None:
                return Side(*found, one.shape)
    return None


def _some(centred: Tensor, logits: Tensor) -> tuple[float, Tensor] | None:
    """By what rows of logits (M, V) were multiplied, and which they are: each is looked for by its direction, and all
    must be multiplied by one number."""
    logits = logits - logits.mean(-1, keepdim=True)
    sizes, lengths = logits.norm(dim=-1).clamp(min=1e-30), centred.norm(dim=-1).clamp(min=1e-30)
    likeness, place = ((centred / lengths[:, None]) @ (logits / sizes[:, None]).T).max(-1)
    factors = lengths / sizes[place]
    is_one = float(factors.max()) < (1 + EXACT) * float(factors.min())
    return (float(factors.median()), place) if is_one and bool((likeness > 1 - EXACT**2).all()) else None
