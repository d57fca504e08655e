"""What is wrong with the attention cores of a run, and at which line.

A judgement looks at one core (or at all of them) and yields findings. It says "certain" only where any author would call it
a mistake once shown; what a design may choose is a note.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from conformance.adapters.whole.attention import HIDES, AttentionCore, Side
from conformance.adapters.whole.findings import Finding, once
from conformance.adapters.whole.flow import (
    MIXED,
    base_name,
    carriers,
    carry,
    moves,
    operands,
    origin,
    pointwise,
    sources,
)
from conformance.adapters.whole.record import Op, Place, Record, Value

WEAK = -50.0
"""A fill above this leaves weights that can be measured (e^-50 = 2e-22); between this and HIDES it is a note."""
Judgement = Callable[[AttentionCore], Iterator[Finding]]


def attention_findings(cores: list[AttentionCore]) -> list[Finding]:
    """All findings about these cores, in their order; one for each claim and line."""
    found: list[Finding] = []
    for core in cores:
        for judge in _FIRST:
            found += judge(core)
        if core.axis == core.contracted == "keys":  # else nothing that follows would mean anything
            for judge in _THEN:
                found += judge(core)
    return once(found)


def softmax_axis(core: AttentionCore) -> Iterator[Finding]:
    if core.axis != "keys":
        yield Finding(
            "attention-softmax-runs-over-the-keys",
            f"The softmax runs over the {core.axis}; the weights of one query over its keys do not sum to one.",
            core.place,
            "sums over the keys of 1",
            "sums over the keys of " + _numbers(core.by_product(core.softmax.gave.data).sum(-1)),
            "Give the softmax the axis of the keys (dim=-1 for scores of shape (..., queries, keys)).",
            paths=(core.path,),
        )


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


# --- scale


def scale(core: AttentionCore) -> Iterator[Finding]:
    got, width = core.scale, core.width
    if got is None:
        return
    expected = 1 / math.sqrt(width)
    ops = [op for part in core.factors for op in part.ops]
    after = _constant_after(core)
    if after is not None and not math.isclose(after[0], 1.0, rel_tol=1e-3):
        number, op = after
        yield Finding(
            "attention-scale-is-one-over-sqrt-d-head",
            f"The weights are multiplied by {number:.6g} after the softmax: they no longer sum to one.",
            op.place,
            "scaled scores, then the softmax",
            f"the softmax, then a factor of {number:.6g}",
            f"Scale the scores by 1 / sqrt({width}) before the softmax.",
            paths=(core.path,),
        )
        return
    if math.isclose(got, expected, rel_tol=1e-4):
        return
    name, certain = _wrong_scale(core, got)
    if not certain and _scale_is_named(core, got):
        sentence = f"The scores are scaled by {got:.6g} ({name}), as the code or its configuration says."
    else:
        sentence, certain = f"The scores are scaled by {got:.6g} ({name}), not by 1 / sqrt({width}).", True
    yield Finding(
        "attention-scale-is-one-over-sqrt-d-head",
        sentence,
        ops[-1].place if ops else core.scores_place,
        expected,
        got,
        f"Divide the scores once by sqrt({width}), the square root of the length of one head's query.",
        certain,
        (core.path,),
    )


def _wrong_scale(core: AttentionCore, got: float) -> tuple[str, bool]:
    """A name for a scale that is not the formula's, and whether no design uses it."""
    width, heads = core.width, core.order.shape[1]
    times = sum(
        math.isclose(abs(math.log(part)), math.log(width) / 2, rel_tol=1e-3)
        for part in (_constant(op) for item in core.factors for op in item.ops)
        if part and part > 0
    )
    names = {
        1.0: ("no scale", False),
        math.sqrt(width): ("times sqrt(d) instead of divided by it", True),
        float(width): ("times d instead of divided by sqrt(d)", True),
        1 / width: ("1 / sqrt(d) twice", True) if times >= 2 else ("1 / d", False),
        width**-0.25: ("the fourth root of d, on one side only", True),
    }
    for projection in core.sides["query"].projections:
        model = projection.base.shape[-1]
        names.setdefault(1 / math.sqrt(model), ("1 / sqrt(d_model), the width of all heads together", True))
        names.setdefault(1 / model, ("1 / d_model", False))
    names.setdefault(1 / math.sqrt(width * heads), ("1 / sqrt(d_model), the width of all heads together", True))
    names.setdefault(1 / math.sqrt(core.raw.shape[-1]), ("1 / sqrt(number of keys)", True))
    names.setdefault(1 / math.sqrt(heads), ("1 / sqrt(number of heads)", True))
    for value, (name, certain) in names.items():
        if math.isclose(got, value, rel_tol=1e-4):
            return name, certain
    return "a constant of its own", False


def _constant(op: Op) -> float | None:
    for argument in op.args[:2]:
        if isinstance(argument, int | float):
            return float(argument)
        if isinstance(argument, Value) and argument.data.numel() == 1:
            return float(argument.data)
    return None


def _scale_is_named(core: AttentionCore, got: float) -> bool:
    """Does a class, an option or a comment say that the scale is meant to be as it is?"""
    close = [got, 1 / got, got**-2, got**2] if got > 0 else [got]
    for call in core.record.around(core.call):
        module = call.module
        if re.search(r"T5|GPTNeo|Pix2Struct", type(module).__name__):
            return True
        for holder in (module, getattr(module, "config", None), getattr(module, "args", None)):
            for name, value in vars(holder).items() if hasattr(holder, "__dict__") else ():
                if not re.search(r"scal|query_pre_attn|mup|temperature", name, re.I):
                    continue
                if (value is False or value is None) and math.isclose(got, 1.0):
                    return True
                if isinstance(value, int | float) and any(math.isclose(value, one, rel_tol=1e-4) for one in close):
                    return True
        if re.search(r"\b(no|without|un|not)[ -]?scal|\bmuP\b|μP|mu-?transfer", _text(module), re.I):
            return True
    return math.isclose(got, 1.0) and _learned_bias(core)


def _learned_bias(core: AttentionCore) -> bool:
    """T5 leaves the scale out where it adds a table of relative positions."""
    between = core.record.before([core.softmax.given]) - core.record.before([core.raw])
    return any(value.kind == "parameter" for value in between)


def _text(module: nn.Module) -> str:
    try:
        return inspect.getsource(type(module))
    except (OSError, TypeError):
        return ""


def _constant_after(core: AttentionCore) -> tuple[float, Op] | None:
    """A constant that multiplies the weights between softmax and values, outside of dropout."""
    ops = _between(core)
    if any(_drops(core.record, op) for op in ops):
        return None
    [ones] = core.record.replay([core.used], {core.softmax.gave: torch.ones_like(core.softmax.gave.data)})
    numbers = ones.double().reshape(-1)
    multiplying = [op for op in ops if base_name(op) in ("mul", "div")]
    if len(numbers) and multiplying and bool((numbers - numbers[0]).abs().max() < 1e-6):
        return float(numbers[0]), multiplying[-1]
    return None


def _between(core: AttentionCore) -> list[Op]:
    """The operations from the softmax to the product with the values."""
    after = core.record.after([core.softmax.gave])
    inside = core.record.before([core.used], core.softmax.gave.number) & after - {core.softmax.gave}
    return [core.record.ops[number] for number in sorted({value.op for value in inside})]


# --- heads and tokens


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
        return "a {name} vector is computed from several tokens"
    if not side.mapped:
        return ""
    first = side.tokens[..., :1]
    spaces = side.tokens >> 32
    if bool((side.tokens != first).any()) and bool((spaces == spaces[..., :1]).all()):
        return "a {name} vector has parts of several tokens"
    for row in first[..., 0]:
        if len(row.unique()) < len(row):
            return "one head has several {name} vectors of one token, and none of another"
    return ""


def _picture(side: Side) -> str:
    row = (side.tokens[0, :, 0] & 0xFFFFFFFF).tolist()
    shown = ", ".join(map(str, row[:8])) + (", ..." if len(row) > 8 else "")
    return f"head 0 has vectors of the tokens {shown}"


def _split_place(core: AttentionCore, side: Side) -> Place | None:
    """The last line before the scores that gives the vectors another number of axes."""
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
            _mask_place(core),
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
                yield Finding(
                    "attention-heads-have-their-own-projections",
                    f"All {projection.slices} heads share one {name} matrix of shape {projection.weight.shape}.",
                    op.place if op is not None else None,
                    "a matrix for each head",
                    f"one matrix, applied to {projection.slices} parts of each token",
                    "Project the whole token (d_model to heads * d), then split the result into heads.",
                    paths=(core.path,),
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
        if bool((per_row == MIXED).any()) or bool((per_row != per_row[..., :1]).any()):
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
    """The line between the product and its reader that takes an axis away; else the reader's."""
    op = core.record.producer(operand)
    found = op.place if op is not None else None
    while op is not None and op is not core.product and op.inputs:
        fewer = op.outputs and len(op.outputs[0].shape) < len(op.inputs[0].shape)
        if fewer and (moves(op) and op.place != core.product.place):
            found = op.place
        op = core.record.producer(carriers(op)[0]) if carriers(op) else None
    return found


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
        if not first.projections or not second.projections or not _same_columns(first, second):
            continue
        idle = _idle(core)
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


def _same_columns(first: Side, second: Side) -> bool:
    a, b = first.projections[-1], second.projections[-1]
    if a.weight is not b.weight or not first.mapped or not second.mapped:
        return False
    if a.value is not b.value and not torch.equal(_weight(first), _weight(second)):
        return False
    return set((first.columns & 0xFFFFFFFF).unique().tolist()) == set((second.columns & 0xFFFFFFFF).unique().tolist())


def _weight(side: Side) -> Tensor:
    return side.projections[-1].weight.data


def _idle(core: AttentionCore) -> list[str]:
    """Matrices of the module around the core that did not reach its result."""
    if core.call is None:
        return []
    used = {value.name for value in core.record.before(core.call.gave)}
    prefix = f"{core.path}." if core.path else ""
    found = core.call.module.named_parameters()
    return [name for name, tensor in found if tensor.dim() >= 2 and prefix + name not in used]


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


# --- masks


def mask_after(core: AttentionCore) -> Iterator[Finding]:
    ops = _between(core)
    masking = [op for op in ops if base_name(op) in ("mul", "masked_fill", "where") and not _drops(core.record, op)]
    if not masking or any(_drops(core.record, op) for op in ops):
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
            "sums of " + _numbers(sums[~empty]),
            "Fill the hidden scores with -inf before the softmax.",
            paths=(core.path,),
        )


def fill(core: AttentionCore) -> Iterator[Finding]:
    zero, slope = core.zero, core.slope
    replaced = (slope == 0) & (zero > HIDES) & (core.by_product(core.softmax.gave.data) > 0)
    values = zero[replaced].unique() if bool(replaced.any()) else zero.unique()
    values = values[~values.isnan()]
    if not bool(replaced.any()):
        levels = [value for value in values.tolist() if value != 0]
        constant = bool((zero == zero[..., :1]).all())
        if len(levels) != 1 or constant or not (HIDES < levels[0] < -1 or abs(levels[0]) == 1):
            return
        values = torch.tensor(levels)
    number = float(values.max())
    op = _mask_op(core)
    multiplied = op is not None and base_name(op) == "mul" and number == 0
    how = "multiplied by 0" if multiplied else f"filled with {number:g}" if bool(replaced.any()) else f"{number:+g}"
    yield Finding(
        "attention-mask-hides-completely",
        f"The mask does not hide: the scores of hidden keys are {how}, so the keys keep some weight.",
        op.place if op is not None else core.place,
        "-inf",
        number,
        "Fill the scores of hidden keys with float('-inf').",
        number > WEAK,
        (core.path,),
    )


def _mask_op(core: AttentionCore) -> Op | None:
    """The last operation between product and softmax that reads a second value besides the scores."""
    inside = core.record.before([core.softmax.given], core.raw.number) & core.record.after([core.raw]) - {core.raw}
    ops = [core.record.ops[number] for number in sorted({value.op for value in inside}, reverse=True)]
    named = [op for op in ops if base_name(op) in ("masked_fill", "where")]
    reading = [op for op in ops if pointwise(op) and len(op.inputs) > 1 and op.name != "copy_"]
    return next(iter(named or reading), None)


def _mask_place(core: AttentionCore) -> Place | None:
    op = _mask_op(core)
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
                    "The scores are masked here, and the result is not used: the softmax gets the scores without this mask.",
                    op.place,
                    "masked scores in the softmax",
                    "masked scores that nothing reads",
                    "Go on with the result (scores = scores.masked_fill(...)), and let a second mask build on the first.",
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
                _mask_place(core),
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
            or not _drops(record, op)
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


def _drops(record: Record, op: Op) -> bool:
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


def _numbers(values: Tensor) -> str:
    values = values[~values.isnan()]
    if not values.numel():
        return "no numbers"
    low, high = float(values.min()), float(values.max())
    return f"{low:.4g}" if math.isclose(low, high, rel_tol=1e-4) else f"{low:.4g} to {high:.4g}"


_FIRST: tuple[Judgement, ...] = (softmax_axis, contraction, lost_masks)
_THEN: tuple[Judgement, ...] = (
    scale, tokens, rows, own_matrix, merge, groups, own_projections, same_tokens, mask_after, fill, diagonal,
)  # fmt: skip
