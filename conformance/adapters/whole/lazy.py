"""Layers that learn the size of their input from the first call, given one before it."""

from __future__ import annotations

import torch
from torch import nn

from conformance.adapters.inference.facts import Unresolved


def with_sizes(module: nn.Module) -> nn.Module:
    """The module; its linear maps without a size get that of its norms, else as many inputs as outputs.

    Raises Unresolved where other layers have none.
    """
    norms = [part.normalized_shape[-1] for part in module.modules() if isinstance(part, nn.LayerNorm)]
    for part in list(module.modules()):
        if isinstance(part, nn.LazyLinear) and part.has_uninitialized_params():
            part(torch.zeros(1, norms[0] if norms else part.out_features))
    open_ = [name for name, p in module.named_parameters() if nn.parameter.is_lazy(p)]
    if open_:
        raise Unresolved(
            f"{open_[0]} of {type(module).__name__} has no size before its first call: "
            "point at a model that was called once"
        )
    return module
