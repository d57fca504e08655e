"""Checks of a training run: what its measures count, and what mixed rows are asked for."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import steps_of, told_by_text
from conformance.checks.watched_labels import RUN, broken, run_of
from conformance.draw import Draw
from conformance.evidence import Evidence, note
from conformance.protocol import NotProvided


@check("run-hits-are-counted-where-labels-count", roles=RUN)
def hits_are_of_labels(impl: Any, draw: Draw) -> Evidence:
    """Hits are counted at the places that count, and divided by the number of these."""
    from conformance.watch import measures

    step, (hits, number, place) = told_by_text(
        impl, measures.hits_elsewhere, "no hits were seen that are divided by the number of other places"
    )
    return broken(
        step,
        f"at which places {hits} counts",
        "at the labels that count, by whose number it is divided",
        f"{number} counts others",
        at=lambda lines: lines.first(place),
        diagnosis=f"{hits} is divided by {number}: one of them counts the labels that count, the other one all places.",
        mend="count both where labels are not ignored",
    )


@check("run-measures-are-of-all-batches", roles=RUN)
def measures_are_of_all(impl: Any, draw: Draw) -> Evidence:
    """A measure of an evaluation is of all of its batches."""
    from conformance.watch import measures

    step, (name, place) = told_by_text(
        impl, measures.of_the_last_batch, "no measure was seen that each batch of an evaluation binds anew"
    )
    return broken(
        step,
        f"of which batches {name} is when the evaluation is over",
        "all of them",
        "the last one",
        at=lambda lines: lines.first(place),
        diagnosis=f"Each batch binds {name} anew, and it is read behind the loop: it is of the last batch alone.",
        mend="add up, or collect, what each batch gives",
    )


@check("run-mixtures-keep-their-shares", roles=RUN)
def mixtures_keep_shares(impl: Any, draw: Draw) -> Evidence:
    """Mixed rows are asked for both labels, in the shares in which the rows are mixed."""
    from conformance.watch import measures

    run = run_of(impl)
    step = steps_of(run)[0]
    found = measures.mixtures(run)
    if not found:
        raise NotProvided("no mixture was seen whose sides are one, in exchanged shares, or in two orders")
    what, wrong, place = found[0]
    words = {
        "alike": (
            "of one and the same",
            "Both sides of the mixture are the same: the other row is in the input, and not in what is asked.",
        ),
        "exchanged": (
            "of two, in exchanged shares",
            "The shares of the labels are those of the other row: most of each row is asked for the wrong label.",
        ),
        "apart": (
            "of two in one random order, with labels in another",
            "The rows are mixed in one random order and the labels taken in another: they are labels of other rows.",
        ),
        "overwritten": (
            "of two, of which one is scaled before it is read",
            "The rows are scaled in place before the others are read from them: these have too small a share.",
        ),
        "unmixed": (
            "of two, with labels of one",
            "Rows are mixed and their labels are not: where the other row has the larger share, the label is wrong.",
        ),
    }
    return broken(
        step,
        f"of what {what} is a mixture",
        "of two, in the shares of what they belong to",
        words[wrong][0],
        at=lambda lines: lines.first(place),
        diagnosis=words[wrong][1],
        mend="mix rows and labels alike: share * a + (1 - share) * a[order]",
    )


@check("run-measures-weigh-rows-alike", roles=RUN)
def measures_weigh_rows_alike(impl: Any, draw: Draw) -> Evidence:
    """A measure of an evaluation whose batches have different numbers of rows is no mean of the means of batches, and
    hits are divided by the number of rows."""
    from conformance.watch import averaging, measures

    run = run_of(impl)
    step = steps_of(run)[-1]
    counted = next(iter(averaging.hits_by_batches(run)), None)
    if counted is not None:
        return broken(
            step,
            f"what {counted.name} is divided by",
            "the number of rows or labels",
            f"{counted.by}, the number of batches of {counted.size} rows",
            at=lambda lines: lines.first(counted.place),
            diagnosis=f"{counted.name} counts hits of rows, and is divided by the number of batches: it is no share.",
            mend="divide by the number of rows: len(loader.dataset)",
        )
    full = next(iter(averaging.full_batches(run)), None)
    if full is not None:
        return broken(
            step,
            f"what {full.name} is divided by",
            "the number of rows that were judged",
            full.by,
            at=lambda lines: lines.first(full.place),
            diagnosis="Each batch adds the size of a full one to the number of rows, and the last batch is smaller.",
            mend="add the rows of the batch: total += labels.size(0)",
        )
    ratio = next(iter(measures.means_of_ratios(run)), None)
    if ratio is not None:
        return broken(
            step,
            f"of what {ratio.name} is worked out",
            "of all rows together",
            "of each batch, and then averaged",
            at=lambda lines: lines.first(ratio.place),
            diagnosis=f"{ratio.name} is worked out for each batch and averaged: it is no mean over rows, and a class "
            "that a batch does not hold counts as zero.",
            mend="collect the predictions of all batches, and work it out once",
        )
    root = next(iter(averaging.means_of_roots(run)), None)
    if root is not None:
        return broken(
            step,
            "what the root is taken of",
            "the mean over all rows",
            "the mean of each batch",
            at=lambda lines: lines.first(root.place),
            diagnosis="The mean of the roots of the batches is no root of the mean error of all rows.",
            mend="add up squares and rows, and take one root at the end: sqrt(squares / rows)",
        )
    found, sizes = averaging.means_of_means(run), averaging.sizes(run)
    if not found or len(sizes) < 2:
        raise NotProvided("no means of batches of different sizes were seen that a mean is taken of")
    name, is_loss, place = found[0]
    if is_loss:
        return note(f"{name} is a mean of the means of batches of different sizes", place)
    return broken(
        step,
        f"what {name} is a mean of",
        "all rows",
        f"the means of batches of {max(sizes)} and {min(sizes)} rows",
        at=lambda lines: lines.first(place),
        diagnosis=f"Each batch adds its mean to {name}, and the last one is smaller: its rows weigh more than others.",
        mend="add up hits or errors, and divide by the number of rows or labels",
    )


@check("run-answers-are-compared-to-their-ends", roles=RUN)
def compared_to_their_ends(impl: Any, draw: Draw) -> Evidence:
    """An answer is right where all of it is, and not as far as the shorter one of two goes."""
    from conformance.watch import measures

    step, (what, place) = told_by_text(
        impl, measures.short_zips, "no comparison was seen that ends with the shorter one"
    )
    return broken(
        step,
        "how far two answers are compared",
        "to their ends",
        f"as far as the shorter one goes: {what}",
        at=lambda lines: lines.first(place),
        diagnosis="zip stops with the shorter one: an answer that ends too early, or goes on too long, is right.",
        mend="compare the lists themselves, or zip(..., strict=True) where their lengths must be the same",
    )


@check("run-means-leave-out-what-is-masked", roles=RUN)
def means_leave_out(impl: Any, draw: Draw) -> Evidence:
    """A mean of a loss is over what its mask leaves, and not over the zeros in the place of the rest."""
    from conformance.watch import measures

    step, (what, place) = told_by_text(
        impl, measures.means_over_masked, "no mean was seen that is taken of what a mask has filled with zeros"
    )
    return broken(
        step,
        "over what the mean is taken",
        "what the mask leaves",
        f"all places, and zeros where it hides: {what}",
        at=lambda lines: lines.first(place),
        diagnosis="The mean counts the places that the mask fills with zeros: the more padding a batch has, the "
        "smaller is its loss.",
        mend="loss.masked_fill(hidden, 0.0).sum() / (~hidden).sum()",
    )


def _figure(impl: Any, rule: str, nothing: str, asked: str, wrong: str, mend: str) -> Evidence:
    """What a figure of the script's own breaks. rule: of `conformance.watch.figures`; asked, wrong: behind its name."""
    from conformance.watch import figures

    step, one = told_by_text(impl, figures.wrong(getattr(figures, rule)), nothing)
    return broken(
        step,
        f"what {one.name} gives {asked}",
        one.expected,
        one.got,
        at=lambda lines: lines.first(one.place),
        diagnosis=f"{one.name} {wrong}",
        mend=mend,
    )


@check("run-functions-keep-the-claim-of-their-kind", roles=RUN)
def functions_of_their_kind(impl: Any, draw: Draw) -> Evidence:
    """What a script's own function prepares, decodes or measures is what one of its name gives beside a model."""
    from conformance.watch import figures

    step, one = told_by_text(
        impl, figures.wrong(figures.of_their_kind), "no function was seen that breaks the claim of its kind"
    )
    return broken(
        step,
        f"what {one.name} gives",
        one.expected,
        one.got,
        at=lambda lines: lines.first(one.place),
        diagnosis=one.sentence,
        mend=one.mend,
    )


@check("run-spans-are-told-apart", roles=RUN)
def spans_are_told_apart(impl: Any, draw: Draw) -> Evidence:
    """A span of tags counts as found where its text, its place and its kind are right."""
    return _figure(
        impl,
        "kinds_of_spans",
        "no function was seen that takes spans of another kind or text for those that are looked for",
        "where no span is right",
        "takes spans of another kind, or those of another text, for found.",
        "compare (text, kind, start, end) of both sides as sets",
    )


@check("run-means-over-classes-count-each", roles=RUN)
def every_class_counts(impl: Any, draw: Draw) -> Evidence:
    """The macro F1 is the mean over all classes that have labels, those too that are never found."""
    return _figure(
        impl,
        "means_over_classes",
        "no function of the macro F1 was seen that leaves out classes that are never found",
        "where one class of four is found",
        "leaves out the classes that are never found: whoever knows one class gets its F1.",
        "divide the sum by the number of classes",
    )


@check("run-errors-are-shares-of-the-reference", roles=RUN)
def errors_are_shares(impl: Any, draw: Draw) -> Evidence:
    """A word error rate is the number of errors by the number of words of the reference."""
    return _figure(
        impl,
        "shares_of_errors",
        "no error rate was seen that is divided by what was given",
        "a text that says its reference twice",
        "divides by the length of what was given: who says more has fewer errors.",
        "divide by the length of the reference",
    )


@check("run-roots-are-taken-of-the-mean", roles=RUN)
def roots_of_the_mean(impl: Any, draw: Draw) -> Evidence:
    """The root mean squared error is the root of the mean over all errors."""
    return _figure(
        impl,
        "roots_of_errors",
        "no root of a mean squared error was seen that is taken elsewhere",
        "for three errors of 1 and three of 7",
        "takes no root, or the mean of the roots of the rows.",
        "((guess - target) ** 2).mean().sqrt()",
    )
