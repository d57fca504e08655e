"""Right norms in the place of a layer's own, where these alone keep the layer from its formula."""

from __future__ import annotations

from torch import nn
from torch.nn import functional as F

from conformance.adapters.inference import parameters as p
from conformance.adapters.inference.roles import norms_in


def mend_norms(module: nn.Module, eps: float) -> int:
    """Let norms of a module that are none of torch's compute LayerNorm with their own parameters; how many they are."""
    own = [norm for _, norm in norms_in(module) if not isinstance(norm, nn.LayerNorm)]
    for norm in own:
        _compute_properly(norm, eps)
    return len(own)


def _compute_properly(norm: nn.Module, eps: float) -> None:
    stored = dict(norm.named_parameters())
    _, layout = next(p.norm_layouts(norm, True))
    weight, bias = (stored[layout[name].patterns[0]] if name in layout else None for name in ("weight", "bias"))
    norm.forward = lambda x: F.layer_norm(x, x.shape[-1:], weight, bias, eps)
