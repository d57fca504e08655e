"""torch.backends.mps: Apple's GPU, which the stand-in never sees."""

from minigrad.torch._missing import missing as _missing


def is_available() -> bool:
    return False


__getattr__ = _missing(__name__, globals())
