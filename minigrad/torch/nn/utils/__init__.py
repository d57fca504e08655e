"""torch.nn.utils: gradient clipping, parameters that are computed from others, sequences of different lengths."""

from minigrad.nn.utils import clip_grad_norm_, clip_grad_value_
from minigrad.torch._missing import missing as _missing
from minigrad.torch.nn.utils import parametrize, rnn

__getattr__ = _missing(__name__, globals())
