"""Training: losses, updates (accumulated, clipped, in half precision), the loop, checkpoints, reports."""

from transformer.training import checkpoint
from transformer.training.losses import shift_targets, smoothed_cross_entropy
from transformer.training.masking import mask_tokens
from transformer.training.optimise import Batch, LossScale, Updater, parameter_groups, token_loss
from transformer.training.report import Report
from transformer.training.trainer import Trainer, TrainSettings, schedule

__all__ = [
    "Batch",
    "LossScale",
    "Report",
    "TrainSettings",
    "Trainer",
    "Updater",
    "checkpoint",
    "mask_tokens",
    "parameter_groups",
    "schedule",
    "shift_targets",
    "smoothed_cross_entropy",
    "token_loss",
]
