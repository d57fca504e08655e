"""What a class or function does with one of its arguments, read as syntax.

An argument is followed from the constructor into the attributes that keep it, into the methods that read these, and
into the classes and functions of the user's files that it is handed on to. What is found says what the argument must
be: something with attributes, with keys, that can be counted, iterated over or called.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

from conformance.adapters.whole.sizes import meaning
from conformance.adapters.whole.syntax import Scope

_DEPTH = 6
"""An argument that is handed on more often is not followed."""
_ITERATES = ("list", "tuple", "set", "sorted", "sum", "max", "min", "enumerate", "zip", "reversed", "iter", "map")
_LOOKS_UP = ("get", "pop", "setdefault")
_OF_MAPPINGS = ("items", "keys", "values", "update", "copy")


@dataclass(eq=False)
class Use:
    """What is done with one value.

    attributes, items: those read of it (``x.width``, ``x["width"]``), each with its own use. defaults: items and
    attributes that it may lack -> what is taken then, and where. element: the use of each of its elements, where it is
    iterated over. last: the largest number by which an element is taken, -1 for none. by_number: elements are taken in
    no other way. unpacked: into so many names.
    built, applied: the numbers of arguments of its calls in constructors, and elsewhere. texts: what it is compared
    with. options: the attributes of other objects that it is compared with (``mode is Mode.SUM``).
    """

    attributes: dict[str, Use] = field(default_factory=dict)
    items: dict[str, Use] = field(default_factory=dict)
    defaults: dict[str, tuple[ast.expr, Scope]] = field(default_factory=dict)
    element: Use | None = None
    last: int = -1
    by_number: bool = True
    unpacked: int = 0
    built: list[int] = field(default_factory=list)
    applied: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    options: list[tuple[ast.expr, Scope]] = field(default_factory=list)
    counted: bool = False
    mapped: bool = False
    computed: bool = False
    tested: bool = False

    @property
    def is_sequence(self) -> bool:
        return self.element is not None or self.last >= 0 or self.unpacked > 0

    @property
    def is_called(self) -> bool:
        return bool(self.built or self.applied)

    @property
    def is_mapping(self) -> bool:
        return self.mapped or bool(self.items)

    @property
    def says_something(self) -> bool:
        """Whether a plain number, text or switch would not do."""
        return bool(
            self.attributes or self.is_mapping or self.is_sequence or self.counted or self.is_called or self.options
        )

    def each(self, by_number: bool = False) -> Use:
        self.by_number = self.by_number and by_number
        self.element = self.element or Use()
        return self.element


def use_of(made_by: Any, name: str, scope_of: Callable[[Any], Scope | None], module: ModuleType) -> Use:
    """What a class, function or bound classmethod does with its parameter; nothing where its source is not known.

    scope_of: the scope of a function. module: where names are looked up whose file is not imported.
    """
    found = Use()
    _Follower(scope_of, module).into(made_by, {name: found}, 0)
    return found


class _Follower:
    """Follows values through the functions that get them, each function once for each parameter."""

    def __init__(self, scope_of: Callable[[Any], Scope | None], module: ModuleType) -> None:
        self.scope_of, self.module = scope_of, module
        self.seen: set[tuple[Any, str]] = set()

    def into(self, called: Any, values: Mapping[str, Use], depth: int) -> None:
        """Read what a class or function does with the values of these parameters."""
        is_class = isinstance(called, type)
        function = inspect.unwrap(getattr(called, "__init__" if is_class else "__func__", called))
        scope = self.scope_of(function) if isinstance(function, FunctionType) else None
        new = {name: use for name, use in values.items() if (function, name) not in self.seen}
        if scope is None or not new or depth > _DEPTH:
            return
        self.seen |= {(function, name) for name in new}
        kept = _Reader(self, scope, dict(new), depth, is_class, called if is_class else None).read()
        for method in self._methods(called) if is_class and kept else ():
            inside = self.scope_of(method)
            if inside is not None and method is not function:
                _Reader(self, inside, dict(kept), depth, False, called).read()

    def _methods(self, cls: type) -> list[FunctionType]:
        bases = [base for base in cls.__mro__ if not base.__module__.startswith(("torch.", "builtins"))]
        held = [getattr(value, "fget", None) or value for base in bases for value in vars(base).values()]
        return [value for value in held if isinstance(value, FunctionType)]


class _Known(ast.NodeVisitor):
    """The values that one function has under these names, and which of them an expression is; ``self.name`` is one,
    too."""

    def __init__(self, scope: Scope, names: dict[str, Use]) -> None:
        self.scope, self.names = scope, names

    def use(self, node: ast.AST | None) -> Use | None:
        """The use that an expression belongs to: a name that is followed, or what is read of one."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                return self.names.get(f"self.{node.attr}")
            holder = self.use(node.value)
            if holder is None or node.attr in (*_LOOKS_UP, *_OF_MAPPINGS):
                return None
            return holder.attributes.setdefault(node.attr, Use())
        if isinstance(node, ast.Subscript):
            return self._item(node)
        if isinstance(node, ast.Call):
            return self._looked_up(node)
        if isinstance(node, ast.BoolOp):
            return next((found for part in node.values if (found := self.use(part)) is not None), None)
        if isinstance(node, ast.IfExp):
            return self.use(node.body) or self.use(node.orelse)
        return self.use(node.value) if isinstance(node, ast.NamedExpr) else None

    def _item(self, node: ast.Subscript) -> Use | None:
        holder = self.use(node.value)
        if holder is None:
            return None
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(key, str):
            return holder.items.setdefault(key, Use())
        if isinstance(node.slice, ast.Slice):
            holder.each()
            return holder
        holder.last = max(holder.last, key if isinstance(key, int) else 0)
        return holder.each(by_number=isinstance(key, int))

    def _looked_up(self, node: ast.Call) -> Use | None:
        """``x.get("key", default)`` and ``getattr(x, "key", default)``."""
        function = node.func
        if isinstance(function, ast.Name) and function.id == "getattr" and len(node.args) > 1:
            holder, table, key, default = self.use(node.args[0]), "attributes", node.args[1], node.args[2:]
        elif isinstance(function, ast.Attribute) and function.attr in _LOOKS_UP and node.args:
            holder, table, key, default = self.use(function.value), "items", node.args[0], node.args[1:]
            if holder is not None and function.attr == "get" and not default:
                default = [ast.Constant(None)]
        else:
            return None
        if holder is None:
            return None
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            holder.mapped = holder.mapped or table == "items"
            return None
        if default:
            holder.defaults.setdefault(key.value, (default[0], self.scope))
        found: Use = getattr(holder, table).setdefault(key.value, Use())
        return found


class _Reader(_Known):
    """Notes what one function does with the values that it has."""

    def __init__(
        self, follower: _Follower, scope: Scope, names: dict[str, Use], depth: int, constructs: bool, cls: Any
    ) -> None:
        super().__init__(scope, names)
        self.follower, self.depth, self.constructs, self.cls = follower, depth, constructs, cls

    def read(self) -> dict[str, Use]:
        """What the object keeps of the values, as ``self.name``."""
        for statement in getattr(self.scope.node, "body", []):
            self.visit(statement)
        return {name: use for name, use in self.names.items() if name.startswith("self.")}

    # --- statements -------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        found = self.use(node.value)
        for target in node.targets:
            if isinstance(target, (ast.Tuple, ast.List)):
                self._unpack(target, node.value, found)
            elif found is not None:
                self._name(target, found)
            else:
                self._forget(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit_Assign(ast.Assign([node.target], node.value))

    def _unpack(self, target: ast.Tuple | ast.List, value: ast.expr, found: Use | None) -> None:
        if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):  # a, b = x, y
            for one, part in zip(target.elts, value.elts, strict=True):
                if (use := self.use(part)) is not None:
                    self._name(one, use)
        elif found is not None:
            found.unpacked = len(target.elts)
            for one in target.elts:
                self._name(one, found.each())

    def _name(self, target: ast.expr, use: Use) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = use
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            self.names[f"self.{target.attr}"] = use

    def _forget(self, target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.names.pop(target.id, None)

    def visit_For(self, node: ast.For) -> None:
        self._loop(node.target, node.iter)
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> None:
        for loop in node.generators:
            self._loop(loop.target, loop.iter)
        self.generic_visit(node)

    visit_GeneratorExp = visit_SetComp = visit_DictComp = visit_ListComp

    def _loop(self, target: ast.expr, iterated: ast.expr) -> None:
        if (found := self.use(iterated)) is not None:
            if isinstance(target, (ast.Tuple, ast.List)):
                self._unpack(target, iterated, found.each())
            else:
                self._name(target, found.each())
        elif isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.args:
            targets = list(target.elts) if isinstance(target, ast.Tuple) else [target]
            shifted = targets[1:] if iterated.func.id == "enumerate" else targets
            if iterated.func.id in ("enumerate", "zip", "reversed"):
                for one, argument in zip(shifted, iterated.args, strict=False):
                    if (found := self.use(argument)) is not None:
                        self._name(one, found.each())

    def visit_If(self, node: ast.If | ast.IfExp | ast.While | ast.Assert) -> None:
        if (found := self.use(node.test)) is not None:
            found.tested = True
        self.generic_visit(node)

    visit_IfExp = visit_While = visit_Assert = visit_If

    # --- expressions ------------------------------------------------------------------------------

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not) and (found := self.use(node.operand)) is not None:
            found.tested = True
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if (found := self.use(one)) is not None:
                if isinstance(other, (ast.List, ast.Tuple)):
                    found.each()
                else:
                    found.computed = True
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        found, other = self.use(node.left), node.comparators[0]
        if found is not None:
            several = list(other.elts) if isinstance(other, (ast.Tuple, ast.List, ast.Set)) else [other]
            found.texts += [e.value for e in several if isinstance(e, ast.Constant) and isinstance(e.value, str)]
            found.options += [(one, self.scope) for one in several if isinstance(one, ast.Attribute)]
            found.computed = found.computed or isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        elif isinstance(node.ops[0], (ast.In, ast.NotIn)) and (held := self.use(other)) is not None:
            held.each()
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        if (found := self.use(node.value)) is not None:
            found.each()
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.use(node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.use(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self._looked_up(node)
        function = node.func
        if isinstance(function, ast.Attribute) and (holder := self.use(function.value)) is not None:
            holder.mapped = holder.mapped or function.attr in _OF_MAPPINGS
        if (found := self.use(function)) is not None:
            (found.built if self.constructs else found.applied).append(len(node.args) + len(node.keywords))
        given = [(None, argument) for argument in node.args] + [(word.arg, word.value) for word in node.keywords]
        passed = [(at, key, use) for at, (key, value) in enumerate(given) if (use := self.use(value)) is not None]
        for at, _, use in passed:
            if at >= len(node.args) and node.keywords[at - len(node.args)].arg is None:
                use.mapped = True
                self._spread(node, use)
        if passed:
            self._handed_on(node, passed)
        self.generic_visit(node)

    def _handed_on(self, node: ast.Call, passed: list[tuple[int, str | None, Use]]) -> None:
        function = node.func
        name = function.id if isinstance(function, ast.Name) else ""
        if name in ("isinstance", "getattr", "hasattr", "print", "type", "super"):
            return
        if name == "len":
            passed[0][2].counted = True
        elif name in _ITERATES:
            for _, _, use in passed:
                use.each()
        elif name in ("int", "float", "range", "abs", "round"):
            for _, _, use in passed:
                use.computed = True
        else:
            self._follow(function, passed)

    def _follow(self, function: ast.expr, passed: list[tuple[int, str | None, Use]]) -> None:
        """Into the class, function or method of the user's that gets the values."""
        called, skipped = self._called(function)
        if called is None:
            return
        try:
            parameters = list(inspect.signature(called).parameters.values())[skipped:]
        except (TypeError, ValueError):
            return
        values: dict[str, Use] = {}
        for at, key, use in passed:
            if key is None and at < len(parameters) and parameters[at].kind is not inspect.Parameter.VAR_POSITIONAL:
                values[parameters[at].name] = use
            elif key is not None and any(p.name == key for p in parameters):
                values[key] = use
        self.follower.into(called, values, self.depth + 1)

    def _spread(self, node: ast.Call, use: Use) -> None:
        """Of ``**use``, the keys that a class or function of the user's cannot do without, and its sizes."""
        called, skipped = self._called(node.func)
        try:
            parameters = list(inspect.signature(called).parameters.values())[skipped:] if called is not None else []
        except (TypeError, ValueError):
            return
        given = {word.arg for word in node.keywords} | {p.name for p in parameters[: len(node.args)]}
        for p in parameters:
            is_size = type(p.default) is int and meaning(p.name) is not None
            if p.name in given or p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
                continue
            if p.default is p.empty or is_size:
                inner = use.items.setdefault(p.name, Use())
                self.follower.into(called, {p.name: inner}, self.depth + 1)

    def _called(self, function: ast.expr) -> tuple[Any, int]:
        """What is called, and how many of its first parameters the call does not give."""
        if isinstance(function, ast.Attribute) and self.cls is not None:
            if ast.unparse(function) == "super().__init__":
                return next(((base, 0) for base in self.cls.__mro__[1:]), (None, 0))
            if isinstance(function.value, ast.Name) and function.value.id == "self":
                method = getattr(self.cls, function.attr, None)
                return (method, 1) if isinstance(method, FunctionType) else (None, 0)
        called = named(function, self.scope, self.follower.module)
        return (called, 0) if isinstance(called, (type, FunctionType)) else (None, 0)


def named(node: ast.expr, scope: Scope, module: ModuleType) -> Any:
    """What a global name, or an attribute of one, stands for in a file; None where it is none. Nothing is run."""
    if isinstance(node, ast.Attribute):
        holder = named(node.value, scope, module)
        return vars(holder).get(node.attr) if isinstance(holder, (type, ModuleType)) else None
    held = vars(scope.source.module or module)
    return held.get(node.id) if isinstance(node, ast.Name) else None
