"""Losses that are given the words themselves, shift them within, and leave out what a mask marks as padding."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

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


@helper(
    "masks-of-losses-are-shifted-with-the-labels",
    r"loss|nll|cross_?entropy|perplexity|log_?lik(elihood)?",
    {
        "pad": PAD,
        "mask": _REAL,
        "logits": r"(lm_|student_)?logits?|pred(s|ictions?)?|out(puts?)?|scores",
        "ids": r"(input_?|token_?)?(ids|idx)|tokens?|labels?|targets?|tgt|y|x|seq(uence)?s?|words",
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
    with torch.enable_grad():
        leaf = noise(*ids.shape, _WIDTH).requires_grad_()
        given = loss.arguments.call(loss.function, logits=leaf, ids=ids.clone(), mask=mask.clone(), pad=-100)
        value = next(one for one in (given if isinstance(given, tuple) else (given,)) if isinstance(one, Tensor))
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return torch.where(gradient.abs().sum(-1) > 0, gradient.argmin(-1), -1)
