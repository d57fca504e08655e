"""Token ids as every model takes them: integers ``(B, T)``."""

from __future__ import annotations

from minigrad import Tensor


def check_ids(ids: Tensor, name: str = "ids", at_least: int = 1) -> None:
    """Raise TypeError unless `ids` are integers, ValueError unless they are ``(B, T)`` with T >= at_least."""
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{name} must be token ids (integers), got {ids.dtype.name}")
    if ids.ndim != 2 or ids.shape[1] < at_least:
        tokens = "one token" if at_least == 1 else f"{at_least} tokens"
        raise ValueError(f"{name} must be (B, T) with at least {tokens}, got shape {list(ids.shape)}")
