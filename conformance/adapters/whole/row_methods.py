"""Methods of a model beside its forward that give each text a number or a vector: a log-probability, an embedding.

They are called as forward is, with the ids and the mask of padding under forward's own names.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import default_dtype
from conformance.adapters.whole.pads import PadProbes
from conformance.adapters.whole.used_functions import line_in
from conformance.protocol import Array

_POOLS = r"\.(mean|sum|max|amax)\(|\[:,\s*-?\d"
"""How the words of a text are put together, or one of them is taken."""


class RowMethodProbes(PadProbes):
    """Those methods, of a running model."""

    def rows_of_methods(self, inputs: Mapping[str, Any]) -> dict[str, tuple[Array, str]]:
        """What each such method gives for these texts, (B) or (B, d), by its name, and its line."""
        found: dict[str, tuple[Array, str]] = {}
        twin = self.twin()
        given = twin.calling.arguments(twin.tensors(inputs))
        for name, needed in self._row_methods():
            with suppress(Exception), twin.mode(False), torch.no_grad(), default_dtype(self.torch_dtype):
                made = getattr(twin.module, name)(**{parameter: given[parameter] for parameter in needed})
                if _is_one_a_row(made, inputs[self.calling.main.meaning].shape[:2]):
                    found[name] = (to_array(_finite(made.double())), line_in(getattr(type(self.module), name), _POOLS))
        return found

    def _row_methods(self) -> Iterator[tuple[str, list[str]]]:
        """The names of the methods, and of the parameters that they are given: what has no default, with the ids and
        the mask, if there is one, among it."""
        main = self.calling.main.parameter
        masks = {mask.parameter for mask in self.calling.masks if mask.padding and not mask.own and not mask.square}
        by_token = self.padding_of(self.calling.main.meaning) == "token"
        for name, method in inspect.getmembers(type(self.module), inspect.isfunction):
            if not isinstance(method, FunctionType) or method.__module__.startswith("torch") or name.startswith("_"):
                continue
            parameters = list(inspect.signature(method).parameters.values())[1:]
            taken = [p.name for p in parameters if p.default is p.empty or p.name in masks]
            says_padding = by_token or masks.intersection(taken)
            if name != "forward" and main in taken and says_padding and {*taken} <= {main, *masks}:
                yield name, taken


def _finite(made: Tensor) -> Tensor:
    """The same with 0 for what is ruled out: two infinities cannot be compared."""
    return made.masked_fill(made.isinf(), 0.0)


def _is_one_a_row(made: Any, sizes: tuple[int, ...]) -> bool:
    """Whether a result has a number or a vector for each text, and nothing for each word."""
    rows, length = sizes
    is_of_rows = isinstance(made, Tensor) and made.is_floating_point() and made.ndim in (1, 2) and len(made) == rows
    return is_of_rows and (made.ndim == 1 or made.shape[1] not in (length, 1))
