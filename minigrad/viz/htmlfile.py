"""The writer of pages: a graph as one self-contained interactive HTML file (no network, no server).

The page gets the view model as JSON, with the arrangement of each scope (`arrangement.py`), and makes room for what is
open itself (`page/layout.js`). It knows the steps of the backward pass. Everything that a program named goes through
JSON and `textContent`, never through markup.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from minigrad.graph import Graph, Visit
from minigrad.node import Edge, Node
from minigrad.ops.registry import OPS
from minigrad.ops.rules import unbroadcast
from minigrad.study.derivations import derivation_of
from minigrad.study.typeset import typeset
from minigrad.viz.arrangement import Held, Pair, arrange
from minigrad.viz.format import clean, cut, quantity, short
from minigrad.viz.picture import LINE, TITLE, Options, choose, scope_title, shapes
from minigrad.viz.statistics import Statistics, describe, replay
from minigrad.viz.unfold import unfold
from minigrad.viz.view import Card, Scope, View

WHOLE = 64  # elements: larger arrays are shown by their statistics
BOXES = 40  # when it opens
SCRIPTS = ("layout.js", "lines.js", "map.js", "page.js")  # parts of one script, each of which uses those before it
KEPT = 1 << 16  # elements: of larger arrays only the statistics are kept
Value = np.ndarray | Statistics
Values = dict[Edge, Value]


def write_html(graph: Graph, options: Options) -> str:
    """The page. With `options.inputs`, cards and steps carry the values of a run."""
    if options.unfold:
        graph = unfold(graph, options.unfold)
    values: Values = {}
    statistics: dict[Node, Statistics] = {}
    if options.inputs is not None:
        for node, outputs in replay(graph, *options.inputs):
            statistics[node] = describe(outputs[0])
            values.update({(node, i): a if a.size <= KEPT else describe(a) for i, a in enumerate(outputs)})
    view = View(graph, statistics)
    parts = {
        "TITLE": f"{len([c for c in view.cards.values() if c.kind == 'op']):,} ops",
        "STYLE": _asset("page.css"),
        "DATA": _json(_data(view, options, values)),
        "SCRIPT": "".join(_asset(name) for name in SCRIPTS),
    }
    return re.sub(r"%([A-Z]+)%", lambda place: parts[place[1]], _asset("page.html"))


@cache
def _asset(name: str) -> str:
    return files("minigrad.viz").joinpath("page", name).read_text(encoding="utf-8")


def _json(data: Any) -> str:
    """JSON that may stand in a <script>: nothing in it can close the element or open a comment."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# --- the data of the page -----------------------------------------------------------------------------


def _data(view: View, options: Options, values: Values) -> dict[str, Any]:
    nodes = view.graph.nodes
    number = {node: i for i, node in enumerate(nodes)}
    scopes = {scope.id: _scope(scope) for scope in view.scopes.values()}
    groups = _runs(view, scopes) if options.fold else {}
    cards = {}
    for card in view.cards.values():
        node = nodes[int(card.id[1:])] if card.id.startswith("n") else None
        cards[card.id] = _card(card, node, values)
    scopes.update(groups)
    sides = [id for id in view.scopes[view.root].members if id in view.scopes] if len(view.sides) > 1 else []
    _arranged(scopes, cards, [(w.source, w.target) for w in view.wires if w.kind != "saved"], sides)
    return {
        "root": view.root,
        "sides": sides,
        "scopes": scopes,
        "cards": cards,
        "wires": [[w.source, w.target, w.kind, view.cards[w.source].outputs[w.index]] for w in view.wires],
        "open": sorted(choose(view, _roomy(options)) | {view.root}),
        "steps": _steps(view, number, values),
        "valued": bool(values),
    }


def _arranged(scopes: dict[str, Any], cards: dict[str, Any], wires: list[Pair], sides: list[str]) -> None:
    """Adds to every item its box (centre in its scope, width, height), to every scope its rows and pairs as numbers of
    members."""
    items = {**scopes, **cards}
    held = {
        id: Held(item["title"], item["lines"], item["side"], item["parent"], item.get("members"))
        for id, item in items.items()
    }
    for id, item in items.items():
        item["box"] = [0, *held[id].box]
    for id, arranged in arrange(held, wires, sides).items():
        number = {member: i for i, member in enumerate(scopes[id]["members"])}
        rows, pairs = (
            [[number[member] for member in group] for group in found] for found in (arranged.rows, arranged.pairs)
        )
        scopes[id] |= {"rows": rows, "pairs": pairs, "gap": arranged.gap, "frame": held[id].frame}
        for member, x in arranged.x.items():
            items[member]["box"][0] = x


def _roomy(options: Options) -> Options:
    """A page can be moved about in, so unless told otherwise it opens with more boxes than a picture has."""
    return replace(options, boxes=BOXES) if options.boxes == Options.boxes else options


def _scope(scope: Scope) -> dict[str, Any]:
    totals = [f"{scope.ops:,} op{'s' * (scope.ops != 1)}"]
    if scope.parameters:
        totals.append(f"{quantity(scope.parameters)} parameters")
    more = [quantity(scope.bytes, "B")] + ([quantity(scope.flops, "FLOP")] if scope.flops else [])
    leaving = [shapes(scope.leaving)] if scope.leaving else []
    return {
        "title": scope_title(scope, scope.title) or "graph",
        "path": clean(scope.path), "lines": [*leaving, ", ".join(totals), ", ".join(more)], "side": scope.side,
        "parent": scope.parent, "members": list(scope.members), "mirror": scope.mirror,
    }  # fmt: skip


def _runs(view: View, scopes: dict[str, Any]) -> dict[str, Any]:
    """A scope around each run of equal siblings, so that "Block x12" opens like any other; changes their parents."""
    groups: dict[str, Any] = {}
    for scope in view.scopes.values():
        if len(scope.run) < 3 or scope.run[0] != scope.id:
            continue
        first, last = view.scopes[scope.run[0]], view.scopes[scope.run[-1]]
        id = f"g{len(groups)}"
        title = f"{cut(first.title, TITLE)} … {cut(last.title, TITLE)}: {cut(scope.kind, TITLE)} ×{len(scope.run)}"
        ops = sum(view.scopes[member].ops for member in scope.run)
        groups[id] = {
            "title": title, "path": clean(first.path), "lines": [f"{ops:,} ops"], "side": scope.side,
            "parent": scope.parent, "members": list(scope.run), "mirror": None,
        }  # fmt: skip
        around = scopes[scope.parent]["members"]
        at = around.index(scope.run[0])
        scopes[scope.parent]["members"] = [m for m in around[:at] if m not in scope.run]
        scopes[scope.parent]["members"] += [id, *(m for m in around[at:] if m not in scope.run)]
        for member in scope.run:
            scopes[member]["parent"] = id
    return groups


def _card(card: Card, node: Node | None, values: Values) -> dict[str, Any]:
    data: dict[str, Any] = {
        "kind": card.kind, "title": cut(card.title, TITLE), "name": clean(card.name), "side": card.side,
        "lines": [cut(line, LINE) for line in ([shapes(card.outputs)] + ([card.detail] if card.detail else []))],
        "parent": card.parent, "order": card.order,
    }  # fmt: skip
    about = {"shape": ", ".join(card.outputs), "attributes": clean(card.detail), "size": quantity(card.bytes, "B"),
             "computes": quantity(card.flops, "FLOP") if card.flops else "", "line": clean(card.source)}  # fmt: skip
    op = OPS.get(card.title) if card.kind == "op" else None
    if op is not None:
        about["formula"] = typeset(op.formula)
        about["derivative"] = typeset("; ".join(_rules(op.name)))
    data["about"] = {name: text for name, text in about.items() if text}
    if card.partner is not None:
        data["partner"] = card.partner
    if node is not None and (node, 0) in values:
        data["value"] = _shown(values[node, 0])
        if card.statistics is not None and not card.statistics.healthy:
            data["alarm"] = True
    return data


def _rules(op: str) -> list[str]:
    """The last lines of the derivation, and what their names stand for."""
    if op not in OPS:
        return []
    found = derivation_of(OPS[op])
    return [f"dL/d{name} = {value}" for name, value in found.results.items()] + [
        f"{name} = {value}" for name, value in found.let.items()
    ]


def _shown(value: Value) -> str:
    """A value as the page shows it: whole where it is small."""
    if isinstance(value, Statistics):
        return str(value)
    if value.size > WHOLE:
        return str(describe(value))
    return np.array2string(value, precision=6, separator=", ", max_line_width=44, floatmode="maxprec")


# --- the backward pass --------------------------------------------------------------------------------


def _steps(view: View, number: dict[Node, int], values: Values) -> list[dict[str, Any]]:
    """The steps of the slider. A graph that was not recorded by `trace` has none of the driver's own; there, the ops of
    one derivative in a row are a step."""
    visits = [visit for visit in view.graph.visits if visit.node in number]
    made: dict[Node, list[str]] = {}
    for node in view.graph.nodes:
        if node.backward_of in number and node.op != "literal":
            made.setdefault(node.backward_of, []).append(f"n{number[node]}")
    if not visits:
        return [
            {"node": f"n{number[node]}", "made": cards, "arrived": [], "left": [], "rule": _rules(node.op)}
            for node, cards in sorted(made.items(), key=lambda item: -number[item[0]])
        ]
    sums: dict[Edge, tuple[int, np.ndarray | None]] = {}
    steps = [_step(visit, number, made.get(visit.node, []), values, sums) for visit in visits]
    gradients = {card.title: card.id for card in view.cards.values() if card.kind == "gradient"}
    for step in steps:
        if step["leaf"]:
            step["kept"] = gradients.get(f"{view.cards[step['node']].name}.grad")
    return steps


def _step(
    visit: Visit, number: dict[Node, int], made: list[str], values: Values,
    sums: dict[Edge, tuple[int, np.ndarray | None]],
) -> dict[str, Any]:  # fmt: skip
    def card(edge: Edge) -> str | None:
        return f"n{number[edge[0]]}" if edge[0] in number and edge[0].op != "literal" else None

    arrived = []
    for edge in visit.arrived:
        if edge is not None:
            arrived.append({"card": card(edge), **_valued(values.get(edge))})
    left = []
    for target, edge in visit.left:
        value = _fitted(values.get(edge), edge, target)
        array = value if isinstance(value, np.ndarray) else None
        count, before = sums.get(target, (0, None))
        total = array if not count else None if before is None or array is None else before + array
        sums[target] = (count + 1, total)
        entry = {"to": card((target[0], 0)), "card": card(edge), "count": count + 1, **_valued(value)}
        if count and total is not None:
            entry["total"] = _shown(total)
        left.append(entry)
    return {
        "node": f"n{number[visit.node]}", "leaf": not visit.node.edges, "made": made, "arrived": arrived, "left": left,
        "rule": _rules(visit.node.op) + [f"{k} = {short(v)}" for k, v in visit.node.attrs.items()],
    }  # fmt: skip


def _fitted(value: Value | None, edge: Edge, target: Edge) -> Value | None:
    """A contribution in its target's shape. Of a large one there are only statistics, which cannot be summed over
    broadcast axes."""
    (shape, _), (wanted, _) = edge[0].outputs[edge[1]], target[0].outputs[target[1]]
    return unbroadcast(value, wanted) if isinstance(value, np.ndarray) else value if shape == wanted else None


def _valued(value: Value | None) -> dict[str, str]:
    return {} if value is None else {"value": _shown(value)}
