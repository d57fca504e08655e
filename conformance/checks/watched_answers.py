"""Checks of a training run: losses that compare several answers. CTC, pairs, teachers and their temperatures."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.watched_labels import RUN, broken, kept, run_of, trained, unusual
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided

ALIKE = 1.01
"""Vectors are of one length where the longest is at most so many times the shortest; bfloat16 rounds that much."""


def framed(run: Any) -> list[Any]:
    """The CTC losses that were looked at; raises NotProvided where none was seen."""
    found = [loss for loss in trained(run, "ctc_loss") if loss.frames is not None]
    if not found:
        raise NotProvided("no CTC loss was seen closely")
    return found


@check("run-ctc-labels-are-no-blanks", roles=RUN)
def no_blanks(impl: Any, draw: Draw) -> Evidence:
    """No label of a CTC loss is the blank."""
    run = run_of(impl)
    for loss in framed(run):
        if loss.frames.blanks:
            return broken(
                loss,
                "labels of the CTC loss that are its blank",
                "none",
                loss.frames.blanks,
                at=lambda lines: lines.symbols(run, loss),
                diagnosis="A label of the CTC loss is the blank: one class means a symbol and nothing at once.",
                mend="give the blank a class of its own: move the symbols up by one, or say blank=",
            )
    return kept("labels that are the blank", 0)


@check("run-ctc-counts-real-frames", roles=RUN)
def real_frames(impl: Any, draw: Draw) -> Evidence:
    """The lengths that a CTC loss gets leave out the frames that fill rows up."""
    run = run_of(impl)
    for loss in framed(run):
        if loss.frames.padded:
            return broken(
                loss,
                "rows that are padded with frames of zeros, of which CTC is told so",
                loss.frames.padded,
                0,
                at=lambda lines: lines.lengths(run, loss),
                diagnosis="CTC is told that every row is as long as the longest: it aligns symbols with padding.",
                mend="give it the number of real frames of each row as input_lengths",
            )
    return kept("padded frames that CTC is told to use", 0)


@check("run-ctc-has-room", roles=RUN)
def has_room(impl: Any, draw: Draw) -> Evidence:
    """Most texts of a CTC loss have at least as many frames as labels."""
    found = [loss.frames for loss in framed(run_of(impl))]
    short, rows = sum(one.short for one in found), sum(one.rows for one in found)
    if short > 0.2 * rows:
        return unusual("texts with more labels than frames, from which nothing is learned", f"{short} of {rows}")
    return kept("texts with more labels than frames", f"{short} of {rows}")


@check("run-divergence-leads-the-learner", roles=RUN)
def leads_the_learner(impl: Any, draw: Draw) -> Evidence:
    """Of a divergence between a fixed and a learned distribution the fixed one is the target."""
    losses = [loss for loss in trained(run_of(impl), "kl_div") if loss.learner in ("input", "target")]
    if not losses:
        raise NotProvided("no divergence between a fixed and a learned distribution was seen")
    turned = next((loss for loss in losses if loss.learner == "target"), None)
    if turned is not None:
        return unusual("a divergence from the fixed distribution to the learned one", turned.place)
    return kept("the target of the divergence", "fixed")


@check("run-temperature-is-on-both-sides", roles=RUN)
def on_both_sides(impl: Any, draw: Draw) -> Evidence:
    """Where one side of a divergence is softened by a temperature, the other is, too."""
    run = run_of(impl)
    losses = [loss for loss in trained(run, "kl_div") if len(loss.softness) == 2]
    if not losses:
        raise NotProvided("no divergence was seen whose sides are the softmax of what modules gave")
    for loss in losses:
        mine, wanted = loss.softness
        if min(mine, wanted) < 0.95 and abs(max(mine, wanted) - 1) < 1e-3:
            side = "input" if mine < wanted else "target"
            return broken(
                loss,
                "the temperatures of both sides of the divergence",
                "the same",
                f"{1 / mine:.3g} and {1 / wanted:.3g}",
                at=lambda lines: lines.unsoftened(loss, 1 if side == "input" else 0),
                diagnosis=f"A temperature softens the {side} of the divergence only.",
                mend="divide the logits of both by it",
            )
    return kept("temperatures of both sides", f"{1 / losses[0].softness[0]:.3g}")


@check("run-divergence-compares-like-places", roles=RUN)
def like_places(impl: Any, draw: Draw) -> Evidence:
    """Both sides of a divergence are the answers at the same places."""
    run = run_of(impl)
    losses = [loss for loss in trained(run, "kl_div") if loss.apart is not None]
    if not losses:
        raise NotProvided("no divergence was seen whose sides are the softmax of answers of one shape")
    wrong = [loss for loss in losses if loss.apart]
    if len(wrong) < len(losses):
        return kept("both sides of a divergence are of the same places", len(losses))
    return broken(
        wrong[0],
        "how far the places of the target lie behind those of the input",
        0,
        wrong[0].apart,
        at=lambda lines: lines.unsoftened(wrong[0], 1),
        diagnosis="The answers of the two models are compared one place apart: the learner is taught the answer to "
        "another question.",
        mend="cut both alike: student[:, :-1] and teacher[:, :-1]",
    )


def paired(run: Any) -> list[Any]:
    """The losses that ask each row for its own column; raises NotProvided where none was seen."""
    found = [loss for loss in trained(run, "cross_entropy", "nll_loss") if loss.pairs is not None]
    if not found:
        raise NotProvided("no cross-entropy was seen that compares each with each")
    return found


@check("run-both-sides-are-normalised", roles=RUN)
def both_normalised(impl: Any, draw: Draw) -> Evidence:
    """Where each is compared with each, both sides are vectors of one length, or neither is."""
    run = run_of(impl)
    losses = [loss for loss in paired(run) if loss.pairs.spreads]
    if not losses:
        raise NotProvided("no product of two sides was seen behind the scores")
    sides = [*zip(*(loss.pairs.spreads for loss in losses), strict=True)]
    fixed = [max(spreads) < ALIKE for spreads in sides]
    if fixed[0] == fixed[1]:
        return kept("sides whose vectors are of one length", 2 * fixed[0])
    loss, number = losses[0], fixed.index(False)
    return broken(
        loss,
        "by how much the lengths of the vectors of each side differ",
        "1, or both",
        " and ".join(f"{spread:.3g} times" for spread in loss.pairs.spreads),
        at=lambda lines: lines.side(run, loss, number),
        diagnosis="One side of the comparison is normalised and the other is not: the scores are no cosines.",
        mend="normalise both: F.normalize(x, dim=-1)",
    )


@check("run-both-directions-are-asked", roles=RUN)
def both_directions(impl: Any, draw: Draw) -> Evidence:
    """Where pairs are compared twice in a step, it is in both directions."""
    from conformance.watch.events import Backward

    run = run_of(impl)
    by_pass: dict[int, list[Any]] = {}
    for loss in paired(run):
        back = next(run.between(loss.order, len(run.events), Backward), None)
        by_pass.setdefault(back.order if back is not None else -1, []).append(loss)
    twice = [losses for losses in by_pass.values() if len(losses) == 2]
    if not twice:
        raise NotProvided("no pass with two losses was seen that compare each with each")
    for first, second in twice:
        alike = first.pairs.digests[0] == second.pairs.digests[0] != second.pairs.digests[1]
        if first.name == second.name == "nll_loss":  # logarithms of probabilities: those of the other direction differ
            alike = np.allclose(first.pairs.own, second.pairs.own, rtol=1e-4, atol=1e-6)
        if alike:
            return broken(
                second,
                "what the two losses over pairs get",
                "scores, and the same transposed",
                "the same scores twice",
                diagnosis="Both losses ask in one direction: the other side is never asked for its partner.",
                mend="give one of them scores.T",
            )
    return kept("two losses over pairs ask in both directions", len(twice))


@check("run-rows-meet-others", roles=RUN)
def rows_meet_others(impl: Any, draw: Draw) -> Evidence:
    """Where each is compared with each and asked for another one, it is not compared with itself."""
    run = run_of(impl)
    square = [loss for loss in trained(run, "cross_entropy") if loss.holds_itself]
    if not square:
        raise NotProvided("no cross-entropy was seen that compares each with itself and asks for another one")
    return broken(
        square[0],
        "with what each row is compared",
        "the others",
        "the others and itself, which is more like it than any",
        diagnosis="The diagonal of the scores is each vector with itself: the largest score of each row, and the wrong "
        "answer.",
        mend='scores.fill_diagonal_(float("-inf"))',
    )
