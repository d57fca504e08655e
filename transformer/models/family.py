"""What the families of published models share: a configuration in the file's own words, and tables of names.

A family's `Config` has the fields of its config.json; its `names` say which of our parameters a key of its weights file
holds. `transformer.checkpoints` reads and writes the files.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from reprlib import repr as short
from typing import Any, ClassVar, Self

import numpy as np

from minigrad import nn


class CheckpointError(ValueError):
    """A checkpoint that cannot be used. The message is one sentence: what is wrong, what was expected."""


# --- configurations -------------------------------------------------------------------------------

ACTIVATIONS = {  # a configuration's word for ours
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "silu": "silu",
    "swish": "silu", "tanh": "tanh", "sigmoid": "sigmoid", "linear": "identity",
}  # fmt: skip


def activation(name: str) -> str:
    """Our name of an activation. Raises CheckpointError for one that there is not."""
    if name not in ACTIVATIONS:
        raise CheckpointError(f"config: there is no activation {short(name)}, only {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a model under the names of its config.json; `extra` keeps those that do not shape it.

    fixed: settings that would change the function of the model, with the one value that is built here.
    """

    model_type: ClassVar[str]
    fixed: ClassVar[Mapping[str, Any]] = {}

    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """From the contents of a config.json. Raises CheckpointError that names the setting that cannot be used."""
        hints = typing.get_type_hints(cls)
        names = [f.name for f in dataclasses.fields(cls) if f.name != "extra"]
        for name in names:
            if name in settings:
                _check_setting(name, settings[name], hints[name])
        for name, value in cls.fixed.items():
            if settings.get(name, value) != value:
                raise CheckpointError(
                    f"config: {name} is {short(settings[name])}, and {cls.model_type} is built here with {value!r} only"
                )
        known = {name: settings[name] for name in names if name in settings}
        return cls(**known, extra={name: value for name, value in settings.items() if name not in names})

    def to_dict(self) -> dict[str, Any]:
        """The contents of a config.json."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "extra"}
        return {**self.extra, **own, "model_type": self.model_type}

    @property
    def n_labels(self) -> int:
        """How many labels a head tells apart."""
        labels = getattr(self, "id2label", None)
        return 2 if labels is None else len(labels)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of some keys of the weights file that have every size in them: checked before anything is allocated."""
        raise NotImplementedError


def _check_setting(name: str, value: Any, hint: Any) -> None:
    allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in allowed:
        return
    if {bool, str, dict, list} & set(allowed):
        fits, expected = type(value) in allowed, " or ".join(kind.__name__ for kind in allowed)
    elif float in allowed:
        fits, expected = type(value) in (int, float) and 0.0 <= value < math.inf, "a number that is not negative"
    else:
        least = 0 if name.endswith("_id") or name.startswith("first_") else 1
        fits, expected = type(value) is int and least <= value < 2**31, f"a whole number, at least {least}"
    if not fits:
        raise CheckpointError(f"config: {name} must be {expected}, got {short(value)}")


# --- names of parameters ---------------------------------------------------------------------------


class Name:
    """One key of a weights file and the parameters of ours that it holds, stacked along the rows if several.

    "{}" stands for a number (a layer, an expert), "*" for weight or bias. transposed: matrices are stored (in, out).
    optional: a file may lack it. by_head: head after head, each with its part of all of ours.
    """

    def __init__(
        self, theirs: str, *ours: str, transposed: bool = False, optional: bool = False, by_head: bool = False
    ) -> None:
        self.theirs, self.ours, self.transposed, self.optional = theirs, ours, transposed, optional
        self.by_head, self.heads = by_head, 1

    def matches(self, key: str) -> bool:
        """Is `key` of a weights file one that this rule is about?"""
        return _pattern(self.theirs).fullmatch(key) is not None

    def concrete(self, own: Sequence[str], heads: int = 1) -> Iterator[Name]:
        """This rule for each of the parameters called `own` that it is about, of a model with so many heads."""
        pattern = _pattern(self.ours[0])
        for match in filter(None, map(pattern.fullmatch, own)):
            theirs, *ours = (text.replace("*", "{}").format(*match.groups()) for text in (self.theirs, *self.ours))
            found = Name(theirs, *ours, transposed=self.transposed, optional=self.optional, by_head=self.by_head)
            found.heads = heads if self.by_head else 1
            yield found

    def stored(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """The file's array of our values."""
        each = [value.reshape(self.heads, -1, *value.shape[1:]) for value in values]
        array = values[0] if len(values) == 1 else np.concatenate(each, 1).reshape(-1, *values[0].shape[1:])
        return array.T if self.transposed and array.ndim == 2 else array

    def stored_shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The shape of the file's array of values of these shapes."""
        shape = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        return shape[::-1] if self.transposed else shape

    def split(self, array: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Our values, of these shapes, of the file's array."""
        array = array.T if self.transposed and array.ndim == 2 else array
        edges = np.cumsum([shape[0] // self.heads for shape in shapes])[:-1]
        if self.heads == 1:
            return np.split(array, edges)
        parts = np.split(array.reshape(self.heads, -1, *array.shape[1:]), edges, 1)
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(r"\{\}", "([0-9]+)").replace(r"\*", "(weight|bias)"))


class Family:
    """What a model class says of itself, beside being a Module.

    - architectures: the class names of `transformers` that it is equal to, with the arguments that make it so
    - names: of its parameters
    - prefix: what files that were saved without a head leave out of the keys
    - renamed: patterns of other keys under which files may have the same values, and what they become
    - ignored: patterns of keys that are no parameters, or belong to heads that it does not have
    - copies: keys that some files leave out, and the key whose value they then have
    """

    config_class: ClassVar[type[Config]]
    architectures: ClassVar[Mapping[str, Mapping[str, Any]]]
    names: ClassVar[Sequence[Name]]
    prefix: ClassVar[str] = ""
    renamed: ClassVar[Sequence[tuple[str, str]]] = ()
    ignored: ClassVar[Sequence[str]] = ()
    copies: ClassVar[Mapping[str, str]] = {}
    config: Any

    @classmethod
    def check_head(cls, head: str | None) -> None:
        """Raise ValueError for a head that none of its architectures has."""
        heads = [given.get("head") for given in cls.architectures.values()]
        if head not in heads:
            raise ValueError(f"{cls.__name__}: head must be {' or '.join(map(repr, heads))}, got {head!r}")

    def architecture(self) -> str:
        """The class of `transformers` that this model is: the first whose arguments are its own."""
        found = self.architectures.items()
        return next(name for name, given in found if all(getattr(self, key) == value for key, value in given.items()))

    @classmethod
    def canonical(cls, key: str) -> str:
        """The key of `names` that a key of a weights file stands for; itself if none."""
        for candidate in (key, cls.prefix + key):
            for pattern, replacement in cls.renamed:
                candidate = re.sub(pattern, replacement, candidate)
            if cls.ignores(candidate) or any(name.matches(candidate) for name in cls.names):
                return candidate
        return key

    @classmethod
    def found(cls, key: str, keys: Container[str]) -> str | None:
        """Which of the `keys` of a file has the value of `key`: itself, or one that is a copy of it; None if none."""
        copies = [copy for copy, source in cls.copies.items() if source == key]
        return next((each for each in (key, cls.copies.get(key), *copies) if each in keys), None)

    @classmethod
    def ignores(cls, key: str) -> bool:
        """Is `key` of a weights file none that this model needs?"""
        return any(re.fullmatch(pattern, key) for pattern in cls.ignored)


def initialise(model: nn.Module, std: float) -> None:
    """Matrices and tables from N(0, std), biases zero, rows of padding tokens zero, as BERT and GPT-2 start."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.ndim > 1:
                nn.init.normal_(parameter, 0.0, std)
            elif name == "bias":
                nn.init.zeros_(parameter)
        if isinstance(module, nn.Embedding):
            module.zero_padding()
