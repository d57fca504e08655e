"""minigrad as a library that is watched: taps on its modules, losses, optimizers and files, into the same record.

A compiled step has no modules and no losses: it is a plan. While a run is watched `compile` runs its function op by op,
and a note says so: what it computes is the same but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

import minigrad.autograd
import minigrad.functional
import minigrad.io
import minigrad.nn.layers
from conformance.watch.calls import Calls
from conformance.watch.events import Loss, Mode, Seed
from conformance.watch.events import Targets as Asked
from conformance.watch.minigrad_updates import Files, Optimization, tensors, values
from conformance.watch.targets import LARGEST, Array, Question, fingerprints, kind_of
from conformance.watch.watcher import FOREIGN, Watcher
from minigrad import Tensor, nn
from minigrad.compiler import Compiled
from minigrad.gradmode import no_grad
from minigrad.random import default_generator
from minigrad.state import state


class OnMinigrad:
    def tap(self, watcher: Watcher) -> None:
        folder = str(Path(minigrad.__file__).parent)
        if folder not in FOREIGN:
            FOREIGN.append(folder)
        _Modules(watcher)
        _Losses(watcher)
        Files(watcher, Optimization(watcher))

    def is_tracing(self) -> bool:
        return state.interpreter.tracing

    def quiet(self) -> AbstractContextManager[Any]:
        return no_grad()

    def finish(self, watcher: Watcher) -> None:
        """Nothing: no call is made again."""


LIBRARY = OnMinigrad()


# --- modules --------------------------------------------------------------------------------------


class _Modules(Calls):
    """Which outermost module is called in which mode and with what, and what its parts are fed."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        watcher.around(nn.Module, "_run", self.run)
        watcher.around(nn.Module, "train", self.train)
        for owner in (minigrad.nn.layers, minigrad.functional):
            watcher.around(owner, "embedding", self.embedding)
        watcher.around(minigrad, "manual_seed", self.seed)
        watcher.around(Compiled, "__call__", self.compiled)

    def run(self, original: Any, module: nn.Module, given: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        watcher = self.watcher
        watcher.depth += 1
        try:
            self.use(module)
            if watcher.depth == 1:
                gradients = state.grad_enabled
                with watcher.looking():
                    self._outermost(module, [*tensors((given, keywords))], gradients)
            result = original(module, given, keywords)
        finally:
            watcher.depth -= 1
        if watcher.is_close:
            watcher.seen.results = [*watcher.seen.results, *tensors(result, 2)][-8:]
        return result

    def _outermost(self, module: nn.Module, given: Sequence[Tensor], gradients: bool) -> None:
        rows = sorted((one for one in given if one.ndim >= 2), key=lambda one: one.is_floating_point())
        self.begun(
            module,
            gradients,
            generator=hash(values(default_generator.get_state()).tobytes()),
            samples=fingerprints(values(rows[0])) if rows else (),
            columns=fingerprints(values(rows[0]).T.copy()) if rows and rows[0].ndim == 2 else (),
        )

    def probability(self, part: Any) -> float | None:
        return float(part.p) if isinstance(part, nn.Dropout) else None

    def is_norm(self, part: Any) -> bool:
        return isinstance(part, nn.BatchNorm1d)

    def train(self, original: Any, module: nn.Module, mode: bool = True) -> Any:
        result = original(module, mode)
        self.watcher.add(Mode(module=self.watcher.number("module", module), training=bool(mode)))
        return result

    def embedding(self, original: Any, ids: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
        if self.watcher.is_close:
            with self.watcher.looking():
                self.watcher.seen.inputs.append((values(ids).copy(), weight.shape[0], padding_idx))
        result: Tensor = original(ids, weight, padding_idx)
        return result

    def seed(self, original: Any, *rest: Any, **keywords: Any) -> Any:
        self.watcher.add(Seed())
        return original(*rest, **keywords)

    def compiled(self, original: Any, plan: Compiled, *rest: Any, **keywords: Any) -> Any:
        said = "compiled steps of minigrad ran op by op: what they compute differs by rounding only"
        if said not in self.watcher.run.notes:
            self.watcher.run.notes.append(said)
        return plan.function(*rest, **keywords)


# --- losses ---------------------------------------------------------------------------------------


class _Losses:
    """What a loss is given."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        watcher.around(minigrad.functional, "cross_entropy", self.cross_entropy)
        for name in ("nll_loss", "kl_div", "binary_cross_entropy_with_logits"):
            watcher.around(minigrad.functional, name, self.other(name))

    def other(self, name: str) -> Callable[..., Tensor]:
        """The tap of a loss of which only its value is seen."""

        def tapped(original: Any, *rest: Any, **keywords: Any) -> Tensor:
            result: Tensor = original(*rest, **keywords)
            self._add(name, result, str(keywords.get("reduction", "mean")))
            return result

        return tapped

    def cross_entropy(
        self,
        original: Any,
        logits: Tensor,
        targets: Tensor,
        ignore_index: int | None = -100,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Tensor:
        result: Tensor = original(logits, targets, ignore_index, label_smoothing, reduction)
        event = self._add("cross_entropy", result, reduction)
        event.smoothing = float(label_smoothing)
        if self.watcher.is_close and logits.numel() <= LARGEST and logits.ndim >= 2:
            with self.watcher.looking():
                self._look(event, logits, values(targets).reshape(-1).copy(), ignore_index)
        return result

    def _look(self, event: Loss, logits: Tensor, labels: Array, ignored: int | None) -> None:
        """Work out what the loss saw, now; and which labels count, when the gradient of its rows comes."""
        watcher, rows = self.watcher, _rows(values(logits))
        event.input, event.classes = kind_of(rows, float(np.finfo(rows.dtype).eps)), rows.shape[-1]
        event.targets = Asked(total=labels.size)
        results = [values(one) for one in watcher.seen.results if one.ndim == 3 and one.shape[-1] == rows.shape[-1]]
        none = labels.min() - 1  # no label is ignored
        question = Question(
            event.targets, rows, labels, none if ignored is None else ignored, results, watcher.seen.inputs
        )

        def weigh(gradient: Tensor) -> None:
            if not watcher.is_over and not question.targets.counted:
                with watcher.looking():
                    question.weigh(_rows(values(gradient)), event.smoothing)

        if logits.requires_grad:
            logits.register_hook(weigh)
        else:
            question.unweighed()

    def _add(self, name: str, result: Tensor, reduction: str) -> Loss:
        value = result.item() if result.numel() == 1 else None
        return self.watcher.add(Loss(name=name, value=value, reduction=reduction, gradients=result.requires_grad))


def _rows(found: Array) -> Array:
    """Logits (N, V, ...) as rows (N..., V)."""
    moved: Array = np.moveaxis(found, 1, -1).reshape(-1, found.shape[1])
    return moved
