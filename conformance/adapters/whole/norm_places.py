"""Where the norms of a block's sublayers stand: on the branch, x + norm(sublayer(x)), or on the sum,
norm(x + sublayer(x)).

Either is a usual design, and so is a norm before each sublayer, which says nothing here. A block that has both is no
usual design.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.adapters.whole.findings import Finding, once
from conformance.adapters.whole.flow import moves, pointwise
from conformance.adapters.whole.norms import Norm, norms
from conformance.adapters.whole.record import Op, Record, Value
from conformance.adapters.whole.residuals import KEEPS, Sublayer, sum_place

PLACED = "sublayers-of-a-block-are-normed-in-one-place"


def norm_place_findings(record: Record, found: Sequence[Sublayer]) -> list[Finding]:
    """The sublayers with a norm on their branch in whose block another one has it on the sum."""
    of = {norm.x: norm for norm in norms(record)}
    places = {id(one): _place(record, one, of) for one in found if one.times == 1 and one.sums}
    findings = []
    for one in found:
        siblings = [other for other in found if other.block is one.block and places.get(id(other)) == "sum"]
        if places.get(id(one)) == "branch" and siblings:
            what = f"the {one.name} of {one.block.path or 'the model'}"
            finding = Finding(
                PLACED,
                f"The norm of {what} stands on its branch, and that of the {siblings[0].name} on the sum.",
                sum_place(record, one),
                "norm(x + sublayer(x))",
                "x + norm(sublayer(x))",
                "Put both norms in the same place.",
                paths=(one.block.path,),
            )
            findings.append(finding)
    return once(findings)


def _place(record: Record, one: Sublayer, of: dict[Value, Norm]) -> str:
    """Where the norm behind a sublayer stands: "branch", "sum", or "" for neither."""
    if any(value in of for value in _ahead(record, one, one.out)):
        return "branch"
    summed = _ahead(record, one, one.sums[-1].outputs[0])
    return "sum" if any(_is_all_normed(record, of, value) for value in summed) else ""


def _ahead(record: Record, one: Sublayer, value: Value) -> Iterator[Value]:
    """A value, and what it becomes by itself within the block: moved, scaled or dropped from, and added to nothing."""
    seen, stack = {value}, [value]
    while stack:
        here = stack.pop()
        yield here
        for op in record.consumers(here):
            alone = op not in one.sums and (moves(op) or op.name in KEEPS or _scales(record, op))
            if alone and op.number in one.block.ops and op.outputs[0] not in seen:
                seen.add(op.outputs[0])
                stack.append(op.outputs[0])


def _scales(record: Record, op: Op) -> bool:
    """Whether it computes element by element with nothing else that is computed."""
    return pointwise(op) and sum(record.computed(value) for value in op.inputs) == 1


def _is_all_normed(record: Record, of: dict[Value, Norm], value: Value) -> bool:
    """Whether a value goes into one norm, and nowhere else."""
    readers = record.consumers(value)
    return value in of and bool(readers) and all(op.number in of[value].call.ops for op in readers)
