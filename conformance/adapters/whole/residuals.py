"""The residuals of a recorded run: what is added to what each sublayer gives.

A sublayer is an attention with its output projection, or a feed-forward network; modules and names do not matter. Its
input is the value that it reads, or what the norm before it got. What of this input stands in a sum is counted along
sums and moves; behind a product or a norm there is nothing of it any more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from conformance.adapters.whole.attention import AttentionCore
from conformance.adapters.whole.class_source import source_of
from conformance.adapters.whole.experts import mixtures
from conformance.adapters.whole.findings import Finding, once
from conformance.adapters.whole.flow import (
    PRODUCTS,
    base_name,
    carriers,
    moves,
    operands,
    origin,
    pointwise,
    projection,
)
from conformance.adapters.whole.norms import Network, norms
from conformance.adapters.whole.record import Call, Op, Place, Record, Value

KEEPS = {"native_dropout", "_softmax"}


@dataclass(eq=False)
class Sublayer:
    """base: the value that it reads. out: its last product. block: the call of the block around it.

    sums: the sums that `out` reaches by itself, in order. inputs: what counts as its input. times: how often the input
    stands in the sum, 0 for never. loose: a factor that is computed stands on the way, so the count means nothing more.
    normalised: what stands in the sum is the norm's result, not what the norm got. begins: it is an attention whose
    queries come from no sublayer and are not what it attends to: a new stream begins there, with or without them.
    """

    name: str
    base: Value
    out: Value
    block: Call
    sums: list[Op] = field(default_factory=list)
    times: int = 0
    loose: bool = False
    normalised: bool = False
    has_norm: bool = False
    begins: bool = False


def sublayers(record: Record, cores: Sequence[AttentionCore], networks: Sequence[Network]) -> list[Sublayer]:
    """Every sublayer that gives vectors as wide as those that it reads. Its block is the innermost call around it that
    holds another sublayer too; sublayers without one are left out."""
    found: dict[Value, tuple[str, Value]] = {}
    crossing: set[Value] = set()
    of_norms = {norm.y: norm.x for norm in norms(record)}
    for core in cores:
        query, key = core.sides["query"].projections, core.sides["key"].projections
        if query:
            out, base = _projected(record, core.product.outputs[0]), query[-1].base
            found.setdefault(out, ("attention", base))
            if key and of_norms.get(base, base) is not of_norms.get(key[-1].base, key[-1].base):
                crossing.add(out)
    for network in networks:
        first = projection(record, network.first.outputs[0])
        several = first is not None and network.second.outputs[0].data.numel() > first.base.data.numel()
        if first is not None and not several:  # those of several experts are summed before anything is added
            found.setdefault(network.second.outputs[0], ("feed-forward network", first.base))
    wholes: dict[Value, Call] = {}
    for mixture in mixtures(record):
        routed, gave = projection(record, mixture.scores[0]), mixture.call.gave[0]
        inner = [out for out in found if out.op in mixture.call.ops]
        is_part = gave.op in mixture.call.ops and all(found[out][0] != "attention" for out in inner)
        if routed is not None and is_part and mixture.call.parent >= 0:
            for out in inner:
                del found[out]  # one expert is no sublayer
            found[gave], wholes[gave] = ("mixture of experts", routed.base), record.calls[mixture.call.parent]
    used, result = record.before(record.outcomes), []
    cast = {origin(record, y): y for y in of_norms}  # a norm that computes in another dtype gives it back in the first
    for out, (name, base) in found.items():
        base = base if base in of_norms else cast.get(base, base)
        around = record.around(wholes.get(out) or record.call_of(record.ops[out.op]))
        blocks = [call for call in around if any(other.op in call.ops for other in found if other is not out)]
        if blocks and out in used and base.shape[-1:] == out.shape[-1:]:
            begins = out in crossing and not any(other in record.before([base]) for other in found)
            result.append(Sublayer(name, base, out, blocks[0], begins=begins))
    for one in result:
        one.sums = list(_sums(record, one, {x: y for y, x in of_norms.items()}))
    ends = {op for one in result for op in one.sums}
    for one in result:
        _measure(record, one, ends, of_norms)
    return [one for one in result if not (one.name == "mixture of experts" and _adds_inside(record, one, of_norms))]


def _adds_inside(record: Record, one: Sublayer, of_norms: dict[Value, Value]) -> bool:
    """Does what a mixture gives hold its input already?"""
    behind, before = _inputs(record, one, set(), of_norms)
    return any(_count(record, inputs, record.ops[one.out.op], of_norms)[0] for inputs in (behind, before) if inputs)


def residual_findings(record: Record, found: Sequence[Sublayer]) -> list[Finding]:
    """What is odd about a residual where its siblings in the same block have a plain one."""
    findings: list[Finding] = list(_no_way_around(record, found))
    for one in found:
        siblings = [other for other in found if other.block is one.block and other is not one]
        findings += _exchanged(record, one, siblings)
        plain = [other for other in siblings if other.times == 1 and not other.loose]
        if not plain or one.loose:
            continue
        findings += _judged(record, one, siblings, plain)
    return once(findings)


def _exchanged(record: Record, one: Sublayer, siblings: Sequence[Sublayer]) -> Iterator[Finding]:
    """A number multiplies what a sublayer reads, and the same one what another sublayer of the block gives."""
    mine = _factors(record, one)
    if mine is None or mine[0] == 1.0 or mine[1] != 1.0:
        return
    if any(_factors(record, other) == (1.0, mine[0]) for other in siblings):
        yield Finding(
            "sublayers-add-their-input-once",
            f"The factor {mine[0]:g} of the {one.name} of {one.block.path or 'the model'} stands on its input, and "
            "that of another sublayer of the block on what it gives.",
            sum_place(record, one),
            f"x + {mine[0]:g} sublayer(x)",
            f"{mine[0]:g} x + sublayer(x)",
            f"x + {mine[0]:g} * sublayer(x)",
            paths=(one.block.path,),
        )


def _factors(record: Record, one: Sublayer) -> tuple[float, float] | None:
    """The numbers by which its input and what it gives are multiplied in its sum; None where it has no sum of two."""
    op = one.sums[0] if one.sums else None
    if op is None or base_name(op) != "add" or len(op.inputs) != 2:
        return None
    made = [one.out in record.before([value]) for value in op.inputs]
    if made not in ([True, False], [False, True]):
        return None
    stream, gave = op.inputs[made.index(False)], op.inputs[made.index(True)]
    return _number_of(record, stream), _number_of(record, gave)


def _number_of(record: Record, value: Value) -> float:
    op = record.producer(value)
    numbers = [one for one in op.args if isinstance(one, int | float)] if op is not None else []
    return float(numbers[0]) if op is not None and base_name(op) == "mul" and len(numbers) == 1 else 1.0


_MEANT = re.compile(r"(?i)\b(no|without|drop(s|ping)?|remov(es?|ing)) (any )?(skips?|shortcuts?|residuals?)|skip-?less")
"""Words by which an author says that there are no residual connections."""


def _no_way_around(record: Record, found: Sequence[Sublayer]) -> Iterator[Finding]:
    """A deep Transformer in which nothing leads around any sublayer: all that a layer reads, the layer before made."""
    kinds = Counter(one.name for one in found)
    if kinds["attention"] < 2 or len(found) - kinds["attention"] < 2 or any(one.begins for one in found):
        return
    of_norms = {norm.y: norm.x for norm in norms(record)}
    if any(_leads_around(record, one, of_norms) for one in found):
        return
    classes: list[type] = [type(part) for part in record.module.modules()]
    text = "".join((source_of(cls) or ("",))[0] for cls in classes)
    sums = [op for one in found for op in one.sums]
    yield Finding(
        "sublayers-have-a-residual",
        f"Nothing leads around any of the {len(found)} sublayers: no layer adds what it reads to what it makes.",
        sums[0].place if sums else _caller(record, found[0]),
        "x + sublayer(x)",
        "sublayer(x)",
        "Add the input of each layer to its result.",
        not _MEANT.search(text),
        tuple(dict.fromkeys(one.block.path for one in found)),
    )


def _leads_around(record: Record, one: Sublayer, of_norms: dict[Value, Value]) -> bool:
    """Does what a sublayer reads reach something behind it element by element, so by no product? One that mixes several
    streams and keeps the width leads around, too (Zhu et al. 2024, Hyper-connections)."""
    mine = record.after([one.out])
    starts = set().union(*_inputs(record, one, set(), of_norms))
    mixing = [op for value in starts if (op := record.producer(value)) is not None and _is_product(op)]
    starts |= {origin(record, op.inputs[-1]) for op in mixing if _is_stream(op.inputs[-1], one)}
    seen, stack = set(starts), list(starts)
    while stack:
        here = stack.pop()
        if here in mine:
            return True
        ahead = [
            made
            for op in record.consumers(here)
            for made in op.outputs
            if here in carriers(op) or (_is_product(op) and here is op.inputs[-1] and _is_stream(made, one))
        ]
        stack.extend(made for made in ahead if made not in seen)
        seen.update(ahead)
    return False


def _is_product(op: Op) -> bool:
    return base_name(op) in ("bmm", "matmul")


def _is_stream(value: Value, one: Sublayer) -> bool:
    """Whether a value holds several streams, each as wide as what a sublayer gives: (n, d_model) of each token."""
    return value.shape[-1:] == one.out.shape[-1:] and value.data.numel() > one.out.data.numel()


def _judged(
    record: Record, one: Sublayer, siblings: Sequence[Sublayer], plain: Sequence[Sublayer]
) -> Iterator[Finding]:
    what = f"the {one.name} of {one.block.path or 'the model'}"
    place = sum_place(record, one)
    if one.times > 1:
        yield Finding(
            "sublayers-add-their-input-once",
            f"The input of {what} is added {one.times} times to its result; that of the other sublayers once.",
            place,
            "x + sublayer(x)",
            f"{one.times} x + sublayer(x)",
            "Add the input once.",
            paths=(one.block.path,),
        )
    elif not one.times and not one.sums:
        if one.begins:
            return
        yield Finding(
            "sublayers-have-a-residual",
            f"Nothing is added to the result of {what}, though its block has a residual connection elsewhere.",
            _caller(record, one),
            "x + sublayer(x)",
            "sublayer(x)",
            "Add the input of the sublayer to its result.",
            paths=(one.block.path,),
        )
    elif not one.times:
        if _has_streams(record, one) or _is_longer(record, one, siblings):
            return
        yield Finding(
            "sublayers-add-their-own-input",
            f"The residual connection of {what} does not add its input, as those of the other sublayers do.",
            place,
            "x + sublayer(x)",
            "another value + sublayer(x)",
            "Add the value that the sublayer, or the norm before it, gets.",
            paths=(one.block.path,),
        )
    elif one.normalised and any(other.has_norm and not other.normalised for other in plain):
        if _is_closed_by_a_norm(record, one):
            return
        yield Finding(
            "sublayers-add-their-own-input",
            f"The residual connection of {what} adds the output of its norm; those of the other sublayers add the "
            "input of theirs.",
            place,
            "x + sublayer(norm(x))",
            "norm(x) + sublayer(norm(x))",
            "Add the value from before the norm.",
            paths=(one.block.path,),
        )


def _is_closed_by_a_norm(record: Record, one: Sublayer) -> bool:
    """Whether a norm, and nothing else, reads its sum: the norm before it closed the sublayer before, as this one does
    its own."""
    total = one.sums[-1].outputs[0]
    closing = next((norm.call for norm in norms(record) if norm.x is total), None)
    return closing is not None and all(op.number in closing.ops for op in record.consumers(total))


def sum_place(record: Record, one: Sublayer) -> Place | None:
    """The line of the first sum; where a part inside the block adds what it is handed, the line that hands it over."""
    if not one.sums:
        return None
    op, place = one.sums[0], one.sums[0].place
    for call in record.around(record.call_of(op)):
        handed = [value for value in op.inputs if value in call.given]
        if call is one.block or not handed or len(call.given) < 2:
            break
        place = call.caller
    return place


def _has_streams(record: Record, one: Sublayer) -> bool:
    """Whether its block carries two streams or more, as reversible ones do: in values of their own, or in a wider one.
    What is added to one is then computed from another. What a product gives, as the scores of words, is no stream."""
    made = [v for v in one.block.gave if v not in one.block.given and not _is_projected(record, v)]
    width, numbers = one.out.shape[-1], one.out.data.numel()
    alike = [value for value in made if value.shape[-1:] == (width,) and value.data.numel() == numbers]
    wider = any(v.shape[-1:] > (width,) and v.data.numel() >= 2 * numbers for v in made)
    return len(alike) > 1 or wider or any(_is_joined(record, v, numbers) for v in made)


def _is_joined(record: Record, value: Value, numbers: int) -> bool:
    """Whether it is put together of two values or more that have so many numbers each."""
    op = record.producer(origin(record, value))
    joined = [one for one in op.inputs if record.computed(one)] if op is not None and op.name == "cat" else []
    return len(joined) > 1 and all(one.data.numel() == numbers for one in joined)


def _is_projected(record: Record, value: Value) -> bool:
    op = record.producer(origin(record, value))
    return op is not None and op.name in PRODUCTS


def _is_longer(record: Record, one: Sublayer, siblings: Sequence[Sublayer]) -> bool:
    """Whether what is added is what the sublayer is computed from, further back than its projections: it begins with a
    convolution, perhaps. No other sublayer may stand between, and it is no other's bare result."""
    behind = record.before([one.base])
    for op in one.sums:
        for added in (value for value in carriers(op) if value in behind and record.computed(value)):
            if any(_is_bare(record, added, other.out) for other in siblings):
                continue
            if not any(other.out in behind and added in record.before([other.out]) for other in siblings):
                return True
    return False


def _is_bare(record: Record, value: Value, out: Value) -> bool:
    """Is a value what a sublayer gives and nothing more: perhaps moved, dropped from or scaled, added to nothing?"""
    while value is not out:
        op = record.producer(value)
        behind = [one for one in carriers(op) if record.computed(one)] if op is not None else []
        if len(behind) != 1:
            return False
        value = behind[0]
    return True


def _caller(record: Record, one: Sublayer) -> Place | None:
    """The line of the block that asks for the sublayer."""
    op = record.ops[one.out.op]
    inner = [call for call in record.around(record.call_of(op)) if call.parent == one.block.number]
    return inner[0].caller if inner else op.place


def _projected(record: Record, value: Value) -> Value:
    """The product with a matrix of its own that a core's result goes into, or that follows it where nothing but a
    dropout stands between; else the result itself."""
    once = _product_ahead(record, value, lambda op: moves(op) or pointwise(op) or op.name == "native_dropout")
    return _product_ahead(record, once, lambda op: moves(op) or op.name == "native_dropout")


def _product_ahead(record: Record, value: Value, passes: Callable[[Op], bool]) -> Value:
    """The next product with a matrix of its own, behind operations that it `passes`; else the value itself."""
    seen, stack = {value}, [value]
    while stack:
        here = stack.pop(0)
        for op in record.consumers(here):
            if op.name in PRODUCTS and here in operands(op):
                return op.outputs[0] if sum(map(record.computed, operands(op))) == 1 else value
            if here in carriers(op) and passes(op):
                ahead = [made for made in op.outputs if made not in seen]
                seen.update(ahead)
                stack.extend(ahead)
    return value


def _sums(record: Record, one: Sublayer, of_norms: dict[Value, Value]) -> Iterator[Op]:
    """The sums of the result with values that were not computed from it, as far as it is not used otherwise."""
    mine, read = record.after([one.out]), _joined(record, record.before([one.base]))
    seen, stack = {one.out}, [(one.out, False)]
    while stack:
        here, summed = stack.pop(0)
        ahead = []
        if not summed and here in of_norms and of_norms[here].op in one.block.ops:
            ahead.append((of_norms[here], False))  # a norm of the result alone
        for op in record.consumers(here):
            if op.number not in one.block.ops or here not in carriers(op):
                continue
            others = [value for value in op.inputs if value is not here and (record.computed(value) or value in read)]
            if any(value in mine for value in others):
                continue  # another sublayer's sum
            adds = base_name(op) == "add" and bool(others)
            if adds:
                yield op
            if (moves(op) or pointwise(op) or op.name in KEEPS) and here not in of_norms:
                ahead.append((op.outputs[0], summed or adds))
        stack.extend(item for item in ahead if item[0] not in seen)
        seen.update(value for value, _ in ahead)


def _joined(record: Record, values: set[Value]) -> set[Value]:
    """Those of these values that are joined with what is computed from the input, and are not themselves: the token of
    a class, and other streams that begin at a parameter."""
    joins = (op for op in map(record.producer, values) if op is not None and op.name == "cat")
    return {value for op in joins for value in op.inputs if not record.computed(value)}


def _measure(record: Record, one: Sublayer, ends: set[Op], of_norms: dict[Value, Value]) -> None:
    before, behind = _inputs(record, one, ends, of_norms)
    one.has_norm = bool(behind)
    for inputs in (behind, before):
        counts = [_count(record, inputs, op, of_norms) for op in one.sums]
        times = max((count for count, _ in counts), default=0)
        if times:
            one.times, one.loose = times, any(loose for _, loose in counts)
            one.normalised = inputs is before and bool(behind)
            return


def _inputs(
    record: Record, one: Sublayer, ends: set[Op], of_norms: dict[Value, Value]
) -> tuple[set[Value], set[Value]]:
    """What the sublayer reads, in every form that it has on its way: after the last norm, and before it."""
    found: tuple[set[Value], set[Value]] = {one.base}, set()
    joined, stack = _joined(record, record.before([one.base])), [(one.base, 0)]
    while stack:
        here, side = stack.pop()
        if here in of_norms and side == 0 and here.op in one.block.ops:
            side, behind = 1, [of_norms[here]]
        else:
            op = record.producer(here)
            behind = list(carriers(op)) if op is not None and op not in ends and here not in of_norms else []
        for value in behind:
            if (record.computed(value) or value in joined) and value not in found[side]:
                found[side].add(value)
                stack.append((value, side))
    return found


def _count(record: Record, inputs: set[Value], end: Op, of_norms: dict[Value, Value]) -> tuple[int, bool]:
    """How often one of the inputs stands in the result of a sum, and whether a computed factor stands on a way."""
    known: dict[Value, tuple[int, bool]] = {}

    def count(value: Value) -> tuple[int, bool]:
        if value in inputs:
            return 1, False
        if value not in known:
            known[value] = (0, False)
            op = record.producer(value)
            if op is not None and value not in of_norms:
                parts = [count(part) for part in carriers(op)]
                summed = base_name(op) in ("add", "sub")
                times = sum(part for part, _ in parts) if summed else max((part for part, _ in parts), default=0)
                factor = not summed and not moves(op) and op.name not in KEEPS
                known[value] = times, any(loose for _, loose in parts) or (factor and bool(times))
        return known[value]

    return count(end.outputs[0])
