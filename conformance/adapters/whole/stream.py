"""How a recorded model is put together: its blocks, what flows through them, and what reaches no result.

    for finding in stream_findings([record, ...]): ...

Designs differ: parallel blocks, sandwich norms, skips, shared layers, experts that are not asked. So only three things
are certain here: what is computed and reaches nothing, a part's result or a residual's sum; what is made and never
runs; and one block of a list that is wired unlike all others where no rule explains it. All else is a note.
"""

from __future__ import annotations

import linecache
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn

from conformance.adapters.whole.class_source import is_for_some_layers, source_of
from conformance.adapters.whole.findings import Finding, once
from conformance.adapters.whole.record import Call, Place, Record, Value

_OPTIONAL = re.compile(r"pool|head|expert|adapter|lora|mask_token|cls|classifier|proj_out|decoder|predict", re.I)
"""Names of parts that a run may leave alone because another output was asked for."""

_SHARES = re.compile(r"shar(e|ed|ing)\b|albert|\btied?\b|universal|recurr|re-?us|loop|same (weights|parameters)", re.I)
"""Words by which an author says that blocks share their parameters."""


@dataclass(eq=False)
class Stack:
    """A list of modules of one class, and their calls in order. chained: each works on what the one before it gave."""

    path: str
    blocks: list[nn.Module]
    paths: list[str]
    calls: list[Call]
    chained: bool

    def index(self, call: Call) -> int:
        return next(i for i, block in enumerate(self.blocks) if block is call.module)


def stacks(record: Record) -> list[Stack]:
    """Every list of at least two blocks (modules of one class that have parts) of which at least one ran."""
    found = []
    for path, module in record.module.named_modules():
        if not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        blocks = [block for block in module if block is not None]  # a list may have holes
        parts = all(any(True for _ in block.children()) for block in blocks)
        if len(blocks) < 2 or len({type(block) for block in blocks}) != 1 or not parts:
            continue
        own = {id(block) for block in blocks}
        calls = [call for call in record.calls if id(call.module) in own]
        if calls:
            paths = [f"{path}.{name}" if path else name for name, _ in module.named_children()]
            found.append(Stack(path, blocks, paths, calls, _chained(record, calls)))
    return found


def _chained(record: Record, calls: Sequence[Call]) -> bool:
    links = [
        bool(first.gave and second.given and record.reaches(first.gave[0], second.given[0]))
        for first, second in pairwise(calls)
    ]
    return not links or sum(links) * 2 > len(links)


def stream_findings(records: Sequence[Record]) -> list[Finding]:
    """What is wrong with the composition of one model. records: runs of it under the options that were tried; a module
    is unused only if no run uses it."""
    found = list(_never_ran(records))
    for record in records:
        lists = stacks(record)
        found += _unused_results(record)
        for stack in lists:
            found += _shared(record, stack)
            if stack.chained:
                found += [*_order(record, stack, records), *_unlike(record, stack), *_memories(record, stack)]
    return once(found)


# --- what never runs, and what reaches nothing


def _never_ran(records: Sequence[Record]) -> Iterator[Finding]:
    model = records[0].module
    ran = {id(call.module) for record in records for call in record.calls}
    read = {value.data.data_ptr() for record in records for value in record.values if value.kind != "made"}
    blocks = {id(block): stack for record in records for stack in stacks(record) for block in stack.blocks}
    reported: list[str] = []
    for path, module in model.named_modules():
        if any(path == other or path.startswith(f"{other}.") for other in reported) or id(module) in ran or not path:
            continue
        tensors = [*module.parameters(), *(b for b in module.buffers() if _table(b))]
        if isinstance(module, nn.ModuleList | nn.ModuleDict | nn.ParameterList):
            continue  # containers are never called
        if any(id(inner) in ran for inner in module.modules()) or any(t.data_ptr() in read for t in tensors):
            continue
        reported.append(path)
        if id(module) in blocks:
            continue  # told with its list
        certain = bool(tensors) and not _OPTIONAL.search(path.rpartition(".")[2]) and _trained(module)
        named = f"{path} ({type(module).__name__})"
        said, mend = f"{named} is made and never used.", "Use it in forward, or do not make it."
        place = _called_instead(records, path, module) or _called_behind(records, path) or _made_at(model, path)
        if _is_copied(model, path, module):
            said = f"{named} is what the layers of its stack were copied from, and stays a part that never learns."
            mend = "Keep it in a local variable of __init__: the stack has copies of its own."
            place = _made_at(model, path)
        yield Finding("modules-that-are-made-run", said, place, "a call of this module", "none", mend, certain, (path,))


def _is_copied(model: nn.Module, path: str, module: nn.Module) -> bool:
    """Whether a layer of torch's stands beside a stack of torch's whose layers are of its class: it makes copies."""
    owner = model.get_submodule(path.rpartition(".")[0])
    stacks_beside = (one for one in owner.children() if isinstance(one, nn.TransformerEncoder | nn.TransformerDecoder))
    is_layer = isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer)
    return is_layer and any(type(layer) is type(module) for one in stacks_beside for layer in one.layers)


def _called_instead(records: Sequence[Record], path: str, module: nn.Module) -> Place | None:
    """The line that calls a sibling of the same class a second time, where the module itself never runs."""
    outer = path.rpartition(".")[0]
    for record in records:
        calls: dict[str, list[Call]] = {}
        for call in record.calls:
            same = call.path != path and call.path.rpartition(".")[0] == outer and type(call.module) is type(module)
            if same and call.parent >= 0:
                calls.setdefault(f"{call.path} {call.parent}", []).append(call)
        again = [group for group in calls.values() if len(group) > 1]
        if len(again) == 1:
            return again[0][-1].caller
    return None


def _called_behind(records: Sequence[Record], path: str) -> Place | None:
    """The line that calls the first part behind it, in the order in which their owner made them: it is missing there,
    or just before."""
    outer, _, name = path.rpartition(".")
    owner = records[0].module.get_submodule(outer)
    if isinstance(owner, nn.ModuleList | nn.ModuleDict):
        return None
    names = [inner for inner, _ in owner.named_children()]
    for sibling in names[names.index(name) + 1 :] if name in names else ():
        own = {id(part) for part in owner.get_submodule(sibling).modules()}
        for record in records:
            for call in record.calls:
                if id(call.module) in own and call.parent >= 0 and record.calls[call.parent].module is owner:
                    return call.caller
    return None


def _trained(module: nn.Module) -> bool:
    parameters = list(module.parameters())
    return not parameters or any(parameter.requires_grad for parameter in parameters)


def _table(buffer: Tensor) -> bool:
    """Is a buffer a table of numbers (positions), not a mask of zeros and ones or a count?"""
    return buffer.is_floating_point() and buffer.dim() >= 2 and len(buffer.unique()) > 2


def _made_at(model: nn.Module, path: str) -> Place | None:
    """The line of __init__ that gives a module its name; else the line where __init__ begins."""
    outer, _, name = path.rpartition(".")
    owner = model.get_submodule(outer)
    while outer and type(owner).__module__.startswith("torch."):  # an entry of a list: the line that makes the list
        outer, _, name = outer.rpartition(".")
        owner = model.get_submodule(outer)
    code = getattr(type(owner).__init__, "__code__", None)
    if code is None:
        return None
    for number, line in enumerate(linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :], code.co_firstlineno):
        if re.search(rf"\b\w+\.{re.escape(name)}\b.*=", line):
            return Place(code.co_filename, number)
    return Place(code.co_filename, code.co_firstlineno)


def _unused_results(record: Record) -> Iterator[Finding]:
    alive, returned = record.before(record.outcomes), record.before(record.results)
    dead: set[int] = set()
    used = {call.path for call in record.calls if any(value in alive for value in call.gave)}
    for call in record.calls:
        if call.parent in dead:
            dead.add(call.number)
            continue
        made = [value for value in call.gave if value.op in call.ops]
        inside = [value for op in call.ops for value in record.ops[op].inputs if value.kind == "parameter"]
        if call.parent < 0 or not made or not inside or call.path in used:
            continue  # also where another call of it is used: of a table some rows may be for longer inputs
        if any(value in returned for number in call.ops for value in record.ops[number].outputs):
            continue  # it left something in memory that is read later: a cache
        outer, _, part = call.path.rpartition(".")
        owner: type = type(record.module.get_submodule(outer))
        if is_for_some_layers(owner, "forward", part):
            continue  # which the model as it was made may not have
        dead.add(call.number)
        yield Finding(
            "results-that-are-computed-are-used",
            f"What {call.path} ({type(call.module).__name__}) computes reaches no result.",
            call.caller,
            "a use of the result",
            "none",
            "Use the result, or do not compute it.",
            not _OPTIONAL.search(call.path),
            (call.path,),
        )


# --- the blocks of a list


def _shared(record: Record, stack: Stack) -> Iterator[Finding]:
    """Blocks of one list that have one set of parameters, as [layer] * n and shallow copies have."""
    owned = [frozenset(id(parameter) for parameter in block.parameters()) for block in stack.blocks]
    if not owned[0] or len(set(owned)) == len(owned):
        return
    outer = stack.path.rpartition(".")[0]
    owner: type = type(record.module.get_submodule(outer))
    source = (source_of(owner) or ("", "", 0))[0]
    meant = any(
        _SHARES.search(line) and re.search(r"layer|block|depth|stack|group", line) for line in source.splitlines()
    )
    meant = meant or bool(_SHARES.search(owner.__name__) or _SHARES.search(type(record.module).__name__))
    yield Finding(
        "blocks-have-their-own-parameters",
        f"{len(owned)} blocks of {stack.path} have {len(set(owned))} set{'s' * (len(set(owned)) > 1)} of parameters.",
        _made_at(record.module, stack.path),
        f"{len(owned)} sets of parameters",
        len(set(owned)),
        "Make every block anew: nn.ModuleList(Block(...) for _ in range(n)); [block] * n is one block n times.",
        not meant,
        (stack.path,),
    )


def _order(record: Record, stack: Stack, records: Sequence[Record]) -> Iterator[Finding]:
    if any(call.training for call in stack.calls):
        return  # layers may be dropped
    ran = Counter(stack.index(call) for call in stack.calls)
    elsewhere = {id(call.module) for other in records for call in other.calls}
    missing = [i for i, block in enumerate(stack.blocks) if id(block) not in elsewhere]
    place = stack.calls[-1].caller
    if missing and max(missing) < len(stack.blocks):
        names = ", ".join(stack.paths[i] for i in missing)
        yield Finding(
            "blocks-run-once-and-in-order",
            f"{names} never runs: only {len(ran)} of the {len(stack.blocks)} blocks in {stack.path} run.",
            place,
            list(range(len(stack.blocks))),
            [stack.index(call) for call in stack.calls],
            "Call every block once, in order.",
            paths=tuple(stack.paths[i] for i in missing),
        )
        return
    sequence = [stack.index(call) for call in stack.calls]
    once_each = len(set(sequence)) == len(sequence)
    if once_each and sequence not in (sorted(sequence), sorted(sequence, reverse=True)):
        yield Finding(
            "blocks-run-once-and-in-order",
            f"The blocks of {stack.path} run in the order {sequence}.",
            place,
            sorted(sequence),
            sequence,
            "If no other order is meant, call them in order.",
            False,
            (stack.path,),
        )


def _unlike(record: Record, stack: Stack) -> Iterator[Finding]:
    """One block whose operations differ from those of all others, which agree."""
    if any(call.training for call in stack.calls) or len(stack.calls) != len(stack.blocks) or len(stack.calls) < 3:
        return
    shapes = [_wiring(record, call) for call in stack.calls]
    common, count = Counter(shapes).most_common(1)[0]
    odd = [i for i, shape in enumerate(shapes) if shape != common]
    if len(odd) != 1 or count != len(shapes) - 1:
        return
    call = stack.calls[odd[0]]
    rule = odd[0] in (0, len(shapes) - 1) or len(shapes) < 4 or _told_apart(stack, odd[0])
    differs = next((i for i, (a, b) in enumerate(zip(shapes[odd[0]], common, strict=False)) if a != b), -1)
    ops = [record.ops[number] for number in call.ops]
    at = min(max(differs, 0), len(ops) - 1)
    yield Finding(
        "blocks-are-wired-alike",
        f"{call.path} is wired unlike its {count} sibling blocks.",
        ops[at].place if ops else call.caller,
        "the operations of its siblings",
        f"another operation, the first at number {at}" if ops else "none",
        "Let every block run the same code.",
        not rule,
        (call.path,),
    )


def _wiring(record: Record, call: Call) -> tuple[tuple[object, ...], ...]:
    """The operations of a call with their inputs, as numbers that do not depend on where the block stands."""
    names: dict[Value, object] = {value: ("given", i) for i, value in enumerate(call.given)}
    prefix = f"{call.path}."
    lines: list[tuple[object, ...]] = []
    for number in call.ops:
        op = record.ops[number]
        reads = tuple(names.get(value, value.name.removeprefix(prefix) or value.kind) for value in op.inputs)
        for i, value in enumerate(op.outputs):
            names[value] = (len(lines), i)
        lines.append((op.name, reads))
    return (*lines, ("gives", tuple(names.get(value) for value in call.gave)))


def _told_apart(stack: Stack, odd: int) -> bool:
    """Does an attribute of the block, or of its parts, other than a running number, differ from those of all others?"""

    def facts(block: nn.Module) -> dict[str, object]:
        inner = block.named_modules()
        plain = (bool, int, float, str, type(None))
        own: dict[str, object] = {f"{n}.{k}": v for n, m in inner for k, v in vars(m).items() if isinstance(v, plain)}
        return own | {f"{n}:": type(m).__name__ for n, m in block.named_modules()}

    known = [facts(block) for block in stack.blocks]
    others = [fact for i, fact in enumerate(known) if i != odd]
    for name, value in known[odd].items():
        values = {repr(fact.get(name)) for fact in others}
        if len(values) == 1 and repr(value) not in values:
            return True
    return known[odd].keys() != others[0].keys()


def _memories(record: Record, stack: Stack) -> Iterator[Finding]:
    """What blocks get besides their stream: the same for all, as far as it is computed."""
    seconds = []
    for call in stack.calls:
        others = [v for v in call.given[1:] if v.data.is_floating_point() and v.data.dim() == call.given[0].data.dim()]
        seconds.append(tuple(v for v in others if record.computed(v) and v.shape[-1] == call.given[0].shape[-1]))
    if len(seconds) < 3 or not all(seconds) or len({len(found) for found in seconds}) != 1:
        return
    common, count = Counter(seconds).most_common(1)[0]
    odd = [i for i, found in enumerate(seconds) if found != common]
    if len(odd) == 1 and count == len(seconds) - 1:
        call = stack.calls[odd[0]]
        yield Finding(
            "decoder-layers-read-one-memory",
            f"{call.path} gets another memory than its {count} sibling blocks.",
            call.caller,
            "one memory for all blocks",
            "another one for this block",
            "Give every block the output of the last encoder block.",
            0 < odd[0] < len(seconds) - 1 and len(seconds) > 3,
            (call.path,),
        )
