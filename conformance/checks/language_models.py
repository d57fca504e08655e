"""Checks of language models, from token ids to the logits of the next token, in any design."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.frames import padded_frames_equal
from conformance.checks.options import with_every_option
from conformance.checks.whole_models import distance, equal, judged, refusal_of_one_token
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, note, true
from conformance.protocol import Array, NotProvided

LENGTH = 7


def changes(subject: Any, inputs: dict[str, Array], name: str, most: int | None = None) -> Array:
    """How much each answer changes with each token of an input, relative to the largest: ``(T of input, T of answer)``.

    The larger of two changes counts, so that one by chance without effect does not hide it. most: so many pieces of the
    input are changed at most, each as a whole.
    """
    before = subject(**inputs)["out"]
    scale = max(float(np.abs(before).max()), 1e-9)
    length = inputs[name].shape[1]
    pieces = np.array_split(np.arange(length), min(length, most or length))
    found = np.zeros((len(pieces), before.shape[1] if before.ndim == 3 else 1))
    for number, at in enumerate(pieces):
        for seed in (20, 21):
            other = subject.example(len(inputs[name]), length, seed, **{name: length})[name]
            moved, new = {**inputs, name: inputs[name].copy()}, other[:, at]
            moved[name][:, at] = new if name == "x" else np.where(new == inputs[name][:, at], other[:, at - 1], new)
            after = subject(**moved)["out"]
            if after.shape != before.shape:
                raise NotProvided("its answer changes its shape with the tokens")
            moved_by = np.abs(after - before)
            found[number] = np.maximum(found[number], np.nan_to_num(moved_by, nan=np.inf).max((0, -1)) / scale)
    return found


def window(seen: Array) -> str:
    """What part of the earlier tokens each position sees, by design: a band or chunks of a constant width above 1; ""
    when neither. seen: bool, (token, answer)."""
    pairs = [(at, row) for row in range(len(seen)) for at in range(row + 1)]
    for width in range(2, len(seen)):
        if all(seen[at, row] == (row - at < width) for at, row in pairs):
            return f"a window of {width}"
        if all(seen[at, row] == (row // width == at // width) for at, row in pairs):
            return f"chunks of {width}"
    return ""


def prefix_of(subject: Any, found: Array) -> int:
    """How many tokens at the start see each other, where the model says that it has a prefix; else 0."""
    sees = found > 10 * subject.noise
    for length in range(2, len(sees)):
        expected = np.tri(len(sees), dtype=bool).T
        expected[:length, :length] = True
        if np.array_equal(sees, expected):
            return length if subject.line_of("(?i)prefix") else 0
    return 0


def usable_length(subject: Any) -> int:
    return subject.calling.main.length or min(LENGTH, subject.longest or LENGTH)


def with_head(impl: Any) -> Any:
    """The language model, of either kind, or the model from sequence to sequence."""
    for kind in ("language_model", "masked_language_model"):
        with suppress(NotProvided):
            return impl.build(kind, {})
    return impl.build("sequence_to_sequence", {})


@check("language-model-is-causal", roles=("language_model",))
@with_every_option
def is_causal(impl: Any, draw: Draw) -> Evidence:
    """No token changes the logits of an earlier position."""
    subject = impl.build("language_model", {})
    if subject.last_only:
        subject = subject.by_rows()
    length = usable_length(subject)
    if length < 2:
        raise NotProvided("it takes one token only")
    found = changes(subject, subject.example(2, length, seed=12), "ids")
    ahead = np.tril(found, -1)  # row: the token that changes; column: the answer before it
    worst = np.unravel_index(int(ahead.argmax()), ahead.shape)
    own = max(float(np.diag(found).max()), float(np.diag(found, 1).max()))  # of a shifted input: the next one
    draw.bites(own > subject.noise, "a token changes its own answer, or the next one")
    if prefix := prefix_of(subject, found):
        return note("the tokens of a prefix see each other, and what follows is causal", f"the first {prefix}")
    evidence = close("change of earlier logits", np.array(ahead.max()), np.array(0.0), 10 * subject.noise, "rounding")
    answer = "what its last layer gives for" if subject.last_only else "the logits of"
    return judged(subject, evidence).saying(
        diagnosis=f"The model sees the future: token {worst[0]} changes {answer} position {worst[1]}, before it.",
        place=subject.future_place() or subject.place(),
        mend="hide later keys before the softmax (a causal mask)",
        pictures={
            "expected: which token (column) may change which answer (row)": np.tri(length),
            "got": (10 * subject.noise < found.T).astype(float),
        },
    )


@check("language-model-is-causal-behind-its-prefix", roles=("language_model",))
def is_causal_behind_a_prefix(impl: Any, draw: Draw) -> Evidence:
    """No token behind a prefix changes the logits of an earlier position, in the prefix or behind it."""
    subject = impl.build("language_model", {})
    length, prefix = usable_length(subject), 3
    told = subject.with_prefix(prefix)
    if subject.last_only or length < prefix + 3:
        raise NotProvided("it answers for the last position only, or takes a few tokens only")
    found = changes(told, told.example(2, length, seed=12), "ids")
    if found[prefix - 1, 0] <= 10 * subject.noise:
        raise NotProvided("the tokens of its prefix do not see each other")
    ahead = np.tril(found, -1)
    ahead[:prefix] = 0.0
    worst = np.unravel_index(int(ahead.argmax()), ahead.shape)
    evidence = close("change of earlier logits", np.array(ahead.max()), np.array(0.0), 10 * subject.noise, "rounding")
    return judged(told, evidence).saying(
        diagnosis=f"With a prefix of {prefix} tokens, token {worst[0]} behind it changes the logits of position "
        f"{worst[1]}, before it: it is seen where it is to be predicted.",
        place=told.future_place() or subject.place(),
        mend="let every token see the keys of the prefix (key < prefix_len), and those up to itself",
        pictures={
            "expected: which token (column) may change which answer (row)": _behind_prefix(length, prefix),
            "got": (10 * subject.noise < found.T).astype(float),
        },
    )


def _behind_prefix(length: int, prefix: int) -> Array:
    expected = np.tri(length)
    expected[:prefix, :prefix] = 1.0
    return expected


@check("documents-of-one-row-are-apart", roles=("language_model",))
def documents_are_apart(impl: Any, draw: Draw) -> Evidence:
    """In a row of two documents no word changes an answer in the other one, or an earlier one in its own."""
    subject = impl.build("language_model", {})
    length = usable_length(subject)
    if subject.last_only or length < 6:
        raise NotProvided("it answers for the last position only, or takes a few tokens only")
    numbers = np.arange(length) * 2 // length
    told, place = subject.with_two_documents()
    found = changes(told, told.example(2, length, seed=12), "ids")
    draw.bites((np.diag(found) > subject.noise).any(), "a token changes its own answer")
    apart, ahead = found * (numbers[:, None] != numbers), np.tril(found, -1)
    worst = max(float(apart.max()), float(ahead.max()))
    evidence = close(
        "change of other documents, or of earlier answers", np.array(worst), np.array(0.0), 10 * subject.noise
    )
    seen = "words of another document" if apart.max() > 10 * subject.noise else "later words of its own document"
    if evidence.ok:
        return judged(subject, all_of(evidence, _row_of_documents_alone(subject, length)))
    return judged(subject, evidence).saying(
        diagnosis=f"In a row of two documents a word sees {seen}.",
        place=place,
        mend="let a word see the words that are no later, and of its own document",
        pictures={
            "expected: which token (column) may change which answer (row)": np.tri(length)
            * (numbers[:, None] == numbers),
            "got": (10 * subject.noise < found.T).astype(float),
        },
    )


def _row_of_documents_alone(subject: Any, length: int) -> Evidence:
    """Whether a row of two documents has the answer that it has beside another row, whose second document begins
    elsewhere."""
    begins = (length // 2, length // 2 + 1)
    (both, _), (one, _) = subject.with_two_documents(begins), subject.with_two_documents(begins[1:])
    inputs = subject.example(2, length, seed=14)
    got = both(**inputs)["out"][1:]
    expected = one(**{name: value[1:] for name, value in inputs.items()})["out"]
    return equal("the answer to a row of documents beside another row", subject, got, expected).saying(
        diagnosis="The documents of another row change the answer: where a document begins is not told row by row.",
        place=subject.line_of(r"cummax|cummin|cumsum|diff\(") or subject.place(),
        mend="count along the words of each row",
    )


@check("language-model-is-causal-in-training", roles=("language_model",))
def is_causal_in_training(impl: Any, draw: Draw) -> Evidence:
    """In training mode, too, no token changes the logits of an earlier position."""
    subject = impl.build("language_model", {})
    if subject.last_only and not subject.calling.labels:
        raise NotProvided("it answers for the last position only, which sees all")
    if subject.normalises_over_batches():
        raise NotProvided("batch statistics of training see all tokens")
    length = usable_length(subject)
    inputs = subject.example(2, length, seed=12)
    other = {**inputs, "ids": inputs["ids"].copy()}
    other["ids"][:, -1] = subject.example(2, length, seed=13)["ids"][:, 0]
    if subject.last_only:
        inputs["labels"] = other["labels"] = inputs["ids"]
    before, after = (subject.in_training_without_drops(**x)["out"] for x in (inputs, other))
    if before.ndim < 3 or before.shape[1] != length:
        raise NotProvided("its answer in training mode has no row for each position")
    evidence = close(
        "change of earlier logits by the last token, in training mode",
        after[:, :-1],
        before[:, :-1],
        10 * subject.noise * float(np.abs(before).max()),
        "rounding",
    )
    return judged(subject, evidence).saying(
        diagnosis="In training mode the model sees the future: the last token changes earlier logits.",
        place=subject.future_place() or subject.place(),
        mend="hide later keys in training mode, too",
    )


@check("language-model-sees-every-earlier-token", roles=("language_model",))
def sees_every_earlier_token(impl: Any, draw: Draw) -> Evidence:
    """Every earlier token reaches every later position."""
    subject = impl.build("language_model", {})
    length = usable_length(subject)
    inputs = subject.example(2, length, seed=14)
    found = changes(subject, inputs, "ids")
    seen = found > 0 if subject.noise < 1e-8 else found > subject.noise
    if subject.last_only:
        missed = [(at, length - 1) for at in range(length) if not seen[at, 0]]
    else:
        missed = [(at, row) for row in range(length) for at in range(row + 1) if not seen[at, row]]
    if not missed:
        return true("every earlier token changes every later answer", True)
    if missed == [(at, at) for at in range(length)] and length > 1:
        return note("each position answers for its own token, behind a start that forward puts before them", length)
    if not subject.last_only and (shown := window(seen)):
        return note("each position sees a part of the earlier tokens", shown)
    at, row = missed[0]
    return true(
        "every earlier token changes every later answer", False, got=f"token {at} does not reach position {row}"
    ).saying(
        diagnosis=f"Token {at} does not reach the logits of position {row}, which comes after it.",
        place=subject.attention_place() or subject.place(),
        pictures={"expected": np.tri(length), "got": seen.T.astype(float)} if not subject.last_only else None,
    )


@check("language-model-prefix-has-the-same-logits", roles=("language_model",))
def prefix_has_the_same_logits(impl: Any, draw: Draw) -> Evidence:
    """The logits of a prefix are the prefix of the logits."""
    subject = impl.build("language_model", {})
    if subject.last_only:
        subject = subject.by_rows()
    if not subject.free_length:
        return note("it takes sentences of one length only", f"{subject.calling.main.length} tokens")
    if subject.counts_from_the_end():
        return note("places are counted from the end of the input, and padding stands in front", "from the end")
    length = usable_length(subject)
    inputs = subject.example(2, length, seed=15)
    whole = subject(**inputs)["out"]
    parts = []
    for cut in range(2 if refusal_of_one_token(subject) else 1, length):
        short = subject(ids=inputs["ids"][:, :cut])["out"]
        parts.append(equal(f"logits of the first {cut} tokens", subject, short, whole[:, :cut]))
    if not all_of(*parts).ok and prefix_of(subject, changes(subject, inputs, "ids")):
        raise NotProvided("the tokens of its prefix see each other")
    if not all_of(*parts).ok and subject.scales_by_length():
        return note(
            "the logits of a prefix change with the length of the input, by which it scales", subject.scales_by_length()
        )
    return judged(subject, all_of(*parts)).saying(
        diagnosis="The logits of a prefix change when words follow it, or with its length.",
        place=subject.attention_place() or subject.place(),
    )


@check("language-model-gives-logits", roles=("language_model",))
def gives_logits(impl: Any, draw: Draw) -> Evidence:
    """What it returns are logits, not probabilities: a cross-entropy takes the softmax itself."""
    subject = impl.build("language_model", {})
    out = subject(**subject.example(2, usable_length(subject), seed=16))["out"]
    probable = bool((out >= 0).all() and np.abs(out.sum(-1) - 1).max() < 1e-5)
    if probable and not subject.calling.labels:
        return note("it returns probabilities; a cross-entropy of them would take the softmax twice", "rows sum to one")
    return true("its rows are no probabilities", not probable, got="rows of positive numbers that sum to one").saying(
        diagnosis="The model returns probabilities where a cross-entropy expects logits: the softmax is taken twice.",
        place=subject.place(),
        mend="return the head's output without softmax",
    )


@check("language-model-can-be-sure", roles=("language_model", "sequence_to_sequence"))
def can_be_sure(impl: Any, draw: Draw) -> Evidence:
    """Logits that are bounded leave room for a probability above one half."""
    try:
        subject = impl.build("language_model", {})
    except NotProvided:
        subject = impl.build("sequence_to_sequence", {})
    found = subject.bound_of_logits()
    if found is None:
        raise NotProvided("its logits have no bound")
    bound, place = found
    highest = 1 / (1 + (subject.calling.outputs - 1) * np.exp(-2 * bound))
    return true("a probability above one half can be reached", highest > 0.5, got=f"{highest:.3g} at most").saying(
        diagnosis=f"Logits lie between -{bound:.4g} and {bound:.4g}: no word can be likelier than {highest:.3g}.",
        place=place,
        mend="multiply by the cap again: cap * tanh(logits / cap)",
    )


@check("language-model-padding-changes-nothing", roles=("language_model",))
def padding_changes_nothing(impl: Any, draw: Draw) -> Evidence:
    """Padding does not change the logits of real tokens, where the model takes a padding mask: neither behind a
    sentence, nor what stands in its place before one."""
    subject = impl.build("language_model", {})
    inputs = subject.example(2, max(3, usable_length(subject) - 2), seed=19)
    behind = padded_equal(subject, inputs, "ids", draw)
    return all_of(behind, *hidden_in_front(subject, inputs)) if behind.ok else behind


def hidden_in_front(subject: Any, inputs: dict[str, Array]) -> list[Evidence]:
    """The answers to real tokens with one of two words in the hidden place of the first token. Where they are given by
    their last position only nothing is asked."""
    if subject.padding_of("ids") != "mask" or subject.masks_losses_only():
        return []
    ids = inputs["ids"]
    real = np.ones(ids.shape, bool)
    real[0, 0] = False
    answers = []
    for word in subject.example(1, seed=22)["ids"][0, :2]:
        other = {**inputs, "ids": ids.copy(), "padding": real}
        other["ids"][0, 0] = word
        answers.append(subject(**other)["out"])
    if answers[0].ndim < 3 or answers[0].shape[1] != ids.shape[1]:
        return []
    if not all(np.isfinite(answer).all() for answer in answers):
        return []  # a row that sees nothing is NaN, as softmax of minus infinities is
    first, second = (answer[:1, 1:] for answer in answers)
    found = equal("the answer to real tokens for another word in a hidden place before them", subject, first, second)
    return [
        found.saying(
            diagnosis="The word in a hidden place changes the answer for the real tokens behind it: "
            "the mask hides it not at all, or too weakly.",
            place=subject.attention_place() or subject.place(),
            mend="add minus infinity (or torch.finfo(dtype).min) to the scores of hidden tokens",
        )
    ]


def _of_methods(subject: Any, padded: dict[str, Array], alone: dict[str, Array]) -> list[Evidence]:
    """Whether methods that give each text a number or a vector give a padded text that of the text alone."""
    expected = subject.rows_of_methods(alone)
    return [
        equal(f"{method} of a padded sentence", subject, got[:1], expected[method][0]).saying(
            diagnosis=f"{method} counts padding: a sentence has another result with padding beside it than alone.",
            place=place,
            mend="multiply by the mask before the sum, and divide by its sum",
        )
        for method, (got, place) in subject.rows_of_methods(padded).items()
        if method in expected and got[:1].shape == expected[method][0].shape
    ]


def padded_equal(subject: Any, inputs: dict[str, Array], name: str, draw: Draw) -> Evidence:
    """The answers to real tokens, with and without padding behind them, whatever stands there; before them where places
    are counted from the end. Of words two are padding, of many frames, of which a model makes fewer, a third."""
    key = "padding" if name in ("ids", "x") else f"{name}_padding"
    how = subject.padding_of(name)
    if how is None:
        raise NotProvided("it takes no padding mask and says of no token that it is padding")
    if subject.answers_stretches:
        return padded_frames_equal(subject, name, draw)
    data = inputs[name]
    batch, length = data.shape[:2]
    in_front = how != "lengths" and subject.counts_from_the_end()
    count = (
        length // 3 if how == "lengths" and name == "x" and length > 24 else 2
    )  # frames that are put together to few
    pads, words = (slice(0, 2), slice(2, None)) if in_front else (slice(length - count, None), slice(0, length - count))
    real = np.ones((batch, length), bool)
    real[0, pads] = False
    fillers = [np.full(2, subject.pad_id)] if how == "token" else []
    if how in ("mask", "lengths"):
        fillers = [subject.example(1, max(count, 6), seed=s)[name][0, :count] for s in (22, 23)]
    answers = []
    for filler in fillers:
        padded = {**inputs, name: data.copy(), key: real}
        padded[name][0, pads] = filler
        answers.append(subject(**padded)["out"])
    alone = {other: value[:1] for other, value in inputs.items()}
    alone[name] = data[:1, words]
    is_free = subject.free_length and not subject.has_a_second_sequence()  # which would be shorter beside it, too
    short = subject(**alone)["out"] if is_free else answers[-1][:1]
    follows = subject.positions and name == subject.calling.main.meaning
    cut = words if follows else slice(None)
    if follows and short.shape[1] == length:
        short = short[:, cut]
    parts, beside = [], []
    for answer in answers:
        got, expected = (answer[:1, cut], short) if follows else (answer[:1], short)
        parts.append(
            equal("the answer to a padded sentence beside the sentence alone", subject, got, expected, "rounding")
        )
        parts.append(true("the answers are finite", bool(np.isfinite(got).all()), got="nan or inf"))
    if is_free and how in ("mask", "token", "lengths"):  # what stands beside the answer, and is one a row
        padded, alone_beside = subject.beside(padded), subject.beside(alone)
        names = [
            n for n, v in alone_beside.items() if v.ndim == 2 and n in padded and v.shape[1:] == padded[n].shape[1:]
        ]
        beside = [equal(f"{n} of a padded sentence", subject, padded[n][:1], alone_beside[n]) for n in names]
    draw.bites(True, "padding")
    evidence = judged(subject, all_of(*parts, *beside))
    if evidence.ok:
        whole = {**inputs, name: data, key: real}
        texts = {**alone, key: real[:1, words]}
        return all_of(evidence, *_of_methods(subject, whole, texts)) if is_free and how == "mask" else evidence
    kept = [answer[:1, cut] if follows else answer[:1] for answer in answers]
    whatever = len(kept) > 1 and equal("the answer, whatever is padding", subject, *kept).ok
    if whatever and (line := subject.spreads_places()):
        return note("each place is told as a share of the padded length", line.rpartition("/")[2])
    if beside and all_of(*parts).ok:
        said = f"{evidence.what} is another than that of the sentence alone: a place is read for it that is padding."
        return evidence.saying(diagnosis=said, place=subject.line_of(r"\[:,\s*-1\s*[\],]") or subject.place())
    seen = subject.padding_seen(name)
    return evidence.saying(
        diagnosis="Padding changes the answer for real tokens: "
        f"{seen.words or 'it is not hidden everywhere, or it is counted'}.",
        place=str(seen.place or "") or subject.attention_place() or subject.place(),
        mend="hide the padding from every attention before the softmax, and leave it out of means",
    )


@check("language-model-learns-a-repeated-batch", roles=("language_model",))
def learns(impl: Any, draw: Draw) -> Evidence:
    """A few gradient steps on one batch lower its loss, for some usual rate."""
    subject = impl.build("language_model", {})
    if subject.last_only:
        raise NotProvided("it answers for the last position only")
    before, after = subject.learns(usable_length(subject))
    return true(
        "the loss after 5 steps is lower", after < before, expected=f"below {before:.4g}", got=f"{after:.4g}"
    ).saying(
        diagnosis="Gradient steps on one batch do not lower its loss, at any of three rates.", place=subject.place()
    )


@check(
    "language-model-tied-head-is-one-tensor",
    roles=("language_model", "masked_language_model", "sequence_to_sequence"),
)
def tied_head(impl: Any, draw: Draw) -> Evidence:
    """Where the code ties the head to the embedding they are one tensor, also after loading a state dict."""
    subject = with_head(impl)
    said = subject.says_tied()
    copied = subject.copied_head() if said is None else None
    if copied:
        return true("head and embedding are one tensor", False, got=f"{copied} is a copy").saying(
            diagnosis=f"{copied} starts as a copy of the table of tokens and is another tensor: the two drift apart.",
            place=subject.line_of(r"\.copy_\(|\.clone\(|deepcopy|Parameter\(.*weight") or subject.made_at(copied),
            mend="assign the parameter itself: head.weight = embedding.weight",
        )
    if said is None:
        raise NotProvided("no line of its code ties its head to the embedding")
    place, tied = said
    evidence = true("head and embedding are one tensor", tied, got="two tensors").saying(
        diagnosis="The code ties the head to the embedding, and they are two tensors: one was copied or replaced.",
        place=place,
        mend="tie them last, by assigning the parameter itself",
    )
    return evidence


__all__ = ["changes", "distance", "padded_equal", "usable_length"]
