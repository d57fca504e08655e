"""torch.nn.init: minigrad's initialisations."""

from minigrad.nn.init import (
    calculate_gain,
    constant_,
    kaiming_normal_,
    kaiming_uniform_,
    normal_,
    ones_,
    uniform_,
    xavier_normal_,
    xavier_uniform_,
    zeros_,
)
from minigrad.torch._missing import missing as _missing

__getattr__ = _missing(__name__, globals())
