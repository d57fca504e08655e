"""Do the positions that an attention core brings in itself, by rotation or as a bias, tell its tokens apart?"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from conformance.adapters.whole.attention import HIDES, AttentionCore, Side
from conformance.adapters.whole.findings import Finding
from conformance.adapters.whole.flow import base_name
from conformance.adapters.whole.record import Op, Place


def rotation(core: AttentionCore) -> Iterator[Finding]:
    """Self-attention only: in other cores queries and keys have positions of their own, or none."""
    query, key = core.sides["query"], core.sides["key"]
    if not query.projections or [p.base for p in query.projections] != [p.base for p in key.projections]:
        return
    turns = {name: turning_factors(core, side) for name, side in (("query", query), ("key", key))}
    by_token = {name: [op for op, factor in found if _tells_apart(factor)] for name, found in turns.items()}
    for one, other, words in (("query", "key", ("queries", "keys")), ("key", "query", ("keys", "queries"))):
        if by_token[one] and not turns[other]:
            yield Finding(
                "attention-rotates-queries-and-keys",
                f"The {words[0]} are rotated by their positions, and the {words[1]} are not.",
                by_token[one][-1].caller or by_token[one][-1].place,
                "both are rotated",
                f"only the {words[0]} are",
                "Rotate queries and keys alike: only then do the scores depend on distances.",
                paths=(core.path,),
            )
    if not any(by_token.values()) and any(_turns_nothing([factor for _, factor in turns[name]]) for name in turns):
        yield Finding(
            "attention-rotates-by-position",
            "Queries and keys of all tokens are rotated by the same angles: the rotation tells no token from another.",
            turns["query"][-1][0].place,
            "an angle for each position",
            "one for all",
            "Rotate by positions that count the tokens: 0, 1, 2, ...",
            paths=(core.path,),
        )


def rotated_values(core: AttentionCore) -> Iterator[Finding]:
    """Values that are turned as queries and keys are, where nothing turns the result back."""
    sides = [core.sides[name] for name in ("query", "key", "value")]
    if not all(side.projections for side in sides) or len({p.base for side in sides for p in side.projections}) > 1:
        return
    turns = [[(op, factor) for op, factor in turning_factors(core, side) if _tells_apart(factor)] for side in sides]
    known = [factor for _, factor in (*turns[0], *turns[1])]
    found = [(op, factor) for op, factor in turns[2] if any(torch.equal(factor, other) for other in known)]
    same = [op for op, _ in found]
    turned = len(found) > 1 or any(factor.is_complex() for _, factor in found)  # a cosine and a sine, or both in one
    if not turned or not turns[0] or not turns[1] or _is_turned_back(core):
        return
    yield Finding(
        "attention-leaves-values-unrotated",
        "The values are rotated by their positions, as queries and keys are, and nothing turns the result back.",
        same[-1].caller or same[-1].place,
        "values as they were projected",
        "rotated values",
        "Rotate queries and keys only.",
        paths=(core.path,),
    )


def _is_turned_back(core: AttentionCore) -> bool:
    """Is the result multiplied by numbers of the positions?"""
    record, length = core.record, core.raw.shape[-2]
    after = record.after([core.product.outputs[0]])
    inner = core.call.ops if core.call is not None else range(len(record.ops))
    for op in (record.ops[number] for number in inner):
        others = [value for value in op.inputs if not record.computed(value) and value.kind != "parameter"]
        if base_name(op) == "mul" and others and after & {*op.inputs} and length in others[0].shape[:-1]:
            return True
    return False


def turning_factors(core: AttentionCore, side: Side) -> list[tuple[Op, Tensor]]:
    """The multiplications of a side by numbers that it does not depend on and that have an axis for the tokens."""
    record, start = core.record, {projection.value for projection in side.projections}
    lengths = {length for length in core.raw.shape[-2:] if length > 1}  # of a window of queries, and of what it sees
    mine = record.after(start)
    path = record.before([side.value], min(value.number for value in start)) & mine
    found = []
    for op in (record.ops[number] for number in sorted({value.op for value in path - start})):
        others = [value for value in op.inputs if value not in mine and value.kind != "parameter"]
        if base_name(op) == "mul" and len(others) == 1 and lengths & {*others[0].shape[:-1]}:
            found.append((op, others[0].data))
    return found


def _tells_apart(factor: Tensor) -> bool:
    """Do the factors differ along the features, and from token to token?"""
    return bool((factor != factor[..., :1]).any()) and not _is_one_row(factor)


def _is_one_row(factor: Tensor) -> bool:
    rows = factor.reshape(-1, factor.shape[-1])
    return bool((rows == rows[:1]).all())


def _turns_nothing(factors: list[Tensor]) -> bool:
    """Are they the cosines and sines of one angle for all tokens?"""
    if not factors or not all(map(_is_one_row, factors)):
        return False
    if any(factor.is_complex() for factor in factors):
        return True
    squares = [factor.double() ** 2 for factor in factors]
    sums = [a + b for i, a in enumerate(squares) for b in squares[:i] if a.shape == b.shape]
    return any(torch.allclose(total, torch.ones_like(total)) for total in sums)


def linear_bias(core: AttentionCore) -> Iterator[Finding]:
    """A fixed bias that is linear in the distance, as ALiBi's."""
    zero = core.zero
    size = zero.shape[-1]
    added = core.record.before([core.softmax.given]) - core.record.before([core.raw])
    if zero.shape[-2] != size or size < 3 or any(value.kind == "parameter" for value in added):
        return
    own = zero.diagonal(0, -2, -1).unsqueeze(-1)  # of a token with itself
    past = torch.ones(size, size, dtype=torch.bool).tril(-1) & (zero > HIDES) & (own > HIDES)
    distance = torch.arange(size)[:, None] - torch.arange(size)
    relative = zero - own
    slopes = torch.where(past, relative / distance.clamp(min=1), torch.nan)
    slope = slopes.flatten(1).nanmedian(-1).values[:, None, None]
    if bool((slope > 0).all()) and bool(torch.isclose(slopes, slope, rtol=1e-4)[past].all()):
        yield Finding(
            "attention-linear-bias-falls-with-distance",
            "The fixed bias of the scores grows with the distance: far tokens are preferred to near ones.",
            _bias_place(core),
            "-slope * distance",
            "+slope * distance",
            "Subtract the slope times the distance.",
            paths=(core.path,),
        )


def _bias_place(core: AttentionCore) -> Place | None:
    """The line that multiplies slopes by distances; else the first after the product that adds a bias to the scores."""
    path = core.record.before([core.softmax.given]) & core.record.after([core.raw]) - {core.raw}
    ops = [core.record.ops[number] for number in sorted({value.op for value in path})]
    added = [op for op in ops if base_name(op) in ("add", "sub") and len(op.inputs) > 1]
    if not added:
        return core.scores_place
    makers = {value.op for value in core.record.before([v for v in added[0].inputs if v not in path | {core.raw}])}
    slopes = [core.record.ops[number] for number in sorted(makers) if number >= 0]
    return next((op.place for op in reversed(slopes) if base_name(op) == "mul"), added[0].place)
