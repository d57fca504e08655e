"""What a call in the user's files gives where its syntax says it: a function's return, a class that is only written.

`Returns` evaluates names and such calls; what has to be constructed stands above it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from typing import Any

from conformance.adapters.inference.construct import CONFIGS
from conformance.adapters.whole.configs import Options
from conformance.adapters.whole.evaluate import Names
from conformance.adapters.whole.sizes import Unknown, plain
from conformance.adapters.whole.syntax import Scope


class Returns(Names):
    """Evaluates what a call gives by its syntax, and gives values their sizes by their names."""

    def resized(self, name: str, value: Any) -> Any:
        """A value under its name; a config with its fields resized, which is a copy where any changes."""
        sized = self.sizing.of(name, value)
        return self.sized(sized) if sized is value and name.lower() in CONFIGS else sized

    def returned(self, inside: Scope, node: ast.Call, scope: Scope, function: Any = None) -> Any:
        """What a call of a class or function gives that is read from its syntax."""
        if inside.is_class:
            return self._written_config(inside, node, scope)
        definition = inside.function
        if definition is None:
            raise Unknown(ast.unparse(node))
        bound: dict[str, Any] = {}
        names = [argument.arg for argument in [*definition.args.posonlyargs, *definition.args.args]]
        if inspect.ismethod(function):
            bound[names.pop(0)] = function.__self__
        given = dict(zip(names, node.args, strict=False)) | {word.arg: word.value for word in node.keywords if word.arg}
        for name, argument in given.items():
            bound[name] = self._named(name, argument, scope)
        with self.once(inside):
            self._frames.append((inside, bound))
            try:
                for returned in inside.returned():
                    try:
                        return self.value(returned, inside)
                    except Unknown:
                        continue
            finally:
                self._frames.pop()
        raise Unknown(ast.unparse(node))

    def _written_config(self, inside: Scope, node: ast.Call, scope: Scope) -> Any:
        """An instance of a class that is only written: its fields, what the call gives, what its constructor sets."""
        held = Options()
        fields = [n for n, found in inside.bindings.items() if n[0] != "_" and found[0].kind == "value"]
        for name in fields:
            held[name] = self._Name(ast.Name(name, lineno=sys.maxsize), inside)
        statements = [s.target for s in getattr(inside.node, "body", []) if isinstance(s, ast.AnnAssign)]
        annotated = [target.id for target in statements if isinstance(target, ast.Name)]
        given = dict(zip(annotated, node.args, strict=False)) | {w.arg: w.value for w in node.keywords if w.arg}
        held |= {name: self._named(name, argument, scope) for name, argument in given.items()}
        binding = inside.binding("__init__", None)
        if binding is not None:
            init = inside.source.scope_of(binding.node)
            names = [argument.arg for argument in binding.node.args.args[1:]]
            placed = dict(zip(names, node.args, strict=False)) | {w.arg: w.value for w in node.keywords if w.arg}
            self._frames.append((init, {name: self._named(name, a, scope) for name, a in placed.items()}))
            try:
                held |= {c.key: self._named(c.key, c.value, init) for c in init.changes if c.base == "self"}
            finally:
                self._frames.pop()
        return self.passed(Options(plain(dict(held))))
