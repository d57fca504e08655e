"""torch.backends.cuda: settings of CUDA libraries, kept and without effect here."""

from types import SimpleNamespace

from minigrad.torch._missing import missing as _missing

matmul = SimpleNamespace(allow_tf32=False)

__getattr__ = _missing(__name__, globals())
