"""The functions with which a model writes (generate, sample, greedy_decode, translate) are found, and tried.

`DecodingProbes` gives the subject its `Writer`s, and its own logits of the next token, to which they are compared.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import FIRST, quiet_evaluation
from conformance.adapters.whole.conditions import under, with_prefix, with_two_documents
from conformance.adapters.whole.declared import MEANINGS, TextModel
from conformance.adapters.whole.feeding import fed_otherwise_at, stepped_otherwise_at
from conformance.adapters.whole.fillers import are_numbers
from conformance.adapters.whole.guests import functions_around
from conformance.adapters.whole.part_probes import PartProbes
from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.adapters.whole.spelling import TEXT, is_handed
from conformance.adapters.whole.stepping import Steps, memory_length, stepping, window_length
from conformance.adapters.whole.used_functions import text_of
from conformance.adapters.whole.writer import Writer, Written, parameters_of
from conformance.places import innermost_line
from conformance.protocol import Array, Arrays, NotProvided

WRITES = re.compile(
    r"generate|sampl|greedy|translat|decod|beam|complet|continu|infer|predict|autoreg|rollout|summari|caption|transcri|respond|reply"
)
NO_WRITER = re.compile(
    r"mask|loss|batch|data|embed|filter|logits|next|step|train|eval|token(s|ize)?_|tokeniz|_top|top_|token$|subsequent|^(_|get|set|can|load|is)|cross|layer"
)
_BY_WORDS = (r"\[:, -1(, :)?\]", r"argmax|multinomial|topk", r"\bcat\(|\.append\(", r"\b(for|while)\b")
"""What a function says that writes words: it reads the last scores, chooses, goes on with its choice, and repeats."""
MODELS = re.compile(r"model|net|network|transformer|lm|gpt|decoder|m|module|seq2seq|self|translator|generator_model")
"""What a function's parameter for the model is called."""


def writes_word_by_word(function: Callable[..., Any]) -> bool:
    """Whether a function of the user's says, whatever its name is, that it writes."""
    text = text_of(function) if inspect.isfunction(function) else ""
    return all(re.search(one, text) for one in _BY_WORDS)


def _writes(name: str, function: Callable[..., Any]) -> bool:
    named = WRITES.search(name.lower()) is not None or writes_word_by_word(function)
    return named and not NO_WRITER.search(name.lower())


def candidates(module: nn.Module) -> Iterator[tuple[str, Callable[..., Any], bool]]:
    """Methods of the model, then functions of its file that take a model first, that write by their names or texts."""
    for name, function in inspect.getmembers(type(module), inspect.isroutine):
        own = not (getattr(function, "__module__", None) or "torch").startswith("torch")
        if own and _writes(name, function):
            yield name, function, True
    for name, beside in taking_a_model(module):
        if _writes(name, beside):
            yield name, beside, False


def taking_a_model(module: nn.Module) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions of a module's file, and those that were pointed at beside it, that take a model first, as functions
    that take this one."""
    for name, function in functions_around(module).items():
        if not inspect.isroutine(function):
            continue
        with suppress(ValueError, TypeError):
            first = next(iter(inspect.signature(function).parameters.values()), None)
            annotated = (
                isinstance(first.annotation, type) and issubclass(first.annotation, nn.Module) if first else False
            )
            if first is not None and (annotated or MODELS.fullmatch(first.name.lower())):
                yield name, taken_by(module, function)


def taken_by(module: nn.Module, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function beside the model, as one that takes this module: it may have been written for another engine."""
    taken: Callable[[Callable[..., Any]], Callable[..., Any]] | None = getattr(module, "taken_by", None)
    return taken(function) if taken else function


def planned(name: str, function: Callable[..., Any], method: bool, subject: TextModel) -> Writer:
    """How to call it, by the names of its parameters. Raises NotProvided with what it asks for and is not known."""
    options: dict[str, str] = {}
    spelled: list[str] = []
    prompt, tells_of = "", False
    beam = "beam" in name.lower()
    known = Writer(name, function, method, {}, "").masks(subject, subject.example())
    parameters = parameters_of(function, method)
    behind = _behind_its_count(parameters)
    for at, parameter in enumerate(parameters):
        lower = parameter.name.lower()
        meaning = "" if parameter is behind else _meaning(parameter)
        first = parameter is behind if behind else at == len(spelled) and not prompt
        if is_handed(parameter.name) and parameter.default is parameter.empty and parameter.name not in known:
            spelled.append(parameter.name)
            continue
        if first and (parameter.default is parameter.empty) and meaning in ("", "start", "count"):
            prompt = parameter.name
            tells_of = are_numbers(subject.calling.fixed.get(prompt))
        elif beam and lower in ("k", "width"):
            options.setdefault("beams", parameter.name)
        elif meaning and meaning not in options and not isinstance(parameter.default, str):
            options[meaning] = parameter.name
        elif parameter.default is parameter.empty and parameter.name not in known:
            raise NotProvided(f"{name} asks for {parameter.name}, whose meaning is not known")
    if not prompt:
        raise NotProvided(f"{name} takes no prompt first")
    return Writer(name, function, method, options, prompt, beam=beam, tells_of=tells_of, spelled=tuple(spelled))


def _meaning(parameter: inspect.Parameter) -> str:
    return next((m for m, words in MEANINGS.items() if re.fullmatch(words, parameter.name.lower())), "")


def _behind_its_count(parameters: Sequence[inspect.Parameter]) -> inspect.Parameter | None:
    """The prompt of a writer that takes first how much it shall write, as sample(model, length, context) does."""
    if (
        not parameters
        or _meaning(parameters[0]) != "count"
        or re.search(r"tokens?$|words$", parameters[0].name.lower())
    ):
        return None
    rest = [p for p in parameters[1:] if p.default is p.empty]
    if any(_meaning(p) == "count" for p in parameters[1:]):
        return None
    return next((p for p in rest if not _meaning(p) or p.name.lower() in ("context", "ctx", "start")), None)


class DecodingProbes(TextModel, PlaceProbes, PartProbes):
    """The experiments with writing, of a running model."""

    def writers(self) -> list[Writer]:
        """The ways in which it writes that can be run. Raises NotProvided, with why none can, when there is none."""
        if "writers" not in self.known:
            self.known["writers"] = _found(self)
        writers, reasons = self.known["writers"]
        if not writers:
            raise NotProvided(reasons[0] if reasons else "it has no function that writes (generate, sample, translate)")
        return writers

    def memory_length(self) -> int | None:
        """How many tokens its memories hold, as it says; None where nothing says it."""
        return memory_length(self.module)

    def window_length(self) -> int | None:
        """How many tokens each token sees, as it says; None where nothing says it."""
        return window_length(self.module)

    def stepping(self) -> Steps:
        """How it is fed in pieces with a cache. Raises NotProvided."""
        return stepping(self)

    def called_as_in(self, written: Written) -> Self:
        """The subject whose forward is handed what the writer hands it at every step."""
        return under(self, written.conditions)

    def fed_otherwise_at(self, writer: Writer, written: Written, data: Arrays) -> str:
        """file:line that makes the first thing that a cached step computes otherwise than one pass; "" for none."""
        return fed_otherwise_at(self, writer, written, data)

    def stepped_otherwise_at(self, steps: Steps, ids: Array, pieces: tuple[int, ...]) -> str:
        """The same for pieces that are fed by hand."""
        return stepped_otherwise_at(self, steps, ids, pieces)

    def with_prefix(self, length: int) -> Self:
        """The subject told that so many tokens at the start of each row are a prefix. Raises NotProvided where forward
        takes no such number."""
        return with_prefix(self, length)

    def with_two_documents(self, begins: Sequence[int] = ()) -> tuple[Self, str]:
        """The subject told that each row holds two documents, and the line that keeps documents apart. begins: where
        the second one begins in each row. Raises NotProvided where forward takes no such numbers."""
        return with_two_documents(self, begins)

    def next_logits(self, prefix: Array, src: Array | None = None) -> Array:
        """(B, V): the model's own logits of the token after a prefix, in one pass without a cache."""
        meaning = self.calling.main.meaning
        longest = self.longest
        tokens = prefix[:, -longest:] if longest else prefix
        subject = self
        if self.calling.starts:  # its own start is that of the prefix, and it leaves the last label out
            subject, tokens = self.twin(), np.concatenate([prefix[:, 1:], np.full_like(prefix[:, :1], FIRST)], 1)
            subject.calling = replace(self.calling, starts=False)
        given = {meaning: tokens} | ({"src": src} if src is not None else {})
        if self.calling.led:
            last = self._behind_own_start(given)
        else:
            out = subject(**given)["out"]
            last = out[:, -1] if out.ndim == 3 else out
        if self.calling.outputs == self.calling.main.vocab:
            return last
        states = torch.tensor(last, dtype=self.torch_dtype)
        called = self.called_paths()
        for name, head in self.module.named_children():
            if name not in called:
                with suppress(Exception), self.mode(False), torch.no_grad():
                    logits = head(states)
                    if logits.shape == (len(states), self.calling.main.vocab):
                        return to_array(logits.double())
        raise NotProvided("forward gives no logits, and what makes them of its answer is not known")

    def _behind_own_start(self, given: Arrays) -> Array:
        """(B, V): the answer behind a prefix to which forward adds the start by itself: it is left out, and one word
        more is handed over, whose answer is not read, since a text of none may not be."""
        prefix = given[self.calling.main.meaning]
        tokens = np.concatenate([prefix[:, 1:], np.full_like(prefix[:, :1], FIRST)], 1)
        inputs = {**given, self.calling.main.meaning: tokens}
        with quiet_evaluation(self.module):
            whole = self.calling.with_start(self.run(inputs)["result"], self.tensors(inputs))
        if whole is None:
            raise NotProvided("forward gives no logits behind its own start")
        return to_array(whole[:, -2].double())

    def with_larger_matrices(self, times: float) -> Self:
        """A copy whose matrices, but for those with a row or column for each word, are larger by a factor: what its
        layers say counts more beside the word that was read."""
        other = self.twin()
        with torch.no_grad():
            for parameter in other.module.parameters():
                if parameter.dim() > 1 and self.calling.main.vocab not in parameter.shape:
                    parameter.mul_(times)
        return other

    def written_with_raised_logits(self, writer: Writer, data: Arrays, new: int, **options: Any) -> Array:
        """The new tokens where to all logits of a row one number is added, another one for each row: it changes no
        probability. Raises NotProvided where the product that gives the logits is not seen, or is not the only one of
        its width."""
        tables = [part.weight for part in self.module.modules() if isinstance(part, nn.Embedding)]
        maps = [p for p in self.module.parameters() if p.ndim == 2 and len(p) == self.calling.main.vocab]
        if sum(all(p is not table for table in tables) for p in maps) > 1:
            raise NotProvided("other products are as wide as the one that gives the logits")
        raised = _Raised(self.calling.main.vocab)
        with raised:
            written = writer.write(self, data, new, **options)
        if not raised.seen:
            raise NotProvided("the product that gives its logits was not seen")
        return written.new

    def narrow(self, precision: str, inputs: Arrays) -> Array:
        """The answer in another precision: a dtype's name, or "autocast " and a dtype's name."""
        name = precision.rpartition(" ")[2]
        auto = precision.startswith("autocast")
        twin = self.in_precision("float32" if auto else name)
        with torch.autocast("cpu", getattr(torch, name)) if auto else nullcontext():
            return twin(**inputs)["out"]


class _Raised(TorchFunctionMode):
    """Adds a number of its own to each row of what a linear map to the vocabulary gives."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.vocab, self.seen = vocab, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        maps = getattr(func, "__name__", "") in ("linear", "matmul", "__matmul__", "mm")
        if maps and result.shape[-1:] == (self.vocab,) and len(args[1].shape) == 2:
            self.seen = True
            return result + 3.0 * (100.0 * args[0].sum(-1, keepdim=True)).sin()
        return result


def _found(subject: TextModel) -> tuple[list[Writer], list[str]]:
    writers: list[Writer] = []
    reasons: list[str] = []
    if any(one.length for one in subject.calling.inputs):
        return [], ["it takes one length only"]
    for name, function, method in candidates(subject.module):
        try:
            writer = planned(name, function, method, subject)
        except (NotProvided, ValueError, TypeError) as error:
            reasons.append(str(error))
            continue
        failure: Exception | None = None
        ran: list[Writer] = []
        texts = ("words", "letters") if writer.spelled and TEXT.fullmatch(writer.prompt) else ()
        for form in (*texts, "(B, T)", "(1, T)", "(T)", "list"):
            try:
                ran.append(_counted(replace(writer, form=form), subject))
            except Exception as error:
                failure = failure or error
            if ran and not ran[-1].breaks:  # in another form one that breaks may go on
                break
        if ran:
            writers.append(min(ran, key=lambda one: bool(one.breaks)))
        else:
            said = " ".join(str(failure).split())[:160]
            known = isinstance(failure, NotProvided)
            reasons.append(f"{name}: {said}" if known else f"{name} cannot be run: {type(failure).__name__}: {said}")
    return writers, sorted(reasons, key=lambda reason: "no prompt" in reason)


def _counted(writer: Writer, subject: TextModel) -> Writer:
    """The writer, with whether its count is that of all tokens. Raises NotProvided when it writes nothing."""
    data = prompt_for(subject, writer.rows, 70)
    asked = 3
    try:
        got = writer.write(subject, data, asked).new.shape[1]
    except NotProvided:
        raise
    except Exception as error:
        short = subject.longest is not None and subject.longest < 8
        if short or writer.write(subject, data, 1).new.shape[1] != 1:
            raise
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        return replace(writer, breaks=said, breaks_at=innermost_line(error))
    if got < asked and writer.counts and "new" not in writer.options["count"]:
        total = replace(writer, total=True)
        if total.write(subject, data, asked).new.shape[1] == asked:
            return total
    if got == 0:
        raise NotProvided("it writes nothing")
    return writer


def prompt_for(subject: TextModel, rows: int, seed: int, length: int = 5) -> dict[str, Array]:
    """A prompt ("ids"), or a source ("src"), of random words."""
    meaning = "src" if subject.calling.two_sided else subject.calling.main.meaning
    inputs = subject.example(rows, length, seed, **{meaning: length})
    return {meaning: inputs[meaning]}
