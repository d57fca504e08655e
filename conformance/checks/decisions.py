"""Checks of models that predict actions from trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true

AT = 2
"""The step at which an input is changed."""


@check("actions-are-predicted-before-they-are-seen", roles=("module",))
def before_they_are_seen(impl: Any, draw: Draw) -> Evidence:
    """The action of a step follows the state of that step, and neither the action itself nor anything behind it."""
    seen = impl.build("module", {}).decides()
    base = seen.answer()
    close = 1e-6 * max(float(np.abs(base).max()), 1e-9)
    by_action, by_state = (np.abs(seen.answer(name, AT) - base).max((0, 2)) for name in (seen.actions, seen.states))
    place = seen.subject.line_of(r"(?i)=.*(predict|head|out)\w*action\w*\(|(predict|head|out)\w*_?act\w*\(")
    place = place or seen.subject.place()
    return all_of(
        true("nothing reaches the steps before", max(by_action[:AT].max(), by_state[:AT].max()) <= close).saying(
            diagnosis="States or actions reach the predictions of earlier steps: the model sees the future.",
            place=seen.subject.attention_place() or place,
            mend="hide later tokens from every attention",
        ),
        true("no action reaches its own prediction", by_action[AT] <= close, got=f"{by_action[AT]:.3g}").saying(
            diagnosis="The action of a step reaches its own prediction: it is given what it shall predict.",
            place=place,
            mend="read the vector of the state's token, under a causal mask: h[:, :, 1] of (return, state, action)",
        ),
        true("each state reaches the action of its step", by_state[AT] > close, got=f"{by_state[AT]:.3g}").saying(
            diagnosis="The state of a step does not reach the action that is predicted for it.",
            place=place,
            mend="read the vector of the state's token: h[:, :, 1] of (return, state, action)",
        ),
    )
