"""What stands beside the words of a text, such as their letters: whether that of padding changes an answer."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.calling import default_dtype
from conformance.adapters.whole.pads import PadProbes
from conformance.protocol import NotProvided

_ROWS, _PADS = 3, 2


class BesideWordProbes(PadProbes):
    """The experiment, of a running model."""

    def read_beside_padding(self) -> tuple[int, str]:
        """How many inputs have something for each word, (B, T, ...), and the first of them of which something is read
        where the words are padding; "" for none. Raises NotProvided where the model hides no padding, or has no such
        input."""
        main, how = self.calling.main, self.padding_of(self.calling.main.meaning)
        if len(self.calling.inputs) > 1 or not main.vocab or how not in ("token", "mask"):
            raise NotProvided("it hides no padding of its words")
        twin = self.twin()
        inputs = twin.example(_ROWS, seed=99)
        words = inputs[main.meaning]
        real = np.ones(words.shape, bool)
        real[0, -_PADS:] = False
        if self.pad_id is not None:
            inputs[main.meaning] = np.where(real, words, self.pad_id)
        if how == "mask":
            inputs["padding"] = real
        with default_dtype(twin.torch_dtype):
            given = twin.calling.arguments(twin.tensors(inputs))
        base, told = twin._answers_of_words(given, real), 0
        for name in self.calling.fixed:
            value = given.get(name)
            if not isinstance(value, Tensor) or value.shape[:2] != words.shape or value.dtype == torch.bool:
                continue
            if twin._takes(given | {name: torch.cat([value, value[:, :1]], 1)}):
                continue  # it has a length of its own
            moved = value.clone()
            moved[0, -_PADS:] = value.max() if bool((value[0, -_PADS:] != value.max()).any()) else value.min()
            if torch.equal(moved, value):
                continue  # there is one number only
            told += 1
            other = twin._answers_of_words(given | {name: moved}, real)
            if any(not torch.allclose(a, b, rtol=1e-6, atol=1e-6) for a, b in zip(base, other, strict=True)):
                return told, name
        if not told:
            raise NotProvided("nothing stands beside its words")
        return told, ""

    def _answers_of_words(self, given: dict[str, Any], real: np.ndarray[Any, Any]) -> list[Tensor]:
        """The answers to real words, and those to whole texts."""
        with self.mode(False), torch.no_grad(), default_dtype(self.torch_dtype):
            found = [one for one in tensors_in(self.module(**given)) if one.is_floating_point()]
        return [one[torch.tensor(real)] if one.shape[:2] == real.shape else one for one in found]

    def _takes(self, given: dict[str, Any]) -> bool:
        with suppress(Exception), self.mode(False), torch.no_grad(), default_dtype(self.torch_dtype):
            self.module(**given)
            return True
        return False
