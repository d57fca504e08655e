"""A backward pass step by step: what arrives at a node, what its rule makes of it, where that adds up.

with watching(print):                 # or a list's append
    loss.backward()

minigrad step train.py                # every backward pass of a program, waiting for Enter at each step
"""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from minigrad.autograd import fit
from minigrad.node import PACKAGE, Edge, Node
from minigrad.ops.registry import OPS
from minigrad.state import state
from minigrad.study.derivations import derivation_of
from minigrad.study.typeset import can_show, typeset
from minigrad.tensor import Tensor
from minigrad.viz.format import meta, short


@dataclass
class Contribution:
    """What a step adds to one of its inputs. `total`: the sum so far; `count`: of how many contributions."""

    target: str
    edge: Edge
    value: np.ndarray
    total: np.ndarray
    count: int
    raw: tuple[int, ...]  # the shape before broadcast axes were summed


@dataclass
class Step:
    """One visit of a node. `arrived`: the gradient of each output (None where none came); `waiting`: the frontier after
    this step, names of nodes whose gradients have begun to arrive."""

    number: int
    node: Node
    name: str
    arrived: list[np.ndarray | None]
    contributions: list[Contribution] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        place = f"  ({self.node.place})" if self.node.where or self.node.scope else ""
        outputs = ", ".join(meta(*output) for output in self.node.outputs)
        lines = [f"step {self.number}: {self.name}  {outputs}{place}"]
        for i, gradient in enumerate(self.arrived):
            if gradient is not None:
                lines += _value(f"gradient of output {i}" if len(self.arrived) > 1 else "arrives", gradient)
        if not self.node.edges:
            return "\n".join([*lines, "  kept in .grad" if self.node.op == "leaf" else "  the end of this path"])
        for rule in rules(self.node):
            lines.append(f"  {rule}")
        for c in self.contributions:
            summed = f", summed from {list(c.raw)} over what was broadcast" if c.raw != c.value.shape else ""
            lines += _value(f"to {c.target}{summed}", c.value)
            if c.count > 1:
                lines += _value(f"{c.target} has {c.count} contributions; their sum", c.total)
        lines.append("  waiting: " + (", ".join(self.waiting) or "nothing"))
        return "\n".join(lines)


def rules(node: Node) -> list[str]:
    """The last lines of the derivation of a node's op, for the inputs that want a gradient."""
    op, derivation = OPS[node.op], derivation_of(OPS[node.op])
    if not derivation.steps:
        return ["by its decomposition"]
    names = [
        op.inputs[i] if i < len(op.inputs) else str(op.rest) for i, edge in enumerate(node.edges) if edge is not None
    ]
    lines = [f"dL/d{name} = {derivation.results[name]}" for name in dict.fromkeys(names) if name in derivation.results]
    where = [f"{name} = {value}" for name, value in derivation.let.items()]
    attrs = [f"{name}={short(value)}" for name, value in node.attrs.items()]
    if where:
        lines.append("  where " + "; ".join(where))
    if attrs:
        lines.append("  with " + ", ".join(attrs))
    return list(map(typeset, lines)) if can_show() else lines


class Watch:
    """Turns what the backward driver shows into Steps, and hands each to `see`.

    begin and visit are called by `minigrad.autograd`."""

    def __init__(self, see: Callable[[Step], object]) -> None:
        self.see = see

    def begin(self, seeds: Sequence[tuple[Edge, Tensor]]) -> None:
        """A pass starts: names are those that variables of the calling program have now."""
        self.count = 0
        self.numbers: dict[Node, int] = {}
        self.names = variables()
        self.pending: dict[Edge, tuple[np.ndarray, int]] = {}
        for edge, seed in seeds:
            self._receive(edge, seed.array)

    def visit(self, node: Node, arrived: Sequence[Tensor | None], results: Sequence[Tensor | None]) -> None:
        self.count += 1
        for index in range(len(node.outputs)):
            self.pending.pop((node, index), None)
        step = Step(self.count, node, self.name(node), [None if g is None else g.array for g in arrived])
        if node.edges:
            for target, gradient in zip(node.edges, results, strict=True):
                if target is not None and gradient is not None:
                    step.contributions.append(self._contribution(target, gradient))
        step.waiting = list(dict.fromkeys(self.name(edge[0]) for edge in self.pending))
        self.see(step)

    def _contribution(self, edge: Edge, gradient: Tensor) -> Contribution:
        node, index = edge
        fitted = fit(gradient, *node.outputs[index]).array
        total, count = self._receive(edge, fitted)
        name = self.name(node) + (f".{index}" if index else "")
        return Contribution(name, edge, fitted, total, count, tuple(gradient.array.shape))

    def name(self, node: Node) -> str:
        """The op, with the variable that holds its result, or with a number."""
        variable = node.name or self.names.get(node)
        number = self.numbers.setdefault(node, len(self.numbers))
        if node.op == "leaf":
            return variable or f"leaf#{number}"
        return f"{node.op} ({variable})" if variable else f"{node.op}#{number}"

    def _receive(self, edge: Edge, gradient: np.ndarray) -> tuple[np.ndarray, int]:
        before = self.pending.get(edge)
        self.pending[edge] = (gradient, 1) if before is None else (before[0] + gradient, before[1] + 1)
        return self.pending[edge]


def variables() -> dict[Node, str]:
    """Names of the tensors that variables of the calling program hold, by their nodes; the innermost name wins."""
    found: dict[Node, str] = {}
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((PACKAGE, contextlib.__file__)):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is not None:
        for name, value in {**frame.f_globals, **frame.f_locals}.items():
            if isinstance(value, Tensor) and value.node is not None and not name.startswith("_"):
                found.setdefault(value.node, name)
            for path, parameter in getattr(value, "named_parameters", tuple)() if not isinstance(value, type) else ():
                if isinstance(parameter, Tensor) and parameter.node is not None:
                    found.setdefault(parameter.node, f"{name}.{path}")
    return found


@contextmanager
def watching(see: Callable[[Step], object]) -> Iterator[None]:
    """Hand every step of the backward passes inside to `see`."""
    before, state.backward_watch = state.backward_watch, Watch(see)
    try:
        yield
    finally:
        state.backward_watch = before


class Stop(Exception):
    """The reader has seen enough."""


def step_file(path: str, every: bool = False, write: Callable[[str], object] = print) -> int:
    """Run the program at `path` and show its backward passes; returns how many steps there were.

    Waits after each step (Enter: next; c: go on without waiting; q: quit) unless `every`, or where nobody can answer.
    Raises FileNotFoundError for a file that is not there.
    """
    waiting = not every and sys.stdin.isatty()
    count = 0

    def see(step: Step) -> None:
        nonlocal waiting, count
        count += 1
        write(f"{step}\n")
        if waiting:
            answer = input("Enter: next, c: to the end, q: quit > ").strip().lower()
            waiting = answer != "c"
            if answer == "q":
                raise Stop

    with watching(see), contextlib.suppress(Stop):
        runpy.run_path(path, run_name="__main__")
    if not count:
        write(f"{path} ran no backward pass: call backward() on a loss in it")
    return count


def _value(label: str, array: np.ndarray) -> list[str]:
    """A small array in full, a larger one in a few numbers."""
    head = f"  {label}: "
    if array.size > 24:
        words = f"mean {np.mean(array):.4g}, norm {np.linalg.norm(array):.4g}, largest {np.max(np.abs(array)):.4g}"
        return [f"{head}{meta(array.shape, array.dtype)} {words}"]
    text = np.array2string(array, precision=4, suppress_small=True, separator=" ", max_line_width=90)
    first, *rest = text.splitlines()
    return [head + first, *[" " * len(head) + line for line in rest]]
