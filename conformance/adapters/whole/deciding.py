"""Models that predict actions from trajectories: returns to go, states and actions, step by step."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import default_dtype, quiet_evaluation
from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.adapters.whole.used_functions import text_of
from conformance.protocol import Array, NotProvided

_ACTIONS, _STATES = re.compile(r"(?i)actions?"), re.compile(r"(?i)(states?|obs|observations?)")
_RETURNS = r"(?i)returns?_?to_?go|^(target_?)?returns?$|^rtgs?$"
_TIMES = re.compile(r"(?i)time_?steps?|times?|steps?")
_MASKS = re.compile(r"(?i)(attention_|attn_|padding_|pad_|step_|traj(ectory)?_)?mask")
_CHOOSES = re.compile(r"(?i)(get|choose|select|predict|sample)_action|act")
_DECIDES = r"(?i)decision_? ?transformer|returns?_?-?to_?-?go|\brtgs?\b"
_BOTH_SIDES = r"(?i)bidirectional|masked (token|state|action|predict|model)|diffusion|noisy|inverse[_ ]?dynamics"


@dataclass(frozen=True)
class Padded:
    """What a method that chooses an action hands to forward for a short history. mask: (steps,) of the first row.
    real: whether the step's state comes from the history.
    place: the line that makes the mask."""

    name: str
    place: str
    mask: Array
    real: Array


@dataclass(frozen=True)
class Decider:
    """One such model. given: forward's arguments for two trajectories; actions, states: the names of these in it."""

    subject: PlaceProbes
    given: Mapping[str, Any]
    actions: str
    states: str

    @property
    def steps(self) -> int:
        return int(self.given[self.states].shape[1])

    @property
    def mask(self) -> str:
        """The parameter that tells real steps from padding; "" where there is none."""
        names = inspect.signature(self.subject.module.forward).parameters
        return next((name for name in names if _MASKS.fullmatch(name)), "")

    def reached(self, hidden: int) -> list[tuple[str, int]]:
        """The inputs and steps before the last one that reach the last prediction, where a mask hides so many first
        steps of this trajectory, and none of the other one. Raises NotProvided where no mask of steps is taken, such
        as one for each pair of tokens, or it changes nothing."""
        if not self.mask:
            raise NotProvided("it takes no mask of steps")
        masked = replace(self, given={**self.given, self.mask: self._mask_of(hidden)})
        try:
            both = masked.answer()[:, -1]
        except Exception as error:
            raise NotProvided(f"what it takes as {self.mask} is no mask of steps") from error
        base = both[0]
        if not np.isfinite(base).all():
            raise NotProvided("it gives no numbers where steps at the start are padding")
        if np.array_equal(both, self.answer()[:, -1]):
            raise NotProvided("its mask changes no prediction")
        close = 1e-9 * float(np.abs(base).max())
        return [
            (name, step)
            for name in self.per_step
            for step in range(self.steps - 1)
            if np.abs(masked.answer(name, step)[0, -1] - base).max() > close
        ]

    def _mask_of(self, hidden: int) -> Any:
        """The mask that hides so many first steps of the first row, in the form in which the model was found to take
        it."""
        rows, steps = self.given[self.states].shape[:2]
        real = torch.ones(rows, steps, dtype=torch.bool)
        real[0, :hidden] = False
        known = next((one for one in self.subject.calling.masks if one.parameter == self.mask), None)
        if known is None:
            return real.long()
        data = self.subject.tensors(self.subject.example(rows, steps, seed=71))
        return known.make({**data, "padding" if known.keys in ("ids", "x") else f"{known.keys}_padding": real})

    @property
    def times(self) -> str:
        """The parameter that gets the number of each step in its episode; "" where there is none."""
        rows = tuple(self.given[self.states].shape[:2])
        shapes = {n: getattr(value, "shape", ())[:2] for n, value in self.given.items() if _TIMES.fullmatch(n)}
        return next((name for name, shape in shapes.items() if tuple(shape) == rows), "")

    @property
    def per_step(self) -> list[str]:
        """The inputs that have a state, an action or a return for each step."""
        return [n for n in self.given if n in (self.actions, self.states) or re.search(_RETURNS, n)]

    def answer(self, changed: str = "", step: int = 0) -> Array:
        """The predicted actions (B, T, ...), where an input is another one at a step."""
        given = dict(self.given)
        if changed:
            other = given[changed].clone()
            other[:, step] = other[:, step] + 1.0 if other.is_floating_point() else (other[:, step] + 1) % 2
            given[changed] = other
        subject = self.subject
        with quiet_evaluation(subject.module), default_dtype(subject.torch_dtype):
            return to_array(_predicted(subject.module(**given), self).double())


class DecideProbes(PlaceProbes):
    """The experiments, of a running model."""

    def histories_padded(self, one: Decider) -> list[Padded]:
        """What its methods that choose actions make of a history of three steps, where they fill it up and mask it."""
        found = []
        for name, function in inspect.getmembers(type(self.module), inspect.isfunction):
            if _CHOOSES.fullmatch(name):
                for whole in (False, True):
                    with suppress(Exception):  # it takes histories in another form
                        if seen := _padded(one, name, function, whole):
                            found.append(seen)
                            break
        return found

    def decides(self) -> Decider:
        """How it predicts actions. Raises NotProvided for all other models, and those that see both sides."""
        names = list(inspect.signature(self.module.forward).parameters)
        actions, states = (next((n for n in names if kind.fullmatch(n)), "") for kind in (_ACTIONS, _STATES))
        if not actions or not states:
            raise NotProvided("it reads no states and actions")
        by_name = re.search(_DECIDES, type(self.module).__name__) or any(re.search(_RETURNS, name) for name in names)
        if not by_name and not self.line_of(_DECIDES):
            raise NotProvided("nothing says that it decides by returns to go")
        if self.line_of(_BOTH_SIDES) or not self.calling.batch_first:
            raise NotProvided("it may see the actions that it predicts")
        with default_dtype(self.torch_dtype):
            given = self.calling.arguments(self.tensors(self.example(2, 5, seed=71)))
        if not all(isinstance(given.get(name), Tensor) and given[name].ndim > 1 for name in (actions, states)):
            raise NotProvided("its states or actions are left out")
        given = {n: v.to(self.torch_dtype) if _floats(v) else v for n, v in given.items()}
        rows, steps = given[states].shape[:2]
        for name, value in given.items():  # what no answer depends on may have got any shape
            if _TIMES.fullmatch(name) and isinstance(value, Tensor) and value.ndim == 2 and value.shape[1] != steps:
                given[name] = torch.arange(steps).expand(rows, steps).to(value.dtype)
        found = Decider(self, given, actions, states)
        found.answer()
        return found


def _padded(one: Decider, name: str, function: FunctionType, whole: bool) -> Padded | None:
    """whole: the history has an axis for the batch."""
    taken = list(inspect.signature(function).parameters)[1:]
    runs: list[Mapping[str, Any]] = []
    for add in (0.0, 1.0):
        twin = one.subject.twin()
        forward = twin.module.forward

        def keep(*args: Any, forward: Any = forward, **kwargs: Any) -> Any:
            runs.append(inspect.signature(forward).bind(*args, **kwargs).arguments)
            return forward(*args, **kwargs)

        twin.module.forward = keep
        given = {n: v[:1, :3] if whole else v[0, :3] for n, v in one.given.items() if n in taken}
        given[one.states] = given[one.states] + add
        with quiet_evaluation(twin.module), default_dtype(one.subject.torch_dtype):
            function(twin.module, **given)
    first, second = (run for run in runs if isinstance(run.get(one.mask), Tensor))
    states = [run[one.states][0].reshape(-1, one.given[one.states].shape[-1]) for run in (first, second)]
    mask = first[one.mask][0].reshape(-1)
    real = (states[0] != states[1]).any(-1)
    plain = inspect.unwrap(function)
    lines = text_of(function).splitlines()
    at = next((n for n, line in enumerate(lines) if re.search(r"mask\w*\s*=\s*\S*(cat|pad|zeros|ones)\w*\(", line)), 0)
    place = f"{plain.__code__.co_filename}:{plain.__code__.co_firstlineno + at}"
    return Padded(name, place, to_array(mask.double()) > 0, to_array(real)) if len(mask) == len(real) > 3 else None


def _place_of_actions(cls: type, count: int) -> list[int]:
    """Which place of the tuple that forward returns is named after actions; none where no one is, or returns differ."""
    with suppress(OSError, TypeError, SyntaxError):
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls.forward)))  # type: ignore[attr-defined]
        given = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
        if len(given) == 1 and isinstance(given[0], ast.Tuple) and len(given[0].elts) == count:
            names = [node.id if isinstance(node, ast.Name) else "" for node in given[0].elts]
            places = [at for at, name in enumerate(names) if re.search(r"(?i)(^|_)(actions?|policy)(_|$)", name)]
            return places if len(places) == 1 else []
    return []


def _floats(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _predicted(result: Any, one: Decider) -> Tensor:
    """The predictions of actions in what forward gives: by name, or as wide as actions and not as states."""
    if isinstance(result, Mapping):
        named = [v for n, v in result.items() if isinstance(v, Tensor) and re.search(r"(?i)action|policy", str(n))]
        result = named or result
    actions, states = one.given[one.actions], one.given[one.states]
    found = [t for t in tensors_in(result) if t.is_floating_point() and t.shape[:2] == states.shape[:2] and t.ndim == 3]
    if (
        len(found) > 1
        and isinstance(result, tuple)
        and (at := _place_of_actions(type(one.subject.module), len(result)))
    ):
        found = [t for t in found if t is result[at[0]]]
    elif len(found) > 1:
        found = [t for t in found if actions.is_floating_point() and t.shape == actions.shape != states.shape]
    if len(found) != 1:
        raise NotProvided("which of its answers are actions is not known")
    return found[0]
