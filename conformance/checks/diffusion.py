"""Checks of diffusion models: the noise that is added and taken away, guidance by a class, and dropped labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, note, true
from conformance.protocol import NotProvided

CLOSE = 1e-4
APART = 3.0
"""How many times more or less noise a step may hold: the larger of the two usual variances of DDPM gives up to 1.9."""


@check("labels-are-dropped-only-in-training", roles=("model",))
def dropped_in_training(impl: Any, draw: Draw) -> Evidence:
    """What replaces labels of samples at random in training leaves all of them in evaluation."""
    found = impl.build("model", {}).labels_replaced()
    return true("labels are kept in evaluation", not found, got="some are replaced at random").saying(
        diagnosis="Labels are dropped at random in evaluation mode, too: some samples get the answer without a class.",
        place=found[0] if found else "",
        mend="if self.training:",
    )


@check("dropped-labels-are-no-class", roles=("model",))
def are_no_class(impl: Any, draw: Draw) -> Evidence:
    """What stands for dropped labels has a row in the table of labels that is no class, and guidance asks for it."""
    found = impl.build("model", {}).dropped_labels()
    label, rows, classes = found.label, found.rows, found.classes
    what = "what stands for dropped labels"
    if not 0 <= label < rows:
        return true(what, False, expected=f"one of {rows} rows", got=label).saying(
            diagnosis=f"Labels that are dropped in training become {label}, and their table has {rows} rows.",
            place=found.place,
            mend="nn.Embedding(num_classes + 1, width)",
        )
    if found.guided is not None and found.guided != label:
        return true(what, False, expected=found.guided, got=label).saying(
            diagnosis=f"Labels that are dropped in training become {label}, and guidance asks for {found.guided} where "
            "it wants no class: the model has not learned what that means.",
            place=found.place,
            mend=f"{found.guided} in both places",
        )
    if classes is not None and rows == classes + 1 and 0 < label < classes:
        return true(what, False, expected=classes, got=label).saying(
            diagnosis=f"Labels that are dropped in training become {label}, which is one of {classes} classes: the row "
            "that the table has beyond them is not used.",
            place=found.place,
            mend="num_classes, the last row",
        )
    if rows == classes:
        return note("dropped labels stand in one of as many rows as there are classes", label)
    return true(what, True)


@check("added-noise-keeps-the-variance", roles=("model",))
def keeps_the_variance(impl: Any, draw: Draw) -> Evidence:
    """Data times sqrt(a) and noise times sqrt(1 - a) are added: neither square root is left out."""
    parts = []
    for one in impl.build("model", {}).noised():
        data, noise = (np.array(side) for side in zip(*one.shares, strict=True))
        inside = (data > 0.02) & (data < 0.98) & (noise > 0.02) & (noise < 0.98)
        data, noise = data[inside], noise[inside]
        if len(data) < 2:
            continue
        of_noise = np.allclose(noise, 1 - data**2, atol=CLOSE)
        of_data = np.allclose(data, 1 - noise**2, atol=CLOSE)
        if not of_noise and not of_data and not np.allclose(data**2 + noise**2, 1, atol=CLOSE):
            continue  # another process: a straight line to the noise, or noise without end
        side = "the noise" if of_noise else "the data"
        parts.append(
            true("the squares of both factors add up to 1", not (of_noise or of_data), got=data**2 + noise**2).saying(
                diagnosis=f"{one.name} multiplies {side} by a share of the variance, and not by its square root: the "
                "noisy data have another variance than the data.",
                place=one.place,
                mend="a.sqrt() * x + (1 - a).sqrt() * noise",
            )
        )
    if not parts:
        raise NotProvided("what adds noise to its data keeps no variance")
    return all_of(*parts)


@check("guidance-leads-to-the-class", roles=("model",))
def leads_to_the_class(impl: Any, draw: Draw) -> Evidence:
    """The larger the scale of classifier-free guidance, the more of the answer with the class is in what it gives."""
    parts = []
    for one in impl.build("model", {}).guided():
        steps = np.diff(one.shares)
        if not (np.all(steps > CLOSE) or np.all(steps < -CLOSE)):
            continue
        parts.append(
            true(f"the share of the class in {one.name}", bool(steps[0] > 0), expected="grows", got=one.shares).saying(
                diagnosis=f"In {one.name} a larger scale leads away from the class: both answers are exchanged.",
                place=one.place,
                mend="without + scale * (with_class - without)",
            )
        )
    if not parts:
        raise NotProvided("the scale of its guidance is not one of a straight line")
    return all_of(*parts)


@check("noise-of-training-is-that-of-sampling", roles=("model",))
def one_kind_of_noise(impl: Any, draw: Draw) -> Evidence:
    """Where normal noise is drawn elsewhere, the noise that a loss adds to the data is normal, too."""
    subject = impl.build("model", {})
    found = subject.drawn_noise()
    if not subject.line_of(r"^(?!.*Parameter).*(randn|normal_?\()"):
        raise NotProvided("it draws no normal noise")
    return all_of(
        *(
            true(f"the noise of {one.name}", one.is_normal, expected="normal", got="uniform").saying(
                diagnosis=f"{one.name} adds uniform noise, and normal noise is drawn elsewhere: the model meets other "
                "noise in sampling than it was trained for.",
                place=one.place,
                mend="torch.randn_like(x)",
            )
            for one in found
        )
    )


@check("samplers-hand-over-the-noise-of-each-step", roles=("model",))
def noise_of_each_step(impl: Any, draw: Draw) -> Evidence:
    """With an answer that is right for one picture, what a sampler hands over at a step holds as much noise as the
    method that adds noise adds at that step."""
    parts = []
    for one in impl.build("model", {}).samplings():
        first, *later = one.shares
        if not 1 / APART < first < APART:
            continue  # it begins elsewhere than the method that adds noise ends
        worst = int(np.abs(np.log(np.maximum(later, 1e-9))).argmax())
        share, step = later[worst], one.steps[worst + 1]
        parts.append(
            true(f"the noise at the steps of {one.name}", 1 / APART < share < APART, expected=1.0, got=share).saying(
                diagnosis=f"At step {step} {one.name} hands over {share:.3g} times the noise of that step: the step "
                "before leads to another level of noise.",
                place=one.place,
                mend="take the level of the step that comes next: alpha_bar[steps[i + 1]]",
            )
        )
    if not parts:
        raise NotProvided("its sampler begins with another amount of noise than it is trained with")
    return all_of(*parts)
