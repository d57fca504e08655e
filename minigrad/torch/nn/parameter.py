"""torch.nn.parameter."""

from minigrad.nn import Parameter
from minigrad.torch._missing import missing as _missing

__getattr__ = _missing(__name__, globals())
