"""Checks of a training run: clipping, optimizers and gradient scalers."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import passes_before, steps_of
from conformance.checks.watched_labels import RUN, broken, kept, run_of, unusual
from conformance.draw import Draw
from conformance.evidence import Evidence, note
from conformance.protocol import NotProvided

ADAM = re.compile(r"^(N|R|Fused|CPU)?AdamW?(8bit)?$")
"""Optimizers with Adam's two betas."""


def clips_of(run: Any) -> list[Any]:
    from conformance.watch.events import Clip

    found = run.of(Clip)
    if not found:
        raise NotProvided("no clipping by torch.nn.utils was seen")
    return list(found)


@check("run-clipping-has-gradients", roles=RUN)
def has_gradients(impl: Any, draw: Draw) -> Evidence:
    """Clipping gets parameters that have gradients: it comes after the backward pass."""
    for clip in clips_of(run_of(impl)):
        if not clip.parameters:
            return broken(
                clip,
                "parameters that are clipped",
                "those of the model",
                "none",
                at=lambda lines: lines.given(clip, 0, "parameters"),
                diagnosis="Clipping gets no parameter: its argument is an iterator that was used up before.",
                mend="call model.parameters() anew each time, or keep a list",
            )
        if not clip.gradients:
            return broken(
                clip,
                "parameters with a gradient when they are clipped",
                "all that are trained",
                0,
                diagnosis="Clipping comes before the backward pass: there is no gradient to clip.",
                mend="clip between loss.backward() and optimizer.step()",
            )
    return kept("clipping gets gradients")


@check("run-clipping-comes-before-the-step", roles=RUN)
def before_the_step(impl: Any, draw: Draw) -> Evidence:
    """What is clipped is used by the step that follows."""
    from conformance.watch.events import Backward, Clear, Step

    run = run_of(impl)
    for clip in clips_of(run):
        after = run.events[clip.order + 1 :]
        following = next((e for e in after if isinstance(e, (Step, Clear, Backward))), None)
        earlier = next((e for e in reversed(run.events[: clip.order]) if isinstance(e, (Step, Clear, Backward))), None)
        if isinstance(following, (Clear, Backward)) and isinstance(earlier, Step):
            return broken(
                clip,
                "what comes after clipping",
                "the step",
                "the next pass" if isinstance(following, Backward) else "clearing the gradients",
                diagnosis="Gradients are clipped after the step, which used them as they were.",
                mend="clip between loss.backward() and optimizer.step()",
            )
        mine = clip.parameters
        if isinstance(following, Backward) and isinstance(earlier, Clear) and mine:
            return broken(
                clip,
                "what comes after clipping",
                "the step",
                "the backward pass",
                diagnosis="Gradients are clipped before the backward pass, which makes them anew.",
                mend="clip between loss.backward() and optimizer.step()",
            )
    return kept("the step uses what was clipped")


@check("run-clipping-comes-after-unscaling", roles=RUN)
def after_unscaling(impl: Any, draw: Draw) -> Evidence:
    """Scaled gradients are unscaled before they are clipped."""
    from conformance.watch.events import Backward, Unscale

    run = run_of(impl)
    seen = False
    for clip in clips_of(run):
        last = next((e for e in reversed(run.events[: clip.order]) if isinstance(e, Backward)), None)
        if last is None or not last.scaled:
            continue
        seen = True
        if not any(run.between(last.order, clip.order, Unscale)):
            return broken(
                clip,
                "between the backward pass of a scaled loss and clipping",
                "scaler.unscale_(optimizer)",
                "nothing",
                diagnosis="Gradients are clipped while they have the scaler's factor: nearly all is clipped away.",
                mend="call scaler.unscale_(optimizer) before clipping",
            )
    if not seen:
        raise NotProvided("no clipping of scaled gradients was seen")
    return kept("gradients are unscaled before they are clipped")


SMALL = 0.2
"""Who clips less than this share of a model, and no recurrent layer, leaves nearly all of it out."""
_RECURS = re.compile(r"LSTM|GRU|RNN", re.IGNORECASE)


def _is_of_some_groups(optimizer: Any, taken: frozenset[int], left: frozenset[int]) -> bool:
    """Whether what is clipped is some groups of an optimizer, and what is left others, which learn at one rate."""
    groups = [frozenset(one) & (taken | left) for one in optimizer.groups]
    rates = {settings.get("lr") for settings in optimizer.settings}
    return len(rates) == 1 and all(group <= taken or group <= left for group in groups) and len(groups) > 1


@check("run-clipping-is-of-the-global-norm", roles=RUN)
def global_norm(impl: Any, draw: Draw) -> Evidence:
    """The norm that is clipped is that of all gradients together."""
    run = run_of(impl)
    clips = clips_of(run)
    for step in steps_of(run):
        mine = {*run.optimizers[step.optimizer].parameters}
        passes = passes_before(run, step)
        here = [c for c in clips if passes and passes[-1].order < c.order < step.order and c.by == "norm"]
        if len(here) >= 3 and len(mine) >= 3 and all(len(c.parameters) == 1 for c in here):
            return broken(
                here[0],
                "parameters whose norm is taken together",
                f"all {len(mine)}",
                "one by one",
                diagnosis="Each parameter is clipped by its own norm, which changes the direction of the step.",
                mend="clip once: torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
            )
        left = frozenset(mine - {n for c in here for n in c.parameters} - step.missing)
        if here and left:
            taken = frozenset(n for c in here for n in c.parameters if n in mine)
            sizes = [sum(run.parameters[n].size for n in numbers) for numbers in (taken, left)]
            if _is_of_some_groups(run.optimizers[step.optimizer], taken, left):
                return broken(
                    here[0],
                    "gradients whose norm is clipped",
                    f"those of all {len(taken | left)} parameters",
                    f"those of {len(taken)}: {run.named(left)} are in another group of the optimizer",
                    diagnosis="One group of the optimizer is clipped, and another one is not, though they differ in "
                    "their decay alone: the norm is not that of all gradients.",
                    mend="clip all of them together: torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
                )
            if (
                taken
                and sizes[0] < SMALL * sum(sizes)
                and not any(_RECURS.search(run.parameters[n].layer) for n in taken)
            ):
                return broken(
                    here[0],
                    "gradients whose norm is clipped",
                    f"those of all {len(taken | left)} parameters",
                    f"those of {len(taken)}, {sizes[0] / sum(sizes):.1%} of all numbers: {run.named(taken)}",
                    diagnosis=f"Only {run.named(taken)} are clipped; the gradients of nearly the whole model are not.",
                    mend="torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
                )
            return note("gradients that clipping leaves out", f"{len(left)} of {len(mine)}: {run.named(left)}")
    return kept("clipping takes the norm of all gradients")


@check("run-clipped-norm-holds", roles=RUN)
def norm_holds(impl: Any, draw: Draw) -> Evidence:
    """The gradients that the step uses have at most the norm that they were clipped to."""
    run = run_of(impl)
    seen = 0
    for step in steps_of(run, closely=True):
        mine = {*run.optimizers[step.optimizer].parameters} - step.missing
        start = step.previous
        clips = [c for c in clips_of(run) if start < c.order < step.order and c.by == "norm" and c.parameters >= mine]
        if not clips or not math.isfinite(step.norm):
            continue
        seen += 1
        if step.norm > clips[-1].limit * 1.01:
            return broken(
                clips[-1],
                "the norm of the gradients in the step",
                f"at most {clips[-1].limit:g}",
                f"{step.norm:.4g}",
                diagnosis="The gradients are larger in the step than they were clipped to: something was added after.",
                mend="clip once, after the last backward pass of a step",
            )
    if not seen:
        raise NotProvided("no step whose gradients were all clipped by norm was seen closely")
    return kept("the gradients of a step have at most the clipped norm")


# --- optimizers -----------------------------------------------------------------------------------


@check("run-optimizer-follows-its-formula", roles=RUN)
def follows_formula(impl: Any, draw: Draw) -> Evidence:
    """An optimizer of one's own with Adam's settings changes parameters as Adam's or AdamW's formula does."""
    from conformance.watch.rules import ANOTHER, COUPLED, UNSCALED

    run = run_of(impl)
    steps = [step for step in steps_of(run, closely=True) if step.rule]
    if not steps:
        raise NotProvided("no optimizer of the script's own with the settings of Adam was seen")
    kind = run.optimizers[steps[0].optimizer].kind
    decay = max((one.get("weight_decay", 0.0) for one in run.optimizers[steps[0].optimizer].settings), default=0.0)
    allowed = {"AdamW", *(() if kind.endswith("W") else (COUPLED,))}
    wrong = next((step for step in steps if step.rule not in allowed), None)
    if wrong is None:
        return kept(f"the formula that {kind} follows", steps[-1].rule if decay else "Adam")
    if wrong.rule in (ANOTHER, UNSCALED):  # Loshchilov and Hutter scale the decay by the schedule only
        return note(f"the formula that {kind} follows", f"{wrong.rule} ({wrong.place})")
    return broken(
        wrong,
        f"the formula that {kind} follows",
        "AdamW" if kind.endswith("W") else "Adam or AdamW",
        wrong.rule,
        at=lambda lines: lines.formula(wrong, run.optimizers[wrong.optimizer].cls),
        diagnosis=f"{kind} is {wrong.rule}.",
        mend="compare it with Algorithm 2 of Loshchilov and Hutter, or use torch.optim.AdamW",
    )


@check("run-decay-leaves-norms-and-biases-out", roles=RUN)
def decay_leaves_out(impl: Any, draw: Draw) -> Evidence:
    """Weight decay reaches matrices only, not norms and biases."""
    run = run_of(impl)
    decayed = [
        number
        for step in steps_of(run)
        for group, setting in zip(*_groups(run, step), strict=True)
        if setting.get("weight_decay", 0.0) > 0
        for number in group
    ]
    if not decayed:
        raise NotProvided("no weight decay was seen")
    reached = frozenset(
        n for n in decayed if run.parameters[n].name.endswith("bias") or "Norm" in run.parameters[n].layer
    )
    if reached:
        return unusual("weight decay reaches norms and biases", f"{len(reached)}: {run.named(reached)}")
    return kept("weight decay leaves norms and biases out")


def _groups(run: Any, step: Any) -> tuple[Any, Any]:
    optimizer = run.optimizers[step.optimizer]
    return optimizer.groups, optimizer.settings


@check("run-scaled-gradients-go-through-the-scaler", roles=RUN)
def through_the_scaler(impl: Any, draw: Draw) -> Evidence:
    """Gradients of a scaled loss are stepped by the scaler, and the scaler steps gradients of a scaled loss."""
    run = run_of(impl)
    seen = False
    for step in steps_of(run):
        passes = passes_before(run, step)
        if not passes or not (step.scaler or passes[-1].scaled):
            continue
        seen = True
        if passes[-1].scaled and not step.scaler:
            return broken(
                step,
                "what makes the step of a scaled loss",
                "scaler.step(optimizer)",
                "optimizer.step()",
                diagnosis="The optimizer steps with gradients that still have the scaler's factor."
                if step.scaled
                else "The optimizer steps past the scaler: gradients that overflowed are used, not skipped.",
                mend="call scaler.step(optimizer) in its place",
            )
        if step.scaler and not passes[-1].scaled:
            return broken(
                passes[-1],
                "the loss before a step of the scaler",
                "scaler.scale(loss)",
                "the loss itself",
                diagnosis="The scaler divides gradients by a factor that the loss never had: its steps are too small.",
                mend="call scaler.scale(loss).backward()",
            )
    if not seen:
        raise NotProvided("no gradient scaler was seen")
    return kept("scaled losses and steps of the scaler belong together")


@check("run-backward-is-outside-autocast", roles=RUN)
def outside_autocast(impl: Any, draw: Draw) -> Evidence:
    """The backward pass runs outside of autocast."""
    from conformance.watch.events import Backward, Forward

    run = run_of(impl)
    if not any(one.autocast for one in run.of(Forward)):
        raise NotProvided("no forward pass under autocast was seen")
    inside = [one for one in run.of(Backward) if one.autocast]
    if inside:
        return unusual("backward passes under autocast", f"{len(inside)} ({inside[0].place})")
    return kept("backward passes run outside of autocast")


@check("run-weights-are-kept-in-full-precision", roles=RUN)
def full_precision(impl: Any, draw: Draw) -> Evidence:
    """What an optimizer steps is kept in float32 at least."""
    run = run_of(impl)
    stepping = {n for step in steps_of(run) for n in run.optimizers[step.optimizer].parameters}
    half = frozenset(n for n in stepping if run.parameters[n].dtype in ("float16", "bfloat16"))
    if half:
        return unusual("an optimizer steps parameters of half precision", f"{len(half)}: {run.named(half)}")
    return kept("the optimizer steps parameters in full precision")


@check("run-betas-are-in-order", roles=RUN)
def betas_in_order(impl: Any, draw: Draw) -> Evidence:
    """Adam's average of squares is slower than its average of gradients."""
    run = run_of(impl)
    seen = None
    for step in steps_of(run):
        made = run.optimizers[step.optimizer]
        for settings in made.settings:
            betas = settings.get("betas")
            if not ADAM.match(made.kind) or not isinstance(betas, tuple) or len(betas) != 2:
                continue
            seen = betas
            if betas[0] > betas[1]:
                return broken(
                    step,
                    f"the betas of {made.kind}",
                    "the first below the second",
                    betas,
                    at=lambda lines: lines.settings(made, "beta"),
                    diagnosis=f"{made.kind} has the betas {betas}: the one of the squares comes second, and is larger.",
                    mend=f"give betas={betas[::-1]}",
                )
    if seen is None:
        raise NotProvided("no Adam was seen")
    return kept("the betas are in order", seen)


@check("run-decay-reaches-a-matrix", roles=RUN)
def reaches_a_matrix(impl: Any, draw: Draw) -> Evidence:
    """Where weight decay is given to some parameters and not to others, a matrix is among the first."""
    run = run_of(impl)
    for step in steps_of(run)[:1]:
        made = run.optimizers[step.optimizer]
        shares = {0: [0, 0], 1: [0, 0]}
        for group, settings in zip(made.groups, made.settings, strict=True):
            for number in group:
                shares[settings.get("weight_decay", 0.0) > 0][run.parameters[number].is_matrix] += 1
        (_, rest), (vectors, matrices) = shares[0], shares[1]
        if not vectors + matrices or not rest + matrices:
            break
        if vectors and not matrices:
            return broken(
                step,
                "matrices with weight decay",
                rest,
                f"0, and {vectors} norms and biases have it",
                at=lambda lines: lines.settings(made, r"ndim|dim\(\)|bias|norm|decay"),
                diagnosis="Weight decay is turned round: norms and biases have it, and no matrix has.",
                mend="decay what has two axes or more, and leave the rest out",
            )
        return kept("matrices have weight decay", matrices)
    raise NotProvided("no weight decay was seen")


_LAYER = re.compile(r"^(.*?)\.?(\d+)\.")
"""The first number in the name of a parameter: which of several layers it is of."""


@check("run-lower-layers-learn-no-faster", roles=RUN)
def lower_layers_learn_no_faster(impl: Any, draw: Draw) -> Evidence:
    """Where the layers of a model learn at different rates, none learns faster than the one above it."""
    run = run_of(impl)
    for step in steps_of(run):
        layers: dict[str, dict[int, set[float]]] = {}
        for numbers, rate in zip(run.optimizers[step.optimizer].groups, step.rates, strict=False):
            for number in numbers:
                if (found := _LAYER.match(run.parameters[number].name)) is not None:
                    layers.setdefault(found[1], {}).setdefault(int(found[2]), set()).add(rate)
        for name, known in layers.items():
            rates = [max(known[layer]) for layer in sorted(known)]
            if len(set(rates)) < 2 or any(len(one) > 1 for one in known.values()):
                continue
            falls = [at for at, (low, high) in enumerate(itertools.pairwise(rates)) if low > high * (1 + 1e-6)]
            if not falls:
                return kept("rates of layers that grow from the lowest to the highest", rates)
            return broken(
                step,
                f"the rates of the layers of {name}, from the lowest",
                "none larger than that of the layer above",
                ", ".join(f"{rate:.2g}" for rate in rates),
                at=lambda lines: lines.falling(run, step),
                diagnosis=f"Layer {sorted(known)[falls[0]]} of {name} learns faster than the one above it: the rates "
                "fall in the wrong direction.",
                mend="lr * layer_decay ** (layers above it)",
            )
    raise NotProvided("no layers were seen that learn at different rates")
