"""Calls of the model that are made again when watching is over: is the future hidden, and padding?

The call is one that the script made, with its own inputs. In evaluation mode it is made twice: as it was, and with
other words in the places that must not matter. Modes and random state are put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from conformance.watch.attended import attended
from conformance.watch.events import Probe
from conformance.watch.frames import padded_frames
from conformance.watch.record import Run
from conformance.watch.repeating import Call

ROUNDING = 1e-3
"""Answers that differ by at most this share of the largest are the same."""


def probe(run: Run, calls: list[Call]) -> None:
    """Add what the calls show to the run."""
    for call in calls:
        with suppress(Exception), _quietly(call.module):  # what cannot be called again is not judged
            _future(run, call)
        with suppress(Exception), _quietly(call.module):
            _own(run, call)
        with suppress(Exception), _quietly(call.module):
            _rows(run, call)
        with suppress(Exception), _quietly(call.module):
            if not _padding(run, call) and not _own_padding(run, call) and not attended(run, call, _tails):
                padded_frames(run, call)


def _future(run: Run, call: Call) -> None:
    """Change the last token: no answer before it may change."""
    if call.learned is None or _reads_before_it_writes(call, call.learned):
        return
    for ids in (tensor for tensor in call.given() if tensor.dim() == 2):
        for axis in (1, 0):
            turned = ids if axis == 1 else ids.T
            length = call.learned.shape[1]
            if turned.shape[0] != call.learned.shape[0] or turned.shape[1] - length not in (0, 1):
                continue
            if not torch.equal(turned[:, :length], call.learned):
                continue
            other = turned.clone()
            other[:, length - 1] = _others(turned[:, length - 1], turned)
            pair = zip(call.answers(), call.answers(ids, other if axis == 1 else other.T), strict=True)
            for before, after in pair:
                if before.dim() == 3 and before.shape[axis] in (length, length + 1) and before.shape == after.shape:
                    real = ~_in_front(call, turned)[:, : length - 1]
                    earlier = [one.movedim(axis, 1)[:, : length - 1][real] for one in (before, after)]
                    run.add(Probe(what="future", error=_distance(*earlier), place=run.modules[call.number][1]))
                    return


def _in_front(call: Call, ids: Tensor) -> Tensor:
    """The places in front of rows that a mask of the call tells as padding: attention that may see nothing there but
    padding and the future sees all of it, and nobody reads the answer."""
    masks = [mask for mask in call.given() if mask.shape[:1] == ids.shape[:1]]
    tails = (tail for tail in _tails(ids) if not bool(tail[:, -1].any()))
    return next((tail for tail in tails if any(_is_mask(mask, tail) for mask in masks)), torch.zeros_like(ids).bool())


def _own(run: Run, call: Call) -> None:
    """Change the last token, where each is its own label: does the answer to it change?"""
    for ids in (tensor for tensor in call.given() if call.asked is not None and torch.equal(tensor, call.asked)):
        other = ids.clone()
        other[:, -1] = _others(ids[:, -1], ids)
        for before, after in zip(call.answers(), call.answers(ids, other), strict=True):
            if before.dim() == 3 and before.shape[:2] == ids.shape and before.shape == after.shape:
                run.add(
                    Probe(what="own", error=_distance(before[:, -1], after[:, -1]), place=run.modules[call.number][1])
                )
                return


def _rows(run: Run, call: Call) -> None:
    """Turn the order of the rows of all that is given round: the answers turn theirs round, and change nothing else.
    Only where all that is given has its rows along the first axis, and where the second one is not that of the rows."""
    given = [one for one in call.given() if one.dim()]
    before = call.answers()
    counts = {len(one) for one in (*given, *before)}
    if len(counts) != 1 or not before or not all(map(torch.equal, before, call.answers_with(lambda x: x, seed=1))):
        return  # it draws numbers, or remembers the call before
    count = counts.pop()
    if count < 3 or any(count in one.shape[1:] for one in (*given, *before)):
        return
    by_rows = _turned(call, before, 0)
    along = min(one.dim() for one in given) > 1 and len({one.shape[1] for one in (*given, *before)}) == 1
    by_columns = _turned(call, before, 1) if along else None
    if by_rows is not None and (by_rows <= ROUNDING or by_columns is None or by_columns > ROUNDING):
        run.add(Probe(what="rows", error=by_rows, place=run.modules[call.number][1]))


def _turned(call: Call, before: list[Tensor], axis: int) -> float | None:
    """How far answers are from those to inputs that are turned round along an axis, when they are turned back."""
    after = call.answers_with(lambda one: one.flip(axis) if one.dim() > axis else one)
    if len(after) != len(before) or any(a.shape != b.shape for a, b in zip(before, after, strict=True)):
        return None
    return max(_distance(a, b.flip(axis)) for a, b in zip(before, after, strict=True))


def _reads_before_it_writes(call: Call, learned: Tensor) -> bool:
    """Whether it looks up the text as a whole, and the text but its last token, as an autoencoder does."""
    texts = [ids for ids in _looked_up(call) if ids.dim() == 2 and len(ids) == len(learned)]
    whole = any(ids.shape[1] == learned.shape[1] + 1 and torch.equal(ids[:, :-1], learned) for ids in texts)
    return whole and any(torch.equal(ids, learned) for ids in texts)


def _padding(run: Run, call: Call) -> bool:
    """Change the words in the places that a mask of the call hides: no answer for the others may change. Whether there
    is such a mask."""
    given, looked_up = call.given(), _looked_up(call)
    masks = [mask for mask in given if not any(torch.equal(mask, ids) for ids in looked_up)]
    for ids in given:
        if ids.dim() != 2 or ids.is_floating_point() or ids.dtype == torch.bool or ids.shape[1] < 3:
            continue
        for turned, back in ((ids, lambda x: x), (ids.T, lambda x: x.T)):
            for tail in _tails(turned):
                if any(_is_mask(mask, tail) for mask in masks if mask is not ids):
                    other = back(torch.where(tail, _others(turned, turned[~tail]), turned))
                    _hidden(run, call, ids, other.contiguous(), back(tail))
                    return True
    return False


def _own_padding(run: Run, call: Call) -> bool:
    """Leave out or add a column of padding, where the model itself makes a mask of it for one of its parts, or is told
    the lengths: no answer for the other places may change. Whether there is such a mask."""
    for ids in call.given():
        if ids.dim() != 2 or ids.is_floating_point() or ids.dtype == torch.bool or ids.shape[1] < 3:
            continue
        tail = next((tail for tail in _tails(ids) if bool(tail[:, -1].any())), None)
        told = tail is not None and any(_are_lengths(one, tail) for one in call.given())
        if tail is None or not (told or any(_is_mask(mask, tail) for mask in _inner_masks(call))):
            continue
        for before, after, real in _with_other_padding(call, ids, tail):
            if before.shape[0] != real.shape[0] or before.dim() > 3:
                continue
            if before.dim() == 3 and before.shape[1] != after.shape[1]:
                before, after = (one[:, : real.shape[1]][real] for one in (before, after))
            if before.shape == after.shape:
                error = _distance(before, after)
                run.add(Probe(what="padding", error=error, place=run.modules[call.number][1]))
            return True
    return False


def _with_other_padding(call: Call, ids: Tensor, tail: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The answers to a call, those with one column of padding more or less, and the places that are no padding in
    both. Where there is no room for one more, the rows that end with padding get one less."""
    try:
        if bool(tail[:, -1].all()):
            after, real = call.answers(ids, ids[:, :-1].contiguous()), ~tail[:, :-1]
        else:
            longer = torch.cat([ids, ids[tail][0].expand(len(ids), 1)], 1)
            after, real = call.answers(ids, longer.contiguous()), ~tail
        before = call.answers()
    except Exception:
        rows = tail[:, -1]

        def own(one: Tensor) -> Tensor:
            return one[rows] if one.dim() and len(one) == len(ids) else one

        before, real = call.answers_with(own), ~tail[rows][:, :-1]
        after = call.answers_with(lambda one: ids[rows][:, :-1].contiguous() if one is ids else own(one))
    yield from ((one, other, real) for one, other in zip(before, after, strict=True))


def _inner_masks(call: Call) -> list[Tensor]:
    """What the parts of a model are handed under a name that speaks of masks."""
    found: list[Tensor] = []

    def look(_: nn.Module, given: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        found.extend(x for name, x in keywords.items() if "mask" in name and isinstance(x, Tensor) and x.dim() == 2)

    call.look_into(call.module.modules(), look)
    return found


def _hidden(run: Run, call: Call, ids: Tensor, other: Tensor, tail: Tensor) -> None:
    """Record how far the answers at other places move when words at the places `tail` are others."""
    for before, after in zip(call.answers(), call.answers(ids, other), strict=True):
        is_of_batch = before.shape[0] == ids.shape[0] or before.shape[1] == ids.shape[1]
        if before.shape != after.shape or not is_of_batch:
            continue
        if before.dim() < 4 and before.shape[:2] == ids.shape:  # (N, T) may say where an answer begins
            before, after = before[~tail], after[~tail]
        run.add(Probe(what="padding", error=_distance(before, after), place=run.modules[call.number][1]))
        return


def _tails(ids: Tensor) -> Iterator[Tensor]:
    """The places at the ends of rows, or at their beginnings, that repeat one id which stands nowhere else."""
    for flip in (False, True):
        turned = ids.flip(1) if flip else ids
        values, counts = turned[:, -1].unique(return_counts=True)
        for value in values[counts.argsort(descending=True)]:
            tail = (turned == value).flip(1).cumprod(1).flip(1).bool()
            if int(tail.sum(1).max()) < ids.shape[1] and not bool(((turned == value) & ~tail).any()):
                yield tail.flip(1) if flip else tail


def _is_mask(mask: Tensor, tail: Tensor) -> bool:
    """Whether a tensor tells padding from the rest: two values, one of them just where padding is."""
    if mask.numel() != tail.numel() or mask.shape[0] != tail.shape[0] or len(mask.unique()) != 2:
        return False
    flat = mask.reshape(tail.shape)
    return any(torch.equal(flat == value, tail) for value in flat.unique())


def _are_lengths(given: Tensor, tail: Tensor) -> bool:
    """Whether a tensor tells how long the rows are, some of which are padded behind."""
    return given.dim() == 1 and bool(tail[:, -1].any()) and torch.equal(given.long(), (~tail).sum(1).to(given.device))


def _looked_up(call: Call) -> list[Tensor]:
    """What the tables in a module are asked for: these are no masks, though one of their ids may mark padding."""
    found: list[Tensor] = []
    tables = [part for part in call.module.modules() if isinstance(part, nn.Embedding)]
    hooks = [table.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0])) for table in tables]
    try:
        call.answers()
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _others(ids: Tensor, among: Tensor) -> Tensor:
    """For each id another one of those that occur."""
    known = among.unique()
    return known[(torch.searchsorted(known, ids.contiguous().clamp(max=int(known[-1]))) + 1) % len(known)]


def _distance(first: Tensor, second: Tensor) -> float:
    if not first.numel() or not bool(first.isfinite().all()) or not bool(second.isfinite().all()):
        return 0.0
    return float((first - second).abs().max() / first.abs().max().clamp(min=1e-6))


@contextmanager
def _quietly(module: nn.Module) -> Iterator[None]:
    """In evaluation mode, without graphs; then modes, buffers and random state are as they were."""
    modes = [(part, part.training) for part in module.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            module.eval()
            yield
        finally:
            for part, training in modes:
                part.training = training
            for buffer, value in buffers:
                buffer.copy_(value)
