"""What training needs beside a model: teacher forcing."""

from __future__ import annotations

from minigrad import Tensor


def shift_targets(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Teacher forcing: the decoder's input, all but the last token, and its labels, all but the first.

    ids ``(B, T)`` to two tensors ``(B, T - 1)``: at each position the label is the token that follows the input
    (document 002, training). Raises ValueError for fewer than two tokens.
    """
    if ids.ndim != 2 or ids.shape[1] < 2:
        raise ValueError(f"shift_targets needs ids (B, T) with at least two tokens, got shape {list(ids.shape)}")
    return ids[:, :-1], ids[:, 1:]
