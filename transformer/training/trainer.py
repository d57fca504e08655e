"""The training loop: schedule, steps, log, evaluation, checkpoints, and exact continuation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

import minigrad as mg
from minigrad import nn
from minigrad.locks import only_writer
from minigrad.optim import AdamW, CosineWithWarmup, LambdaLR, LRScheduler
from transformer.training import checkpoint
from transformer.training.optimise import PRECISIONS, Batch, LossSum, Updater, token_loss
from transformer.training.parallel import Team
from transformer.training.report import Report, plot, read_log

SCHEDULES = ("cosine", "inverse-sqrt", "constant")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How a model is trained; see `Trainer`. Raises ValueError for a setting out of its range."""

    steps: int = 1000
    lr: float = 1e-3
    warmup: int = 100
    schedule: str = "cosine"
    weight_decay: float = 0.01
    beta2: float = 0.98
    clip: float = 1.0
    label_smoothing: float = 0.0
    accumulate: int = 1
    precision: str = "float32"
    compile: bool = True
    seed: int = 0
    log_every: int = 20
    evaluate_every: int = 200
    save_every: int = 100
    patience: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "log_every", "evaluate_every", "save_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lr", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("warmup", "seed", "patience"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay}")
        for name in ("beta2", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)}")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {self.schedule!r}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")


def schedule(optimizer: Any, settings: TrainSettings) -> LRScheduler:
    """Linear warm-up to lr, then "cosine" to a tenth of it, "inverse-sqrt" (the documents' shape), or "constant"."""
    if settings.schedule == "cosine":
        return CosineWithWarmup(optimizer, settings.warmup, max(settings.steps, settings.warmup + 1), 0.1)
    peak = max(settings.warmup, 1)
    decay = 0.5 if settings.schedule == "inverse-sqrt" else 0.0
    return LambdaLR(optimizer, lambda done: min((done + 1) / peak, (peak / max(done + 1, peak)) ** decay))


class Trainer:
    """Trains `model` on `batch(step)` for step 0, 1, ..., settings.steps - 1, by AdamW.

    batch must depend on nothing but the step: then a checkpoint needs no position in the data, and a run that is
    continued sees the same batches. Dropout draws from the default generator, whose state checkpoints hold. So a
    continued run has, bit by bit, the weights of one that never stopped.

    evaluate: returns figures by name for the log. loss: `token_loss` unless given. folder: where checkpoints, log and
    plot go, None for nowhere. notes: JSON values that checkpoints carry. team: the processes that share each batch; its
    first one evaluates, writes and reports, and all have the same weights after each step.
    """

    def __init__(
        self,
        model: nn.Module,
        batch: Callable[[int], Batch],
        settings: TrainSettings,
        folder: Path | None = None,
        evaluate: Callable[[], dict[str, float]] | None = None,
        loss: LossSum | None = None,
        pad_id: int = 0,
        notes: dict[str, Any] | None = None,
        report: Report | None = None,
        team: Team | None = None,
    ) -> None:
        self.model, self.batch, self.settings, self.folder = model, batch, settings, folder
        self.evaluate, self.notes, self.pad_id = evaluate, notes or {}, pad_id
        self.team, self.silent = team, team is not None and not team.first
        quiet = Console(quiet=True) if self.silent else None
        self.report = report or Report(settings.steps, None if self.silent else folder, quiet)
        self.updater = Updater(
            model,
            lambda groups: AdamW(groups, lr=mg.tensor(settings.lr, dtype=mg.float64), betas=(0.9, settings.beta2)),
            loss or token_loss(pad_id, settings.label_smoothing),
            pad_id,
            settings.weight_decay,
            settings.accumulate,
            settings.clip,
            settings.precision,
            settings.compile,
            team,
        )
        self.schedule = schedule(self.updater.optimizer, settings)
        self.step = 0
        self.held_out: list[float] = []  # its loss, of every evaluation

    def resume(self) -> int:
        """Continue from the folder's checkpoint; returns the number of updates it has seen."""
        if self.folder is None:
            raise ValueError("a trainer without a folder has no checkpoint to resume from")
        self.step = checkpoint.restore(self.folder, self.updater)
        self.schedule.load_state_dict({**self.schedule.state_dict(), "last_epoch": self.step})
        seen = [record for record in read_log(self.folder) if record["step"] <= self.step]
        self.held_out = [record["held_out_loss"] for record in seen if "held_out_loss" in record]
        return self.step

    def run(self) -> dict[str, float]:
        """Train until settings.steps, or until settings.patience evaluations have brought no better held-out loss.

        Returns the last evaluation's figures (the last loss where there is none).

        Raises FloatingPointError when the loss is not finite, which a smaller lr usually cures, and BlockingIOError
        while another process trains in the folder.
        """
        if self.team is not None:
            self.team.draw_apart()
        if self.folder is None or self.silent:
            return self._run()
        self.folder.mkdir(parents=True, exist_ok=True)
        with only_writer(self.folder):
            checkpoint.clean(self.folder)
            return self._run()

    def _run(self) -> dict[str, float]:
        settings, figures = self.settings, {}
        self.model.train()
        if self.step == 0:
            self._save()
        with self.report.running(self.step):
            since, tokens, losses = time.perf_counter(), 0, []
            while self.step < settings.steps and not self._waited_enough():
                batch = self.batch(self.step)
                rate = self.schedule.get_last_lr()[0]
                loss, norm = self.updater.update(batch)
                if not math.isfinite(loss):
                    raise FloatingPointError(f"the loss became {loss} at step {self.step + 1}: train with a smaller lr")
                self.schedule.step()
                self.step += 1
                losses.append(loss)
                tokens += int((batch.labels != self.pad_id).sum())
                speed = tokens / max(time.perf_counter() - since, 1e-9)
                self.report.advance(self.step, loss=loss, tokens_per_s=speed)
                last = self.step == settings.steps
                if last or self.step % settings.log_every == 0:
                    mean = sum(losses) / len(losses)
                    self.report.record(
                        {"step": self.step, "loss": mean, "lr": rate, "grad_norm": norm, "tokens_per_s": speed}
                    )
                    since, tokens, losses, figures = time.perf_counter(), 0, [], {"loss": mean}
                if self.evaluate is not None and (last or self.step % settings.evaluate_every == 0):
                    started = time.perf_counter()
                    figures = self.evaluate() if self.team is None else self.team.told(self.evaluate)
                    self.held_out += [figures["held_out_loss"]] if "held_out_loss" in figures else []
                    self.report.record({"step": self.step, **figures})
                    since += time.perf_counter() - started
                if last or self.step % settings.save_every == 0 or self._waited_enough():
                    self._save()
        return figures

    def _waited_enough(self) -> bool:
        """Is the best evaluation so far `patience` evaluations ago?"""
        if not self.settings.patience or not self.held_out:
            return False
        return len(self.held_out) - 1 - self.held_out.index(min(self.held_out)) >= self.settings.patience

    def _save(self) -> None:
        if self.team is not None:
            self.team.check_equal(self.updater.weights())
        if self.folder is not None and not self.silent:
            checkpoint.save(self.folder, self.updater, self.step, self.notes)
            plot(self.folder, str(self.notes.get("title", "training")))
