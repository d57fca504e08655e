"""What of a view is visible: some scopes stand open as clusters, the others are one box each.

`picture(view, Options(...))` decides which, folds runs of equal siblings into their first ("Block x12"), and joins
what is left by arrows. Writers draw a `Picture`; they decide nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import inf, log10
from typing import Any

from minigrad.viz.format import clean, cut, ended, quantity
from minigrad.viz.statistics import Statistics
from minigrad.viz.view import SIDES, Card, Scope, View

TITLE, LINE, DETAIL = 34, 44, 30  # characters at most
OUTERMOST = 10  # boxes more
ALIKE = 4  # results of one shape from one box are drawn as one from this number on


@dataclass(frozen=True)
class Options:
    """What to show.

    boxes     open scopes, outermost first, as long as at most this many boxes are visible; where nothing else is said
    depth     instead: open modules down to this depth (0: one box; 1: the outermost module stands open; ...)
    expand    instead, or beside `depth`: open scopes whose path or class matches one of these globs, and those around
              them ("encoder.layers.0*", "*" for all)
    collapse  keep scopes closed that match one of these globs, whatever else is said
    fold      draw runs of equal siblings as one; a glob in `expand` that names a later sibling unfolds its run
    sides     which of forward, backward, optimizer to show
    details   sizes, FLOPs and source lines in the boxes
    unfold    show composite ops that match one of these globs by their steps ("softmax", "*")
    inputs    arrays or tensors to run the graph on: boxes are then coloured by the size of their values
    """

    boxes: int = 15
    depth: int | None = None
    expand: tuple[str, ...] = ()
    collapse: tuple[str, ...] = ()
    fold: bool = True
    sides: tuple[str, ...] = SIDES
    details: bool = True
    unfold: tuple[str, ...] = ()
    inputs: tuple[Any, ...] | None = None


@dataclass
class Box:
    """A visible rectangle or oval: a card, or a closed scope (kind "module"). `lines` stand under the title.

    repeats how many equal modules, or results of one box, it stands for
    heat    log10 of the root mean square of its values (-inf for zeros), where there was a real run
    alarm   it holds NaN or infinity; `first`: it is the first such box, and its last line says so
    """

    id: str
    kind: str
    side: str
    title: str
    lines: list[str]
    tooltip: str
    parent: str
    order: int
    cards: list[str] = field(default_factory=list)
    repeats: int = 1
    heat: float | None = None
    alarm: bool = False
    first: bool = False


@dataclass
class Cluster:
    """An open scope, drawn as a frame around what it holds."""

    id: str
    title: str
    side: str
    parent: str
    members: list[str] = field(default_factory=list)


@dataclass
class Arrow:
    """From box to box. kind: a wire's, "tie" between a box and its derivative's, "carried" from a fold to its next."""

    source: str
    target: str
    kind: str
    values: int = 0
    bytes: int = 0
    label: str = ""


@dataclass
class Picture:
    """Boxes and clusters by id in drawing order; ids of `top` ones; arrows; `opened`: the ids of the open scopes."""

    boxes: dict[str, Box]
    clusters: dict[str, Cluster]
    top: list[str]
    arrows: list[Arrow]
    opened: frozenset[str]


def picture(view: View, options: Options | None = None) -> Picture:
    """The view as `options` want it. Raises ValueError for an unknown side."""
    options = options or Options()
    unknown = set(options.sides) - set(SIDES)
    if unknown:
        raise ValueError(f"there is no side {', '.join(sorted(unknown))}: sides are {', '.join(SIDES)}")
    return draw(view, choose(view, options), options)


# --- which scopes stand open --------------------------------------------------------------------------


def choose(view: View, options: Options) -> frozenset[str]:
    """The scopes that stand open. A backward or optimizer scope opens with the forward scope that it mirrors."""

    def matches(scope: Scope, globs: Iterable[str]) -> bool:
        return any(fnmatchcase(scope.path, glob) or fnmatchcase(scope.kind, glob) for glob in globs)

    modules = [scope for scope in view.scopes.values() if _module_depth(view, scope)]
    shut = {scope.id for scope in modules if matches(scope, options.collapse)}
    opened = {id for id in view.scopes if _module_depth(view, view.scopes[id]) == 0}
    wanted = [scope for scope in modules if matches(scope, options.expand)]
    for scope in wanted:
        opened.update(view.ancestors(scope.id))
        opened.add(scope.id)
    if options.depth is not None:
        opened.update(scope.id for scope in modules if _module_depth(view, scope) <= options.depth)
    elif not wanted:
        return _within(view, opened - shut, shut, options)
    return frozenset(opened - shut)


def _module_depth(view: View, scope: Scope) -> int:
    """0 for the root and the sides, 1 for an outermost module, and so on."""
    return scope.depth if len(view.sides) < 2 else max(0, scope.depth - 1)


def _within(view: View, opened: set[str], shut: set[str], options: Options) -> frozenset[str]:
    """Open scopes, outermost and earliest first, while the number of boxes stays within `options.boxes`.

    The optimizer stays one box. A scope of a single op stays closed: opening it would only add a frame. So does a
    module of the library that holds no other, unless it is all that there is: boxes are for what the model is made of.
    Outermost modules may exceed the number by OUTERMOST, and so may others while the picture is less than half full: a
    picture of few boxes says little.
    """
    mirrors: dict[str, list[str]] = {}
    for scope in view.scopes.values():
        if scope.mirror is not None:
            mirrors.setdefault(scope.mirror, []).append(scope.id)
        if scope.side == "optimizer" and scope.depth == 1:
            opened = opened - {scope.id}
    tried: set[str] = set()
    while True:
        shown = draw(view, frozenset(opened), options)
        closed = [
            view.scopes[id] for id in shown.boxes
            if id in view.scopes and id not in tried and id not in shut and view.scopes[id].side == "forward"
            and view.scopes[id].ops > 1 and not (view.scopes[id].known and _beside(shown, id))
        ]  # fmt: skip
        if not closed:
            return frozenset(opened)
        scope = min(closed, key=lambda scope: (scope.depth, shown.boxes[scope.id].order))
        tried.add(scope.id)
        alike = [other for same in (scope.id, *scope.run) for other in (same, *mirrors.get(same, ()))]
        more = opened | (set(alike) - shut)
        roomy = _module_depth(view, scope) == 1 or len(shown.boxes) < options.boxes / 2
        limit = options.boxes + (OUTERMOST if roomy else 0)
        if len(draw(view, frozenset(more), options).boxes) <= limit:
            opened = more


def _beside(shown: Picture, id: str) -> bool:
    """Does anything but sources and results stand beside the box on its side?"""
    side = shown.boxes[id].side
    return any(box.kind in ("op", "module") and box.id != id and box.side == side for box in shown.boxes.values())


# --- what is then visible -----------------------------------------------------------------------------


def draw(view: View, opened: frozenset[str], options: Options) -> Picture:
    """Boxes, clusters and arrows when exactly the scopes `opened` stand open."""
    return _Drawing(view, opened, options).picture()


class _Drawing:
    def __init__(self, view: View, opened: frozenset[str], options: Options) -> None:
        self.view, self.opened, self.options = view, opened, options
        self.runs: dict[str, tuple[str, ...]] = {}  # first of a folded run -> the run
        self.twins: dict[str, str] = {}
        if options.fold:
            self._fold()
        self.seen: dict[str, str] = {}
        self.absorbed: dict[str, str] = {}
        self.gathered: dict[str, list[Card]] = {}

    def _fold(self) -> None:
        """Everything in a later sibling of a folded run is drawn as its twin in the first one."""
        done: set[str] = set()
        named = [glob for glob in self.options.expand if not set(glob) <= set("*")]
        for scope in self.view.scopes.values():
            if not scope.run or scope.id in done:
                continue
            done.update(scope.run)
            later = [self.view.scopes[id].path for id in scope.run[1:]]
            if any(re.search(r"\d", glob) and fnmatchcase(path, glob) for glob in named for path in later):
                continue
            # on the backward side the last layer comes first: the run is still called and drawn by its lowest number
            run = scope.run if _number(self.view, scope.run[0]) < _number(self.view, scope.run[-1]) else scope.run[::-1]
            self.runs[run[0]] = run
            first = [item.id for item in self.view.inside(run[0])]
            for repeated in run[1:]:
                for item, twin in zip(self.view.inside(repeated), first, strict=True):
                    self.twins[item.id] = twin

    def _canonical(self, id: str) -> str:
        while id in self.twins:
            id = self.twins[id]
        return id

    def visible(self, id: str) -> str:
        """The box that shows a card: itself, or the outermost closed scope around it."""
        found = self.seen.get(id)
        if found is None:
            canonical = self._canonical(id)
            closed = (scope for scope in self.view.ancestors(canonical) if scope not in self.opened)
            found = self.seen[id] = next(closed, canonical)
        return found

    def shown(self, id: str) -> str:
        found = self.visible(id)
        return self.absorbed.get(found, found)

    def picture(self) -> Picture:
        view = self.view
        cards = [card for card in view.cards.values() if card.side in self.options.sides]
        self._absorb(cards)
        self._gather(cards)
        boxes: dict[str, Box] = {}
        for card in sorted(cards, key=lambda card: card.order):
            id = self.shown(card.id)
            if id not in boxes:
                boxes[id] = self._box(id, card)
            self._fill(boxes[id], card)
        for box in boxes.values():
            if box.kind == "module":
                box.lines = self._totals(box)
        alarmed = next((box for box in boxes.values() if box.alarm), None)
        if alarmed is not None:
            alarmed.first = True
            alarmed.lines.append("the first NaN or infinity")
        clusters, top = self._clusters(boxes)
        return Picture(boxes, clusters, top, self._arrows(boxes), self.opened)

    def _absorb(self, cards: list[Card]) -> None:
        """A parameter or constant that only one closed scope of its side reads is part of that scope."""
        readers: dict[str, set[str]] = {}
        sources = {card.id: card for card in cards if card.kind in ("parameter", "constant")}
        for wire in self.view.wires:
            source = sources.get(wire.source)
            if source is not None and self.view.cards[wire.target].side == source.side:
                readers.setdefault(self.visible(wire.source), set()).add(self.visible(wire.target))
        for id, found in readers.items():
            if id in self.view.cards and len(found) == 1:
                (reader,) = found
                if reader in self.view.scopes:
                    self.absorbed[id] = reader

    def _gather(self, cards: list[Card]) -> None:
        """Many results of one shape that leave one box (the hidden states of all layers, say) are drawn as one."""
        results = {card.id: card for card in cards if card.kind in ("output", "gradient", "update")}
        alike: dict[tuple[Any, ...], list[Card]] = {}
        for wire in self.view.wires:
            card = results.get(wire.target)
            if card is not None and self.visible(card.id) == card.id:
                key = (self.shown(wire.source), card.parent, card.kind, card.outputs)
                alike.setdefault(key, []).append(card)
        for (source, *_), found in alike.items():
            if len(found) >= ALIKE and source in self.view.scopes:
                self.gathered[found[0].id] = found
                self.absorbed.update((card.id, found[0].id) for card in found[1:])

    def _box(self, id: str, card: Card) -> Box:
        scope = self.view.scopes.get(id)
        if scope is None:
            own = self.view.cards[id]
            lines = [shapes(own.outputs)] if own.outputs else []
            if own.detail:
                lines.insert(0, ended(own.detail, DETAIL))
            if self.options.details and own.kind == "op":
                lines += [_cost(own.bytes, own.flops), *filter(None, [own.source])]
            if own.statistics is not None:
                lines.append(str(own.statistics))
            tooltip = "\n".join(clean(line) for line in [f"{own.name} = {own.title}", *lines, own.source] if line)
            alike = self.gathered.get(id, [own])
            title = own.title if len(alike) == 1 else f"{own.title} … {alike[-1].title} ×{len(alike)}"
            return Box(id, own.kind, own.side, cut(title, TITLE), [ended(line, LINE) for line in lines], tooltip,
                       own.parent, card.order, repeats=len(alike))  # fmt: skip
        return Box(id, "module", scope.side, self._scope_title(scope), [], clean(scope.path or scope.title),
                   scope.parent, card.order, repeats=len(self.runs.get(id, (id,))))  # fmt: skip

    def _scope_title(self, scope: Scope) -> str:
        name = scope.title
        run = self.runs.get(scope.id)
        if run:
            name += "–" + str(_number(self.view, run[-1]))
        return scope_title(scope, name) + (f" ×{len(run)}" if run else "")

    def _fill(self, box: Box, card: Card) -> None:
        box.cards.append(card.id)
        if card.statistics is not None:
            heat = _heat(card.statistics)
            if heat is not None and (box.heat is None or heat > box.heat):
                box.heat = heat
            box.alarm = box.alarm or not card.statistics.healthy

    def _totals(self, box: Box) -> list[str]:
        """What a closed scope holds, over all of its own repeats."""
        scopes = [self.view.scopes[id] for id in self.runs.get(box.id, (box.id,))]
        ops, parameters = sum(s.ops for s in scopes), sum(s.parameters for s in scopes)
        lines = [f"{ops:,} op" + ("s" if ops != 1 else "")]
        if parameters:
            lines[0] += f", {quantity(parameters)} parameters"
        if self.options.details:
            lines.append(_cost(sum(s.bytes for s in scopes), sum(s.flops for s in scopes)))
        if scopes[-1].leaving:
            lines.insert(0, shapes(scopes[-1].leaving))
        return [ended(line, LINE) for line in lines]

    def _clusters(self, boxes: dict[str, Box]) -> tuple[dict[str, Cluster], list[str]]:
        clusters: dict[str, Cluster] = {}
        top: list[str] = []
        for box in boxes.values():
            member, parent = box.id, box.parent
            while True:
                if parent == self.view.root or not parent:
                    if member not in top:
                        top.append(member)
                    break
                cluster = clusters.get(parent)
                if cluster is not None:
                    cluster.members.append(member)
                    break
                scope = self.view.scopes[parent]
                clusters[parent] = Cluster(parent, self._scope_title(scope), scope.side, scope.parent, [member])
                member, parent = parent, scope.parent
        clusters = {id: clusters[id] for id in self.view.scopes if id in clusters}  # outer ones first
        for cluster in clusters.values():
            if cluster.parent == self.view.root:
                cluster.parent = ""
        for box in boxes.values():
            if box.parent == self.view.root:
                box.parent = ""
        return clusters, top

    def _arrows(self, boxes: dict[str, Box]) -> list[Arrow]:
        arrows: dict[tuple[str, str, str], Arrow] = {}
        counted: set[tuple[str, str, str, str, int]] = set()

        def arrow(source: str, target: str, kind: str) -> Arrow:
            return arrows.setdefault((source, target, kind), Arrow(source, target, kind))

        for card in self.view.cards.values():
            if card.partner is not None:
                source, target = self.shown(card.partner), self.shown(card.id)
                if source in boxes and target in boxes and source != target:
                    arrow(source, target, "tie")
        for wire in self.view.wires:
            source, target = self.shown(wire.source), self.shown(wire.target)
            if source == target or source not in boxes or target not in boxes:
                continue
            back = boxes[source].order >= boxes[target].order
            found = arrow(source, target, "carried" if back and wire.kind != "saved" else wire.kind)
            value = (source, target, found.kind, wire.source, wire.index)
            if value not in counted:
                counted.add(value)
                found.values += 1
                found.bytes += wire.bytes
                output = self.view.cards[wire.source].outputs[wire.index]
                found.label = output if found.values == 1 else f"{found.values} values, {quantity(found.bytes, 'B')}"
        return list(arrows.values())


def scope_title(scope: Scope, name: str) -> str:
    """The name and the class, and which call it is of a module that is called more than once."""
    title = ": ".join(cut(part, TITLE) for part in (name, scope.kind) if part)
    return title + (f" (call {scope.call[0]} of {scope.call[1]})" if scope.call else "")


def shapes(outputs: Sequence[str]) -> str:
    """The first two of a box's outputs."""
    return ", ".join(outputs[:2]) + (", …" if len(outputs) > 2 else "")


def _cost(size: int, flops: int) -> str:
    return ", ".join(filter(None, [quantity(size, "B"), quantity(flops, "FLOP") if flops else ""]))


def _number(view: View, id: str) -> int:
    found = re.search(r"(\d+)$", view.scopes[id].title)
    return int(found[1]) if found else 0


def _heat(statistics: Statistics) -> float | None:
    if statistics.rms > 0:
        return log10(statistics.rms)
    return -inf if statistics.healthy and statistics.count else None
