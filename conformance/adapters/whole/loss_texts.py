"""The texts that a loss is run on, and the batch in the form in which its function takes it apart (`Texts`).

Every word is another one, so that a word tells by itself where it stands.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.beside import numbers
from conformance.adapters.whole.calling import default_dtype
from conformance.adapters.whole.names import MAY_BE_LABELS, PREFIX, meaning_of
from conformance.adapters.whole.pads import PadProbes
from conformance.protocol import NotProvided

_BATCH = re.compile(r"batch|data|inputs?|examples?|samples?", re.I)
_SOURCE = re.compile(r"src|source|enc|^x$|input|question|article")
_ASKS = re.compile(r"(return|with|compute|get|calc|calculate|output)_?loss(es)?")
_NUMBER = re.compile(r"\w+_(idx|index|nb)|epoch|step|i")
ROWS, SOURCE, SHORTEST, TEXT, GIVEN, HIDDEN = 2, 4, 3, 5, 2, 2
"""How many sentences there are, how long sources are, how long at least where there are few words, how long other texts
are, how many words of a text are a prefix, and how many at the end of the first text are hidden."""


_LEARNED = re.compile(
    r"learn(ed|t|able)?|supervised?|is_(answer|reply|learned)|(loss|token|label)_weights?|counts|counted"
)
"""Names of what says which words are learned, and not mask."""


class Texts:
    """The texts of one run, and what stands for every other parameter."""

    def __init__(
        self,
        subject: PadProbes,
        padded: bool,
        flat: bool,
        wider: int,
        marked: bool = False,
        also: Collection[str] = (),
        tags: str = "",
    ) -> None:
        """also: names of parameters with a default that are given, too. tags: which labels are a class for each
        position, "all" or the "first"; the others are one for each text. "numbers": labels are like the answer."""
        self.also, self.tags, self.tagged = also, tags, 0
        self.subject, self.padded, self.flat, self.wider, self.marked = subject, padded, flat, wider, marked
        self.marks: list[str] = []
        self.texts: dict[str, Tensor] = {}
        self.where: dict[int, tuple[str, int, int]] = {}
        self.prefix = 0
        rng = np.random.default_rng(90)
        read = [one.meaning for one in subject.calling.inputs if one.vocab]
        words = [np.unique(subject.tokens(rng, meaning, (2000,))) for meaning in read] or [np.zeros(0, np.int64)]
        common = words[0][np.isin(words[0], words[-1])]
        self.words: list[int] = rng.permutation(common).tolist()
        spare = len(self.words) // ROWS - TEXT
        self.source = min(SOURCE, spare) if spare >= SHORTEST else SOURCE

    def knows(self, ids: Tensor) -> bool:
        """Are these words of the texts, but for a few, such as the one that a text starts with? Each stands there once:
        numbers of positions, which are the same in every text, may be numbers of words, too."""
        known = set(ids.reshape(-1).tolist()) & self.where.keys()
        return 2 * len(known) > ids.numel()

    def arguments(self, function: Callable[..., Any], lean: bool) -> dict[str, Any]:
        """Keyword arguments; lean: of those with a default the labels only. Raises NotProvided for a parameter that
        means nothing here."""
        parameters = list(inspect.signature(function).parameters.values())[1:]
        given: dict[str, Any] = {}
        of_forward = function.__name__ == "forward"
        known = {labels_of(self.subject), switch_of(self.subject)} if of_forward else set()
        calling = self.subject.calling
        known |= set() if lean else {one.parameter for one in calling.inputs} | calling.fixed.keys()
        known |= {*self.also}
        known |= {
            p.name
            for p in parameters
            if self.marked and (meaning_of(p.name) in ("mask", "lengths") or _LEARNED.fullmatch(p.name.lower()))
        }
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if parameter.default is not parameter.empty and parameter.name not in known:
                continue
            if of_forward and parameter.name == switch_of(self.subject):
                given[parameter.name] = True
                continue
            if _handed_to_the_model(function, parameter.name):
                given[parameter.name] = self._forwards(parameter.name)
                continue
            form = _taken_apart(function, parameter.name) if _BATCH.fullmatch(parameter.name.lower()) else None
            given[parameter.name] = self._batch(form) if form else self._value(parameter.name)
        if not given:
            raise NotProvided("it takes nothing")
        return given

    def _forwards(self, name: str) -> dict[str, Any]:
        """What forward takes, for a text of its own."""
        calling = self.subject.calling
        return calling.arguments(self.subject.tensors({calling.main.meaning: self._text(name, TEXT).numpy()}))

    def _batch(self, form: tuple[str, list[str]]) -> Any:
        how, names = form
        values = [self._value(name) for name in names]
        if how == "tuple":
            return tuple(values)
        made = dict(zip(names, values, strict=True))
        return made if how == "dict" else SimpleNamespace(**made)

    def _value(self, name: str) -> Any:
        subject, lower = self.subject, name.lower().strip("_")
        calling, said = subject.calling, meaning_of(name)
        own = next((one.meaning for one in calling.inputs if one.parameter == name), "")
        numbers = next((one.meaning for one in calling.inputs if not one.vocab), "")
        if numbers and (own == numbers or re.search(r"mel|audio|frames?|feat|img|image|pixel|^x$|^inputs?$", lower)):
            made = subject.example(ROWS, seed=91)[numbers]
            return torch.tensor(made, dtype=subject.torch_dtype)
        if name in calling.fixed and said != "labels":  # numbers beside the words: a picture, sound
            beside = calling.fixed[name]({calling.main.meaning: torch.zeros(ROWS, TEXT, dtype=torch.long)})
            numbers_beside = isinstance(beside, Tensor) and beside.is_floating_point()
            return beside.to(subject.torch_dtype) if numbers_beside else beside
        if PREFIX.fullmatch(lower):
            self.prefix = GIVEN
            return torch.full((ROWS,), GIVEN)
        if self.padded and not self.marked and _LEARNED.fullmatch(lower):
            raise NotProvided("whoever calls it says which words are learned")
        if said in ("mask", "lengths") or _LEARNED.fullmatch(lower):
            return self._marks(name, "lengths" if said == "lengths" else "mask")
        if said == "types":
            return torch.zeros(ROWS, TEXT, dtype=torch.long)
        if not own and _NUMBER.fullmatch(lower):
            return 0
        of_rows = not subject.positions and calling.outputs and (said == "labels" or re.fullmatch(r"y|targets?", lower))
        if of_rows or re.match(r"(nsp|cls|sent\w*|next_sent\w*|class)_?(labels?|targets?)", lower):
            is_like_the_answer = of_rows and self.tags == "numbers"
            classes = min(calling.outputs if of_rows else 2, 2)
            return self._numbers() if is_like_the_answer else torch.arange(ROWS) % classes
        if self.tags and not own and (said == "labels" or re.search(r"(^|_)(labels?|targets?|tags?)$|^y$", lower)):
            self.tagged += 1
            of_places = self.tags == "all" or self.tagged == 1
            return torch.arange(ROWS * TEXT).view(ROWS, TEXT) % 2 if of_places else torch.arange(ROWS) % 2
        if calling.packed and not calling.in_order and said != "labels":
            text = self._text(name, TEXT)
            packed = calling.arguments(subject.tensors({calling.main.meaning: text.numpy()}))
            return dict(packed[calling.packed])
        source = own == "src" or (calling.two_sided and _SOURCE.search(lower) and own != "tgt")
        return self._text(name, self.source if source else TEXT)

    def _numbers(self) -> Tensor:
        """Numbers in the shape of what the model answers, a row for each text."""
        subject = self.subject
        given = subject.calling.arguments(subject.tensors(subject.example(ROWS, seed=91)))
        with torch.no_grad(), subject.mode(False), default_dtype(subject.torch_dtype):
            answer = next(one for one in tensors_in(subject.module(**given)) if one.is_floating_point())
        return numbers("labels", answer.shape).to(answer.dtype)

    def _marks(self, name: str, said: str) -> Tensor:
        """Which words count, (B, T), or how many, (B)."""
        counted = torch.ones(ROWS, TEXT, dtype=torch.long)
        if self.marked:
            self.marks.append(name)
            counted[0, -HIDDEN:] = 0
        return self.subject.calling.turned(counted) if said == "mask" else counted.sum(1)

    def _text(self, name: str, length: int) -> Tensor:
        main = self.subject.calling.main
        length = main.length or min(length, self.subject.longest or length)
        if ROWS * length > len(self.words):
            raise NotProvided("its vocabulary is too small to give every word once")
        text = torch.tensor([self.words.pop() for _ in range(ROWS * length)]).reshape(ROWS, length)
        for row in range(ROWS):
            self.where |= {int(word): (name, row, at) for at, word in enumerate(text[row])}
        if self.padded and self.subject.pad_id is not None:
            in_front = self.subject.counts_from_the_end()
            text[0, slice(0, 2) if in_front else slice(-2, None)] = self.subject.pad_id
            if length == TEXT:
                more = torch.full((ROWS, self.wider), self.subject.pad_id)
                text = torch.cat([more, text] if in_front else [text, more], 1)
        self.texts[name] = text
        laid = self.subject.calling.turned(text)
        said = meaning_of(name)
        labels = said == "labels" or re.fullmatch(r"targets?|y|labels?", name.lower())
        return laid.reshape(-1) if self.flat and labels else laid.contiguous()


def _handed_to_the_model(function: Callable[..., Any], name: str) -> bool:
    """Whether a function calls its model with all that a parameter holds: self(**anchors)."""
    with suppress(OSError, TypeError):
        return bool(re.search(rf"\b(self|model|net|encoder)\(\*\*{re.escape(name)}\)", inspect.getsource(function)))
    return False


def _taken_apart(function: Callable[..., Any], name: str) -> tuple[str, list[str]] | None:
    """How a function takes a batch apart: as a tuple, dict or object, and the names of its parts."""
    with suppress(OSError, TypeError, SyntaxError):
        tree = ast.parse(dedent(inspect.getsource(function)))
        keys: dict[str, None] = {}
        attributes: dict[str, None] = {}
        for node in ast.walk(tree):
            of_batch = getattr(node, "value", None)
            if not (isinstance(of_batch, ast.Name) and of_batch.id == name):
                continue
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                parts = [part.id if isinstance(part, ast.Name) else "" for part in node.targets[0].elts]
                return ("tuple", parts) if all(parts) else None
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.slice, ast.Constant)
                and type(node.slice.value) is str
            ):
                keys[node.slice.value] = None
            if isinstance(node, ast.Attribute):
                attributes[node.attr] = None
        if keys:
            return "dict", list(keys)
        if attributes and not attributes.keys() & set(dir(Tensor)):
            return "object", list(attributes)
    return None


def labels_of(subject: PadProbes) -> str:
    """The parameter of forward that takes labels, also where it gives the loss alone for them; "" without one."""
    data = {one.parameter for one in subject.calling.inputs}
    names = [name for name in inspect.signature(subject.module.forward).parameters if name not in data]
    return subject.calling.labels or next((n for n in names if MAY_BE_LABELS.fullmatch(n.lower())), "")


def switch_of(subject: PadProbes) -> str:
    """The switch of forward that asks for the loss; "" without one."""
    parameters = inspect.signature(subject.module.forward).parameters.values()
    return next((p.name for p in parameters if p.default is False and _ASKS.fullmatch(p.name.lower())), "")
