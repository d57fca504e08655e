"""The attention cores of a recorded run: weights = softmax(scale * query key^T + bias), out = weights value.

    for core in attentions(record): ...

A core is found by its dataflow, in whatever layout and by whatever names it was written: a product of two computed
values reaches, element by element, a softmax, whose result reaches a product with a third computed value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from conformance.adapters.whole.flow import (
    MIXED,
    PRODUCTS,
    UNKNOWN,
    Factor,
    Projection,
    base_name,
    carriers,
    carry,
    equal_or_mixed,
    factor,
    moves,
    numbered,
    operands,
    pointwise,
    projection,
    smaller,
    sources,
)
from conformance.adapters.whole.record import Call, Op, Place, Record, Value

HIDES = -1e3
"""A score this low, or lower, hides its key whatever the other scores are."""


@dataclass(frozen=True)
class Softmax:
    """A softmax in a record: one operation, or exp and sum written by hand."""

    op: Op
    given: Value
    gave: Value
    axis: int


@dataclass(eq=False)
class Side:
    """Query, key or value of a core: vectors (N, T, d) and, where they come from projections, their tokens and columns.

    tokens, columns: (N, T, d) int64, UNKNOWN where a vector comes from elsewhere. factor: the constant that multiplies
    the vectors after their projection.
    """

    value: Value
    vectors: Tensor
    tokens: Tensor
    columns: Tensor
    projections: list[Projection]
    sources: list[Value]
    factor: Factor

    @property
    def mapped(self) -> bool:
        """Is it known for every element from which token it comes?"""
        return bool((self.tokens >= 0).all())


@dataclass(eq=False)
class AttentionCore:
    """One attention as it ran. N below is batch times heads, in the order of the product.

    query (B, H, Tq, d), key (B, H, Tk, d): without the scale. value (B, H, Tk, dv), weights (B, H, Tq, Tk) before
    dropout, out (B, H, Tq, dv). scale: the constant between the projected vectors and the scores; None where it is no
    constant. bias (B, H, Tq, Tk): the scores of a zero product, -inf where hidden. hidden (B, H, Tq, Tk): bool. axis:
    what the softmax runs along, "keys", "queries" or "heads or batch"; contracted: what the weights and values share.
    """

    record: Record
    softmax: Softmax
    scores: Op
    product: Op
    call: Call | None
    axis: str
    contracted: str
    sides: dict[str, Side]
    order: Tensor  # (B, H) -> N
    raw: Value
    factor: Factor  # between the product and the softmax
    used: Value  # the weights as they meet the values
    places: Tensor  # for each softmax element, its element of the raw product
    zero: Tensor  # (N, Tq, Tk): scores of a zero product
    slope: Tensor  # (N, Tq, Tk): what the scores do per unit of the product
    flipped: bool  # the raw product is keys by queries
    folded: Tensor | None  # (N, heads, Tq): where the rows of one product hold all heads, which row is whose
    terms: int  # how many products the scores are the sum of (DeBERTa adds two with positions)

    @property
    def place(self) -> Place | None:
        return self.softmax.op.place

    @property
    def scores_place(self) -> Place | None:
        return self.scores.place

    @property
    def path(self) -> str:
        return self.call.path if self.call is not None else ""

    @property
    def query(self) -> Tensor:
        return self._unscaled("query")

    @property
    def key(self) -> Tensor:
        return self._unscaled("key")

    @property
    def value(self) -> Tensor:
        return self.sides["value"].vectors[self.order]

    @property
    def weights(self) -> Tensor:
        return self.by_product(self.softmax.gave.data)[self.order]

    @property
    def bias(self) -> Tensor:
        return torch.where(self.hidden, -torch.inf, self.zero[self.order])

    @property
    def hidden(self) -> Tensor:
        return ((self.zero <= HIDES) | (self.by_product(self.softmax.gave.data) == 0))[self.order]

    def _unscaled(self, name: str) -> Tensor:
        side = self.sides[name]
        return side.vectors[self.order] / (side.factor.value if side.factor.plain else 1.0)

    @property
    def width(self) -> int:
        """The length of a query vector."""
        return int(self.sides["query"].vectors.shape[-1])

    @property
    def factors(self) -> list[Factor]:
        """The constants on the way from the projections to the softmax."""
        return [self.sides["query"].factor, self.sides["key"].factor, self.factor]

    @property
    def scale(self) -> float | None:
        if not all(part.plain for part in self.factors):
            return None
        first, second, third = self.factors
        return first.value * second.value * third.value

    @property
    def out(self) -> Tensor:
        """(B, H, Tq, dv): weights times values, as the formula says."""
        return self.weights @ self.value

    @property
    def tells_places(self) -> bool:
        """Do queries, keys or the weights of visible keys differ from place to place?"""
        vectors = (self.sides[name].vectors.double() for name in ("query", "key"))
        moved = any(bool((v - v[:, :1]).abs().max() > 1e-6 * v.abs().max()) for v in vectors)
        weights, hidden = self.weights, self.hidden
        low, high = weights.where(~hidden, torch.inf).amin(-1), weights.where(~hidden, -torch.inf).amax(-1)
        return moved or bool(((high - low) > 1e-6).any())

    def of_heads(self, whole: Tensor, side: Side) -> Tensor:
        """What the product got of a side, (N, T, ...), with a group for each head also where one product has all."""
        return whole if self.folded is None else _of_heads(whole, self.folded, side is self.sides["query"])

    def by_product(self, tensor: Tensor) -> Tensor:
        """What a tensor of the softmax's shape holds, as (N, Tq, Tk)."""
        return _unfolded(_arranged(tensor, self.places, self.raw.shape, self.flipped), self.folded)


def attentions(record: Record) -> list[AttentionCore]:
    """Every attention core of the run, in order."""
    found = []
    for softmax in softmaxes(record):
        core = _core(record, softmax)
        if core is not None:
            found.append(core)
    return found


def softmaxes(record: Record) -> Iterator[Softmax]:
    """Every softmax of the run, in order, also those written by hand as exp(x) / sum(exp(x))."""
    for op in record.ops:
        if op.name in ("_softmax", "_safe_softmax"):
            yield Softmax(op, op.inputs[0], op.outputs[0], int(op.args[1]))
        elif base_name(op) == "div" and len(op.inputs) == 2:
            total = _summed(record, op.inputs[1])
            if total is None or op.inputs[0] not in total.inputs:
                continue
            exp = _exp_behind(record, op.inputs[0])
            axes = total.args[1] if len(total.args) > 1 else total.kwargs.get("dim", ())
            axes = [axes] if isinstance(axes, int) else axes
            if exp is not None and axes is not None and len(axes) == 1:
                yield Softmax(op, _unshifted(record, exp.inputs[0]), op.outputs[0], int(axes[0]))


def _summed(record: Record, value: Value) -> Op | None:
    op = record.producer(value)
    while op is not None and op.name != "sum" and (moves(op) or pointwise(op)) and op.inputs:
        op = record.producer(op.inputs[0])
    return op if op is not None and op.name == "sum" else None


def _exp_behind(record: Record, value: Value) -> Op | None:
    """The exp that reaches `value` element by element: a mask may stand between it and the sum."""
    stack = [value]
    while stack:
        op = record.producer(stack.pop())
        if op is not None and base_name(op) == "exp":
            return op
        stack.extend(carriers(op) if op is not None else ())
    return None


def _unshifted(record: Record, value: Value) -> Value:
    """x of "x - max(x)", also where what is hidden is filled before, in between or after; else the value itself."""
    op = _unfilled(record, value)
    if op is not None and base_name(op) == "sub" and len(op.inputs) == 2:
        behind = _unfilled(record, op.inputs[1])
        if behind is not None and behind.name in ("amax", "max"):
            whole = behind.inputs[0]
            filled = record.producer(whole)
            inside = filled.inputs if filled is not None and base_name(filled) in _FILLS else ()
            if whole is op.inputs[0] or op.inputs[0] in inside:
                return whole
    return value


_FILLS = ("where", "masked_fill")


def _unfilled(record: Record, value: Value) -> Op | None:
    """What computed a value, before some of its elements were replaced by constants, or only moved."""
    op = record.producer(value)
    while op is not None and (moves(op) or base_name(op) in _FILLS):
        floating = [one for one in op.inputs if one.data.is_floating_point() and record.computed(one)]
        if len(floating) != 1:
            return None
        op = record.producer(floating[0])
    return op


def _core(record: Record, softmax: Softmax) -> AttentionCore | None:
    behind = _products_behind(record, softmax.given)
    scores = [op for op in behind if all(map(record.computed, operands(op)))]
    found = [(op, carry(record, {op.outputs[0]: numbered(op.outputs[0])}, softmax.given)) for op in scores]
    clear = [(op, labels) for op, labels in found if labels is not None and not bool((labels == MIXED).any())]
    product, used = _product_ahead(record, softmax)
    if len(clear) != 1 or product is None or used is None:
        return None
    op, places = clear[0]
    raw = op.outputs[0]
    met = carry(record, {softmax.gave: places}, used)
    values = next(value for value in operands(product) if value is not used)
    if met is None or bool((met == MIXED).any()):
        return None
    weights_left = operands(product)[0] is used
    axis = _along(places, softmax.axis, raw.shape)
    contracted = _along(met, -1 if weights_left else -2, raw.shape)
    flipped = "rows" in (contracted, axis) and "columns" not in (contracted, axis)
    names = {"rows": "keys", "columns": "queries"} if flipped else {"rows": "queries", "columns": "keys"}
    left, right = operands(op)
    query, key = (right, left) if flipped else (left, right)
    sides = {
        "query": _side(record, query, transposed=flipped),
        "key": _side(record, key, transposed=not flipped),
        "value": _side(record, values, transposed=not weights_left),
    }
    order = _heads(met, raw.shape, contracted)
    if order is not None and len(order) == len(sides["value"].vectors):
        _reorder(sides["value"], order)
    zero, one = record.replay([softmax.given], {raw: torch.zeros_like(raw.data)}), None
    one = record.replay([softmax.given], {raw: torch.ones_like(raw.data)})
    folded = _folded(sides["query"], places.select(softmax.axis, 0) // raw.shape[-1]) if not flipped else None
    if folded is not None and _has_heads_of_its_own(sides["key"]) and not _has_heads_of_its_own(sides["query"]):
        folded = None  # every head of the keys meets all heads of the queries: they were split wrongly
    if folded is not None:
        for name, side in sides.items():
            for grid in ("vectors", "tokens", "columns"):
                setattr(side, grid, _of_heads(getattr(side, grid), folded, name == "query"))
    arranged = [_unfolded(_arranged(tensor[0], places, raw.shape, flipped), folded) for tensor in (zero, one)]
    return AttentionCore(
        record,
        softmax,
        op,
        product,
        next(record.around(record.call_of(softmax.op)), None),
        names.get(axis, "heads or batch"),
        names.get(contracted, "heads or batch"),
        sides,
        _batches(sides["query"]),
        raw,
        factor(record, {raw}, softmax.given),
        used,
        places,
        arranged[0],
        arranged[1] - arranged[0],
        flipped,
        folded,
        len(behind),
    )


def _products_behind(record: Record, value: Value) -> list[Op]:
    """The products that reach `value` element by element."""
    found: dict[int, Op] = {}
    seen, stack = {value}, [value]
    while stack:
        op = record.producer(stack.pop())
        if op is None:
            continue
        if op.name in PRODUCTS:
            found[op.number] = op
        for behind in carriers(op):
            if behind not in seen:
                seen.add(behind)
                stack.append(behind)
    return [found[number] for number in sorted(found)]


def _product_ahead(record: Record, softmax: Softmax) -> tuple[Op | None, Value | None]:
    """The first product of the weights with another computed value, and the weights as they enter it."""
    seen, stack = {softmax.gave}, [softmax.gave]
    found: list[tuple[int, Op, Value]] = []
    while stack:
        value = stack.pop()
        for op in record.consumers(value):
            if op.name in ("bmm", "mm") and value in operands(op):
                first, second = operands(op)
                if first is not second and record.computed(second if value is first else first):
                    found.append((op.number, op, value))
            elif value in carriers(op):
                for ahead in op.outputs[:1] if not moves(op) else op.outputs:
                    if ahead not in seen:
                        seen.add(ahead)
                        stack.append(ahead)
    return min(found, key=lambda item: item[0])[1:] if found else (None, None)


def _along(places: Tensor, axis: int, shape: tuple[int, ...]) -> str:
    """Along which axis of the raw product one walks when one walks along `axis`: "rows", "columns" or "groups"."""
    if places.shape[axis] < 2:
        return "columns"
    first, second = places.narrow(axis, 0, 1), places.narrow(axis, 1, 1)
    known = (first >= 0) & (second >= 0)
    if not bool(known.any()):
        return "columns"
    step = int((second - first)[known].abs().reshape(-1)[0])
    rows, columns = shape[-2:]
    return "columns" if step < columns else "rows" if step < rows * columns else "groups"


def _side(record: Record, value: Value, transposed: bool) -> Side:
    """Query, key or value: `value` is (N, T, d), or (N, d, T) where it is transposed."""
    behind = sources(record, value)
    projections = [found for found in (projection(record, source) for source in behind) if found is not None]
    if len({found.base for found in projections}) > 1:
        projections = [_of_the_first(record, found) for found in projections]
    bases: dict[Value, int] = {}
    tokens, columns = {}, {}
    for number, found in enumerate(projections):
        space = bases.setdefault(found.base, len(bases))
        tokens[found.value] = found.tokens + (space << 32)
        columns[found.value] = found.columns + (number << 32)
    unknown = torch.full(value.shape, UNKNOWN)
    grids = [value.data]
    for labels, merge in ((tokens, equal_or_mixed), (columns, smaller)):
        carried = carry(record, labels, value, merge) if labels else None
        grids.append(carried if carried is not None else unknown)
    vectors, token, column = (_three(grid.transpose(-1, -2) if transposed else grid) for grid in grids)
    start = {found.value for found in projections} or set(behind)
    return Side(value, vectors, token, column, projections, behind, factor(record, start, value))


def _of_the_first(record: Record, found: Projection) -> Projection:
    """The projection with the tokens that its first factor was projected from, as in a product of two narrow matrices
    that is added to a wide one (LoRA)."""
    inner = projection(record, found.base)
    while inner is not None and inner.slices == 1:
        rows = inner.tokens.reshape(-1, inner.value.shape[-1])[:, 0]
        found = replace(found, base=inner.base, tokens=rows[found.tokens])
        inner = projection(record, found.base)
    return found


def _three(tensor: Tensor) -> Tensor:
    return tensor if tensor.dim() == 3 else tensor.unsqueeze(0)


def _heads(met: Tensor, shape: tuple[int, ...], contracted: str) -> Tensor | None:
    """For each group of the raw product, the group of the product with the values that its weights go to; None where
    the weights of several groups meet in one."""
    if contracted == "groups":
        return None
    groups = _three(torch.where(met >= 0, met // (shape[-1] * shape[-2]), 0)).amax((-1, -2))
    order = groups.argsort()
    return order if torch.equal(groups[order], torch.arange(len(groups))) else None


def _reorder(side: Side, order: Tensor) -> None:
    side.vectors, side.tokens, side.columns = side.vectors[order], side.tokens[order], side.columns[order]


def _arranged(tensor: Tensor, places: Tensor, shape: tuple[int, ...], flipped: bool) -> Tensor:
    flat = torch.full((torch.Size(shape).numel(),), torch.nan, dtype=torch.float64)
    known = places >= 0
    flat[places[known]] = tensor.expand(places.shape)[known].double()
    result = _three(flat.reshape(shape))
    return result.transpose(-1, -2) if flipped else result


def _has_heads_of_its_own(side: Side) -> bool:
    """Do the products of one row of the batch read different columns of a projection?"""
    return side.mapped and len(side.columns.amin((-1, -2)).unique()) > 1


def _folded(query: Side, rows: Tensor) -> Tensor | None:
    """(N, heads, T): the rows of each head, where one product has the queries of all heads as its rows (one key head:
    "bthd,bsd->bhts"). None where each head has a product of its own. rows: which row stands where in the softmax; it
    has an axis for the heads and one for the tokens, or these are heads by no reading."""
    if not query.mapped or bool((rows < 0).any()):
        return None
    tokens, heads = query.tokens[..., 0], query.columns.amin(-1)
    seen = [grid.reshape(-1)[rows] for grid in (tokens, heads)]
    for axis in range(rows.dim()):
        if not any(bool((grid == grid.narrow(axis, 0, 1)).all()) for grid in seen):
            return None
    count, several = len(tokens[0].unique()), len(heads[0].unique())
    if several < 2 or count * several != tokens.shape[1]:
        return None
    found = []
    for token, head in zip(tokens, heads, strict=True):
        pairs = sorted((h, t, row) for row, (h, t) in enumerate(zip(head.tolist(), token.tolist(), strict=True)))
        if len({pair[:2] for pair in pairs}) < len(pairs) or len(head.unique()) != several:
            return None
        found.append([row for _, _, row in pairs])
    return torch.tensor(found).reshape(len(tokens), several, count)


def _of_heads(whole: Tensor, folded: Tensor, queries: bool) -> Tensor:
    """(N, heads * T, ...) of queries, or (N, T, ...) of the one key or value of all heads, as (N * heads, T, ...)."""
    return _unfolded(whole, folded) if queries else whole.repeat_interleave(folded.shape[1], 0)


def _unfolded(tensor: Tensor, folded: Tensor | None) -> Tensor:
    """(N, heads * T, ...) as (N * heads, T, ...)."""
    if folded is None:
        return tensor
    return torch.stack([tensor[n][rows] for n, group in enumerate(folded) for rows in group])


def _batches(query: Side) -> Tensor:
    """(B, H): which N are the heads of one row of the batch. Heads of one row read the same tokens."""
    count = len(query.vectors)
    if not query.mapped:
        return torch.arange(count).reshape(1, count)
    rows: dict[tuple[int, ...], list[int]] = {}
    for n in range(count):
        rows.setdefault(tuple(sorted(set(query.tokens[n].reshape(-1).tolist()))), []).append(n)
    heads = {len(group) for group in rows.values()}
    if len(heads) != 1:
        return torch.arange(count).reshape(1, count)
    first = query.columns.amin((-1, -2))
    return torch.tensor([sorted(group, key=lambda n: int(first[n])) for group in rows.values()])
