"""What a parameter is given that no call shows and no name tells: what the code does with it says what it must be.

In this order: an object of the user's files that has what is read of it, one that their functions return, an instance
of a class of theirs; else something made for it: settings, a list, words, a part that can be called.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from conformance.adapters.inference.construct import CONFIGS
from conformance.adapters.whole.absent_weights import tokenizer_of_numbers
from conformance.adapters.whole.class_source import is_only_kept
from conformance.adapters.whole.configs import Guessed, fields_of, is_config
from conformance.adapters.whole.holdings import Holdings, fits, parameters_of
from conformance.adapters.whole.returning import Returns
from conformance.adapters.whole.sizes import SMALL, Sized, Unknown, meaning, plain
from conformance.adapters.whole.usage import Surroundings
from conformance.adapters.whole.uses import Use, use_of

NUMBER = 4
"""A number of which nothing is known: small, and even."""
_MANY = 3
"""So many elements a list has of which nothing is known: not as many as the samples of a batch, nor as layers."""
_AXES = 4
"""So many axes a tensor has at most."""
_TEXT = "the quick brown fox jumps over the lazy dog, and packs my box with 12 dozen jugs."
_OF_WORDS = re.compile(r"voc|words?$|tokens?$|symbols?$|chars?$|letters?$|alphabet|phonemes?$|itos|^labels?$", re.I)
_OF_TEXT = re.compile(r"^(text|corpus|data|document|string)s?$", re.I)
_OF_TOKENIZERS = re.compile(r"(^|_)tok(enizer)?$", re.I)
_OF_TENSORS = frozenset(("shape", "size", "dim", "ndim", "device", "dtype", "T", "t", "data"))
_BUILDERS: tuple[tuple[str, Any], ...] = (
    ("norm|ln", nn.LayerNorm),
    ("act|gelu|relu|nonlin|gate", nn.GELU),
    ("conv", nn.Conv1d),
    ("emb", nn.Embedding),
    ("drop", nn.Dropout),
    ("lin|proj|dense|fc|map", nn.Linear),
)
"""What a parameter that the constructor calls is by a part of its name."""
_APPLIED: tuple[tuple[str, Any], ...] = (("norm|ln", nn.Identity), ("drop", nn.Identity), ("", nn.GELU))
"""The same for one that forward calls: of which module."""


def needed(evaluator: Returns, made_by: Any, name: str, annotation: Any, given: Mapping[str, Any]) -> Any:
    """What the parameter of a class or function gets by its name, or by how it is used where that does not fit.

    given: the arguments so far, whose sizes a part must have. Raises Unknown.
    """
    by_name: Any = None
    failure: Unknown | None = None
    try:
        by_name = evaluator.part(name, annotation)
    except Unknown as unknown:
        failure = unknown
    if failure is not None and isinstance(made_by, type) and is_only_kept(made_by, name):
        return None
    use = used(evaluator.around, made_by, name)
    if not use.says_something or (failure is None and fits(by_name, use)):
        if failure is not None:
            raise failure
        return by_name
    try:
        return _Finder(evaluator, given, made_by).for_use(name, use, by_name)
    except Unknown:
        if failure is not None:
            raise failure from None
        return by_name


def settings(evaluator: Returns, made_by: Any, name: str) -> Any:
    """Settings that have every name that is read of them, and any other that says what it means."""
    return _Finder(evaluator, {}, made_by).settings(used(evaluator.around, made_by, name), None)


def words_needed(evaluator: Returns, made_by: Any, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of ``**name``, the keys that are read without a default, and those with one whose size changes."""
    finder, use = _Finder(evaluator, {}, made_by), used(evaluator.around, made_by, name)
    found: dict[str, Any] = {}
    for key, inner in use.items.items():
        if key in given:
            continue
        if key not in use.defaults:
            found[key] = finder.field(key, inner)
            continue
        try:
            default = evaluator.value(*use.defaults[key])
        except Unknown:
            continue
        if (sized := evaluator.resized(key, default)) is not default:
            found[key] = plain(sized)
    return found


def used(around: Surroundings, made_by: Any, name: str) -> Use:
    """What a class or function does with a parameter, found once."""
    key = (made_by, name)
    if key not in around.uses:
        around.uses[key] = use_of(made_by, name, around.scope_of, around.module)
    return around.uses[key]


class _Finder:
    """Finds or makes values by their uses. given: the arguments beside them."""

    def __init__(self, evaluator: Returns, given: Mapping[str, Any], made_by: Any) -> None:
        self.evaluator, self.around = evaluator, evaluator.around
        self.given, self.made_by = given, made_by
        self.holdings = Holdings(evaluator, made_by)

    def for_use(self, name: str, use: Use, by_name: Any = None) -> Any:
        """A value for a parameter. by_name: what its name alone suggests. Raises Unknown."""
        if self.evaluator.strict:
            raise Unknown(name)
        if use.options and (option := self.holdings.option(use)) is not None:
            return option
        if use.attributes or use.is_mapping or (use.counted and not use.is_sequence):
            for held in self.holdings.held(name, use):
                if fits(held, use):
                    return self.evaluator.sized(held)
        if _OF_TOKENIZERS.search(name) and (use.is_called or use.attributes) and "transformers" in sys.modules:
            return tokenizer_of_numbers(sys.modules["transformers"])
        if use.attributes:
            return self._object(name, use, by_name)
        if use.is_mapping:
            return self._mapping(name, use)
        if use.is_called:
            return self._callable(name, use)
        return self._sequence(name, use)

    # --- what is made for it ----------------------------------------------------------------------

    def _object(self, name: str, use: Use, by_name: Any) -> Any:
        """A tensor or a part where only what these have is read, else settings that have what is read."""
        if not use.items and _is_of_tensors(use):
            if use.attributes.keys() & _OF_TENSORS:
                return torch.randn(*self._table())
            raise Unknown(name)
        if use.is_called or "weight" in use.attributes:
            return self._part(name, use)
        if name.lower() in CONFIGS and by_name is None:
            raise Unknown(name)  # after the settings of files near by
        return self.settings(use, by_name)

    def settings(self, use: Use, by_name: Any) -> Any:
        """Settings with every name that is read of them: those that `by_name` has already, and those that it lacks."""
        found = Guessed(dict(fields_of(by_name)) if by_name is not None and is_config(by_name) else {})
        for key, inner in {**use.items, **use.attributes}.items():
            if key not in found and key not in use.defaults:
                found[key] = self.field(key, inner)
        widths = [name for name in found if isinstance(found[name], int) and meaning(str(name)) == "d_model"]
        found |= dict.fromkeys(widths, found[widths[0]]) if widths else {}  # one has two names
        for name in [name for name in found if name.endswith("head_dim")]:  # a head that is turned in one part
            parts = [found.get(name.replace("head_dim", f"{part}_head_dim")) for part in ("nope", "rope")]
            if all(isinstance(part, int) for part in parts):
                found[name] = sum(parts)
        if use.counted and len(found) < SMALL["vocab"]:
            return _Counted(found)
        return self.evaluator.passed(found)

    def field(self, name: str, use: Use) -> Any:
        """What settings have under a name: what the files give it somewhere, else by its name, else by its use."""
        if use.attributes or use.items or use.mapped:
            return self.for_use(name, use) if name.lower() not in CONFIGS else self.settings(use, None)
        written = self.around.written_value(name)
        if written is not None and fits(written, use) and not (meaning(name) and _is_no_size(name, written)):
            return plain(self.evaluator.sizing.of(name, written))
        if use.texts:
            return use.texts[0]
        try:
            value = self.evaluator.guess(name)
            if fits(value, use):
                return plain(value)
        except Unknown:
            pass
        if use.says_something:
            return plain(self.for_use(name, use))
        return False if use.tested and not use.computed else NUMBER

    def _mapping(self, name: str, use: Use) -> Any:
        """A vocabulary where its keys are tokens, else settings."""
        keys = list(use.items)
        if _OF_WORDS.search(name) or any(not key.isidentifier() for key in keys):
            keys += [f"w{n}" for n in range(SMALL["vocab"] - len(keys))]
            return {key: at for at, key in enumerate(keys)}
        if name.lower() in CONFIGS:
            raise Unknown(name)
        return self.settings(use, None)

    def _sequence(self, name: str, use: Use) -> Any:
        """A list of sizes, of pairs, of words, by its name and by what is done with its elements."""
        if _OF_TEXT.search(name):
            return _TEXT
        written = self.around.written_value(name)
        if isinstance(written, (list, tuple)) and written:
            return plain(self.evaluator.sizing.of(name, written))
        element = use.element or Use()
        if _OF_WORDS.search(name) and not element.computed:
            return [f"w{n}" for n in range(SMALL["vocab"])]
        many = use.unpacked or (use.last + 1 if use.last > 0 and use.by_number else max(_MANY, use.last + 1))
        if element.is_sequence or element.attributes or element.items:
            return [self.field("", element) for _ in range(many)]
        value = self._one(name)
        return plain(self.evaluator.sizing.of(name, [value] * many if many > 1 else [value]))

    def _one(self, name: str) -> Any:
        """An element of the list of this name: what the name means in the singular."""
        for said in (name, name.removesuffix("s")):
            value = SMALL.get(meaning(said) or "")
            if type(value) in (int, float) and meaning(said) != "scale":
                return value
        return NUMBER

    def _callable(self, name: str, use: Use) -> Any:
        """A class of modules where the constructor calls it, a module where forward does."""
        lower = name.lower()
        if not use.built:
            return self._part(name, use)
        for words, cls in _BUILDERS:
            if re.search(words, lower):
                return cls
        own = vars(self.around.module).values()
        for cls in own:
            if not isinstance(cls, type) or not issubclass(cls, nn.Module) or cls is self.made_by:
                continue
            required = [p for p in parameters_of(cls) if p.default is p.empty and p.kind < 2]
            if self.around.is_users(cls) and len(required) == use.built[0]:
                return cls
        if max(use.built) > 2:
            raise Unknown(name)
        return (nn.GELU, nn.LayerNorm, nn.Linear)[max(use.built)]

    def _part(self, name: str, use: Use) -> Any:
        """A module: a table of embeddings by its name, else one that keeps shapes."""
        if re.search(r"emb|table|wte|shared|head|unembed|lookup", name.lower()):
            return nn.Embedding(*self._table())
        if "weight" in use.attributes:
            return nn.Linear(*reversed(self._table()))
        return next(cls() for words, cls in _APPLIED if re.search(words, name.lower()))

    def _table(self) -> tuple[int, int]:
        """(words, width) by the arguments beside it, and by the fields of settings among these."""
        sizes: dict[str, int] = {}
        for name, value in self.given.items():
            fields = fields_of(value) if is_config(value) else {name: value}
            for key, size in fields.items():
                if isinstance(key, str) and type(size) in (int, Sized) and (what := meaning(key)):
                    sizes.setdefault(what, int(size))
        return sizes.get("vocab", SMALL["vocab"]), sizes.get("d_model", SMALL["d_model"])


def _is_of_tensors(use: Use) -> bool:
    """Whether a tensor has all that is read of a value: ``x.dim()``, and not ``x.dim``."""
    read = {name: getattr(torch.Tensor, name, None) for name in use.attributes}
    has_all = all(hasattr(torch.Tensor, name) for name in read)
    return has_all and all(use.attributes[name].is_called or not callable(held) for name, held in read.items())


def _is_no_size(name: str, value: Any) -> bool:
    """Whether it is a word, or the number of an axis, as in ``softmax(dim=-1)`` and ``cat(dim=1)``."""
    is_axis = isinstance(value, int) and (value < 0 or (value < _AXES and name.lower() == "dim"))
    return isinstance(value, str) or is_axis


class _Counted(Guessed):
    """Settings that also say how many there are: the words of a vocabulary."""

    def __len__(self) -> int:
        return int(SMALL["vocab"])
