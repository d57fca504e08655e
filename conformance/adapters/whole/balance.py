"""The losses for the balance of experts that forward hands out beside its answer."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.adapters.whole.calling import default_dtype, loss_in
from conformance.adapters.whole.pads import PadProbes
from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.adapters.whole.results import named_tensors
from conformance.adapters.whole.running import RunningModel
from conformance.adapters.whole.table_probes import TableProbes
from conformance.protocol import NotProvided

BALANCE = re.compile(r"aux|balanc|router|z_loss|load|^z$", re.I)
_COUNTS = re.compile(r"one_hot|bincount|histc|scatter_add")


class BalanceProbes(TableProbes, PadProbes):
    """The experiments, of a running model."""

    def balance_without_gradient(self) -> tuple[str, str] | None:
        """The first balance loss that has no gradient, and the line that counts choices; None where all have one.
        Raises NotProvided where there is none, or forward gives the whole loss, too: then one is to look at."""
        terms, whole = _terms(self, self.example(2))
        if whole is not None:
            raise NotProvided("forward gives the whole loss, too")
        return next(((name, _line(self)) for name, term in terms.items() if not term.requires_grad), None)

    def balance_counts_padding(self) -> tuple[str, str] | None:
        """The first balance loss whose gradient leaves padded words out and whose value does not, and a line; None
        where none is such. Raises NotProvided where there is none, or no mask of padding."""
        main = self.calling.main.meaning
        if self.padding_of(main) != "mask" or not self.calling.main.vocab:
            raise NotProvided("it takes no mask of padding")
        inputs = self.example(2, 8, 95)
        if inputs[main].shape != (2, 8):
            raise NotProvided("its input has one length only")
        real = np.ones((2, 8), bool)
        real[0, 4:] = False
        tables = self.token_tables()
        table = next((p for p in self.module.parameters() if p.data_ptr() in tables), None)
        if table is None:
            raise NotProvided("no table of its words is seen")
        values: dict[str, list[float]] = {}
        for seed in range(96, 104):
            other = {**inputs, main: inputs[main].copy()}
            other[main][0, 4:] = self.example(1, 4, seed)[main][0]
            terms, _ = _terms(self, other | {"padding": real})
            for name, term in terms.items():
                if term.requires_grad:
                    values.setdefault(name, []).append(float(term.detach()))
                    words = np.setdiff1d(other[main][0, 4:], other[main][real])
                    (slope,) = torch.autograd.grad(term, table, retain_graph=True, allow_unused=True)
                    if slope is None or not len(words) or float(slope[words].abs().max()) > 0:
                        return None  # it counts padding altogether, or reads no words
        odd = [name for name, found in values.items() if max(found) - min(found) > 1e-6 * max(map(abs, found))]
        return (odd[0], _line(self)) if odd else None


def _terms(subject: RunningModel, inputs: Mapping[str, Any]) -> tuple[dict[str, Tensor], Tensor | None]:
    """The balance losses by name, and the whole loss where forward gives one. Raises NotProvided without one."""
    with subject.mode(False), torch.enable_grad(), default_dtype(subject.torch_dtype):
        result = subject.run(inputs)["result"]
    named = [(n, t) for n, t in named_tensors(result) if t.is_floating_point() and t.numel() == 1]
    terms = {name: term for name, term in named if BALANCE.search(name)}
    if not terms:
        raise NotProvided("it returns no loss for the balance of experts")
    rest = [term for name, term in named if name not in terms]
    return terms, loss_in(rest) if rest else None


def _line(subject: PlaceProbes) -> str:
    """file:line of the user's that counts how often each expert is chosen; "" where none is found."""
    files = dict.fromkeys(file for _, _, file, _ in subject.sources())
    for file in files:
        for number, line in enumerate(linecache.getlines(file), 1):
            if _COUNTS.search(line.partition("#")[0]):
                return f"{file}:{number}"
    return ""
