"""Checks of the losses of a whole model, in forward or beside it: what they teach each position, and leave out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true
from conformance.protocol import NotProvided

CAUSAL = ("language_model", "sequence_to_sequence")
TINY = 1e-9
OTHER_ORDERS = r"(?i)non.?auto.?regressive|mask.?predict|diffusion|backward_?(lm|model)|right.?to.?left|permutation"
"""Words by which a model says that it does not write from left to right."""


def together(found: list[Evidence], reason: str) -> Evidence:
    """All evidence together. Raises NotProvided where there is none."""
    if not found:
        raise NotProvided(reason)
    return all_of(*found)


@check("losses-get-what-they-are-made-for", roles=("model",))
def gets_what_it_is_made_for(impl: Any, draw: Draw) -> Evidence:
    """cross_entropy gets logits, nll_loss and kl_div logarithms of probabilities, and a loss of numbers as many as it
    compares."""
    runs = impl.build("model", {}).loss_runs()
    parts = [part for run in runs for criterion in run.criteria if (part := _of_criterion(run, criterion)) is not None]
    return together(parts, "its losses call none of torch's")


def _of_criterion(run: Any, criterion: Any) -> Evidence | None:
    if criterion.is_written_out:
        return None
    what = f"what {criterion.name} gets in {run.name}"
    if criterion.name == "kl_div":
        return _of_divergence(run, criterion)
    if criterion.name == "binary_cross_entropy_with_logits" and criterion.squashed:
        return true(what, False, expected="logits", got="what a sigmoid or softmax gives").saying(
            diagnosis="binary_cross_entropy_with_logits is given probabilities: the sigmoid is taken twice.",
            place=criterion.place,
            mend="give it the logits",
        )
    if not criterion.of_classes:
        one, other = tuple(criterion.given.shape), tuple(criterion.target.shape)
        return true(
            what, one == other or 1 in (criterion.given.numel(), criterion.target.numel()), got=one, expected=other
        ).saying(
            diagnosis=f"{criterion.name} compares {one} with {other}: every number meets every target.",
            place=criterion.place,
            mend="give both one shape",
        )
    rows = criterion.rows.detach().double()
    if rows.shape[-1] < 2:
        return None
    likely = bool((rows >= 0).all()) and bool(((rows.sum(-1) - 1).abs() < 1e-5).all())
    if criterion.name == "nll_loss":
        right = bool(((rows.exp().sum(-1) - 1).abs() < 1e-4).all())
        return true(what, right, got="probabilities" if likely else "no logarithms of probabilities").saying(
            diagnosis="nll_loss is given numbers that are no logarithms of probabilities.",
            place=criterion.place,
            mend="give it log_softmax(logits), or call cross_entropy with the logits",
        )
    return true(what, not likely, expected="logits", got="rows of positive numbers that sum to one").saying(
        diagnosis="cross_entropy is given probabilities: the softmax is taken twice.",
        place=criterion.place,
        mend="give it the logits",
    )


def _of_divergence(run: Any, criterion: Any) -> Evidence | None:
    """Whether kl_div gets logarithms of probabilities, along some axis, and a target as it is told."""
    given = criterion.given.detach().double()

    def sums_to_one(numbers: Any) -> bool:
        return any(
            size > 1 and bool(((numbers.sum(axis) - 1).abs() < 1e-4).all()) for axis, size in enumerate(numbers.shape)
        )

    likely = bool((given >= 0).all()) and sums_to_one(given)
    target = criterion.target.detach().double()
    of_logs = bool((target <= 0).all()) and sums_to_one(target.exp())
    what = f"what kl_div gets in {run.name}"
    if likely:
        return true(what, False, expected="logarithms of probabilities", got="probabilities").saying(
            diagnosis="kl_div is given probabilities where it takes their logarithms.",
            place=criterion.place,
            mend="give it log_softmax(logits)",
        )
    if of_logs != bool(criterion.log_target) and (of_logs or sums_to_one(target)):
        return true(f"the target of {what[5:]}", False, got="logarithms" if of_logs else "probabilities").saying(
            diagnosis="The target of kl_div is not what log_target says that it is.", place=criterion.place
        )
    if sums_to_one(given.exp()):
        return true(what, True)
    sums = [given.exp().sum(axis) for axis, size in enumerate(given.shape) if size > 1]
    if not sums or min(float(one.min()) for one in sums) <= 1.001:
        return None  # a part of a distribution, such as its best words
    return true(what, False, expected="logarithms of probabilities", got="logits").saying(
        diagnosis="kl_div is given logits where it takes logarithms of probabilities.",
        place=criterion.place,
        mend="give it log_softmax(logits)",
    )


@check("losses-that-are-computed-are-returned", roles=("model",))
def computed_is_returned(impl: Any, draw: Draw) -> Evidence:
    """A loss that is computed with gradients is a part of the loss that is returned."""
    parts = []
    for run in impl.build("model", {}).loss_runs():
        trained = [criterion for criterion in run.criteria if criterion.trains]
        if run.value is None or not run.value.requires_grad or len(trained) < 2:
            continue
        for criterion in trained:
            if criterion.reaches is None and any(_same_labels(criterion, other) for other in trained):
                continue  # a figure to look at: the same labels are taught by another
            parts.append(
                true(f"a part of what {run.name} gives", criterion.reaches is not None, got=criterion.name).saying(
                    diagnosis=f"This {criterion.name} is computed and is no part of the loss that {run.name} returns: "
                    "nothing is learnt from it.",
                    place=criterion.place,
                    mend="add it to the loss",
                )
            )
    return together(parts, "none of its losses is a sum of several")


@check("losses-are-added-once", roles=("model",))
def added_once(impl: Any, draw: Draw) -> Evidence:
    """Two terms of a loss compare two things: none is computed of the same scores and the same labels twice."""
    parts = []
    for run in impl.build("model", {}).loss_runs():
        added = [criterion for criterion in run.criteria if criterion.reaches is not None]
        for number, criterion in enumerate(added[1:], 1):
            same = any(criterion.repeats(other) for other in added[:number])
            parts.append(
                true(f"a term of {run.name}", not same, expected="terms of their own", got="the same term").saying(
                    diagnosis=f"This {criterion.name} of {run.name} gets the same scores and labels as one before it: "
                    "one term is counted twice, and another is missing.",
                    place=criterion.place,
                    mend="give it its own scores, such as those of the other direction (scores.t())",
                )
            )
    return together(parts, "none of its losses is a sum of several")


@check("losses-for-balance-are-added", roles=("model",))
def balance_is_added(impl: Any, draw: Draw) -> Evidence:
    """A loss for the balance of experts is added to the whole, not subtracted."""
    parts = []
    for run in impl.build("model", {}).loss_runs():
        for name, slope in run.terms.items():
            if slope == 0:
                continue  # its factor is 0: it is switched off
            parts.append(
                true(f"{name} is added by {run.name}", slope > 0, expected="a factor above 0", got=slope).saying(
                    diagnosis=f"The loss falls as {name} grows: training makes it as large as it can.",
                    place=run.place,
                    mend=f"add {name}, do not subtract it",
                )
            )
    return together(parts, "it returns no loss for the balance of experts beside its loss")


@check("losses-for-balance-teach-the-router", roles=("model",))
def balance_teaches(impl: Any, draw: Draw) -> Evidence:
    """A loss for balance that forward hands out has a gradient."""
    found = impl.build("model", {}).balance_without_gradient()
    name, place = found or ("", "")
    return true("every loss for balance has a gradient", found is None, got=f"{name} has none").saying(
        diagnosis=f"{name} has no gradient: it is computed of detached numbers or of counts, and balances nothing.",
        place=place,
        mend="multiply the shares of the choices by the router's mean probabilities, which keep their gradient",
    )


@check("losses-add-no-terms-without-a-gradient", roles=("model",))
def terms_teach(impl: Any, draw: Draw) -> Evidence:
    """A number that a part computes of its input and a loss adds has a gradient."""
    subject = impl.build("model", {})
    found = subject.terms_in_vain()
    loss, path = found[0] if found else ("", "")
    return true("every term of the loss has a gradient", not found, got=f"a number that {path} gives has none").saying(
        diagnosis=f"{loss} adds a number that {path} gives without a gradient: it moves the loss and teaches nothing.",
        place=subject.line_of(r"\.detach\(|no_grad|\.data\b|\.item\("),
        mend="compute it of numbers that keep their gradient: without detach and no_grad, not of counts alone",
    )


@check("losses-for-balance-leave-padding-out-altogether", roles=("model",))
def balance_leaves_padding_out(impl: Any, draw: Draw) -> Evidence:
    """A loss for balance that leaves padding out of its probabilities leaves it out of its counts, too."""
    found = impl.build("model", {}).balance_counts_padding()
    name, place = found or ("", "")
    return true("what stands in the padding changes no loss for balance", found is None, got=f"{name} changes").saying(
        diagnosis=f"{name} leaves padding out of the router's probabilities and counts its choices.",
        place=place,
        mend="take the choices of real tokens only, as the probabilities",
    )


def _same_labels(one: Any, other: Any) -> bool:
    return (
        other.reaches is not None
        and one.target.shape == other.target.shape
        and bool((one.target == other.target).all())
    )


@check("losses-teach-the-next-word", roles=(*CAUSAL, "masked_language_model"))
def teaches_the_next_word(impl: Any, draw: Draw) -> Evidence:
    """The scores that follow a word are taught the word behind it, of the same sentence; those of a masked word are
    taught that word."""
    try:
        subject, behind = causal_model(impl), 1
    except NotProvided:
        subject, behind = impl.build("masked_language_model", {}), 0
    if subject.line_of(OTHER_ORDERS):
        raise NotProvided("its code speaks of another order of words")
    parts = [part for run in _beside(subject) for part in _of_lessons(run, behind)]
    return together(parts, "no loss beside forward tells which word it teaches")


def _of_lessons(run: Any, behind: int) -> Iterator[Evidence]:
    pairs = [(one.read, one.taught) for one in run.lessons if one.read and one.taught and one.weight > TINY]
    if not pairs:
        return
    what = f"the word that {run.name} teaches"
    mixed = next((pair for pair in pairs if pair[0][1] != pair[1][1]), None)
    if mixed is not None:
        (_, row, at), (_, other, _) = mixed
        yield true(what, False, expected=f"a word of sentence {row}", got=f"a word of sentence {other}").saying(
            diagnosis=f"{run.name} teaches position {at} of sentence {row} a word of sentence {other}: scores and "
            "labels are flattened in different orders.",
            place=run.place,
            mend="bring both into one order of sentences and positions",
        )
        return
    shifts: dict[tuple[int, str, str], set[int]] = {}
    for one in run.lessons:
        if one.read and one.taught and one.weight > TINY:
            shifts.setdefault((one.criterion, one.read[0], one.taught[0]), set()).add(one.taught[2] - one.read[2])
    right = {key: found <= ({behind} if key[1] == key[2] else {0, behind}) for key, found in shifts.items()}
    ahead = any(right[key] and len(shifts[key]) == 1 for key in shifts)
    for key, found in shifts.items():
        if ahead and min(found) > behind:
            continue  # another head looks further ahead
        shift = min(found, key=lambda s: (s in (0, behind), s))
        said = "the word that it has just read" if shift == 0 else f"the word {shift:+d} from the one that it has read"
        ok = right[key] and len(found) == 1
        yield true(what, ok, expected=f"the word {behind:+d} from the one that was read", got=said).saying(
            diagnosis=f"{run.name} teaches each position {said}"
            + (": it learns to copy." if shift == 0 else ": its labels are shifted wrongly."),
            place=run.label_place,
            mend="compare the scores of text[:, :-1] with text[:, 1:]" if behind else "shift nothing",
        )


@check("losses-teach-every-word", roles=CAUSAL)
def teaches_every_word(impl: Any, draw: Draw) -> Evidence:
    """Of a sentence without padding the last word is taught, too: without it nobody learns where to end."""
    subject = causal_model(impl)
    parts = []
    for run in _beside(subject):
        taught = {one.taught for one in run.lessons if one.taught and one.weight > TINY}
        for name in {place[0] for place in taught}:
            length = run.texts[name].shape[1]
            seen = sorted({place[2] for place in taught if place[0] == name})
            fed = {one.read[2] for one in run.lessons if one.read and one.read[0] == name}
            if run.prefix and len(run.texts) == 1 and seen[-1] < run.prefix:
                parts.append(_prefix_alone(run, name, seen))
                continue
            alone = len(run.texts) == 1 or (subject.calling.two_sided and bool(fed))
            if alone and seen and seen == list(range(seen[0], seen[-1] + 1)) and len(seen) >= length - 3:
                if run.prefix:
                    parts.append(_first_behind(run, name, seen[0]))
                parts.append(
                    true(f"the last word of {name} is taught by {run.name}", seen[-1] == length - 1, got=seen).saying(
                        diagnosis=f"{run.name} never teaches the last word of a sentence: where a text ends is not "
                        "learnt.",
                        place=run.label_place,
                        mend="count all positions whose next word is real",
                    )
                )
    return together(parts, "no loss beside forward teaches one text")


def _prefix_alone(run: Any, name: str, seen: list[int]) -> Evidence:
    what = f"the words of {name} behind its prefix are taught by {run.name}"
    return true(what, False, expected=f"words from {run.prefix} on", got=f"words {seen}").saying(
        diagnosis=f"{run.name} teaches the prefix that is given, and nothing of what stands behind it.",
        place=run.place,
        mend="count the targets at and behind the length of the prefix",
    )


def _first_behind(run: Any, name: str, first: int) -> Evidence:
    """Whether the first word behind a prefix that is given is taught."""
    what = f"the first word of {name} behind its prefix is taught by {run.name}"
    return true(what, first <= run.prefix, expected=f"words from {run.prefix} on", got=f"words from {first} on").saying(
        diagnosis=f"{run.name} leaves out the first word behind a prefix of {run.prefix}: it is never learnt.",
        place=run.place,
        mend="count the targets at and behind the length of the prefix",
    )


@check("losses-teach-no-padding", roles=(*CAUSAL, "masked_language_model"))
def teaches_no_padding(impl: Any, draw: Draw) -> Evidence:
    """Padding is no label, where the model itself says which word is padding and hides it."""
    try:
        subject = causal_model(impl)
    except NotProvided:
        return _no_padding_from_nowhere(impl.build("masked_language_model", {}))
    parts = []
    for run in padded_runs(subject):
        counted = _padding(subject, run)
        if counted is not None:
            weights, pads = counted
            parts.append(
                true(f"{run.name} teaches no padding", not bool((weights[pads] > TINY).any()), got="padding").saying(
                    diagnosis=f"{run.name} teaches padding: it counts as if it were words.",
                    place=run.ignored_place,
                    mend=f"ignore_index={subject.pad_id}",
                )
            )
    return together(parts, "no loss beside forward meets padding")


def _no_padding_from_nowhere(subject: Any) -> Evidence:
    """A model of masked words is taught no padding by texts that hold none: it would fill the words left alone."""
    if subject.pad_id is None:
        raise NotProvided("it does not say which word is padding")
    parts = []
    for run in subject.loss_runs():
        for criterion in run.criteria:
            if not criterion.of_classes or criterion.weights is None:
                continue
            if criterion.rows.shape[-1] != subject.calling.main.vocab:
                continue  # it is no word that is taught
            filled = (criterion.target.reshape(-1) == subject.pad_id) & (criterion.weights > TINY)
            share = f"{int(filled.sum())} of {len(filled)} labels"
            parts.append(
                true(f"{run.name} teaches no padding", not bool(filled.any()), got=share, expected="none").saying(
                    diagnosis=f"{run.name} teaches {share} as padding, in a text that holds none: the label of words "
                    "that are not masked is none that the loss leaves out.",
                    place=run.label_place,
                    mend="fill the labels with what the loss ignores (-100)",
                )
            )
    return together(parts, "no loss beside forward tells which word it teaches")


@check("losses-leave-padding-out-of-the-mean", roles=CAUSAL)
def leaves_padding_out(impl: Any, draw: Draw) -> Evidence:
    """A loss that is a mean is one over the real words."""
    subject = causal_model(impl)
    partly = [run for run in [*_beside(subject), *subject.loss_runs(marked=True)] if run.prefix or run.marks]
    parts = [part for run in partly if (part := _mean_of_the_taught(run)) is not None]
    with suppress(NotProvided) if parts else nullcontext():
        parts += _means_without_padding(subject)
    return together(parts, "no loss beside forward is a mean that meets padding")


def _mean_of_the_taught(run: Any) -> Evidence | None:
    """Whether a mean over some words, behind a prefix or marked, is divided by their number; None where it is none."""
    criterion = next((c for c in run.criteria if c.of_classes and c.weights is not None), None)
    share = _share(run)
    if criterion is None or share is None:
        return None
    number, real = len(criterion.weights), int((criterion.weights > TINY).sum())
    diluted = real < number and abs(share * number - 1) < 1e-3
    return true(
        f"{run.name} is a mean over the words that it teaches", not diluted, expected=f"1 / {real}", got=share
    ).saying(
        diagnosis=f"{run.name} leaves words out of the sum ({run.marks[0] if run.marks else 'the prefix'}) and counts "
        "them in the mean.",
        place=run.place,
        mend="divide by the number of words that are taught",
    )


@check("losses-count-the-words-that-a-mask-marks", roles=CAUSAL)
def counts_the_marked(impl: Any, draw: Draw) -> Evidence:
    """Of one text a loss teaches the words that its mask or its lengths mark: a word, and not the one before it."""
    parts = []
    for run in causal_model(impl).loss_runs(marked=True):
        taught = {one.taught for one in run.lessons if one.taught and one.weight > TINY}
        texts = {text for text, _, _ in taught}
        if not run.marks or len(texts) != 1 or len(run.texts) != 1:
            continue
        found = sorted(at for _, row, at in taught if row == 0)
        length = run.texts[min(texts)].shape[1]
        kept = {at: at < length - run.hidden for at in range(length)}
        for marked in (True, False):  # some masks mark what is left out
            right = [at for at in range(1, length) if kept[at] == marked]
            early = [at for at in range(1, length) if kept[at - 1] == marked]
            late = [at for at in range(1, length) if kept.get(at + 1, False) == marked]
            if found in (right, early, late):
                name = run.marks[0]
                parts.append(
                    true(f"the words that {run.name} teaches", found == right, expected=right, got=found).saying(
                        diagnosis=f"{run.name} uses {name} one place {'early' if found == early else 'late'}: it marks "
                        "the words that are read, and not those that are taught.",
                        place=run.place,
                        mend=f"shift {name} as the labels are shifted",
                    )
                )
                break
    return together(parts, "no loss of one text takes a mask or lengths that leave words out")


def _means_without_padding(subject: Any) -> list[Evidence]:
    parts = []
    unpadded = {(run.name, run.prefix): run for run in _beside(subject)}
    for run in padded_runs(subject):
        counted, full = _padding(subject, run), unpadded.get((run.name, run.prefix))
        if counted is None or full is None or bool((counted[0][counted[1]] > TINY).any()):
            continue  # the claim before this one speaks of it
        pads = counted[1]
        share, whole = _share(run), _share(full)
        real, number = int((~pads).sum()), len(pads)
        if share is not None and whole is not None and abs(whole * number - 1) < 1e-3:  # it is a mean
            diluted = abs(share * number - 1) < 1e-3
            parts.append(
                true(
                    f"{run.name} is a mean over the real words",
                    not diluted,
                    expected=f"1 / {real}",
                    got=f"1 / {number}",
                ).saying(
                    diagnosis=f"{run.name} leaves padding out of the sum and counts it in the mean.",
                    place=run.place,
                    mend="divide by the number of real words",
                )
            )
    return parts


def _share(run: Any) -> float | None:
    """What one word counts: its part of the loss, by the gradient of its score."""
    criterion = next((c for c in run.criteria if c.of_classes and c.reaches is not None), None)
    if criterion is None:
        return None
    rows, target = criterion.rows.detach().double(), criterion.target.reshape(-1)
    gradient = criterion.reaches if criterion.reaches.dim() < 3 else criterion.reaches.movedim(1, -1)
    gradient = gradient.reshape(-1, gradient.shape[-1]).double()
    at = gradient.abs().sum(-1).argmax()
    if not 0 <= int(target[at]) < rows.shape[-1]:
        return None
    wanted = rows[at].softmax(-1)
    wanted[target[at]] -= 1
    factor = float((gradient[at] * wanted).sum() / (wanted * wanted).sum())
    return factor if gradient[at].allclose(factor * wanted, atol=1e-6) else None  # else it is smoothed


def _padding(subject: Any, run: Any) -> tuple[Any, Any] | None:
    """How much each row of scores counts, and which are taught padding; None where none could be."""
    criterion = next((c for c in run.criteria if c.of_classes and c.weights is not None), None)
    fed = {one.read[0] for one in run.lessons if one.read}
    taught = {one.taught[0] for one in run.lessons if one.taught}
    if criterion is None or not taught <= fed or any(re.fullmatch(r"\w*labels?", name) for name in taught):
        return None  # labels of their own may have a mark of their own for what is ignored
    if criterion.rows.shape[-1] < subject.calling.main.vocab:
        return None  # its classes are no words: the true one among samples, the own partner in a batch
    pads = criterion.target.reshape(-1) == subject.pad_id
    return (criterion.weights, pads) if bool(pads.any()) and len(pads) == len(criterion.weights) else None


def causal_model(impl: Any) -> Any:
    try:
        return impl.build("language_model", {})
    except NotProvided:
        return impl.build("sequence_to_sequence", {})


def _beside(subject: Any, padded: bool = False) -> list[Any]:
    """The runs of losses but that of a language model's forward beside its logits, of which other claims speak."""
    told = subject.kind == "language_model" and bool(subject.calling.labels)
    return [run for run in subject.loss_runs(padded) if not (run.own and told)]


def padded_runs(subject: Any) -> list[Any]:
    """The runs with padding. Raises NotProvided where the model does not say which word is padding, or not hide it."""
    needs_a_token_of_padding(subject)
    return _beside(subject, True)


def needs_a_token_of_padding(subject: Any) -> None:
    """Raises NotProvided where the model does not say which word is padding, or not hide it: from itself, or, where it
    reads one text, from its loss alone."""
    hidden = subject.padding_of(subject.calling.main.meaning) == "token"
    ignored = not subject.calling.two_sided and subject.pad_id == subject.ignored_label()
    if subject.pad_id is None or not (hidden or ignored):
        raise NotProvided("it does not say which word is padding")
    if subject.ends_with_padding():
        raise NotProvided("its padding is its end token")


@check("losses-ask-for-no-share-below-zero", roles=(*CAUSAL, "masked_language_model"))
def asks_for_no_share_below_zero(impl: Any, draw: Draw) -> Evidence:
    """What a loss with smoothed labels asks for is a share of each word: none of them is below zero, and the label has
    the most."""
    subject = impl.build("model", {})
    parts = []
    for run in _beside(subject):
        for criterion in run.criteria:
            if criterion.is_written_out and (asked := criterion.least_share()) is not None:
                if asked == -float("inf") and re.search(r"unlike|negative|contrast|penal", run.name):
                    continue  # it is meant to lower them
                said = (
                    "lowers the score of the word that is the label: its sign is wrong."
                    if asked == -float("inf")
                    else f"asks for {asked:.4g} of each wrong word: it drives them without end, as a loss whose "
                    "smoothing has the wrong sign."
                )
                parts.append(
                    true(f"the shares that {run.name} asks for", asked > -1e-6, expected="0 or more", got=asked).saying(
                        diagnosis=f"{run.name} {said}", place=run.place, mend="smooth = -log_probs.mean(-1)"
                    )
                )
                spread = asked * criterion.rows.shape[-1]
                parts.append(
                    true(f"{run.name} asks for the label", spread < 0.5, expected="most of it", got=1 - spread).saying(
                        diagnosis=f"{run.name} spreads {min(spread, 1.0):.0%} over all words: "
                        "its smoothing is summed over the vocabulary, and not averaged.",
                        place=run.place,
                        mend="smooth = -log_probs.mean(-1)",
                    )
                )
    return together(parts, "no cross-entropy that is written out was seen")


@check("losses-take-their-softmax-once", roles=("module",))
def takes_its_softmax_once(impl: Any, draw: Draw) -> Evidence:
    """What a log-softmax or log-sum-exp of a loss is given, or a cross-entropy of pairs, has met no softmax before."""
    found = impl.build("module", {}).softmaxes_of_losses()
    one = next((one for one in found if one.twice), found[0])
    return true(f"what {one.name} gets", not one.twice, expected="scores", got="what a softmax gives").saying(
        diagnosis=f"{one.name} is given probabilities: the softmax is taken twice, so that no answer can be sure.",
        place=one.place,
        mend="give it the logits",
    )


@check("losses-get-scores-that-are-turned", roles=("model",))
def scores_are_turned(impl: Any, draw: Draw) -> Evidence:
    """A cross-entropy that takes classes before places is given the scores turned, and not in another shape."""
    parts = []
    for run in impl.build("model", {}).loss_runs():
        for criterion in run.criteria:
            if criterion.of_classes and criterion.given.dim() == 3:
                what = f"the scores that {run.name} gives {criterion.name}"
                parts.append(
                    true(
                        what, not criterion.cut_anew, expected="turned", got="the same numbers in another shape"
                    ).saying(
                        diagnosis=f"{run.name} gives the scores another shape and does not turn them: each label is "
                        "compared with scores of other words and other classes.",
                        place=criterion.place,
                        mend="logits.transpose(1, 2)",
                    )
                )
    return together(parts, "none of its losses takes classes before places")


@check("losses-compare-vectors-of-length-one", roles=("model",))
def vectors_of_length_one(impl: Any, draw: Draw) -> Evidence:
    """What a loss normalises before it compares it are vectors, and not the steps of each of their numbers."""
    subject = impl.build("model", {})
    widths = subject.table_widths()
    parts = []
    for run in subject.loss_runs():
        for (_, steps, width), place in run.over_steps:
            if width in widths and steps not in widths:
                parts.append(
                    true(f"what {run.name} normalises", False, expected="vectors", got="the steps of a text").saying(
                        diagnosis="normalize works along the second axis where nothing else is said: of states "
                        "(B, T, d) that is the time. So these are no vectors of length 1, and each step depends on "
                        "later ones.",
                        place=place,
                        mend="F.normalize(states, dim=-1)",
                    )
                )
    return together(parts, "no loss of its normalises along the second of three axes")
