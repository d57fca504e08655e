"""Optimizers and learning-rate schedules, under torch's names and with torch's update rules."""

from minigrad.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineWithWarmup,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    NoamSchedule,
    StepLR,
    noam_rate,
)
from minigrad.optim.optimizer import SGD, Adam, AdamW, Optimizer

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "CosineAnnealingLR",
    "CosineWithWarmup",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "NoamSchedule",
    "Optimizer",
    "StepLR",
    "noam_rate",
]
