"""What every torch subject shares: numpy in and out, canonical parameters as views, gradients, modes.

`TorchSubject` is the protocol's subject on top of an ``nn.Module`` (or none, for functions): a subclass writes
`forward`, on tensors. `Slot` says where in the module a canonical parameter lives: since a slot is a *view* of
the module's own tensor, the same slot reads it, writes it, and picks its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from conformance.adapters.inference.construct import evaluating
from conformance.places import line_of
from conformance.protocol import ROLES, Array, Arrays

View = Callable[[Tensor], Tensor]


def whole(tensor: Tensor) -> Tensor:
    """The view of a parameter that is stored as the protocol has it."""
    return tensor


@dataclass(frozen=True)
class Slot:
    """Where one canonical parameter is stored: the concatenation of views of named parameters, plus `offset`.

    pieces: (name in the module, view) pairs, concatenated along the first axis. A view has the elements of the
    canonical parameter in the same order (its shape may differ). `offset`: canonical = stored + offset (an
    RMSNorm may store its weight minus one).
    """

    pieces: tuple[tuple[str, View], ...]
    offset: float = 0.0

    @classmethod
    def of(cls, name: str, view: View = whole, offset: float = 0.0) -> Slot:
        return cls(((name, view),), offset)

    def read(self, tensors: Mapping[str, Tensor], shape: tuple[int, ...]) -> Tensor:
        """The canonical parameter (or gradient), of `shape`, from the module's tensors."""
        return torch.cat([view(tensors[name]).reshape(-1) for name, view in self.pieces]).reshape(shape)

    def size(self, tensors: Mapping[str, Tensor]) -> int:
        """How many numbers the canonical parameter has as stored."""
        return sum(view(tensors[name]).numel() for name, view in self.pieces)

    def write(self, tensors: Mapping[str, Tensor], value: Tensor) -> None:
        """Copy a canonical value into the module's tensors."""
        flat, start = (value - self.offset).reshape(-1), 0
        for name, view in self.pieces:
            place = view(tensors[name])
            place.copy_(flat[start : start + place.numel()].reshape(place.shape))
            start += place.numel()


def to_tensor(value: Any, dtype: torch.dtype) -> Any:
    """A numpy array (or list of them) as a tensor: floats in `dtype`, ints as int64; anything else unchanged."""
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (np.ndarray, list, tuple)):
        return [to_tensor(item, dtype) for item in value]
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    if value.dtype.kind == "f":
        return torch.tensor(value, dtype=dtype)
    return torch.tensor(value, dtype=torch.int64 if value.dtype.kind in "iu" else None)


def to_array(value: Any) -> Any:
    """A tensor (or list of them) as a numpy array; a 0-d tensor as a 0-d array."""
    if isinstance(value, list):
        return [to_array(item) for item in value]
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


class TorchSubject:
    """One role computed by torch, in the dtype that torch uses by default (float32).

    role, config: as built; settings are completed from the role table. module: what holds the parameters and
    the mode; slots: canonical name -> `Slot`, complete for the role's parameters. Subclasses write `forward`.
    """

    attributes: Mapping[str, Any] = {}

    def __init__(
        self,
        role: str,
        config: Mapping[str, Any],
        module: nn.Module | None = None,
        slots: Mapping[str, Slot] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.role = role
        self.config = ROLES[role].settings(config)
        self.module = evaluating((module if module is not None else nn.Module()).to(dtype))
        self.slots = dict(slots or {})
        self.torch_dtype = dtype
        self.dtype = np.dtype(str(dtype).removeprefix("torch."))

    def forward(self, *args: Any, **inputs: Any) -> dict[str, Any]:
        """The role's outputs, by name, from its inputs as tensors."""
        raise NotImplementedError(f"{type(self).__name__} computes nothing")

    def __call__(self, **inputs: Any) -> Arrays:
        with torch.no_grad():
            outputs = self.forward(**{k: to_tensor(v, self.torch_dtype) for k, v in inputs.items()})
        return {name: to_array(value) for name, value in outputs.items()}

    @property
    def place(self) -> str:
        """Where the code of the module begins."""
        return line_of(type(self.module).forward)

    @property
    def training(self) -> bool:
        return self.module.training

    def train(self, mode: bool = True) -> None:
        self.module.train(mode)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return ROLES[self.role].params(self.config)

    def params(self) -> Arrays:
        with torch.no_grad():
            stored = dict(self.module.named_parameters(remove_duplicate=False))
            return {
                name: to_array(self.slots[name].read(stored, shape) + self.slots[name].offset)
                for name, shape in self.shapes().items()
            }

    def weights(self) -> Arrays:
        """The parameters with which the role's formula computes what this subject computes."""
        return self.params()

    def load(self, params: Mapping[str, Array]) -> None:
        """Raises ValueError when the names or shapes are not the role's."""
        shapes = self.shapes()
        given = {name: tuple(np.shape(value)) for name, value in params.items()}
        if given != shapes:
            raise ValueError(f"{self.role}: expected parameters {shapes}, got {given}")
        with torch.no_grad():
            stored = dict(self.module.named_parameters(remove_duplicate=False))
            for name, value in params.items():
                self.slots[name].write(stored, torch.tensor(value, dtype=self.torch_dtype))

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        """Gradients of ``sum(out * cotangent)`` by torch.autograd; zeros where the output does not depend."""
        tensors = {k: to_tensor(v, self.torch_dtype) for k, v in inputs.items()}
        floating = {k: v.requires_grad_() for k, v in tensors.items() if _is_floating(v)}
        stored = dict(self.module.named_parameters(remove_duplicate=False))
        out = self.forward(**tensors)["out"]
        sources = [*floating.values(), *stored.values()]
        if not out.requires_grad:
            found: tuple[Tensor | None, ...] = (None,) * len(sources)
        else:
            seed = torch.tensor(cotangent, dtype=out.dtype).reshape(out.shape)
            # the same as from `out` with a gradient given, for which torch imports sympy
            found = torch.autograd.grad((out * seed).sum(), sources, allow_unused=True)
        gradients = [torch.zeros_like(s) if g is None else g for s, g in zip(sources, found, strict=True)]
        of_inputs = dict(zip(floating, gradients, strict=False))
        of_stored = dict(zip(stored, gradients[len(floating) :], strict=True))
        return (
            {name: to_array(gradient) for name, gradient in of_inputs.items()},
            {name: to_array(self.slots[name].read(of_stored, shape)) for name, shape in self.shapes().items()},
        )


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def masked_row_policy(subject: Any, inputs: Mapping[str, Array], hidden: Array) -> str:
    """What a row whose keys are all hidden gives: 'nan', 'zero' (no value reaches it) or 'uniform'.

    `hidden` is a mask of False.
    """
    first = subject(**inputs, mask=hidden)["out"]
    second = subject(**{name: x + 1.0 for name, x in inputs.items()}, mask=hidden)["out"]
    if np.isnan(first).any():
        return "nan"
    return "zero" if np.allclose(first, second, atol=1e-6) else "uniform"
