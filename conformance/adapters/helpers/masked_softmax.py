"""Helpers that take the softmax of scores of which some are hidden, by lengths or by a mask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, near, noise, shown, tensor

_SCORES = noise(2, 3, 4)
_LENGTHS = torch.tensor([2, 3])


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
    seen = (torch.arange(4) < _LENGTHS[:, None])[:, None].expand(2, 3, 4)
    expected = _SCORES.masked_fill(~seen, float("-inf")).softmax(-1)
    made = [one for one in (_of(softmax, form, seen) for form in _FORMS) if one is not None]
    if not made:
        raise OtherKind("it takes no scores with lengths or a mask")
    if not any(near(one, expected) for one in made):
        best = min(made, key=lambda one: float((one - expected).abs().max()))
        yield Trouble(
            f"{softmax.name} is not the softmax of the scores that can be seen, with 0 for the others.",
            shown(expected[0, 0]),
            shown(best[0, 0]),
        )
        return
    form = next(form for form in _FORMS if (one := _of(softmax, form, seen)) is not None and near(one, expected))
    scores = _SCORES.clone().requires_grad_()
    given = {"scores": scores * 1.0, **_given(softmax, form, seen)}
    try:
        softmax.arguments.call(softmax.function, **given).square().sum().backward()
    except RuntimeError as error:
        yield Trouble(
            f"{softmax.name} cannot be trained through: {str(error).split(',')[0].split(':')[0]}.",
            "a gradient for the scores",
            "none",
        )


_FORMS = ("lengths", "lengths of each query", "what is seen", "what is hidden", "1 for what is seen")


def _given(softmax: Called, form: str, seen: Tensor) -> dict[str, Tensor | int]:
    ways: dict[str, dict[str, Tensor | int]] = {
        "lengths": {"lengths": _LENGTHS},
        "lengths of each query": {"lengths": _LENGTHS[:, None].expand(2, 3)},
        "what is seen": {"mask": seen},
        "what is hidden": {"mask": ~seen},
        "1 for what is seen": {"mask": seen.float()},
    }
    return {**ways[form], "dim": -1} if set(ways[form]) <= {*softmax.arguments.parameter_of} else {}


def _of(softmax: Called, form: str, seen: Tensor) -> Tensor | None:
    """What it gives in a form; None where it does not run so."""
    given = _given(softmax, form, seen)
    with suppress(Exception):
        made = tensor(softmax(scores=_SCORES, **given)) if given else None
        return made if made is not None and made.shape == _SCORES.shape else None
    return None
