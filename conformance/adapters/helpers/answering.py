"""Helpers of texts that end with an answer to be learned: a prompt and its answer as one example."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from torch import Tensor

from conformance.adapters.functions.arguments import PAD
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
