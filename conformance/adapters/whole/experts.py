"""The mixtures of experts of a recorded run: does each expert's answer count as much as the router's score says?

A mixture is a call in which several modules of one list run, beside a projection with a column for each of them. How
much an expert counts for a token is measured: its answers are taken away, and the result is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from conformance.adapters.whole.findings import Finding, once
from conformance.adapters.whole.flow import PRODUCTS, projection
from conformance.adapters.whole.record import Call, Record, Value

_CLOSE = 1e-6


@dataclass(eq=False)
class Mixture:
    """call: of the module around. experts: number of the expert -> its calls. scores: projections with a column for
    each expert, (N, E)."""

    call: Call
    experts: dict[int, list[Call]]
    scores: list[Value]


def mixtures(record: Record) -> list[Mixture]:
    """Every mixture of experts of the run, in order."""
    found = []
    for module in record.module.modules():
        if not isinstance(module, nn.ModuleList) or len(module) < 2 or len({type(one) for one in module}) > 1:
            continue
        numbers = {id(one): number for number, one in enumerate(module)}
        calls: dict[int, dict[int, list[Call]]] = {}
        for call in record.calls:
            if id(call.module) in numbers and call.parent >= 0:
                calls.setdefault(call.parent, {}).setdefault(numbers[id(call.module)], []).append(call)
        for parent, experts in calls.items():
            around = record.calls[parent]
            scores = _scores(record, around, len(module))
            if len(experts) > 1 and scores and around.gave:
                found.append(Mixture(around, experts, scores))
    return found


def _scores(record: Record, call: Call, count: int) -> list[Value]:
    made = (record.ops[number] for number in call.ops)
    products = [op.outputs[0] for op in made if op.name in PRODUCTS]
    return [value for value in products if value.shape[-1] == count and projection(record, value) is not None]


def expert_findings(record: Record) -> list[Finding]:
    """Experts whose weights do not follow the router's scores; one finding for each line."""
    return once(finding for mixture in mixtures(record) for finding in _judged(record, mixture))


def _judged(record: Record, mixture: Mixture) -> Iterator[Finding]:
    result = mixture.call.gave[0]
    weights = _weights(record, mixture, result)
    if weights is None or _tokens_are_chosen(record, mixture, len(weights)):
        return
    fitting = [value for value in mixture.scores if value.data.numel() == weights.numel()]
    pairs = [_against_the_order(weights, value.data.double().reshape(weights.shape)) for value in fitting]
    if not pairs or not all(pairs):
        return
    token, first, second = pairs[0][0]
    last = max((call for calls in mixture.experts.values() for call in calls), key=lambda call: call.number)
    yield Finding(
        "experts-are-weighted-by-their-own-scores",
        f"Expert {first} has a higher score than expert {second} for token {token}, and counts no more.",
        last.caller,
        "weights in the order of the router's scores",
        f"{float(weights[token, first]):.4g} and {float(weights[token, second]):.4g}",
        "Multiply what each expert gives by the weight of this expert for this token.",
        paths=(mixture.call.path,),
    )


def _weights(record: Record, mixture: Mixture, result: Value) -> Tensor | None:
    """(N, E): how much each expert's answer counts for each token, 0 where it was not asked; None where what it gives
    does not come back multiplied by one number."""
    width = result.shape[-1]
    whole = result.data.double().reshape(-1, width)
    count = 1 + max(number for number in mixture.experts)
    count = max(count, *(value.shape[-1] for value in mixture.scores))
    found = torch.zeros(len(whole), count, dtype=torch.float64)
    for number, calls in mixture.experts.items():
        for call in calls:
            if not call.gave or not call.gave[0].data.numel():
                continue  # it was asked about no token
            if len(call.gave) != 1 or call.gave[0].shape[-1] != width or not record.reaches(call.gave[0], result):
                return None
            gave = call.gave[0]
            [without] = record.replay([result], {gave: torch.zeros_like(gave.data)})
            parts = whole - without.double().reshape(-1, width)
            answers = gave.data.double().reshape(-1, width)
            for token in (parts.abs().amax(-1) > _CLOSE * whole.abs().max()).nonzero()[:, 0].tolist():
                factors = (answers @ parts[token]) / (answers * answers).sum(-1).clamp(min=1e-30)
                rest = (parts[token] - factors[:, None] * answers).norm(dim=-1)
                at = int(rest.argmin())
                if float(rest[at]) > 1e-4 * float(parts[token].norm()):
                    return None
                found[token, number] += factors[at]
    return found


def _tokens_are_chosen(record: Record, mixture: Mixture, tokens: int) -> bool:
    """Do experts choose among tokens? Then what they count is no matter of one token's scores."""
    ops = [record.ops[number] for number in mixture.call.ops]
    choices = [op for op in ops if op.name in ("topk", "sort") and op.inputs]
    return any(op.outputs and tokens in op.inputs[0].shape[-1:] for op in choices) or any(
        op.name == "topk" and len(op.args) > 2 and op.inputs[0].shape[op.args[2]] == tokens for op in choices
    )


def _against_the_order(weights: Tensor, scores: Tensor) -> list[tuple[int, int, int]]:
    """Tokens with two experts of which the one with the higher score does not count more."""
    found = []
    for token, (row, score) in enumerate(zip(weights, scores, strict=True)):
        asked = row.nonzero()[:, 0].tolist()
        for first in asked:
            for second in asked:
                if score[first] > score[second] + _CLOSE and row[first] <= row[second] + _CLOSE * row.abs().max():
                    found.append((token, first, second))
    return found
