"""Cross-entropies that a script writes by hand: `log_softmax` and `gather`, `logsumexp` minus the label's logit, a
one-hot times a logarithm.

Whatever the form, the gradient tells the label: a row of log-probabilities gets one number at it, and the others get
none or, smoothed, all the same; a row of logits that was summed by `logsumexp` gets one number below zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from conformance.watch.events import Targets, Written
from conformance.watch.losses import array
from conformance.watch.targets import LARGEST, Array, Question
from conformance.watch.watcher import Seen, Watcher, stack

IGNORED = -100
SUMMED = "logsumexp"


def tap(watcher: Watcher) -> None:
    taps = _Written(watcher)
    for owner in (F, torch, Tensor):
        for name in ("log_softmax", "softmax"):
            watcher.around(owner, name, taps.normalised(name))
    for owner in (torch, Tensor):
        watcher.around(owner, SUMMED, taps.logsumexp)


class _Written:
    def __init__(self, watcher: Watcher) -> None:
        self.watcher, self.inside = watcher, False

    def normalised(self, name: str) -> Any:
        def tapped(original: Any, input: Tensor, *rest: Any, **keywords: Any) -> Tensor:
            if self.inside:  # F.softmax calls the tensor's own
                nested: Tensor = original(input, *rest, **keywords)
                return nested
            self.inside = True
            try:
                result: Tensor = original(input, *rest, **keywords)
            finally:
                self.inside = False
            self._follow(name, result, input)
            return result

        return tapped

    def logsumexp(self, original: Any, input: Tensor, *rest: Any, **keywords: Any) -> Tensor:
        result: Tensor = original(input, *rest, **keywords)
        self._follow(SUMMED, input, input)
        return result

    def _follow(self, name: str, graded: Tensor, logits: Tensor) -> None:
        """Look at the gradient of what a loss may be written from. graded: what gets it; logits: (..., V)."""
        watcher = self.watcher
        if not watcher.is_close or not graded.requires_grad or not 2 <= graded.dim() <= 3 or graded.numel() > LARGEST:
            return
        rows, seen, around = logits.detach(), watcher.seen, stack()

        def look(gradient: Tensor) -> None:
            if watcher.is_over or not watcher.in_backward:
                return
            with watcher.looking():
                grown = array(gradient.flatten(0, -2))
                labels = labels_of(grown, name == SUMMED)
                if labels is not None:
                    some = labels != IGNORED
                    raised = float((grown[some, labels[some]] < 0).mean())
                    event = Written(name=name, targets=Targets(total=labels.size), raised=raised, stack=around)
                    self._compare(event.targets, rows, labels, seen)
                    watcher.add(event)

        graded.register_hook(look)

    def _compare(self, targets: Targets, rows: Tensor, labels: Array, seen: Seen) -> None:
        wide = [*([rows._base] if rows._base is not None else []), *seen.results, *seen.answers[rows.shape[-1]]]
        results = [array(one) for one in wide if one.dim() == 3 and one.shape[-1] == rows.shape[-1]]
        question = Question(targets, array(rows.flatten(0, -2)), labels, IGNORED, results, seen.inputs)
        targets.counted = int((labels != IGNORED).sum())
        question.unweighed()


def labels_of(gradient: Array, is_summed: bool) -> Array | None:
    """The labels that rows (N, V) are asked for, as their gradient tells them; IGNORED where it is zero. None where it
    is that of no such loss."""
    counts = gradient.any(-1)
    some = gradient[counts].astype(np.float64)
    if len(some) < 2 or some.shape[-1] < 3:
        return None
    if is_summed:
        found = some.argmin(-1)
        is_one = (some < 0).sum(-1) == 1
    else:
        found = abs(some).argmax(-1)
        rest = some.copy()
        np.put_along_axis(rest, found[:, None], np.nan, 1)
        low, high = np.nanmin(rest, -1), np.nanmax(rest, -1)
        is_one = high - low <= 1e-4 * abs(some).max(-1)
    if not is_one.all():
        return None
    labels = np.full(len(gradient), IGNORED, np.int64)
    labels[counts] = found
    return labels
