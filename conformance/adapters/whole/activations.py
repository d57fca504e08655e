"""The functions and gates of the feed-forward networks of a run: are they those that the code names?

A function is measured: the first map's result is replaced by numbers from -6 to 6. It is a mistake only where its name
stands in the code, or in what the author says, and the numbers are of no function of this name.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from conformance.adapters.whole.findings import Finding, once
from conformance.adapters.whole.flow import PRODUCTS, base_name, carriers
from conformance.adapters.whole.norms import Network, networks
from conformance.adapters.whole.record import Op, Place, Record

_FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], ...]] = {
    "gelu": (F.gelu, lambda x: F.gelu(x, approximate="tanh"), lambda x: x * torch.sigmoid(1.702 * x)),
    "silu|swish": (F.silu, F.hardswish, lambda x: x * torch.sigmoid(1.702 * x)),
    "mish": (F.mish,),
}
"""A function's name, as a pattern -> the functions that go by it. Those with a parameter of their own are left out."""
_CURVES = ("silu", "gelu", "relu", "mish", "sigmoid", "tanh", "hardswish")
_GATED = re.compile(r"glu|gat(e|ed|ing)", re.I)
_NAMED = re.compile(r"gelu|geglu|silu|swish|swiglu|reglu|relu", re.I)


def activation_findings(record: Record) -> list[Finding]:
    """Functions that are not what their name says, gates without their function, and gates that are added."""
    found: list[Finding] = []
    for network in networks(record):
        between, firsts = _between(record, network)
        if len(firsts) == 1 and not _is_halved(record, network):
            found += _misnamed(record, network, between)
        else:
            found += _gate(record, network, between, firsts)
    return once(found)


def _between(record: Record, network: Network) -> tuple[list[Op], list[Op]]:
    """The operations from the first maps to the second, in order, and the first maps."""
    between: dict[int, Op] = {}
    firsts: dict[int, Op] = {}
    stack = [network.operand]
    while stack:
        op = record.producer(stack.pop())
        if op is None or op is network.first or op.name in PRODUCTS:
            firsts |= {op.number: op} if op is not None else {}
        elif op.number not in between:
            between[op.number] = op
            stack += [value for value in carriers(op) if record.computed(value)]
    return [between[number] for number in sorted(between)], [firsts[number] for number in sorted(firsts)]


def _is_halved(record: Record, network: Network) -> bool:
    """Is one half of the first map a gate for the other?"""
    return 2 * network.operand.data.numel() == network.first.outputs[0].data.numel()


def _misnamed(record: Record, network: Network, between: list[Op]) -> Iterator[Finding]:
    names = _names(record, between)
    known = next((word for word in _FUNCTIONS if re.search(word, names, re.I)), "")
    learned = any(value.kind == "parameter" for op in between for value in op.inputs)
    if not known or learned:
        return
    given = network.first.outputs[0]
    operand = network.operand
    if operand.data.numel() != given.data.numel():
        return
    x = torch.linspace(-6, 6, given.data.numel(), dtype=given.data.dtype).reshape(given.shape)
    [got] = record.replay([operand], {given: x})
    ordered = got.reshape(-1).sort().values  # experts may stand in another order behind the function
    if any(torch.allclose(ordered, function(x).reshape(-1).sort().values, atol=2e-3) for function in _FUNCTIONS[known]):
        return
    if torch.allclose(ordered, x.reshape(-1), atol=1e-6):
        return  # another claim speaks of networks without a function
    at = [float(got.reshape(-1)[int((x.reshape(-1) - point).abs().argmin())]) for point in (-1.0, 1.0, 3.0)]
    right = [float(_FUNCTIONS[known][0](torch.tensor(point))) for point in (-1.0, 1.0, 3.0)]
    said = known.partition("|")[0].upper() if known == "gelu" else known.partition("|")[0]
    yield Finding(
        "feed-forward-function-is-what-it-is-called",
        f"The function of the feed-forward network is called {said}, and computes another one.",
        _place(between, network),
        "f(-1), f(1), f(3) = " + ", ".join(f"{value:.4g}" for value in right),
        ", ".join(f"{value:.4g}" for value in at),
        f"Write the formula of torch.nn.functional.{'gelu' if known == 'gelu' else said}.",
        paths=_path(record, network),
    )


def _gate(record: Record, network: Network, between: list[Op], firsts: list[Op]) -> Iterator[Finding]:
    apart = {op: record.after([op.outputs[0]]) for op in firsts}
    joins = [op for op in between if len({first for first in firsts for v in op.inputs if v in apart[first]}) > 1]
    if len(firsts) == 1:
        pairs = [op for op in between if len({value for value in op.inputs if record.computed(value)}) > 1]
        joins = [op for op in pairs if base_name(op) == "mul"] or pairs
    first = joins[0] if joins else None
    if len(firsts) > 2 or first is None:
        return
    works = [op for op in between if _works(record, op)]
    if base_name(first) == "mul" and not works:
        said = _said(record, network, head=True)
        name = _NAMED.search(said)
        if name is not None:
            yield Finding(
                "feed-forward-gate-has-its-function",
                f"The two maps of the feed-forward network are multiplied without a function, though the author speaks "
                f"of {name[0]}.",
                first.place,
                f"{name[0]} of one map, times the other",
                "the product of both maps",
                "Apply the activation to the gate before it multiplies.",
                paths=_path(record, network),
            )
    elif base_name(first) == "mul" and base_name(works[0]) in _CURVES and _is_behind(record, first, works):
        yield Finding(
            "feed-forward-gate-has-its-function",
            "The function of the feed-forward network acts on the product of both maps, so that neither is a gate.",
            works[0].place,
            "function(gate) * value",
            "function(gate * value)",
            "Apply the function to the gate alone, before it multiplies.",
            paths=_path(record, network),
        )
    elif base_name(first) == "add" and works:
        yield Finding(
            "feed-forward-gate-multiplies",
            "The gate of the feed-forward network is added to the other map, not multiplied with it.",
            first.place,
            "function(gate) * value",
            "function(gate) + value",
            "Multiply the function of one map by the other.",
            bool(_GATED.search(f"{_said(record, network, head=False)} {first.place.text if first.place else ''}")),
            _path(record, network),
        )


def _is_behind(record: Record, product: Op, works: list[Op]) -> bool:
    """Whether the functions of a network all come behind the product of its maps."""
    behind = record.after([product.outputs[0]])
    return all(op.outputs[0] in behind for op in works)


def _works(record: Record, op: Op) -> bool:
    """Is it a function of one map: neither a sum, a constant factor, nor a product of maps?"""
    name = base_name(op)
    computed = [value for value in op.inputs if record.computed(value)]
    moved = bool(getattr(op.function, "is_view", False)) or name in (
        "clone",
        "copy",
        "_to_copy",
        "native_dropout",
        "cat",
    )
    return not moved and len(computed) == 1 and name not in ("add", "sub", "mul", "div", "neg", "_unsafe_view")


def _names(record: Record, between: list[Op]) -> str:
    """What the code calls the function: the class of the module in which it runs, the function around its lines, and
    what those lines call."""
    words = []
    for op in between:
        call = record.call_of(op)
        words.append(type(call.module).__name__ if call is not None else "")
        if op.place is not None:
            words += [_function_around(op.place), *re.findall(r"[\w.]*(?=\()", op.place.text)]
    return " ".join(words)


def _function_around(place: Place) -> str:
    """The name of the function that a line stands in."""
    indent = len(linecache.getline(place.file, place.line)) - len(linecache.getline(place.file, place.line).lstrip())
    for number in range(place.line - 1, 0, -1):
        line = linecache.getline(place.file, number)
        found = re.match(r"(\s*)def (\w+)", line)
        if found and len(found[1]) < indent:
            return found[2]
    return ""


def _said(record: Record, network: Network, head: bool) -> str:
    """What the author says of a network: names of classes around it and of their parts, their docstrings and options,
    and with `head` what stands at the head of the file."""
    words: list[str] = []
    call = record.call_of(network.second)
    around = list(record.around(call))[:2]
    for one in around:
        cls: type = type(one.module)
        if cls.__module__.partition(".")[0] == "torch":
            continue
        words += [cls.__name__, cls.__doc__ or "", *(name for name, _ in one.module.named_children())]
        words += [value for value in vars(one.module).values() if isinstance(value, str)]
        if head:
            words.append(inspect.getdoc(sys.modules.get(cls.__module__)) or "")
    return " ".join(words)


def _place(between: list[Op], network: Network) -> Place | None:
    return next((op.place for op in reversed(between) if op.place is not None), network.second.place)


def _path(record: Record, network: Network) -> tuple[str, ...]:
    call = record.call_of(network.second)
    return (call.path,) if call is not None else ()
