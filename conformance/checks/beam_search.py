"""Checks of beam search: what a hypothesis is worth, when it is finished, which one is returned."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, same, tolerance
from conformance.protocol import Array, NotProvided
from conformance.reference import decoding as f

ROLE = "beam_search"
A, B, EOS, SOS = 0, 1, 2, 3


class Chain:
    """A model whose next word depends on the last one alone: probabilities ``(V, V)``, a row for each last word."""

    def __init__(self, probabilities: Any) -> None:
        with np.errstate(divide="ignore"):  # what has probability 0 has the logit -inf
            self.logits = np.log(np.asarray(probabilities, np.float64))

    def __call__(self, ids: Array) -> Array:
        return self.logits[np.asarray(ids)[:, -1]]

    def log_probability(self, prompt: int, tokens: Any) -> float:
        steps = f.log_softmax(self.logits)
        return float(sum(steps[last, token] for last, token in zip((prompt, *tokens), tokens, strict=False)))


def random_chain(draw: Draw, vocab: int) -> Chain:
    return Chain(np.exp(draw.normal("logits", (vocab, vocab), 2.0)))


def search(impl: Any, model: Any, *prompt: int, limit: int, **config: Any) -> tuple[Any, Any]:
    """The subject and what it returned for a prompt."""
    subject = impl.build(ROLE, {"max_new_tokens": limit, **config})
    return subject, subject(next_logits=model, ids=np.array([prompt]))


def tokens_of(result: Any, prompt: int = 1) -> Array:
    """The new tokens, behind a prompt of so many."""
    return np.asarray(result["out"])[0, prompt:]


@check("a-beam-of-one-is-greedy", roles=(ROLE,))
def beam_of_one(impl: Any, draw: Draw) -> Evidence:
    """One beam takes the most probable token at every step, until EOS."""
    vocab, limit = draw.int("V", 3, 8, 6), draw.int("new tokens", 1, 6, 5)
    eos = draw.choice("EOS", (None, 0, 1), 1)
    model = random_chain(draw, vocab)
    greedy = f.greedy_decode(model, np.array([[2]]), limit, eos)[0, 1:]
    return same("tokens", tokens_of(search(impl, model, 2, limit=limit, beams=1, eos_id=eos)[1]), greedy)


@check("a-beam-of-all-prefixes-is-exhaustive", roles=(ROLE,))
def exhaustive(impl: Any, draw: Draw) -> Evidence:
    """With a beam for every prefix the best of all V^T sequences is found, by the product of its probabilities."""
    vocab, length = draw.int("V", 2, 4, 3), draw.int("T", 2, 3, 3)
    model = random_chain(draw, vocab)
    try:
        found = tokens_of(search(impl, model, 0, limit=length, beams=vocab**length)[1])
    except (RuntimeError, ValueError, IndexError) as error:
        search(impl, model, 0, limit=length, beams=vocab)
        raise NotProvided(f"it takes no more beams than words: {error}") from error
    scores = {tokens: model.log_probability(0, tokens) for tokens in product(range(vocab), repeat=length)}
    got = scores.get(tuple(found.tolist()), -np.inf)  # not of this length
    return close("log-probability of the sequence", got, max(scores.values()), 1e-9, "the best, or as good")


MISLEADING = Chain(  # A is the likelier first word, and the best text that begins with it has 0.204; B EOS has 0.36
    [[0.33, 0.33, 0.34, 0.0], [0.1, 0.0, 0.9, 0.0], [0.0, 0.0, 1.0, 0.0], [0.6, 0.4, 0.0, 0.0]]
)


@check("a-beam-of-two-finds-what-greedy-misses", roles=(ROLE,), examples=0)
def beam_of_two(impl: Any, draw: Draw) -> Evidence:
    """Greedy takes A and ends with 0.204; two beams keep B as well, whose end makes 0.36."""
    found = tokens_of(search(impl, MISLEADING, SOS, limit=4, beams=2, eos_id=EOS)[1])
    return same("tokens", found, [B, EOS])


@check("beam-scores-are-summed-log-probabilities", roles=(ROLE,), needs=(f"{ROLE}.score",))
def summed_scores(impl: Any, draw: Draw) -> Evidence:
    """The score of what is returned behind the prompt is the sum of its log-probabilities: ln 0.36 for 0.4 and 0.9."""
    beams, limit = draw.int("beams", 1, 5, 3), draw.int("new tokens", 2, 5, 4)
    subject, worked = search(impl, MISLEADING, SOS, limit=4, beams=2, eos_id=EOS)
    model = random_chain(draw, 5)
    prompt = draw.integers("prompt", (draw.int("prompt length", 1, 4, 3),), 0, 5).tolist()
    _, result = search(impl, model, *prompt, limit=limit, beams=beams)
    expected = model.log_probability(prompt[-1], tokens_of(result, len(prompt)))
    return all_of(
        same("the prompt", np.asarray(result["out"])[0, : len(prompt)], prompt),
        same("number of new tokens", len(tokens_of(result, len(prompt))), limit),
        close("score of B EOS", worked["score"], np.log(0.36), tolerance(subject.dtype, 2)),
        close("score", result["score"], expected, tolerance(subject.dtype, limit, 1.0 - expected)),
    )


@check("a-length-penalty-divides-by-a-power-of-the-length", roles=(ROLE,), needs=(f"{ROLE}.score",))
def length_penalty(impl: Any, draw: Draw) -> Evidence:
    """With a penalty of 1 hypotheses compare by their mean log-probability, EOS counted: a long text can win."""
    power = draw.choice("length penalty", (0.5, 1.0, 2.0), 1.0)
    # The text that ends at once has 0.55; A B EOS has 0.45, and its mean is the higher one.
    model = Chain([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.45, 0.0, 0.55, 0.0]])
    subject, plain = search(impl, model, SOS, limit=5, beams=4, eos_id=EOS)
    _, divided = search(impl, model, SOS, limit=5, beams=4, eos_id=EOS, length_penalty=power)
    return all_of(
        same("tokens without a penalty", tokens_of(plain), [EOS]),
        same("tokens with it", tokens_of(divided), [A, B, EOS]),
        close("score", divided["score"], np.log(0.45) / 3**power, tolerance(subject.dtype, 3)),
    )


@check("the-best-finished-hypothesis-is-returned", roles=(ROLE,))
def best_finished(impl: Any, draw: Draw) -> Evidence:
    """Of the hypotheses that ended the most probable is returned, nothing behind its EOS; otherwise the first beam."""
    limit = draw.int("new tokens", 3, 8, 5)
    several = tokens_of(search(impl, MISLEADING, SOS, limit=limit, beams=4, eos_id=EOS)[1])
    endless = Chain([[0.8, 0.2, 0.0, 0.0]] * 4)
    never = tokens_of(search(impl, endless, SOS, limit=limit, beams=2, eos_id=EOS)[1])
    return all_of(
        same("of B EOS (0.36), A EOS (0.204) and others", several, [B, EOS]),
        same("the first beam of a model that never ends", never, [A] * limit),
    )


@check("finished-hypotheses-must-leave-the-beam", roles=(ROLE,))
def finished_leave(impl: Any, draw: Draw) -> Evidence:
    """EOS at once has 0.45, A B EOS 0.55: two beams find the better one, which ends later."""
    early = draw.float("P(EOS at once)", 0.40, 0.49, 0.45)
    # Behind EOS the model writes EOS: a finished hypothesis that is extended loses nothing and ends again.
    model = Chain([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0], [1 - early, 0.0, early, 0.0]])
    beams = draw.int("beams", 2, 4, 2)
    found = tokens_of(search(impl, model, SOS, limit=6, beams=beams, eos_id=EOS)[1])
    return same("tokens", found, [A, B, EOS])


@check("a-small-vocabulary-fills-no-wide-beam", roles=(ROLE,))
def small_vocabulary(impl: Any, draw: Draw) -> Evidence:
    """Where fewer words are possible than there are beams, what has probability 0 is never returned."""
    beams, limit = draw.int("beams", 3, 4, 4), draw.int("new tokens", 2, 5, 3)
    share = draw.float("P(A)", 0.6, 0.95, 0.8)
    endless = Chain([[share, 1 - share, 0.0, 0.0]] * 4)
    found = tokens_of(search(impl, endless, SOS, limit=limit, beams=beams, eos_id=EOS)[1])
    return same("tokens of a model that gives EOS no probability", found, [A] * limit)
