"""Checks of a training run: in which order classes come, and whether padding and ends are what losses take them for."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import steps_of
from conformance.checks.watched_labels import RUN, broken, kept, run_of, trained, unusual
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided


@check("run-classes-come-mixed", roles=RUN)
def classes_mixed(impl: Any, draw: Draw) -> Evidence:
    """Training batches do not come class by class."""
    from conformance.watch import asking
    from conformance.watch.events import Batch

    run = run_of(impl)
    loss = asking.sorted_by_class(run)
    if loss is None:
        raise NotProvided("no batches were seen that come in the order of their classes")
    batch = next((one for one in reversed(run.of(Batch)) if one.order < loss.order), None)
    return broken(
        loss,
        "the classes of training batches",
        "mixed",
        "one after the other, in the order of their numbers",
        is_certain=not asking.speaks_of_tasks(run),
        at=lambda lines: lines.first(lines.batched(batch) if batch is not None else loss.place),
        diagnosis="The data are sorted by class and not shuffled: each batch asks for one class, and the others fade.",
        mend="shuffle the training data: DataLoader(..., shuffle=True)",
    )


@check("run-divergence-leaves-padding-out", roles=RUN)
def divergence_leaves_padding_out(impl: Any, draw: Draw) -> Evidence:
    """A divergence between two models is taken where there are words, as the cross-entropy beside it is."""
    from conformance.watch import asking

    found = asking.divergence_over_padding(run_of(impl))
    if found is None:
        raise NotProvided("no divergence was seen at more places than a cross-entropy that leaves out padding")
    loss, plain = found
    return broken(
        loss,
        "at which places the divergence is learned from",
        f"where there are words, as the cross-entropy ({plain.place}) is",
        f"at all {loss.targets.total if loss.targets else 0}",
        diagnosis="The divergence is taken over padding, too, which the cross-entropy beside it leaves out.",
        mend="select the places of words from both sides before the divergence",
    )


@check("run-end-is-no-padding", roles=RUN)
def end_is_no_padding(impl: Any, draw: Draw) -> Evidence:
    """Where the end of a text has the id of padding, its own label counts all the same."""
    from conformance.watch import asking

    found = asking.ends_taken_for_padding(run_of(impl))
    if found is None:
        raise NotProvided("no end of texts was seen that has the id of padding and is asked for nowhere")
    value, loss = found
    return broken(
        loss,
        f"labels with the id {value}, which ends the texts",
        "one of each text counts",
        "none counts",
        at=lambda lines: lines.counted(run_of(impl), loss),
        diagnosis=f"The end of a text and the padding are both {value}, and all of its labels are ignored: the model "
        "never learns where a text ends.",
        mend="ignore what lies behind the first end, by the lengths of the texts, or give padding an id of its own",
    )


@check("run-labels-lie-at-their-words", roles=RUN)
def at_their_words(impl: Any, draw: Draw) -> Evidence:
    """The classes of words are asked for at these words, and not at the token that opens every row."""
    run = run_of(impl)
    losses = [loss for loss in trained(run, "cross_entropy") if loss.lead >= 0 and loss.unasked]
    losses = [x for x in losses if not (x.targets and max(x.targets.offsets.values(), default=0.0) > 0.5)]
    if not losses:
        raise NotProvided("no loss over the classes of words was seen that leaves some out")
    early = next((loss for loss in losses if loss.is_early), None)
    if early is None:
        return kept("labels lie at their words", len(losses))
    return broken(
        early,
        "which tokens are asked for a class",
        "the words, and neither the token that opens a row nor the one that closes it",
        "the token that opens every row, and not the last word",
        at=lambda lines: lines.first(lines.begun(run), early.place),
        diagnosis="The labels begin one place too early: each word is taught the class of the next one.",
        mend="put an ignored label in front, for the token that opens the row: [IGNORE, *labels, IGNORE]",
    )


@check("run-prompts-are-not-learned", roles=RUN)
def prompts_not_learned(impl: Any, draw: Draw) -> Evidence:
    """Where a script puts prompts and answers into one text, its labels leave the prompt out."""
    from conformance.watch import asking

    run = run_of(impl)
    losses = [x for x in trained(run, "cross_entropy") if x.lead >= 0 and x.unasked and x.targets]
    losses = [x for x in losses if x.targets.offsets.get(1, 0.0) > 0.9]
    place = asking.joins_prompts(run)
    if not losses or not place:
        raise NotProvided("no loss of next tokens was seen whose texts are made of prompts and answers")
    if any(loss.lead > 1 for loss in losses):
        return kept("labels at the beginning of a row that are left out", max(loss.lead for loss in losses))
    return unusual("prompts are learned like answers", f"no label of theirs is left out ({place})")


@check("run-answers-are-learned-from-their-first-word", roles=RUN)
def from_their_first_word(impl: Any, draw: Draw) -> Evidence:
    """Where labels leave a prompt out that ends with one sign, the word behind the sign is asked for."""
    run = run_of(impl)
    losses = [x for x in trained(run, "cross_entropy") if x.targets and x.targets.offsets.get(1, 0.0) > 0.9]
    answering = [x for x in losses if x.behind is not None]
    if not answering:
        raise NotProvided("no loss of next tokens was seen that leaves out prompts which end with one sign")
    late = [x for x in answering if x.behind == 1]  # all answers of a batch may begin with one word
    if 2 * len(late) <= len(answering):
        return kept("answers are learned from their first word", len(answering))
    return broken(
        late[0],
        "which word of an answer is the first that is asked for",
        "the first",
        "the second",
        at=lambda lines: lines.first(lines.prompted(run), late[0].place),
        diagnosis="The labels leave out one token more than the prompt: the first word of each answer is never "
        "learned, and writing begins with it.",
        mend="leave out len(prompt) labels of the text, of those that are shifted len(prompt) - 1",
    )


@check("run-sampler-favours-the-rare", roles=RUN)
def sampler_favours_rare(impl: Any, draw: Draw) -> Evidence:
    """The weights by which samples are drawn are those of their own classes, and do not grow with these."""
    run = run_of(impl)
    if not run.drawn:
        raise NotProvided("no loader was seen that draws samples of known classes by weights")
    wrong = next((one for one in run.drawn if one.is_mixed or one.grows), None)
    if wrong is None:
        return kept("loaders that draw by the weights of classes", len(run.drawn))
    return broken(
        steps_of(run)[0],
        "the weights by which samples are drawn",
        "larger for rare classes",
        "of other samples" if wrong.is_mixed else "larger for frequent classes",
        at=lambda lines: lines.weighted(run, wrong.place),
        diagnosis="Samples of one class have different weights: the weights are those of other samples."
        if wrong.is_mixed
        else "Classes that occur often are drawn more often still: the weights grow with the counts.",
        mend="weights = 1 / counts[labels], with the labels of the samples of this data set, in their order",
    )
