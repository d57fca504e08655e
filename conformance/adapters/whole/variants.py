"""The same model made with its other options: another pooling, norms at another place, weights that are not tied.

A mistake behind an option that is not the default runs only there. Which options there are is read from the user's
files: texts that a name is compared with, or that a parser offers, and switches of the composition. What switches a
part off, or makes a model of another kind, is left out.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from conformance.adapters.inference.construct import evaluating
from conformance.adapters.whole.configs import fields_of, is_config, settings_of
from conformance.adapters.whole.copying import in_main_dtype
from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.adapters.whole.running import moved
from conformance.adapters.whole.syntax import Source
from conformance.adapters.whole.usage import surroundings

M = TypeVar("M", bound=PlaceProbes)
MOST = 6
"""So many variants of one model are tried."""
_SWITCHES = re.compile(
    r"(?i)(pre|post)_?(layer_?)?norm|norm_(first|before)|(use_)?(cls|class)_?(token|pool\w*)|\w*tie(d)?(_\w+)?|share\w*|"
    r"(use_)?(gated|glu|qk_norm|parallel\w*)|flatten|learned_pos\w*"
)
"""Switches of how a model is put together. Others may switch off what a claim asks for, or make another kind."""
_NO_CHOICE = re.compile(
    r"(?i)act(ivation|_fn|_layer)?|.*(device|dtype|path|file|name|init\w*|reduction|task|kind|direction|backend|impl\w*)"
)
_NO_VALUE = re.compile(
    r"(?i)none|causal|bidirectional|full|prefix|decoder|encoder|mlm|clm|lm|no|off|identity|auto|random"
)


def variants(subject: M) -> list[tuple[str, M]]:
    """The option, as it would be written, and the model made with it, where that answers as the default does."""
    if "variants" not in subject.known:
        found: list[tuple[str, M]] = []
        for name, value in _options(subject):
            if len(found) < MOST:
                with suppress(Exception):
                    found.append((f"{name}={value!r}", _made_with(subject, name, value)))
        subject.known["variants"] = found
    result: list[tuple[str, M]] = subject.known["variants"]
    return result


def _made_with(subject: M, name: str, value: Any) -> M:
    """Raises ValueError where the answer has another shape; whatever the constructor or forward raises."""
    module = evaluating(in_main_dtype(moved(subject.made.otherwise({name: value})), subject.torch_dtype))
    other = replace(subject, module=module, known={})
    inputs = subject.example()
    out = other(**inputs)["out"]
    if out.shape != subject(**inputs)["out"].shape or not np.isfinite(out).all():
        raise ValueError(f"with {name}={value} it answers otherwise")
    return other


def _options(subject: PlaceProbes) -> Iterator[tuple[str, Any]]:
    """Names and values of options that are not as they were made."""
    module = sys.modules.get(type(subject.module).__module__)
    if module is None:
        return
    files = {file for _, _, file, _ in subject.sources()}
    own = _settings(subject)
    offered = _offered([source for source in surroundings(module).sources if str(source.path) in files])
    for name, held in own.items():
        if isinstance(held, str) and not _NO_CHOICE.fullmatch(name):
            others = [text for text in offered.get(name, []) if text != held and not _NO_VALUE.fullmatch(text)]
            yield from ((name, text) for text in others)
    for name, held in own.items():
        if isinstance(held, bool) and _SWITCHES.fullmatch(name):
            yield name, not held


def _settings(subject: PlaceProbes) -> dict[str, Any]:
    """The options by name: the constructor's arguments, and the fields of configs among them or kept by the model."""
    found: dict[str, Any] = {}
    given: Mapping[str, Any] = subject.made.options
    handed = [fields_of(one) for one in given.values() if is_config(one) and not isinstance(one, type)]
    for fields in [*handed, *settings_of(subject.module)[1:]]:
        found |= {name: value for name, value in fields.items() if isinstance(name, str)}
    return found | {name: value for name, value in given.items() if isinstance(value, str | bool)}


def _offered(sources: list[Source]) -> dict[str, list[str]]:
    """What the files of the model compare a name with, and the choices of their parsers, in order. A part may know an
    option by another name: ``Pooler(pool)`` whose parameter is ``how``."""
    found: dict[str, dict[str, None]] = {}
    known_as = [pair for source in sources for pair in _handed_on(source)]
    for source in sources:
        for name, texts, _ in source.compared:
            for own in (name, *(option for option, parameter in known_as if parameter == name)):
                found.setdefault(own, {}).update(dict.fromkeys(texts))
        for call, _ in source.calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
                choices = next((word.value for word in call.keywords if word.arg == "choices"), None)
                flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                if isinstance(choices, ast.List | ast.Tuple) and flags:
                    texts = [e.value for e in choices.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
                    found.setdefault(flags[-1].lstrip("-").replace("-", "_"), {}).update(dict.fromkeys(texts))
    return {name: list(texts) for name, texts in found.items()}


def _handed_on(source: Source) -> Iterator[tuple[str, str]]:
    """The option and the parameter of another name that it is handed to, for every call of a class of the file."""
    parameters = {
        node.name: [a.arg for a in init.args.args[1:]]
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
        for init in node.body
        if isinstance(init, ast.FunctionDef) and init.name == "__init__"
    }
    for call, _ in source.calls:
        names = parameters.get(call.func.id, []) if isinstance(call.func, ast.Name) else []
        given = [*zip(names, call.args, strict=False), *((word.arg, word.value) for word in call.keywords)]
        for parameter, value in given if names else ():
            option = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
            if option and parameter and option != parameter:
                yield option, parameter
