"""Optimizers and learning-rate schedules, under torch's names and with torch's update rules."""

from minigrad.optim.lr_scheduler import CosineWithWarmup, LambdaLR, LRScheduler, NoamSchedule, noam_rate
from minigrad.optim.optimizer import SGD, Adam, AdamW, Optimizer

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "CosineWithWarmup",
    "LRScheduler",
    "LambdaLR",
    "NoamSchedule",
    "Optimizer",
    "noam_rate",
]
