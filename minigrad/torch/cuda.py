"""torch.cuda on a machine without CUDA devices, which is what the stand-in always sees."""

from __future__ import annotations

from minigrad.torch._missing import missing as _missing


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0


def manual_seed(seed: int) -> None:
    """Nothing, as in torch where there is no CUDA device."""


manual_seed_all = manual_seed

__getattr__ = _missing(__name__, globals())
