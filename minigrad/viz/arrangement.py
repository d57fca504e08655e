"""Where the boxes of a page stand. It is computed when the page is written, for each scope on its own:

1. A wire belongs to the innermost scope that holds both of its ends, and joins two members of it (`belonging`).
2. A member stands below all that it reads: its row is the longest path to it. What reads nothing stands right above its
   first reader. A row of more than MOST members is broken (`rows_of`).
3. Each member wishes to stand where those are that it reads, in the mean. A row is ordered by these wishes. Boxes that
   would overlap push each other to the right, and then the whole row moves back by the mean of that. The rows are gone
   through downwards, upwards by the readers of each, and downwards again (`places`).
4. Gradients run upwards: the rows of a backward scope are turned around (`arrange`).

All of this is for closed members. The page (`page/layout.js`) makes room for those that are open: their row gets
higher, their neighbours move aside, and what these are joined to moves along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf

MOST = 12  # members in a row
GAP, BESIDE = 16, 50  # between neighbours in a row; between the sides of a graph
Pair = tuple[str, str]


@dataclass(frozen=True)
class Held:
    """A card or a scope as a page shows it. `members` of a card: None."""

    title: str
    lines: Sequence[str]
    side: str
    parent: str
    members: Sequence[str] | None = None

    @cached_property
    def box(self) -> tuple[float, int]:
        """Width and height of a card, or of a closed scope: it is as large as its texts."""
        title = letters(self.title) * 6.9 + 18 if self.members is None else letters(self.title) * 7.8 + 34
        lines = max(map(letters, self.lines), default=0.0) * 5.6 + 14
        return round(max(54.0, title, lines), 1), 22 + 12 * len(self.lines)

    @cached_property
    def frame(self) -> float:
        """The least width of a scope that is open: its title stands in it."""
        return round(letters(self.title) * 6.2 + 24, 1)


@lru_cache(maxsize=1 << 12)  # the texts of a graph repeat
def letters(text: str) -> float:
    """The width of a text in letters: those of East Asia are nearly twice as wide."""
    return len(text) + 0.9 * sum(letter > "\u2e7f" for letter in text)


@dataclass(frozen=True)
class Arrangement:
    """Of a scope: the rows of its members from top to bottom, each from left to right; the members that wires join, the
    upper one first; the centre of each closed member; how far neighbours stand apart."""

    rows: list[list[str]]
    pairs: list[Pair]
    x: dict[str, float]
    gap: int


def arrange(held: Mapping[str, Held], wires: Iterable[Pair], sides: Sequence[str] = ()) -> dict[str, Arrangement]:
    """The arrangement of every scope in `held`. `sides` are the scopes that stand beside each other in the root."""
    found = {}
    joined = belonging(held, wires)
    for id, scope in held.items():
        if scope.members is None:
            continue
        width = {member: held[member].box[0] for member in scope.members}
        if sides and held[sides[0]].parent == id:
            rows, pairs, gap = [list(scope.members)], [], BESIDE
        else:
            number = {member: i for i, member in enumerate(scope.members)}
            pairs, gap = [pair for pair in joined.get(id, ()) if number[pair[0]] < number[pair[1]]], GAP
            rows = rows_of(scope.members, pairs)
        x = places(rows, pairs, width, gap)
        pairs = list(dict.fromkeys(pairs))
        if scope.side == "backward":
            rows, pairs = rows[::-1], [(b, a) for a, b in pairs]
        found[id] = Arrangement(rows, pairs, x, gap)
    return found


# --- rows -----------------------------------------------------------------------------------------------


def belonging(held: Mapping[str, Held], wires: Iterable[Pair]) -> dict[str, list[Pair]]:
    """For each scope, the pairs of its members that wires join, one for each wire, in the order of the wires."""
    chains: dict[str, list[str]] = {}

    def chain(id: str) -> list[str]:
        """A card or scope and all around it, outermost first."""
        if id not in chains:
            parent = held[id].parent
            chains[id] = [*chain(parent), id] if parent else [id]
        return chains[id]

    found: dict[str, list[Pair]] = {}
    for source, target in wires:
        for around, (a, b) in zip(chain(source), zip(chain(source)[1:], chain(target)[1:], strict=False), strict=False):
            if a != b:
                found.setdefault(around, []).append((a, b))
                break
    return found


def rows_of(members: Sequence[str], pairs: Iterable[Pair]) -> list[list[str]]:
    """The members in rows, each in the order of `members`; the first of a pair comes first in `members`, too."""
    before, after = _neighbours(members, pairs)
    layer: dict[str, int] = {}
    for member in members:
        layer[member] = max((layer[p] + 1 for p in before[member]), default=0)
    for member in members:
        if after[member] and not before[member]:
            layer[member] = min(layer[reader] for reader in after[member]) - 1
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for member in members:
        rows[layer[member]].append(member)
    return [row[i : i + MOST] for row in rows for i in range(0, len(row), MOST)]


def _neighbours(members: Iterable[str], pairs: Iterable[Pair]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    before: dict[str, list[str]] = {member: [] for member in members}
    after: dict[str, list[str]] = {member: [] for member in before}
    for a, b in pairs:
        before[b].append(a)
        after[a].append(b)
    return before, after


# --- places in a row ------------------------------------------------------------------------------------


def places(rows: list[list[str]], pairs: Iterable[Pair], width: Mapping[str, float], gap: float) -> dict[str, float]:
    """The centre of each member. Orders the rows."""
    number = {member: i for i, member in enumerate(width)}
    before, after = _neighbours(width, pairs)
    x: dict[str, float] = {}

    def wish(member: str, near: Mapping[str, list[str]]) -> float:
        placed = [x[other] for other in near[member] if other in x]
        return sum(placed) / len(placed) if placed else x.get(member, 0.0)

    for order, near in ((rows, before), (rows[::-1], after), (rows, before)):
        for row in order:
            wishes = {member: wish(member, near) for member in row}
            row.sort(key=lambda member: (wishes[member], number[member]))
            x.update(_apart(row, wishes.__getitem__, width, gap))
    return {member: round(at, 1) for member, at in x.items()}


def _apart(
    row: Sequence[str], wish: Callable[[str], float], width: Mapping[str, float], gap: float
) -> dict[str, float]:
    """Places near the wishes, in the order of the row, so that no two boxes overlap."""
    at: dict[str, float] = {}
    right = -inf
    for member in row:
        at[member] = max(wish(member), right + gap + width[member] / 2)
        right = at[member] + width[member] / 2
    drift = sum(at[member] - wish(member) for member in row) / len(row)
    return {member: place - drift for member, place in at.items()}
