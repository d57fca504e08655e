"""The loss of a language model's last projection, made of the kernels of its parts.

On the CPU it goes through chunks of rows; here the logits are stored whole: the memory of a GPU holds them, and large
products fill it better.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.kernels.cuda.cross_entropy import cross_entropy, cross_entropy_grad
from minigrad.kernels.cuda.products import matmul


def _loss(calls: Any, x: Any, weight: Any, targets: Any, value: Any, attrs: dict[str, Any]) -> tuple[Any, Any]:
    """Append what fills `value`; returns logits and log-probabilities ``(N, V)``."""
    shape = (x.shape[0], weight.shape[0])
    logits, log_probs = calls.scratch(shape, np.float32), calls.scratch(shape, np.float32)
    assert matmul(calls, [x, weight.transpose(1, 0)], [logits])
    assert cross_entropy(calls, [logits, targets], [value, log_probs], **attrs)
    return logits, log_probs


def linear_cross_entropy(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], **attrs: Any) -> bool:
    """The loss of x ``(N, d)`` projected by weight ``(V, d)``; declines no rows and no classes."""
    x, weight, targets = inputs
    if not len(x) * len(weight):
        return False
    _loss(calls, x, weight, targets, outputs[0], attrs)
    return True


def linear_cross_entropy_grad(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], **attrs: Any) -> bool:
    """(dx, dweight, loss); declines no rows and no classes."""
    g, x, weight, targets = inputs
    if not len(x) * len(weight):
        return False
    of_x, of_weight, value = outputs
    logits, log_probs = _loss(calls, x, weight, targets, value, attrs)
    d_logits = calls.scratch(logits.shape, np.float32)
    assert cross_entropy_grad(calls, [g, logits, targets, log_probs], [d_logits], **attrs)
    assert matmul(calls, [d_logits, weight], [of_x])
    assert matmul(calls, [d_logits.transpose(1, 0), x], [of_weight])
    return True
