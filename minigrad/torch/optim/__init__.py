"""torch.optim: minigrad's optimizers."""

from minigrad.optim import SGD, Adam, AdamW, Optimizer
from minigrad.torch._missing import missing as _missing
from minigrad.torch.optim import lr_scheduler

__getattr__ = _missing(__name__, globals())
