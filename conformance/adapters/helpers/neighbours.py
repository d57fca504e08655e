"""Functions that give a vector or a score for each of several texts: a text gets the same one beside longer texts."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.adapters.functions.arguments import PAD, Arguments, read
from conformance.adapters.helpers.trial import Found, OtherKind, Trouble, parts, seeded, shown, tensor
from conformance.adapters.inference.facts import Unresolved
from conformance.adapters.whole.model import WholeModel
from conformance.places import line_of

CLAIM = "numbers-of-texts-do-not-depend-on-their-neighbours"
_WORDS = {
    "model": r"(\w+_)?(model|net|network|encoder|transformer|lm|bert|gpt)",
    "query": r"query|question|context|prompt|prefix|premise",
    "texts": (
        r"(\w+_)?(texts|sentences|docs|documents|sequences|seqs|passages|queries|captions|prompts|rows|lists|"
        r"candidates|options|choices|continuations|answers|endings|hypotheses|examples)"
    ),
    "pad": PAD,
}
SHORT, LONG = 3, 6
"""Lengths of the texts."""
TOLERANCE = 1e-3
"""Of the size of a vector: rounding in float32 moves it by far less."""


def takes_texts(function: Callable[..., Any]) -> bool:
    """Whether a function takes a model first, and texts."""
    try:
        arguments = read(function, _WORDS)
    except (Unresolved, TypeError, ValueError):
        return False
    first = next(iter(inspect.signature(function).parameters), "")
    return arguments.has("texts") and arguments.parameter_of.get("model") == first


def compared(functions: Sequence[Callable[..., Any]], subject: WholeModel) -> Iterator[Found]:
    """What the claim says of the functions that give numbers of one kind for each text. Nothing of those that cannot be
    called with words, and of those whose numbers depend on the rest of the batch in any case."""
    if not _can_hide_padding(subject):
        return
    for function in functions:
        try:
            trouble = _compared(function, subject)
        except Exception:  # it wants what nothing here shows, or gives something else
            continue
        place = line_of(inspect.unwrap(function)) if trouble else ""
        yield Found(CLAIM, function.__name__, trouble, place, _MEND if trouble else "")


_MEND = "leave the places of padding out of what is summed, averaged or taken for each text"


def _can_hide_padding(subject: WholeModel) -> bool:
    """Whether the model itself can be kept from reading padding."""
    calling = subject.calling
    has_words = bool(calling.main.vocab) and calling.main.length is None and not calling.two_sided
    hides = calling.masks or calling.optional_masks or calling.lengths or calling.optional_lengths
    return has_words and bool(hides or subject.pad_id is not None or subject.kind == "language_model")


def _compared(function: Callable[..., Any], subject: WholeModel) -> Trouble | None:
    """Raises OtherKind, or what the function raises."""
    arguments, twin = read(function, _WORDS), subject.twin(torch.float32)
    rng = np.random.default_rng(0)
    draws = (twin.tokens(rng, twin.calling.main.meaning, (size,)) for size in (SHORT, SHORT, LONG, SHORT))
    one, other, longer, query = (torch.as_tensor(drawn) for drawn in draws)
    last: Exception = OtherKind("it takes no texts")
    for form in (Tensor.tolist, Tensor.clone):

        def numbers(*texts: Tensor, form: Callable[[Tensor], Any] = form) -> Tensor:
            given = {"model": twin.module.eval(), "query": form(query), "texts": [form(text) for text in texts]}
            return _numbers(function, arguments, given | {"pad": twin.pad_id or 0}, len(texts))

        try:
            alone = numbers(one)[0]
        except Exception as error:
            last = error
            continue
        near = _nearness(alone, numbers(other)[0])
        if not near(numbers(one, other)[0]):
            raise OtherKind("its numbers depend on the other texts in any case")
        for beside in (numbers(one, longer)[0], numbers(longer, one)[1]):
            if not near(beside):
                sentence = f"{function.__name__} gives a text other numbers beside a longer one: padding counts."
                return Trouble(sentence, shown(alone), shown(beside))
        return None
    raise last


def _nearness(alone: Tensor, other: Tensor) -> Callable[[Tensor], bool]:
    """Whether something is the numbers of a text. Raises OtherKind where they tell two texts not apart."""
    bound = TOLERANCE * max(1e-3, float(alone.abs().max()))
    if not alone.isfinite().all() or alone.shape != other.shape or float((alone - other).abs().max()) <= bound:
        raise OtherKind("it gives every text the same numbers")
    return lambda found: found.shape == alone.shape and float((found - alone).abs().max()) <= bound


def _numbers(function: Callable[..., Any], arguments: Arguments, given: dict[str, Any], count: int) -> Tensor:
    """What it gives for each text (count, ...). Raises OtherKind where these are no fractions."""
    required = {n for n, p in inspect.signature(function).parameters.items() if p.default is p.empty}
    taken = {m: value for m, value in given.items() if arguments.parameter_of.get(m) in required}
    with warnings.catch_warnings(), seeded(), torch.no_grad():
        warnings.simplefilter("ignore")
        made = arguments.call(function, **taken)
    for one in [made, *(parts(made) if not isinstance(made, Tensor) else [])]:
        is_whole = isinstance(one, Tensor) and not one.is_floating_point()
        if is_whole or not hasattr(one, "__len__") or len(one) != count:
            continue
        found = tensor(one)
        if not (found == found.round()).all():
            return found
    raise OtherKind("it gives no numbers for each text")
