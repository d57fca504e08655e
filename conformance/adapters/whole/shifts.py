"""Parameters that change nothing because mathematics takes away what they add: the same to all scores of a query.

The bias of a key adds the query times itself to each score of the query, a bias of a map between heads one number to
all scores of a head; a softmax does not see either. Such a parameter is found by what it does to the scores.

In the first decoder layer of DETR learnt queries, which begin as zeros, attend to each other. No input changes the
scores, all values are one bias, and any weights give that bias: what makes scores and values there learns nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch

from conformance.adapters.whole.attention import Softmax, softmaxes
from conformance.adapters.whole.flow import PICKS, PRODUCTS, moves, operands
from conformance.adapters.whole.record import Op, Record, Value, record
from conformance.adapters.whole.running import RunningModel
from conformance.protocol import NotProvided

_READS_ROWS = {"embedding", *PICKS}
_ROUNDINGS = 1e4
"""So many roundings of the largest score may lie between shifts that are equal."""


class ShiftProbes(RunningModel):
    """The experiment with what only shifts scores, of a running model."""

    def equal_shifts(self, names: Collection[str]) -> set[str]:
        """Those of these parameters that only add one number to all scores of a softmax, or that stand among
        constants. A table of which rows are read is none: its rows should differ from key to key. Raises NotProvided
        where no run can be recorded."""
        if not names:
            return set()
        inputs = self.example(batch=2, length=32 if self.answers_stretches else 6, seed=60)
        try:
            with self.mode(False), torch.no_grad():
                run = record(self.module, lambda: self.run(inputs))
        except Exception as error:
            raise NotProvided(f"its run cannot be recorded: {type(error).__name__}") from error
        found = list(softmaxes(run))
        constant = [one for one in found if not run.computed(one.given)]
        inside = run.before([one.given for one in constant]) - run.before(
            run.results, 0, [one.gave for one in constant]
        )
        return {
            value.name
            for value in run.values
            if value.kind == "parameter"
            and value.name in names
            and (_only_shifts(run, value, found) or _is_among_constants(run, value, inside))
        }


def _is_among_constants(run: Record, parameter: Value, inside: Collection[Value]) -> bool:
    """Whether a parameter is `inside`, where it makes nothing but scores that no input changes, or multiplies zeros
    that none changes."""
    return parameter in inside or any(_multiplies_zeros(run, op) for op in _products_of(run, parameter))


def _products_of(run: Record, value: Value) -> Iterator[Op]:
    """The products with a value, turned or cut as it may be."""
    for op in run.consumers(value):
        if op.name in PRODUCTS:
            yield op
        elif moves(op):
            for one in op.outputs:
                yield from _products_of(run, one)


def _multiplies_zeros(run: Record, product: Op) -> bool:
    return any(not run.computed(one) and not bool(one.data.any()) for one in operands(product))


def _only_shifts(run: Record, parameter: Value, found: list[Softmax]) -> bool:
    """Whether other numbers in a parameter move the scores of some softmax, and those of each query alike."""
    if not found or any(_reads_rows(op.name, parameter, op.outputs[0]) for op in run.consumers(parameter)):
        return False
    noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(7)).to(parameter.data)
    scores = [softmax.given for softmax in found]
    shifted = False
    try:
        replayed = run.replay(scores, {parameter: parameter.data + noise})
    except (RuntimeError, IndexError):  # other numbers choose other rows, as for experts, and these are not as many
        return False
    for softmax, after in zip(found, replayed, strict=True):
        before, seen = softmax.given.data, softmax.gave.data > 0
        change = after - before
        largest = float(before.where(seen, 0.0).abs().max() + change.where(seen, 0.0).abs().max())
        rounding = _ROUNDINGS * torch.finfo(change.dtype).eps * largest
        low = change.where(seen, torch.inf).amin(softmax.axis)
        high = change.where(seen, -torch.inf).amax(softmax.axis)
        if float((high - low).where(seen.any(softmax.axis), 0.0).max()) > rounding:
            return False
        shifted = shifted or float(change.where(seen, 0.0).abs().max()) > rounding
    return shifted


def _reads_rows(operation: str, parameter: Value, result: Value) -> bool:
    """Whether an operation reads some of a parameter's rows."""
    return operation in _READS_ROWS or (operation == "slice" and result.data.numel() < parameter.data.numel())
