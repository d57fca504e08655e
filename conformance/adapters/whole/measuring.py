"""The methods with which a model measures its perplexity, on a model that knows nothing."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from conformance.adapters.whole.calling import default_dtype
from conformance.adapters.whole.pads import PadProbes
from conformance.protocol import NotProvided

_MEASURES = re.compile(r"(?i)perplexity|(?<![a-z])ppl(?![a-z])")
_LONG = 53
"""How many tokens it reads: more than a usual segment, and no multiple of one."""


class MeasureProbes(PadProbes):
    """The experiment, of a running model."""

    def perplexities(self) -> Iterator[tuple[str, str, float]]:
        """What each of its methods that say that they give a perplexity gives if all tokens are equally likely: name,
        line and number. It is the number of tokens there are, however many are read and in whatever pieces."""
        for name, function in inspect.getmembers(type(self.module), inspect.isfunction):
            parameters = list(inspect.signature(function).parameters.values())[1:]
            needed = [one.name for one in parameters if one.default is one.empty]
            said = _MEASURES.search(f"{name} {inspect.getdoc(function) or ''}")
            if not said or len(needed) != 1 or function.__module__.startswith("torch."):
                continue
            for length in (_LONG, self.longest or 6):
                with suppress(Exception):
                    yield name, self.line_of(rf"def {name}\b"), self._measured(function, length)
                    break

    def _measured(self, function: object, length: int) -> float:
        twin = self.twin()
        ids = torch.tensor(self.example(2, length, 65)[self.calling.main.meaning])
        with torch.no_grad(), twin.mode(False), default_dtype(twin.torch_dtype):
            for parameter in twin.module.parameters():
                parameter.zero_()
            made = function(twin.module, twin.calling.turned(ids))  # type: ignore[operator]
        if isinstance(made, Tensor) and made.numel() == 1:
            made = float(made)
        if not isinstance(made, float) or not np.isfinite(made):
            raise NotProvided("it gives no number")
        return made
