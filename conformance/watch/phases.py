"""Whether a script will train once more: a fine-tuning behind a pretraining, by a function of its own."""

from __future__ import annotations

import ast
import re
from typing import Any

from conformance.slips.slip import called, calls
from conformance.watch.stated import sources

_OPTIMIZERS = re.compile(r"(Sparse|N|R)?Adam(W|ax|8bit)?|SGD|Ada(factor|grad|delta)|RMSprop|ASGD|LBFGS|Lion|Muon|Rprop")


def trains_once_more(run: Any) -> bool:
    """Whether a function of the user's that is called makes an optimizer and steps it, and has made none so far."""
    made = {(at.code.co_filename, at.code.co_name) for one in run.optimizers.values() for at in one.stack}
    files = sources(run)
    asked = {called(node) for source in files for node in source.nodes}
    for source in files:
        for function in (node for node in source.tree.body if isinstance(node, ast.FunctionDef)):
            names = [called(node) for node in calls(function)]
            trains = "step" in names and any(_OPTIMIZERS.fullmatch(name) for name in names)
            if trains and function.name in asked and (source.file, function.name) not in made:
                return True
    return False
