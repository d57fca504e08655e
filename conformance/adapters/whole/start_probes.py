"""What a model learns from the numbers that its constructor draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from conformance.adapters.inference.construct import evaluating
from conformance.adapters.whole.copying import in_main_dtype
from conformance.adapters.whole.gradient_probes import GradientProbes
from conformance.protocol import Array, NotProvided

STEPS = 6
"""What starts at zero gets a gradient in a few steps, one for each factor before it that starts at zero, too."""


FEW, MANY = 2, 8
"""Numbers of layers. Of the root of the depth, the usual measure, the second has twice as much."""
_ENTRIES, _GROWN = 100, 1.6
"""The size of so many random numbers is known within a few percent, so this much more of it is no chance."""


class StartProbes(GradientProbes):
    """The experiments with the start, of a running model."""

    def larger_in_deeper_models(self) -> dict[str, float]:
        """The matrices that start larger in a model of many layers than in one of few, and how many times. Raises
        NotProvided where its number of layers cannot be chosen."""
        if self.made.large:
            raise NotProvided("it is too large to make it deeper")
        try:
            few, many = (dict(self.made.fresh(3, n_layers=n).named_parameters()) for n in (FEW, MANY))
        except NotProvided:
            raise
        except Exception as error:
            raise NotProvided(f"it cannot be made with {MANY} layers: {error}") from error
        if len(many) <= len(few):
            raise NotProvided("more layers give it no more parameters")
        alike = {
            n: p
            for n, p in few.items()
            if p.ndim > 1 and p.numel() >= _ENTRIES and n in many and many[n].shape == p.shape
        }
        ratios = {n: float(many[n].detach().double().std() / p.detach().double().std()) for n, p in alike.items()}
        return {name: ratio for name, ratio in ratios.items() if _GROWN < ratio < float("inf")}

    def never_learnt(self) -> list[str]:
        """The matrices that start at zero and get no gradient in some steps of training, and would get one if they
        had started elsewhere; and the linear maps of which that is so of some rows only, as of queries and keys in a
        map that makes values, too. Raises NotProvided where none starts at zero."""
        module = evaluating(in_main_dtype(self.made.fresh(3), self.torch_dtype))
        zero = [
            name
            for name, p in module.named_parameters()
            if p.requires_grad and p.ndim > 1 and p.numel() and not bool(p.any())
        ]
        if not zero:
            raise NotProvided("no matrix of its starts at zero")
        other = replace(self, module=module)
        left = set(zero)
        maps = {f"{path}.weight" for path, part in module.named_modules() if isinstance(part, nn.Linear)}
        rows: dict[str, Array] = {}  # which rows a gradient has reached
        for step in range(STEPS):
            gradients = other.gradients(other.example(4, seed=70 + step))
            largest = max((float(abs(g).max(initial=0.0)) for g in gradients.values() if g is not None), default=0.0)
            for name, parameter in module.named_parameters():
                gradient = gradients.get(name)
                size = 0.0 if gradient is None else float(abs(gradient).max(initial=0.0))
                if gradient is None or size <= 1e-13 * largest:
                    continue
                left.discard(name)
                if name in zero and name in maps:
                    reached = abs(gradient).reshape(len(gradient), -1).max(1) > 1e-13 * largest
                    rows[name] = rows.get(name, np.zeros(len(gradient), bool)) | reached
                with torch.no_grad():
                    parameter.sub_(torch.tensor(gradient, dtype=parameter.dtype), alpha=0.02 / size)
            if not left and all(reached.all() for reached in rows.values()):
                return []
        elsewhere = {n: abs(g) for n, g in self.gradients(self.example(4, seed=70)).items() if g is not None}
        least = 1e-13 * max((float(g.max(initial=0.0)) for g in elsewhere.values()), default=0.0)  # rounding only
        idle = {n: ~reached for n, reached in rows.items()} | {
            n: np.ones(len(elsewhere[n]), bool) for n in left & elsewhere.keys()
        }
        never = [n for n in zero if n in idle and float(elsewhere[n][idle[n]].max(initial=0.0)) > least]
        return [f"rows of {name}" if name in rows else name for name in never]
