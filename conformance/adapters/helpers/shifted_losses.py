"""Losses that are given the words themselves, shift them within, and leave out padding or the prompt of an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.functions.arguments import PAD
from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, noise, shown

_REAL = r"(attention|attn|key_?padding|pad(ding)?|valid|real|token)s?_?masks?|masks?|(is_?)?(real|valid|keep)"
_LENGTHS, _WIDTH = (7, 4, 5), 9
"""How many words of each row are real; behind them stands a word that no row holds."""
_PADDING = 0
_PAD_ENDS = re.compile(r"pad\w*\s*=\s*[\w.]*(eos|end)")
"""Padding is the sign of the end, which is to be taught once."""


_OF_LOGITS = {
    "logits": r"(lm_|student_)?logits?|pred(s|ictions?)?|out(puts?)?|scores",
    "ids": r"(input_?|token_?)?(ids|idx)|tokens?|labels?|targets?|tgt|y|x|seq(uence)?s?|words",
}


@helper(
    "masks-of-losses-are-shifted-with-the-labels",
    r"loss|nll|cross_?entropy|perplexity|log_?lik(elihood)?",
    {
        "pad": PAD,
        "mask": _REAL,
        **_OF_LOGITS,
    },
    ("logits", "ids", "mask"),
)
def shifted_mask(loss: Called) -> Iterator[Trouble]:
    """Where logits at t are taught word t + 1, they are where that word is real, and not where it is padding."""
    named = loss.arguments.parameter_of["mask"].lower()
    said = re.search(r"pad|real|atten|valid", named + loss.says)
    if not said or re.search(r"eos|\bend\b", loss.says + loss.source.lower()) or _PAD_ENDS.search(loss.file.lower()):
        raise OtherKind("its mask may mark what is to be predicted, or the first padding may be the end")
    words = 1 + torch.arange(len(_LENGTHS) * max(_LENGTHS)).reshape(len(_LENGTHS), -1) % (_WIDTH - 1)
    real = torch.arange(words.shape[1]) < torch.tensor(_LENGTHS)[:, None]
    ids = torch.where(real, words, _PADDING)
    taught = _best_reading(loss, ids, real)
    wanted = real[:, 1:]
    places = taught.ne(-1)
    inside = places[:, -1:].logical_not().all() and bool((taught[:, :-1] == ids[:, 1:])[places[:, :-1]].all())
    if not inside or int(places.sum()) < int(wanted.sum()) // 2:
        raise OtherKind("it does not shift its labels")
    more, less = (places[:, :-1] & ~wanted).any(), (~places[:, :-1] & wanted).any()
    if not bool(more | less):
        return
    yield Trouble(
        f"{loss.name} does not shift its mask as it shifts its labels: "
        + ("the first padding behind each text is taught." if bool(more) else "a real word of a text is not taught."),
        f"labels of the first texts: {shown(ids[1, 1:][wanted[1]])}",
        shown(taught[1][places[1]]),
        at=(rf"\b{named}\b\[", rf"(?i)\b{named}\b.*[=(]"),
        mend=f"cut {named} as the labels are cut: {named}[:, 1:] where the labels are [:, 1:]",
    )


def _best_reading(loss: Called, ids: Tensor, real: Tensor) -> Tensor:
    """The labels of each place (B, T), -1 for none, by the reading of its mask that teaches more real words."""
    readings = []
    for mask in (real, real.long(), real.float(), ~real):
        with suppress(Exception):
            readings.append(_taught(loss, ids, mask))
    if not readings:
        raise OtherKind("it takes no logits (B, T, V), words and mask")
    return max(readings, key=lambda one: int((one.ne(-1)[:, :-1] & real[:, 1:]).sum()))


def _taught(loss: Called, ids: Tensor, mask: Tensor) -> Tensor:
    """What each place is taught, by the gradient of its logits: the word that they are drawn to."""
    return _valued(loss, ids, mask=mask.clone(), pad=-100)[0]


def _valued(loss: Called, ids: Tensor, **told: Any) -> tuple[Tensor, float]:
    """What each place is taught, by the gradient of its logits, -1 for nothing; and the value of the loss."""
    with torch.enable_grad():
        leaf = noise(*ids.shape, _WIDTH).requires_grad_()
        given = loss.arguments.call(loss.function, logits=leaf, ids=ids.clone(), **told)
        value = next(one for one in (given if isinstance(given, tuple) else (given,)) if isinstance(one, Tensor))
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return torch.where(gradient.abs().sum(-1) > 0, gradient.argmin(-1), -1), float(value.detach().sum())


_PROMPTS = (3, 1, 2)
"""How many words of each row are its prompt."""


@helper(
    "losses-of-answers-begin-behind-the-prompt",
    r"loss|nll|cross_?entropy|sft",
    {
        "pad": PAD,
        "prompt": r"(prompt|prefix|instruction|context|question)s?_?(lens?|lengths?|sizes?)|answer_?starts?",
        **_OF_LOGITS,
    },
    ("logits", "ids", "prompt"),
)
def behind_the_prompt(loss: Called) -> Iterator[Trouble]:
    """The first word of an answer is taught, no word of its prompt is, and the mean is over the words that are."""
    words = 1 + torch.arange(len(_LENGTHS) * max(_LENGTHS)).reshape(len(_LENGTHS), -1) % (_WIDTH - 1)
    real = torch.arange(words.shape[1]) < torch.tensor(_LENGTHS)[:, None]
    ids, prompts = torch.where(real, words, _PADDING), torch.tensor(_PROMPTS)
    taught, value = _valued(loss, ids, prompt=prompts, pad=_PADDING)
    places = taught.ne(-1)
    if not places.any(1).all() or not bool((taught[:, :-1] == ids[:, 1:])[places[:, :-1]].all()) or places[:, -1].any():
        raise OtherKind("it does not shift its labels, or teaches no answer")
    first = places.int().argmax(1)
    late, early = bool((first == prompts).all()), bool((first == (prompts - 2).clamp(min=0)).all())
    if late or early:
        yield Trouble(
            f"{loss.name} "
            + ("does not teach the first word of an answer." if late else "teaches a word of the prompt."),
            f"labels of the first text: {shown(ids[0, 1:][_PROMPTS[0] - 1 : _LENGTHS[0] - 1])}",
            shown(taught[0][places[0]]),
            at=(r"prompt|prefix|instruction|context|question|start",),
            mend="the first label is word prompt_length, and logits at prompt_length - 1 are taught it",
        )
        return
    logp = noise(*ids.shape, _WIDTH).log_softmax(-1)
    total = -logp[:, :-1].gather(-1, ids[:, 1:, None])[..., 0][places[:, :-1]].sum()
    rows, length = ids.shape
    means = [float(total) / count for count in (int(places.sum()), rows * (length - 1), rows * length)]
    if abs(value - means[0]) > 1e-6 and any(abs(value - mean) < 1e-6 for mean in means[1:]):
        yield Trouble(
            f"{loss.name} divides by all places, those of prompts and padding too.",
            f"the mean over {int(places.sum())} words: {means[0]:.6g}",
            f"{value:.6g}",
            at=(r"\.mean\(|reduction", r"/ *\w"),
            mend="divide by how many words are taught",
        )
