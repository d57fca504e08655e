"""Of a model that answers for the last position only: what it computes at every position before it takes the last.

Nothing that it returns shows whether it hides the future. What its last layer gives for every position does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.decoding import DecodingProbes
from conformance.protocol import Array, Arrays, NotProvided

_HIDES = r"\b(triu_?|tril_?|generate_square_subsequent_mask)\(|\b(is_)?causal ?= ?True"
"""What code says that hides the future, whatever its options are."""


@dataclass(frozen=True)
class Rows:
    """A model whose answer is what its layer at `path` gives, ``(B, T, d)``; everything else is the model's.
    batch_first: whether the layer gives it so."""

    subject: LastRowProbes
    path: str
    batch_first: bool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.subject, name)

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        rows = self.subject.given_by(inputs)[self.path]
        return {"out": to_array(rows if self.batch_first else rows.transpose(0, 1))}


class LastRowProbes(DecodingProbes):
    """What its layers compute at every position, of a running model."""

    def by_rows(self) -> Rows:
        """The model with an answer for every position. Raises NotProvided where nothing in its code hides the future,
        or no layer has a row for each position."""
        if not self.line_of(_HIDES):
            raise NotProvided("it answers for the last position only, which sees all")
        given = {path: tuple(out.shape[:2]) for path, out in self.given_by(self.example(2, 5)).items()}
        found = [Rows(self, path, sizes == (2, 5)) for path, sizes in given.items() if sizes in ((2, 5), (5, 2))]
        if not found:
            raise NotProvided("it answers for the last position only, and none of its layers has all")
        return found[-1]

    def given_by(self, inputs: Arrays) -> dict[str, Tensor]:
        """What each part gives in a run, as numbers (B, T, d) or (T, B, d), in the order in which they end."""
        given: dict[str, Tensor] = {}

        def seen(path: str, part: nn.Module, args: Any, result: Any) -> None:
            given.pop(path, None)
            first = next(iter(tensors_in(result)), None)
            if first is not None and first.is_floating_point() and first.ndim == 3:
                given[path] = first.detach()

        parts = [(path, part) for path, part in self.module.named_modules() if path]
        hooks = [part.register_forward_hook(partial(seen, path)) for path, part in parts]
        try:
            with self.mode(False), torch.no_grad():
                self.run(inputs)
        finally:
            for one in hooks:
                one.remove()
        return given
