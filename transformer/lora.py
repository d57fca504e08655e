"""Fine-tuning of a part: frozen parameters, and low-rank adapters beside frozen matrices (LoRA, Hu et al. 2021).

An adapted layer computes x W^T + b + alpha/r (x A^T) B^T: W and b are frozen, A ``(r, in)`` and B ``(out, r)`` are
learned. B starts from zero, so training begins where the model stood; merged, W + alpha/r B A is a plain matrix again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import minigrad as mg
from minigrad import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class AdaptSettings:
    """With what training begins, and what of it is trained; see `adapt`. Raises ValueError for a bad setting."""

    base: str = ""
    lora: int = 0
    lora_alpha: float = 16.0
    lora_layers: str = "(q_proj|v_proj)"
    frozen: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.lora <= 4096:
            raise ValueError(f"lora, a rank, must be from 1 to 4096, or 0 for no adapters, got {self.lora}")
        if not 0 < self.lora_alpha < math.inf:
            raise ValueError(f"lora_alpha must be above 0, got {self.lora_alpha}")
        if self.lora and self.frozen:
            raise ValueError("adapters are all that lora trains: leave out frozen, or lora")
        for name in ("lora_layers", "frozen"):
            try:
                re.compile(getattr(self, name))
            except re.error as error:
                raise ValueError(f"{name} must be a regular expression: {error}, got {getattr(self, name)!r}") from None


class LoRALinear(nn.Linear):
    """A linear layer with an adapter of a rank beside it. x ``(..., in)``, y ``(..., out)``, in the layer's dtype.

    Weight and bias are those of `layer` under their names, frozen; A is drawn from N(0, 1 / in), B is zero.
    """

    def __init__(self, layer: nn.Linear, rank: int, alpha: float) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.scale = layer.in_features, layer.out_features, alpha / rank
        self.weight, self.bias = layer.weight, layer.bias
        dtype = layer.weight.dtype
        drawn = nn.init.normal_(mg.empty(rank, layer.in_features, dtype=dtype), 0, layer.in_features**-0.5)
        self.lora_A = nn.Parameter(drawn)
        self.lora_B = nn.Parameter(mg.zeros(layer.out_features, rank, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (x @ self.lora_A.transpose(0, 1)) @ self.lora_B.transpose(0, 1) * self.scale

    def merged(self) -> nn.Linear:
        """A plain layer that computes the same, with a matrix of its own."""
        found = nn.Linear(self.in_features, self.out_features, bias=False, dtype=self.weight.dtype)
        with mg.no_grad():
            found.weight.copy_(self.weight + self.lora_B @ self.lora_A * self.scale)
        found.bias = self.bias
        return found


def adapt(model: nn.Module, settings: AdaptSettings) -> None:
    """Change the model in place to one of which only a part is trained.

    lora: adapters of that rank beside every linear layer whose path ends in a match of lora_layers; all else is frozen.
    frozen: parameters in whose names it is found stay as they are. Raises ValueError where nothing matches, and where
    nothing is left to train.
    """
    if settings.lora:
        model.requires_grad_(False)
        chosen = re.compile(rf"(.*\.)?(?:{settings.lora_layers})")
        found = [place for place in _linear(model) if chosen.fullmatch(place[0])]
        if not found:
            names = sorted({path.rpartition(".")[2] for path, *_ in _linear(model)})
            raise ValueError(
                f"lora_layers, {settings.lora_layers!r}, are none of the linear layers: {', '.join(names)}"
            )
        for _, parent, name, layer in found:
            setattr(parent, name, LoRALinear(layer, settings.lora, settings.lora_alpha))
    elif settings.frozen:
        names = [name for name, _ in model.named_parameters() if re.search(settings.frozen, name)]
        if not names:
            raise ValueError(f"frozen, {settings.frozen!r}, is found in no name of a parameter: inspect shows them")
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in names)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ValueError(f"frozen, {settings.frozen!r}, is found in all names: nothing is left to train")


def merge(model: nn.Module) -> None:
    """Change the model in place to a plain one that computes the same: each adapter becomes a part of its matrix."""
    for _, parent, name, layer in list(_linear(model)):
        if isinstance(layer, LoRALinear):
            setattr(parent, name, layer.merged())


def _linear(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, nn.Linear]]:
    """The linear layers: path, who holds it, under which name."""
    for path, parent in model.named_modules():
        for name, layer in parent.named_children():
            if isinstance(layer, nn.Linear):
                yield f"{path}.{name}" if path else name, parent, name, layer
