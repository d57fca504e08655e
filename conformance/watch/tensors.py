"""The tensors in what is given and given back, and fingerprints of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from conformance.watch.targets import fingerprints


def tensors(value: Any, depth: int) -> Iterator[Tensor]:
    """The tensors in a value, so many levels deep."""
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item, depth - 1)
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item, depth - 1)
    elif depth and hasattr(value, "__dict__") and not isinstance(value, nn.Module):
        yield from tensors(vars(value), depth - 1)


WINDOW, SHARE = 24, 8
"""How many ids a stretch has, and of how many stretches one is kept: always the same ones, wherever they stand."""


def windows(given: Iterable[Tensor]) -> frozenset[int]:
    """Fingerprints of some stretches of the first whole numbers (B, T); none where T is not well above a stretch."""
    rows = [one for one in given if one.dim() == 2 and not one.is_floating_point() and one.dtype != torch.bool]
    if not rows or rows[0].shape[1] < WINDOW + 8 or rows[0].numel() > 2**20 or rows[0].device.type != "cpu":
        return frozenset()
    ids = rows[0].detach().numpy().astype(np.uint64)
    with np.errstate(over="ignore"):
        found = np.zeros((ids.shape[0], ids.shape[1] - WINDOW + 1), np.uint64)
        for place in range(WINDOW):
            found = found * np.uint64(0x100000001B3) + ids[:, place : place + found.shape[1]] + np.uint64(1)
        found ^= found >> np.uint64(29)
        found *= np.uint64(0xBF58476D1CE4E5B9)
    found = found[(found >> np.uint64(32)) % np.uint64(SHARE) == 0]
    return frozenset(found.tolist())


def samples(given: Iterable[Tensor], axis: int = 0) -> tuple[int, ...]:
    """A fingerprint of each row of the first tensor of at least two axes; whole numbers come before others. axis 1: of
    each column, where that tensor has two axes and whole numbers."""
    rows = [tensor for tensor in given if tensor.dim() >= 2 and not tensor.is_sparse]
    rows.sort(key=lambda tensor: tensor.is_floating_point())
    if not rows or rows[0].numel() > 2**22 or rows[0].device.type != "cpu":
        return ()
    first = rows[0].detach()
    if axis:
        return () if first.dim() > 2 or first.is_floating_point() else fingerprints(first.T.contiguous().numpy())
    contiguous = first.contiguous()
    return fingerprints((contiguous.view(torch.int16) if first.dtype == torch.bfloat16 else contiguous).numpy())
