"""torch.backends: settings of libraries that minigrad does not use."""

from minigrad.torch._missing import missing as _missing
from minigrad.torch.backends import cuda, cudnn, mps

__getattr__ = _missing(__name__, globals())
