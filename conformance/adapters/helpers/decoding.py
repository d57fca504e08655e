"""Helpers of decoding: paths of CTC, penalties for lengths and repetitions, filters of logits, forbidden words."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, noise, shown, tensor

_PATHS = ([3, 3, 0, 3, 4, 4, 0, 0, 5], [0, 6, 6, 7, 0, 7, 7, 0, 0])
_READ = ([3, 3, 4, 5], [6, 7, 7])
"""Best paths with the blank 0, and what they read: repeats are one letter unless a blank stands between them."""


@helper(
    "paths-of-ctc-merge-repeats-and-drop-blanks",
    r"ctc|best_path|collapse|greedy_?(dec|search)?|decode",
    {
        "blank": r"blank(_?(id|idx|index|token))?",
        "lengths": r"(out(put)?_?|frame_?|input_?|seq_?)?(lengths?|lens?)",
        "path": r"ids|tokens?|path|seq(uence)?|pred(ictions?|s)?|indices|frames|best",
        "scores": r"log_?probs?|logits?|emissions?|probs?|x|out(puts?)?|scores",
    },
    (),
)  # fmt: skip
def ctc_paths(decode: Called) -> Iterator[Trouble]:
    """The words of the best path: repeats are merged first, then blanks are dropped; padding is not read."""
    if not re.search(r"ctc|blank|best path|repeat", decode.says + decode.source.lower()):
        raise OtherKind("it decodes something else")
    if re.search(r"loss", decode.name) or not (decode.has("path") or decode.has("scores")):
        raise OtherKind("it reads no path")
    blank = 0 if decode.has("blank") else decode.number(r"(.*_)?blank(_.*)?", 0)
    if blank != 0:
        raise OtherKind("its blank is another word")
    paths = torch.tensor(_PATHS)
    readings = list(_readings(decode, paths, torch.tensor([9, 9])))
    if not readings:
        raise OtherKind("it gives no texts")
    found = next((one for one in readings if _patterns(one.texts) == _patterns(_READ[: one.rows])), readings[0])
    expected = _READ[: found.rows]
    if _patterns(found.texts) != _patterns(expected):
        yield Trouble(
            (
                f"{decode.name} reads another text than the path says: "
                f"repeats are one letter, unless a blank stands between them."
            ),
            " | ".join(map(shown, expected)),
            " | ".join(map(str, found.texts)),
        )
        return
    if decode.has("lengths") and found.rows == 2:
        for short in _readings(decode, paths, torch.tensor([9, 4])):
            if short.form == found.form and _patterns(short.texts)[1] != _patterns([[6, 7]])[0]:
                yield Trouble(
                    f"{decode.name} reads frames behind the length of a row.",
                    "6, 7 in the first four frames",
                    str(short.texts[1]),
                )


@helper(
    "beams-of-ctc-find-the-likeliest-text",
    r"beam",
    {
        "blank": r"blank(_?(id|idx|index|token))?",
        "beams": r"(n_?|num_?)?beams?(_?(width|size))?|k|width",
        "lengths": r"(out(put)?_?|frame_?|input_?|seq_?)?(lengths?|lens?)",
        "scores": r"(ctc_?)?(log_?probs?|logp|log_p|lp|logits?|emissions?|probs?|x|out(puts?)?|scores|posteriors?)",
    },
    ("scores", "beams"),
)
def ctc_beams(search: Called) -> Iterator[Trouble]:
    """With a beam for every text, the text whose paths have the largest sum; the best path alone says another one."""
    blank = 0 if search.has("blank") else search.number(r"(.*_)?blank(_.*)?", 0)
    if blank != 0 or not re.search(r"blank", search.source.lower()):
        raise OtherKind("it knows no blank, or another one")
    if re.search(r"lm|language_model|lexicon", " ".join(search.arguments.parameter_of.values())):
        raise OtherKind("it asks a language model, too")
    for seed in range(12):
        likely = (1.5 * noise(4, 3, seed=seed)).softmax(-1)
        best, clear = _likeliest(likely)
        if not clear:
            continue
        got = _searched(search, likely)
        if got != best:
            yield Trouble(
                f"{search.name} finds another text than the likeliest: the paths of a text are not summed as they are.",
                shown(best),
                shown(got),
            )
            return


def _likeliest(likely: Tensor) -> tuple[list[int], bool]:
    """The text whose paths (T, V) have the largest sum, and whether no other comes near."""
    sums: dict[tuple[int, ...], float] = {}
    for path in product(range(likely.shape[1]), repeat=len(likely)):
        text = tuple(word for word, _ in groupby(path) if word != 0)
        sums[text] = sums.get(text, 0.0) + math.prod(float(row[word]) for row, word in zip(likely, path, strict=True))
    best, second = sorted(sums, key=lambda text: -sums[text])[:2]
    return [*best], sums[best] > 1.1 * sums[second]


def _searched(search: Called, likely: Tensor) -> list[int]:
    """The text that it finds. Raises OtherKind where it gives none."""
    said = search.arguments.parameter_of["scores"].lower()
    scores = likely if re.fullmatch(r".*(?<!log)(?<!log_)probs?|posteriors?", said) else likely.log()
    for given, lengths in ((scores, torch.tensor([4])), (scores[None], torch.tensor([4])), (scores[:, None], None)):
        with suppress(Exception):
            return _first_text(search(scores=given, beams=64, lengths=lengths, blank=0))
    raise OtherKind("it gives no text")


def _first_text(made: Any) -> list[int]:
    """The first list of whole numbers in what a search gives. Raises OtherKind where the first thing is another."""
    made = made.tolist() if isinstance(made, Tensor) else made
    if isinstance(made, (list, tuple)):
        if all(type(one) is int for one in made):
            return [*made]
        return _first_text(made[0])
    raise OtherKind("it gives no whole numbers")


@dataclass(frozen=True)
class _Reading:
    """The texts that were read, one for each of `rows` rows. form: the number of the form of the paths."""

    texts: list[Any]
    rows: int
    form: int


def _readings(decode: Called, paths: Tensor, lengths: Tensor) -> Iterator[_Reading]:
    """What it reads in each form in which it takes paths: (B, T) or (T, B), with scores or without, or one row."""
    scores = torch.nn.functional.one_hot(paths, 8).float().log_softmax(-1)
    forms: list[tuple[Any, Any, int]] = [
        (scores, paths, 2), (scores.transpose(0, 1), paths, 2), (scores[0], paths[0], 1),
        (scores[0], paths[0].tolist(), 1),
        (paths, paths.tolist(), 2),
    ]  # fmt: skip
    for form, (of_scores, of_path, rows) in enumerate(forms):
        for ends in (lengths, lengths.tolist(), int(lengths[0])):
            with suppress(Exception):
                made = decode(scores=of_scores, path=of_path, blank=0, lengths=ends)
                made = made[0] if isinstance(made, tuple) else made
                made = made.tolist() if isinstance(made, Tensor) else made
                texts = [made] if rows == 1 else list(made)
                if len(texts) == rows and all(isinstance(t, (list, str, Tensor)) for t in texts):
                    yield _Reading(texts, rows, form)
                    break


def _patterns(texts: Sequence[Any]) -> list[list[int]]:
    """Which letters of each text are equal, whatever they are written with."""
    listed = [text.tolist() if isinstance(text, Tensor) else list(text) for text in texts]
    return [[letters.index(letter) for letter in letters] for letters in listed]


@helper(
    "penalties-for-length-grow-with-it",
    r"len(gth)?_?(penalty|norm(ali[sz]ation)?)",
    {"alpha": r"alpha|a|length_penalty|lp|penalty|power", "length": r"len(gth)?|n|t|l|cur_len|size"},
    ("length",),
)
def length_penalty(penalty: Called) -> Iterator[Trouble]:
    """What a negative score is divided by is larger for a longer text, where alpha is above zero."""
    values = [float(tensor(penalty(length=length, alpha=0.6))) for length in (1, 5, 20)]
    if not values[0] < values[1] < values[2]:
        yield Trouble(f"{penalty.name} does not grow with the length.", "larger for longer texts", shown(values))
    elif penalty.has("alpha") and abs(float(tensor(penalty(length=7, alpha=0.0))) - 1) > 1e-6:
        yield Trouble(f"{penalty.name} with alpha = 0 is no 1.", 1, shown(penalty(length=7, alpha=0.0)))
    elif "6" in penalty.source and abs(values[1] - (10 / 6) ** 0.6) > 1e-4:
        yield Trouble(
            f"{penalty.name} is not ((5 + length) / 6) ** alpha.", f"{(10 / 6) ** 0.6:.4g}", f"{values[1]:.4g}"
        )


@helper(
    "penalties-for-repetition-lower-what-was-written",
    r"repet|repeat_penalt|penali[sz]e|presence|frequency_penalty",
    {
        "penalty": r"(repetition_?)?(penalty|theta|alpha|strength)",
        "ids": r"ids|input_ids|tokens?|generated|prev(ious)?(_tokens|_ids)?|history|seen|out",
        "logits": r"logits?|scores|x",
    },
    ("logits", "ids", "penalty"),
)
def repetition(penalty: Called) -> Iterator[Trouble]:
    """Words that were written get lower logits, whatever their sign; the others keep theirs."""
    logits = torch.tensor([[2.0, -2.0, 1.0, -1.0, 0.5], [1.5, -0.5, 3.0, -3.0, 0.7]])
    ids = torch.tensor([[0, 1], [2, 3]])
    made = penalty(logits=logits, ids=ids, penalty=1.5)
    made = tensor(made) if made is not None else tensor(logits)
    if made.shape != logits.shape:
        raise OtherKind("it gives no logits")
    seen = torch.zeros_like(logits).scatter(1, ids, 1.0).bool()
    rise = (made - logits)[seen]
    if bool((rise >= -1e-9).any()):
        word = "a negative" if float(logits[seen][rise.argmax()]) < 0 else "a positive"
        yield Trouble(
            f"{penalty.name} does not lower {word} logit of a word that was written.",
            "a lower logit",
            shown(made[seen]),
        )
    elif not torch.equal(made[~seen], logits[~seen].double()):
        yield Trouble(
            f"{penalty.name} changes logits of words that were not written.", shown(logits[~seen]), shown(made[~seen])
        )


_KEPT = {
    "k": (((2, 2), (3, 3), (1, 1)), "the {} best words"),
    "p": (((0.65, 2), (0.3, 1), (0.95, 4)), "the best words that reach {}"),
    "least": (((0.6, 2), (0.9, 1), (0.2, 4)), "the words with {} times the probability of the best or more"),
}
"""What a filter is asked for, how many of 0.4, 0.3, 0.2 and 0.1 it keeps then, and what these are."""


@helper(
    "filters-keep-the-best-words",
    r"top_?k|top_?p|nucleus|min_?p(_|$)",
    {
        "k": r"(top_?)?k",
        "least": r"min_?p|least_p|p_?base",
        "p": r"(top_?)?p|threshold|nucleus_p",
        "filler": r"filter_value|fill(er|_value)?",
        "logits": r"logits?|scores|x",
    },
    ("logits",),
)
def filtered(filter_: Called) -> Iterator[Trouble]:
    """Of the probabilities 0.4, 0.3, 0.2 and 0.1, in any order: the k best, the first that reach p, or those that are
    at least such a share of the best."""
    asked = [meaning for meaning in _KEPT if filter_.has(meaning)]
    if len(asked) != 1:
        raise OtherKind("it keeps neither the k best, nor those that reach p, nor those that come near the best")
    cases, what = _KEPT[asked[0]]
    if asked == ["p"] and re.search(r"min_?p", filter_.says):  # p is the share, there
        cases, what = _KEPT["least"]
    probs = torch.tensor([[0.2, 0.4, 0.1, 0.3], [0.1, 0.2, 0.3, 0.4]])
    for value, count in cases:
        made = tensor(filter_(logits=probs.log(), **{asked[0]: value}))
        if made.shape != probs.shape:
            raise OtherKind("it gives no logits")
        kept = made > (1e-9 if bool((made >= 0).all()) else -1e3)
        expected = torch.zeros_like(probs).scatter(1, probs.topk(count).indices, 1.0).bool()
        if not torch.equal(kept, expected):
            yield Trouble(
                f"{filter_.name} does not keep {what.format(value)} of the probabilities {shown(probs[0])}.",
                shown(probs[0][expected[0]]),
                shown(probs[0][kept[0]]),
            )
            return


_TEXT = [5, 2, 6, 1, 2, 3, 1, 2, 4, 1, 2]
_FORBIDDEN = {2: {6, 3, 4}, 3: {3, 4}, 4: set[int]()}
"""A text, and by the size of an n-gram the words that may not follow it."""


@helper(
    "forbidden-words-would-repeat-an-n-gram",
    r"n_?grams?",
    {
        "size": r"n|(no_repeat_?)?(n_?gram)(_?(size|len(gth)?))?|size|no_repeat|block_?size",
        "step": r"(cur(rent)?_?)?(len(gth)?|step|pos)",
        "rows": r"(num_?|n_?)?(hypos|beams|rows|batch(_size)?)",
        "ids": (
            r"ids|input_ids|tokens?|generated(_ids|_tokens)?|(prev(ious)?|decoded|output)(_input)?(_tokens|_ids)?|"
            r"history|seq(uence)?s?|text|out(put)?|hyp(othesis)?|words|y|ys"
        ),
        "logits": r"logits?|scores|lprobs|log_?p(robs?)?|x",
    },
    ("ids", "size"),
)
def forbidden_words(forbid: Called) -> Iterator[Trouble]:
    """The words behind each earlier place of the last n - 1 words are forbidden, and no others."""
    forms: list[Any] = [torch.tensor([_TEXT]), torch.tensor(_TEXT), [_TEXT], _TEXT]
    found = [[_forbidden(forbid, ids, size) for size in _FORBIDDEN] for ids in forms]
    changes = forbid.has("logits") and re.search(r"inf|min\b|-1e", forbid.source)  # what it forbids is seen in these
    told = [words for words in found if None not in words and (any(words) or changes)]  # else it is another form
    if not told:
        raise OtherKind("it gives no words")
    best = max(told, key=lambda words: sum(map(operator.eq, words, _FORBIDDEN.values())))
    for (size, expected), got in zip(_FORBIDDEN.items(), best, strict=True):
        if got != expected:
            yield Trouble(
                f"{forbid.name} with n = {size} forbids other words than those that would repeat {size} words of the "
                f"text {' '.join(map(str, _TEXT))}.",
                ", ".join(map(str, sorted(expected))) or "none",
                ", ".join(map(str, sorted(got or ()))) or "none",
            )
            return


def _forbidden(forbid: Called, ids: Any, size: int) -> set[int] | None:
    """The words that may not follow the text: those that it gives, or whose logits it lowers. None where it does not
    run so, or gives something else."""
    vocab, rows = 8, torch.as_tensor(ids).ndim
    with suppress(Exception):
        made = forbid(ids=ids, size=size, logits=torch.zeros([1] * (rows - 1) + [vocab]), step=len(_TEXT), rows=1)
        if forbid.has("logits"):
            scores = tensor(made)
            return {*(scores.reshape(-1) < -100).nonzero().reshape(-1).tolist()} if scores.numel() == vocab else None
        words = list(made.tolist() if isinstance(made, Tensor) else made)
        if len(words) == 1 and isinstance(words[0], (list, set, tuple)):
            words = list(words[0])
        if all(type(word) is int for word in words):
            return set(words)
    return None
