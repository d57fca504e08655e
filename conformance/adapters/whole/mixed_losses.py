"""Losses that mix samples (mixup): does a sample that is mixed in count in the labels as much as in the input?

What forward is given tells how much of each sample is in each input. What the loss asks of the scores tells which
labels are taught: the gradient of a cross-entropy is the probabilities less the labels.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.whole.calling import default_dtype, loss_in
from conformance.adapters.whole.running import RunningModel
from conformance.adapters.whole.used_functions import text_of
from conformance.protocol import NotProvided
from conformance.seeds import seed_torch

_MIXES = re.compile(r"\b[bB]eta(variate)?\(")
_STRENGTH = re.compile(r"(mix\w*_?)?alpha|mix_?up\w*|mix")
_SEEDS, _MOST = 8, 4
_LEAST, _NEAR = 0.1, 1e-3
"""A share of at least this much of another sample is a mixture; shares this near are the same."""


@dataclass(frozen=True)
class Mixed:
    """A loss of mixed samples. inputs, labels: (n, n), how much of each sample is in each input and in its labels."""

    name: str
    place: str
    inputs: Tensor
    labels: Tensor

    @property
    def agrees(self) -> bool:
        return bool(torch.allclose(self.inputs, self.labels, atol=_NEAR))


class MixedLossProbes(RunningModel):
    """The experiment, of a running model."""

    def mixed_losses(self) -> list[Mixed]:
        """Every method that mixes the samples of its batch and teaches classes. Raises NotProvided."""
        found = [one for name, function in self._mixing() if (one := self._mixed_by(name, function)) is not None]
        if not found:
            raise NotProvided("no method of its mixes samples and teaches their classes")
        return found

    def _mixing(self) -> Iterator[tuple[str, Callable[..., Any]]]:
        for name, function in inspect.getmembers(type(self.module), inspect.isfunction):
            if not function.__module__.startswith("torch") and _MIXES.search(text_of(inspect.unwrap(function))):
                yield name, function

    def _mixed_by(self, name: str, function: Callable[..., Any]) -> Mixed | None:
        """What it mixes, by the first seed under which it does; None where nothing tells it."""
        parameters = list(inspect.signature(function).parameters.values())[1:]
        needed = [p.name for p in parameters if p.default is p.empty]
        if len(needed) != 2:
            return None
        options = {p.name: 1.0 for p in parameters if p.name not in needed and _STRENGTH.fullmatch(p.name.lower())}
        count = min(_MOST, self.calling.outputs - 1)  # a class without a sample shows what smoothing gives
        samples = self.tensors(self.example(count))[self.calling.main.meaning]
        if count < 2 or not samples.is_floating_point() or self.calling.layout != "(B, V)":
            return None
        for seed in range(_SEEDS):
            with suppress(Exception):  # its labels have another form, or it asks for what nothing here shows
                given = dict(zip(needed, (samples, torch.arange(count)), strict=True)) | options
                shares, taught = self._run_mixed(name, samples, given, seed)
                others = shares * (1 - torch.eye(count, dtype=shares.dtype))
                if _LEAST < float(others.max()) < 1 - _LEAST:
                    return Mixed(name, _place_of(function), shares, taught)
        return None

    def _run_mixed(self, name: str, samples: Tensor, given: dict[str, Any], seed: int) -> tuple[Tensor, Tensor]:
        """How much of each sample is in each input that forward is given, and in each label of the loss."""
        twin = self.twin()
        runs: list[tuple[Tensor, Tensor]] = []
        handle = twin.module.register_forward_hook(lambda _, args, answer: runs.append((args[0], answer)))
        seed_torch(seed)
        try:
            with twin.mode(True), torch.enable_grad(), default_dtype(self.torch_dtype):
                value = loss_in(getattr(twin.module, name)(**given))
        finally:
            handle.remove()
        ((inputs, scores),) = runs
        (slopes,) = torch.autograd.grad(value, [scores])
        return _shares(inputs, samples), _taught(scores.detach(), slopes)


def _shares(inputs: Tensor, samples: Tensor) -> Tensor:
    """(n, n). Raises NotProvided where the inputs are no sums of whole samples."""
    rows, whole = inputs.detach().flatten(1).double(), samples.flatten(1).double()
    shares = torch.linalg.lstsq(whole.T, rows.T).solution.T
    if not torch.allclose(shares @ whole, rows, atol=1e-4 * float(whole.abs().max())):
        raise NotProvided("its inputs are no sums of samples")
    return shares


def _taught(scores: Tensor, slopes: Tensor) -> Tensor:
    """(n, n): the labels that a mean of cross-entropies teaches, without what smoothing gives every class. Raises
    NotProvided where the loss is something else."""
    count, classes = scores.shape
    labels = scores.double().softmax(-1) - count * slopes.double()
    floor = float(labels.min())
    labels = (labels - floor) / (1 - classes * floor)
    sums, beyond = labels[:, :count].sum(-1), labels[:, count:]
    if floor < -_NEAR or not torch.allclose(sums, torch.ones_like(sums), atol=_NEAR) or bool((beyond > _NEAR).any()):
        raise NotProvided("its loss is no mean of cross-entropies")
    return labels[:, :count]


def _place_of(function: Callable[..., Any]) -> str:
    """file:line of its last line that compares scores with labels; of its first where none does."""
    plain = inspect.unwrap(function)
    lines = text_of(plain).splitlines()
    found = [n for n, line in enumerate(lines) if re.search(r"cross_entropy|criterion|loss_fn|loss\(", line)]
    return f"{plain.__code__.co_filename}:{plain.__code__.co_firstlineno + (found[-1] if found else 0)}"
