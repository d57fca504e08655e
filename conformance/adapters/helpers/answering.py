"""Helpers of texts that end with an answer to be learned: a prompt and its answer, alone or in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from torch import Tensor

from conformance.adapters.functions.arguments import PAD
from conformance.adapters.helpers.collating import BATCHES, WORDS
from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, named_parts, shown

_PROMPT, _ANSWER, _END, _PADDING = [11, 12, 13, 14], [21, 22, 23], 9, 0
_NOT_TAUGHT = -100
_IDS = r"(_?(ids|tokens|text))?"


@helper(
    "labels-of-examples-are-the-answer",
    r"example|sample|label|pair|sft|instruct|conversation|chat|prompt|answer|features",
    {
        "max_len": r"max_?(seq_?)?len(gth)?|block_size|n_ctx|max_tokens",
        "ignored": r"ignore(d)?(_?(index|id|label))?",
        "pad": PAD,
        "end": r"eos(_?(id|token|token_id|idx))?|end(_?(id|token))?|eot(_id)?",
        "begin": r"bos(_?(id|token|token_id|idx))?",
        "answer": rf"(response|answer|completion|output|reply|target|tgt|label)s?{_IDS}",
        "prompt": rf"(prompt|question|instruction|query|context|source|src|input)s?{_IDS}",
    },
    ("prompt", "answer"),
)
def example_of_an_answer(build: Called) -> Iterator[Trouble]:
    """The words of the answer and its end have labels, where the prompt has none; each label is a word of the text."""
    ids, labels = _example(build, 32)
    if not {*_PROMPT} <= {*ids}:
        raise OtherKind("prompt and answer are two texts, as for an encoder and a decoder")
    in_place = all(label in (_NOT_TAUGHT, word) for word, label in zip(ids, labels, strict=False))
    words = ids if in_place else [*ids[1:], labels[-1]]  # the last label stands behind the input then
    wrong = [label for word, label in zip(words, labels, strict=False) if label not in (_NOT_TAUGHT, word, _PADDING)]
    if wrong:
        yield Trouble(
            f"{build.name}: the labels are neither the words of the text, nor those one place ahead.",
            shown(words),
            shown(labels),
        )
        return
    taught = [word for word, label in zip(words, labels, strict=False) if label == word != _NOT_TAUGHT]
    if not set(taught) & {*_ANSWER} or {*_PROMPT} <= {*taught}:
        raise OtherKind("it teaches the prompt as well, or no answer")
    expected = _ANSWER + [_END] * (_END in (*ids, *labels))
    if [word for word in taught if word in (*_PROMPT, *expected)] != expected:
        extra, missing = [w for w in taught if w in _PROMPT], [w for w in expected if w not in taught]
        which = "the end, so that it is never learned" if missing == [_END] else f"of the answer: {shown(missing)}"
        yield Trouble(
            f"{build.name} gives labels to {len(extra)} words of the prompt."
            if extra
            else f"{build.name} leaves out {which}.",
            shown(expected),
            shown(taught),
        )
    elif build.has("max_len"):
        with suppress(OtherKind):  # nothing of the answer is left
            cut, of_cut = _example(build, 5)
            if len(cut) > 5 or len(of_cut) != len(cut):
                yield Trouble(
                    f"{build.name} gives {len(cut)} words and {len(of_cut)} labels where 5 is the longest.",
                    "at most 5, as many labels as words",
                    f"{len(cut)} and {len(of_cut)}",
                )


_BATCH = ((_PROMPT, _ANSWER), ([15, 16], [24, 25]))
"""Prompts and answers of two lengths: the row of the second is padded."""
_PAIRS: tuple[Callable[[list[int], list[int]], Any], ...] = (
    lambda prompt, answer: (prompt, answer),
    lambda prompt, answer: {"prompt": prompt, "answer": answer},
    lambda prompt, answer: {"prompt_ids": prompt, "answer_ids": answer},
    lambda prompt, answer: {"prompt": prompt, "response": answer},
    lambda prompt, answer: {"prompt": prompt, "completion": answer},
)


@helper("labels-of-examples-are-the-answer", BATCHES, WORDS, ("texts",))
def batch_of_answers(collate: Called) -> Iterator[Trouble]:
    """The same of a batch of prompts and answers: what holds in the longest row holds in a padded one, too."""
    for pair in _PAIRS:
        with suppress(Exception):
            given = {"texts": [pair(list(p), list(a)) for p, a in _BATCH], "pad": _PADDING, "max_len": 64}
            tables = _tables(collate(**given))
            break
    else:
        raise OtherKind("it takes no pairs of a prompt and an answer")
    ids = next((t for _, t in tables if {*_PROMPT, *_ANSWER} <= {*t[0]} and _NOT_TAUGHT not in t[0]), [])
    labels = next((t for _, t in tables if t is not ids and _NOT_TAUGHT in t[0]), [])
    if not ids or not labels or len(ids[0]) != len(labels[0]):
        raise OtherKind("it gives no rows with their labels")
    whole, short = (_taught(words, asked) for words, asked in zip(ids, labels, strict=True))
    if not set(_ANSWER) <= set(whole) or set(_PROMPT) & set(whole):
        raise OtherKind("it teaches the prompt as well, or not the whole answer")
    prompt, answer = _BATCH[1]
    extra, missing = [w for w in short if w in prompt], [w for w in answer if w not in short]
    if extra or missing:
        what = f"gives labels to {len(extra)} words of the prompt" if extra else "gives words of the answer no label"
        yield Trouble(
            f"{collate.name} {what} in a row that is padded, and in the longest row it does not.",
            shown(answer),
            shown(short),
            at=(r"(?i)labels?\b.*\[.*:.*\]\s*=.*(ignore|-100)", r"labels?\b.*\[.*:.*\]\s*=", r"labels?\b.*="),
            mend="count the padding that stands before the prompt, too",
        )


def _tables(made: Any) -> list[tuple[str, list[list[int]]]]:
    """The matrices of whole numbers with a row for each pair."""
    found = [(name, part.tolist() if isinstance(part, Tensor) else part) for name, part in named_parts(made)]
    return [
        (name, part)
        for name, part in found
        if isinstance(part, list)
        and len(part) == len(_BATCH)
        and all(isinstance(row, list) and row and all(type(word) is int for word in row) for row in part)
    ]


def _taught(words: list[int], labels: list[int]) -> list[int]:
    """The words of a row that have labels, in place or one place ahead."""
    ahead = [*words[1:], _PADDING]
    in_place = all(label in (_NOT_TAUGHT, word) for word, label in zip(words, labels, strict=True))
    pairs = zip(words if in_place else ahead, labels, strict=True)
    return [word for word, label in pairs if label == word != _PADDING]


def _example(build: Called, longest: int) -> tuple[list[int], list[int]]:
    """The words and the labels that it makes of a prompt and an answer. Raises OtherKind where it makes none."""
    made = build(
        prompt=list(_PROMPT),
        answer=list(_ANSWER),
        end=_END,
        begin=8,
        pad=_PADDING,
        ignored=_NOT_TAUGHT,
        max_len=longest,
    )
    rows = [(name, _listed(part)) for name, part in named_parts(made)]
    texts = [(name, row) for name, row in rows if row and all(type(word) is int for word in row)]
    ids = next((row for _, row in texts if _ANSWER[0] in row and _NOT_TAUGHT not in row), [])
    labels = next((row for name, row in texts if row is not ids and (_NOT_TAUGHT in row or "label" in name)), [])
    if not ids or not labels or abs(len(ids) - len(labels)) > 1:
        raise OtherKind("it gives no text with its labels")
    return ids, labels


def _listed(part: Any) -> list[Any]:
    if isinstance(part, Tensor):
        part = part.reshape(-1).tolist()
    return list(part) if isinstance(part, (list, tuple)) else []
