"""What is wrong with the attention cores of a run, and at which line.

A judgement looks at one core and yields findings. It says "certain" only where any author would call it
a mistake once shown; what a design may choose is a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from conformance.adapters.whole.attention import AttentionCore, Side
from conformance.adapters.whole.attention_lengths import lengths
from conformance.adapters.whole.attention_masks import diagonal, fill, lost_masks, mask_after, mask_place
from conformance.adapters.whole.attention_positions import linear_bias, rotated_values, rotation
from conformance.adapters.whole.attention_relative import bias_in_every_layer, relative_bias
from conformance.adapters.whole.attention_scale import has_a_table_for_scale, reads_another_sequence, scale
from conformance.adapters.whole.attention_turns import turns
from conformance.adapters.whole.class_source import source_of
from conformance.adapters.whole.findings import Finding, numbers, once
from conformance.adapters.whole.flow import (
    MIXED,
    RESHAPES,
    UNKNOWN,
    Projection,
    carriers,
    carry,
    moves,
    operands,
    pointwise,
    smaller,
    sources,
)
from conformance.adapters.whole.record import Op, Place, Record, Value

Judgement = Callable[[AttentionCore], Iterator[Finding]]


def attention_findings(cores: list[AttentionCore]) -> list[Finding]:
    """All findings about these cores, in their order; one for each claim and line."""
    without_bias = [*bias_in_every_layer(cores)]
    bare = {path for finding in without_bias for path in finding.paths}
    found: list[Finding] = [*without_bias]
    unscaled = {type(core.call.module) for core in cores if core.call is not None and has_a_table_for_scale(core)}
    for core in cores:
        found += _all(_FIRST, core)
        if core.axis == core.contracted == "keys":  # else nothing that follows would mean anything
            mixed = list(tokens(core))
            has_sibling = core.call is not None and type(core.call.module) in unscaled
            is_unscaled = has_sibling and (core.path in bare or reads_another_sequence(core))
            formula = tuple(judge for judge in _FORMULA if judge is not scale or not is_unscaled)
            found += _all(formula, core) + (mixed or _all(_LAYOUT, core))
    return once(found)


def _all(judgements: tuple[Judgement, ...], core: AttentionCore) -> list[Finding]:
    return [finding for judge in judgements for finding in judge(core)]


def softmax_axis(core: AttentionCore) -> Iterator[Finding]:
    if core.axis != "keys" and not _shared_anew(core):
        yield Finding(
            "attention-softmax-runs-over-the-keys",
            f"The softmax runs over the {core.axis}; the weights of one query over its keys do not sum to one.",
            core.place,
            "sums over the keys of 1",
            "sums over the keys of " + numbers(core.by_product(core.softmax.gave.data).sum(-1)),
            "Give the softmax the axis of the keys (dim=-1 for scores of shape (..., queries, keys)).",
            paths=(core.path,),
        )


def _shared_anew(core: AttentionCore) -> bool:
    """Whether the weights that meet the values sum to one over the keys all the same: slots compete for inputs by the
    softmax, and share each out anew afterwards (Locatello et al. 2020, Object-Centric Learning, algorithm 1)."""
    used = core.used.data
    if used.shape != core.softmax.gave.data.shape:
        return False
    sums = core.by_product(used).double().sum(-1)
    return bool((sums - 1).abs().max() < 1e-3)


def contraction(core: AttentionCore) -> Iterator[Finding]:
    if core.axis == "keys" and core.contracted != "keys":
        yield Finding(
            "attention-sums-values-over-the-keys",
            f"The weights meet the values along the {core.contracted}, not along the keys.",
            core.product.place,
            "a sum over the keys",
            f"a sum over the {core.contracted}",
            "Multiply weights (..., queries, keys) by values (..., keys, d), without a transpose.",
            paths=(core.path,),
        )


def tokens(core: AttentionCore) -> Iterator[Finding]:
    for name, side in core.sides.items():
        wrong = _mixes(side)
        if wrong:
            yield Finding(
                "attention-heads-keep-tokens-apart",
                f"The split into heads mixes tokens: {wrong.format(name=name)}.",
                _split_place(core, side),
                "one vector of every token in every head",
                _picture(side),
                "Split with .view(batch, time, heads, d).transpose(1, 2), not with .view(batch, heads, time, d).",
                paths=(core.path,),
            )
            return


def _mixes(side: Side) -> str:
    """Which rule the vectors of a side break, as a sentence about "{name}"; "" for none."""
    if bool((side.tokens == MIXED).any()):
        of_one = len({projection.base for projection in side.projections}) == 1  # else a token has several numbers
        return "a {name} vector is computed from several tokens" if of_one else ""
    if not side.mapped:
        return ""
    first = side.tokens[..., :1]
    spaces = side.tokens >> 32
    if bool((side.tokens != first).any()) and bool((spaces == spaces[..., :1]).all()):
        if _are_channels(side.tokens):
            return ""
        return "a {name} vector has parts of several tokens"
    for row in first[..., 0]:
        if len(row.unique()) < len(row):
            return "one head has several {name} vectors of one token, and none of another"
    return ""


def _are_channels(tokens: Tensor) -> bool:
    """Whether each vector of a head is one channel of all tokens, in one order: attention between channels (El-Nouby et
    al. 2021, XCiT: Cross-covariance image transformers, section 3.2)."""
    return bool((tokens == tokens[..., :1, :]).all()) and len(tokens.flatten(0, -2)[0].unique()) == tokens.shape[-1]


def _picture(side: Side) -> str:
    row = (side.tokens[0, :, 0] & 0xFFFFFFFF).tolist()
    shown = ", ".join(map(str, row[:8])) + (", ..." if len(row) > 8 else "")
    return f"head 0 has vectors of the tokens {shown}"


def _split_place(core: AttentionCore, side: Side) -> Place | None:
    """The last line before the scores that cuts vectors into shorter ones; else the last before it that gives them
    another number of axes."""
    op = core.record.producer(side.value)
    while op is not None and op.inputs and (moves(op) or pointwise(op)):
        if (
            op.name in RESHAPES
            and op.outputs[0].shape[-1:] < op.inputs[0].shape[-1:]
            and op.place != core.product.place
        ):
            return op.place
        op = core.record.producer(op.inputs[0])
    op = core.record.producer(side.value)
    while op is not None and op.inputs and (moves(op) or pointwise(op)):
        more = op.outputs and len(op.outputs[0].shape) > len(op.inputs[0].shape)
        if more and op.place not in (core.scores_place, core.product.place):
            return op.place
        op = core.record.producer(op.inputs[0])
    return core.scores_place


def rows(core: AttentionCore) -> Iterator[Finding]:
    """Self-attention only: query and key of one product come from one row of the batch; so does the mask."""
    query, key = core.sides["query"], core.sides["key"]
    same = [p.base for p in query.projections] == [p.base for p in key.projections]
    if same and query.mapped and key.mapped and len(query.projections) >= 1:
        of_query = [set(row.tolist()) for row in query.tokens[..., 0]]
        of_key = [set(row.tolist()) for row in key.tokens[..., 0]]
        if any(not (a & b) and a in of_key for a, b in zip(of_query, of_key, strict=True)):
            yield Finding(
                "attention-stays-in-its-batch-row",
                "Queries of one row of the batch meet the keys of another.",
                core.scores_place,
                "queries and keys in one order of (batch, head)",
                "two orders",
                "Bring queries and keys into the same order of batch and heads before the product.",
                paths=(core.path,),
            )
    yield from _mask_rows(core)


def samples_as_words(core: AttentionCore) -> Iterator[Finding]:
    """Attention of torch's that takes the samples of the batch for the words of a text. Only for models that are given
    samples first."""
    module = core.call.module if core.call is not None else None
    if core.call is None or not isinstance(module, nn.MultiheadAttention) or module.batch_first:
        return
    outer = [value for call in core.record.calls if call.parent < 0 for value in call.given]
    samples = {value.shape[0] for value in outer if value.shape}
    given = core.call.given[0].shape if core.call.given else ()
    if len(given) == 3 and samples == {given[0]} != {given[1]} and core.raw.shape[-1] == given[0]:
        yield Finding(
            "attention-stays-in-its-batch-row",
            "nn.MultiheadAttention takes the samples of the batch for the words of one text.",
            _made_place(core) or core.scores_place,
            "each sample attends within itself",
            f"{given[0]} samples attend to each other",
            "Make it with batch_first=True, or give it (words, samples, width).",
            paths=(core.path,),
        )


def _made_place(core: AttentionCore) -> Place | None:
    """The line on which the module around makes the attention as an attribute."""
    if core.call is None or core.call.parent < 0:
        return None
    around: type = type(core.record.calls[core.call.parent].module)
    source = source_of(around)
    name = core.call.path.rpartition(".")[2]
    lines = enumerate(source[0].splitlines(), source[2]) if source else []
    made = (number for number, line in lines if re.search(rf"self\.{name}\s*(:.*)?=", line))
    return next((Place(source[1], number) for number in made), None) if source else None


def _mask_rows(core: AttentionCore) -> Iterator[Finding]:
    hidden = core.hidden
    batch, heads = hidden.shape[:2]
    if batch < 2 or heads < 2:
        return
    flat = hidden.reshape(batch * heads, -1)
    per_row = bool((hidden == hidden[:, :1]).all())
    per_head = bool((hidden == hidden[:1]).all())
    if not per_row and not per_head and bool((flat == flat[torch.arange(batch * heads) % batch]).all()):
        yield Finding(
            "attention-stays-in-its-batch-row",
            "The mask is repeated in the order (head, batch), the scores have the order (batch, head).",
            mask_place(core),
            "one mask for all heads of a row of the batch",
            "heads of one row with the masks of different rows",
            "Repeat the mask with repeat_interleave(heads, dim=0), or give it the shape (batch, 1, queries, keys).",
            paths=(core.path,),
        )


def own_matrix(core: AttentionCore) -> Iterator[Finding]:
    for name, side in core.sides.items():
        for projection in side.projections:
            if projection.slices > 1:
                op = core.record.producer(projection.value)
                told = (type(core.call.module).__doc__ or "") if core.call is not None else ""
                yield Finding(
                    "attention-heads-have-their-own-projections",
                    f"All {projection.slices} heads share one {name} matrix of shape {projection.weight.shape}.",
                    op.place if op is not None else None,
                    "a matrix for each head",
                    f"one matrix, applied to {projection.slices} parts of each token",
                    "Project the whole token (d_model to heads * d), then split the result into heads.",
                    re.search(r"(?<![a-z])(same|shared?|shares)(?![a-z]).*?heads?\b", told.lower(), re.DOTALL) is None,
                    (core.path,),
                )


def merge(core: AttentionCore) -> Iterator[Finding]:
    query = core.sides["query"]
    out = core.product.outputs[0]
    if not query.mapped or len(query.tokens) != len(core.sides["value"].vectors):
        return
    labels = query.tokens[..., :1]
    if operands(core.product)[0] is not core.used:
        labels = labels.transpose(-1, -2)
    labels = labels if out.data.dim() == 3 else labels[0]
    if labels.shape[-2] != out.shape[-2] and labels.shape[-1] != out.shape[-1]:
        return
    start = {out: labels.expand(out.shape)}
    for op, operand in _readers(core.record, out):
        left = operands(op)[0] is operand
        carried = carry(core.record, start, operand)
        if carried is None:
            return
        per_row = carried if left else carried.transpose(-1, -2)
        own = per_row.where(per_row != UNKNOWN, per_row.amax(-1, keepdim=True))  # other heads may stand beside it
        if bool((per_row == MIXED).any()) or bool((own != own[..., :1]).any()):
            yield Finding(
                "attention-merges-heads-of-one-token",
                "The heads are put together wrongly: one row of the result has parts of several tokens.",
                _merge_place(core, operand),
                "the heads of one token in each row",
                "heads of several tokens in one row",
                "Merge with .transpose(1, 2).reshape(batch, time, heads * d).",
                paths=(core.path,),
            )
        return


def _readers(record: Record, value: Value) -> list[tuple[Op, Value]]:
    """The first product that reads `value` through moves and element-wise operations, and the operand as it enters."""
    seen, stack = {value}, [value]
    found = []
    while stack:
        here = stack.pop()
        for op in record.consumers(here):
            if op.name in ("mm", "addmm", "bmm") and here in operands(op):
                found.append((op, here))
            elif here in carriers(op):
                for ahead in op.outputs:
                    if ahead not in seen:
                        seen.add(ahead)
                        stack.append(ahead)
    return sorted(found, key=lambda item: item[0].number)[:1]


def _merge_place(core: AttentionCore, operand: Value) -> Place | None:
    """The line between the product and its reader that takes an axis away, that of the product among them; else the
    reader's."""
    op = core.record.producer(operand)
    found = op.place if op is not None else None
    inside = None
    while op is not None and op is not core.product and op.inputs:
        fewer = op.outputs and len(op.outputs[0].shape) < len(op.inputs[0].shape)
        if fewer and moves(op):
            if op.place == core.product.place:
                inside = op.place
            else:
                found, inside = op.place, None
        op = core.record.producer(carriers(op)[0]) if carriers(op) else None
    return inside or found


def groups(core: AttentionCore) -> Iterator[Finding]:
    query, key, value = (core.sides[name] for name in ("query", "key", "value"))
    if not (query.mapped and key.mapped and value.mapped) or core.order.shape[1] < 2:
        return
    first = core.order[0]
    heads = [_ranks(side, first) for side in (query, key, value)]
    count = len(set(heads[1]))
    if count < 2 or count >= len(first) or len(set(heads[0])) != len(first) or len(first) % count:
        return
    expected = [i // (len(first) // count) for i in range(len(first))]
    for name, got in (("key", heads[1]), ("value", heads[2])):
        if got != expected:
            yield Finding(
                "attention-groups-are-interleaved",
                f"The {name} heads are repeated in the wrong order for their groups of query heads.",
                _repeat_place(core, core.sides[name]),
                expected,
                got,
                f"Use repeat_interleave({len(first) // count}) along the heads, not repeat.",
                paths=(core.path,),
            )
            return


def _ranks(side: Side, groups: Tensor) -> list[int]:
    """For each head, the rank of the columns of the projection that it reads."""
    firsts = side.columns[groups].amin((-1, -2)).tolist()
    order = sorted(set(firsts))
    return [order.index(first) for first in firsts]


def _repeat_place(core: AttentionCore, side: Side) -> Place | None:
    op = core.record.producer(side.value)
    while op is not None and op.inputs and (moves(op) or pointwise(op)):
        more = op.outputs and op.outputs[0].data.numel() > op.inputs[0].data.numel()
        if more:
            return op.place
        op = core.record.producer(op.inputs[0])
    return core.scores_place


# --- sources


def own_projections(core: AttentionCore) -> Iterator[Finding]:
    sides = core.sides
    pairs = (("value", "key"), ("key", "query"), ("value", "query"))
    for one, other in pairs:
        first, second = sides[one], sides[other]
        if not first.projections or not second.projections or not _same_columns(core, first, second):
            continue
        idle = _idle(core) or _unread(core, first)
        op = core.record.producer(first.projections[-1].value)
        same_value = first.projections[-1].value is second.projections[-1].value
        place = core.product.place if same_value and one == "value" else op.place if op is not None else None
        tail = f" {', '.join(idle)} reaches no result." if idle else ""
        yield Finding(
            "attention-projects-query-key-and-value-apart",
            f"The {one}s are computed with the projection of the {other.replace('query', 'querie')}s.{tail}",
            place,
            f"a projection for the {one}s",
            f"the projection of the {other.replace('query', 'querie')}s",
            f"Compute the {one}s with their own projection.",
            bool(idle),
            (core.path,),
        )
        return


def _same_columns(core: AttentionCore, first: Side, second: Side) -> bool:
    """Whether two sides read columns of one projection that are the same: all of them, or a part of each vector."""
    if not first.mapped or not second.mapped:
        return False
    for a in first.projections:
        for b in second.projections:
            same = a.value is b.value or (a.weight is b.weight and torch.equal(a.matrix, b.matrix))
            if same and _read(core, a, [first]) & _read(core, b, [second]):
                return True
    return False


def _columns(side: Side) -> set[int]:
    """The columns of its last projection that a side reads."""
    own = side.columns[side.columns >> 32 == len(side.projections) - 1]
    return set((own & 0xFFFFFFFF).unique().tolist())


def _read(core: AttentionCore, projection: Projection, by: Sequence[Side]) -> set[int]:
    """The columns of a projection that some sides read. A rotation computes two of two: both are followed."""
    found: set[int] = set()
    for side in by:
        for merge in (smaller, torch.maximum):
            carried = carry(core.record, {projection.value: projection.columns}, side.value, merge)
            found |= set(carried.unique().tolist()) - {UNKNOWN} if carried is not None else set()
    return found


def _unread(core: AttentionCore, side: Side) -> list[str]:
    """The projections of a side of which no side reads all columns. What seems to be left out is changed, to see that
    nothing follows."""
    sides, found = list(core.sides.values()), []
    for one in side.projections:
        left = ~torch.isin(one.columns, torch.tensor(sorted(_read(core, one, sides))))
        ends = [other.value for other in sides]
        changed = core.record.replay(ends, {one.value: one.value.data + left.to(one.value.data.dtype)})
        if bool(left.any()) and all(torch.equal(new, end.data) for new, end in zip(changed, ends, strict=True)):
            found.append(f"a part of {one.weight.name or 'its own projection'}")
    return found


def _idle(core: AttentionCore) -> list[str]:
    """Matrices of the module around the core, or parts of a fused one, that did not reach its result."""
    if core.call is None:
        return []
    used = {value.name for value in core.record.before(core.call.gave)}
    prefix = f"{core.path}." if core.path else ""
    found = [
        name for name, tensor in core.call.module.named_parameters() if tensor.dim() >= 2 and prefix + name not in used
    ]
    fused = core.sides["query"].projections[-1]
    if all(side.projections[-1].value is fused.value for side in core.sides.values()):
        heads = {column // core.width for side in core.sides.values() for column in _columns(side)}
        if len(heads) * core.width < int(fused.columns.max()) + 1:
            found.append(f"a part of {fused.weight.name or 'the fused projection'}")
    return found


def same_tokens(core: AttentionCore) -> Iterator[Finding]:
    record, query, key, value = core.record, *(core.sides[name] for name in ("query", "key", "value"))
    if not (key.projections and value.projections and query.projections):
        return
    behind = [{source for p in side.projections for source in sources(record, p.base)} for side in (query, key, value)]
    apart = not behind[1] & behind[2]
    shapes = [[p.base.shape for p in side.projections] for side in (key, value)]
    moved = not apart and shapes[0] == shapes[1] and key.mapped and value.mapped
    moved = moved and len(key.tokens) == len(value.tokens)
    moved = moved and bool((key.tokens[..., 0] != value.tokens[..., 0]).any())
    if (apart and behind[0] & behind[2] and not behind[0] & behind[1]) or moved:
        op = record.producer(value.projections[-1].value)
        yield Finding(
            "attention-key-and-value-are-of-one-token",
            "The values do not come from the tokens of the keys.",
            op.place if op is not None and apart else core.product.place,
            "keys and values from one source, in one order",
            "keys and values of different tokens",
            "Compute keys and values from the same input.",
            paths=(core.path,),
        )


_FIRST: tuple[Judgement, ...] = (softmax_axis, contraction, lost_masks)
_FORMULA: tuple[Judgement, ...] = (scale, mask_after, fill, diagonal, linear_bias, relative_bias)
_LAYOUT: tuple[Judgement, ...] = (
    rows,
    own_matrix,
    merge,
    groups,
    own_projections,
    same_tokens,
    rotation,
    rotated_values,
    turns,
    lengths,
)
