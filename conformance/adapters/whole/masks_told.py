"""What a user's own files hand a model as its masks of padding, and whether these mark what is real or what is padding.

Followed are calls of a model (``model(ids, batch["mask"])``), entries of what a data set gives (``{"mask": ...}``), and
functions named after masks of padding; what is turned round on the way tells nothing. Documentation says it in words.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Sequence
from itertools import product

from torch import nn

from conformance.adapters.functions.visibility import KEEPS, meaning_in
from conformance.adapters.whole.syntax import Binding, Scope, Source
from conformance.adapters.whole.usage import surroundings

_MODEL = r"model|net|network|transformer|classifier|translator|bert|gpt"
_MAKER = re.compile(r"pad\w*mask|mask\w*pad", re.IGNORECASE)
_KEEP = {"to", "cuda", "cpu", "long", "bool", "int", "float", "type", "squeeze", "unsqueeze", "view", "repeat", "clone"}
"""Methods that leave what a mask marks as it is."""
_DEPTH = 8
_BEHIND = 240
"""So many letters behind the name of a parameter may say what it marks."""
_ADDED = re.compile(r"additive|\badd(ed|s)?\b|-\s*(inf|1e\d|large|float)|negative", re.IGNORECASE)
"""Words about a mask that is added to the scores, in which no True marks anything."""


def documented_masks(module: nn.Module, parameters: Sequence[str]) -> dict[str, bool]:
    """Those of these parameters of which the documentation of forward, or of the class, says what they mark: True for
    real tokens, False for padding."""
    texts = [inspect.getdoc(one) or "" for one in (module.forward, type(module))]
    found: dict[str, bool] = {}
    for text, name in product(texts, parameters):
        others = "|".join(re.escape(one) for one in inspect.signature(module.forward).parameters if one != name)
        behind = re.search(rf"(?<![\w.`]){re.escape(name)}`{{0,2}}\s*[(:]([\s\S]{{0,{_BEHIND}}})", text)
        if behind is None or name in found:
            continue
        own = re.split(rf"\n\s*`{{0,2}}({others or 'self'})\b|\n\s*\n", behind[1])[0]
        meaning = "" if _ADDED.search(own) else meaning_in(re.sub(r"\s*\n\s*", " ", own))
        if meaning:
            found[name] = meaning == KEEPS
    return found


def told_masks(module: nn.Module, parameters: Sequence[str]) -> dict[str, bool]:
    """Those of these parameters that the files say to be masks of padding: True for one that marks real tokens, False
    for one that marks padding. Nothing of one that is filled in two ways."""
    home = sys.modules.get(type(module).__module__)
    if home is None or home.__name__.partition(".")[0] == "torch" or not parameters:
        return {}
    around = surroundings(home)
    cls, stem = type(module).__name__, home.__name__.rpartition(".")[2]
    names = re.compile(rf"\b{re.escape(cls)}\b")
    imports = re.compile(rf"^\s*(from|import)\s[^\n]*\b{re.escape(stem)}\b", re.MULTILINE)
    files = _Files(around.sources)
    order = list(inspect.signature(module.forward).parameters)
    called = re.compile(rf"_?(\w+_)?({_MODEL}|{re.escape(cls)})", re.IGNORECASE)
    found: dict[str, set[bool | None]] = {}

    def knows(text: str) -> bool:  # to look for a text is far faster than to look for a pattern
        return bool((cls in text and names.search(text)) or (stem in text and imports.search(text)))

    calls = (pair for one in around.sources if one is around.own or knows(one.text) for pair in one.calls)
    for call, scope in calls:
        if not called.fullmatch(_last(call.func)) or len(call.args) > len(order):
            continue
        given = dict(zip(order, call.args, strict=False)) | {word.arg: word.value for word in call.keywords if word.arg}
        for name in set(parameters) & given.keys():
            found.setdefault(name, set()).add(files.marks(given[name], scope))
    return {name: bool(said.pop()) for name, said in found.items() if len(said) == 1 and None not in said}


class _Files:
    """The user's files, as far as they make masks."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = sources

    def marks(self, node: ast.expr, scope: Scope, depth: int = 0) -> bool | None:
        """Whether what an expression gives marks real tokens (True) or padding (False); None where nothing tells."""
        if depth > _DEPTH:
            return None
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in _KEEP:
                return self.marks(node.func.value, scope, depth + 1)
            return self._made_by(_last(node.func), depth) if _MAKER.search(_last(node.func)) else None
        if isinstance(node, ast.Name):
            bound = _binding(node, scope)
            return self.marks(bound.node, scope, depth + 1) if bound is not None and bound.kind == "value" else None
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and "pad" in ast.unparse(node).lower():
            kind = type(node.ops[0])
            return True if kind is ast.NotEq else False if kind is ast.Eq else None
        key = node.attr if isinstance(node, ast.Attribute) else _key(node)
        if key == "attention_mask":  # of a tokenizer, whose documentation says so
            return True
        return self._entered(key, depth) if isinstance(node, ast.Subscript) and key else None

    def _made_by(self, name: str, depth: int) -> bool | None:
        """What the functions of this name return."""
        found: set[bool | None] = set()
        for source in self.sources:
            for node in ast.walk(source.tree) if name in source.text else ():
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    inner = source.scope_of(node)
                    found |= {self.marks(value, inner, depth + 1) for value in inner.returned()}
        return found.pop() if len(found) == 1 else None

    def _entered(self, key: str, depth: int) -> bool | None:
        """What stands under a key of the dictionaries that functions of the files make."""
        found: set[bool | None] = set()
        for source in self.sources:
            for function in ast.walk(source.tree) if key in source.text else ():
                for node in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
                    for name, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
                        if isinstance(name, ast.Constant) and name.value == key:
                            found.add(self.marks(value, source.scope_of(function), depth + 1))
        return found.pop() if len(found) == 1 else None


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _key(node: ast.expr) -> str:
    """The text by which something is looked up."""
    at = node.slice if isinstance(node, ast.Subscript) else None
    return at.value if isinstance(at, ast.Constant) and isinstance(at.value, str) else ""


def _binding(node: ast.Name, scope: Scope) -> Binding | None:
    return scope.binding(node.id, node.lineno)
