"""Masks: bool tensors, True = may attend, that broadcast to the scores ``(B, H, Tq, Tk)``. Combine them with &.

`device`: where the mask is made, that of what it masks.
"""

from __future__ import annotations

import numpy as np

import minigrad as mg
from minigrad import Tensor, from_numpy
from transformer.places import Start, end, positions


def causal_mask(n_query: int, n_key: int | None = None, device: str = "cpu") -> Tensor:
    """``(n_query, n_key)``: no query sees a later key; the last query is the last key (document 000 section 2.7.2).

    n_key is n_query unless given; with cached keys it is larger, and query i sees the keys up to i + n_key - n_query.
    Raises ValueError when there are more queries than keys.
    """
    n_key = n_query if n_key is None else n_key
    if n_key < n_query:
        raise ValueError(f"causal_mask: {n_query} queries cannot all be among {n_key} keys")
    return from_numpy(np.tri(n_query, n_key, n_key - n_query, dtype=bool), device)


def sliding_window_mask(
    n_query: int, window: int, n_key: int | None = None, causal: bool = True, device: str = "cpu"
) -> Tensor:
    """``(n_query, n_key)``: each query sees the keys at distance below `window`, none later if `causal`.

    Aligned as `causal_mask` is (Beltagy et al. 2020; Mistral's window of the last `window` tokens). Raises ValueError
    for a window below 1.
    """
    if window < 1:
        raise ValueError(f"sliding_window_mask: a window holds at least the token itself, got {window}")
    distance = _distances(n_query, n_key)
    return from_numpy((distance < window) & ((distance >= 0) if causal else (distance > -window)), device)


def visible_mask(n: int, start: Start, window: int | None = None, device: str = "cpu") -> Tensor:
    """``(n, Tk)``: what `n` new tokens behind `start` others see: no later key, the last `window` only where given."""
    if isinstance(start, int):
        keys = start + n
        return causal_mask(n, keys, device) if window is None else sliding_window_mask(n, window, keys, device=device)
    behind = positions(start, n).unsqueeze(1) - mg.arange(end(start, n), device=device)
    return behind >= 0 if window is None else (behind >= 0) & (behind < window)


def block_sparse_mask(
    n_query: int,
    block: int,
    local: int = 1,
    global_blocks: int = 1,
    n_key: int | None = None,
    causal: bool = False,
    device: str = "cpu",
) -> Tensor:
    """``(n_query, n_key)``, made of blocks of `block` positions: local blocks, and global ones that see and are seen.

    A query block sees key blocks up to `local` away, and the first `global_blocks`; these see everything (Zaheer et al.
    2020, without the random blocks). With `causal` no query sees a later key. Aligned as `causal_mask` is. Raises
    ValueError for a block below 1 or negative counts.
    """
    if block < 1 or local < 0 or global_blocks < 0:
        raise ValueError(
            f"block_sparse_mask: block must be at least 1, local and global_blocks at least 0, got {block}, {local}, "
            f"{global_blocks}"
        )
    distance = _distances(n_query, n_key)
    n_key = distance.shape[1]
    keys = np.arange(n_key) // block
    queries = keys[n_key - n_query :, None]
    visible = (np.abs(queries - keys) <= local) | (keys < global_blocks) | (queries < global_blocks)
    return from_numpy(visible & (distance >= 0) if causal else visible, device)


def _distances(n_query: int, n_key: int | None) -> np.ndarray:
    """How far behind each query each key lies, int64 ``(n_query, n_key)``; the last query is the last key."""
    n_key = n_query if n_key is None else n_key
    if n_key < n_query:
        raise ValueError(f"{n_query} queries cannot all be among {n_key} keys")
    return np.arange(n_key - n_query, n_key)[:, None] - np.arange(n_key)


def padding_mask(ids: Tensor, pad_id: int = 0) -> Tensor:
    """``(B, 1, 1, T)``: the keys that are real tokens, for every query. ids ``(B, T)`` int."""
    return (ids != pad_id).unsqueeze(1).unsqueeze(1)


def causal_padding_mask(ids: Tensor, pad_id: int = 0) -> Tensor:
    """``(B, 1, T, T)``: real tokens that are not in the future (document 002, create_tgt_mask). ids ``(B, T)`` int."""
    return padding_mask(ids, pad_id) & causal_mask(ids.shape[1], device=ids.device)
