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
_NEAR, _MUCH = 0.2, 4.0
"""What is scaled by the root of the depth follows it so nearly, and starts smaller than the rest: not much larger."""


class StartProbes(GradientProbes):
    """The experiments with the start, of a running model."""

    def starts_by_depth(self) -> dict[str, tuple[float, float]]:
        """The deviation of the numbers that each matrix starts with in a model of few layers, and how many times as
        large it is in one of many. Raises NotProvided where its number of layers cannot be chosen."""
        if "starts_by_depth" not in self.known:
            self.known["starts_by_depth"] = self._starts_by_depth()
        found: dict[str, tuple[float, float]] = self.known["starts_by_depth"]
        return found

    def _starts_by_depth(self) -> dict[str, tuple[float, float]]:
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
        starts = {
            n: (float(p.detach().double().std()), float(many[n].detach().double().std())) for n, p in alike.items()
        }
        return {name: (one, other / one) for name, (one, other) in starts.items() if one > 0}

    def larger_in_deeper_models(self) -> dict[str, float]:
        """The matrices that start larger in a model of many layers than in one of few, and how many times. Raises
        NotProvided where its number of layers cannot be chosen."""
        return {name: ratio for name, (_, ratio) in self.starts_by_depth().items() if _GROWN < ratio < float("inf")}

    def too_large_for_their_depth(self) -> tuple[int, dict[str, float]]:
        """How many matrices start smaller in a deeper model by the root of the depth; and those of them that start
        larger than the linear maps that do not, in a model of few layers, and how many times."""
        starts = self.starts_by_depth()
        maps = {f"{path}.weight" for path, part in self.module.named_modules() if isinstance(part, nn.Linear)}
        scaled = {n: size for n, (size, ratio) in starts.items() if abs(ratio * (MANY / FEW) ** 0.5 - 1) < _NEAR}
        others = [size for n, (size, ratio) in starts.items() if n in maps - scaled.keys() and abs(ratio - 1) < _NEAR]
        if not others:
            return 0, {}
        usual = float(np.median(others))
        return len(scaled), {name: size / usual for name, size in scaled.items() if size > _MUCH * usual}

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
