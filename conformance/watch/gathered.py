"""Functions that gather a model's answers to what a loader gives, whatever they are called: nothing is learned."""

from __future__ import annotations

import ast
import re
from typing import Any

from conformance.watch.lines import FUNCTIONS, source_of

_LOADERS = re.compile(r"loader|batche[sd]", re.IGNORECASE)
_WITHOUT_GRADIENTS = re.compile(r"no_grad|inference_mode")
_MEANT = re.compile(
    r"\.train\(|backward|dropout|update_bn|\bmc_|momentum|sampl|generat|pseudo|teacher|rollout|collect", re.IGNORECASE
)
"""What a function says that learns, or wants answers as they are in training."""


def gathers_answers(call: Any) -> bool:
    """Whether a call of a model was made by a function that goes through a loader without gradients, and gives back
    what it gathers."""
    for at in call.stack:
        source = source_of(at.code.co_filename)
        function = source.defined(at.code) if source is not None else None
        if not isinstance(function, FUNCTIONS):
            continue
        text = ast.unparse(function)
        inner = [*ast.walk(function)]
        loops = any(isinstance(one, ast.For) and _LOADERS.search(ast.unparse(one.iter)) for one in inner)
        gives = any(isinstance(one, ast.Return) and one.value is not None for one in inner)
        if loops and gives and _WITHOUT_GRADIENTS.search(text) and not _MEANT.search(text):
            return True
    return False
