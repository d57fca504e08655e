"""Checks of teacher forcing, greedy decoding and sampling filters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.models import build_lm, model_bound
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, note, refused, same, tolerance, true
from conformance.reference import decoding as f

Array = np.ndarray

# --- teacher forcing ----------------------------------------------------------------------------------


@check("teacher-forcing-shifts-by-one", roles=("shift_targets",), needs=("shift_targets.labels",))
def shift(impl: Any, draw: Draw) -> Evidence:
    """SOS I love AI EOS gives the input SOS I love AI and the labels I love AI EOS: one shift, equal lengths."""
    ids = draw.integers("ids", (draw.int("B", 1, 4, 3), draw.int("T", 2, 7, 5)), 0, 50)
    subject = impl.build("shift_targets", {})
    worked, got = subject(ids=np.array([[1, 5, 6, 7, 2]])), subject(ids=ids)
    return all_of(
        same("input", worked["out"], [[1, 5, 6, 7]]),
        same("labels", worked["labels"], [[5, 6, 7, 2]]),
        same("input of a batch", got["out"], ids[:, :-1]),
        same("labels of a batch", got["labels"], ids[:, 1:]),
    )


@check("labels-are-the-input-shifted-left", roles=("shift_targets",), needs=("shift_targets.labels",))
def shifted_left(impl: Any, draw: Draw) -> Evidence:
    """Each label is the next input token; the last label is not in the input, and nothing depends on predictions."""
    ids = np.arange(1, 1 + draw.int("B", 1, 4, 2) * 6).reshape(-1, 6)
    subject = impl.build("shift_targets", {})
    got, again = subject(ids=ids.copy()), subject(ids=ids.copy())
    return all_of(
        same("labels against the next inputs", np.asarray(got["labels"])[:, :-1], np.asarray(got["out"])[:, 1:]),
        same("the last label", np.asarray(got["labels"])[:, -1], ids[:, -1]),
        same("a second step's input", again["out"], got["out"]),
    )


@check("one-pass-trains-every-position", roles=("decoder_lm",), examples=3)
def one_pass(impl: Any, draw: Draw) -> Evidence:
    """One pass over (B, T) gives each position the logits of its own prefix, each sentence those that it has alone."""
    steps, batch = draw.int("T", 2, 5, 4), draw.int("B", 2, 3, 2)
    row, length = draw.int("row", 0, batch - 1, 1), draw.int("prefix", 1, steps, steps - 1)
    subject, _, config, _ = build_lm(impl, draw)
    ids = draw.integers("ids", (batch, steps), 1, config["vocab"])
    together = np.asarray(subject(ids=ids)["out"], np.float64)
    alone = np.asarray(subject(ids=ids[row : row + 1, :length])["out"], np.float64)
    bound = model_bound(subject, config, together)
    return close("logits of a prefix alone and in the batch", alone[0], together[row, :length], bound)


# --- greedy decoding ----------------------------------------------------------------------------------


class Stub:
    """A model that writes a script: the row that begins with id r gets `script[r][i]` as its i-th new token.

    It records the length of each call's input and everything that finished rows were fed.
    """

    def __init__(self, script: Array, prompt: int, vocab: int) -> None:
        self.script, self.prompt, self.vocab = script, prompt, vocab
        self.lengths: list[int] = []

    def __call__(self, ids: Array) -> Array:
        ids = np.asarray(ids)
        self.lengths.append(ids.shape[1])
        step = ids.shape[1] - self.prompt
        logits = np.zeros((len(ids), self.vocab))
        logits[np.arange(len(ids)), self.script[ids[:, 0], step]] = 5.0
        return logits


EOS, PADS, WORDS = 2, (0, 1), (3, 10)


def scripted(draw: Draw, ends: list[int], prompt: int = 1) -> tuple[Stub, Array]:
    """A stub whose row r writes words, EOS as its `ends[r]`-th new token, and words behind it; and the prompt."""
    script = draw.integers("script", (len(ends), 30), *WORDS)
    for row, end in enumerate(ends):
        script[row, end - 1] = EOS
    ids = np.hstack([np.arange(len(ends))[:, None], draw.integers("prompt", (len(ends), prompt - 1), *WORDS)])
    return Stub(script, prompt, WORDS[1]), ids


def decode(
    impl: Any, model: Callable[[Array], Array], ids: Array, limit: int, eos: int | None = EOS, pad: int = 0
) -> Array:
    subject = impl.build("greedy_decode", {"eos_id": eos, "pad_id": pad, "max_new_tokens": limit})
    return np.asarray(subject(next_logits=model, ids=ids)["out"])


@check("greedy-appends-the-argmax-of-the-last-position", roles=("greedy_decode",))
def greedy_argmax(impl: Any, draw: Draw) -> Evidence:
    """Each step feeds the whole text so far, the model's own words in it, and appends the most probable token."""
    vocab, batch = draw.int("V", 3, 9, 7), draw.int("B", 1, 3, 2)
    prompt, limit = draw.int("prompt", 1, 3, 2), draw.int("new tokens", 1, 6, 5)
    table = draw.normal("table", (vocab, vocab, vocab))
    ids = draw.integers("ids", (batch, prompt), 0, vocab)

    def model(text: Array) -> Array:
        first, last = np.asarray(text)[:, 0], np.asarray(text)[:, -1]
        return table[first, last] + 0.1 * np.asarray(text).shape[1] * table[last, first]

    got, expected = decode(impl, model, ids, limit, eos=None), f.greedy_decode(model, ids, limit)
    found = same("tokens", got, expected)
    return found if found.ok else found.saying(diagnosis=_mistaken_decoding(impl, model, ids))


def _mistaken_decoding(impl: Any, model: Callable[[Array], Array], ids: Array, limit: int = 5) -> str:
    """What a decoder does instead, by the tokens that it appends; empty for nothing known."""
    got = decode(impl, model, ids, limit, eos=None)
    if got.ndim == 2 and got.shape[1] != ids.shape[1] + limit:
        return f"It appends {got.shape[1] - ids.shape[1]} tokens where {limit} were asked for."
    if len(np.unique(got[:, ids.shape[1] + 1 :])) == 1:
        return "The same token is appended at every step, whatever the text is: the last position's answer is not read."
    others: dict[str, Callable[[Array], Array]] = {
        "The least probable token is appended.": lambda text: -model(text),
        "The model is fed the last token alone, not the text so far.": lambda text: model(text[:, -1:]),
        "The model is fed the prompt alone, without its own words.": lambda text: model(text[:, : ids.shape[1]]),
    }
    alike = (said for said, other in others.items() if np.array_equal(got, f.greedy_decode(other, ids, limit)))
    return next(alike, "")


@check("greedy-keeps-the-prompt", roles=("greedy_decode",))
def greedy_prompt(impl: Any, draw: Draw) -> Evidence:
    """A decoder continues a text: the prompt comes back unchanged, and the new tokens behind it."""
    prompt = draw.int("prompt", 1, 5, 3)
    model, ids = scripted(draw, [9, 9], prompt)
    out = decode(impl, model, ids, 4)
    return all_of(
        same("the prompt", out[:, :prompt], ids),
        same("the new tokens", out[:, prompt:], model.script[:, :4]),
    )


@check("greedy-stops-at-eos", roles=("greedy_decode",))
def greedy_eos(impl: Any, draw: Draw) -> Evidence:
    """Decoding ends when EOS is predicted: it is appended, nothing follows, and no further step is run."""
    end = draw.int("EOS at", 1, 8, 4)
    model, ids = scripted(draw, [end])
    out = decode(impl, model, ids, 20)
    return all_of(
        same("tokens", out[0, 1:], model.script[0, :end]),
        same("lengths of the model's inputs", model.lengths, list(range(1, end + 1))),
    )


@check("greedy-writes-at-most-max-new-tokens", roles=("greedy_decode",))
def greedy_limit(impl: Any, draw: Draw) -> Evidence:
    """A model that never ends is stopped: SOS and 5 tokens for a limit of 5, the prompt not counted."""
    limit, prompt = draw.int("limit", 1, 6, 5), draw.int("prompt", 1, 3, 1)
    model, ids = scripted(draw, [25, 25], prompt)
    return same("length", decode(impl, model, ids, limit).shape, (2, prompt + limit))


@check("rows-finish-at-different-steps", roles=("greedy_decode",))
def greedy_batch(impl: Any, draw: Draw) -> Evidence:
    """Rows that end at different steps: each is padding behind its EOS, and decoding stops with the last of them."""
    first, gap = draw.int("first EOS", 1, 4, 2), draw.int("steps between", 1, 4, 2)
    ends = [first, first + gap] if draw.bool("in order", True) else [first + gap, first]
    model, ids = scripted(draw, ends)
    pad = draw.choice("pad", PADS, 1)
    out = decode(impl, model, ids, 20, pad=pad)
    steps = np.arange(max(ends))
    expected = np.where(steps[None] < np.array(ends)[:, None], model.script[:, : max(ends)], pad)
    return all_of(
        same("tokens behind the prompt", out[:, 1:], expected),
        same("steps run", len(model.lengths), max(ends)),
    )


@check("generation-takes-one-step-per-token", roles=("greedy_decode",))
def serial(impl: Any, draw: Draw) -> Evidence:
    """m new tokens take m calls of the model, each on an input one token longer, however long the prompt is."""
    prompt, limit = draw.int("prompt", 1, 9, 5), draw.int("m", 1, 6, 4)
    model, ids = scripted(draw, [29], prompt)
    decode(impl, model, ids, limit)
    return same("lengths of the model's inputs", model.lengths, list(range(prompt, prompt + limit)))


@check("greedy-decoding-is-deterministic", roles=("greedy_decode",), examples=2)
def deterministic(impl: Any, draw: Draw) -> Evidence:
    """Two greedy decodes are identical, and the most probable token is taken by however little it leads."""
    vocab = draw.int("V", 3, 9, 6)
    best = draw.integers("best", (8,), 0, vocab)

    def model(text: Array) -> Array:
        logits = np.zeros((len(text), vocab))
        logits[:, best[np.asarray(text).shape[1] - 1]] = 0.01
        return logits

    ids = np.zeros((2, 1), np.int64)
    first, second = (decode(impl, model, ids, 6, eos=None) for _ in range(2))
    return all_of(same("second decode", second, first), same("tokens", first[:, 1:], np.tile(best[:6], (2, 1))))


# --- sampling filters ---------------------------------------------------------------------------------

LADDER = np.array([[3.0, 2, 1, 0, -1, -2]])


def filtered(impl: Any, logits: Array, **config: Any) -> tuple[Any, Array]:
    subject = impl.build("sampling_filter", config)
    return subject, np.asarray(subject(logits=logits)["out"], np.float64)


def draw_logits(draw: Draw, vocab: int) -> Array:
    """Two rows of unsorted logits, no two of a row closer than 0.3."""
    rows = [draw.rng(f"order{i}").permutation(vocab) for i in range(2)]
    return np.stack(rows) * 0.4 + draw.uniform("jitter", (2, vocab), 0.0, 0.1)


def filter_agrees(impl: Any, logits: Array, **config: Any) -> Evidence:
    subject, got = filtered(impl, logits, **config)
    expected = f.sampling_probabilities(logits, **config)
    return close(f"probabilities with {config}", got, expected, tolerance(subject.dtype, logits.shape[1]))


@check("temperature-divides-the-logits", roles=("sampling_filter",))
def temperature(impl: Any, draw: Draw) -> Evidence:
    """softmax(logits / T): sharper below 1, flatter above; entropies 0.458, 1.023, 1.495 for T = 0.5, 1, 2."""
    at = [filtered(impl, LADDER, temperature=t)[1] for t in (0.5, 1.0, 2.0)]
    entropies = np.array([-float(np.sum(p * np.log(np.where(p > 0, p, 1.0)))) for p in at])
    printed = np.array([0.45837, 1.02326, 1.49524])
    logits, t = draw_logits(draw, draw.int("V", 2, 9, 6)), draw.float("T", 0.2, 5.0, 0.7)
    return all_of(
        close("entropies at T = 0.5, 1, 2", entropies, printed, 2e-5, "five printed digits"),
        filter_agrees(impl, logits, temperature=t),
    )


@check("temperature-zero-is-greedy-or-refused", roles=("sampling_filter",), examples=2)
def temperature_zero(impl: Any, draw: Draw) -> Evidence:
    """T = 0 is refused, or gives the argmax with certainty; never NaN."""
    logits = draw_logits(draw, draw.int("V", 3, 8, 5))
    filtered(impl, logits, temperature=1.0)  # the logits as such are accepted
    with np.errstate(all="ignore"):
        refusal = refused("T = 0", partial(filtered, impl, logits, temperature=0.0))
        if refusal.ok:
            return refusal
        _, p = filtered(impl, logits, temperature=0.0)
    return same("probabilities at T = 0", p, np.eye(logits.shape[1])[logits.argmax(axis=1)])


@check("top-k-keeps-the-k-most-probable", roles=("sampling_filter",))
def top_k(impl: Any, draw: Draw) -> Evidence:
    """The k best candidates stay and share the whole probability: (0.731, 0.269) of the ladder for k = 2."""
    vocab = draw.int("V", 3, 9, 6)
    k = draw.int("k", 1, vocab - 1, 2)
    subject, worked = filtered(impl, LADDER, top_k=2)
    return all_of(
        close("the ladder", worked, [[0.731059, 0.268941, 0, 0, 0, 0]], 1e-6 + tolerance(subject.dtype, 6)),
        filter_agrees(impl, draw_logits(draw, vocab), top_k=k),
    )


@check("ties-with-the-kth-logit-do-not-cost-a-better-one", roles=("sampling_filter",), examples=3)
def top_k_ties(impl: Any, draw: Draw) -> Evidence:
    """Of tokens that tie for the last place all may stay, or some: what is larger stays, what is smaller goes."""
    order = draw.rng("order").permutation(6)
    logits = np.array([2.0, 1, 1, 1, 0, -1])[order]
    _, (p,) = filtered(impl, logits[None], top_k=2)
    kept = int((p[logits == 1.0] > 0).sum())
    return all_of(
        true("the larger logit stays", (p[logits > 1.0] > 0).all(), got=p),
        same("the smaller ones", p[logits < 1.0], np.zeros(2)),
        true("one to three of the tied stay", 1 <= kept <= 3, got=kept, expected="1, 2 or 3"),
        close("their total", p.sum(), 1.0, 1e-6, "float32"),
    )


@check("no-top-k-keeps-every-token", roles=("sampling_filter",), examples=3)
def top_k_off(impl: Any, draw: Draw) -> Evidence:
    """Without top-k, and with k equal to the vocabulary, every token stays."""
    vocab = draw.int("V", 2, 9, 6)
    logits = draw_logits(draw, vocab)
    return all_of(filter_agrees(impl, logits), filter_agrees(impl, logits, top_k=vocab))


@check("top-k-above-the-vocabulary-keeps-every-token", roles=("sampling_filter",), examples=3)
def top_k_large(impl: Any, draw: Draw) -> Evidence:
    """A top_k larger than the vocabulary filters nothing; it may be refused by what has no such number by default."""
    vocab = draw.int("V", 2, 9, 6)
    logits, k = draw_logits(draw, vocab), vocab + draw.int("excess", 1, 50, 44)
    own = impl.build("sampling_filter", {"top_k": vocab}).attributes.get("default_top_k")
    filter_agrees(impl, logits, top_k=vocab)  # the logits as such are accepted
    refusal = refused(f"the {k} best of {vocab}", partial(filtered, impl, logits, top_k=k))
    if not refusal.ok:
        return filter_agrees(impl, logits, top_k=k)
    if own is None:
        return note("a top_k above the vocabulary is refused", refusal.got)
    return true(f"the {k} best of {vocab} tokens are all of them", False, got=refusal.got).saying(
        diagnosis=f"By default it keeps the {own} best tokens, and it fails where the vocabulary has fewer.",
        mend="min(top_k, logits.shape[-1])",
    )


@check("top-p-keeps-the-smallest-set-that-reaches-p", roles=("sampling_filter",))
def top_p(impl: Any, draw: Draw) -> Evidence:
    """The fewest most probable tokens whose sum reaches p stay: the one that crosses p stays, the next one goes."""
    vocab = draw.int("V", 3, 9, 6)
    count = draw.int("kept", 1, vocab, 2)
    logits = draw_logits(draw, vocab)[:1]
    sums = np.cumsum(np.sort(f.sampling_probabilities(logits)[0])[::-1])
    p = float((sums[count - 1] + (sums[count - 2] if count > 1 else 0.0)) / 2)  # strictly between two sums
    sizes = [int((filtered(impl, LADDER, top_p=at)[1] > 0).sum()) for at in (0.6, 0.65, 0.86, 0.87, 0.94)]
    return all_of(
        filter_agrees(impl, logits, top_p=p),
        same("kept of the ladder at 0.6, 0.65, 0.86, 0.87, 0.94", sizes, [1, 2, 2, 3, 3]),
    )


@check("top-p-always-keeps-the-most-probable", roles=("sampling_filter",), examples=3)
def top_p_tiny(impl: Any, draw: Draw) -> Evidence:
    """However small p is, the nucleus is never empty."""
    logits = draw_logits(draw, draw.int("V", 2, 9, 6))
    _, got = filtered(impl, logits, top_p=draw.choice("p", (1e-6, 1e-3, 0.01), 1e-3))
    kept = (np.nan_to_num(got) > 0).any(-1)
    empty = "" if kept.all() else "Nothing is left to draw from: the token that crosses p is dropped, even the first."
    return same("only the argmax", got, np.eye(logits.shape[1])[logits.argmax(axis=1)]).saying(diagnosis=empty)


@check("top-p-of-one-keeps-every-token", roles=("sampling_filter",), examples=3)
def top_p_one(impl: Any, draw: Draw) -> Evidence:
    """top_p = 1 disables the filter: the plain softmax is left."""
    return filter_agrees(impl, draw_logits(draw, draw.int("V", 2, 9, 6)), top_p=1.0)


@check("top-p-marks-return-to-vocabulary-order", roles=("sampling_filter",))
def top_p_order(impl: Any, draw: Draw) -> Evidence:
    """The filter ranks tokens and answers in the order of the vocabulary: (0, 0.665, 0, 0.245, 0.090, 0)."""
    subject, worked = filtered(impl, np.array([[0.0, 3, -1, 2, 1, -2]]), top_p=0.9)
    shuffle = draw.rng("shuffle").permutation(6)
    _, ladder = filtered(impl, LADDER, top_p=0.9)
    _, shuffled = filtered(impl, LADDER[:, shuffle], top_p=0.9)
    bound = tolerance(subject.dtype, 6)
    return all_of(
        close("unsorted logits", worked, [[0, 0.665241, 0, 0.244728, 0.090031, 0]], 1e-6 + bound, "printed digits"),
        close("of shuffled logits", shuffled, ladder[:, shuffle], bound),
    )


@check("filters-apply-temperature-then-top-k-then-top-p", roles=("sampling_filter",))
def filter_order(impl: Any, draw: Draw) -> Evidence:
    """Top-p sees what top-k left, renormalised, and both see the logits over the temperature."""
    subject, worked = filtered(impl, np.array([[1.0, 0.5, 0.4, 0.3, 0.2]]), top_k=2, top_p=0.6)
    sizes = [int((filtered(impl, LADDER, temperature=t, top_p=0.9)[1] > 0).sum()) for t in (0.1, 0.5, 1.0, 2.0, 100.0)]
    logits, k = draw_logits(draw, 8), draw.int("k", 2, 6, 4)
    t = draw.choice("T", (0.5, 0.8, 1.5, 3.0), 0.8)
    return all_of(
        same("k = 2, then p = 0.6", worked, [[1.0, 0, 0, 0, 0]]),
        same("kept at p = 0.9 for T = 0.1, 0.5, 1, 2, 100", sizes, [1, 2, 3, 4, 6]),
        filter_agrees(impl, logits, temperature=t, top_k=k, top_p=0.777),
        close("total", worked.sum(), 1.0, tolerance(subject.dtype, 5)),
    )
