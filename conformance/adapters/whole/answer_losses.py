"""Losses of a file that take an answer and its labels, `loss(logits, labels)`: each is put behind the model, and is run
as if it took the model."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.pads import PadProbes
from conformance.adapters.whole.used_functions import text_of

_NAMED = re.compile(r"loss|criterion|(^|_)(nll|cross_entropy)", re.IGNORECASE)
_OTHER = re.compile(
    r"distil|contrast|dpo|ppo|reward|balanc|router|aux|z_loss|(^|_)(kl|kd|ctc|nsp|sop|info_?nce)|triplet|pair",
    re.IGNORECASE,
)
"""Names of losses of something else than a model's answer and its labels."""
_ANSWER = re.compile(r"(\w+_)?(logits?|preds?|predictions?|predicted|scores|out(put)?s?)|y_?(hat|pred)|log_?probs?")
_LABELS = re.compile(r"(\w+_)?(labels?|targets?|gold)|tgt|y|y_true|truth")
_WORDS = re.compile(r"(input_|token_)?ids|tokens|words|text|seq(uence)?s?")
_PAD = re.compile(r"pad(ding)?(_?(id|idx|index|token|token_id))?|ignore(d)?(_?(id|idx|index))?")
_COUNT = re.compile(r"(n_|num_)?(vocab(_size)?|classes|labels|tokens)|n_?classes|c|v")


def losses_of_answers(subject: PadProbes) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Each such loss, as a function of the model, its inputs and the labels; none where the model gives several
    answers, or wants its sequence first: which one, and in which form, a loss takes is not known then."""
    calling, scope = subject.calling, sys.modules.get(type(subject.module).__module__, object())
    if not calling.batch_first or calling.packed or calling.in_lists:
        return
    for name, function in list(vars(scope).items()):
        if not inspect.isfunction(function) or function.__module__ != type(subject.module).__module__:
            continue
        if _NAMED.search(name) and not _OTHER.search(name) and (behind := _behind(subject, function)) is not None:
            if not _answers_once(subject):
                return
            yield name, behind


def _answers_once(subject: PadProbes) -> bool:
    if "answers_once" not in subject.known:
        found = [one for one in tensors_in(subject.run(subject.example(2))["result"]) if one.is_floating_point()]
        subject.known["answers_once"] = len([one for one in found if one.dim() > 1]) == 1
    return bool(subject.known["answers_once"])


def _behind(subject: PadProbes, function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The loss behind the model; None where it takes something else."""
    parameters = list(inspect.signature(function).parameters.values())
    names = [one.name.lower() for one in parameters]
    if (
        len(names) < 2
        or not _ANSWER.fullmatch(names[0])
        or not (_LABELS.fullmatch(names[1]) or _WORDS.fullmatch(names[1]))
    ):
        return None
    known: dict[str, Any] = {}
    for one, name in zip(parameters[2:], names[2:], strict=True):
        if one.default is not one.empty:
            continue
        if _PAD.fullmatch(name) and subject.pad_id is not None:
            known[one.name] = subject.pad_id
        elif _COUNT.fullmatch(name):
            known[one.name] = subject.calling.outputs
        else:
            return None
    inputs = [one.parameter for one in subject.calling.inputs]
    label = parameters[1].name
    cut = re.search(rf"\b{label}\[[^\]]*(:-1|1:)", text_of(function))
    of_words = bool(_WORDS.fullmatch(names[1]))
    if of_words and not (cut and subject.kind == "language_model"):
        return None  # who calls it may have moved them on
    handed = inputs if of_words else [*inputs, label]
    if len({*handed}) < len(handed):
        return None

    @wraps(function)
    def behind(model: Any, **given: Any) -> Any:
        made = {one.meaning: given[one.parameter] for one in subject.calling.inputs}
        result = model(**subject.calling.arguments({"pad_id": subject.pad_id or 0, **made}))
        answer = next(one for one in tensors_in(result) if one.is_floating_point() and one.dim() > 1)
        return function(answer, given[inputs[-1]] if of_words else given[label], **known)

    ordinary = inspect.Parameter.POSITIONAL_OR_KEYWORD
    behind.__signature__ = inspect.Signature([inspect.Parameter(name, ordinary) for name in ("model", *handed)])  # type: ignore[attr-defined]
    return behind
