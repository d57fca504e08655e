"""The global random generators that an implementation may use, seeded: numpy's, Python's, torch's."""

from __future__ import annotations

import random
import sys

import numpy as np


def seed_everything(seed: int = 0) -> None:
    """Make an implementation that uses a global generator repeatable; torch's, if torch is there."""
    random.seed(seed)
    np.random.seed(seed)
    if "torch" in sys.modules:
        seed_torch(seed)


def seed_torch(seed: int) -> None:
    """``torch.manual_seed``, without what it keeps for devices that this machine lacks: each call notes where it was
    called, which takes hundreds of times as long as the seeding, to be replayed when a first GPU comes to be used.
    """
    import torch

    accelerator = getattr(torch, "accelerator", None)  # older than torch 2.6: none, and nothing is left out
    if accelerator is None or accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
