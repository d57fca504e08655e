"""Random programs: drawing one, running it on torch or minigrad, and shrinking one that fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tools.fuzz.steps import CHANGING, PURE, STEPS, need

LARGEST = 300.0  # a value beyond leaves no digits for what is computed from it
SHAPES = ((2, 3), (3,), (3, 2), (2, 1, 3), (), (1, 3), (3, 3), (2, 2, 2), (4,), (0, 3))


@dataclass(frozen=True)
class Line:
    """A step of a program: its name, the values that it reads, and its integers."""

    step: str
    reads: tuple[int, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """inputs: shapes; values 0, 1, ... are the inputs, then captured parameters, then what each line makes.

    The last of the inputs wants no gradient. results: the values whose squares are the loss.
    """

    inputs: tuple[tuple[int, ...], ...]
    captured: tuple[tuple[int, ...], ...]
    lines: tuple[Line, ...]
    results: tuple[int, ...]
    seed: int

    @property
    def given(self) -> int:
        return len(self.inputs) + len(self.captured)

    def __str__(self) -> str:
        names = [f"input{i}" for i in range(len(self.inputs))] + [f"captured{i}" for i in range(len(self.captured))]
        shapes = (*self.inputs, *self.captured)
        text = [f"{name} {list(shape)}" for name, shape in zip(names, shapes, strict=True)]
        names += [f"v{i}" for i in range(len(self.lines))]
        for i, line in enumerate(self.lines):
            text.append(f"v{i} = {line.step}({', '.join(names[r] for r in line.reads)}; {list(line.numbers)})")
        return "\n".join([f"seed {self.seed}", *text, "loss of " + ", ".join(names[r] for r in self.results)])


def arrays(program: Program, dtype: str = "float64", nudge: float = 0.0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The values of inputs and of captured parameters; `nudge` moves each by so much of itself."""
    rng = np.random.default_rng(program.seed)
    made = [rng.standard_normal(shape) for shape in (*program.inputs, *program.captured)]
    made = [np.asarray(array * (1 + nudge), dtype) for array in made]
    return made[: len(program.inputs)], made[len(program.inputs) :]


def values(program: Program, t: Any, given: Sequence[Any]) -> list[Any]:
    """Every value of a program, on torch or on the stand-in."""
    found = list(given)
    for line in program.lines:
        found.append(_made(t, line, found))
    return found


def _made(t: Any, line: Line, found: Sequence[Any]) -> Any:
    """The value of a line. Raises Unfit for tensors that it does not allow."""
    reads = [found[r] for r in line.reads]
    if t is torch and line.step in CHANGING:
        _in_any_order(reads)
    return STEPS[line.step][1](t, reads, line.numbers)


def _in_any_order(reads: Sequence[torch.Tensor]) -> None:
    """Raise Unfit where torch's answer to a change in place is the order of its loops: elements of what is changed
    share memory, or the other operand lies in it at other places."""
    places = [torch.arange(x.untyped_storage().size() // 8).as_strided(x.shape, x.stride(), x.storage_offset())
              for x in reads]  # fmt: skip
    need(places[0].unique().numel() == places[0].numel())
    for x, other in zip(reads[1:], places[1:], strict=True):
        if x.untyped_storage().data_ptr() == reads[0].untyped_storage().data_ptr():
            same = other.shape == places[0].shape and torch.equal(other, places[0])
            need(same or not torch.isin(other, places[0]).any())


def outcome(program: Program, t: Any, inputs: Sequence[Any], captured: Sequence[Any]) -> list[Any]:
    """Results, the loss, its gradients for inputs and parameters, those of the gradients' squares; None for none."""
    wanted = [x for x in (*inputs, *captured) if x.requires_grad]  # now: one that changes in place may want one later
    found = values(program, t, [*inputs, *captured])
    results = [found[r] for r in program.results]
    loss = sum((x * x).sum() for x in results[1:]) + (results[0] * results[0]).sum()
    if not loss.requires_grad:
        return [*results, loss]
    first = t.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
    squares = [(g * g).sum() for g in first if g is not None and g.requires_grad]
    if not squares:
        return [*results, loss, *first]
    total = sum(squares[1:]) + squares[0]
    return [*results, loss, *first, *t.autograd.grad(total, wanted, allow_unused=True)]


def drawn(seed: int, shortest: int = 5, longest: int = 60) -> Program:
    """The program of a seed: every line works on torch, and its values stay within bounds."""
    rng = random.Random(seed)
    inputs = tuple(rng.choice(SHAPES) for _ in range(rng.randint(2, 3)))
    captured = tuple(rng.choice(SHAPES) for _ in range(rng.randint(0, 2)))
    program = Program(inputs, captured, (), (0,), seed)
    given = leaves(program)
    found: list[Any] = [*given[0], *given[1]]
    length, tries = rng.randint(shortest, longest), 0
    while len(program.lines) < length and tries < 20 * length:
        tries += 1
        pool = CHANGING if rng.random() < 0.15 else PURE
        step = rng.choice(list(pool))
        recent = rng.random() < 0.6
        reads = tuple(rng.randrange(max(0, len(found) - 4) if recent else 0, len(found)) for _ in range(pool[step][0]))
        line = Line(step, reads, tuple(rng.randrange(64) for _ in range(4)))
        changed = [x.detach().clone() for x in found] if pool is CHANGING else []
        try:
            made = _made(torch, line, found)
        except Exception:
            if changed and not all(map(torch.equal, changed, found)):
                break  # half done: what was drawn before stays
            continue
        program = replace(program, lines=(*program.lines, line))
        found.append(made)
        if made.numel() > 200 or not all(bool((x.detach().abs() < LARGEST).all()) for x in found):
            program = replace(program, lines=program.lines[:-1])
            found.pop()
            if changed:
                break
    last = [i for i in range(len(found)) if i >= program.given] or [0]
    chosen = {last[-1], *rng.sample(last, min(2, len(last)))}
    chosen = {i for i in chosen if i < program.given + len(program.lines)} or {0}
    return _differentiable(replace(program, results=tuple(sorted(chosen))))


def _differentiable(program: Program) -> Program:
    """Without the last changes in place, as many as keep torch from a derivative: they overwrite what it needs."""
    while not _runs(program):
        changes = [i for i, line in enumerate(program.lines) if line.step in CHANGING]
        if not changes:
            return program
        program = _without(program, changes[-1], program.lines[changes[-1]].reads[0])
    return program


def _runs(program: Program) -> bool:
    try:
        outcome(program, torch, *leaves(program))
    except Exception:
        return False
    return True


def leaves(program: Program, nudge: float = 0.0) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """torch's inputs and captured parameters."""
    inputs, captured = arrays(program, nudge=nudge)
    tensors = [torch.from_numpy(array.copy()) for array in (*inputs, *captured)]
    for i, tensor in enumerate(tensors):
        tensor.requires_grad_(i != len(inputs) - 1)
    return tensors[: len(inputs)], tensors[len(inputs) :]


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """A smaller program that fails, too: results and lines are left out one by one, numbers become 0."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(program):
            if fails(candidate):
                program, smaller = candidate, True
                break
    return program


def _smaller(program: Program) -> Sequence[Program]:
    found = [
        replace(program, results=tuple(r for r in program.results if r != result))
        for result in program.results
        if len(program.results) > 1
    ]
    for i in reversed(range(len(program.lines))):
        for stands in dict.fromkeys(program.lines[i].reads):
            found.append(_without(program, i, stands))
    for i, line in enumerate(program.lines):
        if any(line.numbers):
            lines = list(program.lines)
            lines[i] = replace(line, numbers=(0,) * len(line.numbers))
            found.append(replace(program, lines=tuple(lines)))
    return found


def _without(program: Program, i: int, stands: int) -> Program:
    """A program without line i; value `stands` is read in its place."""
    gone = program.given + i

    def moved(place: int) -> int:
        place = stands if place == gone else place
        return place - 1 if place > gone else place

    lines = [replace(line, reads=tuple(map(moved, line.reads))) for line in program.lines]
    del lines[i]
    return replace(program, lines=tuple(lines), results=tuple(sorted(set(map(moved, program.results)))))
