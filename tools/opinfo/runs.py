"""One sample on both sides, each way that a program may use an op: values, gradients, plans, methods, errors."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import minigrad as mg
from tools.opinfo.bridge import Bridge, Outside, array, described, differentiable, leaves
from tools.opinfo.judge import apart, difference, refusal, sharing
from tools.opinfo.samples import ORDERS, RANDOM

EQUAL, REFUSED, UNCLEAR, DIFFERENT, SKIPPED = "equal", "refused", "unclear", "different", "skipped"
WIDER = "wider"  # a number where torch wants a tensor, and the like: refused there for its type, computed here
BUSY = 200_000  # elements of a sample above which it is too slow for what it shows


@dataclass(frozen=True)
class Outcome:
    """What came of one sample in one mode: a verdict, the sentence of a refusal or the difference, and the sample."""

    verdict: str
    mode: str
    what: str = ""
    sample: str = ""
    size: int = 0


@dataclass
class Call:
    """A function, its torch original, and the arguments of one sample."""

    theirs: Callable[..., Any]
    mine: Callable[..., Any]
    sample: Any
    dtype: str
    entry: str = ""

    @property
    def random(self) -> bool:
        return self.entry in RANDOM or bool(self.sample.kwargs.get("dropout_p"))

    def arguments(self) -> list[Any]:
        return [self.sample.input, self.sample.args, self.sample.kwargs]

    def size(self) -> int:
        flat = leaves(self.arguments())
        return sum(value.numel() + 1 if isinstance(value, torch.Tensor) else 1 for value in flat)

    def outcome(self, verdict: str, mode: str, what: str = "") -> Outcome:
        told = f"{self.dtype}: " + ", ".join(map(described, [self.sample.input, *self.sample.args]))
        if self.sample.kwargs:
            told += ", " + described(self.sample.kwargs)
        return Outcome(verdict, mode, what, told[:400], self.size())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _copied(value: Any) -> Any:
    """A sample's argument with tensors of its own, which an in-place function may change; strides are kept."""
    if isinstance(value, torch.Tensor):
        with torch.no_grad():
            twin = torch.empty(0, dtype=value.dtype).set_(
                value.untyped_storage().clone(), value.storage_offset(), value.shape, value.stride()
            )
        return twin.requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {name: _copied(item) for name, item in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        items = [_copied(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def run(call: Call, mode: str) -> list[Outcome]:
    """The outcomes of one sample in one of MODES."""
    with _quiet():
        try:
            return MODES[mode](call)
        except Outside as error:
            return [call.outcome(SKIPPED, mode, str(error))]


def _both(call: Call, mode: str, gradient: bool) -> tuple[Any, Any, Bridge, list[Any]] | Outcome:
    """Results of both sides with the arguments of torch's call, or what there is to say instead."""
    bridge = Bridge()
    arguments = call.arguments()
    carried = bridge.carry(arguments)
    keep = torch.enable_grad() if gradient else torch.no_grad()
    with keep:
        try:
            theirs = call.theirs(arguments[0], *arguments[1], **arguments[2])
        except Exception as error:  # a sample that torch itself refuses on this machine
            return call.outcome(SKIPPED, mode, f"torch: {error}"[:200])
    if theirs is NotImplemented:
        return call.outcome(SKIPPED, mode, "an operator that torch leaves to its other operand")
    if any(isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in leaves(theirs)):
        return call.outcome(SKIPPED, mode, "complex results")
    own = mg.enable_grad() if gradient else mg.no_grad()
    with own:
        try:
            mine = call.mine(carried[0], *carried[1], **carried[2])
        except Exception as error:
            clear, sentence = refusal(error)
            return call.outcome(REFUSED if clear else UNCLEAR, mode, sentence)
    return theirs, mine, bridge, arguments


def _values(call: Call, mode: str = "values") -> list[Outcome]:
    before = [array(leaf).copy() for leaf in leaves(call.arguments()) if isinstance(leaf, torch.Tensor)]
    found = _both(call, mode, gradient=False)
    if isinstance(found, Outcome):
        return [found]
    theirs, mine, bridge, arguments = found
    drawn = call.random
    wrong = difference(_metas(theirs), _metas(mine)) if drawn else difference(theirs, mine)
    if wrong and call.entry in ORDERS:
        wrong = difference(_ordered(theirs, arguments), _ordered(mine, arguments))
    if wrong is None:
        wrong = sharing(theirs, mine, bridge.pairs)
        mode = "views" if wrong else mode
    if wrong is None and not _changed(arguments, before):
        for source, copy in bridge.pairs:
            wrong = wrong or (apart(array(source), array(copy)) and "an argument was changed")
    return [call.outcome(DIFFERENT if wrong else EQUAL, mode, wrong or "")]


def _changed(arguments: list[Any], before: list[np.ndarray]) -> bool:
    now = [array(leaf) for leaf in leaves(arguments) if isinstance(leaf, torch.Tensor)]
    return any(apart(one, other) for one, other in zip(before, now, strict=True))


def _ordered(result: Any, arguments: list[Any]) -> list[Any]:
    """A result whose int64 tensors are indices of an order, with what they point at in their place."""
    given = torch.atleast_1d(arguments[0])
    asked = [value for value in (*arguments[1], *arguments[2].values()) if type(value) is int]
    dim = arguments[2].get("dim", asked[-1] if asked else -1)
    dim = dim if -given.ndim <= dim < given.ndim else -1
    found: list[Any] = []
    for leaf in leaves(result):
        values = array(leaf)
        found.append(tuple(leaf.shape))
        if values.dtype == np.int64 and leaf is leaves(result)[-1]:
            index = torch.from_numpy(np.array(values, order="C")).reshape(tuple(leaf.shape) or (1,))
            found.append(torch.sum(torch.gather(given, dim, index).double()).item())
    return found


def _metas(result: Any) -> list[Any]:
    return [
        [tuple(leaf.shape), str(leaf.dtype).removeprefix("torch.")] if hasattr(leaf, "shape") else leaf
        for leaf in leaves(result)
    ]


def _gradients(call: Call, mode: str = "gradients") -> list[Outcome]:
    """First gradients, and second ones of their sum, with fixed weights everywhere."""
    found = _both(call, mode, gradient=True)
    if isinstance(found, Outcome):
        return [] if found.verdict == REFUSED else [found]  # told as a value already
    theirs, mine, bridge, _ = found
    if difference(theirs, mine):
        return []  # told as a value already
    one, other = differentiable(leaves(theirs)), differentiable(leaves(mine))
    if not other and _vanish(one, [source for source, _ in bridge.pairs if source.requires_grad]):
        return [call.outcome(EQUAL, mode)]
    if len(one) != len(other):
        flags = [getattr(leaf, "requires_grad", None) for leaf in leaves(theirs)]
        return [call.outcome(DIFFERENT, mode, f"results that carry a gradient: {flags} in torch, {len(other)} here")]
    sources = [source for source, copy in bridge.pairs if source.requires_grad]
    copies = [copy for source, copy in bridge.pairs if source.requires_grad]
    outcomes = []
    for mode in ("gradients", "second gradients"):
        if not one or not sources:
            break
        rng = np.random.default_rng(0)
        weights = [rng.standard_normal(tuple(value.shape)) for value in one]
        try:
            expected = torch.autograd.grad(
                one, sources, [torch.from_numpy(w).to(v.dtype) for w, v in zip(weights, one, strict=True)],
                create_graph=True, allow_unused=True,
            )  # fmt: skip
        except Exception:  # torch has no derivative here
            break
        try:
            given = [mg.from_numpy(np.asarray(w)).to(v.dtype) for w, v in zip(weights, other, strict=True)]
            got = mg.grad(other, copies, given, create_graph=True, allow_unused=True)
        except Exception as error:
            clear, sentence = refusal(error)
            outcomes.append(call.outcome(REFUSED if clear else UNCLEAR, mode, sentence))
            break
        wrong = None
        for source, theirs_grad, my_grad in zip(sources, expected, got, strict=True):
            zero = np.zeros(tuple(source.shape), array(source).dtype)
            pair = [zero if value is None else array(value) for value in (theirs_grad, my_grad)]
            wrong = wrong or (
                f"shapes {pair[0].shape}, {pair[1].shape}" if pair[0].shape != pair[1].shape else apart(*pair)
            )
        outcomes.append(call.outcome(DIFFERENT if wrong else EQUAL, mode, wrong or ""))
        if wrong:
            break
        pairs = [
            (theirs_grad, my_grad)
            for theirs_grad, my_grad in zip(expected, got, strict=True)
            if theirs_grad is not None and theirs_grad.requires_grad
        ]
        constant = [value for value, mine_grad in pairs if mine_grad is None or not mine_grad.requires_grad]
        if constant and not _vanish(constant, sources):
            outcomes.append(call.outcome(DIFFERENT, "second gradients", "a gradient carries none here"))
            break
        pairs = [pair for pair in pairs if pair[1] is not None and pair[1].requires_grad]
        one, other = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return outcomes


def _vanish(results: list[torch.Tensor], sources: list[torch.Tensor]) -> bool:
    """Is every gradient 0 in torch? Then it makes no difference that there is none here."""
    if not results or not sources:
        return False
    ones = [torch.ones_like(result) for result in results]
    found = torch.autograd.grad(results, sources, ones, retain_graph=True, allow_unused=True)
    return all(gradient is None or not gradient.any() for gradient in found)


def _compiled(call: Call, mode: str = "compiled") -> list[Outcome]:
    """The plan of a function beside its eager run, with the gradients of its floating results."""
    bridge = Bridge()
    carried = bridge.carry(call.arguments())
    tensors = [copy for _, copy in bridge.pairs]
    wanted = [copy for copy in tensors if copy.requires_grad]

    def step(*given: mg.Tensor) -> Any:
        own = dict(zip(map(id, tensors), given, strict=True))
        first, args, keywords = _with(carried, own)
        result = call.mine(first, *args, **keywords)
        out = [leaf for leaf in leaves(result) if isinstance(leaf, mg.Tensor)]
        through = differentiable(out)
        if not through or not wanted:
            return out
        loss = sum(((value * value).sum() for value in through[1:]), (through[0] * through[0]).sum())
        found = mg.grad(loss, [own[id(copy)] for copy in wanted], allow_unused=True)
        return [*out, *[value for value in found if value is not None]]

    try:
        mg.manual_seed(0)
        eager = step(*tensors)
    except Exception:
        return []  # told as a value already
    try:
        plan = mg.compile(step)
        plan(*tensors)
        mg.manual_seed(0)
        replayed = plan(*tensors)
    except Exception as error:
        clear, sentence = refusal(error)
        return [call.outcome(REFUSED if clear else UNCLEAR, mode, sentence)]
    wrong = None if len(eager) == len(replayed) else f"{len(eager)} results eagerly, {len(replayed)} from a plan"
    # float64 is held to its own tolerance; float32, whose kernels are others, to what a norm of one element amplifies
    floats = [np.abs(array(value)).astype(np.float64) for value in eager if value.is_floating_point()]
    largest = max((float(np.max(v, where=np.isfinite(v), initial=0.0)) for v in floats), default=0.0)
    scale = (largest, 1e-3) if call.dtype == "float32" else (0.0, 0.0)
    for one, other in zip(eager, replayed, strict=False):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            wrong = wrong or f"{one.dtype}{list(one.shape)} eagerly, {other.dtype}{list(other.shape)} from a plan"
        elif wrong is None:
            found = apart(array(one), array(other), *scale)
            wrong = found and found.replace("in torch", "eagerly").replace("here", "from a plan")
    return [call.outcome(DIFFERENT if wrong else EQUAL, mode, wrong or "")]


def _with(value: Any, own: dict[int, mg.Tensor]) -> Any:
    """Arguments with other tensors in the place of some."""
    if isinstance(value, mg.Tensor):
        return own[id(value)]
    if isinstance(value, dict):
        return {name: _with(item, own) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_with(item, own) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def _inplace(call: Call, mode: str = "in place") -> list[Outcome]:
    """An in-place function: what it returns, and what is left in its argument."""
    sample = call.sample
    twin = type(sample)(_copied(sample.input), args=_copied(sample.args), kwargs=_copied(sample.kwargs))
    copy = Call(call.theirs, call.mine, twin, call.dtype)
    found = _both(copy, mode, gradient=False)
    if isinstance(found, Outcome):
        return [call.outcome(found.verdict, mode, found.what)]
    theirs, mine, bridge, _ = found
    wrong = difference(theirs, mine)
    if wrong is None and isinstance(theirs, torch.Tensor) and mine is not bridge.tensors.get(id(twin.input)):
        wrong = "returns another tensor than the one that it changes"
    return [call.outcome(DIFFERENT if wrong else EQUAL, mode, wrong or "")]


def _refused(call: Call, mode: str = "errors") -> list[Outcome]:
    """A call that torch refuses."""
    bridge = Bridge()
    try:
        carried = bridge.carry(call.arguments())
        call.mine(carried[0], *carried[1], **carried[2])
    except Outside:
        raise
    except Exception as error:
        clear, sentence = refusal(error)
        return [call.outcome(EQUAL if clear else UNCLEAR, mode, "" if clear else sentence)]
    try:
        call.theirs(call.sample.input, *call.sample.args, **call.sample.kwargs)
    except TypeError as error:
        return [call.outcome(WIDER, mode, str(error).splitlines()[0])]
    except Exception as error:
        return [call.outcome(DIFFERENT, mode, f"torch refuses this call: {str(error).splitlines()[0]}")]
    return [call.outcome(EQUAL, mode)]


MODES: dict[str, Callable[[Call], list[Outcome]]] = {
    "values": _values,
    "gradients": _gradients,
    "compiled": _compiled,
    "in place": _inplace,
    "method": lambda call: _values(call, "method"),
    "errors": _refused,
}
