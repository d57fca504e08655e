"""Learning-rate schedules: what a group's `lr` is at each step.

A schedule sets the rate of the first step when it is made, and that of the next one at each `step()`, which is called
after `optimizer.step()`. So every update, the first included, runs at the schedule's rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from minigrad.optim.optimizer import Optimizer
from minigrad.tensor import Tensor


def noam_rate(step: float, d_model: int, warmup: int) -> float:
    """d_model^-0.5 min(step^-0.5, step warmup^-1.5), and 0 at step 0; steps count from 1.

    It rises for `warmup` steps, then falls with the root of the step (Vaswani et al. 2017, 5.3; document 000 2.13.2).
    """
    if step <= 0:
        return 0.0
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


class LRScheduler:
    """Base: subclasses write `rate`. `last_epoch` counts the calls of `step()`, from 0. Raises TypeError without an
    optimizer."""

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__} needs an optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        self.base_lrs = [float(group["lr"]) for group in optimizer.param_groups]
        self.last_epoch = 0
        self._apply()

    def rate(self, epoch: int, base_lr: float) -> float:
        """The learning rate after `epoch` updates, of a group that was made with `base_lr`."""
        raise NotImplementedError(f"{type(self).__name__} has no rate()")

    def _apply(self) -> None:
        for group, base_lr in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            rate = self.rate(self.last_epoch, base_lr)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def step(self) -> None:
        """Set the rate of the next update."""
        self.last_epoch += 1
        self._apply()

    def get_last_lr(self) -> list[float]:
        """The rate of each group now."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from there; sets the groups' rates."""
        self.last_epoch, self.base_lrs = int(state_dict["last_epoch"]), list(state_dict["base_lrs"])
        self._apply()


class LambdaLR(LRScheduler):
    """base_lr * lr_lambda(epoch)."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        self.lr_lambda = lr_lambda
        super().__init__(optimizer)

    def rate(self, epoch: int, base_lr: float) -> float:
        return base_lr * self.lr_lambda(epoch)


class StepLR(LRScheduler):
    """base_lr gamma^(epoch // step_size)."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        if step_size < 1:
            raise ValueError(f"StepLR: step_size must be at least 1, got {step_size}")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def rate(self, epoch: int, base_lr: float) -> float:
        return base_lr * self.gamma ** (epoch // self.step_size)


class ExponentialLR(LRScheduler):
    """base_lr gamma^epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, epoch: int, base_lr: float) -> float:
        return base_lr * self.gamma**epoch


class LinearLR(LRScheduler):
    """base_lr times a factor that goes linearly from start_factor to end_factor in total_iters updates, and stays."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3.0, end_factor: float = 1.0, total_iters: int = 5
    ) -> None:
        if total_iters < 1:
            raise ValueError(f"LinearLR: total_iters must be at least 1, got {total_iters}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer)

    def rate(self, epoch: int, base_lr: float) -> float:
        done = min(epoch, self.total_iters) / self.total_iters
        return base_lr * (self.start_factor + (self.end_factor - self.start_factor) * done)


class CosineAnnealingLR(LRScheduler):
    """eta_min + (base_lr - eta_min) (1 + cos(pi epoch / T_max)) / 2 (Loshchilov and Hutter 2017)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        if T_max < 1:
            raise ValueError(f"CosineAnnealingLR: T_max must be at least 1, got {T_max}")
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def rate(self, epoch: int, base_lr: float) -> float:
        return self.eta_min + (base_lr - self.eta_min) * 0.5 * (1.0 + math.cos(math.pi * epoch / self.T_max))


class NoamSchedule(LRScheduler):
    """The documents' warm-up, `noam_rate`, times `factor`; the groups' own rates do not enter."""

    def __init__(self, optimizer: Optimizer, d_model: int, warmup: int = 4000, factor: float = 1.0) -> None:
        if d_model < 1 or warmup < 1:
            raise ValueError(f"NoamSchedule: d_model and warmup must be at least 1, got {d_model} and {warmup}")
        self.d_model, self.warmup, self.factor = d_model, warmup, factor
        super().__init__(optimizer)

    def rate(self, epoch: int, base_lr: float) -> float:
        return self.factor * noam_rate(epoch + 1, self.d_model, self.warmup)


class CosineWithWarmup(LRScheduler):
    """Linear from base_lr/warmup to base_lr over `warmup` updates, then half a cosine down to base_lr*min_ratio.

    total: the number of updates, warm-up included; later ones stay at the minimum.
    """

    def __init__(self, optimizer: Optimizer, warmup: int, total: int, min_ratio: float = 0.0) -> None:
        if not 0 <= warmup < total:
            raise ValueError(f"CosineWithWarmup: warmup must lie in [0, total), got {warmup} of {total}")
        self.warmup, self.total, self.min_ratio = warmup, total, min_ratio
        super().__init__(optimizer)

    def rate(self, epoch: int, base_lr: float) -> float:
        if epoch < self.warmup:
            return base_lr * (epoch + 1) / self.warmup
        done = min(1.0, (epoch - self.warmup) / (self.total - self.warmup))
        return base_lr * (self.min_ratio + (1.0 - self.min_ratio) * 0.5 * (1.0 + math.cos(math.pi * done)))
