"""One way in which a model writes: how it is called, and what it did.

A `Writer` is a method or function (generate, sample, greedy_decode, translate) with the meanings of its parameters. It
is called with every choice decided (`choices`), so that what samples becomes exact.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.adapters.whole.calling import default_dtype
from conformance.adapters.whole.choices import Choices, Step
from conformance.adapters.whole.conditions import calls_of, conditions_of
from conformance.adapters.whole.declared import Declared, KeptTuple, TextModel
from conformance.adapters.whole.hypotheses import Hypothesis, hypotheses, tokens_of
from conformance.adapters.whole.spelling import Spelling
from conformance.protocol import Array, NotProvided
from conformance.seeds import seed_torch


@dataclass
class Written:
    """new: (B, n) the tokens that were written. prefix: (B, P) what stood before them: the prompt, with a sign of the
    start where the writer puts one in front, or the start of a target. kept: whether the answer begins with the prompt.
    raw: (B, N) the answer. noise: what the rounding of the numbers on the way may change, relative to the largest.
    partly: whether it chose for some rows alone. conditions: what forward was given at every step beside the tokens.
    hypotheses: the sentences of a beam search, with scores.
    chosen_at: the line that chose the last token. barred: (V) tokens that were minus infinity whenever it chose.
    beams: what `Choices.beams` saw.
    """

    new: Array
    prefix: Array
    kept: bool
    steps: list[Step]
    raw: Array
    noise: float
    partly: bool = False
    conditions: Mapping[str, Tensor] = field(default_factory=dict)
    hypotheses: Sequence[Hypothesis] = ()
    chosen_at: str = ""
    barred: Array | None = None
    beams: Sequence[tuple[Array, Array]] = ()

    @property
    def cached(self) -> bool:
        """Whether later steps were fed a few of the tokens that stood there; a window of them is most of them."""
        length = self.prefix.shape[1]
        return any(step.fed is not None and 0 < 2 * step.fed <= length + at for at, step in enumerate(self.steps) if at)


_RULES_OF_CHOICE = ("repetition", "presence", "frequency", "least", "ngram", "min_p")
DRAWS = {"sample": True, "greedy": False}
"""What its switches are where it shall draw."""


class DrawsOtherwise(NotProvided):
    """It draws in a way that cannot be decided from outside."""


class Writer(Declared):
    """One way in which a model writes, called."""

    def left_behind(
        self, subject: TextModel, data: Mapping[str, Array], training: bool = True
    ) -> tuple[list[str], str]:
        """The names of parameters that writing changes, and the mode in which it leaves a model that is in training
        mode, or in evaluation mode."""
        twin = subject.twin()
        before = {name: p.detach().clone() for name, p in twin.module.named_parameters()}
        twin.module.train(training)
        self.write_with(twin, data, 2, None, mode=None)
        modes = {part.training for part in twin.module.modules()}
        changed = [name for name, p in twin.module.named_parameters() if not torch.equal(before[name], p)]
        return changed, "training" if modes == {True} else "evaluation" if modes == {False} else "a mode of its own"

    def twice(
        self, subject: TextModel, data: Mapping[str, Array], other: Mapping[str, Array], script: Array
    ) -> tuple[Written, Written]:
        """What one model writes for a prompt, and again after it wrote for another one."""
        twin = subject.twin()
        new = script.shape[1]
        first = self.write_with(twin, data, new, script=script)
        self.write_with(twin, other, new, script=script[:, ::-1])
        return first, self.write_with(twin, data, new, script=script)

    def distribution(self, subject: TextModel, data: Mapping[str, Array], **options: Any) -> Array:
        """(rows, V): how likely it draws each token first. Only the first row where columns are not tokens: then each
        column is drawn once to see which token it gives. Raises NotProvided where it does not draw, or otherwise."""
        options = {name: value for name, value in DRAWS.items() if self.has(name)} | options
        written = self.write(subject, data, 1, **options)
        if not written.steps or not written.steps[0].drawn:
            raise NotProvided(f"{self.name} draws nothing that can be seen")
        weights = written.steps[0].scores
        if (weights < 0).any() or not np.isfinite(weights).all():
            raise NotProvided(f"what {self.name} draws by is no probability")
        weights = weights / weights.sum(1, keepdims=True)
        vocab = subject.calling.main.vocab

        def token(column: int) -> int:
            return int(self.write(subject, data, 1, column, **options).new[0, 0])

        ranked = np.argsort(-weights[0], kind="stable")
        if weights.shape[1] == vocab and all(token(int(column)) == column for column in ranked[:2]):
            return np.asarray(weights)
        found = np.zeros((1, vocab))
        for column in ranked[weights[0, ranked] > 0]:
            found[0, token(int(column))] += weights[0, column]
        return found

    @contextmanager
    def ending(self, subject: TextModel, token: int) -> Iterator[dict[str, Any]]:
        """The end token set to `token` in the subject's settings, and in its file's; yields the options to hand in."""
        if self.has("end") or self.spelled:
            yield {"end": token}
            return
        settings = list(self.end_settings(subject))
        if not settings:
            raise NotProvided(f"{self.name} has no end token")
        try:
            for holder, name, _ in settings:
                _set(holder, name, token)
            yield {}
        finally:
            for holder, name, value in settings:
                _set(holder, name, value)

    def ended_by(self, subject: TextModel, data: Mapping[str, Array], script: Array, token: int) -> Written:
        """What it writes by a script when `token` is the end."""
        twin = subject.twin()
        with self.ending(twin, token) as options:
            return self.write_with(twin, data, script.shape[1], script=script, **options)

    def write(
        self, subject: TextModel, data: Mapping[str, Array], new: int, draw: int | None = -1, **more: Any
    ) -> Written:
        """What it writes behind a prompt ("ids"), or for a source ("src"). draw: as `Choices` takes it; more: script,
        seed, and options by meaning.

        Works on a copy of the subject. Raises whatever the writer raises.
        """
        return self.write_with(subject.twin(), data, new, draw, **more)

    def write_with(
        self,
        subject: TextModel,
        data: Mapping[str, Array],
        new: int,
        draw: int | None = -1,
        script: Array | None = None,
        seed: int = 0,
        mode: bool | None = False,
        **options: Any,
    ) -> Written:
        """`write` on the subject itself. mode: whether it is in training mode; None leaves it."""
        meaning = "src" if subject.calling.two_sided else subject.calling.main.meaning
        begins = subject.calling.two_sided or self.tells_of
        prompt = torch.tensor(data[meaning])
        rows = len(prompt)
        shaped = self._told(subject, data) if self.tells_of else self.shaped(prompt, subject)
        if self.form in ("letters", "words"):
            shaped = self._spelling(subject, options).text(shaped)
        given = self.arguments(subject, data, shaped, new + self.offset(data), options)
        call = getattr(subject.module, self.name) if self.method else self.function
        first = () if self.method else (subject.module,)
        watch = Choices(subject.token_tables(), subject.calling.main.vocab, rows, draw, script)
        seed_torch(seed)
        with (
            nullcontext() if mode is None else subject.mode(mode),
            torch.no_grad(),
            default_dtype(subject.torch_dtype),
            calls_of(subject.module) as calls,
            watch,
        ):
            result = call(*first, **given)
            if isinstance(result, types.GeneratorType):
                result = list(result)
        if self.spelled:
            result = _read(result, self._spelling(subject, options))
        raw = tokens_of(result, rows, subject.calling.batch_first)
        if watch.random and draw is not None:
            raise DrawsOtherwise(f"{self.name} draws by {watch.random}, whose outcome cannot be decided from outside")
        steps = watch.steps(subject.calling.batch_first, begins)
        prefix = (
            self._start(raw, steps, given, watch.begun_with(subject.calling.batch_first)) if begins else data[meaning]
        )
        size = prefix.shape[1]
        kept = raw.shape[1] >= size and bool((raw[:, :size] == prefix).all())
        if not begins:
            prefix = watch.led_by(prefix, subject.calling.batch_first)
        return Written(
            raw[:, size:] if kept else raw,
            prefix,
            kept,
            steps,
            raw,
            watch.noise,
            watch.partly,
            conditions_of(subject, calls),
            hypotheses(result) if rows == 1 else (),
            watch.chosen_at,
            None if watch.barred is None else watch.barred.numpy(),
            watch.beams(),
        )

    def _start(self, raw: Array, steps: list[Step], given: Mapping[str, Any], begun: Array | None) -> Array:
        """(B, 1): the token that a target begins with."""
        if self.has("start"):
            value = given.get(self.options["start"], self.default("start"))
            if isinstance(value, int):
                return np.full((len(raw), 1), value)
        by_beams = self.tells_of and (self.beam or self.has("beams"))  # its choices are not those of a sample
        first = steps[0].first if steps and not (by_beams and begun is not None) else None
        if first is not None:
            return first[:, None]
        if begun is not None:
            return begun[:, None]
        raise NotProvided(f"{self.name} does not tell what a target begins with")

    def shaped(self, prompt: Tensor, subject: TextModel) -> Any:
        if self.form == "(B, T)" or self.form == "(1, T)":
            return subject.calling.turned(prompt)
        return prompt[0] if self.form == "(T)" else prompt[0].tolist()

    def _told(self, subject: TextModel, data: Mapping[str, Array]) -> Any:
        """What it tells of: an image or a recording for each row, or one without the axis of the batch."""
        value = self.masks(subject, data)[self.prompt]
        return value if self.form in ("(B, T)", "(1, T)") else value[0]

    def _spelling(self, subject: TextModel, options: Mapping[str, Any]) -> Spelling:
        """The tokenizer that it is handed."""
        words = max(subject.calling.main.vocab, subject.calling.outputs or 0)
        return Spelling(words, self.form == "letters", end=options.get("end", -1), pad=subject.pad_id or 0)

    def arguments(
        self, subject: TextModel, data: Mapping[str, Array], prompt: Any, count: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Its keyword arguments: the prompt, the count, the options that are asked for, the others without effect."""
        given: dict[str, Any] = {}
        inverse = {parameter: meaning for meaning, parameter in self.options.items()}
        known = self.masks(subject, data)
        for parameter in parameters_of(self.function, self.method):
            meaning = inverse.get(parameter.name, "")
            if parameter.name == self.prompt:
                given[parameter.name] = prompt
            elif parameter.name in self.spelled:
                given[parameter.name] = self._spelling(subject, options).as_handed(parameter.name)
            elif meaning in options:
                given[parameter.name] = options[meaning]
            elif meaning == "count":
                given[parameter.name] = count
            elif (value := _neutral(meaning, parameter, subject)) is not None:
                given[parameter.name] = value
            elif parameter.default is parameter.empty and parameter.name in known:
                given[parameter.name] = known[parameter.name]
        return given

    def masks(self, subject: TextModel, data: Mapping[str, Array]) -> dict[str, Any]:
        """forward's other arguments for the same data: the writer may ask for them by the same names."""
        inputs = dict(data)
        if subject.calling.two_sided:
            inputs["tgt"] = inputs["src"][:, :1]
        sides = {one.meaning: inputs[one.meaning] for one in subject.calling.inputs if one.meaning in inputs}
        key = "{}_padding" if subject.calling.two_sided else "padding"
        real = {key.format(meaning): np.ones(np.shape(ids)[:2], dtype=bool) for meaning, ids in sides.items()}
        found: dict[str, Any] = {}
        for given in ({**real, **inputs}, inputs):  # masks that are handed in only where there is padding, too
            with suppress(Exception), default_dtype(subject.torch_dtype):
                found |= subject.calling.arguments(subject.tensors(given))
        return found


def _read(result: Any, spelling: Spelling) -> Any:
    """What a writer returns, with texts as their tokens."""
    if isinstance(result, str):
        return spelling.tokens(result)
    if isinstance(result, list | tuple):
        if result and all(isinstance(one, str) for one in result):
            return [token for one in result for token in spelling.tokens(one)]
        parts = [_read(one, spelling) for one in result]
        return tuple(parts) if isinstance(result, tuple) else parts
    return result


def _set(holder: Any, name: str, value: int) -> None:
    if isinstance(holder, KeptTuple):
        holder.put(name, value)
    elif isinstance(holder, dict):
        holder[name] = value
    else:
        object.__setattr__(holder, name, value)


def _neutral(meaning: str, parameter: inspect.Parameter, subject: TextModel) -> Any:
    """The value of an option without effect; None where its default, or nothing, serves."""
    default, required = parameter.default, parameter.default is parameter.empty
    numbers: dict[str, Any] = {
        "temperature": 1.0,
        "top_k": subject.calling.main.vocab,
        "top_p": 1.0,
        "start": 1,
        "end": -1,
        "pad": subject.pad_id or 0,
        "beams": 1,
        "length_penalty": 0.0,
        "repetition": 1.0,
        "presence": 0.0,
        "frequency": 0.0,
        "least": 0,
        "ngram": 0,
        "min_p": 0.0,
        "device": "cpu",
        "window": subject.longest or 64,
        "sample": True,
        "greedy": False,
    }
    if meaning in ("top_k", "top_p") and not required and (not default or default == 1.0):
        return None  # off by default
    if meaning in ("start", "pad", "device", "window", "sample", "greedy") and not required:
        return None
    if meaning in ("end", *_RULES_OF_CHOICE) and default is None:
        return None
    if re.search(r"penalty", parameter.name.lower()) and default is not None and meaning != "length_penalty":
        factor = "repet" in parameter.name.lower() or (default == 1.0 and meaning not in ("presence", "frequency"))
        return 1.0 if factor else 0.0
    return numbers.get(meaning)


def parameters_of(function: Callable[..., Any], method: bool) -> list[inspect.Parameter]:
    """Its parameters without self, and without the model."""
    rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p for p in inspect.signature(function).parameters.values() if p.kind not in rest][1:]
