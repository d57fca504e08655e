"""Checks of a training run: what its losses saw. The subject is `conformance.watch.record.Run`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, note, true
from conformance.protocol import NotProvided

RUN = ("training_run",)
UNSEEN = 1e-6
"""An answer that moves by at most this share does not depend on what was changed."""
SURE, MOST = 0.9, 0.6
"""Labels stand so far ahead where they do so in the share SURE; a label is shown to the model that stands in the input
itself in the share MOST."""


def run_of(impl: Any) -> Any:
    return impl.build("training_run", {})


def broken(
    event: Any,
    what: str,
    expected: Any,
    got: Any,
    *,
    diagnosis: str,
    mend: str,
    at: Callable[[Any], Sequence[str]] = lambda _: (),
    is_certain: bool = True,
) -> Evidence:
    """What a run breaks, in which step and at which lines; a note where it may be meant. at: the lines by the functions
    of `conformance.watch.pointing`, the cause first; where they find none, the event's own."""
    if not is_certain:
        return note(what, f"{got} ({event.place})" if event.place else got)
    evidence = true(f"{what}, step {event.step + 1}", False, got=str(got), expected=str(expected))
    place, *also = _pointed(at) or [event.place]
    return evidence.saying(diagnosis=diagnosis, place=place, mend=mend, also=also)


def _pointed(at: Callable[[Any], Sequence[str]]) -> Sequence[str]:
    from conformance.watch import pointing

    try:
        return at(pointing)
    except (LookupError, AttributeError, TypeError, ValueError, RecursionError):
        return ()  # source of an unforeseen form: the event's own line is named


def unusual(what: str, got: Any) -> Evidence:
    """What a run does otherwise than a convention."""
    return true(what, False, got=got, expected="nothing of the kind")


def kept(what: str, got: Any = True) -> Evidence:
    return true(what, True, got=got, expected=got)


def trained(run: Any, *names: str) -> list[Any]:
    """The losses of some names that were recorded for a backward pass; raises NotProvided where none was seen."""
    from conformance.watch.events import Loss

    found = [loss for loss in run.of(Loss) if loss.gradients and (not names or loss.name in names)]
    if not found:
        raise NotProvided(f"no {' or '.join(names) or 'loss of torch'} with gradients was seen")
    return found


def of_tokens(run: Any) -> Iterator[Any]:
    """The losses whose labels were found in the input: each label, and the tokens around its place. Those that a script
    writes by hand come last."""
    from conformance.watch.events import Loss, Written

    names, written = ("cross_entropy", "nll_loss", "kl_div"), run.of(Written)
    given = [one for one in run.of(Loss) if one.gradients and one.name in names] if written else trained(run, *names)
    for loss in [*given, *written]:
        if loss.targets is not None and loss.targets.offsets:
            yield loss


def first_of_tokens(run: Any) -> Any:
    first = next(of_tokens(run), None)
    if first is None:
        raise NotProvided("no loss was seen whose labels could be compared with the tokens of its input")
    return first


@check("run-labels-are-shifted-once", roles=RUN)
def shifted_once(impl: Any, draw: Draw) -> Evidence:
    """Labels that are tokens of the input are the next ones: not the next but one, and not those before."""
    run = run_of(impl)
    first_of_tokens(run)
    for loss in of_tokens(run):
        shares = loss.targets.offsets
        wrong = {offset: share for offset, share in shares.items() if offset in (-1, 2) and share >= SURE}
        if wrong and max(shares.get(0, 0.0), shares.get(1, 0.0)) < SURE:
            [offset] = list(wrong)[:1]
            words = "two tokens ahead of the input" if offset == 2 else "the token before the input"
            return broken(
                loss,
                "where the labels stand",
                "one token ahead",
                words,
                at=lambda lines: lines.shift(run, loss, is_missing=False),
                diagnosis=f"Each label is {words}: "
                + ("the labels are shifted twice." if offset == 2 else "the shift goes the wrong way."),
                mend="shift once: compare logits[:, :-1] with labels[:, 1:], or give labels that are shifted already",
            )
    if (judged := _judged_unshifted(run)) is not None:
        return broken(
            judged,
            "where the labels of an evaluation stand",
            "one token ahead, as in training",
            "at the tokens of the input",
            at=lambda lines: lines.shift(run, judged, is_missing=True),
            diagnosis="In evaluation each label is the token that the model gets at its place, and in training the "
            "next one: what is measured is not what is learned.",
            mend="shift in evaluation, too: compare logits[:, :-1] with labels[:, 1:]",
        )
    return kept("the labels are nowhere shifted twice or backwards")


def _judged_unshifted(run: Any) -> Any:
    """A loss of an evaluation whose labels are the tokens of the input, where those of training are the next ones;
    None where there is none."""
    from conformance.watch.events import Loss

    if not all(loss.targets.offsets.get(1, 0.0) >= SURE for loss in of_tokens(run)):
        return None
    asked = (loss for loss in run.of(Loss) if not loss.gradients and loss.targets is not None)
    return next((loss for loss in asked if _is_held(loss.targets.offsets)), None)


def _is_held(offsets: Mapping[int, float]) -> bool:
    """Whether labels are the tokens of the input, and not the next ones."""
    return offsets.get(0, 0.0) >= SURE > offsets.get(1, 0.0)


@check("run-input-does-not-hold-its-answer", roles=RUN)
def answer_hidden(impl: Any, draw: Draw) -> Evidence:
    """The label of a position is not the token that the model gets at this position, and the number that is asked of a
    row does not stand in it."""
    from conformance.watch.events import Difference, Loss, Probe

    run = run_of(impl)
    held = next((loss for loss in run.of(Loss) if loss.gradients and loss.held), None)
    held = held or next((one for one in run.of(Difference) if one.held), None)
    if held is not None:
        return broken(
            held,
            "where the number that is asked of a row stands in it",
            "nowhere",
            "at one place, in every row of the batch",
            at=lambda lines: lines.windowed(run, held),
            diagnosis="The input holds the number that the model is asked for: the window reaches over its target.",
            mend="end the input before the target: x[i : i + n], and y[i + n]",
        )
    first_of_tokens(run)
    unseen = [probe for probe in run.of(Probe) if probe.what == "own" and probe.error <= UNSEEN]
    for loss in of_tokens(run) if not unseen else ():  # an answer may be read from the token before
        shares, kept_share = loss.targets.offsets, loss.targets.kept
        if kept_share >= MOST and shares.get(1, 0.0) < SURE:
            masked = loss.targets.masked or kept_share < 1
            return broken(
                loss,
                "labels that stand at the same place of the input",
                "few of those that count",
                f"{kept_share:.0%}",
                at=lambda lines: lines.filled(run, loss) if masked else lines.shift(run, loss, is_missing=True),
                diagnosis="The model is asked for the very token that it is given: "
                + (
                    "the loss counts tokens that are not masked."
                    if masked
                    else "the labels are not shifted against the input."
                ),
                mend="set the labels of tokens that are not masked to ignore_index"
                if masked
                else "compare logits[:, :-1] with labels[:, 1:], or give the decoder its target shifted right",
            )
    return kept("the input does not hold the labels at their own places")


@check("run-padding-is-in-no-loss", roles=RUN)
def padding_left_out(impl: Any, draw: Draw) -> Evidence:
    """Labels of padding get no gradient."""
    from conformance.watch.events import Loss

    run = run_of(impl)
    classed = [loss for loss in run.of(Loss) if loss.gradients and loss.padded_with is not None]
    if len(classed) > 1:
        return broken(
            classed[0],
            "what padding is asked for, where other labels are ignored",
            "nothing",
            f"the class {classed[0].padded_with}",
            at=lambda lines: lines.counted(run, classed[0]),
            diagnosis=f"Labels are padded with {classed[0].padded_with}, which is a class: padding is taught.",
            mend="pad labels with what the loss ignores: padding_value=-100",
        )
    first_of_tokens(run)
    padded = [loss for loss in of_tokens(run) if loss.targets.pads]
    if not padded:
        raise NotProvided("no padding was seen among the labels")
    for loss in padded:
        if loss.targets.padding:
            return broken(
                loss,
                "labels of padding that count",
                0,
                f"{loss.targets.padding} of {loss.targets.pads}",
                at=lambda lines: lines.counted(run, loss),
                diagnosis=f"The loss counts padding: labels with the id {loss.targets.pad} behind the ends.",
                mend=f"give the loss ignore_index={loss.targets.pad}, or set these labels to -100",
            )
    return kept("labels of padding do not count", f"0 of {sum(loss.targets.pads for loss in padded)}")


@check("run-mean-is-over-the-labels-that-count", roles=RUN)
def mean_over_counted(impl: Any, draw: Draw) -> Evidence:
    """The sum over the labels that count is divided by their number, not by the number of all labels."""
    run = run_of(impl)
    some = [one for one in trained(run) if one.targets and 0 < one.targets.counted < one.targets.total]
    if not some:
        raise NotProvided("no loss was seen that leaves labels out")
    wrong = [loss for loss in some if loss.targets.over_all or _divided_by_all(run, loss)]
    for loss in wrong:  # once in a while the labels that count in several batches are as many as all of one
        if 2 * sum(one.place == loss.place for one in wrong) > sum(one.place == loss.place for one in some):
            return broken(
                loss,
                "by what the sum over the labels is divided",
                f"{loss.targets.counted} labels that count",
                f"all {loss.targets.total}",
                is_certain=len({one.targets.counted / one.targets.total for one in some}) > 1,
                at=lambda lines: lines.divisor(run, loss),
                diagnosis="Labels that do not count are in the denominator of the mean: more padding, smaller steps.",
                mend="divide by the number of labels that count: (loss * mask).sum() / mask.sum()",
            )
    return kept("the mean is over the labels that count")


def _divided_by_all(run: Any, loss: Any) -> bool:
    """Whether a sum over labels goes into the backward pass divided by the number of all labels, those included that do
    not count."""
    from conformance.watch.events import Backward

    back = next(run.between(loss.order, len(run.events), Backward), None)
    if loss.reduction != "sum" or back is None or not loss.value or not back.value:
        return False
    number = loss.value * back.factor / back.value
    return abs(number - loss.targets.total) < 1e-3 * number and loss.targets.total != loss.targets.counted


@check("run-labels-and-logits-are-flattened-alike", roles=RUN)
def flattened_alike(impl: Any, draw: Draw) -> Evidence:
    """Labels and logits are flattened along the same axis first."""
    run = run_of(impl)
    first_of_tokens(run)
    for loss in of_tokens(run):
        if loss.targets.crossed:
            return broken(
                loss,
                "labels at their own places",
                "the next tokens",
                "those of other rows and times",
                at=lambda lines: lines.turned(loss),
                diagnosis="Logits and labels are flattened in different orders: "
                "one row by row, the other time step by time step.",
                mend="transpose neither or both before flattening them",
            )
    return kept("labels and logits are flattened alike")


@check("run-scores-are-turned-where-classes-come-first", roles=RUN)
def scores_are_turned(impl: Any, draw: Draw) -> Evidence:
    """A cross-entropy that takes classes before places is given the scores turned, and not in another shape."""
    run = run_of(impl)
    losses = [loss for loss in trained(run, "cross_entropy", "nll_loss") if loss.input]
    wrong = next((loss for loss in losses if loss.cut_anew), None)
    if wrong is None:
        raise NotProvided("no scores of words were seen that have another shape where they should be turned")
    return broken(
        wrong,
        "the scores (B, T, C) for a loss that takes (B, C, T)",
        "turned",
        "the same numbers in another shape",
        diagnosis="The scores are given another shape and not turned: each label is compared with scores of other "
        "words and other classes.",
        mend="logits.transpose(1, 2)",
    )


@check("run-smoothing-keeps-the-label", roles=RUN)
def keeps_the_label(impl: Any, draw: Draw) -> Evidence:
    """Label smoothing leaves most of the weight on the label."""
    run = run_of(impl)
    losses = [loss for loss in trained(run, "cross_entropy") if loss.smoothing > 0]
    if not losses:
        raise NotProvided("no cross-entropy with label smoothing was seen")
    if losses[0].smoothing < 0.5:
        return kept("the share that smoothing takes from the label", losses[0].smoothing)
    return broken(
        losses[0],
        "the share that smoothing takes from the label",
        "less than half",
        losses[0].smoothing,
        at=lambda lines: lines.counted(run, losses[0]),
        diagnosis=f"Label smoothing takes {losses[0].smoothing:.0%} from the label: it is meant to keep that much.",
        mend=f"give label_smoothing={1 - losses[0].smoothing:.3g}",
    )


@check("run-loss-compares-like-shapes", roles=RUN)
def like_shapes(impl: Any, draw: Draw) -> Evidence:
    """What a loss compares number by number has one shape, so that nothing is broadcast."""
    from conformance.watch.events import Difference, Loss

    run = run_of(impl)
    losses = [loss for loss in run.of(Loss) if loss.gradients and loss.name not in ("cross_entropy", "nll_loss")]
    compared = [*losses, *run.of(Difference)]
    if not compared:
        raise NotProvided("no loss that compares number by number was seen")
    wrong = next((one for one in compared if one.shapes), None)
    if wrong is None:
        return kept("input and target have one shape")
    name = wrong.name if isinstance(wrong, Loss) else "The difference of answers and targets"
    return broken(
        wrong,
        f"the shapes of input and target of {name}" if isinstance(wrong, Loss) else "the shapes of answers and targets",
        "the same",
        wrong.shapes,
        at=lambda lines: lines.first(wrong.place, lines.turned(wrong)) if isinstance(wrong, Loss) else (),
        diagnosis=f"{name} broadcasts {wrong.shapes}: it compares each answer with the targets of all others.",
        mend="give both the same shape: squeeze the answers, or unsqueeze the targets",
    )


BINARY = "binary_cross_entropy_with_logits"


@check("run-cross-entropy-gets-logits", roles=RUN)
def gets_logits(impl: Any, draw: Draw) -> Evidence:
    """`cross_entropy` takes the softmax itself, and the binary one the sigmoid: they are not given probabilities."""
    losses = [loss for loss in trained(run_of(impl), "cross_entropy", BINARY) if loss.input]
    right = {loss.place for loss in losses if loss.input != "probabilities"}
    wrong = [loss for loss in losses if loss.place not in right]
    if not losses:
        raise NotProvided("no cross-entropy was seen closely")
    if not wrong:
        return kept("the cross-entropy gets logits", losses[0].input)
    return broken(
        wrong[0],
        "what the cross-entropy gets",
        "logits",
        "the result of a sigmoid" if wrong[0].name == BINARY else "rows of numbers from 0 to 1 that sum to 1",
        at=lambda lines: lines.first(wrong[0].softmax, wrong[0].place),
        diagnosis="The cross-entropy gets probabilities, and takes their softmax again, or their sigmoid.",
        mend="give it the logits: leave the softmax or sigmoid out of the model's output in training",
    )


@check("run-likelihood-gets-log-probabilities", roles=RUN)
def gets_log_probabilities(impl: Any, draw: Draw) -> Evidence:
    """`nll_loss`, `kl_div` and `ctc_loss` take log-probabilities."""
    run = run_of(impl)
    losses = [loss for loss in trained(run, "nll_loss", "kl_div", "ctc_loss") if loss.input]
    if not losses:
        raise NotProvided("no nll_loss, kl_div or ctc_loss was seen closely")
    for loss in losses:
        if loss.input != "log-probabilities":
            return broken(
                loss,
                f"what {loss.name} gets",
                "log-probabilities",
                loss.input,
                at=lambda lines: lines.first(loss.softmax, lines.answers(run, loss)),
                diagnosis=f"{loss.name} gets {loss.input}, and takes them for log-probabilities.",
                mend="give it log_softmax(logits, dim=-1)",
            )
    return kept("the rows are log-probabilities")


@check("run-target-distributions-sum-to-one", roles=RUN)
def targets_sum_to_one(impl: Any, draw: Draw) -> Evidence:
    """Each row of a smoothed target is a distribution, or zero where it does not count."""
    losses = [loss for loss in trained(run_of(impl), "kl_div") if loss.rows is not None]
    if not losses:
        raise NotProvided("no divergence from a target distribution was seen closely")
    for loss in losses:
        low, high = loss.rows
        if abs(low - 1) > 1e-3 or abs(high - 1) > 1e-3:
            return broken(
                loss,
                "sums of the rows of the target",
                "1",
                f"{low:.4g} to {high:.4g}",
                at=lambda lines: lines.distribution(loss),
                diagnosis="The smoothed labels are no distributions: their rows do not sum to one.",
                mend="share the smoothing over the classes that get it: smoothing / (classes - 2) "
                "where the true class and padding get none of it",
            )
    return kept("rows of the target sum to one", 1)


@check("run-masked-share-is-moderate", roles=RUN)
def masked_share(impl: Any, draw: Draw) -> Evidence:
    """A masked-language loss counts between a twentieth and a half of the tokens."""
    run = run_of(impl)
    some = [loss for loss in of_tokens(run) if loss.targets.masked and loss.targets.offsets.get(1, 0.0) < SURE]
    if not some:
        raise NotProvided("no loss of masked tokens was seen")
    counted = sum(loss.targets.counted for loss in some)
    share = counted / max(sum(loss.targets.tokens for loss in some), 1)
    if 0.03 <= share <= 0.6:
        return kept("the share of tokens that are masked and counted", f"{share:.0%}")
    return unusual("an unusual share of tokens counts in the masked-language loss", f"{share:.0%}; BERT masks 15%")


@check("run-loss-is-finite", roles=RUN)
def finite(impl: Any, draw: Draw) -> Evidence:
    """No loss that is learned from is infinite or NaN."""
    from conformance.watch.events import Backward

    run = run_of(impl)
    passes = run.of(Backward)
    if not passes:
        raise NotProvided("no backward pass was seen")
    for one in passes:
        if not math.isfinite(one.value):
            return broken(
                one,
                "the loss of a backward pass",
                "a finite number",
                one.value,
                at=lambda lines: lines.value(run, one),
                diagnosis=f"The loss is {one.value} in step {one.step + 1}.",
                mend="look for a batch without a label that counts, a logarithm of zero, or an overflow of float16",
            )
    return kept("all losses are finite", f"{len(passes)} backward passes")


@check("run-loss-starts-near-uniform", roles=RUN)
def starts_near_uniform(impl: Any, draw: Draw) -> Evidence:
    """The first cross-entropy over V classes is near ln V."""
    first = next((x for x in trained(run_of(impl), "cross_entropy") if x.classes > 1 and x.value is not None), None)
    if first is None or first.reduction != "mean":
        raise NotProvided("no first cross-entropy with a mean was seen closely")
    uniform = math.log(first.classes)
    if 0.5 * uniform <= first.value <= 1.5 * uniform + 0.5:
        return kept("the first loss", f"{first.value:.3g}, ln {first.classes} = {uniform:.3g}")
    return unusual("the first loss is far from ln V", f"{first.value:.3g}, ln {first.classes} = {uniform:.3g}")
