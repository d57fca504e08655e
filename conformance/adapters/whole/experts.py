"""The mixtures of experts of a recorded run: does each expert's answer count, and as much as the router's score says?

A mixture is a call in which several modules of one list run, beside a projection with a column for each of them; or in
which each slab of one parameter (experts, in, out) is multiplied. How much an expert counts for a token is measured:
its answers are taken away, and the result is looked at.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from conformance.adapters.whole.class_source import source_of
from conformance.adapters.whole.findings import Finding, once
from conformance.adapters.whole.flow import PRODUCTS, moves, operands, projection
from conformance.adapters.whole.record import Call, Op, Place, Record, Value

_CLOSE = 1e-6
_SUMS = re.compile(r"(?i)[^.:;#]*\b(sums? (up )?to (one|1)\b|re-?normali[sz]|over the (chosen|selected|top)\b)[^.:;#]*")
_NO_SUMS = re.compile(r"(?i)(not|without|no) (re-?)?normali[sz]|do(es)? not sum")
_WRITES = {"index_put", "index_copy", "scatter", "masked_scatter"}
"""Operations by which one answer can be written over another."""


@dataclass(frozen=True)
class Answer:
    """What one expert gave for some tokens. given: what it was handed, a row for each of them."""

    number: int
    given: tuple[Value, ...]
    gave: tuple[Value, ...]
    caller: Place | None


@dataclass(eq=False)
class Mixture:
    """call: of the module around. experts: number of the expert -> its answers. scores: projections with a column for
    each expert, (N, E). by_slabs: the experts are slabs of one parameter."""

    call: Call
    experts: dict[int, list[Answer]]
    scores: list[Value]
    by_slabs: bool = False


def mixtures(record: Record) -> list[Mixture]:
    """Every mixture of experts of the run, in order."""
    found = [*_of_lists(record), *_of_slabs(record)]
    return sorted(found, key=lambda mixture: mixture.call.number)


def _of_lists(record: Record) -> Iterator[Mixture]:
    for module in record.module.modules():
        if not isinstance(module, nn.ModuleList) or len(module) < 2 or len({type(one) for one in module}) > 1:
            continue
        numbers = {id(one): number for number, one in enumerate(module)}
        calls: dict[int, dict[int, list[Answer]]] = {}
        for call in record.calls:
            if id(call.module) in numbers and call.parent >= 0:
                answer = Answer(call.number, tuple(call.given), tuple(call.gave), call.caller)
                calls.setdefault(call.parent, {}).setdefault(numbers[id(call.module)], []).append(answer)
        for parent, experts in calls.items():
            around = record.calls[parent]
            scores = _scores(record, around, len(module))
            if scores and around.gave:
                yield Mixture(around, experts, scores)


def _of_slabs(record: Record) -> Iterator[Mixture]:
    """Those whose experts are slabs of parameters (E, in, out): the last product with a slab that is as wide as the
    result is what the expert gives."""
    parameters = [value for value in record.values if value.kind == "parameter" and len(value.shape) == 3]
    found: dict[tuple[int, int], dict[int, list[Op]]] = {}
    for parameter in parameters:
        for number, slab in _slabs(record, parameter):
            for product in _products_with(record, slab):
                for call in record.around(record.call_of(product)):
                    if call.gave and call.gave[0].shape[-1:] == product.outputs[0].shape[-1:]:
                        key = (call.number, parameter.shape[0])
                        found.setdefault(key, {}).setdefault(number, []).append(product)
    routed: set[Op] = set()
    for (at, count), products in sorted(found.items(), reverse=True):
        call = record.calls[at]
        scores = _scores(record, call, count)
        last = {number: max(ops, key=lambda op: op.number) for number, ops in products.items()}
        if scores and not routed & {*last.values()}:
            routed |= {*last.values()}
            answers = {
                number: [Answer(op.number, operands(op)[:1], op.outputs, op.place)] for number, op in last.items()
            }
            yield Mixture(call, answers, scores, by_slabs=True)


def _slabs(record: Record, parameter: Value) -> Iterator[tuple[int, Value]]:
    """Each matrix that is taken out of a parameter (E, in, out), and its number."""
    for op in record.consumers(parameter):
        if op.name == "select" and op.args[1] == 0:
            yield int(op.args[2]) % parameter.shape[0], op.outputs[0]
        elif op.name == "unbind" and (op.args[1:] or (0,))[0] == 0:
            yield from enumerate(op.outputs)


def _products_with(record: Record, value: Value) -> Iterator[Op]:
    """The products whose second factor is a matrix, turned as it may be."""
    for op in record.consumers(value):
        if op.name in PRODUCTS and operands(op)[1] is value:
            yield op
        elif moves(op):
            yield from _products_with(record, op.outputs[0])


def _scores(record: Record, call: Call, count: int) -> list[Value]:
    made = (record.ops[number] for number in call.ops)
    products = [op.outputs[0] for op in made if op.name in PRODUCTS]
    return [value for value in products if value.shape[-1] == count and projection(record, value) is not None]


def expert_findings(record: Record) -> list[Finding]:
    """Experts that do not count as the router's scores say; one finding for each claim and line."""
    return once(
        finding
        for mixture in mixtures(record)
        for finding in (*_one_for_all(mixture), *_written_over(record, mixture), *_judged(record, mixture))
    )


def _judged(record: Record, mixture: Mixture) -> Iterator[Finding]:
    result = mixture.call.gave[0]
    weights = _weights(record, mixture, result) if len(mixture.experts) > 1 else None
    before = weights is not None and mixture.by_slabs and bool(((weights == 0) | ((weights - 1).abs() < _CLOSE)).all())
    if weights is None or before or _tokens_are_chosen(record, mixture, len(weights)):
        return
    fitting = [value for value in mixture.scores if value.data.numel() == weights.numel()]
    found = [(value, value.data.double().reshape(weights.shape)) for value in fitting]
    pairs = [_against_the_order(weights, scores) for _, scores in found]
    if pairs and all(pairs):
        yield _out_of_order(record, mixture, weights, found[0], pairs[0][0])
    elif (said := _said_sum(record, mixture)) and _is_uneven(full := _of_served_tokens(record, mixture, weights)):
        softmaxes = [op for op in _ops(record, mixture) if op.name == "_softmax"]
        totals = full.sum(-1)
        yield Finding(
            "experts-weights-sum-to-one-where-the-code-says",
            f"The weights of a token's experts sum to {float(totals.min()):.3g} to {float(totals.max()):.3g}, and the "
            f'code says: "{said.words}".',
            softmaxes[-1].place if softmaxes else mixture.call.place,
            "a sum of 1 for each token",
            f"{float(totals.min()):.4g} to {float(totals.max()):.4g}",
            "Take the softmax of the chosen scores, or divide the chosen probabilities by their sum.",
            said.near,
            (mixture.call.path,),
        )
    elif found and _softmax_twice(weights, found[0][1]):
        softmaxes = [op for op in _ops(record, mixture) if op.name == "_softmax"]
        yield Finding(
            "experts-are-weighted-by-one-softmax",
            "The softmax is taken twice: the weights of a token's experts are the softmax of probabilities, and nearly "
            "equal whatever the scores are.",
            softmaxes[-1].place if softmaxes else mixture.call.place,
            "weights whose ratio is the exponential of the difference of scores",
            "the exponential of the difference of probabilities",
            "Divide the chosen probabilities by their sum, or take the softmax of the chosen scores.",
            paths=(mixture.call.path,),
        )


@dataclass(frozen=True)
class _Said:
    """Words of the user's code. near: they stand at the mixture itself, and not at the head of its file, where a design
    is told roughly."""

    words: str
    near: bool


def _said_sum(record: Record, mixture: Mixture) -> _Said | None:
    """The words by which the user's code says that the weights of chosen experts sum to one: an option that is on, of
    the class around, or of the file's own docstring; None where it says nothing, or the opposite."""
    cls: type = type(mixture.call.module)
    module = sys.modules.get(cls.__module__)
    near = " ".join((source_of(cls) or ("", "", 0))[0].split())
    far = " ".join(str(getattr(module, "__doc__", None) or "").split())
    for name, value in vars(mixture.call.module).items():
        if re.fullmatch(r"(re)?norm(ali[sz]ed?)?(_\w*prob\w*|_topk\w*|_weights)?", name) and type(value) is bool:
            return _Said(f"{name}={value}", True) if value else None
    if _NO_SUMS.search(f"{far} {near}"):
        return None
    found = _SUMS.search(near) or _SUMS.search(far)
    return _Said(found[0].strip(), bool(_SUMS.search(near))) if found else None


def _of_served_tokens(record: Record, mixture: Mixture, weights: Tensor) -> Tensor:
    """The rows of the tokens that got all the experts that they chose: where one of these has no room left, its share
    is meant to be lost."""
    served = (weights != 0).sum(-1)
    chosen = [op.outputs[0].shape[-1] for op in _ops(record, mixture) if op.name == "topk" and op.outputs]
    return weights[served == (max(chosen) if chosen else served.max())]


def _is_uneven(weights: Tensor) -> bool:
    """Do the sums of the weights differ from token to token? One factor for all may be meant."""
    totals = weights.sum(-1)
    return bool(len(totals)) and bool((totals - totals[0]).abs().max() > 1e-3 * totals.abs().max())


def _out_of_order(
    record: Record, mixture: Mixture, weights: Tensor, scored: tuple[Value, Tensor], pair: tuple[int, int, int]
) -> Finding:
    """The finding of weights that are not in the order of the scores, and the line that makes them so."""
    token, first, second = pair
    value, scores = scored
    last = max((call for calls in mixture.experts.values() for call in calls), key=lambda call: call.number)
    sentence = f"Expert {first} has a higher score than expert {second} for token {token}, and counts no more."
    place, mend = last.caller, "Multiply what each expert gives by the weight of this expert for this token."
    made = record.producer(value)
    across = [op for op in _ops(record, mixture) if op.name == "_softmax" and _runs_over_tokens(op, scores.shape)]
    if across:
        place, mend = across[0].place, "Take the softmax over the experts (dim=-1)."
        sentence = f"The router's softmax runs over the tokens, not over the experts. {sentence}"
    elif made is not None and _as_they_are(weights, scores):
        place, mend = made.place, "Take the softmax of the router's scores first."
        sentence = f"The router's scores are the weights as they are, without a softmax. {sentence}"
    return Finding(
        "experts-are-weighted-by-their-own-scores",
        sentence,
        place,
        "weights in the order of the router's scores",
        f"{float(weights[token, first]):.4g} and {float(weights[token, second]):.4g}",
        mend,
        paths=(mixture.call.path,),
    )


def _ops(record: Record, mixture: Mixture) -> list[Op]:
    return [record.ops[number] for number in mixture.call.ops]


def _runs_over_tokens(op: Op, shape: torch.Size) -> bool:
    """Does a softmax of (..., N, E) scores, or of the best of them, run along another axis than that of the experts?"""
    given = op.inputs[0].shape
    rows = torch.Size(given[:-1]).numel()
    return rows == shape[0] and given[-1] <= shape[1] and int(op.args[1]) % len(given) != len(given) - 1


def _ratios(weights: Tensor) -> Iterator[tuple[int, int, int]]:
    """Each token with two experts that count for it, by a weight above zero."""
    for token, row in enumerate(weights):
        asked = (row.abs() > _CLOSE * row.abs().max()).nonzero()[:, 0].tolist()
        yield from ((token, first, second) for first in asked for second in asked if first < second)


def _as_they_are(weights: Tensor, scores: Tensor) -> bool:
    """Are the weights the scores, or these divided by one number a token?"""
    pairs = list(_ratios(weights))
    return bool(pairs) and all(
        torch.isclose(weights[t, a] * scores[t, b], weights[t, b] * scores[t, a], rtol=1e-4, atol=1e-9)
        for t, a, b in pairs
    )


def _softmax_twice(weights: Tensor, scores: Tensor) -> bool:
    """Is the softmax of probabilities what the weights are, and not that of the scores?"""
    pairs = list(_ratios(weights))
    chosen = torch.where(weights != 0, scores, -torch.inf)
    for likely in (scores.softmax(-1), chosen.softmax(-1), torch.where(weights != 0, scores.softmax(-1), 0.0)):
        likely = likely / likely.sum(-1, keepdim=True) if bool((likely.sum(-1) > 0).all()) else likely
        for probabilities in (likely, scores.softmax(-1)):
            gaps = [float(probabilities[t, a] - probabilities[t, b]) for t, a, b in pairs]
            got = [float(weights[t, a] / weights[t, b]) for t, a, b in pairs]
            if max(map(abs, gaps), default=0.0) < 1e-3 or min(got, default=0.0) <= 0:
                continue
            if all(
                math.isclose(math.log(ratio), gap, rel_tol=1e-3, abs_tol=1e-6)
                for ratio, gap in zip(got, gaps, strict=True)
            ):
                return True
    return False


def _one_for_all(mixture: Mixture) -> Iterator[Finding]:
    """One expert that is asked several times, where the router prefers several."""
    [asked, *others] = mixture.experts.items()
    number, calls = asked
    best = mixture.scores[0].data.reshape(-1, mixture.scores[0].shape[-1]).argmax(-1).unique()
    if others or len(calls) < 2 or len(best) < 2:
        return
    yield Finding(
        "experts-that-are-chosen-count",
        f"Expert {number} is asked {len(calls)} times, and the others never, though the router prefers {len(best)} of "
        "them.",
        calls[-1].caller,
        "each expert for the tokens that the router gives it",
        f"expert {number} for all",
        "Call the expert whose tokens these are.",
        paths=(mixture.call.path,),
    )


def _written_over(record: Record, mixture: Mixture) -> Iterator[Finding]:
    """Experts that are asked about some of the tokens, and whose answers for some of these reach no result."""
    result = mixture.call.gave[0]
    tokens = result.data.numel() // result.shape[-1]
    if not any(op.name.strip("_").removesuffix("_impl") in _WRITES for op in _ops(record, mixture)):
        return
    for number, calls in mixture.experts.items():
        for call in calls:
            if len(call.gave) != 1 or not call.given or call.gave[0].data.dim() != 2:
                continue
            gave, given = call.gave[0], call.given[0].data
            if not 0 < len(gave.data) < tokens or gave.shape[-1] != result.shape[-1] or len(given) != len(gave.data):
                continue
            [other] = record.replay([result], {gave: gave.data + 1.0})
            moved = (other != result.data).reshape(-1, result.shape[-1]).any(-1)
            asked = int((given != 0).any(-1).sum())  # rows of zeros fill up a capacity
            if int(moved.sum()) < asked and len(given.unique(dim=0)) == len(given):
                yield Finding(
                    "experts-that-are-chosen-count",
                    f"Expert {number} is asked about {asked} tokens, and its answers reach {int(moved.sum())} of them: "
                    "those of another expert are written over them.",
                    call.caller,
                    "the sum of what a token's experts give",
                    "the last one's",
                    "Add with out.index_add_(0, rows, weight * expert(x[rows])).",
                    paths=(mixture.call.path,),
                )
                return


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
            try:
                [without] = record.replay([result], {gave: torch.zeros_like(gave.data)})
            except RuntimeError:  # other numbers choose other words, and shapes differ
                return None
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
