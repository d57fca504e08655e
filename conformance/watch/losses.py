"""Taps on torch's losses: what a cross-entropy or a divergence is given. `targets` works out what it is asked."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from conformance.watch.comparing import (
    apart,
    are_cut_anew,
    asks_in_columns,
    frames_of,
    holds_itself,
    pairs_of,
    sides_of,
)
from conformance.watch.ends import named_in
from conformance.watch.events import Difference, Loss, Targets
from conformance.watch.targets import LARGEST, Array, Question, asks_for_the_next, kind_of, mode, tail_of
from conformance.watch.watcher import Watcher, place, users_frames

PATTERNS = 40
"""In so many steps, from the start on and from a new module or optimizer on, it is kept which labels are ignored, and
which are asked for."""


def tap(watcher: Watcher) -> None:
    taps = _Losses(watcher)
    for name in ("cross_entropy", "nll_loss", "kl_div", "binary_cross_entropy_with_logits", "binary_cross_entropy"):
        watcher.around(F, name, getattr(taps, name, taps.other(name)))
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        watcher.around(F, name, taps.other(name))
    watcher.around(F, "ctc_loss", taps.ctc_loss)
    for owner in (F, torch, Tensor):
        for name in ("softmax", "sigmoid"):
            watcher.around(owner, name, taps.softmax)
    for name in ("sub", "__sub__"):
        watcher.around(Tensor, name, taps.difference)


_SHAPES = re.compile(r"(Unsafe)?View|ReshapeAlias|(Uns|S)queeze|Slice|Select|Index|T|Transpose|Permute|Clone|ToCopy")


def _is_squashed(input: Tensor) -> bool:
    """Whether a loss got what a sigmoid or a softmax gave, perhaps in another shape or precision."""
    node: Any = input.grad_fn
    while node is not None and _SHAPES.fullmatch(re.sub(r"Backward\d+$", "", node.name())):
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith(("SigmoidBackward", "SoftmaxBackward"))


def _class_of_padding(ids: Array, tail: Array, labels: Array, asked: Array) -> int | None:
    """The class that the padding of an input is asked for, where labels elsewhere are left out, and labels are classes:
    most are neither the words at their places nor the next ones. None where it is left out, too, or there is none."""
    length, real = tail.sum(1), asked & ~tail
    if length.max() < 2 or length.min() == length.max() or asked.all() or not asked[tail].all() or not real.any():
        return None
    classes, ahead = np.unique(labels[tail]), np.roll(ids, -1, 1)
    are_words = max(np.mean(labels[real] == words[real]) for words in (ids, ahead)) > 0.5
    return int(classes[0]) if len(classes) == 1 and not are_words else None


def _is_early(ids: Array, tail: Array, asked: Array) -> bool:
    """Whether the token that opens every row is asked for its class, and the last word of every row, before the token
    that closes it, is not: labels that lie one place too far ahead."""
    rows, last = np.arange(len(ids)), ids.shape[1] - tail.sum(1) - 1
    if len(ids) < 4 or last.min() < 3:
        return False
    opening, closing = np.unique(ids[:, 0]), np.unique(ids[rows, last])
    are_signs = len(opening) == len(closing) == 1 and (ids == opening[0]).sum() == len(ids)
    return bool(are_signs and asked[:, 0].all() and not asked[rows, last].any() and not asked[rows, last - 1].any())


def _behind(ids: Array, asked: Array) -> int | None:
    """How far behind the sign that ends every prompt the first label lies: 0 where the token at its place is one sign
    in all rows, 1 where the one before is. None where there is no such sign, or where both are."""
    rows = np.flatnonzero(asked.any(1))
    first = asked.argmax(1)[rows]
    if len(rows) < 4 or first.min() < 2:
        return None
    here, before = (len(np.unique(ids[rows, at])) == 1 for at in (first, first - 1))
    return None if here == before else int(before)


def _ends_with(series: Tensor, first: Tensor) -> bool:
    """Whether what follows a series (B, T) or (B, T, F) is nearly its last number, of one feature: far nearer than this
    is to the one before. Noise may have been added to it, and some rows may have a gap."""
    if series.shape[1] < 3 or len(series) < 8:
        return False
    last, before = (series[:, at].reshape(len(series), -1).double() for at in (-1, -2))
    apart, step = ((last - other).abs().median(0).values for other in (first.double()[:, None], before))
    return bool((apart < 0.2 * step).any())


class _Losses:
    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.inside = False

    def softmax(self, original: Any, *rest: Any, **keywords: Any) -> Tensor:
        result: Tensor = original(*rest, **keywords)
        if self.watcher.is_close and result.grad_fn is not None:
            self.watcher.seen.softmaxes.append((result.grad_fn, place()))
        return result

    def difference(self, original: Any, one: Tensor, other: Any, *rest: Any, **keywords: Any) -> Tensor:
        """Of numbers that learn, one for each row, and numbers that do not, outside of every module."""
        result: Tensor = original(one, other, *rest, **keywords)
        watcher = self.watcher
        if not watcher.is_close or watcher.depth or not isinstance(other, Tensor) or not isinstance(one, Tensor):
            return result
        if one.requires_grad != other.requires_grad and one.shape == other.shape:
            with watcher.looking():
                if self._is_held(other if one.requires_grad else one):
                    watcher.add(Difference(held=True))
        rows = one.shape[0] if one.dim() else 0
        is_of_rows = rows > 1 and all(x.dim() and x.shape[0] == x.numel() == rows for x in (one, other))
        answers = [x for x in (one, other) if x.requires_grad]
        if is_of_rows and len(answers) == 1 and answers[0].grad_fn is not None and other.is_floating_point():
            pairs = result.numel() == rows * rows
            watcher.add(Difference(shapes=f"{tuple(one.shape)} and {tuple(other.shape)}" if pairs else ""))
        return result

    def other(self, name: str) -> Any:
        """The tap of a loss of which only its value is seen."""

        def tapped(original: Any, input: Tensor, target: Tensor, *rest: Any, **keywords: Any) -> Tensor:
            result: Tensor = original(input, target, *rest, **keywords)
            if not self.inside:
                event = self._add(name, input, result, keywords.get("reduction", "mean"))
                if isinstance(target, Tensor) and input.shape != target.shape:
                    event.shapes = f"{tuple(input.shape)} and {tuple(target.shape)}"
                if self.watcher.is_close and isinstance(target, Tensor) and event.gradients:
                    with self.watcher.looking():
                        event.held = self._is_held(target)
                        if name == "binary_cross_entropy_with_logits":
                            event.input = "probabilities" if _is_squashed(input) else "logits"
                            event.softmax = self._softmax_of(input) if event.input == "probabilities" else ""
            return result

        return tapped

    def _is_held(self, target: Tensor) -> bool:
        """Whether the number that is asked of each row stands at one and the same place of the row that a model got;
        of three and more the first one, and not the second, which stands there where a decoder is given its target."""
        rows = target.shape[0] if target.dim() else 0
        numbers = target.reshape(rows, -1) if rows >= 4 and target.is_floating_point() else target[:0]
        if not numbers.numel() or numbers.shape[1] == 2 or len(numbers[:, 0].unique()) < rows / 2:
            return False
        given = [one for call in self.watcher.calls.values() for one in call.given()]
        floats = [one.flatten(1) for one in given if one.is_floating_point() and one.dim() >= 2 and len(one) == rows]
        places = [[bool((one == number[:, None]).all(0).any()) for one in floats] for number in numbers.T[:2]]
        if any(places[0]) and not (len(places) > 1 and any(places[1])):
            return True
        series = [one for one in given if one.is_floating_point() and one.dim() in (2, 3) and len(one) == rows]
        return numbers.shape[1] > 2 and any(_ends_with(one, numbers[:, 0]) for one in series)

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
        weights = keywords.get("weight", rest[0] if rest else None)
        if isinstance(weights, Tensor) and not target.is_floating_point():
            with self.watcher.looking():
                event.weights = tuple(weights.detach().double().tolist())
                real = target[(target >= 0) & (target < len(event.weights))]
                event.labels = tuple(torch.bincount(real.reshape(-1), minlength=len(event.weights)).tolist())
        if self.watcher.run.steps - self.watcher.new_at < PATTERNS and not target.is_floating_point():
            with self.watcher.looking():
                asked = array(target) != _ignored(rest, keywords)
                event.asked, event.unasked = np.packbits(asked).tobytes(), not asked.all()
                self._labels(event, array(target), asked)
                if self.watcher.is_close:
                    self.watcher.run.ends |= named_in(users_frames())
        if self.watcher.is_close and input.numel() <= LARGEST and input.dim() >= 2:
            with self.watcher.looking():
                event.cut_anew = are_cut_anew(input)
                rows = input.detach().movedim(1, -1).flatten(0, -2) if input.dim() > 2 else input.detach()
                if name == "nll_loss" and asks_in_columns(rows, target):
                    input = input.T
                    rows = rows.T
                event.pairs, event.holds_itself = pairs_of(input, target), holds_itself(input, target)
                event.input, event.classes = kind_of(array(rows), _eps(rows)), rows.shape[-1]
                if event.input == "probabilities":
                    event.softmax = self._softmax_of(input)
                if not target.is_floating_point() and target.numel() == rows.shape[0]:
                    ignored = _ignored(rest, keywords)
                    self._targets(event, input, rows, target.detach().reshape(-1).clone(), ignored)
        return result

    def _labels(self, event: Loss, labels: Array, asked: Array) -> None:
        """What labels ask for, and how they lie over the input."""
        given = [ids for ids, _, _ in self.watcher.seen.inputs if ids.ndim == 2 and ids.shape[1] > 2]
        event.asked_for = frozenset(np.unique(labels[asked]).tolist())
        if labels.ndim == 1 and len(labels) >= 4 and asked.all():
            event.span = int(labels.min()), int(labels.max())
        for ids in given:
            tail = tail_of(ids == mode(ids[:, -1]))
            if asked.size % len(ids) == 0 and asked.size >= 2 * len(ids):
                rows = asked.reshape(len(ids), -1)
                event.lead = int(np.median(rows.argmax(1)))
                if event.behind is None and rows.shape[1] in (ids.shape[1], ids.shape[1] - 1):
                    event.behind = _behind(ids, rows)
            if ids.size == asked.size:
                event.is_early = event.is_early or _is_early(ids, tail, asked.reshape(ids.shape))
            if ids.size == asked.size and np.array_equal(~asked.reshape(ids.shape), tail) and tail.any():
                event.skips_padding = True
            if ids.size == asked.size and event.padded_with is None:
                event.padded_with = _class_of_padding(ids, tail, labels.reshape(ids.shape), asked.reshape(ids.shape))

    def kl_div(self, original: Any, input: Tensor, target: Tensor, *rest: Any, **keywords: Any) -> Tensor:
        result: Tensor = original(input, target, *rest, **keywords)
        event = self._add("kl_div", input, result, keywords.get("reduction", "mean"))
        sides = [name for name, one in (("input", input), ("target", target)) if one.requires_grad]
        event.learner = sides[0] if len(sides) == 1 else "both" if sides else ""
        if self.watcher.is_close and input.numel() <= LARGEST and input.dim() >= 2 and input.shape == target.shape:
            with self.watcher.looking():
                rows, wanted = input.detach().flatten(0, -2), target.detach().flatten(0, -2).double()
                wanted = wanted.exp() if keywords.get("log_target") else wanted
                event.input, event.classes = kind_of(array(rows), _eps(rows)), rows.shape[-1]
                sums = wanted.sum(-1)
                bound = 16 * torch.finfo(target.dtype).eps
                sums = torch.where((sums - 1).abs() < bound, 1.0, sums)
                real = sums[sums > 1e-6]
                event.rows = (float(real.min()), float(real.max())) if len(real) else (0.0, 0.0)
                best = wanted.argmax(-1)
                found = sides_of(rows, wanted, self.watcher.seen.answers[rows.shape[-1]])
                event.softness, event.apart = tuple(one.factor for one in found), apart(found)
                if event.rows[1] > 0:
                    self._targets(event, input, rows, torch.where(sums > 1e-6, best, -100), -100)
        return result

    def ctc_loss(
        self, original: Any, log_probs: Tensor, targets: Tensor, frames: Any, lengths: Any, *rest: Any, **keywords: Any
    ) -> Tensor:
        result: Tensor = original(log_probs, targets, frames, lengths, *rest, **keywords)
        event = self._add("ctc_loss", log_probs, result, keywords.get("reduction", "mean"))
        if self.watcher.is_close and log_probs.numel() <= LARGEST:
            with self.watcher.looking():
                rows, blank = log_probs.detach().reshape(-1, log_probs.shape[-1]), keywords.get("blank", 0)
                event.input, event.classes = kind_of(array(rows), _eps(rows)), rows.shape[-1]
                if event.input == "probabilities":
                    event.softmax = self._softmax_of(log_probs)
                counts = [torch.as_tensor(one).reshape(-1).tolist() for one in (frames, lengths)]
                given = [one for call in self.watcher.calls.values() for one in call.given()]
                blank = int(rest[0] if rest else blank)
                event.frames = frames_of(log_probs, targets, counts[0], counts[1], blank, given)
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
        seen, base = self.watcher.seen, input._base
        wide = [*([base] if base is not None else []), *seen.results]  # a copy of some places stands behind the whole
        results = [array(one) for one in wide if one.dim() == 3 and one.shape[-1] == rows.shape[-1]]
        event.targets = Targets(total=labels.numel())
        question = Question(event.targets, array(rows), array(labels), ignored, results, seen.inputs)

        def weigh(gradient: Tensor) -> None:
            if self.watcher.is_over or question.targets.counted:
                return
            with self.watcher.looking():
                grown = gradient.movedim(1, -1).flatten(0, -2) if gradient.dim() > 2 else gradient
                if event.name == "kl_div":
                    grown = gradient.flatten(0, -2)
                scaled = grown / self.watcher.scale if event.name == "cross_entropy" else grown
                is_summed = event.name == "cross_entropy" and event.reduction != "mean"  # torch's mean leaves them out
                learned = question.weigh(array(scaled), event.smoothing if is_summed else None)
                copied = None if learned is None else torch.from_numpy(learned.copy())
                for call in self.watcher.calls.values():
                    call.learned, call.asked = (copied, None) if asks_for_the_next(question.targets) else (None, copied)

        if input.requires_grad:
            input.register_hook(weigh)
        else:
            question.unweighed()


def _ignored(rest: tuple[Any, ...], keywords: dict[str, Any]) -> int:
    """The label that a loss over classes leaves out."""
    return int(keywords.get("ignore_index", rest[2] if len(rest) > 2 else -100))


def array(tensor: Tensor) -> Array:
    """The values of a tensor; half precision as float32, which holds them."""
    known = tensor.detach().cpu()
    return (known.float() if known.is_floating_point() and known.dtype != torch.float64 else known).numpy()


def _eps(tensor: Tensor) -> float:
    return float(torch.finfo(tensor.dtype).eps)
