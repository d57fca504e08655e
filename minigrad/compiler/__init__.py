"""Compiling a step: trace it once, simplify and fuse the graph, plan its memory, then replay bound kernel calls.

    step = minigrad.compile(train_step)      # a function of tensors; it may run backward() and an optimizer
    loss = step(ids, targets)                # the first call of a shape traces and compiles, the others replay

What the function reads of the outside (parameters, a learning rate tensor, a random counter) is read live at every
call, what it changes in place is written back, and gradients that it leaves appear in `.grad`, added to those that were
there unless it forgets them first. What is no tensor is a constant of the plan: arguments are told apart by value or
identity, but what Python reads of the outside (the mode that `module.eval()` sets, a global) stays as it was when the
plan was made. A call whose arguments share memory that the function changes runs eagerly, and so does one of a function
that changes a reshaped tensor in place, or what it was reshaped from, where strides decide whether that is a copy, and
one that `find_nan` or `watching` look at, which want to see every op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, is_not
from typing import Any

import numpy as np

from minigrad import forks, later
from minigrad.compiler.pipeline import optimise
from minigrad.compiler.plan import Plan
from minigrad.dispatch import EAGER
from minigrad.gradmode import no_grad
from minigrad.graph import Graph
from minigrad.node import Node
from minigrad.signals import uninterrupted
from minigrad.state import state
from minigrad.tensor import Storage, Tensor
from minigrad.tracing import trace
from minigrad.tracing.nests import flatten


class Compiled:
    """A function that replays plans: one for each combination of shapes, dtypes and other arguments, and of leaves that
    have a gradient already where the function looks at it. Kept are those `keep` that were used last, since each holds
    memory. A plan is made anew when a tensor that it captured was given other memory (`parameter.data = ...`)."""

    def __init__(self, function: Callable[..., Any], keep: int = 8) -> None:
        self.function, self.keep = function, keep
        self.plans: dict[Any, tuple[Plan | None, list[tuple[str, Graph]]]] = {}  # None where it always runs eagerly
        self._bound: dict[Any, tuple[list[Tensor], list[np.ndarray]]] = {}  # captured tensors, and their memory
        self._written: dict[Any, frozenset[int]] = {}  # ids of the storages of captured tensors that a plan changes
        self._leaves: dict[Any, dict[Node, None]] = {}  # of a call: those whose gradient of before it looks at
        self._table = forks.lock()  # on all four; a plan has its own
        self.__name__ = getattr(function, "__name__", "compiled")
        self.__doc__ = function.__doc__

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if state.interpreter is not EAGER or state.backward_watch is not None:
            return self.function(*arguments, **keywords)
        tensors: Sequence[Tensor] = arguments
        others = None
        if keywords or not all(isinstance(argument, Tensor) for argument in arguments):
            tensors, rebuild = flatten((arguments, keywords))
            others = _constant(rebuild([_TENSOR] * len(tensors)))
        metas = tuple(
            [
                (t.array.shape, t.array.dtype, t.needs_grad, t.storage.device, t.array.flags.c_contiguous)
                for t in tensors
            ]
        )
        call = (metas, others, state.grad_enabled)
        with self._table:
            key = self._key(call)
            found = self.plans.pop(key, None)
            if found is None or self._moved(key):
                traced = _changed(trace(self.function)(*arguments, **keywords))
                self._leaves.setdefault(call, {}).update(dict.fromkeys(traced.before))
                key = self._key(call)
                if traced.by_layout:
                    found = None, [("trace", traced)]
                else:
                    found = _plan(traced, [*tensors, *traced.captured], len(tensors))
                self._bound[key] = traced.captured, [tensor.array for tensor in traced.captured]
                self._written[key] = frozenset(id(tensor.storage) for tensor, _ in traced.mutations)
            self.plans[key] = found  # the last in order: the first is the one that was not used for longest
            if len(self.plans) > self.keep:
                oldest = next(iter(self.plans))
                del self.plans[oldest], self._bound[oldest], self._written[oldest]
                if not any(other[0] == oldest[0] for other in self.plans):
                    del self._leaves[oldest[0]]
            written = self._written[key]
        plan, stages = found
        traced = stages[0][1]
        given = [id(tensor.storage) for tensor in tensors]
        if plan is None or not written.isdisjoint(given) or (traced.changed and _shared(traced, given)):
            return self.function(*arguments, **keywords)
        for generator, device in traced.generators.items():
            generator.move(device)
        if plan.whole and not traced.changed:
            return _replay(plan, traced, tensors)
        return uninterrupted(_replay, plan, traced, tensors)

    _repr_html_ = later.method(
        "minigrad.viz.tablefile:compiled_html", "For notebooks: the compiler's passes and the memory of the last plan."
    )

    def _key(self, call: Any) -> Any:
        """What tells a plan for this call from others."""
        return call, tuple([_gradient(leaf) is not None for leaf in self._leaves.get(call, ())])

    def _moved(self, key: Any) -> bool:
        """Was a captured tensor given other memory since the plan was made?"""
        tensors, arrays = self._bound[key]
        return any(map(is_not, map(_ARRAY, tensors), arrays))


def _shared(traced: Graph, given: list[int]) -> bool:
    """Does the function change an argument whose memory it was given twice, or has captured, too? A plan has its
    arguments in memory of its own, where the others would not see such a change. given: ids of their storages."""
    captured = {id(tensor.storage) for tensor in traced.captured}
    changed = [given[position] for position, _ in traced.changed]
    return any(storage in captured or given.count(storage) > 1 for storage in changed)


def _replay(plan: Any, traced: Graph, tensors: Sequence[Tensor]) -> Any:
    """Run the plan of a traced function on its arguments: its result, with what else it does to the outside."""
    for tensor, _ in plan.graph.mutations:  # first: nothing may come between a new value and its version
        tensor.storage.version += 1
    with plan.running:
        if traced.before:
            with no_grad():
                for leaf, copy in traced.before.items():
                    if copy is not None:
                        copy.copy_(_gradient(leaf))
        outputs = plan.run([tensor.array for tensor in tensors])
        for leaf, array in plan.gradients:
            held = _gradient(leaf)
            if held is not None and held.array is array and not held.needs_grad:  # that of the last replay
                held.storage.version += 1
                continue
            gradient = Tensor(array, Storage(plan.device))
            if leaf in traced.inputs:
                _accumulate(tensors[traced.inputs.index(leaf)], gradient)
            else:
                leaf.grads = {0: gradient}
    for leaf in traced.cleared:
        leaf.grads = None
    made = [Tensor(output, Storage(plan.device)) for output in outputs]
    if traced.changed:
        with no_grad():
            for position, _ in reversed(traced.changed):
                tensors[position].copy_(made.pop())
    return plan.graph.structure(made)


def _gradient(leaf: Node) -> Tensor | None:
    return None if leaf.grads is None else leaf.grads.get(0)


def _accumulate(argument: Tensor, gradient: Tensor) -> None:
    """Add a gradient, which lies in the arena, to that of a tensor that the function was given."""
    argument.grad = gradient.clone() if argument.grad is None else argument.grad + gradient


_ARRAY = attrgetter("array")
_TENSOR = object()  # where a tensor stands among the arguments


class _Same:
    """Equal to itself for the same object only, which it keeps alive."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _constant(value: Any) -> Any:
    """What tells an argument that is no tensor from another. Raises TypeError for an array, whose values may change."""
    if isinstance(value, tuple | list):
        return type(value), tuple([_constant(item) for item in value])
    if isinstance(value, dict):
        return dict, tuple([(name, _constant(item)) for name, item in value.items()])
    if isinstance(value, np.ndarray):
        raise TypeError(
            f"compile: an array of shape {list(value.shape)} is an argument: pass a tensor, mg.from_numpy(array)"
        )
    if isinstance(value, bool | int | float | np.generic):
        return type(value), repr(value)  # 1 == 1.0 == True, 0.0 == -0.0, and NaN is not equal to itself
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return type(value), value


def _changed(traced: Graph) -> Graph:
    """The graph with the new values of changed arguments behind its other outputs."""
    traced.outputs = [*traced.outputs, *[edge for _, edge in traced.changed]]
    return traced


def _plan(traced: Graph, tensors: list[Tensor], inputs: int) -> tuple[Any, list[tuple[str, Graph]]]:
    """The plan for where the tensors are, and the stages on the way; the first `inputs` are the graph's inputs."""
    on_device = [tensor.storage.device != "cpu" for tensor in tensors]
    stages = optimise(traced, "cuda" if any(on_device) else "cpu")
    graph = stages[-1][1]
    if not any(on_device):
        return Plan(graph), stages
    return later.load("minigrad.compiler.device_plan:DevicePlan")(graph, on_device[:inputs]), stages


def compile(function: Callable[..., Any], keep: int = 8) -> Compiled:
    """`function` compiled: same results, faster from the second call of each shape on (see the module).

    keep: for how many combinations of shapes, the last ones used, memory is held; others are compiled again.
    Raises ValueError below 1, TypeError for what is no function; a call, for a numpy array among the arguments.
    """
    if not callable(function):
        raise TypeError(f"compile: a function is expected, got {type(function).__name__}")
    if keep < 1:
        raise ValueError(f"compile: keep must be at least 1 plan, got {keep}")
    return Compiled(function, keep)
