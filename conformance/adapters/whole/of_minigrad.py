"""A model on minigrad as the subject of the claims about whole models.

`OnTorch` presents a minigrad module as an nn.Module: its parameters and buffers are torch's under the same names, and a
call is one operation whose forward and backward passes minigrad computes, on the memory of torch's tensors. So the
claims judge it by the same experiments as any model. What they read from a record of torch's operations (what drops,
what lies inside) is asked of minigrad in `MinigradModel`, or cannot be shown: a run is one operation there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd.function import once_differentiable

import minigrad as mg
from conformance.adapters.whole.dropping import Dropped
from conformance.adapters.whole.language import source_of
from conformance.adapters.whole.model import WholeModel
from conformance.adapters.whole.watching import user_line
from conformance.protocol import NotProvided
from minigrad.dispatch import Eager
from minigrad.ops.registry import Op
from minigrad.state import state

ENGINE = str(Path(mg.__file__).parent)
WIDTHS = (torch.float32, torch.float64)
"""The precisions in which minigrad's models compute; narrower ones are for storing."""


class OnTorch(nn.Module):
    """The minigrad module `minigrad`, whose forward gives one tensor, as a torch module.

    forward takes the same arguments by name; tensors among them may be of any dtype that numpy has. In training mode
    minigrad's draws follow torch's generator. Raises NotProvided under autocast, and for parameters that are neither
    float32 nor float64.
    """

    def __init__(self, minigrad: mg.nn.Module) -> None:
        super().__init__()
        self.minigrad = minigrad
        made: dict[int, nn.Parameter] = {}  # a tied tensor stays one
        parts: dict[str, nn.Module] = {"": self}
        for path, part in minigrad.named_modules():
            if path:
                above, _, name = path.rpartition(".")
                parts[path] = _namesake(part)
                parts[above].add_module(name, parts[path])
            for name, own in part.named_parameters(recurse=False):
                if id(own) not in made:
                    made[id(own)] = nn.Parameter(_copied(own), own.requires_grad)
                parts[path].register_parameter(name, made[id(own)])
            for name, own in part.named_buffers(recurse=False):
                parts[path].register_buffer(name, _copied(own), persistent=part._buffers[name])

    def forward(self, **inputs: Any) -> torch.Tensor:
        given = (tuple(inputs), *inputs.values(), *self.parameters())
        result: torch.Tensor = _Run.apply(self, torch.is_grad_enabled(), *given)
        return result

    def new_cache(self, max_len: int) -> Any:
        """What its forward takes as `cache`, with room for so many tokens. Raises NotProvided where it makes none."""
        if not hasattr(self.minigrad, "new_cache"):
            raise NotProvided(f"{type(self.minigrad).__name__} has no method new_cache")
        return self.minigrad.new_cache(max_len)

    def run(self, inputs: Mapping[str, Any]) -> mg.Tensor:
        """What minigrad gives for its own tensors, in this module's mode and with its numbers."""
        if torch.is_autocast_enabled("cpu"):
            raise NotProvided("torch's autocast reaches no operation of minigrad")
        tensors = dict(self.named_parameters()) | dict(self.named_buffers())
        for name, own in (*self.minigrad.named_parameters(), *self.minigrad.named_buffers()):
            if tensors[name].is_floating_point() and tensors[name].dtype not in WIDTHS:
                raise NotProvided("minigrad computes in float32 and float64; narrower numbers are for storing")
            own.data = mg.from_numpy(tensors[name].detach().numpy())
        self.minigrad.train(self.training)
        if self.training:
            mg.manual_seed(int(torch.randint(2**62, ())))
        result = self.minigrad(**inputs)
        if not isinstance(result, mg.Tensor):
            raise TypeError(
                f"{type(self.minigrad).__name__} gives {type(result).__name__}: forward must give one tensor here"
            )
        return result


class _Run(torch.autograd.Function):
    """A minigrad module's forward and backward pass as one operation of torch."""

    @staticmethod
    def forward(ctx: Any, module: OnTorch, records: bool, names: Sequence[str], *values: Any) -> torch.Tensor:
        given = [_as_minigrad(value) for value in values[: len(names)]]
        wanted = [needs and records for needs in ctx.needs_input_grad[3:]]
        for value, wants in zip(given, wanted, strict=False):
            if wants:
                value.requires_grad_()
        with mg.enable_grad() if any(wanted) else mg.no_grad():
            out = module.run(dict(zip(names, given, strict=True)))
        ctx.out, ctx.leaves, ctx.wanted = out, [*given, *module.minigrad.parameters()], wanted
        return torch.from_numpy(np.array(out.detach().numpy()))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        asked = [leaf for leaf, wants in zip(ctx.leaves, ctx.wanted, strict=True) if wants]
        found: Iterator[mg.Tensor | None] = iter([None] * len(asked))
        if ctx.out.requires_grad:
            found = iter(mg.grad([ctx.out], asked, [_as_minigrad(gradient)], allow_unused=True))
        each = (next(found) if wants else None for wants in ctx.wanted)
        return None, None, None, *(None if one is None else torch.from_numpy(np.array(one.numpy())) for one in each)


def _namesake(part: mg.nn.Module) -> nn.Module:
    """The torch module that stands for a part, of its kind where torch has one: it holds tensors, and never runs."""
    if isinstance(part, mg.nn.Linear):
        return nn.Linear(part.in_features, part.out_features, part.bias is not None)
    if isinstance(part, mg.nn.Embedding):
        return nn.Embedding(part.num_embeddings, part.embedding_dim, part.padding_idx)
    return nn.Dropout(part.p) if isinstance(part, mg.nn.Dropout) else nn.Module()


def _as_minigrad(value: Any) -> Any:
    """A torch tensor's memory as minigrad's tensor; anything else as it is."""
    return mg.from_numpy(value.detach().numpy()) if isinstance(value, torch.Tensor) else value


def _copied(tensor: mg.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.array(tensor.detach().numpy()))


# --- what only minigrad can show ------------------------------------------------------------------


class _Dropouts(Eager):
    """Computes, and notes every dropout that acts."""

    def __init__(self) -> None:
        self.seen: list[Dropped] = []

    def apply(self, op: Op, tensors: Sequence[mg.Tensor], attrs: Mapping[str, Any]) -> Any:
        rate = attrs.get("p" if op.name == "dropout" else "dropout", 0.0)  # attention drops weights by an option
        if rate:
            self.seen.append(Dropped(float(rate), f"{op.name} of {rate:g}", user_line(ENGINE)))
        return super().apply(op, tensors, attrs)


UNSEEN = "a run on minigrad is one operation to torch, so that its record shows nothing inside"


class MinigradModel(WholeModel):
    """A whole model whose module is an `OnTorch`. Raises NotProvided where only a record of operations would tell."""

    def active_dropouts(self, training: bool) -> list[Dropped]:
        """Which dropouts drop something in this mode."""
        before, watching = state.interpreter, _Dropouts()
        state.interpreter = watching
        try:
            with self.mode(training), torch.no_grad():
                self.run(self.example())
        finally:
            state.interpreter = before
        return watching.seen

    def sources(self) -> Iterator[tuple[type, str, str, int]]:
        """Class, source, file and first line of every class of the user's that the model is made of."""
        parts = self.module.minigrad.modules()
        for cls in dict.fromkeys(base for part in parts for base in type(part).__mro__[:3]):
            if not cls.__module__.startswith("minigrad.") and (found := source_of(cls)):
                yield cls, *found

    def told_apart(self) -> dict[str, bool]:
        raise NotProvided(UNSEEN)

    def bound_of_logits(self) -> tuple[float, str] | None:
        raise NotProvided(UNSEEN)
