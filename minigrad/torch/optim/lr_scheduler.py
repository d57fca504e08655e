"""torch.optim.lr_scheduler: minigrad's schedules."""

from minigrad.optim import CosineAnnealingLR, ExponentialLR, LambdaLR, LinearLR, LRScheduler, StepLR
from minigrad.torch._missing import missing as _missing

_LRScheduler = LRScheduler

__getattr__ = _missing(__name__, globals())
