"""In which order classes are asked for, and what labels leave out: read from the losses of a run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from conformance.slips.slip import END, PAD
from conformance.watch.ends import FORWARD
from conformance.watch.events import Backward, Loss
from conformance.watch.lines import Source
from conformance.watch.stated import sources, whole_numbers

FEWEST = 6
"""So many batches in a row, each of classes no lower than those of the one before, come of sorted data."""


def sorted_by_class(run: Any) -> Loss | None:
    """The last of the batches that ask for one class after the other, in the order of their numbers."""
    by_place: dict[str, list[Loss]] = {}
    for loss in run.of(Loss):
        if loss.gradients and loss.span is not None:
            by_place.setdefault(loss.place, []).append(loss)
    for losses in by_place.values():
        row: list[Loss] = []
        for loss in losses:
            if row and not _follows(row[-1], loss):
                if _is_sorted(row):
                    return row[-1]
                row = []
            row.append(loss)
        if _is_sorted(row):
            return row[-1]
    return None


def _follows(before: Loss, loss: Loss) -> bool:
    """Whether a batch asks for no class that is lower than those of the batch before."""
    return before.span is not None and loss.span is not None and loss.span[0] >= before.span[1]


def _is_sorted(row: list[Loss]) -> bool:
    """Whether several batches are of several classes, and most of them of one alone."""
    alone = {loss.span[0] for loss in row if loss.span and loss.span[0] == loss.span[1]}
    return len(row) >= FEWEST and len(alone) >= 2


def counted_by_frequency(run: Any) -> Iterator[tuple[str, str]]:
    """Counts that weights are made of, in the order of `most_common` and without what they are counts of: what is
    written, and where."""
    for source in sources(run):
        for node in source.nodes:
            if not isinstance(node, (ast.ListComp, ast.GeneratorExp)):
                continue
            loop, around = node.generators[0], source.function(node)
            counts = isinstance(loop.iter, ast.Call) and getattr(loop.iter.func, "attr", "") == "most_common"
            key = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and len(loop.target.elts) == 2 else None
            named = {n.id for part in (node.elt, *loop.ifs) for n in ast.walk(part) if isinstance(n, ast.Name)}
            is_lost = isinstance(key, ast.Name) and key.id not in named
            said = f"{getattr(around, 'name', '')} {ast.unparse(source.statement(node))}"
            if counts and is_lost and re.search(r"weight|freq", said) and re.search(r"tensor|array", said):
                yield ast.unparse(node), source.place(node)


_TASKS = re.compile(r"task|continual|incremental|episod|curricul|domain", re.IGNORECASE)


def speaks_of_tasks(run: Any) -> bool:
    """Whether a script may mean to learn one class after the other."""
    return any(_TASKS.search(ast.unparse(source.tree)) for source in sources(run))


def divergence_over_padding(run: Any) -> tuple[Loss, Loss] | None:
    """A divergence that learns at all places, and the cross-entropy of the same step, which leaves out just the
    padding."""
    for back in run.of(Backward):
        before = [
            loss for loss in run.of(Loss) if loss.step == back.step and loss.order < back.order and loss.gradients
        ]
        for one in (x for x in before if x.name == "cross_entropy" and x.skips_padding and x.targets):
            for other in (x for x in before if x.name == "kl_div" and x.targets):
                if other.targets.counted == other.targets.total == one.targets.total:
                    return other, one
    return None


def ends_taken_for_padding(run: Any) -> tuple[int, Loss] | None:
    """The id that a script names both its end and its padding, puts into its texts, and asks for in no label; and the
    first loss that leaves it out."""
    losses = [loss for loss in run.of(Loss) if loss.gradients and loss.asked_for]
    first = next((x for x in losses if x.unasked and x.targets and x.targets.offsets.get(1, 0.0) > FORWARD), None)
    if first is None:
        return None
    for source in sources(run):
        numbers = [*whole_numbers(source)]
        known = dict(numbers)
        pads = {value for name, value in numbers if PAD.match(name)}
        pads |= {known[other] for name, other in _renamed(source) if PAD.match(name) and other in known}
        ends = {name: value for name, value in numbers if END.match(name) and value in pads}
        for name, value in ends.items():
            if _is_put(source, name) and not any(value in loss.asked_for for loss in losses):
                return value, first
    return None


def _renamed(source: Source) -> Iterator[tuple[str, str]]:
    """What has the value of another name: `tokenizer.pad_id = tokenizer.eos_id`."""
    for node in (one for one in source.nodes if isinstance(one, ast.Assign)):
        yield from ((_last(target), _last(node.value)) for target in node.targets)


def _is_put(source: Source, name: str) -> bool:
    """Whether what a name stands for is put into lists: `[*words, EOS]`, `row.append(EOS)`."""
    for node in source.nodes:
        if isinstance(node, (ast.List, ast.Tuple)) and isinstance(node.ctx, ast.Load):
            if any(_last(one) == name for one in node.elts):
                return True
        elif isinstance(node, ast.Call) and _last(node.func) == "append" and [*map(_last, node.args)] == [name]:
            return True
    return False


def _last(node: ast.AST) -> str:
    return getattr(node, "id", "") or getattr(node, "attr", "")


_PROMPT = re.compile(r"^(prompt|question|instruction|query|user|context)(_?(ids?|text|tokens))?$", re.IGNORECASE)
_ANSWER = re.compile(r"^(answer|response|reply|completion|output|assistant)(_?(ids?|text|tokens))?$", re.IGNORECASE)


def joins_prompts(run: Any) -> str:
    """Where a script makes one text of a prompt and its answer: a sum, or a list that is joined, of two that are named
    so; "" where it does not."""
    for source in sources(run):
        for node in source.nodes:
            parts: list[ast.AST] = []
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                parts = [node.left, node.right]
            elif isinstance(node, (ast.List, ast.Tuple)) and isinstance(source.around.get(node), ast.Call):
                parts = [*node.elts]
            names = [_last(one) for part in parts for one in ast.walk(part)]
            if any(map(_PROMPT.match, names)) and any(map(_ANSWER.match, names)):
                return source.place(node)
    return ""
