"""Checks of whole sequence-to-sequence models, encoders and classifiers, in any design."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.language_models import changes, padded_equal, window
from conformance.checks.options import with_every_option
from conformance.checks.padded_texts import written_behind_padding
from conformance.checks.whole_models import distance, equal, judged
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, note, true
from conformance.protocol import Array, NotProvided
from conformance.reference.training import cross_entropy

SOURCE, TARGET = 7, 6
PARALLEL = r"(?i)non.?auto.?regressive|mask.?predict"
"""Words by which a decoder says that it writes all words at once."""
_MOST_PIECES = 64
"""So many pieces of a long input, such as a wave, are changed, one after the other."""


def pair(subject: Any, seed: int, source: int = SOURCE, target: int = TARGET, batch: int = 2) -> dict[str, Array]:
    """A source and a target of different lengths, where the model takes them."""
    inputs: dict[str, Array] = subject.example(batch, src=source, tgt=target, seed=seed)
    return inputs


@check("sequence-model-target-is-causal", roles=("sequence_to_sequence",))
@with_every_option
def target_is_causal(impl: Any, draw: Draw) -> Evidence:
    """No target token changes the logits of an earlier target position."""
    subject = impl.build("sequence_to_sequence", {})
    inputs = pair(subject, 40)
    found = changes(subject, inputs, "tgt")
    if found.shape[0] != found.shape[1]:
        raise NotProvided("its answer has no row for each target token")
    ahead = np.tril(found, -1)
    worst = np.unravel_index(int(ahead.argmax()), ahead.shape)
    draw.bites((np.diag(found) > subject.noise).any(), "a target token changes its own answer")
    if (np.diag(found) <= subject.noise).all() and (np.diag(found, 1) > subject.noise).any():
        return note("an answer sees the target tokens before its own only", "the model shifts the target by itself")
    evidence = close("change of earlier logits", np.array(ahead.max()), np.array(0.0), 10 * subject.noise, "rounding")
    if not evidence.ok and subject.line_of(PARALLEL) and (found > 0).all():
        return note("each answer sees the whole target, as the code says", "a decoder that is not autoregressive")
    return judged(subject, evidence).saying(
        diagnosis=f"The decoder sees the future: target token {worst[0]} changes the logits of position {worst[1]}, "
        "which is before it.",
        place=subject.future_place() or subject.place(),
        mend="hide later target tokens in the decoder's self-attention",
        pictures={
            "expected: which token (column) may change which answer (row)": np.tri(len(found)),
            "got": (10 * subject.noise < found.T).astype(float),
        },
    )


@check("sequence-model-target-sees-every-earlier-token", roles=("sequence_to_sequence",))
def target_sees_earlier(impl: Any, draw: Draw) -> Evidence:
    """Every earlier target token reaches every later target position."""
    subject = impl.build("sequence_to_sequence", {})
    found = changes(subject, pair(subject, 41), "tgt")
    if found.shape[0] != found.shape[1]:
        raise NotProvided("its answer has no row for each target token")
    missed = [(at, row) for row in range(len(found)) for at in range(row) if found[at, row] == 0]
    if missed and (shown := window(found > 0)):
        return note("each position sees a part of the earlier target tokens", shown)
    at, row = missed[0] if missed else (0, 0)
    return true(
        "every earlier target token changes every later answer", not missed, got=f"token {at}, position {row}"
    ).saying(
        diagnosis=f"Target token {at} does not reach the logits of position {row}, which comes after it.",
        place=subject.attention_place() or subject.place(),
        mend="mask only what is later; give the decoder the target, too",
    )


@check("sequence-model-every-source-token-reaches-every-answer", roles=("sequence_to_sequence",))
def source_reaches_target(impl: Any, draw: Draw) -> Evidence:
    """Every source token reaches the logits of every target position."""
    subject = impl.build("sequence_to_sequence", {})
    found = changes(subject, pair(subject, 42), "src")
    missed = np.argwhere(found == 0)
    at, row = missed[0] if len(missed) else (0, 0)
    return true("every source token changes every answer", not len(missed), got=f"token {at}, position {row}").saying(
        diagnosis=f"Source token {at} does not reach the logits of target position {row}"
        + (": the source is hidden as if it were the future." if len(missed) and at > row else "."),
        place=subject.attention_place() or subject.place(),
        mend="let cross-attention and the encoder see all of the source that is not padding",
    )


@check("sequence-model-target-prefix-has-the-same-logits", roles=("sequence_to_sequence",))
def target_prefix(impl: Any, draw: Draw) -> Evidence:
    """Step by step equals one pass: the logits of a prefix of the target are the prefix of the logits."""
    subject = impl.build("sequence_to_sequence", {})
    if not subject.free_length:
        raise NotProvided("it takes one length only")
    inputs = pair(subject, 43)
    whole = subject(**inputs)["out"]
    if whole.ndim < 3:
        raise NotProvided("its answer has no row for each target token")
    parts = []
    for cut in range(1, TARGET):
        short = subject(src=inputs["src"], tgt=inputs["tgt"][:, :cut])["out"]
        parts.append(equal(f"logits of the first {cut} target tokens", subject, short, whole[:, : short.shape[1]]))
    if not all_of(*parts).ok and subject.line_of(PARALLEL):
        raise NotProvided("its decoder is not autoregressive, as its code says")
    return judged(subject, all_of(*parts)).saying(
        diagnosis="Decoding step by step gives other logits than one pass over the target.",
        place=subject.attention_place() or subject.place(),
    )


@check("sequence-model-source-padding-changes-nothing", roles=("sequence_to_sequence", "language_model"))
@with_every_option
def source_padding(impl: Any, draw: Draw) -> Evidence:
    """Padding of the source changes no answer, where the model hides padding; so does that of frames beside words."""
    try:
        subject = impl.build("sequence_to_sequence", {})
    except NotProvided:
        return _frames_beside(impl.build("language_model", {}))
    return padded_equal(subject, pair(subject, 44), "src", draw)


def _frames_beside(subject: Any) -> Evidence:
    """How much padding stands behind frames changes no answer for the words."""
    whole, other, what = subject.frames_beside()
    evidence = equal(f"the answer with {what} of its frames", subject, other, whole, "rounding")
    return judged(subject, evidence).saying(
        diagnosis="Padding of the frames changes the answers for the words, though forward is told how many frames are "
        "real: it is not hidden everywhere.",
        place=subject.attention_place() or subject.place(),
        mend="hide the padding of the frames from the encoder's attention and from that of the decoder to it",
    )


@check("sequence-model-target-padding-changes-nothing", roles=("sequence_to_sequence",))
@with_every_option
def target_padding(impl: Any, draw: Draw) -> Evidence:
    """Padding behind the target changes no answer to its real tokens."""
    subject = impl.build("sequence_to_sequence", {})
    return padded_equal(subject, pair(subject, 45), "tgt", draw)


@check("sequence-model-takes-lengths-and-vocabularies-apart", roles=("sequence_to_sequence",))
def sides_apart(impl: Any, draw: Draw) -> Evidence:
    """A source longer or shorter than the target works, and the answer has a row for each target token."""
    subject = impl.build("sequence_to_sequence", {})
    if not subject.free_length:
        raise NotProvided("it takes one length only")
    parts = []
    for source, target in ((3, 6), (6, 3), (5, 5), (6, 1)):
        out = subject(**pair(subject, 46, source, target))["out"]
        ok = out.ndim < 3 or out.shape[1] == target
        parts.append(
            true(f"a source of {source} and a target of {target}", ok and np.isfinite(out).all(), got=out.shape)
        )
    return all_of(*parts).saying(
        diagnosis="The lengths of source and target are mixed up, or an answer is not finite.", place=subject.place()
    )


@check("encoder-every-word-reaches-every-word", roles=("masked_language_model", "encoder_model"))
def reaches_all(impl: Any, draw: Draw) -> Evidence:
    """Every word reaches the answer for every word, before and after it."""
    subject = _encoder(impl)
    name = subject.calling.main.meaning
    batch = 1 if subject.tokens_compete else 2  # words of another sentence would take their places among experts
    inputs = subject.example(batch, _length(subject), seed=50)
    if inputs[name].ndim not in (2, 3):
        raise NotProvided("its input is no sequence")
    if subject.answers_stretches:
        inputs = subject.example(2, 32, seed=50)
    found = changes(subject, inputs, name, _MOST_PIECES if subject.answers_stretches else None)
    if found.shape[0] != found.shape[1] and not subject.answers_stretches:
        raise NotProvided("its answer has no row for each word")
    loud = found > 10 * subject.noise
    one_way = loud.any() and not (np.triu(loud, 1).any() and np.tril(loud, -1).any())
    seen = loud if subject.tokens_compete or one_way else found > 0.0  # others in a product round otherwise
    if subject.answers_stretches:
        if not _without_cut_frames(seen).all():
            seen = _in_more_data(subject, seen, name)
        seen = _without_cut_frames(seen)
    if seen.all():
        return true("every word changes every answer", True)
    if subject.answers_stretches:
        if not seen[-4:, 0].any() or not seen[:4, -1].any():
            return note("the encoder looks one way only", "it is a streaming one")
        at, row = np.argwhere(~seen)[0]
        at = at * inputs[name].shape[1] // len(found)
        return true("every frame changes every answer", False, got=f"frame {at} does not reach row {row}").saying(
            diagnosis=f"Frame {at} does not reach the answer in row {row}.",
            place=subject.attention_place() or subject.place(),
            pictures={"got": seen.T.astype(float)},
        )
    if not (np.triu(seen, 1).any() or np.tril(seen, -1).any() or subject.attention_place()):
        raise NotProvided("no word reaches another, and it has no attention: it is a part that takes each word alone")
    if not np.triu(seen, 1).any() or not np.tril(seen, -1).any():
        word = "later" if np.tril(seen, -1).any() is np.False_ else "earlier"
        if subject.kind == "masked_language_model":
            at, row = np.argwhere(~seen)[0]
            return true("every word changes every answer", False, got=f"no answer sees {word} words").saying(
                diagnosis=f"The encoder looks one way only: word {at} does not reach position {row}.",
                place=subject.attention_place() or subject.place(),
                mend="an encoder needs no causal mask",
                pictures={"expected": np.ones_like(found), "got": seen.T.astype(float)},
            )
        return note("the encoder looks one way only", f"no answer sees {word} words")
    widths = {int(np.diag(seen, k).all()) for k in range(-len(seen) + 1, len(seen))}
    if all(np.diag(seen, k).all() or not np.diag(seen, k).any() for k in range(-len(seen) + 1, len(seen))) and widths:
        return note("each position sees a window of words", f"{int(seen[len(seen) // 2].sum())} words")
    at, row = np.argwhere(~seen)[0]
    return true("every word changes every answer", False, got=f"word {at} does not reach position {row}").saying(
        diagnosis=f"Word {at} does not reach the answer at position {row}.",
        place=subject.attention_place() or subject.place(),
        pictures={"expected": np.ones_like(found), "got": seen.T.astype(float)},
    )


def _in_more_data(subject: Any, seen: np.ndarray, name: str) -> np.ndarray:
    """What each frame reaches in other data, too: a function that is zero for half of all numbers hides other frames in
    each. Frames that reach nothing are then left out."""
    others = (subject.example(2, 32, seed=seed) for seed in (53, 54, 55))
    found = [seen, *(changes(subject, inputs, name, _MOST_PIECES) > 0.0 for inputs in others)]
    some = np.logical_or.reduce(found)
    differ = any((one.any(1) != seen.any(1)).any() for one in found)
    return some[some.any(1)] if differ else some


def _without_cut_frames(seen: np.ndarray) -> np.ndarray:
    """Without the last frames, fewer than one row stands for, that reach no row: a convolution in strides leaves what
    does not fill its window."""
    reached = np.flatnonzero(seen.any(1))
    last = int(reached[-1]) + 1 if len(reached) else 0
    return seen[:last] if len(seen) - last < -(-len(seen) // seen.shape[1]) else seen


def _encoder(impl: Any) -> Any:
    """The masked language model or the encoder that it is."""
    try:
        return impl.build("masked_language_model", {})
    except NotProvided:
        return impl.build("encoder_model", {})


def _length(subject: Any) -> int:
    return subject.calling.main.length or min(6, subject.longest or 6)


@check("encoder-padding-changes-nothing", roles=("masked_language_model", "encoder_model"))
@with_every_option
def encoder_padding(impl: Any, draw: Draw) -> Evidence:
    """Padding changes no answer to real words, where the model hides padding."""
    subject = _encoder(impl)
    name = subject.calling.main.meaning
    return padded_equal(subject, subject.example(2, _length(subject) + 2, seed=51), name, draw)


@check("classifier-padding-changes-nothing", roles=("classifier",))
@with_every_option
def classifier_padding(impl: Any, draw: Draw) -> Evidence:
    """Padding changes no scores, with the pooling: it is hidden from attention and left out of means."""
    subject = impl.build("classifier", {})
    name = subject.calling.main.meaning
    many = name == "x" and subject.free_length and subject.padding_of(name) == "lengths"
    many = many and (subject.longest is None or subject.longest >= FRAMES)
    inputs = subject.example(2, FRAMES if many else _length(subject) + 2, seed=52)
    if inputs[name].ndim not in (2, 3):
        raise NotProvided("its input is no sequence")
    return padded_equal(subject, inputs, name, draw)


@check("padding-hides-what-stands-beside-it", roles=("model",))
def hides_beside(impl: Any, draw: Draw) -> Evidence:
    """What stands beside padding, such as letters beside words, changes no answer to real words."""
    subject = impl.build("model", {})
    if subject.tokens_compete:
        raise NotProvided("its tokens compete with each other")
    told, name = subject.read_beside_padding()
    return true(
        f"answers to other numbers beside padding ({told} inputs)", not name, expected="the same", got="others"
    ).saying(
        diagnosis=f"{name} stands beside the words, and what it has where these are padding changes the answers to "
        "real words: something is taken over all places.",
        place=subject.line_of(
            rf"(_norm|normalize)\(.*\b{name.rstrip('s')}|\b{name.rstrip('s')}\w*\.(mean|max|sum|std)\("
        )
        or subject.place(),
        mend="leave the places of padding out of means and norms",
    )


FRAMES = 48
"""So many frames that a model which puts them together to a quarter has some of padding alone."""

LEFT = r"(?i)left[- ]?(pad|side)|pad\w*\b[^.\n]{0,40}\bleft\b"
NOT_LEFT = (
    r"(?i)\b(no|not|never|without|instead of)\b[^.\n]{0,30}\bleft\b|\bleft\b[^.\n]{0,40}\b(un|not )supported|"
    r"right[^.\n]{0,12}\bonly"
)
"""Words by which a model says, or denies, that padding may stand in front of a sentence."""


@check("model-left-padding-changes-nothing-where-said", roles=("model",))
def left_padding(impl: Any, draw: Draw) -> Evidence:
    """Padding in front of a sentence changes no answer to its words, and none that is written behind them, where the
    code says that it may stand there."""
    subject = impl.build("model", {})
    name = subject.calling.main.meaning
    how = subject.padding_of(name)
    says = subject.line_of(LEFT) or re.search(LEFT, subject.heading())
    if not says or subject.line_of(NOT_LEFT) or subject.calling.two_sided or not subject.free_length:
        raise NotProvided("its code does not say that padding may stand on the left")
    of_items = subject.line_of(r"(?i)\b(self\.)?item_?emb|\b(num|n)_items\b")
    if of_items and not subject.fills_up_to_the_longest():  # Kang and McAuley 2018, section III
        raise NotProvided("it reads items, in windows of one length that are filled from the left: no place moves")
    if how not in ("mask", "token") or not subject.calling.main.vocab or subject.answers_stretches:
        raise NotProvided("it takes no mask of padding and says of no token that it is padding")
    alone = subject.example(1, 5, seed=56)
    filler = np.full((1, 2), subject.pad_id) if how == "token" else subject.example(1, 2, seed=57)[name]
    padded = {name: np.concatenate([filler, alone[name]], 1), "padding": np.array([[False] * 2 + [True] * 5])}
    if np.isnan(subject(**padded)["out"]).any():  # the least number of float64 is infinite where scores are float32
        subject = subject.in_precision("float32")
    expected, got = subject(**alone)["out"], subject(**padded)["out"]
    one, other = subject.beside(alone), subject.beside(padded)
    parts = [equal("the answer to a sentence behind padding", subject, got[:, -5:] if got.ndim == 3 else got, expected)]
    for key, value in one.items():
        if value.ndim == 2 and key in other and value.shape == other[key].shape:
            parts.append(equal(f"{key} of a sentence behind padding", subject, other[key], value))
    evidence = judged(subject, all_of(*parts))
    if evidence.ok:
        by_methods = all_of(evidence, *_of_methods_behind_padding(subject, alone, padded))
        return written_behind_padding(subject, alone, padded) or by_methods
    seen = str(subject.padding_seen(name).place or "")
    return evidence.saying(
        diagnosis="Padding on the left changes the answer to the words behind it: positions count it, or it is seen.",
        place=seen or subject.line_of(r"(pos|place)\w*\s*=.*(arange|cumsum)|cumsum") or subject.place(),
        mend="count positions from the mask: (mask.cumsum(1) - 1).clamp(min=0)",
    )


def _of_methods_behind_padding(subject: Any, alone: dict[str, Array], padded: dict[str, Array]) -> Iterator[Evidence]:
    """Whether methods that give each sentence a number or a vector give it the same behind padding."""
    got = subject.rows_of_methods(padded)
    for method, (expected, place) in subject.rows_of_methods(alone).items():
        if method in got:
            yield equal(f"{method} of a sentence behind padding", subject, got[method][0], expected).saying(
                diagnosis=f"{method} gives a sentence another result behind padding than alone.",
                place=place,
                mend="take the last place, [:, -1], where padding stands in front",
            )


@check("classifier-every-part-of-the-input-counts", roles=("classifier",))
def every_part_counts(impl: Any, draw: Draw) -> Evidence:
    """Every word (every stretch of numbers) changes the scores."""
    subject = impl.build("classifier", {})
    if subject.calling.hides_patches:
        raise NotProvided("its mask hides a part of the input")
    name = subject.calling.main.meaning
    inputs = subject.example(2, _length(subject), seed=53)
    if inputs[name].ndim == 2:
        found = changes(subject, inputs, name)[:, 0]
        idle = np.flatnonzero(found == 0)
        cut = len(found) - subject.stretch + 1 if not subject.calling.main.vocab else len(found)
        idle = idle if (idle < cut).any() else idle[:0]  # what is left over behind the last whole stretch
        idle = idle[idle < len(found) - 1] if subject.calling.end is not None else idle  # the end stands last
        what = f"word {idle[0]}" if len(idle) else ""
    else:
        before, idle, what = subject(**inputs)["out"], np.zeros(0, int), ""
        side = inputs[name].shape[-1]
        for at in range(0, side, max(side // 8, 1)):
            moved = {**inputs, name: inputs[name].copy()}
            moved[name][..., at : at + max(side // 8, 1)] += 1.0 + np.arange(1)
            moved[name][..., at : at + max(side // 8, 1)] *= 1.5
            if distance(before, subject(**moved)["out"]) == 0:
                idle, what = np.array([at]), f"columns from {at}"
                break
    return true("every part of the input changes the scores", not len(idle), got=what).saying(
        diagnosis=f"A part of the input ({what}) changes nothing: it is cut off, hidden, or not pooled.",
        place=subject.place(),
    )


_TYPES_ARE_ADDED = (r"\.\w*(type|seg)\w*[(\[]|embedding\(.*(type|seg)", r"\.\w*(pos|place)\w*[(\[]", "type|segment")
"""A line that looks types up; else one that adds the positions, where types should be added, too."""


@check("encoder-token-types-matter", roles=("model",))
def token_types_matter(impl: Any, draw: Draw) -> Evidence:
    """Where a model takes token types, another type gives another answer."""
    subject = impl.build("model", {})
    if not subject.calling.types or subject.calling.main.meaning != "ids":
        raise NotProvided("it takes no token types")
    if not any(re.search("type|seg", name.lower()) for name in subject.parameters()):
        raise NotProvided("as it was made it has no table of token types")
    inputs = subject.example(2, _length(subject), seed=54)
    none = subject(**inputs, types=np.zeros_like(inputs["ids"]))["out"]
    try:
        some = subject(**inputs, types=np.ones_like(inputs["ids"]))["out"]
    except Exception as error:
        raise NotProvided("it has one token type only") from error
    return true("another token type gives another answer", distance(none, some) > 0, got="the same answer").saying(
        diagnosis="Token types change nothing: their embedding is not added.",
        place=next(filter(None, map(subject.line_of, _TYPES_ARE_ADDED)), subject.place()),
    )


@check("masked-language-model-loss-counts-masked-labels-only", roles=("masked_language_model",))
def masked_loss(impl: Any, draw: Draw) -> Evidence:
    """The loss that it returns is the mean over the labels that are not ignored, and nothing is shifted."""
    subject = impl.build("masked_language_model", {})
    if not subject.calling.labels:
        raise NotProvided("it returns no loss")
    inputs = subject.example(3, _length(subject), seed=55)
    index = subject.ignored_label()
    labels = np.full_like(inputs["ids"], -100 if index is None else index)
    labels[:, 1], labels[0, 3] = inputs["ids"][:, 2], inputs["ids"][0, 0]
    found = subject(**inputs, labels=labels)
    if "loss" not in found or found["out"].ndim < 3:
        raise NotProvided("it returns no loss beside its logits")
    logits, loss = found["out"], float(found["loss"])
    kept = labels != (-100 if index is None else index)
    expected = float(cross_entropy(logits[kept], labels[kept]))
    shifted = labels[:, 1:][kept[:, 1:]]
    of_shift = float(cross_entropy(logits[:, :-1][kept[:, 1:]], shifted))
    bound = 1e-5 * max(1.0, abs(expected)) + subject.noise
    words = "labels are shifted as in a causal model" if abs(of_shift - loss) < bound else "other positions count, too"
    if abs(expected * kept.sum() / kept.size - loss) < bound:
        words = "ignored positions are counted in the mean"
    return close("the loss", np.array(loss), np.array(expected), bound).saying(
        diagnosis=f"The masked-language loss is not the mean over the masked words: {words}.",
        place=subject.line_of("cross_entropy|CrossEntropyLoss") or subject.place(),
        mend="F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)",
    )
