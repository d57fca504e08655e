"""The norms and the feed-forward networks of a recorded run, and what is wrong with them.

A norm is a module that reduces its input and gives back its shape, without a matrix product. It is run again on rows
of small and large spread with parameters that differ, and compared with the formulas: the right ones, and the right
ones with one mistake each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from conformance.adapters.whole.findings import Finding, once
from conformance.adapters.whole.flow import PRODUCTS, base_name, carriers, moves, operands, pointwise, projection
from conformance.adapters.whole.names import families_of
from conformance.adapters.whole.record import Call, Op, Place, Record, Value

_REDUCES = {"mean", "var", "std", "var_mean", "std_mean", "norm", "linalg_vector_norm", "sum"}
_WHOLE = {"native_layer_norm", "_fused_rms_norm"}
_OTHER = {"native_batch_norm", "native_group_norm", "_native_batch_norm_legit", "convolution", "_softmax", *PRODUCTS}
_EPS = (1e-5, 1e-6, 1e-8, 1e-12, 0.0, 1e-3, 1e-7, 1e-9, float(torch.finfo(torch.float32).eps))
_LINEAR = {"add", "sub", "neg", "clone", "copy", "_to_copy", "native_dropout", "rsub"}


@dataclass(frozen=True)
class Statistics:
    """What a formula may read: x (float64), its centred form, variance and mean square along the right axis."""

    x: Tensor
    axis: int | tuple[int, ...]
    weight: Tensor
    bias: Tensor
    eps: float

    @property
    def centred(self) -> Tensor:
        return self.x - self.x.mean(self.axis, keepdim=True)

    def variance(self, unbiased: bool = False) -> Tensor:
        return self.x.var(self.axis, unbiased=unbiased, keepdim=True)

    @property
    def square(self) -> Tensor:
        return self.x.pow(2).mean(self.axis, keepdim=True)

    @property
    def root(self) -> Tensor:
        return (self.variance() + self.eps).sqrt()

    @property
    def count(self) -> int:
        axes = (self.axis,) if isinstance(self.axis, int) else self.axis
        return int(torch.tensor([self.x.shape[axis] for axis in axes]).prod())

    @property
    def unit(self) -> Tensor:
        return self.centred / self.root


Formula = Callable[[Statistics], Tensor]

_RIGHT: dict[str, Formula] = {
    "LayerNorm": lambda s: s.unit * s.weight + s.bias,
    "RMSNorm": lambda s: s.x / (s.square + s.eps).sqrt() * s.weight,
    "RMSNorm with 1 + weight": lambda s: s.x / (s.square + s.eps).sqrt() * (1 + s.weight),
    "LayerNorm with 1 + weight": lambda s: s.unit * (1 + s.weight) + s.bias,
    "RMSNorm with a bias": lambda s: s.x / (s.square + s.eps).sqrt() * s.weight + s.bias,
}

# what is wrong, its formula, and the operations of which the last is its line
_EPS_OUTSIDE = "eps is added to the root instead of under it"
_STATISTIC, _ROOT, _LAST = ("std", "var", "mean", "sum", "var_mean"), ("div", "rsqrt", "mul"), ()
_WRONG: tuple[tuple[str, Formula, tuple[str, ...]], ...] = (
    ("the variance is the unbiased one (divided by d - 1)",
     lambda s: s.centred / (s.variance(True) + s.eps).sqrt() * s.weight + s.bias, _STATISTIC),
    (_EPS_OUTSIDE,
     lambda s: s.centred / (s.variance().sqrt() + s.eps) * s.weight + s.bias, ("div",)),
    ("the variance is the unbiased one, and eps is added to the root instead of under it",
     lambda s: s.centred / (s.variance(True).sqrt() + s.eps) * s.weight + s.bias, _STATISTIC),
    ("the root of the variance is missing",
     lambda s: s.centred / (s.variance() + s.eps) * s.weight + s.bias, ("div", "mul")),
    ("the root of the variance is missing",
     lambda s: s.centred / (s.variance(True) + s.eps) * s.weight + s.bias, ("div", "mul")),
    ("it multiplies by the root instead of dividing by it",
     lambda s: s.centred * s.root * s.weight + s.bias, ("mul",)),
    ("the mean is not subtracted, and the deviation around it divides",
     lambda s: s.x / s.root * s.weight + s.bias, _ROOT),
    ("the mean is not subtracted, and the deviation around it divides",
     lambda s: s.x / (s.variance(True) + s.eps).sqrt() * s.weight + s.bias, _ROOT),
    ("the deviation is divided by nothing", lambda s: s.centred * s.weight + s.bias, _ROOT),
    ("the bias is not added", lambda s: s.unit * s.weight, _LAST),
    ("the weight is not applied", lambda s: s.unit + s.bias, _LAST),
    ("neither weight nor bias is applied", lambda s: s.unit, _LAST),
    ("the bias is added twice", lambda s: s.unit * s.weight + 2 * s.bias, _LAST),
    ("the bias is subtracted", lambda s: s.unit * s.weight - s.bias, _LAST),
    ("the weight is applied twice", lambda s: s.unit * s.weight**2 + s.bias, _LAST),
    ("weight and bias have changed places", lambda s: s.unit * s.bias + s.weight, _LAST),
    ("the weight is added", lambda s: s.unit + s.weight + s.bias, _LAST),
    ("the bias is added before the weight multiplies", lambda s: (s.unit + s.bias) * s.weight, _LAST),
    ("the root of the mean square is missing", lambda s: s.x / (s.square + s.eps) * s.weight, _ROOT),
    ("it divides by the sum of the squares, not by their mean",
     lambda s: s.x / (s.square * s.count + s.eps).sqrt() * s.weight, ("sum", "norm", "linalg_vector_norm")),
    (_EPS_OUTSIDE,
     lambda s: s.x / (s.square.sqrt() + s.eps) * s.weight, ("div", "mul")),
    ("it multiplies by the root instead of dividing by it",
     lambda s: s.x * (s.square + s.eps).sqrt() * s.weight, ("mul",)),
    ("the weight is not applied", lambda s: s.x / (s.square + s.eps).sqrt(), _LAST),
    ("the weight is applied twice", lambda s: s.x / (s.square + s.eps).sqrt() * s.weight**2, _LAST),
    ("it divides by the mean absolute value",
     lambda s: s.x / (s.x.abs().mean(s.axis, True) + s.eps) * s.weight, _ROOT),
)  # fmt: skip


@dataclass(eq=False)
class Norm:
    """One norm as it ran. formula: which one it computes, "" for none of those known. mistake: what is wrong with it.

    eps: the one that fits. x, y: input and output as recorded.
    """

    call: Call
    x: Value
    y: Value
    formula: str
    mistake: str
    eps: float
    place: Place | None


_KNOWN: WeakKeyDictionary[Record, list[Norm]] = WeakKeyDictionary()
_ROWS = 64
"""So many rows are compared with the formulas of one row."""


def norms(record: Record) -> list[Norm]:
    """Every norm of the run, in order."""
    if record not in _KNOWN:
        _KNOWN[record] = [_fitted(record, call) for call in record.calls if _is_norm(record, call)]
    return _KNOWN[record]


def norm_findings(record: Record) -> list[Finding]:
    """What is wrong with the norms of a run: one for each claim and line."""
    findings = []
    for norm in norms(record):
        name = type(norm.call.module).__name__
        if norm.mistake:
            findings.append(
                Finding(
                    "norm-is-its-formula",
                    f"{name}: {norm.mistake}.",
                    norm.place,
                    "(x - mean) / sqrt(variance + eps) * weight + bias, or x / sqrt(mean square + eps) * weight",
                    norm.mistake,
                    "Write the formula of torch.nn.LayerNorm or torch.nn.RMSNorm, over the features of one token.",
                    norm.mistake != _EPS_OUTSIDE,  # some choose it, and it matters for rows of tiny spread only
                    (norm.call.path,),
                )
            )
        elif not norm.formula:
            findings.append(
                Finding(
                    "norm-is-its-formula",
                    f"{name} is neither LayerNorm nor RMSNorm, nor one of them with a mistake that is known here.",
                    norm.place,
                    "LayerNorm or RMSNorm",
                    "another formula",
                    "If another norm is meant, nothing.",
                    False,
                    (norm.call.path,),
                )
            )
    return once(findings)


def _ops(record: Record, call: Call) -> list[Op]:
    return [record.ops[number] for number in call.ops]


def _is_norm(record: Record, call: Call) -> bool:
    ops, given, gave = _ops(record, call), call.given, call.gave
    names = {base_name(op) for op in ops}
    if len(gave) != 1 or not given or gave[0].shape != given[0].shape or names & _OTHER:
        return False
    vectors = [parameter for parameter in call.module.parameters() if parameter.dim() == 1 and parameter.numel() > 1]
    if any(inner.parent == call.number for inner in record.calls) or not record.reaches(given[0], gave[0]):
        return False
    reduces = any(op.name in _REDUCES and given[0] in record.before(op.inputs, given[0].number) for op in ops)
    own = any(True for _ in call.module.parameters())  # without, it may normalise data: an utterance, a series
    named = bool(re.search("norm" if own else "layer_?norm|rms_?norm", type(call.module).__name__, re.I))
    return (reduces or bool(names & _WHOLE)) and (bool(vectors) or named)


def _is_vector(parameter: Tensor) -> bool:
    """Whether it is a number for each channel, as (C,) or (1, C, 1, 1)."""
    return parameter.dim() == 1 or parameter.numel() == max(parameter.shape, default=0) > 1


def _fitted(record: Record, call: Call) -> Norm:
    x, y = call.given[0], call.gave[0]
    vectors = [p for p in call.module.parameters() if _is_vector(p)]
    width = vectors[0].numel() if vectors else x.shape[-1]
    axis = next((i - len(x.shape) for i in reversed(range(len(x.shape))) if x.shape[i] == width), -1)
    if vectors and vectors[0].dim() > 1:  # (1, C, 1, 1) says which axis it is
        axis = vectors[0].shape.index(width) - vectors[0].dim()
    named = dict(call.module.named_parameters(recurse=False))
    inside = {value.name: value for op in _ops(record, call) for value in op.inputs if value.kind == "parameter"}
    draw = torch.Generator().manual_seed(0)
    spread = torch.rand(x.shape, generator=draw).amax(axis, keepdim=True)  # rows of many sizes, to see eps
    spread = 10.0 ** (-4 * torch.rand(spread.shape, generator=draw))
    rows = (torch.randn(x.shape, generator=draw) + 0.7).double() * spread
    given, weight, bias = {x: rows}, torch.ones(width).double(), torch.zeros(width).double()
    for name, parameter in named.items():
        if not _is_vector(parameter):
            continue
        numbers = (torch.randn(width, generator=draw) + (2 if bool(parameter.detach().mean() > 0.5) else 0)).double()
        value = inside.get(f"{call.path}.{name}" if call.path else name)
        is_bias = len(named) > 1 and _is_bias(record, name, value)
        weight, bias = (weight, numbers) if is_bias else (numbers, bias)
        if value is not None:
            given[value] = numbers.reshape(parameter.shape)
    result = record.replay([y], given)[0].double()
    shape = [1] * len(x.shape)
    shape[axis] = width
    weight, bias = weight.reshape(shape), bias.reshape(shape)
    own = [v for k, v in vars(call.module).items() if re.search("eps", k, re.I) and isinstance(v, float)]
    place = next((op.place for op in reversed(_ops(record, call)) if op.place is not None), None)

    some_rows, some_results = (t.movedim(axis, -1).reshape(-1, t.shape[axis])[:_ROWS] for t in (rows, result))

    def fits(formula: Formula, axes: int | tuple[int, ...], eps: float) -> bool:
        if axes == axis:
            expected = formula(Statistics(some_rows, -1, weight.reshape(-1), bias.reshape(-1), eps))
            error = (expected - some_results).abs().max()
        else:
            expected = formula(Statistics(rows, axes, weight, bias, eps))
            error = (expected - result).abs().max()
        return bool(error.isfinite()) and bool(error <= 2e-4 * expected.abs().max().clamp(min=1e-6))

    candidates = [*own, *_EPS]
    for name, formula in _RIGHT.items():
        for eps in candidates:
            if fits(formula, axis, eps):
                return Norm(call, x, y, name, "", eps, place)
    for eps in [*own, 0.0, *_EPS]:  # with none nothing is said of where it stands
        for mistake, formula, line in _WRONG:
            if fits(formula, axis, eps):
                return Norm(call, x, y, "", mistake, eps, _line(record, call, line) or place)
    others = [i - len(x.shape) for i in range(len(x.shape)) if i - len(x.shape) != axis]
    for axes, words in (
        [(i, f"axis {i + len(x.shape)}") for i in others]
        + [((axis, i), f"the features and axis {i + len(x.shape)} together") for i in others]
        + [(tuple(range(-len(x.shape), 0)), "all axes together")]
    ):
        for eps in candidates:
            if any(fits(_RIGHT[name], axes, eps) for name in ("LayerNorm", "RMSNorm")):
                if _is_of_data(record, call):
                    return Norm(call, x, y, "of data", "", eps, place)
                mistake = f"its statistics are over {words}, not over the features of one token"
                return Norm(call, x, y, "", mistake, eps, _line(record, call, _STATISTIC, True) or place)
    return Norm(call, x, y, "", "", 0.0, place)


def _is_of_data(record: Record, call: Call) -> bool:
    """Whether it normalises the data: each series over its time, say. It is no layer then. It keeps what it measured,
    to be put back later (RevIN), or a model hands it what no parameter has touched."""
    if any(isinstance(held, Tensor) for held in vars(call.module).values()):
        return True
    seen = record.before((call.given[0],))
    return call.path != "" and not any(value.kind == "parameter" for value in seen)


def _is_bias(record: Record, name: str, value: Value | None) -> bool:
    """By its name; where the name does not say it, by use: a bias is only added."""
    if re.search(r"bias|beta|shift|b_2|offset|weight|gamma|scale|a_2", name, re.I):
        return bool(re.search(r"bias|beta|shift|b_2|offset", name, re.I))
    readers = record.consumers(value) if value is not None else []
    return bool(readers) and all(base_name(op) in ("add", "sub") for op in readers)


def _line(record: Record, call: Call, names: tuple[str, ...], is_first: bool = False) -> Place | None:
    """The line of the last operation of these names that reads no parameter, or of the first."""
    statistics = [op for op in _ops(record, call) if not any(value.kind == "parameter" for value in op.inputs)]
    found = [op.place for op in statistics if base_name(op) in names]
    return found[0 if is_first else -1] if found else None


# --- feed-forward networks


@dataclass(eq=False)
class Network:
    """Two linear maps of one token. widens: the token is wider between them, and as wide behind them as before;
    narrows: it is narrower between them than on either side, as in a map of low rank.
    function: the names of the operations between them that are not linear; after: the operations of this kind that
    follow the second map; operand: what the second map reads."""

    record: Record
    first: Op
    second: Op
    operand: Value
    widens: bool
    narrows: bool
    function: tuple[str, ...]
    after: tuple[Op, ...]


def networks(record: Record) -> list[Network]:
    """Every feed-forward network of the run: d to more than d, and back to d, within one module."""
    return [net for net in pairs_of_maps(record) if net.widens]


def perceptrons(record: Record) -> list[Network]:
    """Every feed-forward network, and two maps of other widths in a module that is called after one; there they keep
    all of a token between them."""
    return [net for net in pairs_of_maps(record) if net.widens or (not net.narrows and _is_called_so(net))]


def _is_called_so(network: Network) -> bool:
    record = network.record
    around = record.around(record.call_of(network.second))
    named = (call for call in around if type(call.module) is not nn.Sequential)
    both = next((call for call in named if network.first.number in call.ops), None)
    return both is not None and families_of(type(both.module).__name__) == {"feed-forward"}


def pairs_of_maps(record: Record) -> list[Network]:
    """Every two linear maps of one token within one module, of which the second reads what the first gives."""
    found = []
    for second in record.ops:
        down = _map_of(record, second)
        if down is None:
            continue
        operand, wide, last = down
        between, firsts = _back(record, operand)
        ups = [op for op in firsts if _map_of(record, op) is not None]
        if not ups or len(ups) != len(firsts) or not _one_module(record, ups[0], second):
            continue
        narrow = _taken(record, ups[0])
        widens, narrows = narrow < wide and last == narrow, wide < min(narrow, last)
        function = tuple(base_name(op) for op in between if not _linear(record, op))
        found.append(Network(record, ups[0], second, operand, widens, narrows, function, tuple(_ahead(record, second))))
    return found


def _map_of(record: Record, op: Op) -> tuple[Value, int, int] | None:
    """What a linear map of one token reads, how wide that is, and how wide what it gives; None for another operation. A
    convolution that sees one place is such a map, too."""
    if op.name == "convolution":
        given, weight = op.inputs[:2]
        sees_one = set(weight.shape[2:]) == {1} and given.shape[1] == weight.shape[1] and not record.computed(weight)
        return (given, weight.shape[1], weight.shape[0]) if sees_one else None
    if op.name not in PRODUCTS or projection(record, op.outputs[0]) is None:
        return None
    operand = next(value for value in operands(op) if record.computed(value))
    return operand, operand.shape[-1], op.outputs[0].shape[-1]


def _taken(record: Record, op: Op) -> int:
    """How wide what a map takes is."""
    made = projection(record, op.outputs[0])
    return int(made.base.shape[-1] if made is not None else op.inputs[1].shape[1])


def network_findings(record: Record) -> list[Finding]:
    """Networks without a function between their maps, or of whose first map a part is not used."""
    findings = []
    for network in perceptrons(record):
        unused = _unused_part(record, network)
        if unused is not None:
            findings.append(
                Finding(
                    "feed-forward-gate-is-used",
                    "A part of what the first map of the feed-forward network gives is split off and not used.",
                    unused.place,
                    "a use of both parts: value * function(gate)",
                    "a part that nothing reads",
                    "Multiply one part by the function of the other.",
                    paths=(call.path if (call := record.call_of(network.second)) is not None else "",),
                )
            )
        if network.function:
            continue
        late = next(iter(network.after), None)
        call = record.call_of(network.second)
        parent = next((c for c in record.around(call) if c.path != (call.path if call else "")), call)
        where = f"; {base_name(late)} stands after the second" if late is not None else ""
        findings.append(
            Finding(
                "feed-forward-function-stands-between-its-maps",
                f"No function stands between the two maps of the feed-forward network{where}: they are one map.",
                late.place if late is not None else network.second.place,
                "a function such as ReLU or GELU between the maps",
                base_name(late) + " after both" if late is not None else "none",
                "Apply the activation to the result of the first map.",
                paths=(parent.path if parent is not None else "",),
            )
        )
    return once(findings)


def _unused_part(record: Record, network: Network) -> Op | None:
    """The operation that splits the first map's result, on the way to the second map, into parts of which one reaches
    no result."""
    ahead, used = record.after([network.first.outputs[0]]), record.before(record.outcomes)
    way = ahead & record.before(network.second.inputs)
    for op in (record.ops[number] for number in sorted({value.op for value in way})):
        if moves(op) and len(op.outputs) > 1 and any(value not in used for value in op.outputs):
            return op
    return None


def _linear(record: Record, op: Op) -> bool:
    name = base_name(op)
    if moves(op) or name in _LINEAR:
        return True
    return name in ("mul", "div") and sum(record.computed(value) for value in op.inputs) < 2


def _back(record: Record, value: Value) -> tuple[list[Op], list[Op]]:
    """The operations from products to `value`, element by element, and those products."""
    between: dict[int, Op] = {}
    firsts: dict[int, Op] = {}
    stack = [value]
    while stack:
        op = record.producer(stack.pop())
        behind = [given for given in carriers(op) if record.computed(given)] if op is not None else []
        if op is None or not behind or op.name == "native_layer_norm":
            firsts[op.number if op is not None else -1] = op if op is not None else record.ops[0]
        elif op.number not in between:
            between[op.number] = op
            stack.extend(behind)
    return list(between.values()), list(firsts.values())


def _ahead(record: Record, op: Op) -> Iterator[Op]:
    """Functions that the result of `op` goes through, alone, before it is added to anything."""
    value = op.outputs[0]
    while True:
        readers = record.consumers(value)
        if len(readers) != 1 or not (moves(readers[0]) or pointwise(readers[0]) or readers[0].name == "native_dropout"):
            return
        here = readers[0]
        if len([v for v in here.inputs if record.computed(v)]) > 1:
            return
        if not _linear(record, here):
            yield here
        value = here.outputs[0]


def _one_module(record: Record, first: Op, second: Op) -> bool:
    """Does one module below the whole model hold both maps, at most two levels down, or are both written in one?"""
    around = [[call.number for call in record.around(record.call_of(op))] for op in (first, second)]
    common = next((number for number in around[0] if number in around[1]), -1)
    if common < 0:
        return around[0] == around[1]
    depth = max(numbers.index(common) for numbers in around)
    return depth <= 1 or (depth == 2 and record.calls[common].parent >= 0)
