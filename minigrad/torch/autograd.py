"""torch.autograd: gradients of any tensors."""

from minigrad.autograd import backward, enable_grad, grad, no_grad, set_grad_enabled
from minigrad.torch._missing import missing as _missing

__getattr__ = _missing(__name__, globals())
