"""What a model learns from the numbers that its constructor draws."""

from __future__ import annotations

from dataclasses import replace

import torch

from conformance.adapters.whole.copying import in_dtype
from conformance.adapters.whole.gradient_probes import GradientProbes
from conformance.protocol import NotProvided

STEPS = 6
"""What starts at zero gets a gradient in a few steps, one for each factor before it that starts at zero, too."""


class StartProbes(GradientProbes):
    """The experiment with the start, of a running model."""

    def never_learnt(self) -> list[str]:
        """The matrices that start at zero and get no gradient in some steps of training, and would get one if they
        had started elsewhere. Raises NotProvided where none starts at zero."""
        module = in_dtype(self.made.fresh(3), self.torch_dtype).eval()
        zero = [
            name
            for name, p in module.named_parameters()
            if p.requires_grad and p.ndim > 1 and p.numel() and not bool(p.any())
        ]
        if not zero:
            raise NotProvided("no matrix of its starts at zero")
        other = replace(self, module=module)
        left = set(zero)
        for step in range(STEPS):
            gradients = other.gradients(other.example(4, seed=70 + step))
            largest = max((float(abs(g).max(initial=0.0)) for g in gradients.values() if g is not None), default=0.0)
            for name, parameter in module.named_parameters():
                gradient = gradients.get(name)
                size = 0.0 if gradient is None else float(abs(gradient).max(initial=0.0))
                if gradient is None or size <= 1e-13 * largest:
                    continue
                left.discard(name)
                with torch.no_grad():
                    parameter.sub_(torch.tensor(gradient, dtype=parameter.dtype), alpha=0.02 / size)
            if not left:
                return []
        sizes = {n: float(abs(g).max()) for n, g in self.gradients(self.example(4, seed=70)).items() if g is not None}
        least = 1e-13 * max(sizes.values(), default=0.0)  # rounding, where mathematics gives none
        return [name for name in zero if name in left and sizes.get(name, 0.0) > least]
