"""The view model: one description of a graph that every writer (dot, svg, html, text) draws from.

A `View` is the whole graph as a tree. Its leaves are `Card`s, one for each op, input, parameter, constant and result;
its branches are `Scope`s: the sides (forward, backward, optimizer), modules, unfolded composites. `Wire`s join cards.
Numbers that the program wrote are part of the card that reads them.

Which scopes stand open is a separate choice (`minigrad.viz.picture`), so that a page can change it while looking.
Two things make a backward pass readable. Its ops belong to the scope of the forward op whose derivative they are, so
that the backward side has the forward side's tree (`Scope.mirror`, `Card.partner`). And siblings that are numbered and
equal in structure form a *run* (`Scope.run`), which can be drawn as one: "layers.0-11: Block x12".
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from minigrad.graph import Graph
from minigrad.node import Edge, Node
from minigrad.ops.registry import OPS
from minigrad.viz.format import meta, short
from minigrad.viz.statistics import Statistics

SIDES = ("forward", "backward", "optimizer")
SOURCES = {"input": "input", "leaf": "parameter", "constant": "constant"}
_TOLD = ("shape", "size", "flops", "kept")  # attributes that a card shows elsewhere, or need not show


@dataclass
class Card:
    """A leaf of the tree.

    kind      "op", "input", "parameter", "constant", or "output", "gradient", "update" for what leaves the graph
    title     the op, or the name of a source or result; name: how the listing calls the node
    detail    attributes and literals: "dims=(1, 0)", "x · 8.0"
    outputs   "f32[2, 3]" of each output; bytes: their size; flops: what the op computes
    source    "model.py:12"; partner: the id of the forward card whose derivative this op is part of
    order     position in the program; statistics: of the values of a real run, where there was one
    """

    id: str
    kind: str
    title: str
    name: str
    side: str
    detail: str = ""
    outputs: tuple[str, ...] = ()
    bytes: int = 0
    flops: int = 0
    source: str = ""
    partner: str | None = None
    order: int = 0
    parent: str = ""
    statistics: Statistics | None = None


@dataclass
class Scope:
    """A branch of the tree: a side, a module's call, or an unfolded composite.

    title    attribute name in the parent ("self_attn"), kind: the class; path: "encoder.layers.0.self_attn"
    members  ids of cards and scopes in the program's order
    mirror   on other sides, the id of the forward scope that this one belongs to
    run      ids of the siblings (itself included, in order) that repeat the same structure, or ()
    call     (2, 3) for the second of three calls of one module in its parent, or ()
    known    a module of the library (`Graph.library`) that holds no other
    leaving  "f32[2, 3]" of each value that is read outside of it on its side
    ops, flops, bytes, parameters: totals of everything inside (bytes of outputs; numbers in parameters)
    """

    id: str
    title: str
    kind: str
    path: str
    side: str
    parent: str
    depth: int
    members: list[str] = field(default_factory=list)
    mirror: str | None = None
    run: tuple[str, ...] = ()
    call: tuple[int, ...] = ()
    known: bool = False
    leaving: tuple[str, ...] = ()
    ops: int = 0
    flops: int = 0
    bytes: int = 0
    parameters: int = 0


@dataclass(frozen=True)
class Wire:
    """Output `index` of card `source` is read by card `target` at input `slot`.

    kind: "data"; "gradient" inside the backward side; "saved" from the forward to the backward side; "update" into the
    optimizer."""

    source: str
    index: int
    target: str
    slot: int
    kind: str
    bytes: int


class View:
    """The tree of a graph: `cards` and `scopes` by id, `wires`, and the id of the `root` scope.

    `statistics` (of `minigrad.viz.statistics.measure`) puts values of a real run on the cards.
    """

    def __init__(self, graph: Graph, statistics: Mapping[Node, Statistics] | None = None) -> None:
        self.graph = graph
        self.cards: dict[str, Card] = {}
        self.scopes: dict[str, Scope] = {}
        self.wires: list[Wire] = []
        self.root = self._scope("", "", "", "forward", "").id
        _Builder(self, statistics or {}).build()

    def _scope(self, title: str, kind: str, path: str, side: str, parent: str) -> Scope:
        depth = self.scopes[parent].depth + 1 if parent else 0
        scope = Scope(f"s{len(self.scopes)}", title, kind, path, side, parent, depth)
        self.scopes[scope.id] = scope
        if parent:
            self.scopes[parent].members.append(scope.id)
        return scope

    def ancestors(self, id: str) -> list[str]:
        """The scopes around a card or scope, outermost first, itself not included."""
        chain = []
        parent = (self.cards.get(id) or self.scopes[id]).parent
        while parent:
            chain.append(parent)
            parent = self.scopes[parent].parent
        return chain[::-1]

    def inside(self, id: str) -> Iterator[Card | Scope]:
        """Everything in a scope, itself first, in the program's order."""
        stack = [id]
        while stack:
            found = stack.pop()
            card = self.cards.get(found)
            if card is not None:
                yield card
            else:
                yield self.scopes[found]
                stack.extend(reversed(self.scopes[found].members))

    @cached_property
    def sides(self) -> list[str]:
        """The sides that the graph has, in the order of SIDES."""
        present = {card.side for card in self.cards.values()}
        return [side for side in SIDES if side in present]


class _Builder:
    """Fills a View: sides, scopes, cards, wires, totals, runs."""

    def __init__(self, view: View, statistics: Mapping[Node, Statistics]) -> None:
        self.view, self.graph, self.statistics = view, view.graph, statistics
        self.names = self.graph.names()
        self.number = {node: i for i, node in enumerate(self.graph.nodes)}
        self.given = set(self.graph.inputs)
        self.side = sides(self.graph)
        self.users: dict[Node, list[Node]] = {}
        for node in self.graph.nodes:
            for edge in node.inputs:
                if edge is not None:
                    self.users.setdefault(edge[0], []).append(node)
        self.place: dict[Node, str] = {}  # node -> its scope
        self.mirrors: dict[tuple[str, str], str] = {}  # (side, forward scope) -> the scope there
        self.tops = {"forward": view.root}

    def build(self) -> None:
        present = {self.side[node] for node in self.graph.nodes if not self._is_source(node)} | {"forward"}
        if len(present) > 1:
            for side in SIDES:
                if side in present:
                    self.tops[side] = self.view._scope(side, "", "", side, self.view.root).id
        self._place_forward()
        self._place_sources("forward")
        self._place_others()
        self._place_sources("backward")
        self._place_sources("optimizer")
        for node in self.graph.nodes:
            if node.op != "literal":
                self._card(node)
        self._results()
        self._sort()
        self._wires()
        _totals(self.view)
        _leaving(self.view)
        _find_runs(self.view)
        _find_calls(self.view)

    def _is_source(self, node: Node) -> bool:
        return node.op in SOURCES or node.op == "literal"

    # --- where each node belongs

    def _place_forward(self) -> None:
        """A module's call is a stretch of the program with its scope, so a module called twice has two scopes."""
        open_scopes: list[tuple[tuple[str, str], str]] = []
        for node in self.graph.nodes:
            if self._is_source(node) or self.side[node] != "forward":
                continue
            kept = 0
            while kept < min(len(open_scopes), len(node.scope)) and open_scopes[kept][0] == node.scope[kept]:
                kept += 1
            del open_scopes[kept:]
            for entry in node.scope[kept:]:
                parent = open_scopes[-1][1] if open_scopes else self.tops["forward"]
                title = entry[0].split("#")[0]
                path = ".".join(name for name in (self.view.scopes[parent].path, title) if name)
                open_scopes.append((entry, self.view._scope(title, entry[1], path, "forward", parent).id))
            self.place[node] = open_scopes[-1][1] if open_scopes else self.tops["forward"]

    def _place_sources(self, side: str) -> None:
        """A parameter or constant belongs to the innermost scope around all that read it; inputs stay outside."""
        for node in self.graph.nodes:
            if node.op not in SOURCES or self.side[node] != side:
                continue
            readers = [self.place[user] for user in self.users.get(node, ()) if self.side[user] == side]
            if node in self.given or not readers:
                self.place[node] = self.tops[side]
                continue
            chains = [[*self.view.ancestors(scope), scope] for scope in readers]
            common = [level[0] for level in zip(*chains, strict=False) if len(set(level)) == 1]
            self.place[node] = common[-1]

    def _place_others(self) -> None:
        """Backward ops go where their forward op is, optimizer ops to the parameter that they change."""
        owner = owners(self.graph, self.side)
        for node in self.graph.nodes:
            side = self.side[node]
            if self._is_source(node):
                continue
            if side == "backward":
                origin = node.backward_of
                while origin is not None and origin.backward_of is not None:
                    origin = origin.backward_of
                home = self.place.get(origin, self.tops["forward"]) if origin is not None else self.tops["forward"]
                self.place[node] = self._mirror(home, "backward")
            elif side == "optimizer":
                leaf = owner.get(node)
                if leaf is None:
                    self.place[node] = self.tops["optimizer"]
                    continue
                key = ("optimizer", self.names[leaf])
                if key not in self.mirrors:
                    outer = self._mirror(self.place[leaf], "optimizer")
                    title = self.names[leaf].rsplit(".", 1)[-1]
                    self.mirrors[key] = self.view._scope(title, "update", self.names[leaf], "optimizer", outer).id
                self.place[node] = self.mirrors[key]

    def _mirror(self, forward: str, side: str) -> str:
        """The scope on `side` that belongs to a forward scope, made with its parents where missing."""
        if forward == self.tops["forward"]:
            return self.tops[side]
        found = self.mirrors.get((side, forward))
        if found is None:
            scope = self.view.scopes[forward]
            made = self.view._scope(scope.title, scope.kind, scope.path, side, self._mirror(scope.parent, side))
            made.mirror = forward
            found = self.mirrors[side, forward] = made.id
        return found

    # --- cards and wires

    def _id(self, node: Node) -> str:
        return f"n{self.number[node]}"

    def _card(self, node: Node) -> None:
        kind = "input" if node in self.given else SOURCES.get(node.op, "op")
        outputs = tuple(meta(*output) for output in node.outputs)
        card = Card(self._id(node), kind, node.op if kind == "op" else self.names[node], self.names[node],
                    self.side[node], outputs=outputs, order=self.number[node], parent=self.place[node])  # fmt: skip
        card.bytes = sum(_size(output) for output in node.outputs)
        if kind == "op":
            card.detail = _detail(node)
            card.flops = _flops(node)
            if node.backward_of in self.number:
                card.partner = self._id(node.backward_of)
        if kind == "constant" and not node.name:
            array = self.graph.constants.get(node)
            card.title = short(array.item()) if array is not None and array.size == 1 else kind
        if node.source is not None and kind == "op" and not node.source[0].startswith("<"):
            file, line = node.source
            card.source = f"{os.path.basename(file)}:{line}"
        card.statistics = self.statistics.get(node)
        self._add(card)

    def _add(self, card: Card) -> None:
        self.view.cards[card.id] = card
        self.view.scopes[card.parent].members.append(card.id)

    def _results(self) -> None:
        """What leaves the graph: outputs, gradients left in `.grad`, new values of what was changed in place."""
        leaf_of = {id(array): node for node, array in self.graph.constants.items()}
        results: list[tuple[str, str, Edge, str]] = []
        several = len(self.graph.outputs) > 1
        for position, edge in enumerate(self.graph.outputs):
            results.append(("output", f"output {position}" if several else "output", edge, self.tops["forward"]))
        updated = {leaf_of.get(id(tensor.array)) for tensor, _ in self.graph.mutations}
        for leaf, edge in self.graph.gradients.items():
            if leaf not in updated:  # an update shows where its gradient goes
                results.append(("gradient", f"{self.names.get(leaf, 'leaf')}.grad", edge, self.place[edge[0]]))
        for tensor, edge in self.graph.mutations:
            target = leaf_of.get(id(tensor.array))
            name = "state" if target is None or not target.name else self.names[target]
            results.append(("update", f"new {name}", edge, self.place.get(edge[0], self.tops["forward"])))
        for position, (kind, title, edge, place) in enumerate(results):
            side = self.view.scopes[place].side
            if edge[0] not in self.place:  # a literal
                self.place[edge[0]] = place
                continue
            card = Card(f"r{position}", kind, title, title, side, order=len(self.number) + position, parent=place)
            card.outputs = (meta(*edge[0].outputs[edge[1]]),)
            card.statistics = self.statistics.get(edge[0]) if edge[1] == 0 else None
            self._add(card)
            size = _size(edge[0].outputs[edge[1]])
            self.view.wires.append(Wire(self._id(edge[0]), edge[1], card.id, 0, _kind(self.side[edge[0]], side), size))

    def _sort(self) -> None:
        """Members in the program's order: a scope stands where its first card does."""
        first = {card.id: card.order for card in self.view.cards.values()}
        for scope in reversed(self.view.scopes.values()):  # children have later ids than their parents
            first[scope.id] = min((first[member] for member in scope.members), default=len(first))
            if scope.id != self.view.root:
                scope.members.sort(key=lambda member: first[member])
        self.view.scopes[self.view.root].members.sort(
            key=lambda member: (
                SIDES.index(self.view.scopes[member].side)
                if member in self.view.scopes and member in self.tops.values()
                else first[member]
            )
        )

    def _wires(self) -> None:
        for node in self.graph.nodes:
            for slot, edge in enumerate(node.inputs):
                if edge is None or edge[0].op == "literal" or self._is_source(node):
                    continue
                kind = _kind(self.side[edge[0]], self.side[node])
                size = _size(edge[0].outputs[edge[1]])
                self.view.wires.append(Wire(self._id(edge[0]), edge[1], self._id(node), slot, kind, size))


def _kind(source: str, target: str) -> str:
    if target == "optimizer":
        return "data" if source == "optimizer" else "update"
    if source == "backward":
        return "gradient"
    return "saved" if target == "backward" else "data"


def _size(output: tuple[tuple[int, ...], Any]) -> int:
    shape, dtype = output
    return int(np.prod(shape, dtype=np.int64)) * int(dtype.itemsize)


def _flops(node: Node) -> int:
    """The op's cost by its declaration; 0 for an op that has none, or whose inputs are not recorded."""
    declared = OPS.get(node.op)
    if declared is None or any(edge is None for edge in node.inputs):
        return int(node.attrs.get("flops", 0)) if declared is None else 0
    metas = [edge[0].outputs[edge[1]] for edge in node.inputs if edge is not None]
    return declared.cost(metas, node.outputs, node.attrs)[0]


def _detail(node: Node) -> str:
    """Literals in their places among the inputs, then attributes that the output's shape does not already tell."""
    parts = []
    literals = [edge is not None and edge[0].op == "literal" for edge in node.inputs]
    if any(literals):
        written = [
            short(edge[0].attrs["value"]) if literal and edge is not None else "·"
            for edge, literal in zip(node.inputs, literals, strict=True)
        ]
        parts.append(f"({', '.join(written)})")
    for key, value in node.attrs.items():
        if key == "body" and node.op == "fused":
            parts.append(", ".join(step[0] for step in value))
        elif value is not None and value is not False and key not in _TOLD:
            parts.append(f"{key}={short(value)}")
    return ", ".join(parts)


def sides(graph: Graph) -> dict[Node, str]:
    """Forward, backward or optimizer, for every node.

    Backward is what a derivative made. Optimizer is what comes after, where the graph changes tensors in place: it
    depends on gradients or is read by nothing else than the optimizer, and no derivative goes through it. A source that
    only one side reads belongs to that side.
    """
    side = {node: "backward" if node.backward_of is not None else "forward" for node in graph.nodes}
    users: dict[Node, list[Node]] = {}
    differentiated: set[Node] = set()
    after: set[Node] = set()
    for node in graph.nodes:
        inputs = [edge[0] for edge in node.inputs if edge is not None]
        for source in inputs:
            users.setdefault(source, []).append(node)
        if node.backward_of is None and any(n in after or side[n] == "backward" for n in inputs):
            after.add(node)
    for node in reversed(graph.nodes):
        if node.backward_of is not None or node in differentiated:
            differentiated.update(edge[0] for edge in node.inputs if edge is not None)
            if node.backward_of is not None:
                differentiated.add(node.backward_of)
    kept = {*(edge[0] for edge in graph.outputs), *graph.inputs}
    for node in reversed(graph.nodes):
        if side[node] == "backward" and node.op != "constant":
            continue
        readers = {side[reader] for reader in users.get(node, [])}
        if node in after and graph.mutations and node not in differentiated:
            side[node] = "optimizer"
        elif (
            node not in kept
            and (readers == {"optimizer"} or (readers == {"backward"} and node.op in SOURCES))
        ):  # fmt: skip
            side[node] = readers.pop()
    return side


def owners(graph: Graph, side: Mapping[Node, str]) -> dict[Node, Node]:
    """Optimizer nodes that serve one parameter only, with its leaf."""
    leaves = {id(array): node for node, array in graph.constants.items() if node.op == "leaf"}
    found: dict[Node, Node | None] = {}
    for tensor, edge in graph.mutations:
        leaf = leaves.get(id(tensor.array))
        if leaf is None:
            continue
        stack, seen = [edge[0]], set()
        while stack:
            node = stack.pop()
            if node in seen or side.get(node) != "optimizer":
                continue
            seen.add(node)
            found[node] = leaf if found.get(node, leaf) is leaf else None
            stack.extend(e[0] for e in node.inputs if e is not None)
    return {node: leaf for node, leaf in found.items() if leaf is not None}


def _totals(view: View) -> None:
    for scope in reversed(view.scopes.values()):
        for member in scope.members:
            card = view.cards.get(member)
            if card is None:
                inner = view.scopes[member]
                scope.ops += inner.ops
                scope.flops += inner.flops
                scope.bytes += inner.bytes
                scope.parameters += inner.parameters
            elif card.kind == "op":
                scope.ops += 1
                scope.flops += card.flops
                scope.bytes += card.bytes
            elif card.kind == "parameter":
                scope.parameters += sum(_numbers(output) for output in card.outputs)


def _leaving(view: View) -> None:
    left: dict[str, dict[tuple[str, int], str]] = {}
    for wire in view.wires:
        around, card = view.ancestors(wire.target), view.cards[wire.source]
        if card.kind != "op" or view.cards[wire.target].side != card.side:
            continue
        for scope in view.ancestors(wire.source):
            if scope not in around:
                left.setdefault(scope, {})[wire.source, wire.index] = card.outputs[wire.index]
    for id, outputs in left.items():
        view.scopes[id].leaving = tuple(outputs.values())


def _numbers(written: str) -> int:
    return int(np.prod([int(n) for n in re.findall(r"\d+", written.split("[", 1)[1])], dtype=np.int64))


_NUMBERED = re.compile(r"(.*?)(\d+)$")


def _find_runs(view: View) -> None:
    """Siblings numbered one after the other, of one class and of equal structure, repeat each other."""
    readers: dict[str, list[Wire]] = {}
    for wire in view.wires:
        readers.setdefault(wire.target, []).append(wire)
    for scope in view.scopes.values():
        run: list[str] = []
        last: Any = None
        for member in [*(m for m in scope.members if m in view.scopes), ""]:
            key = None
            if member:
                numbered = _NUMBERED.match(view.scopes[member].title)
                if numbered:
                    key = (numbered[1], view.scopes[member].kind, int(numbered[2]), _structure(view, member, readers))
            if key and last and key[:2] == last[:2] and abs(key[2] - last[2]) == 1 and key[3] == last[3]:
                run.append(member)
            else:
                if len(run) > 1:
                    for repeated in run:
                        view.scopes[repeated].run = tuple(run)
                run = [member] if key else []
            last = key


def _find_calls(view: View) -> None:
    """Calls of one module stand under one parent and have its name. And what the library's modules do is known."""
    library = sys.modules.get(view.graph.library)
    calls: dict[tuple[str, str, str], list[Scope]] = {}
    for scope in view.scopes.values():
        inner = any(member in view.scopes for member in scope.members)
        scope.known = bool(scope.kind) and not inner and hasattr(library, scope.kind)
        if scope.title and scope.kind:
            calls.setdefault((scope.parent, scope.title, scope.kind), []).append(scope)
    for same in calls.values():
        for number, scope in enumerate(same if len(same) > 1 else (), 1):
            scope.call = (number, len(same))


def _structure(view: View, id: str, readers: Mapping[str, list[Wire]]) -> int:
    """A number that is equal for scopes which differ only in what they are called and what they are connected to."""
    local: dict[str, int] = {}
    described: list[Any] = []
    for item in view.inside(id):
        local[item.id] = len(local)
        if isinstance(item, Scope):
            described.append((item.title if item.id != id else "", item.kind, len(item.members)))
        else:
            described.append((item.kind, item.title if item.kind == "op" else "", item.detail, item.outputs))
    for item in view.inside(id):
        for wire in readers.get(item.id, ()):
            described.append((local[item.id], local.get(wire.source, -1), wire.index, wire.slot))
    return hash(tuple(described))
