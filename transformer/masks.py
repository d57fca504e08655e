"""Masks: bool tensors, True = may attend, that broadcast to the scores ``(B, H, Tq, Tk)``. Combine them with &."""

from __future__ import annotations

import numpy as np

from minigrad import Tensor, from_numpy


def causal_mask(n_query: int, n_key: int | None = None) -> Tensor:
    """``(n_query, n_key)``: no query sees a later key; the last query is the last key (document 000 section 2.7.2).

    n_key is n_query unless given; with cached keys it is larger, and query i sees the keys up to i + n_key - n_query.
    Raises ValueError when there are more queries than keys.
    """
    n_key = n_query if n_key is None else n_key
    if n_key < n_query:
        raise ValueError(f"causal_mask: {n_query} queries cannot all be among {n_key} keys")
    return from_numpy(np.tri(n_query, n_key, n_key - n_query, dtype=bool))


def padding_mask(ids: Tensor, pad_id: int = 0) -> Tensor:
    """``(B, 1, 1, T)``: the keys that are real tokens, for every query. ids ``(B, T)`` int."""
    return (ids != pad_id).unsqueeze(1).unsqueeze(1)


def causal_padding_mask(ids: Tensor, pad_id: int = 0) -> Tensor:
    """``(B, 1, T, T)``: real tokens that are not in the future (document 002, create_tgt_mask). ids ``(B, T)`` int."""
    return padding_mask(ids, pad_id) & causal_mask(ids.shape[1])
