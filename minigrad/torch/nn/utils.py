"""torch.nn.utils: gradient clipping."""

from minigrad.nn.utils import clip_grad_norm_, clip_grad_value_
from minigrad.torch._missing import missing as _missing

__getattr__ = _missing(__name__, globals())
