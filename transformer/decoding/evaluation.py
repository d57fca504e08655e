"""A model for the time in which it is used, not trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import minigrad as mg
from minigrad import nn


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients for the duration of a block: dropout must not touch what is decoded."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with mg.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
