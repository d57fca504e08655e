"""Are queries and keys that are brought to one length normalised each over its own features?"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from conformance.adapters.whole.attention import AttentionCore, Side
from conformance.adapters.whole.findings import Finding
from conformance.adapters.whole.flow import carry
from conformance.adapters.whole.record import Op

_LENGTHS = {"linalg_vector_norm", "norm"}


def lengths(core: AttentionCore) -> Iterator[Finding]:
    """The length that a query or key is divided by is its own, or that of all heads of its token."""
    for name, side in core.sides.items():
        if name == "value" or not side.mapped:
            continue
        for op, axes in _taken(core, side):
            if _is_of_vectors(core, side, op, axes):
                continue
            yield Finding(
                "attention-lengths-are-of-one-vector",
                f"The {name} vectors are not normalised each by its own length: the norm runs along another axis.",
                op.caller if op.place is None else op.place,
                "a length of each vector, over its features",
                f"a length along the axis {', '.join(map(str, axes))} of a value of shape {op.inputs[0].shape}",
                "Normalise along the last axis of the heads: F.normalize(q, dim=-1).",
                paths=(core.path,),
            )
            return


def has_unit_vectors(core: AttentionCore) -> bool:
    """Are queries or keys divided by a length on their way?"""
    sides = [core.sides[name] for name in ("query", "key") if core.sides[name].projections]
    return any(True for side in sides for _ in _taken(core, side))


def _taken(core: AttentionCore, side: Side) -> Iterator[tuple[Op, list[int]]]:
    """The operations that take lengths on the way from a projection to the scores, with the axes that they sum over."""
    start = [projection.value for projection in side.projections]
    mine = core.record.after(start)
    path = core.record.before([side.value], min(value.number for value in start)) & mine
    for number in sorted({value.op for value in path - set(start)}):
        op = core.record.ops[number]
        if op.name not in _LENGTHS:
            continue
        axes = op.args[2] if len(op.args) > 2 else op.kwargs.get("dim")
        axes = [axes] if isinstance(axes, int) else axes
        if axes:
            yield op, [axis % len(op.inputs[0].shape) for axis in axes]


def _is_of_vectors(core: AttentionCore, side: Side, op: Op, axes: list[int]) -> bool:
    """Does each length sum over all elements of the vectors that it meets? True where that cannot be told."""
    tokens = {one.value: one.tokens for one in side.projections}
    columns = {one.value: one.columns for one in side.projections}
    found = [carry(core.record, labels, op.inputs[0]) for labels in (tokens, columns)]
    if len(side.projections) != 1 or any(grid is None or bool((grid < 0).any()) for grid in found):
        return True
    sums = _pairs(*(grid.movedim(axes, list(range(-len(axes), 0))).flatten(-len(axes)) for grid in found))  # type: ignore[union-attr]
    rows = sums.reshape(-1, sums.shape[-1])
    vectors = _pairs(side.tokens, side.columns)
    one = vectors.reshape(-1, vectors.shape[-1])[0]
    holders = rows[(rows == one[0]).any(-1)]
    return not len(holders) or bool(torch.isin(one, holders[0]).all())


def _pairs(tokens: Tensor, columns: Tensor) -> Tensor:
    """One number for each token and column."""
    return (tokens & 0xFFFFFFFF) * (1 << 24) + (columns & 0xFFFFFF)
