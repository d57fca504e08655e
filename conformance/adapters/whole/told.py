"""What the code of a forward says of the shapes of its inputs, read as text and as syntax.

Documentation ("x: (B, T, n_mels)"), annotations that state axes, unpacked shapes (``b, t, c = x.shape``), comparisons
that raise (``assert t == self.context``), views that fold axes into the batch, and patterns of rearrange. `searching`
tries these shapes before others.
"""

from __future__ import annotations

import ast
import inspect
import io
import linecache
import math
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any

from torch import nn

from conformance.adapters.whole.class_source import is_users, source_of

Axis = int | str
"""A size, or what the code calls it; "" where it says nothing."""

_DIMS = r"[(\[]\s*(?P<dims>[\w.*/+ -]+(?:,\s*[\w.*/+ -]+)+|[Bb](?:atch(?:_size)?)?)\s*,?\s*[)\]]"
_AXES_IN_QUOTES = re.compile(r"\[[^\"']*,\s*[\"']([^\"']+)[\"']\]")
_AXIS = re.compile(r"[\w.*/+ -]*\w[\w.*/+ -]*")
_BATCH = re.compile(r"b|bs|bsz|bz|n|batch(_?size)?|batches|num_?samples|samples?")
_WORDS_OF_DTYPES = (
    ("int", re.compile(r"\b(long|int(eger)?s?(32|64)?|ids|indices|codes|LongTensor|IntTensor)\b")),
    ("bool", re.compile(r"\b(bool(ean)?s?|BoolTensor|True)\b")),
    ("float", re.compile(r"\b(floats?(32|64)?|FloatTensor)\b")),
)
_DTYPE_BEFORE = re.compile(r"\b(\w+)\s*(tensors?)?\s*((of|with)\s+(shape|size)\s*)?$", re.IGNORECASE)
"""The word right before a shape: "where: bool (B, T)"."""
_NEXT_PART = r"\n\s*(?:Returns?|Yields?|Outputs?|Raises)\s*(?::|\n\s*-)"
"""Where documentation goes on to speak of what is given back."""
_DEPTH = 2
"""So deep are methods read that a forward hands its input to."""
_BEHIND = 60
"""So many letters behind a shape may say the dtype."""


@dataclass(frozen=True)
class Told:
    """axes: of one input, the batch first; empty where not even their number is told. dtype: as in a Shape, or ""."""

    axes: tuple[Axis, ...] = ()
    dtype: str = ""

    @property
    def begins_with_the_batch(self) -> bool:
        """Whether the code names the batch first; n may be a length, too."""
        first = str(self.axes[0]).lower() if self.axes else ""
        return first != "n" and _BATCH.fullmatch(first) is not None

    def over(self, other: Told) -> Told:
        """Both together; where they differ, this one."""
        if not self.axes or not other.axes or len(self.axes) != len(other.axes):
            return Told(self.axes or other.axes, self.dtype or other.dtype)
        axes = tuple(a if a != "" else b for a, b in zip(self.axes, other.axes, strict=True))
        return Told(axes, self.dtype or other.dtype)


def told_by_forward(module: nn.Module, parameters: Sequence[str]) -> dict[str, Told]:
    """What the forward of a module and its class say of these parameters; only of those of which they say something."""
    return _told_by(module, getattr(module.forward, "__func__", type(module).forward), parameters, _DEPTH)


def names_the_batch_first(module: nn.Module) -> bool:
    """Whether a part of a module names the batch as the first axis of what it is given."""
    for part in module.modules():
        cls: type = type(part)
        names = [*inspect.signature(part.forward).parameters][:1] if source_of(cls) is not None else []
        if any(one.begins_with_the_batch for one in told_by_forward(part, names).values()):
            return True
    return False


def _told_by(module: nn.Module, method: Any, parameters: Sequence[str], depth: int) -> dict[str, Told]:
    """What a method and its class say of its parameters; beside it the methods, `depth` deep, that it hands them to."""
    function = inspect.unwrap(method)
    try:
        text = dedent(inspect.getsource(function))
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError):
        return {}
    code = _Code(module, parameters)
    code.read(tree)
    is_forward = depth == _DEPTH
    written = _documented(_prose(text, tree), inspect.getdoc(type(module)) or "", parameters, is_forward)
    handed = dict[str, Told]()
    for name, inner, theirs in code.handed_on(tree) if depth else ():
        told = _told_by(module, inner, [theirs], depth - 1).get(theirs, Told())
        handed[name] = handed.get(name, Told()).over(told)
    noted = _noted_in_the_file(type(module), parameters) if is_forward else {}
    found: dict[str, Told] = {}
    for name in parameters:
        own = code.told(name).over(_annotated(function, name)).over(written.get(name, noted.get(name, Told())))
        told = own.over(handed.get(name, Told()))
        found |= {name: told} if told != Told() else {}
    return found


def _syntax_of_forward(module: nn.Module) -> ast.Module | None:
    """The syntax of a module's forward, below its decorators; None where there is no source of it."""
    function = inspect.unwrap(getattr(module.forward, "__func__", type(module).forward))
    try:
        return ast.parse(dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None


def taken_as_they_are(module: nn.Module, parameters: Sequence[str]) -> list[str]:
    """Those of these parameters that forward reads and never compares with None, nor asks whether they are given. What
    it reads in the place of another one that is None alone, as vectors in the place of words, need not be given."""
    if (tree := _syntax_of_forward(module)) is None:
        return []
    asked: set[str] = set()
    read: Counter[str] = Counter()
    for node in ast.walk(tree):
        tests: list[ast.expr] = []
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            tests = [node.left]
        elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
            tests = [node.test]
        elif isinstance(node, ast.BoolOp):
            tests = list(node.values)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            tests = [node.operand]
        asked |= {test.id for test in tests if isinstance(test, ast.Name)}
        read.update([node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else [])
        read.subtract(_in_place_of_none(node))
    return [name for name in parameters if read[name] > 0 and name not in asked]


def _in_place_of_none(node: ast.AST) -> Counter[str]:
    """How often each name is read where another one is None, which is read where it is not."""
    if not isinstance(node, (ast.If, ast.IfExp)) or not isinstance(node.test, ast.Compare):
        return Counter()
    asked, given, other = node.test.left, _names_in(node.body), _names_in(node.orelse)
    if isinstance(node.test.ops[0], ast.Is):
        given, other = other, given
    if not isinstance(asked, ast.Name) or asked.id not in given or asked.id in other:
        return Counter()
    return Counter({name: times for name, times in other.items() if name not in given})


def _names_in(branch: ast.expr | list[ast.stmt]) -> Counter[str]:
    """How often each name is read."""
    inner = [node for one in (branch if isinstance(branch, list) else [branch]) for node in ast.walk(one)]
    return Counter(node.id for node in inner if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))


def called_by_forward(module: nn.Module) -> frozenset[str]:
    """The parameters of forward that it calls: a sublayer that is handed in."""
    if (tree := _syntax_of_forward(module)) is None:
        return frozenset()
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return frozenset(called & inspect.signature(module.forward).parameters.keys())


_OF_NUMBERS = frozenset(
    ["shape", "size", "mean", "abs", "std", "dim", "ndim", "dtype", "T", "mT", "transpose", "permute", "unfold"]
)
"""What is asked of a tensor of numbers, and of no cache."""


def computed_with(module: nn.Module, parameters: Sequence[str]) -> list[str]:
    """Those of these parameters that forward never asks about, and takes for numbers: it asks for their sizes, turns
    their axes, or computes with them as they are."""
    if (tree := _syntax_of_forward(module)) is None:
        return []
    used: set[str] = set()
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
            parts = [node.left, node.right]
        elif isinstance(node, ast.Attribute) and node.attr in _OF_NUMBERS:
            parts = [node.value]
        used |= {part.id for part in parts if isinstance(part, ast.Name)}
    return [name for name in taken_as_they_are(module, parameters) if name in used]


def used_as_masks(module: nn.Module, parameters: Sequence[str]) -> list[str]:
    """Those of these parameters that forward hands on as a mask, as they are or turned: ``x.masked_fill(pad.t(), 0)``,
    ``attend(x, key_padding_mask=~keep)``."""
    if (tree := _syntax_of_forward(module)) is None:
        return []
    handed: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            filling = isinstance(node.func, ast.Attribute) and node.func.attr.startswith("masked_fill")
            handed |= {_turned_name(one) for one in node.args[:1] if filling}
            handed |= {_turned_name(word.value) for word in node.keywords if "mask" in (word.arg or "")}
    return [name for name in parameters if name in handed]


_TURNS = frozenset(
    ["t", "T", "mT", "transpose", "permute", "unsqueeze", "squeeze", "view", "reshape", "expand", "bool", "to",
     "logical_not", "repeat", "contiguous"]
)  # fmt: skip
"""What makes another view of a mask, or its opposite, and asks nothing about its numbers."""


def _turned_name(node: ast.expr) -> str:
    """The name of which an expression is another view, or the opposite; "" where it is anything else."""
    if isinstance(node, ast.UnaryOp):
        return _turned_name(node.operand)
    if isinstance(node, ast.Subscript):
        return _turned_name(node.value)
    if isinstance(node, ast.Call):
        return _turned_name(node.func) if isinstance(node.func, ast.Attribute) else ""
    if isinstance(node, ast.Attribute):
        return _turned_name(node.value) if node.attr in _TURNS else ""
    return node.id if isinstance(node, ast.Name) else ""


# --- prose ----------------------------------------------------------------------------------------


def _prose(text: str, tree: ast.Module) -> str:
    """The docstring and the comments of a function, those behind one parameter with its name."""
    definition = tree.body[0]
    parts, behind = [""], dict[int, list[str]]()
    if isinstance(definition, ast.FunctionDef):
        parts = [ast.get_docstring(definition) or ""]
        for one in (*definition.args.posonlyargs, *definition.args.args, *definition.args.kwonlyargs):
            behind.setdefault(one.lineno, []).append(one.arg)
    with suppress(tokenize.TokenError, IndentationError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                names = behind.get(token.start[0], [])
                parts.append(": ".join([*(names if len(names) == 1 else []), token.string.lstrip("# ")]))
    return "\n".join(parts)


def _documented(prose: str, of_class: str, parameters: Sequence[str], is_forward: bool) -> dict[str, Told]:
    """What documentation says of each parameter: the shape behind its name; of one alone, the first shape. That of
    another method than forward must have an arrow behind it: "(B, 1, T, T): hide the future" is what it gives.
    """
    found: dict[str, Told] = {}
    others = "|".join(map(re.escape, parameters))
    for text in (prose, of_class):
        for name in parameters:
            flags = re.IGNORECASE if len(name) > 2 else 0
            between = rf"(?P<between>(?:(?!\b(?:{others})\b\s*[:(\[]|{_NEXT_PART})[^()\[\];]){{0,80}}?)"
            match = re.search(rf"(?<![\w.]){re.escape(name)}\b{between}{_DIMS}", text, flags)
            listed = rf"(?P<between>(?:\s*(?:,|and)\s*(?:{others}))+\s*:\s*)"  # "ids, types, mask: (B, T)"
            match = match or re.search(rf"(?<![\w.]){re.escape(name)}\b{listed}{_DIMS}", text, flags)
            if match is not None and name not in found:
                found[name] = _shape(match, text)
        alone = _DIMS if is_forward else _DIMS + r"\s*(->|→|=>)"
        if not found and len(parameters) == 1 and (match := re.search(alone, text)):
            told = _shape(match, text)
            if told.axes and _BATCH.fullmatch(str(told.axes[0]).lower()):
                found[parameters[0]] = told
    return {name: told for name, told in found.items() if told.axes}


_NOTED = r"{name}\b\s*(?::[^#\n]*#)?\s*[:=]?\s*[(\[](?P<dims>\w+(?:(?:,\s*|\s+)\w+)+)[)\]](?P<behind>[^\n]{{0,30}})"


def _noted_in_the_file(cls: type, parameters: Sequence[str]) -> dict[str, Told]:
    """What the comments of a file say of what is called so: those at its top, ``# values [b t c]``, and those behind
    the fields of its classes, ``values: Tensor  # (B, T, C)``."""
    held = source_of(cls)
    if held is None or not is_users(held[1]):
        return {}
    file = "".join(linecache.getlines(held[1]))
    top = re.match(r"(?:\s*#[^\n]*\n|\s*\n)*", file)
    own = (top[0] if top else "", *re.findall(r"(?m)^ {2,4}(\w+: *[\w.]*Tensor\b[^#\n]*#[^\n]*)$", file))
    found: dict[str, Told] = {}
    for name in (one for one in parameters if len(one) > 2):
        for text in own:
            match = re.search(r"(?m)^[#\s]*" + _NOTED.format(name=re.escape(name)), text)
            if match and name not in found:
                dtype = next((kind for kind, words in _WORDS_OF_DTYPES if words.search(match["behind"])), "")
                found[name] = _batch_first([_axis(one) for one in re.split(r",\s*|\s+", match["dims"])], dtype)
    return found


def _shape(match: re.Match[str], text: str) -> Told:
    axes = [_axis(part) for part in match["dims"].split(",") if part.strip()]
    if not all(_AXIS.fullmatch(part.strip()) for part in match["dims"].split(",")):
        return Told()
    behind = re.split(r"[(\[;]|\n\s*\n", text[match.end() : match.end() + _BEHIND])[0]
    before = _DTYPE_BEFORE.search(match.groupdict().get("between") or "")
    said = [behind, before[1] if before else ""]
    dtype = next((name for one in said for name, words in _WORDS_OF_DTYPES if words.search(one)), "")
    return _batch_first(axes, dtype)


def _axis(text: str) -> Axis:
    text = text.strip()
    if re.fullmatch(r"\d+(\s*\*\s*\d+)*", text):  # 84, or 4*84*84
        return math.prod(int(part) for part in text.split("*"))
    return text.rpartition(".")[2] if re.fullmatch(r"[\w.]+", text) else ""


def _batch_first(axes: Sequence[Axis], dtype: str = "") -> Told:
    """Axes of which the first is the batch; of a sequence before its batch, only how many they are."""
    names = [str(axis).lower() for axis in axes]
    if len(names) > 1 and not _BATCH.fullmatch(names[0]) and _BATCH.fullmatch(names[1]) and names[1] != "n":
        return Told(("",) * len(axes), dtype)
    return Told(tuple(axes), dtype)


def _annotated(function: Any, name: str) -> Told:
    """The axes that an annotation states: ``Float[Tensor, "batch time mels"]``."""
    annotation = getattr(inspect.signature(function).parameters.get(name), "annotation", None)
    text = str(getattr(annotation, "dim_str", "") or "")
    if isinstance(annotation, str) and (match := _AXES_IN_QUOTES.search(annotation)):
        text = match[1]
    shown = getattr(annotation, "__name__", "") or str(annotation)
    dtype = next((kind for kind in ("float", "int", "bool") if shown.lower().startswith((kind, f"torch.{kind}"))), "")
    if "LongTensor" in shown or "IntTensor" in shown:
        dtype = "int"
    axes = [_axis(part.partition("=")[2] or part) for part in text.split()]
    return _batch_first(axes, dtype) if "..." not in text else Told((), dtype)


# --- code -----------------------------------------------------------------------------------------


@dataclass
class _Code:
    """What the statements of a forward say of its parameters before they are given other values."""

    module: nn.Module
    parameters: Sequence[str]
    axes: dict[str, list[Axis]] = field(default_factory=dict)
    named: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Names of sizes -> (parameter, axis)."""
    whole: set[str] = field(default_factory=set)
    """Parameters that are made whole numbers: ids, handed in as numbers of any kind."""
    places: set[str] = field(default_factory=set)
    """Parameters by which something that forward made is indexed, ``h[where]``, or chosen, ``torch.where(here, ...)``,
    or whose opposite is taken: they say where, and are no numbers of rows."""
    changed: dict[str, int] = field(default_factory=dict)
    """Parameters that get another value -> the line where they do."""

    def told(self, name: str) -> Told:
        dtype = "int" if name in self.whole else "bool" if name in self.places else ""
        return Told(tuple(self.axes.get(name, ())), dtype)

    def read(self, tree: ast.Module) -> None:
        nodes = sorted((node for node in ast.walk(tree) if hasattr(node, "lineno")), key=lambda node: node.lineno)
        for node in nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name) and target.id in self.parameters and not _takes(node, target.id):
                        self.changed.setdefault(target.id, node.lineno)
        for node in nodes:
            if isinstance(node, ast.Assign):
                self._unpacked(node)
            elif isinstance(node, ast.Call):
                self._called(node)
            elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                name = self._is_input(node.slice)
                self.places |= {name} if name and node.value.id not in self.parameters else set()
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
                self.places |= {self._is_input(node.operand)} - {""}
        for node in nodes:
            if isinstance(node, ast.Assert):
                self._holds(node.test, ast.Eq)
            elif isinstance(node, ast.If) and any(isinstance(inner, ast.Raise) for inner in node.body):
                self._holds(node.test, ast.NotEq)

    def handed_on(self, tree: ast.Module) -> Iterator[tuple[str, Any, str]]:
        """(parameter, method, its parameter) of each of the class's own methods that gets a parameter as it was
        given."""
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            method = inspect.getattr_static(type(self.module), node.func.attr, None)
            if not inspect.isfunction(method) or getattr(node.func.value, "id", "") != "self":
                continue
            theirs = list(inspect.signature(method).parameters)[1:]
            for argument, name in zip(node.args, theirs, strict=False):
                if own := self._is_input(argument):
                    yield own, method, name

    def _is_input(self, node: ast.expr) -> str:
        """The parameter that an expression is, or the key of a dict of them, still as it was given; "" for anything
        else."""
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            key = getattr(node.slice, "value", None)
            return key if isinstance(key, str) and key in self.parameters else ""
        if not isinstance(node, ast.Name) or node.id not in self.parameters:
            return ""
        return node.id if node.lineno <= self.changed.get(node.id, node.lineno) else ""

    def _shape_of(self, node: ast.expr) -> str:
        """The parameter whose whole shape an expression is: ``x.shape``, ``x.size()``."""
        if isinstance(node, ast.Call) and not node.args and (held := method_of(node, "size")) is not None:
            return self._is_input(held)
        return self._is_input(node.value) if isinstance(node, ast.Attribute) and node.attr == "shape" else ""

    def _size_of(self, node: ast.expr) -> tuple[str, int] | None:
        """(parameter, axis) of an expression that is one size of it."""
        if isinstance(node, ast.Name):
            return self.named.get(node.id)
        if isinstance(node, ast.Subscript) and (name := self._shape_of(node.value)):
            at = _whole_number(node.slice)
            return None if at is None else (name, at)
        if isinstance(node, ast.Call) and node.args and (held := method_of(node, "size")) is not None:
            name, at = self._is_input(held), _whole_number(node.args[0])
            return (name, at) if name and at is not None else None
        return None

    def _unpacked(self, node: ast.Assign) -> None:
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and (name := self._shape_of(value)):
            if not any(isinstance(part, ast.Starred) for part in target.elts):
                names = [part.id if isinstance(part, ast.Name) and part.id.strip("_") else "" for part in target.elts]
                self._told(name, names)
                self.named |= {said: (name, at) for at, said in enumerate(names) if said}
        elif isinstance(target, ast.Name) and (size := self._size_of(value)) is not None:
            self.named.setdefault(target.id, size)

    def _called(self, node: ast.Call) -> None:
        """``rearrange(x, "b (h p) c -> ...")`` and ``x.permute(0, 2, 1)`` tell the number of axes; ``x.long()`` says
        that these are whole numbers."""
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        rearranges = called in ("rearrange", "reduce", "repeat") and len(node.args) > 1
        if rearranges and (name := self._is_input(node.args[0])):
            pattern = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
            if isinstance(pattern, str) and "->" in pattern and "..." not in pattern:
                self._told(name, _pattern_axes(pattern))
        elif called == "permute" and isinstance(node.func, ast.Attribute) and (name := self._is_input(node.func.value)):
            axes = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], ast.Tuple) else node.args
            if len(axes) > 2:
                self._told(name, [""] * len(axes))
        elif _makes_whole(node) and isinstance(node.func, ast.Attribute) and (name := self._is_input(node.func.value)):
            self.whole.add(name)
        elif called == "where" and len(node.args) == 3:
            self.places |= {self._is_input(node.args[0])} - {""}
        elif called in ("view", "reshape") and isinstance(node.func, ast.Attribute) and node.args:
            self._folded(node.func.value, node.args)

    def _folded(self, held: ast.expr, sizes: Sequence[ast.expr]) -> None:
        """``x.view(batch * self.channels, self.patches, -1)`` tells the axes behind the batch that become one with it,
        and those behind these."""
        first = sizes[0]
        if not (name := self._is_input(held)) or not isinstance(first, ast.BinOp) or not isinstance(first.op, ast.Mult):
            return
        for batch, other in ((first.left, first.right), (first.right, first.left)):
            kinds = value_of(self.module, other)
            if self._size_of(batch) == (name, 0) and isinstance(kinds, int):
                rest = [value_of(self.module, size) for size in sizes[1:]]
                self._told(name, ["batch", kinds, *(n if isinstance(n, int) and n > 0 else "" for n in rest)])

    def _told(self, name: str, axes: Iterable[Axis]) -> None:
        self.axes.setdefault(name, list(axes))

    def _holds(self, test: ast.expr, kind: type[ast.cmpop]) -> None:
        """What holds of sizes wherever a forward goes on."""
        parts = test.values if isinstance(test, ast.BoolOp) else [test]
        for part in parts:
            if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], kind):
                left, right = part.left, part.comparators[0]
                pairs = [(left, right)]
                if isinstance(left, ast.Tuple) and isinstance(right, ast.Tuple):
                    pairs = list(zip(left.elts, right.elts, strict=False))
                for one, other in pairs:
                    self._equal(one, other)
                    self._equal(other, one)

    def _equal(self, left: ast.expr, right: ast.expr) -> None:
        counted = left.value if isinstance(left, ast.Attribute) and left.attr == "ndim" else method_of(left, "dim")
        value = value_of(self.module, right)
        if counted is not None and (name := self._is_input(counted)) and isinstance(value, int):
            self._told(name, [""] * value)
        size = self._size_of(left)
        if size is None or not isinstance(value, int) or isinstance(value, bool) or value < 1:
            return
        name, at = size
        axes = self.axes.get(name)
        if axes is not None and -len(axes) <= at < len(axes):
            axes[at] = value


def _makes_whole(call: ast.Call) -> bool:
    """``x.long()``, ``x.to(torch.long)``, ``x.type(torch.int64)``."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    kinds = [getattr(node, "attr", "") for node in (*call.args, *(word.value for word in call.keywords))]
    return called == "long" or (
        called in ("to", "type") and any(kind in ("long", "int64", "LongTensor") for kind in kinds)
    )


def _takes(node: ast.Assign, key: str) -> bool:
    """Whether a statement takes an input out of the dict of all of them, under its key: ``ids = batch.get("ids")``."""
    value = node.value
    got = value.args[:1] if isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "get" else []
    at = value.slice if isinstance(value, ast.Subscript) else got[0] if got else None
    return isinstance(at, ast.Constant) and at.value == key


def _pattern_axes(pattern: str) -> list[Axis]:
    """The axes on the left of a pattern of einops; "" for those made of several."""
    parts = re.findall(r"\([^)]*\)|\S+", pattern.partition("->")[0])
    return ["" if part.startswith("(") else int(part) if part.isdigit() else part for part in parts]


def method_of(node: ast.expr, name: str) -> ast.expr | None:
    """What a method of this name is called on; None for anything else."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.value if isinstance(function, ast.Attribute) and function.attr == name else None


def _whole_number(node: ast.expr) -> int | None:
    with suppress(ValueError, TypeError, SyntaxError):
        value = ast.literal_eval(node)
        return value if type(value) is int else None
    return None


def value_of(module: nn.Module, node: ast.expr) -> Any:
    """What ``self.context``, ``self.cfg.patch * 2`` or a number is, by what the module holds; None where that is not
    told. Only attributes that are stored are read, none that is computed."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return module if node.id == "self" else None
    if isinstance(node, ast.Attribute):
        return _held(value_of(module, node.value), node.attr)
    if isinstance(node, ast.Subscript):
        held, key = value_of(module, node.value), value_of(module, node.slice)
        with suppress(LookupError, TypeError):
            return held[key] if isinstance(held, (Mapping, tuple, list)) else None
    if isinstance(node, ast.BinOp):
        left, right = value_of(module, node.left), value_of(module, node.right)
        if isinstance(left, int) and isinstance(right, int):
            with suppress(ZeroDivisionError):
                return _ARITHMETIC.get(type(node.op), lambda a, b: None)(left, right)
    return None


_ARITHMETIC: dict[type[ast.operator], Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
}


def _held(holder: Any, name: str) -> Any:
    if isinstance(holder, Mapping):
        return holder.get(name)
    if isinstance(holder, tuple) and name in getattr(holder, "_fields", ()):
        return getattr(holder, name)
    found = getattr(holder, "__dict__", {}).get(name)
    if found is None and isinstance(holder, nn.Module):
        found = holder._modules.get(name)
    if found is None and holder is not None and not inspect.isdatadescriptor(getattr(type(holder), name, None)):
        found = getattr(type(holder), name, None)
    return found


def axes_of_modules(module: nn.Module) -> Iterator[list[Axis]]:
    """The axes that layers of rearrangement take, in the order of the modules."""
    for part in module.modules():
        pattern = vars(part).get("pattern")
        if type(part).__name__ in ("Rearrange", "Reduce") and isinstance(pattern, str) and "..." not in pattern:
            yield _pattern_axes(pattern)
