"""Does the mask of an attention core hide what it should, and is dropout where it belongs?"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from conformance.adapters.whole.attention import HIDES, AttentionCore
from conformance.adapters.whole.findings import Finding, numbers, once
from conformance.adapters.whole.flow import base_name, moves, operands, pointwise
from conformance.adapters.whole.record import Op, Place, Record

WEAK = -50.0
"""A fill above this leaves weights that can be measured (e^-50 = 2e-22); between this and HIDES it is a note."""


def between(core: AttentionCore) -> list[Op]:
    """The operations from the softmax to the product with the values."""
    after = core.record.after([core.softmax.gave])
    inside = core.record.before([core.used], core.softmax.gave.number) & after - {core.softmax.gave}
    return [core.record.ops[number] for number in sorted({value.op for value in inside})]


def mask_after(core: AttentionCore) -> Iterator[Finding]:
    ops = between(core)
    masking = [op for op in ops if base_name(op) in ("mul", "masked_fill", "where") and not drops(core.record, op)]
    if not masking or any(drops(core.record, op) for op in ops):
        return
    [factor] = core.record.replay([core.used], {core.softmax.gave: torch.ones_like(core.softmax.gave.data)})
    sums = core.used.data.double().sum(-1 if operands(core.product)[0] is core.used else -2)
    empty = sums.abs() < 1e-12
    if bool((factor == 0).any()) and bool(((sums - 1).abs() > 1e-3)[~empty].any()):
        yield Finding(
            "attention-masks-before-the-softmax",
            "The mask is applied after the softmax: what it takes away is not given to the visible keys.",
            masking[-1].place,
            "weights that sum to 1 over the visible keys",
            "sums of " + numbers(sums[~empty]),
            "Fill the hidden scores with -inf before the softmax.",
            paths=(core.path,),
        )


def fill(core: AttentionCore) -> Iterator[Finding]:
    zero, slope = core.zero, core.slope
    least = slope.amin(-1, keepdim=True)  # where the largest score of a row is taken off, what is hidden falls with it
    slope = torch.where((slope.amax(-1, keepdim=True) == 0) & (least < 0), slope - least, slope)
    replaced = (slope == 0) & (zero > HIDES) & (core.by_product(core.softmax.gave.data) > 0)
    replaced &= (slope != 0).any(-1, keepdim=True)  # a query all of whose keys are hidden says nothing of one of them
    values = zero[replaced].unique() if bool(replaced.any()) else zero.unique()
    values = values[~values.isnan()]
    if not bool(replaced.any()):
        levels = [value for value in values.tolist() if value != 0]
        constant = bool((zero == zero[..., :1]).all())
        if len(levels) != 1 or constant or not (HIDES < levels[0] < -1 or abs(levels[0]) == 1):
            return
        values = torch.tensor(levels)
    number = float(values.max())
    op = mask_op(core)
    multiplied = op is not None and base_name(op) == "mul" and number == 0
    how = "multiplied by 0" if multiplied else f"filled with {number:g}" if bool(replaced.any()) else f"{number:+g}"
    yield Finding(
        "attention-mask-hides-completely",
        f"The mask does not hide: the scores of hidden keys are {how}, so the keys keep some weight.",
        (_filled_at(core, op, number) or op.place) if op is not None else core.place,
        "-inf",
        number,
        "Fill the scores of hidden keys with float('-inf').",
        number > WEAK,
        (core.path,),
    )


def _filled_at(core: AttentionCore, op: Op, number: float) -> Place | None:
    """The line that writes the number of an additive mask, where that is made before it is added."""
    scores = core.record.after([core.raw])
    others = [value for value in op.inputs if value not in scores]
    ops = [core.record.ops[at] for at in sorted({value.op for value in core.record.before(others) if value.op >= 0})]
    said = [made for made in ops if any(isinstance(part, int | float) and part == number for part in made.args)]
    return said[0].place if said and base_name(op) == "add" else None


def mask_op(core: AttentionCore) -> Op | None:
    """The last operation between product and softmax that reads a second value besides the scores."""
    inside = core.record.before([core.softmax.given], core.raw.number) & core.record.after([core.raw]) - {core.raw}
    ops = [core.record.ops[number] for number in sorted({value.op for value in inside}, reverse=True)]
    named = [op for op in ops if base_name(op) in ("masked_fill", "where")]
    reading = [op for op in ops if pointwise(op) and len(op.inputs) > 1 and op.name != "copy_"]
    return next(iter(named or reading), None)


def mask_place(core: AttentionCore) -> Place | None:
    op = mask_op(core)
    return op.place if op is not None else core.place


def lost_masks(core: AttentionCore) -> Iterator[Finding]:
    record = core.record
    chain, stack = {core.raw}, [core.raw]
    while stack:
        for op in record.consumers(stack.pop()):
            if not (moves(op) or pointwise(op)) or not op.outputs:
                continue
            ahead = op.outputs[0]
            if ahead not in chain:
                chain.add(ahead)
                stack.append(ahead)
            masking = base_name(op) in ("masked_fill", "where") or (base_name(op) == "add" and _hiding(op))
            if masking and not record.consumers(ahead) and ahead not in record.outcomes:
                yield Finding(
                    "attention-uses-every-mask",
                    "The result of this mask is not used: the softmax gets the scores without it.",
                    op.place,
                    "masked scores in the softmax",
                    "masked scores that nothing reads",
                    "Go on with the result (scores = scores.masked_fill(...)); a second mask builds on the first.",
                    paths=(core.path,),
                )


def _hiding(op: Op) -> bool:
    return any(bool((value.data <= HIDES).any()) for value in op.inputs[1:] if value.data.is_floating_point())


def diagonal(core: AttentionCore) -> Iterator[Finding]:
    hidden = core.hidden
    size = hidden.shape[-1]
    if hidden.shape[-2] != size or size < 3:
        return
    future = torch.ones(size, size, dtype=torch.bool)
    for pattern, words, certain in (
        (future.triu(), "position i is hidden from itself: it sees only what comes before", True),
        (future.tril(), "position i sees only what comes after it: the mask is the wrong way round", True),
        (future.triu(2), "position i also sees position i + 1", False),
    ):
        if bool((hidden == pattern).all()):
            yield Finding(
                "attention-causal-mask-keeps-the-diagonal",
                f"The causal mask is off: {words}.",
                mask_place(core),
                "position i sees the positions up to and including i",
                words,
                "Hide exactly torch.ones(T, T).triu(diagonal=1).",
                certain,
                (core.path,),
            )


# --- dropout, for the whole run


def dropout_findings(record: Record) -> list[Finding]:
    """Dropout that runs inside a module in evaluation. An nn.Dropout that somebody put into training is left alone."""
    found = []
    for op in record.ops:
        call = record.call_of(op)
        if (
            call is None
            or call.training
            or not drops(record, op)
            or isinstance(call.module, nn.modules.dropout._DropoutNd)
        ):
            continue
        found.append(
            Finding(
                "dropout-only-in-training",
                "Dropout is active although the module is in evaluation: every call gives another result.",
                op.place,
                "no dropout in evaluation",
                "dropout",
                "Use nn.Dropout, or pass training=self.training to F.dropout.",
                paths=(call.path,),
            )
        )
    return once(found)


def drops(record: Record, op: Op) -> bool:
    """Does the operation drop elements at random?"""
    if op.name == "native_dropout":
        return op.args[2] is not False and op.args[1] > 0
    if base_name(op) != "mul" or len(op.inputs) < 2:
        return False
    behind, steps = record.producer(op.inputs[1]), 0
    while behind is not None and steps < 6:
        if base_name(behind) == "bernoulli":
            return True
        behind = record.producer(behind.inputs[0]) if behind.inputs else None
        steps += 1
    return False
