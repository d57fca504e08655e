"""What the names of parameters mean: the words of `names.toml`, and how a constructor's name is read by them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

_TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
_USUAL = {word: usual for usual, words in _TABLES["words"].items() for word in words}

_PHRASES = {
    option: frozenset(frozenset(phrase.split()) for phrase in phrases) for option, phrases in _TABLES["options"].items()
}

OPTIONS: tuple[str, ...] = tuple(_TABLES["options"])
"""The protocol's options, and a few of constructors only."""

SUPPLIED: dict[str, Any] = _TABLES["supplied"]
"""What a constructor is given that cannot do without an option, unless the option is asked for."""

ALWAYS: dict[str, Any] = _TABLES["always"]
"""What every constructor is given that has the option."""

CONFIGS, KEPT = (frozenset(_TABLES[table]["names"]) for table in ("configs", "kept"))
"""The names of config objects, and of parameters that keep their default."""

INPUTS: dict[str, list[str]] = _TABLES["inputs"]
"""The protocol's input -> its names in forward, in the order in which meanings are tried."""

_TOKENS: dict[str, list[str]] = _TABLES["tokens"]
_LANGUAGE_MODEL = {"cache": INPUTS["cache"], "offset": INPUTS["offset"], "ids": _TOKENS["ids"]}
MODEL_INPUTS: dict[str, dict[str, list[str]]] = {
    "decoder_lm": _LANGUAGE_MODEL,
    "cached_decoder_lm": _LANGUAGE_MODEL,
    "encoder_decoder": {"tgt": _TOKENS["tgt"], "src": [*_TOKENS["src"], *_TOKENS["ids"]]},
}
"""The same for the roles of whole models."""

WEIGHT_FLAGS, POSITIONS, TURNS = (frozenset(_TABLES["switches"][name]) for name in ("weights", "positions", "turns"))
"""Parameters of forward that ask for weights, those without which rotary positions cannot be had, and those that take
the cosines, sines or unit numbers by which attention turns its queries and keys."""


def words_of(name: str) -> frozenset[str]:
    """The words of a name in their usual form: ``trg_pad_idx`` and ``targetPadIndex`` are pad, tgt and id."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")
    found = {word for part in apart for word in _USUAL.get(part, part).split()}
    return frozenset(word.removesuffix("s") for word in found) if "n" in found and len(found) > 1 else frozenset(found)


@cache
def meanings(name: str) -> tuple[str, ...]:
    """The options that a name may mean, the likeliest first; none where nobody could tell."""
    words = words_of(name)
    exact = [option for option, phrases in _TABLES["options"].items() if name.lower() in phrases]
    whole = [option for option, phrases in _PHRASES.items() if words and words in phrases]
    within = [option for option, phrases in _PHRASES.items() if any("*" in p and p <= words | {"*"} for p in phrases)]
    return tuple(exact or whole or within[:1])


def assigned(names: Iterable[str]) -> dict[str, str]:
    """The option that each name means, seen beside the others; names without a meaning are left out.

    A name that may mean several options means the first that no other name has to mean: ``hidden_dim`` is the width of
    the model, unless ``d_model`` stands beside it.
    """
    possible = {name: options for name in names if (options := meanings(name))}
    found: dict[str, str] = {name: options[0] for name, options in possible.items() if len(options) == 1}
    while rest := [name for name in possible if name not in found]:
        left = {name: [o for o in possible[name] if o not in found.values()] or [possible[name][-1]] for name in rest}
        name = min(rest, key=lambda name: len(left[name]))
        found[name] = left[name][0]
    return found
