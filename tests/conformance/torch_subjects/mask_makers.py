"""A file with a function that makes masks, and attention that takes them, or their opposite."""

from __future__ import annotations

import torch

from torch_subjects.attention import HiddenMask, SeparateProjections


def subsequent_mask(size):
    """Marks what is visible."""
    return torch.ones(1, size, size).triu(1) == 0


class Opposite(HiddenMask):
    """Hides what is marked."""


class Agreeing(SeparateProjections):
    """Shows what is marked."""


class OppositeByNumber(SeparateProjections):
    """Hides what is not 0: numbers to add would do, too."""

    def masked(self, scores, mask):
        return scores.masked_fill(mask != 0, float("-inf"))
