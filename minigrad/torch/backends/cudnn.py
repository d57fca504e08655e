"""torch.backends.cudnn: settings of cuDNN, kept and without effect here."""

from minigrad.torch._missing import missing as _missing

allow_tf32, benchmark, deterministic, enabled = True, False, False, True

__getattr__ = _missing(__name__, globals())
