"""torch.utils: data."""

from minigrad.torch._missing import missing as _missing
from minigrad.torch.utils import data

__getattr__ = _missing(__name__, globals())
