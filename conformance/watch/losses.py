"""Taps on losses: what a cross-entropy or a divergence is given, and of which token each label is.

Which label belongs to which place of the input is read from what happened: the rows that reach the loss are found among
the rows that the modules gave, and the labels compared with the ids that tables were asked for. Which labels count is
read from the gradient of the rows, so it does not matter how a script leaves some out.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from conformance.watch.record import Loss, Targets
from conformance.watch.watcher import Seen, Watcher, place

OFFSETS = (-1, 0, 1, 2)
"""How far a label may be ahead of the input: 1 is the next token, 0 its own, 2 is shifted twice, -1 backwards."""

SURE = 0.9
"""Labels are the ids so far ahead where more than this share of them is."""

LARGEST = 2**25
"""The rows of a loss are looked at when they have at most so many numbers."""


def tap(watcher: Watcher) -> None:
    taps = _Losses(watcher)
    for name in ("cross_entropy", "nll_loss", "kl_div", "binary_cross_entropy_with_logits", "binary_cross_entropy"):
        watcher.around(F, name, getattr(taps, name, taps.other(name)))
    watcher.around(F, "mse_loss", taps.other("mse_loss"))
    for owner in (F, torch, Tensor):
        watcher.around(owner, "softmax", taps.softmax)


class _Losses:
    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.inside = False

    def softmax(self, original: Any, *rest: Any, **keywords: Any) -> Tensor:
        result: Tensor = original(*rest, **keywords)
        if self.watcher.is_close and result.grad_fn is not None:
            self.watcher.seen.softmaxes.append((result.grad_fn, place()))
        return result

    def other(self, name: str) -> Any:
        """The tap of a loss of which only its value is seen."""

        def tapped(original: Any, input: Tensor, target: Tensor, *rest: Any, **keywords: Any) -> Tensor:
            result: Tensor = original(input, target, *rest, **keywords)
            if not self.inside:
                event = self._add(name, input, result, keywords.get("reduction", "mean"))
                if isinstance(target, Tensor) and input.shape != target.shape:
                    event.shapes = f"{tuple(input.shape)} and {tuple(target.shape)}"
            return result

        return tapped

    def cross_entropy(self, original: Any, input: Tensor, target: Tensor, *rest: Any, **keywords: Any) -> Tensor:
        return self._classes("cross_entropy", original, input, target, *rest, **keywords)

    def nll_loss(self, original: Any, input: Tensor, target: Tensor, *rest: Any, **keywords: Any) -> Tensor:
        return self._classes("nll_loss", original, input, target, *rest, **keywords)

    def _classes(self, name: str, original: Any, input: Tensor, target: Tensor, *rest: Any, **keywords: Any) -> Tensor:
        if self.inside:
            result: Tensor = original(input, target, *rest, **keywords)
            return result
        self.inside = True
        try:
            result = original(input, target, *rest, **keywords)
        finally:
            self.inside = False
        event = self._add(name, input, result, keywords.get("reduction", "mean"))
        event.smoothing = float(keywords.get("label_smoothing", 0.0))
        if self.watcher.is_close and input.numel() <= LARGEST and input.dim() >= 2:
            with self.watcher.looking():
                rows = input.detach().movedim(1, -1).flatten(0, -2) if input.dim() > 2 else input.detach()
                event.input, event.classes = kind_of(rows), rows.shape[-1]
                if event.input == "probabilities":
                    event.softmax = self._softmax_of(input)
                if not target.is_floating_point() and target.numel() == rows.shape[0]:
                    ignored = keywords.get("ignore_index", rest[2] if len(rest) > 2 else -100)
                    self._targets(event, input, rows, target.detach().reshape(-1).clone(), int(ignored))
        return result

    def kl_div(self, original: Any, input: Tensor, target: Tensor, *rest: Any, **keywords: Any) -> Tensor:
        result: Tensor = original(input, target, *rest, **keywords)
        event = self._add("kl_div", input, result, keywords.get("reduction", "mean"))
        if self.watcher.is_close and input.numel() <= LARGEST and input.dim() >= 2 and input.shape == target.shape:
            with self.watcher.looking():
                rows, wanted = input.detach().flatten(0, -2), target.detach().flatten(0, -2).double()
                wanted = wanted.exp() if keywords.get("log_target") else wanted
                event.input, event.classes = kind_of(rows), rows.shape[-1]
                sums = wanted.sum(-1)
                bound = 16 * torch.finfo(target.dtype).eps
                sums = torch.where((sums - 1).abs() < bound, 1.0, sums)
                real = sums[sums > 1e-6]
                event.rows = (float(real.min()), float(real.max())) if len(real) else (0.0, 0.0)
                best = wanted.argmax(-1)
                if event.rows[1] > 0:
                    self._targets(event, input, rows, torch.where(sums > 1e-6, best, -100), -100)
        return result

    def _add(self, name: str, input: Tensor, result: Tensor, reduction: str) -> Loss:
        value = None
        with self.watcher.looking():
            value = float(result.detach()) if isinstance(result, Tensor) and result.numel() == 1 else None
        return self.watcher.add(
            Loss(
                name=name,
                value=value,
                reduction=str(reduction),
                gradients=bool(getattr(result, "requires_grad", False)),
            )
        )

    def _softmax_of(self, input: Tensor) -> str:
        """The line of the softmax whose result a loss got, perhaps in another shape or precision."""
        node: Any = input.grad_fn
        for _ in range(8):
            found = next((line for one, line in self.watcher.seen.softmaxes if one is node), "")
            if node is None or found:
                return found
            node = node.next_functions[0][0] if node.next_functions else None
        return ""

    def _targets(self, event: Loss, input: Tensor, rows: Tensor, labels: Tensor, ignored: int) -> None:
        """Work out what the loss saw, now; and which labels count, when the gradient of its rows comes."""
        targets = Targets(total=labels.numel())
        place = positions(rows, input, self.watcher.seen, labels.numel())
        ids = [i for i in self.watcher.seen.inputs if _is_text(*i[:2], classes=rows.shape[-1])]
        event.targets = targets

        def weigh(gradient: Tensor) -> None:
            if self.watcher.is_over or targets.counted:
                return
            with self.watcher.looking():
                grown = gradient.movedim(1, -1).flatten(0, -2) if gradient.dim() > 2 else gradient
                if event.name == "kl_div":
                    grown = gradient.flatten(0, -2)
                counts = grown.abs().amax(-1) > 0
                if event.name == "cross_entropy":
                    grown = grown / self.watcher.scale
                    targets.over_all = is_over_all(rows, grown, labels, counts, event.smoothing)
                targets.counted = int(counts.sum())
                learned = compare(targets, place, ids, labels, counts & (labels != ignored))
                for call in self.watcher.calls.values():
                    call.learned = learned

        if input.requires_grad:
            input.register_hook(weigh)
        else:
            compare(targets, place, ids, labels, labels != ignored)


def kind_of(rows: Tensor) -> str:
    """What the rows that a loss gets are; "" where they hold NaN or nothing finite."""
    some, bound = rows[: 2**12].double(), max(1e-3, 16 * torch.finfo(rows.dtype).eps)
    if not bool(some.isfinite().any(-1).all()) or bool(some.isnan().any()):
        return ""
    if bool((some >= 0).all()) and bool(((some.sum(-1) - 1).abs() < bound).all()):
        return "probabilities"
    if bool((some <= bound).all()) and bool((some.logsumexp(-1).abs() < bound).all()):
        return "log-probabilities"
    return "logits"


def is_over_all(rows: Tensor, grown: Tensor, labels: Tensor, counts: Tensor, smoothing: float = 0.0) -> bool:
    """Whether the sum over the labels that count is divided by the number of all labels, and perhaps by a number of
    accumulated batches. rows: logits (N, V); grown: their gradient."""
    counted, total = int(counts.sum()), labels.numel()
    if not 0 < counted < total:
        return False
    index = labels.clamp(0, rows.shape[-1] - 1)[:, None]
    missing = 1 - smoothing + smoothing / rows.shape[-1] - rows.double().softmax(-1).gather(1, index)[:, 0]
    clear = counts & (missing > 0.05)
    if not bool(clear.any()):
        return False
    weight = float((-grown.double().gather(1, index)[:, 0] / missing)[clear].median())
    batches = {number: 1 / (weight * number) if weight > 0 else 0.0 for number in (counted, total)}
    is_whole = {number: share >= 0.99 and abs(share - round(share)) < 0.01 for number, share in batches.items()}
    return is_whole[total] and not is_whole[counted]


def positions(rows: Tensor, input: Tensor, seen: Seen, count: int) -> Tensor | None:
    """The place of each row in the tensor (B, T, classes) that a module gave, as a flat index (N,), with the shape of
    its first two axes in front: (B, T, index...); None when the rows are found nowhere."""
    wide = [r.detach() for r in seen.results if r.dim() == 3 and r.shape[-1] == rows.shape[-1]]
    base = input._base
    if base is not None and base.dim() == 3 and base.shape[-1] == rows.shape[-1]:
        wide.append(base.detach())
    for result in reversed(wide):
        flat = result.reshape(-1, result.shape[-1])
        index = torch.arange(count) if _alike(flat, rows) else _found(flat, rows)
        if index is not None:
            return torch.cat([torch.tensor(result.shape[:2]), index])
    return None


def _alike(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and (torch.equal(first, second) or _same_rows(first, second).all().item())


def _same_rows(first: Tensor, second: Tensor) -> Tensor:
    """Whether rows differ by a number each only: as logits and their log-softmax do."""
    difference = first.double() - second.double()
    return (difference - difference.mean(-1, keepdim=True)).abs().amax(-1) < 1e-4


def _found(flat: Tensor, rows: Tensor) -> Tensor | None:
    """The index of each row in `flat`, alike ones in order; None when one is missing."""
    if len(rows) > len(flat):
        return None
    places: dict[bytes, deque[int]] = defaultdict(deque)
    for number, row in enumerate(flat[:, :8].float().numpy()):
        places[row.tobytes()].append(number)
    found = []
    for row in rows[:, :8].float().numpy():
        alike = places.get(row.tobytes())
        if not alike:
            return None
        found.append(alike.popleft())
    return torch.tensor(found)


def compare(
    targets: Targets, place: Tensor | None, ids: list[tuple[Tensor, int, int | None]], labels: Tensor, counts: Tensor
) -> Tensor | None:
    """Compare the labels that count with the ids around their places. Returns the ids (B, T) whose next ones the labels
    are, None where they are others."""
    if place is None or not bool(counts.any()):
        return None
    shape, index = tuple(place[:2].tolist()), place[2:]
    fitting = list(_in_layout(ids, shape))
    if len(index) != len(labels) or not fitting:
        return None
    shares = [_offsets(one, index, labels, counts) for one, _ in fitting]
    best = max(range(len(shares)), key=lambda i: (_next(shares[i][1]) > SURE, max(shares[i][1].values(), default=0.0)))
    inputs, pad = fitting[best]
    targets.tokens = inputs.numel()
    axis, targets.offsets = shares[best]
    if max(targets.offsets.values(), default=0.0) < SURE and len(labels) == shape[0] * shape[1]:
        across = [flat.reshape(*shape[::-1]).T.reshape(-1) for flat in (labels, counts)]
        otherwise = ((index, *across), (torch.arange(len(labels)), labels, counts))
        targets.crossed = any(_next(_offsets(one, *other)[1]) > SURE for one, _ in fitting for other in otherwise)
    flat = inputs.reshape(-1)[index]
    targets.kept = float((flat == labels)[counts].double().mean())
    _, numbers = flat[counts].unique(return_counts=True)
    targets.masked = bool(numbers.max() > 0.5 * counts.sum()) and len(labels[counts].unique()) > 1
    _padding(targets, inputs, index, labels, counts, pad)
    return (inputs if axis == 1 else inputs.T) if _next(targets.offsets) > SURE else None


def _next(shares: Mapping[int, float]) -> float:
    return shares.get(1, 0.0)


def _in_layout(
    ids: list[tuple[Tensor, int, int | None]], shape: tuple[int, ...]
) -> Iterator[tuple[Tensor, int | None]]:
    """The ids in the layout of the result: (B, T), or turned round where a module turned them."""
    for one, _, pad in ids:
        if tuple(one.shape) == shape:
            yield one, pad
        elif tuple(one.shape) == shape[::-1]:
            yield one.T, pad


def _offsets(ids: Tensor, index: Tensor, labels: Tensor, counts: Tensor) -> tuple[int, dict[int, float]]:
    """The axis of time, and the share of counted labels that are the id so far ahead along it."""
    best, shares = 1, dict[int, float]()
    for axis in (1, 0):
        length = ids.shape[axis]
        found: dict[int, float] = {}
        at = index % ids.shape[1] if axis == 1 else index // ids.shape[1]
        for offset in OFFSETS:
            there = at + offset
            inside = (there >= 0) & (there < length) & counts
            if not bool(inside.any()):
                continue
            ahead = index + offset * (1 if axis == 1 else ids.shape[1])
            same = ids.reshape(-1)[ahead.clamp(0, ids.numel() - 1)] == labels
            found[offset] = float(same[inside].double().mean())
        if max(found.values(), default=0.0) > max(shares.values(), default=0.0):
            best, shares = axis, found
    return best, shares


def _padding(targets: Targets, ids: Tensor, index: Tensor, labels: Tensor, counts: Tensor, pad: int | None) -> None:
    """Count the labels of padding that follows padding, and those of them that weigh in the loss. Padding is the id
    that a table says, or one that stands at the ends of some rows, repeated, and nowhere else."""
    for turned, back in ((ids, lambda found: found), (ids.T, lambda found: found.T)):
        value = pad if pad is not None else int(turned[:, -1].mode().values)
        tail = (turned == value).flip(1).cumprod(1).flip(1).bool()
        lengths = tail.sum(1)
        is_padded = int(lengths.max()) >= 2 and int(lengths.min()) < int(lengths.max())
        if not is_padded or (pad is None and not _is_only_padding(turned == value, tail)):
            continue
        found = back(tail).reshape(-1)[index] & (labels == value)
        targets.pads, targets.padding, targets.pad = int(found.sum()), int((found & counts).sum()), value
        return


def _is_only_padding(found: Tensor, tail: Tensor) -> bool:
    """Whether an id stands at the ends of rows only: of several, in several lengths, and of no row all along."""
    lengths = tail.sum(1)
    several = len(lengths) >= 4 and int((lengths >= 2).sum()) >= 2 and len(lengths.unique()) >= 3
    return several and int(lengths.max()) < found.shape[1] and not bool((found & ~tail).any())


def _is_text(ids: Tensor, rows: int, classes: int) -> bool:
    """Whether ids (B, T) are tokens of the vocabulary that a loss chooses from: its size, but for a few special ones,
    and no positions, each one more than the one before."""
    return ids.dim() == 2 and ids.shape[1] > 1 and abs(rows - classes) <= 64 and not _is_range(ids)


def _is_range(ids: Tensor) -> bool:
    return bool((ids[:, 1:] - ids[:, :-1] == 1).all()) or bool((ids[1:] == ids[:1]).all() and ids.shape[0] > 1)
