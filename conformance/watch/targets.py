"""What a loss is asked, worked out from arrays: of which token each label is, which labels count, what its rows are.

Rows that reach the loss are found among the rows that the modules gave, and the labels compared with the ids that
tables were asked for. Which labels count is read from the gradient of the rows, so it does not matter how a script
leaves some out. Arrays are numpy's, whichever library the script trains with.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from conformance.watch.events import Targets

Array = np.ndarray[Any, Any]
Looked = tuple[Array, int, int | None]
"""Ids (B, T) that a table was asked for, how many rows it has, and the one of padding."""

OFFSETS = (-1, 0, 1, 2)
"""How far a label may be ahead of the input: 1 is the next token, 0 its own, 2 is shifted twice, -1 backwards."""

SURE = 0.9
"""Labels are the ids so far ahead where more than this share of them is."""

LARGEST = 2**25
"""The rows of a loss are looked at when they have at most so many numbers."""


def fingerprints(rows: Array) -> tuple[int, ...]:
    """A number for each row, the same in every process. What fills rows of whole numbers up at their ends is left out:
    it depends on the other rows of the batch."""
    if rows.ndim == 2 and rows.dtype.kind in "iu" and rows.size:
        ends = rows.shape[1] - tail_of(rows == rows[:, -1:]).sum(1) + 1
        parts = [row[:end] for row, end in zip(rows, ends, strict=True)]
    else:
        parts = [*rows]
    return tuple(int.from_bytes(blake2b(part.tobytes(), digest_size=8).digest()) for part in parts)


def kind_of(rows: Array, eps: float) -> str:
    """What the rows (N, V) that a loss gets are: "logits", "log-probabilities" or "probabilities"; "" where they hold
    NaN or nothing finite. eps: of the precision that they were computed in."""
    some, bound = rows[: 2**12].astype(np.float64), max(1e-3, 16 * eps)
    if not np.isfinite(some).any(-1).all() or np.isnan(some).any():
        return ""
    if (some >= 0).all() and (abs(some.sum(-1) - 1) < bound).all():
        return "probabilities"
    if (some <= bound).all() and (abs(np.logaddexp.reduce(some, -1)) < bound).all():
        return "log-probabilities"
    return "logits"


def is_over_all(rows: Array, grown: Array, labels: Array, counts: Array, smoothing: float = 0.0) -> bool:
    """Whether the sum over the labels that count is divided by the number of all labels, and perhaps by a number of
    accumulated batches. rows: logits (N, V); grown: their gradient."""
    counted, total = int(counts.sum()), labels.size
    if not 0 < counted < total:
        return False
    logits = rows[counts].astype(np.float64)
    index = labels[counts].clip(0, rows.shape[-1] - 1)[:, None]
    likelihood = np.exp(np.take_along_axis(logits, index, 1)[:, 0] - np.logaddexp.reduce(logits, -1))
    missing = 1 - smoothing + smoothing / rows.shape[-1] - likelihood
    clear = missing > 0.05
    if not clear.any():
        return False
    own = np.take_along_axis(grown[counts].astype(np.float64), index, 1)[:, 0]
    weight = float(np.median((-own / np.where(clear, missing, 1.0))[clear]))
    batches = {number: 1 / (weight * number) if weight > 0 else 0.0 for number in (counted, total)}
    is_whole = {number: share >= 0.99 and abs(share - round(share)) < 0.01 for number, share in batches.items()}
    return is_whole[total] and not is_whole[counted]


def positions(rows: Array, results: Sequence[Array], count: int) -> Array | None:
    """The place of each row in the array (B, T, classes) that a module gave, as a flat index (N,), with the shape of
    its first two axes in front: (B, T, index...); None when the rows are found nowhere."""
    for result in reversed([one for one in results if one.ndim == 3 and one.shape[-1] == rows.shape[-1]]):
        flat = result.reshape(-1, result.shape[-1])
        index = np.arange(count) if _alike(flat, rows) else _found(flat, rows)
        if index is not None:
            return np.concatenate([np.array(result.shape[:2]), index])
    return None


def _alike(first: Array, second: Array) -> bool:
    return first.shape == second.shape and (np.array_equal(first, second) or bool(_same_rows(first, second).all()))


def _same_rows(first: Array, second: Array) -> Array:
    """Whether rows differ by a number each only: as logits and their log-softmax do."""
    difference = first.astype(np.float64) - second
    found: Array = abs(difference - difference.mean(-1, keepdims=True)).max(-1) < 1e-4
    return found


def _found(flat: Array, rows: Array) -> Array | None:
    """The index of each row in `flat`, alike ones in order; None when one is missing."""
    if len(rows) > len(flat):
        return None
    places: dict[bytes, deque[int]] = defaultdict(deque)
    for number, row in enumerate(np.ascontiguousarray(flat[:, :8], np.float32)):
        places[row.tobytes()].append(number)
    found = []
    for row in np.ascontiguousarray(rows[:, :8], np.float32):
        alike = places.get(row.tobytes())
        if not alike:
            return None
        found.append(alike.popleft())
    return np.array(found, dtype=np.int64)


def compare(targets: Targets, place: Array | None, ids: Sequence[Looked], labels: Array, counts: Array) -> Array | None:
    """Compare the labels that count with the ids around their places. Returns the ids (B, T) whose next ones, or which
    themselves, the labels are; None where they are others."""
    if place is None or not counts.any():
        return None
    shape, index = (int(place[0]), int(place[1])), place[2:]
    fitting = list(_in_layout(ids, shape))
    if len(index) != len(labels) or not fitting:
        return None
    shares = [_offsets(one, index, labels, counts) for one, _ in fitting]
    best = max(range(len(shares)), key=lambda i: (_next(shares[i][1]) > SURE, max(shares[i][1].values(), default=0.0)))
    if shares[best][1].get(0, 0.0) > 0.5 and _next(shares[best][1]) <= SURE:
        best = _masked_one(fitting, best, index, counts)
    inputs, pad = fitting[best]
    axis, targets.offsets = shares[best]
    rows = inputs if axis == 1 else inputs.T
    targets.tokens = inputs.size - int((tail_of(rows == rows[:, -1:]).sum(1) - 1).sum())
    if max(targets.offsets.values(), default=0.0) < SURE and len(labels) == shape[0] * shape[1]:
        across = [flat.reshape(*shape[::-1]).T.reshape(-1) for flat in (labels, counts)]
        otherwise = ((index, *across), (np.arange(len(labels)), labels, counts))
        targets.crossed = any(_next(_offsets(one, *other)[1]) > SURE for one, _ in fitting for other in otherwise)
    flat = inputs.reshape(-1)[index]
    targets.kept = float((flat == labels)[counts].mean())
    _, numbers = np.unique(flat[counts], return_counts=True)
    targets.masked = bool(numbers.max() > 0.5 * counts.sum()) and len(np.unique(labels[counts])) > 1
    if targets.masked:
        _idle(targets, inputs if axis == 1 else inputs.T, inputs, index[counts])
    if targets.offsets.get(0, 0.0) < SURE and _next(targets.offsets) < SURE:
        _mixed(targets, inputs.reshape(-1), index, labels, counts)
    for one, _ in fitting:
        _opening(targets, one, index, labels, counts)
    _ending(targets, rows, labels, counts)
    _padding(targets, inputs, index, labels, counts, pad)
    if not targets.pads and max(targets.offsets.values(), default=0.0) < SURE:
        _fill(targets, inputs, index, labels, counts, pad)
    if not targets.pads and len(labels) == shape[0] * shape[1]:
        _ends(targets, rows, labels, counts, index, shape, [one for one, _, _ in ids])
    if not targets.pads and pad is not None and _next(targets.offsets) > SURE:
        _once(targets, inputs.reshape(-1), index, labels, counts, pad)
    return rows if asks_for_the_next(targets) or targets.kept > SURE else None


def _masked_one(fitting: Sequence[tuple[Array, int | None]], best: int, index: Array, counts: Array) -> int:
    """Which input was masked, where a model gets the whole text beside it: one that differs where labels count."""
    text = fitting[best][0]
    for number, (other, _) in enumerate(fitting):
        differs = (other != text).reshape(-1)
        if differs[index][counts].mean() > 0.5 and differs.mean() < 0.5:
            return number
    return best


def _opening(targets: Targets, ids: Array, index: Array, labels: Array, counts: Array) -> None:
    """Count the labels that ask for the token that opens every row and stands nowhere else, where it is masked. ids:
    (B, T), or turned round; index: the places of the labels."""
    for rows, place in ((ids, index % ids.shape[1]), (ids.T, index // ids.shape[1])):
        only = np.setdiff1d(rows[:, 0], rows[:, 1:])
        if len(rows) >= 4 and len(only) == 1 and (rows[:, 0] == only[0]).mean() >= 0.25:
            targets.openings += int((counts & (place == 0) & (labels == only[0])).sum())


def _idle(targets: Targets, rows: Array, ids: Array, asked: Array) -> None:
    """Count the places of the mask that no label asks for, and those that one asks for. rows: the ids (B, T) along the
    time; asked: flat places."""
    mask = mode(ids.reshape(-1)[asked])
    place = np.zeros(ids.size, bool)
    place[asked] = True
    targets.hidden = int((ids.reshape(-1)[asked] == mask).sum())
    fills = tail_of(rows == mask) & (tail_of(rows == rows[:, -1:]).sum(1) > 1)[:, None]
    over = fills if rows.shape == ids.shape and rows is ids else fills.T
    targets.idle = int(((ids == mask) & ~place.reshape(ids.shape) & ~over).sum())


def _mixed(targets: Targets, ids: Array, index: Array, labels: Array, counts: Array) -> None:
    """Count what stands where labels ask: the mask, which stands nowhere else, and words that are not the labels."""
    asked = ids[index[counts]]
    mask = mode(asked)
    elsewhere = ids.copy()
    elsewhere[index[counts]] = -1
    is_rare = counts.sum() < 0.6 * targets.tokens and not (elsewhere == mask).any()
    if not is_rare or (labels[counts] == mask).any() or len(np.unique(labels[counts][asked == mask])) < 3:
        return
    targets.masks = int((asked == mask).sum())
    targets.swaps = int(((asked != mask) & (asked != labels[counts])).sum())


def _ending(targets: Targets, rows: Array, labels: Array, counts: Array) -> None:
    """Count the rows (B, T) that end, before padding, with one token that stands nowhere else, and its labels that
    count."""
    pad = mode(rows[:, -1])
    lengths = rows.shape[1] - tail_of(rows == pad).sum(1)
    padded = np.flatnonzero((lengths < rows.shape[1]) & (lengths > 1))
    last = np.unique(rows[padded, lengths[padded] - 1])
    if (
        len(padded) >= 4
        and len(np.unique(lengths)) >= 3
        and len(last) == 1
        and not (rows[:, :-1] == pad)[np.arange(rows.shape[1] - 1) < lengths[:, None]].any()
    ):
        found = np.argwhere(rows == last[0])
        if all(place == lengths[row] - 1 for row, place in found):
            targets.ends, targets.ended = len(padded), int((counts & (labels == last[0])).sum())


def asks_for_the_next(targets: Targets) -> bool:
    """Whether the labels are the tokens that come next."""
    return _next(targets.offsets) > SURE


def _next(shares: Mapping[int, float]) -> float:
    return shares.get(1, 0.0)


def _in_layout(ids: Sequence[Looked], shape: tuple[int, int]) -> Iterator[tuple[Array, int | None]]:
    """The ids in the layout of the result: (B, T), or turned round where a module turned them."""
    for one, _, pad in ids:
        if one.shape == shape:
            yield one, pad
        elif one.shape == shape[::-1]:
            yield one.T, pad


def _offsets(ids: Array, index: Array, labels: Array, counts: Array) -> tuple[int, dict[int, float]]:
    """The axis of time, and the share of counted labels that are the id so far ahead along it. Where a row has ended,
    and what is asked for is not what fills it up, the id ahead is not there: an input often lacks its end token."""
    best, shares = 1, dict[int, float]()
    for axis in (1, 0):
        length = ids.shape[axis]
        over = tail_of(ids == ids[:, -1:]) if axis == 1 else tail_of(ids.T == ids[-1:].T).T
        found: dict[int, float] = {}
        at = index % ids.shape[1] if axis == 1 else index // ids.shape[1]
        for offset in OFFSETS:
            there = at + offset
            inside = (there >= 0) & (there < length) & counts
            if not inside.any():
                continue
            ahead = index + offset * (1 if axis == 1 else ids.shape[1])
            ahead = ahead.clip(0, ids.size - 1)
            same = ids.reshape(-1)[ahead] == labels
            if offset > 0:
                inside &= same | ~over.reshape(-1)[ahead]
            found[offset] = float(same[inside].mean()) if inside.any() else 0.0
        if not shares or max(found.values(), default=0.0) > max(shares.values()):
            best, shares = axis, found
    return best, shares


def _padding(targets: Targets, ids: Array, index: Array, labels: Array, counts: Array, pad: int | None) -> None:
    """Count the labels of padding that follows padding, and those of them that weigh in the loss. Padding is the id
    that a table says, or one that stands at the ends of some rows, repeated, and nowhere else."""
    for is_turned in (False, True):
        turned = ids.T if is_turned else ids
        value = pad if pad is not None else mode(turned[:, -1])
        tail = tail_of(turned == value)
        lengths = tail.sum(1)
        is_padded = int(lengths.max()) >= 2 and int(lengths.min()) < int(lengths.max())
        if not is_padded or (pad is None and not _is_only_padding(turned == value, tail)):
            continue
        found = (tail.T if is_turned else tail).reshape(-1)[index] & (labels == value)
        targets.pads, targets.padding, targets.pad = int(found.sum()), int((found & counts).sum()), value
        return


def _fill(targets: Targets, ids: Array, index: Array, labels: Array, counts: Array, pad: int | None) -> None:
    """The same where labels are no tokens of the input, as tags are: labels of padding are those at the places of
    padding in the input, where they are all one."""
    for turned, back in ((ids, lambda x: x), (ids.T, lambda x: x.T)):
        value = pad if pad is not None else mode(turned[:, -1])
        tail = tail_of(turned == value)
        lengths = tail.sum(1)
        is_stated = pad is not None and not ((turned == value) & ~tail).any()
        if int(lengths.max()) == turned.shape[1] or not (is_stated or _is_only_padding(turned == value, tail)):
            continue
        found = back(tail).reshape(-1)[index]
        if found.sum() >= 3 and len(np.unique(labels[found])) == 1:
            targets.pads, targets.padding, targets.pad = int(found.sum()), int((found & counts).sum()), value
            return


def _ends(
    targets: Targets,
    rows: Array,
    labels: Array,
    counts: Array,
    index: Array,
    shape: tuple[int, int],
    looked_up: Sequence[Array],
) -> None:
    """The same where only labels are padded twice: an input lacks the last token, and so one of the padding."""
    given, counting = (np.zeros(shape, one.dtype) for one in (labels, counts))
    given.reshape(-1)[index], counting.reshape(-1)[index] = labels, counts
    if rows.shape != shape:
        given, counting = given.T, counting.T
    value = mode(given[:, -1])
    tail = tail_of(given == value)
    inside = [(one if one.shape[0] == len(rows) else one.T) == value for one in looked_up]
    if _is_only_padding(given == value, tail) and not any((one & ~tail_of(one)).any() for one in inside):
        found = tail & np.concatenate([np.zeros((len(tail), 1), bool), tail[:, :-1]], 1)
        targets.pads, targets.padding, targets.pad = int(found.sum()), int((found & counting).sum()), value


def _once(targets: Targets, ids: Array, index: Array, labels: Array, counts: Array, pad: int) -> None:
    """The same where rows are padded by one place at most: the padding that a table says is asked for behind a token
    that stands nowhere else in the input, and is asked for, too."""
    found = labels == pad
    signs = np.unique(ids[index[found]])
    is_end = len(signs) == 1 and signs[0] != pad and signs[0] in labels
    if is_end and found.sum() >= 3 and found.sum() == (ids == signs[0]).sum():
        targets.pads, targets.padding, targets.pad = int(found.sum()), int((found & counts).sum()), pad


def tail_of(found: Array) -> Array:
    """The places (B, T) at the ends of rows from which on everything is found."""
    tail: Array = np.logical_and.accumulate(found[:, ::-1], 1)[:, ::-1]
    return tail


def mode(values: Array) -> int:
    """The number that occurs most."""
    numbers, times = np.unique(values, return_counts=True)
    return int(numbers[times.argmax()])


def _is_only_padding(found: Array, tail: Array) -> bool:
    """Whether an id stands at the ends of rows only: of several, in several lengths, and of no row all along."""
    lengths = tail.sum(1)
    several = len(lengths) >= 4 and int((lengths >= 2).sum()) >= 2 and len(np.unique(lengths)) >= 3
    return several and int(lengths.max()) < found.shape[1] and not (found & ~tail).any()


def texts(ids: Sequence[Looked], classes: int) -> list[Looked]:
    """Those ids (B, T) that are tokens of the vocabulary that a loss chooses from: its size, but for a few special
    ones, and no positions, each one more than the one before."""
    return [
        one
        for one in ids
        if one[0].ndim == 2 and one[0].shape[1] > 1 and abs(one[1] - classes) <= 64 and not _is_range(one[0])
    ]


def _is_range(ids: Array) -> bool:
    return bool((ids[:, 1:] - ids[:, :-1] == 1).all()) or (bool((ids[1:] == ids[:1]).all()) and ids.shape[0] > 1)


class Question:
    """One call of a loss over classes, as far as it is known: its rows (N, V), its labels (N,) and what they are
    compared with. `weigh` is called when the gradient of the rows comes."""

    def __init__(
        self,
        targets: Targets,
        rows: Array,
        labels: Array,
        ignored: int,
        results: Sequence[Array],
        ids: Sequence[Looked],
    ) -> None:
        self.targets, self.rows, self.labels, self.ignored = targets, rows, labels, ignored
        self.place = positions(rows, results, labels.size)
        self.ids = texts(ids, rows.shape[-1])

    def weigh(self, grown: Array, smoothing: float | None) -> Array | None:
        """Work out what counts. grown: the gradient of the rows; smoothing: of a cross-entropy, None for another loss.
        Returns the ids whose next ones, or which themselves, the labels are."""
        counts = abs(grown).max(-1) > 0
        if smoothing is not None:
            self.targets.over_all = is_over_all(self.rows, grown, self.labels, counts, smoothing)
        self.targets.counted = int(counts.sum())
        return self.unweighed(counts)

    def unweighed(self, counts: Array | None = None) -> Array | None:
        """The same of a loss that nothing is learned from, whose labels count unless they are ignored."""
        told = self.labels != self.ignored
        return compare(self.targets, self.place, self.ids, self.labels, told if counts is None else counts & told)
