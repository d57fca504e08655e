"""What a model learns from: the gradients of its answer and of its loss."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
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

    def reached_as_drawn(self: WholeModel, names: list[str], inputs: Mapping[str, Any]) -> set[str]:  # type: ignore[misc]
        """Those of these parameters that get a gradient in a model as its constructor draws it. Other weights may leave
        them none: a softmax that is one at a key, and 0 at all others to the last digit, has no slope."""
        found: dict[str, Array | None] = {}
        with suppress(Exception):
            found = self.fresh().gradients(inputs)
        sizes = {name: float(np.abs(g).max(initial=0.0)) for name, g in found.items() if g is not None}
        largest = max(sizes.values(), default=0.0)
        return {name for name in names if sizes.get(name, 0.0) > 1e-13 * largest}

    def reached_by_gaps(self: WholeModel, names: list[str], inputs: Mapping[str, Any]) -> set[str]:  # type: ignore[misc]
        """Those of these parameters that get a gradient where a number of the input is missing (NaN): what stands in
        its place may be learnt."""
        given = inputs.get("x")
        if given is None or not np.issubdtype(given.dtype, np.floating):
            return set()
        gaps = given.copy()
        gaps.reshape(len(gaps), -1)[::2, ::2] = np.nan
        found: dict[str, Array | None] = {}
        with suppress(Exception):
            found = self.gradients({**inputs, "x": gaps})
        sizes = {name: float(np.abs(g).max(initial=0.0)) for name, g in found.items() if g is not None}
        return {name for name in names if 0.0 < sizes.get(name, 0.0) < np.inf}

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
