"""The mutations of a source file: small edits that the field's mistakes are made of, one at a time.

An edit replaces the text of one expression or statement and leaves the rest of the file as it is. Left alone are
documentation, type annotations, what raises or asserts, text for people, and `__repr__`.

`own_edits` are those of our own code, whose refusals are tested, too: beside all others they drop what raises and what
sets an attribute, turn conditions round, return nothing, and take the two ways out of a loop for one another.
"""

from __future__ import annotations

import ast
import copy
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ORDERED = (ast.Sub, ast.Div, ast.MatMult, ast.Pow)
"""Operators whose operands may not be exchanged."""

_FUNCTIONS = {
    "sin": "cos",
    "cos": "sin",
    "zeros": "ones",
    "ones": "zeros",
    "zeros_like": "ones_like",
    "ones_like": "zeros_like",
    "tril": "triu",
    "triu": "tril",
    "sum": "mean",
    "mean": "sum",
    "sqrt": "square",
    "rsqrt": "sqrt",
    "relu": "sigmoid",
    "max": "min",
    "min": "max",
    "repeat_interleave": "repeat",
    "softmax": "sigmoid",
}
"""Functions and methods that are taken for one another."""

_SYMMETRIC = ("transpose", "swapaxes", "swapdims", "allclose", "equal")
"""Functions whose arguments may be exchanged."""

_PASSIVE = (
    "contiguous",
    "detach",
    "clone",
    "to",
    "type_as",
    "float",
    "reset_parameters",
    "extend",
    "cpu",
    "register_buffer",
)
"""Methods that leave the values as they are: without them a mutant would be the same program."""


@dataclass(frozen=True)
class Mutation:
    """One edit: `before` at `line` (to `last_line`) of the file becomes `after`; `source` is the whole mutated file."""

    operator: str
    line: int
    last_line: int
    before: str
    after: str
    source: str

    @property
    def diff(self) -> str:
        return f"{self.line}: - {self.before}\n{' ' * len(str(self.line))}  + {self.after}"


def mutations(source: str, name: str = "") -> list[Mutation]:
    """Every mutation of a file, or of one class of it and of what it uses in the same file. Each is other source text.

    Raises ValueError when the file has no such class.
    """
    tree = ast.parse(source)
    text = _Text(source)
    found: dict[str, Mutation] = {}
    for root in _reached(tree, name):
        for edit in _edits(root, in_constructor=False):
            made = _applied(text, edit)
            if made is not None:
                found.setdefault(made.source, made)
    return sorted(found.values(), key=lambda mutation: (mutation.line, mutation.operator, mutation.after))


def own_edits(tree: ast.Module) -> list[Edit]:
    """The edits of a file of our own, each on one line; `applied` makes a mutation of one."""
    found = (edit for root in _reached(tree, "") for edit in _edits(root, in_constructor=False, own=True))
    return [edit for edit in found if edit[1].lineno == edit[1].end_lineno]


def applied(source: str, edit: Edit) -> Mutation | None:
    """The mutation that an edit of a file makes; None where it is the same text, or does not compile."""
    return _applied(_Text(source), edit)


def _applied(text: _Text, edit: Edit) -> Mutation | None:
    operator, node, replacement = edit
    made = text.replaced(node, replacement)
    if made == text.source or not _compiles(made):
        return None
    last = node.end_lineno or node.lineno
    changed = made.splitlines()[node.lineno - 1 : last + made.count("\n") - text.source.count("\n")]
    return Mutation(operator, node.lineno, last, text.lines(node.lineno, last), " ".join(map(str.strip, changed)), made)


def _reached(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The definitions at the top of the file that `name` uses, itself among them; all statements without a name."""
    if not name:
        return [node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom))]
    defined = {
        n.name: n for n in ast.walk(tree) if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.col_offset == 0
    }
    # A definition inside `try:` or `if:` (an optional import and its fallback) counts as one at the top.
    for statement in tree.body:
        if isinstance(statement, (ast.Try, ast.If)):
            for inner in ast.walk(statement):
                if isinstance(inner, (ast.ClassDef, ast.FunctionDef)):
                    defined.setdefault(inner.name, inner)
    if name not in defined:
        raise ValueError(f"the file defines no {name}; it defines {', '.join(defined)}")
    waiting, reached = [name], set()
    while waiting:
        current = waiting.pop()
        if current in reached:
            continue
        reached.add(current)
        waiting += [n.id for n in ast.walk(defined[current]) if isinstance(n, ast.Name) and n.id in defined]
    return [defined[each] for each in defined if each in reached]


def _compiles(source: str) -> bool:
    try:
        compile(source, "<mutant>", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


class _Text:
    """Source text with replacement by position (columns of `ast` count bytes)."""

    def __init__(self, source: str) -> None:
        self.source, self.rows = source, source.encode().splitlines(keepends=True)

    def replaced(self, node: ast.stmt | ast.expr, replacement: ast.AST | None) -> str:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        head = b"".join(self.rows[: node.lineno - 1]) + self.rows[node.lineno - 1][: node.col_offset]
        tail = self.rows[node.end_lineno - 1][node.end_col_offset :] + b"".join(self.rows[node.end_lineno :])
        new = "pass" if replacement is None else ast.unparse(ast.fix_missing_locations(replacement))
        if isinstance(replacement, ast.stmt):
            new = textwrap.indent(new, " " * node.col_offset).lstrip()
        elif replacement is not None and not isinstance(replacement, (ast.Constant, ast.Name, ast.Call, ast.Attribute)):
            new = f"({new})"
        return (head + new.encode() + tail).decode()

    def lines(self, first: int, last: int) -> str:
        return " ".join(row.decode().strip() for row in self.rows[first - 1 : last])


# --- what is changed ------------------------------------------------------------------------------

Edit = tuple[str, ast.expr | ast.stmt, ast.AST | None]
"""The operator's name, the node to replace, and what stands there instead (None: the statement is dropped)."""


def _edits(node: ast.AST, in_constructor: bool, own: bool = False) -> Iterator[Edit]:
    if own:
        yield from _own(node)
    if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return
    if isinstance(node, ast.FunctionDef):
        if node.name in ("__repr__", "__str__", "extra_repr"):
            return
        in_constructor = node.name == "__init__"
    yield from _edits_here(node, in_constructor)
    if isinstance(node, ast.ClassDef):
        yield from _siblings(node)
    for child in _children(node, own):
        yield from _edits(child, in_constructor, own)


def _children(node: ast.AST, own: bool) -> Iterable[ast.AST]:
    """The children, but no documentation, annotations or decorators, no tests whose branch only raises (but for our own
    code), and nothing that only a checker of types reads."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        return [*node.args.defaults, *filter(None, node.args.kw_defaults), *body] if hasattr(node, "args") else body
    if isinstance(node, ast.AnnAssign):
        return [node.value] if node.value is not None else []
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return node.orelse
    if isinstance(node, ast.If) and not own and all(isinstance(statement, ast.Raise) for statement in node.body):
        return node.orelse
    if isinstance(node, ast.match_case):  # a pattern is no expression
        return [*filter(None, [node.guard]), *node.body]
    return ast.iter_child_nodes(node)


def _own(node: ast.AST) -> Iterator[Edit]:
    """The edits of our own code only."""
    if isinstance(node, (ast.If, ast.While)) and "TYPE_CHECKING" not in ast.unparse(node.test):
        same = isinstance(node.test, ast.UnaryOp) or (isinstance(node.test, ast.Compare) and len(node.test.ops) == 1)
        if not same:  # "removed sign or not" and "comparison" do it to those
            yield "turned condition", node.test, ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield "return value", node, ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Break):
        yield "loop", node, ast.Continue()
    elif isinstance(node, ast.Continue):
        yield "loop", node, ast.Break()
    elif isinstance(node, ast.Raise):
        yield "dropped statement", node, None
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
        yield from () if _updates(node) else [("dropped statement", node, None)]


def _edits_here(node: ast.AST, in_constructor: bool) -> Iterator[Edit]:
    if isinstance(node, ast.BinOp):
        yield from _binary(node)
    elif isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        changed = copy.deepcopy(node)
        changed.op = _ARITHMETIC[type(node.op)]()
        yield "arithmetic", node, changed
        yield "dropped statement", node, None
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield "removed sign or not", node, node.operand
    elif isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        if type(node.operand.value) is int and isinstance(node.op, ast.USub):
            for value in (-node.operand.value - 1, -node.operand.value + 1):
                yield "constant", node, ast.Constant(value)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        changed = copy.deepcopy(node)
        changed.ops = [_COMPARISONS[type(node.ops[0])]()]
        yield "comparison", node, changed
    elif isinstance(node, ast.BoolOp):
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield "and or", node, ast.BoolOp(other, node.values)
    elif isinstance(node, ast.Constant):
        for value in _constants(node.value):
            yield "constant", node, ast.Constant(value)
    elif isinstance(node, ast.IfExp):
        yield "condition", node, node.body
        yield "condition", node, node.orelse
    elif isinstance(node, ast.Call):
        yield from _calls(node, in_constructor)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Slice):
        yield "removed slice", node, node.value
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _is_super(node.value):
        if _called(node.value) not in _PASSIVE:
            yield "dropped statement", node, None
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and _updates(node):
        yield "dropped statement", node, None


def _binary(node: ast.BinOp) -> Iterator[Edit]:
    if type(node.op) in _ARITHMETIC:
        yield "arithmetic", node, ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
    if isinstance(node.op, _ORDERED) and not isinstance(node.right, ast.Constant):
        yield "swapped operands", node, ast.BinOp(node.right, node.op, node.left)
    if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        yield "dropped operand", node, node.left


def _constants(value: object) -> Iterator[object]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
        if value > 0:
            yield value - 1
    elif isinstance(value, float):
        yield value * 2 if value else 1.0
        if abs(value) > 1.0:
            yield 1.0
    elif value == "-inf":
        yield "-1"


def _calls(node: ast.Call, in_constructor: bool) -> Iterator[Edit]:
    if _called(node) in ("super", "isinstance", "hasattr", "getattr"):
        return
    plain = not any(isinstance(argument, ast.Starred) for argument in node.args)
    for i in range(len(node.args) - 1 if plain and _called(node) not in _SYMMETRIC else 0):
        if ast.dump(node.args[i]) != ast.dump(node.args[i + 1]):
            changed = copy.deepcopy(node)
            changed.args[i], changed.args[i + 1] = changed.args[i + 1], changed.args[i]
            yield "swapped arguments", node, changed
    for i, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            changed = copy.deepcopy(node)
            del changed.keywords[i]
            yield "dropped keyword", node, changed
    name = _called(node)
    if name in _FUNCTIONS:
        changed = copy.deepcopy(node)
        if isinstance(changed.func, ast.Attribute):
            changed.func.attr = _FUNCTIONS[name]
            yield "another function", node, changed
    if in_constructor or not isinstance(node.func, ast.Attribute) or name in _PASSIVE:
        return
    if node.args and plain and _is_module_call(node.func):
        yield "removed call", node, node.args[0]
    elif not isinstance(node.func.value, ast.Name) or node.func.value.id not in (
        "torch",
        "F",
        "nn",
        "math",
        "np",
        "self",
    ):
        yield "removed call", node, node.func.value


def _is_module_call(function: ast.Attribute) -> bool:
    """`self.part(x)` or `torch.function(x)`: without it, x."""
    return isinstance(function.value, ast.Name) and function.value.id in ("torch", "F", "np", "self")


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_super(node: ast.Call) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id == "super" for inner in ast.walk(node))


def _updates(node: ast.Assign) -> bool:
    """Whether an assignment changes a name that it reads: without it, the old value stays.

    Not `x = f(x)` and `x = x.f()`, which "removed call" turns into the same.
    """
    target = ast.unparse(node.targets[0])
    if isinstance(node.value, ast.Call):
        receiver = [node.value.func.value] if isinstance(node.value.func, ast.Attribute) else []
        if any(ast.unparse(part) == target for part in [*receiver, *node.value.args[:1]]):
            return False
    reads = (inner for inner in ast.walk(node.value) if isinstance(inner, (ast.Name, ast.Attribute)))
    return any(ast.unparse(inner) == target for inner in reads)


def _siblings(node: ast.ClassDef) -> Iterator[Edit]:
    """`self.q` where `self.k` is made by the same expression: one taken for the other."""
    made: dict[str, str] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign) and len(inner.targets) == 1 and isinstance(inner.value, ast.Call):
            target = inner.targets[0]
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                made[target.attr] = ast.unparse(inner.value)
    counts = Counter(made.values())
    for function in node.body:
        if not isinstance(function, ast.FunctionDef) or function.name == "__init__":
            continue
        for inner in ast.walk(function):
            if not (isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Load) and inner.attr in made):
                continue
            expression = made[inner.attr]
            if counts[expression] > 1:
                same = [name for name, how in made.items() if how == expression]
                other = same[(same.index(inner.attr) + 1) % len(same)]
                yield "another part", inner, ast.Attribute(inner.value, other, ast.Load())
