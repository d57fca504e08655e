"""Reading a listing back: the text that `print(graph)` shows, as a `Graph` that runs.

    again = parse(str(graph), constants)      # constants: name -> array, for those that the text only names
    again.run(*inputs)                        # the same numbers

A listing does not say how the outputs were nested, nor module scopes and source lines (they are comments): the parsed
graph returns one array, or a tuple of them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

import minigrad.functional  # noqa: F401  (a text may have any op)
from minigrad import dtypes
from minigrad.graph import Graph
from minigrad.node import Edge, Node
from minigrad.tensor import Tensor
from minigrad.viz.format import LONG, meta

_META = re.compile(r"(\w+)\[([\d, ]*)\]")
_LITERAL = re.compile(r"(-?(?:inf|nan|\d[\w.+-]*)|True|False)(?::(\w+))?")
_OPEN, _CLOSE = "([{", ")]}"


def parse(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph of a listing. Raises ValueError, with the line, for what is no listing; KeyError for a large constant
    that `constants` does not have."""
    return _Parser(constants or {}).parse(text)


def named_constants(graph: Graph) -> dict[str, np.ndarray]:
    """The constants of a graph under the names that its listing uses: what `parse` wants."""
    names = graph.names()
    return {names[node]: array for node, array in graph.constants.items()}


class _Parser:
    def __init__(self, given: Mapping[str, np.ndarray]) -> None:
        self.given = given
        self.nodes: list[Node] = []
        self.inputs: list[Node] = []
        self.constants: dict[Node, np.ndarray] = {}
        self.outputs: list[Edge] = []
        self.mutations: list[tuple[Tensor, Edge]] = []
        self.gradients: dict[Node, Edge] = {}
        self.named: dict[str, Node] = {}

    def parse(self, text: str) -> Graph:
        ended = False
        for number, line in enumerate(text.splitlines(), 1):
            statement = split(line, "#")[0].strip()
            if not statement:
                continue
            try:
                if ended:
                    raise ValueError("nothing may follow return")
                if not self.named and not self.nodes and statement.startswith("graph("):
                    self._head(statement)
                elif statement == "return" or statement.startswith("return "):
                    self.outputs = [self._edge(part, None) for part in _parts(statement[6:])]
                    ended = True
                elif len(split(statement, "<-")) == 2:
                    self._left(*split(statement, "<-"))
                else:
                    self._statement(statement)
            except MemoryError:  # of Python's own parser
                raise ValueError(f"line {number} of the listing is nested too deeply") from None
            except (ValueError, TypeError, OverflowError, SyntaxError, IndexError, RecursionError) as error:
                raise ValueError(f"line {number} of the listing cannot be read ({error}): {statement}") from None
        if not ended:
            raise ValueError("the listing has no line that begins with return: it is not whole")
        return Graph(self.nodes, self.inputs, self.outputs, self.constants, self.mutations, self.gradients)

    def _head(self, statement: str) -> None:
        inside = statement[len("graph(") : statement.rindex(")")]
        for part in _parts(inside):
            name, kind = split(part, ":", 1)
            words = kind.strip().removesuffix(" requires_grad")
            op = "leaf" if words != kind.strip() else "input"
            self.inputs.append(self._node(name, op, {}, (), (_meta(words),)))

    def _statement(self, statement: str) -> None:
        target, value = split(statement, "=", 1)
        value = value.strip()
        found = re.match(r"(parameter|constant) ", value)
        if found:
            described, _, written = value[found.end() :].partition("]")
            output = _meta(described + "]")
            node = self._node(target, "leaf" if found[1] == "parameter" else "constant", {}, (), (output,))
            self.constants[node] = self._array(node, output, written.strip())
            return
        call, outputs = split(value, "->", 1)
        op, _, inside = call.strip().partition("(")
        arguments = _parts(inside[: inside.rindex(")")])
        positional = [part for part in arguments if len(split(part, "=")) == 1]
        attrs = {
            key.strip(): _value(written) for key, written in (split(p, "=", 1) for p in arguments[len(positional) :])
        }
        usual = next((edge[0].outputs[edge[1]][1] for edge in map(self._known, positional) if edge is not None), None)
        inputs = tuple(None if part == "_" else self._edge(part, usual) for part in positional)
        self._node(target, op, attrs, inputs, tuple(_meta(part) for part in _parts(outputs)))

    def _left(self, target: str, value: str) -> None:
        edge = self._edge(value, None)
        name = _unquoted(target)
        if name.endswith(".grad") and name[:-5] in self.named:
            self.gradients[self.named[name[:-5]]] = edge
        elif name in self.named:
            if self.named[name] not in self.constants:
                raise ValueError(f"{name} is no parameter or constant: nothing can be written into it")
            self.mutations.append((Tensor(self.constants[self.named[name]]), edge))
        elif name not in ("_", "_.grad"):  # what the graph itself does not read has no name
            raise ValueError(f"nothing is called {name}")

    def _node(self, name: str, op: str, attrs: dict[str, Any], inputs: Any, outputs: Any) -> Node:
        node = Node(op, attrs, inputs, outputs)
        name = _unquoted(name)
        if name in self.named:
            raise ValueError(f"{name} is defined twice")
        node.name = "" if name.startswith("%") else name
        self.named[name] = node
        self.nodes.append(node)
        return node

    def _known(self, text: str) -> Edge | None:
        """The edge of a name, or None for anything else. `%3.1` is an output of %3, unless something has that name."""
        name = _unquoted(text)
        if name in self.named:
            return self.named[name], 0
        text, _, index = text.strip().rpartition(".")
        if index.isdigit() and text and _unquoted(text) in self.named:
            return self.named[_unquoted(text)], int(index)
        return None

    def _edge(self, text: str, usual: np.dtype | None) -> Edge:
        known = self._known(text)
        if known is not None:
            if known[1] >= len(known[0].outputs):
                raise ValueError(f"{text} is an output that {known[0].op} does not have")
            return known
        found = _LITERAL.fullmatch(text.strip())
        if not found:
            raise ValueError(f"nothing is called {text.strip()}")
        dtype = _dtype(found[2]) if found[2] else usual
        if dtype is None:
            raise ValueError(f"the dtype of {text.strip()} is not known: write it as in {text.strip()}:f32")
        node = Node("literal", {"value": _value(found[1])}, (), (((), dtype),))
        self.nodes.append(node)
        return node, 0

    def _array(self, node: Node, output: tuple[tuple[int, ...], np.dtype], written: str) -> np.ndarray:
        shape, dtype = output
        if written:
            return np.array([_value(part) for part in _parts(written[1:-1])]).astype(dtype).reshape(shape)
        name = next(name for name, found in self.named.items() if found is node)
        if name not in self.given:
            raise KeyError(f"the listing only names the constant {name}: pass its array as constants[{name!r}]")
        array = np.asarray(self.given[name])
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(f"the array given for {name} is {meta(array.shape, array.dtype)}")
        return array


def split(text: str, separator: str, times: int = -1) -> list[str]:
    """`text` cut where `separator` stands outside of brackets and quotes."""
    parts, depth, quote, start, i = [], 0, "", 0, 0
    while i < len(text):
        character = text[i]
        if quote:
            if character == "\\":
                i += 1
            elif character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif depth == 0 and text.startswith(separator, i) and times != 0:
            parts.append(text[start:i])
            times -= 1
            start = i + len(separator)
            i = start - 1
        i += 1
    return [*parts, text[start:]]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in split(text, ",")] if text.strip() else []


def _unquoted(text: str) -> str:
    text = text.strip()
    if not text.startswith('"'):
        return text
    name, end = json.JSONDecoder().raw_decode(text)
    return str(name) + text[end:]


def _meta(text: str) -> tuple[tuple[int, ...], np.dtype]:
    found = _META.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text.strip()!r} is no shape and dtype such as f32[2, 3]")
    return tuple(int(n) for n in found[2].split(",") if n.strip()), _dtype(found[1])


def _dtype(name: str) -> np.dtype:
    full = LONG.get(name, name)
    try:
        return np.dtype(getattr(dtypes, "bool_" if full == "bool" else full, full))
    except TypeError:
        raise ValueError(f"there is no dtype {name}") from None


def _value(text: str) -> Any:
    """An attribute: a Python literal in which inf, nan and dtypes are also words."""
    return _evaluate(ast.parse(text.strip(), mode="eval").body)


def _evaluate(tree: ast.expr) -> Any:
    if isinstance(tree, ast.Name):
        return float(tree.id) if tree.id in ("inf", "nan") else _dtype(tree.id)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        value = _evaluate(tree.operand)
        if not isinstance(value, int | float):
            raise ValueError(f"-{value!r} is no number")
        return -value
    if isinstance(tree, ast.Tuple | ast.List):
        items = [_evaluate(item) for item in tree.elts]
        return tuple(items) if isinstance(tree, ast.Tuple) else items
    return ast.literal_eval(tree)
