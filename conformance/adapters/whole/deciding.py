"""Models that predict actions from trajectories: returns to go, states and actions, step by step."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import default_dtype, quiet_evaluation
from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.protocol import Array, NotProvided

_ACTIONS, _STATES = re.compile(r"(?i)actions?"), re.compile(r"(?i)(states?|obs|observations?)")
_DECIDES = r"(?i)decision_? ?transformer|returns?_?-?to_?-?go|\brtgs?\b"
_BOTH_SIDES = r"(?i)bidirectional|masked (token|state|action|predict|model)|diffusion|noisy|inverse[_ ]?dynamics"


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
    """The experiment, of a running model."""

    def decides(self) -> Decider:
        """How it predicts actions. Raises NotProvided for all other models, and those that see both sides."""
        names = list(inspect.signature(self.module.forward).parameters)
        actions, states = (next((n for n in names if kind.fullmatch(n)), "") for kind in (_ACTIONS, _STATES))
        if not actions or not states:
            raise NotProvided("it reads no states and actions")
        if not (self.line_of(_DECIDES) or re.search(_DECIDES, type(self.module).__name__)):
            raise NotProvided("nothing says that it decides by returns to go")
        if self.line_of(_BOTH_SIDES) or not self.calling.batch_first:
            raise NotProvided("it may see the actions that it predicts")
        with default_dtype(self.torch_dtype):
            given = self.calling.arguments(self.tensors(self.example(2, 5, seed=71)))
        if not all(isinstance(given.get(name), Tensor) and given[name].ndim > 1 for name in (actions, states)):
            raise NotProvided("its states or actions are left out")
        given = {n: v.to(self.torch_dtype) if _floats(v) else v for n, v in given.items()}
        found = Decider(self, given, actions, states)
        found.answer()
        return found


def _floats(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _predicted(result: Any, one: Decider) -> Tensor:
    """The predictions of actions in what forward gives: by name, or as wide as actions and not as states."""
    if isinstance(result, Mapping):
        named = [v for n, v in result.items() if isinstance(v, Tensor) and re.search(r"(?i)action|policy", str(n))]
        result = named or result
    actions, states = one.given[one.actions], one.given[one.states]
    found = [t for t in tensors_in(result) if t.is_floating_point() and t.shape[:2] == states.shape[:2] and t.ndim == 3]
    if len(found) > 1:
        found = [t for t in found if actions.is_floating_point() and t.shape == actions.shape != states.shape]
    if len(found) != 1:
        raise NotProvided("which of its answers are actions is not known")
    return found[0]
