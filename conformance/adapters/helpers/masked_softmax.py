"""Helpers that take the softmax of scores of which some are hidden, by lengths or by a mask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, near, noise, shown, tensor

_LENGTHS = torch.tensor([2, 3])
_SHAPES = ((2, 3, 4), (2, 4))
"""Scores of queries and keys (B, Tq, Tk), or of one row of keys for each sample (B, T)."""


@helper(
    "a-masked-softmax-gives-hidden-scores-nothing",
    r"masked_?softmax|softmax_?(with_?)?mask|mask(ed)?_and_softmax",
    {
        "lengths": r"valid_?lens?(gths?)?|lengths?|lens?|seq_?lens?|num_valid",
        "mask": r"(attn_?|attention_?|padding_?|key_?)?mask|valid|keep",
        "dim": r"dim|axis",
        "scores": r"x|scores|logits|inputs?|vec(tor)?|energy|attn(_scores)?|tensor",
    },
    ("scores",),
)
def masked_softmax(softmax: Called) -> Iterator[Trouble]:
    """The softmax of the scores that can be seen, and 0 for the others; and there is a way back to the scores."""
    ran = [
        (scores, form, seen, made)
        for scores, seen in map(_case, _SHAPES)
        for form in _FORMS
        if (made := _of(softmax, scores, form, seen)) is not None
    ]
    if not ran:
        raise OtherKind("it takes no scores with lengths or a mask")
    right = [(scores, form, seen) for scores, form, seen, made in ran if near(made, _expected(scores, seen))]
    if not right:
        scores, _, seen, made = ran[0]
        yield Trouble(
            f"{softmax.name} is not the softmax of the scores that can be seen, with 0 for the others.",
            shown(_expected(scores, seen)[0]),
            shown(made[0]),
        )
        return
    scores, form, seen = right[0]
    leaf = scores.clone().requires_grad_()
    given = {"scores": leaf * 1.0, **_given(softmax, form, seen)}
    try:
        softmax.arguments.call(softmax.function, **given).square().sum().backward()
    except RuntimeError as error:
        yield Trouble(
            f"{softmax.name} cannot be trained through: {str(error).split(',')[0].split(':')[0]}.",
            "a gradient for the scores",
            "none",
        )


def _case(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Scores, and which of them can be seen."""
    seen = torch.arange(4) < _LENGTHS[:, None]
    return noise(*shape), seen if len(shape) == 2 else seen[:, None].expand(shape)


def _expected(scores: Tensor, seen: Tensor) -> Tensor:
    return scores.masked_fill(~seen, float("-inf")).softmax(-1)


_FORMS = ("lengths", "lengths of each query", "what is seen", "what is hidden", "1 for what is seen")


def _given(softmax: Called, form: str, seen: Tensor) -> dict[str, Tensor | int]:
    ways: dict[str, dict[str, Tensor | int]] = {
        "lengths": {"lengths": _LENGTHS},
        "lengths of each query": {"lengths": _LENGTHS[:, None].expand(2, 3)} if seen.ndim == 3 else {},
        "what is seen": {"mask": seen},
        "what is hidden": {"mask": ~seen},
        "1 for what is seen": {"mask": seen.float()},
    }
    takes_it = ways[form].keys() and ways[form].keys() <= softmax.arguments.parameter_of.keys()
    return {**ways[form], "dim": -1} if takes_it else {}


def _of(softmax: Called, scores: Tensor, form: str, seen: Tensor) -> Tensor | None:
    """What it gives in a form; None where it does not run so."""
    given = _given(softmax, form, seen)
    with suppress(Exception):
        made = tensor(softmax(scores=scores, **given)) if given else None
        return made if made is not None and made.shape == scores.shape else None
    return None
