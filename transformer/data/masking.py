"""The masked-language task of BERT (Devlin et al. 2019): some tokens are hidden, and only those are to be predicted."""

from __future__ import annotations

import numpy as np

from transformer.data.tokenizer import PAD


def mask_tokens(
    ids: np.ndarray, rng: np.random.Generator, mask_id: int, vocab: int, first: int = 1, share: float = 0.15
) -> tuple[np.ndarray, np.ndarray]:
    """(what the model reads, labels), both int ``(B, T)``; labels are PAD where nothing is to be predicted.

    Of the tokens chosen (each with probability `share`, one at least in a batch, never padding) 80 % become `mask_id`,
    10 % a random token in [first, vocab), and 10 % stay. Raises ValueError for a share outside (0, 1], and for ids that
    are all padding.
    """
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share must lie in (0, 1], got {share}")
    real = ids != PAD
    if not real.any():
        raise ValueError("there is nothing to mask: all ids are padding")
    chosen = real & (rng.random(ids.shape) < share)
    if not chosen.any():
        chosen.flat[rng.choice(np.flatnonzero(real))] = True
    fate = rng.random(ids.shape)
    read = np.where(chosen & (fate < 0.8), mask_id, ids)
    read = np.where(chosen & (fate >= 0.9), rng.integers(first, vocab, ids.shape), read)
    return read, np.where(chosen, ids, PAD)
