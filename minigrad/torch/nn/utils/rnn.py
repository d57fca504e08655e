"""torch.nn.utils.rnn: sequences of different lengths as one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import minigrad
from minigrad.tensor import Tensor as _Tensor
from minigrad.torch._missing import missing as _missing


def pad_sequence(
    sequences: Sequence[_Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> _Tensor:
    """Tensors ``(T_i, *)`` as one, ``(T, B, *)`` or with `batch_first` ``(B, T, *)``, with T the largest T_i.

    Raises ValueError for no sequence, one without dimensions, other trailing sizes and another side than left or right.
    """
    sequences = list(sequences)
    if padding_side not in ("left", "right"):
        raise ValueError(f"pad_sequence: padding_side must be 'left' or 'right', got {padding_side!r}")
    if not sequences or any(not x.ndim or x.shape[1:] != sequences[0].shape[1:] for x in sequences):
        raise ValueError(
            f"pad_sequence: shapes {[list(x.shape) for x in sequences]} cannot be padded to one: give at least one "
            "sequence, and sizes that differ in the first dimension only"
        )
    longest = max(x.shape[0] for x in sequences)
    padded = []
    for x in sequences:
        gap = minigrad.full((longest - x.shape[0], *x.shape[1:]), padding_value, dtype=x.dtype, device=x.device)
        padded.append(minigrad.cat([gap, x] if padding_side == "left" else [x, gap]))
    return minigrad.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: _Tensor, lengths: Any, batch_first: bool = False) -> list[_Tensor]:
    """The sequences of `pad_sequence` again, of the given lengths."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[: int(length)] for row, length in zip(rows, lengths, strict=True)]


__getattr__ = _missing(__name__, globals())
