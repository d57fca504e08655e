"""Checks of models that predict actions from trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true
from conformance.protocol import NotProvided

AT = 2
"""The step at which an input is changed."""


@check("actions-are-predicted-before-they-are-seen", roles=("module",))
def before_they_are_seen(impl: Any, draw: Draw) -> Evidence:
    """The action of a step follows its state and its number, and neither the action itself nor anything behind it."""
    seen = impl.build("module", {}).decides()
    base = seen.answer()
    close = 1e-6 * max(float(np.abs(base).max()), 1e-9)
    by_action, by_state = (np.abs(seen.answer(name, AT) - base).max((0, 2)) for name in (seen.actions, seen.states))
    if seen.subject.line_of(r"int\(\w+ is None\)") and not np.abs(seen.answer(seen.actions, 0) - base).max() > close:
        raise NotProvided("without labels it reads one action less than states, and leaves the first one out")
    place = seen.subject.line_of(r"(?i)=.*(predict|head|out)\w*action\w*\(|(predict|head|out)\w*_?act\w*\(")
    place = place or seen.subject.place()
    parts = []
    if seen.times:
        reached = np.abs(seen.answer(seen.times, AT) - base).max() > close
        parts += [
            true("the number of a step reaches a prediction", reached).saying(
                diagnosis=f"{seen.times} reach no prediction: a step is not told from the same step of another window.",
                place=seen.subject.line_of(r"(?i)time\w*\(") or place,
                mend=f"look the embedding up by {seen.times}",
            )
        ]
    return all_of(
        *parts,
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


@check("decisions-leave-out-the-steps-of-padding", roles=("module",))
def padding_is_left_out(impl: Any, draw: Draw) -> Evidence:
    """A mask of steps hides the steps of padding with their states, actions and returns, and no others."""
    subject = impl.build("module", {})
    seen = subject.decides()
    hidden = AT
    reached = seen.reached(hidden)
    padding, real = ({one for one in reached if (one[1] < hidden) is early} for early in (True, False))
    if padding and not real:
        raise NotProvided("its mask is one where a step is padding")
    shown = ", ".join(f"{name} of step {step}" for name, step in sorted(padding))
    parts = [
        true("no step of padding reaches a prediction", not padding, got=shown or "none does").saying(
            diagnosis=f"The mask hides {hidden} steps of padding, and {shown} reach the prediction behind them: the "
            "numbers of the mask do not stand where the tokens of the steps stand.",
            place=subject.line_of(r"mask\w* = .*(stack|cat|repeat|tile|expand)\w*\("),
            mend="mask.repeat_interleave(3, 1) where the tokens are (return, state, action) of each step",
        )
    ]
    for padded in [] if padding else subject.histories_padded(seen):
        swapped = bool((padded.real & ~padded.mask).any() and (~padded.real & padded.mask).any())
        parts.append(
            true(
                f"{padded.name} masks what it fills up", not swapped, got=str(padded.mask.astype(int).tolist())
            ).saying(
                diagnosis=f"{padded.name} fills a short history up, and its mask hides steps of the history and shows "
                "steps of padding.",
                place=padded.place,
                mend="let the zeros of the mask stand on the side on which the history is filled up",
            )
        )
    return all_of(*parts)
