"""One update: gradients of a batch in pieces, clipped, applied to float32 weights; in half precision on request."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import minigrad as mg
from minigrad import Tensor, nn
from minigrad import functional as F
from minigrad.compiler import compile
from minigrad.optim import Optimizer
from transformer.training.parallel import Reduction, Team

PRECISIONS = {"float32": mg.float32, "float16": mg.float16, "bfloat16": mg.bfloat16}


class Batch(NamedTuple):
    """What a model is called with, and the token that it should predict at each position, int ``(B, T)``."""

    inputs: tuple[Tensor, ...]
    labels: Tensor

    def to(self, device: str) -> Batch:
        """The batch on another device."""
        return Batch(tuple(tensor.to(device) for tensor in self.inputs), self.labels.to(device))


LossSum = Callable[[nn.Module, Batch], Tensor]  # the sum over the labels that count, a scalar


def token_loss(pad_id: int = 0, label_smoothing: float = 0.0) -> LossSum:
    """Cross-entropy in nats, summed over all labels but `pad_id`, in float32."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        logits = model(*batch.inputs)
        flat = logits.float().reshape(-1, logits.shape[-1])
        return F.cross_entropy(flat, batch.labels.reshape(-1), pad_id, label_smoothing, "sum")

    return loss


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """AdamW's groups of what is trained: matrices decay; biases and norms (all that have one dimension) do not."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def split(batch: Batch, pieces: int) -> list[Batch]:
    """The batch's rows in `pieces` of nearly equal size. Raises ValueError for more pieces than rows."""
    rows = batch.labels.shape[0]
    if not 1 <= pieces <= rows:
        raise ValueError(f"a batch of {rows} rows cannot be accumulated from {pieces} pieces")
    edges = [rows * i // pieces for i in range(pieces + 1)]
    return [
        Batch(tuple(tensor[start:stop] for tensor in batch.inputs), batch.labels[start:stop])
        for start, stop in itertools.pairwise(edges)
    ]


class LossScale:
    """The factor that keeps float16 gradients from underflow: halved when one overflows, doubled after `patience` good
    steps (Micikevicius et al. 2018).
    """

    def __init__(self, value: float = 2.0**16, patience: int = 1000) -> None:
        self.value, self.patience, self.good_steps = value, patience, 0

    def update(self, finite: bool) -> None:
        """Note whether the last step's gradients were finite."""
        if not finite:
            self.value, self.good_steps = max(self.value / 2, 1.0), 0
            return
        self.good_steps += 1
        if self.good_steps == self.patience:
            self.value, self.good_steps = self.value * 2, 0


class Updater:
    """Applies batches to a model. `update(batch)` returns the mean loss and the gradients' norm before clipping.

    accumulate: the batch is run in so many pieces; every piece's loss is divided by the tokens of the whole batch, so
    that the gradient is that of the whole however unequal the pieces are. clip: the largest norm, None for no clipping.
    precision: "float16" and "bfloat16" store weights, activations and gradients so, and keep float32 master weights,
    which are what is optimised. compile_step: replay the step as a compiled plan (float32 only; half precision runs
    eagerly). make_optimizer gets the groups of `parameter_groups`. team: the processes that share each batch (float32
    only): each runs its rows eagerly, and what is compiled is the update. Raises ValueError for an unknown precision,
    or one that a team does not have.
    """

    def __init__(
        self,
        model: nn.Module,
        make_optimizer: Callable[[list[dict[str, Any]]], Optimizer],
        loss: LossSum,
        pad_id: int = 0,
        weight_decay: float = 0.0,
        accumulate: int = 1,
        clip: float | None = 1.0,
        precision: str = "float32",
        compile_step: bool = True,
        team: Team | None = None,
    ) -> None:
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
        if team is not None and precision != "float32":
            raise ValueError(f"several processes train in float32 only, got the precision {precision!r}")
        self.model, self.loss, self.pad_id, self.team = model, loss, pad_id, team
        self.accumulate, self.clip = accumulate, clip
        groups = parameter_groups(model, weight_decay)
        self.scale = LossScale() if precision == "float16" else LossScale(1.0, 0)
        self.masters: dict[Tensor, nn.Parameter] = {}
        if precision != "float32":
            self.masters = {p: nn.Parameter(p.detach().float().clone()) for g in groups for p in g["params"]}
            model.to(PRECISIONS[precision])
            groups = [{**group, "params": [self.masters[p] for p in group["params"]]} for group in groups]
        self.optimizer = make_optimizer(groups)
        self._float32_step = compile(self._step) if compile_step else self._step
        self._apply = compile(self._clip_and_step) if compile_step else self._clip_and_step
        if team is not None:
            self.reduction = Reduction(team, [p for p in model.parameters() if p.requires_grad])

    def update(self, batch: Batch) -> tuple[float, float]:
        """One step, where the model is.

        Raises ValueError for a batch in which nothing is to be predicted, or which a team cannot share.
        """
        count = int((batch.labels != self.pad_id).sum())
        if not count:
            raise ValueError("a batch needs at least one label that is not padding")
        device = self.optimizer.param_groups[0]["params"][0].device
        tokens = mg.tensor(float(count), device=device)
        if self.team is not None:
            rows = self.team.rows(batch.labels.shape[0])
            batch = Batch(tuple(tensor[rows] for tensor in batch.inputs), batch.labels[rows])
        pieces = split(batch.to(device), self.accumulate)
        if self.team is not None:
            loss, norm = self._team_step(self.team, pieces, tokens)
        else:
            loss, norm = self._half_step(pieces, tokens) if self.masters else self._float32_step(pieces, tokens)
        return loss.item(), norm.item()

    def _backward(self, pieces: Sequence[Batch], factor: Tensor) -> Tensor:
        """Accumulate the gradient of the summed loss times `factor`; returns that loss."""
        total = mg.zeros((), device=factor.device)
        for piece in pieces:
            loss = self.loss(self.model, piece) * factor
            loss.backward()
            total = total + loss.detach()
        return total

    def _clipped(self) -> Tensor:
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        return nn.utils.clip_grad_norm_(parameters, float("inf") if self.clip is None else self.clip)

    def _step(self, pieces: Sequence[Batch], tokens: Tensor) -> tuple[Tensor, Tensor]:
        self.optimizer.zero_grad()
        loss = self._backward(pieces, 1.0 / tokens)
        return loss, self._clip_and_step()

    def _clip_and_step(self) -> Tensor:
        norm = self._clipped()
        self.optimizer.step()
        return norm

    def _team_step(self, team: Team, pieces: Sequence[Batch], tokens: Tensor) -> tuple[Tensor, Tensor]:
        """As `_step`, on this process's rows; `tokens` are those of the whole batch."""
        self.optimizer.zero_grad()
        with self.reduction.running(len(pieces)):
            loss = self._backward(pieces, 1.0 / tokens)
        return team.total(loss), self._apply()

    def _half_step(self, pieces: Sequence[Batch], tokens: Tensor) -> tuple[Tensor, Tensor]:
        """As `_step`, with a scaled loss; a step whose gradients overflow changes the scale only."""
        self.model.zero_grad()
        loss = self._backward(pieces, self.scale.value / tokens) / self.scale.value
        for parameter, master in self.masters.items():
            gradient = parameter.grad
            master.grad = None if gradient is None else gradient.float() / self.scale.value
        norm = self._clipped()
        finite = bool(np.isfinite(norm.item()))
        if finite:
            self.optimizer.step()
            with mg.no_grad():
                for parameter, master in self.masters.items():
                    parameter.copy_(master)
        self.scale.update(finite)
        return loss, norm

    def weights(self) -> dict[str, Tensor]:
        """The model's state in float32: the master weights where there are any."""
        state = dict(self.model.state_dict())
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            if parameter in self.masters:
                state[name] = self.masters[parameter].detach()
        return state

    def load_weights(self, state: dict[str, Tensor]) -> None:
        """Take back what `weights` gave. Raises ValueError where names or shapes do not fit."""
        self.model.load_state_dict(state)
        with mg.no_grad():
            for name, parameter in self.model.named_parameters():
                if parameter in self.masters:
                    self.masters[parameter].copy_(state[name])
