"""What a model learns from: the gradients of its answer and of its loss."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from conformance.adapters.torch_subject import to_array
from conformance.protocol import Array, NotProvided

if TYPE_CHECKING:
    from conformance.adapters.whole.model import WholeModel


class GradientProbes:
    """Gradients, as methods of `WholeModel`."""

    def gradients(  # type: ignore[misc]
        self: WholeModel, inputs: Mapping[str, Any], cotangent: Array | None = None, of: str = "out"
    ) -> dict[str, Array | None]:
        """The gradient of sum(out * cotangent) (a random one when None), or of "loss", by parameter; None without. Of
        what goes backward in training only, as a stack that runs its layers again, it is that without dropout."""
        try:
            return self._gradients(inputs, cotangent, of, training=False)
        except (NotProvided, AssertionError):
            raise
        except Exception:
            with suppress(Exception):
                return self._gradients(inputs, cotangent, of, training=True)
            raise

    def _gradients(  # type: ignore[misc]
        self: WholeModel, inputs: Mapping[str, Any], cotangent: Array | None, of: str, training: bool
    ) -> dict[str, Array | None]:
        self.module.zero_grad(set_to_none=True)
        with self.mode(training), torch.enable_grad():
            for part in self.module.modules() if training else ():
                if isinstance(part, nn.Dropout):
                    part.eval()
            found = self.run(inputs)
            if of not in found:
                raise NotProvided(f"{self.made.name} returns no {of}")
            value = found[of]
            weight = torch.randn(value.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
            if cotangent is not None:
                weight = torch.tensor(cotangent)
            if not value.requires_grad:
                return {name: None for name, p in self.module.named_parameters() if p.requires_grad}
            (value * weight.to(value.dtype)).sum().backward()
        result = {
            name: None if p.grad is None else to_array(p.grad.double())
            for name, p in self.module.named_parameters()
            if p.requires_grad
        }
        self.module.zero_grad(set_to_none=True)
        return result
