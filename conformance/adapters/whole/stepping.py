"""A model fed in pieces with a cache that it takes, or keeps: how that is called is found by trying.

    steps = stepping(subject)                # raises NotProvided in one sentence
    logits = steps.logits(subject, ids, (3, 1, 1))

A cache may be returned and handed in again, handed in and written to, or kept in the modules and told where it stands.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import default_dtype, quiet_evaluation
from conformance.adapters.whole.configs import settings_of
from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.adapters.whole.running import RunningModel
from conformance.protocol import Array, NotProvided

CACHE = re.compile(r"cache|past|present|incremental|(?<![a-z])kv|mems")
MAKERS = re.compile(r"(init|make|new|create|empty|set_?up|build|alloc|get|enable|start)\w*(cache|state|kv)")
CLEARERS = re.compile(r"(reset|clear|empty|flush|delete|free)\w*(cache|caches|state|kv)?")
_JOINS = re.compile(r"cat\(\s*[\[(]\s*\w*(past|cache|mems)\w*\s*,")
_MEMORY_LENGTH = re.compile(r"(n_?|max_?)?mem(ory|ories|s)?_?(len(gth)?|size|tokens|n)")
ROOM = 32
"""How many tokens a cache that is made beforehand has room for."""


@dataclass(frozen=True)
class Steps:
    """One way to feed pieces. begin: what the cache is at first, from the module and the batch. flags: switched on.
    told: how a piece is told where it stands: "", "offset", "positions". how: what the cache is at first, in words.
    joins: what comes back is that of the piece alone, and the caller joins it with what was before.
    """

    cache: str
    flags: tuple[str, ...]
    told: str
    begin: Callable[[nn.Module, int], Any]
    how: str
    joins: bool = False

    def logits(self, subject: RunningModel, ids: Array, pieces: Sequence[int]) -> Array:
        """(B, T, V): the answers to the pieces, joined. Works on a copy. Raises whatever the model raises."""
        return self.fed(subject.twin(), ids, pieces)

    def fed(self, twin: RunningModel, ids: Array, pieces: Sequence[int]) -> Array:
        """`logits` of the subject itself, whose cache it fills."""
        calling, main = twin.calling, twin.calling.main.meaning
        parts: list[Tensor] = []
        with quiet_evaluation(twin.module), default_dtype(twin.torch_dtype):
            state = self.begin(twin.module, len(ids))
            start = 0
            for size in pieces:
                piece = {main: torch.tensor(ids[:, start : start + size])}
                given = calling.arguments(piece) | dict.fromkeys(self.flags, True)
                if self.cache:
                    given[self.cache] = state
                given |= self._place(calling, start, size)
                result = twin.module(**given)
                out = calling.answer(result, piece)
                if out is None or out.ndim != 3:
                    raise NotProvided("a piece has no row of logits for each of its tokens")
                parts.append(out[:, -size:])
                after = handed_back(result, out)
                if self.joins and state is not None and after is not None:
                    after = _joined(state, after, start, size)
                state = state if after is None else after
                start += size
        return to_array(torch.cat(parts, 1).double())

    def _place(self, calling: Any, start: int, size: int) -> dict[str, Any]:
        if self.told == "offset":
            return {calling.offset: start}
        return {calling.positions: torch.arange(start, start + size)} if self.told else {}


def _joined(before: Any, after: Any, start: int, size: int) -> Any:
    """Two caches of one structure joined along the axis on which the first has `start` tokens and the second `size`."""

    def join(one: Tensor, other: Tensor) -> Tensor:
        axes = [at for at, pair in enumerate(zip(one.shape, other.shape, strict=True)) if pair == (start, size)]
        if not axes:
            raise NotProvided("what its cache returns for a piece has no axis of the piece's tokens")
        return torch.cat([one, other], axes[-1])

    return tree_map(join, before, after)


def _caller_joins(module: nn.Module) -> bool:
    """Whether a function beside the model, or another method than forward, joins what it handed in with more."""
    scope = vars(sys.modules.get(type(module).__module__, object()))
    beside = [f for f in scope.values() if inspect.isfunction(f) and f.__module__ == type(module).__module__]
    methods = [f for name, f in inspect.getmembers(type(module), inspect.isfunction) if name != "forward"]
    for function in [*beside, *methods]:
        with suppress(OSError, TypeError):
            if _JOINS.search(inspect.getsource(function)):
                return True
    return False


_WINDOW_LENGTH = re.compile(r"(sliding_?|attn_?|attention_?|local_?)?window(_?(size|len(gth)?))?")


def memory_length(module: nn.Module) -> int | None:
    """How many tokens the memories of a model hold, as it or its settings say; None where nothing says it."""
    return _said(module, _MEMORY_LENGTH)


def window_length(module: nn.Module) -> int | None:
    """How many tokens each token of a model sees, as it or its settings say; None where nothing says it."""
    return _said(module, _WINDOW_LENGTH)


def _said(module: nn.Module, named: re.Pattern[str]) -> int | None:
    for holder in settings_of(module):
        for name, value in holder.items():
            if type(value) is int and named.fullmatch(str(name).lower()):
                return value
    return None


def handed_back(result: Any, out: Tensor) -> Any:
    """The cache in what forward returns; None when it returns none."""
    if isinstance(result, Tensor):
        return None
    if is_dataclass(result) and not isinstance(result, type):
        result = {field.name: getattr(result, field.name) for field in fields(result)}
    if isinstance(result, Mapping):
        return next((value for name, value in result.items() if CACHE.search(name) and value is not None), None)
    if isinstance(result, (tuple, list)):
        rest = [
            one
            for one in result
            if one is not None and not (isinstance(one, Tensor) and one.ndim != 4 and one.ndim != 5)
        ]
        return rest[-1] if rest else None
    named = [name for name in vars(result) if CACHE.search(name)] if hasattr(result, "__dict__") else []
    return next((getattr(result, name) for name in named), None)


def stepping(subject: PlaceProbes) -> Steps:
    """The first way to feed pieces that gives the logits of one pass; else the first that runs and uses the cache.

    Raises NotProvided when there is no sign of a cache, or none of the ways runs.
    """
    if subject.calling.two_sided or not subject.positions or subject.calling.main.meaning != "ids":
        raise NotProvided("it takes no cache of tokens")
    ids = subject.example(2, 6, 61)["ids"]
    one_pass = subject(ids=ids)["out"]
    scale = float(np.abs(one_pass).max())
    working: Steps | None = None
    failure: Exception | None = None
    tried = False
    for way in _ways(subject):
        tried = True
        try:
            got = way.logits(subject, ids, PIECES)
            other = way.logits(subject, np.concatenate([ids[::-1, :-1], ids[:, -1:]], 1), PIECES)  # another past
        except Exception as error:
            failure = failure or error
            continue
        if got.shape != one_pass.shape or float(np.abs(got - other)[:, -1].max()) == 0.0:
            continue
        if float(np.abs(got - one_pass).max()) <= 1e-3 * scale:
            return way
        working = working or way
    if working is None:
        said = f": {type(failure).__name__}: {' '.join(str(failure).split())[:120]}" if failure else ""
        raise NotProvided(
            f"its cache could not be fed{said}" if tried else "nothing says that it takes or keeps a cache"
        )
    return working


PIECES = (3, 1, 1, 1)
"""A prefill, then one token at a time."""


def _ways(subject: PlaceProbes) -> Iterator[Steps]:
    module, calling = subject.module, subject.calling
    parameters = inspect.signature(module.forward).parameters
    data = {one.parameter for one in calling.inputs}
    flags = tuple(
        n for n, p in parameters.items() if isinstance(p.default, bool) and CACHE.search(n.lower()) and n not in data
    )
    tellings = [""] + [one for one in ("offset", "positions") if getattr(calling, one)]
    members = inspect.getmembers(type(module), inspect.isfunction)
    methods = [n for n, f in members if not n.startswith("__") and not f.__module__.startswith("torch.")]
    keeps = any(MAKERS.search(n) or (CLEARERS.match(n) and CACHE.search(n)) for n in methods)
    if not (
        calling.cache or flags or keeps or ((calling.offset or calling.positions) and subject.line_of(CACHE.pattern))
    ):
        return
    for joins in (False, True) if calling.cache and _caller_joins(module) else (False,):
        for told in tellings:
            for how, begin in _beginnings(module, methods, calling.cache):
                for on in dict.fromkeys((flags, ())):
                    yield Steps(calling.cache, on, told, begin, how, joins)


def _beginnings(
    module: nn.Module, methods: list[str], cache: str
) -> Iterator[tuple[str, Callable[[nn.Module, int], Any]]]:
    """What the cache may be at first, with words for it."""
    for name in methods:
        if MAKERS.search(name) or (CLEARERS.match(name) and CACHE.search(name)):
            yield f"{name}()", partial(_by_method, name)
    yield "None", lambda m, rows: None
    if not cache:
        return
    scope = vars(sys.modules.get(type(module).__module__, object()))
    layers = _layers(module)
    for name, cls in scope.items():
        if isinstance(cls, type) and re.search(r"cache|state", name.lower()) and not issubclass(cls, nn.Module):
            yield f"{name}()", partial(_called, cls)
            yield f"a {name} a layer", partial(_one_a_layer, cls)
    yield "{}", lambda m, rows: {}
    yield "[]", lambda m, rows: []
    yield "None a layer", lambda m, rows: [None] * layers
    yield "{} a layer", lambda m, rows: [{} for _ in range(layers)]


def _by_method(name: str, module: nn.Module, rows: int) -> Any:
    return _called(getattr(module, name), module, rows)


def _one_a_layer(cls: type, module: nn.Module, rows: int) -> list[Any]:
    return [_called(cls, module, rows) for _ in range(_layers(module))]


def _layers(module: nn.Module) -> int:
    """How many layers a model has: the length of its longest list of modules."""
    return max((len(part) for part in module.modules() if isinstance(part, nn.ModuleList)), default=1)


def _called(function: Callable[..., Any], module: nn.Module, rows: int) -> Any:
    """The result of a function that makes or clears a cache, its arguments by their names."""
    given: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        name = parameter.name.lower()
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value: Any = None
        if re.search(r"batch|bsz|rows", name):
            value = rows
        elif re.search(r"len|size|seq|ctx|context|tokens", name):
            value = ROOM
        elif name == "dtype":
            value = torch.get_default_dtype()
        elif name == "device":
            value = "cpu"
        elif name in ("model", "module"):
            value = module
        else:
            value = _attribute(module, name)
        if value is not None:
            given[parameter.name] = value
        elif parameter.default is parameter.empty:
            raise NotProvided(f"{getattr(function, '__name__', 'the cache')} asks for {parameter.name}")
    return function(**given)


def _attribute(module: nn.Module, name: str) -> Any:
    """What the model, its config or a part calls by this name; how many layers it has, where that is asked."""
    holders = [module, *(getattr(module, one, None) for one in ("config", "cfg", "args", "params"))]
    for holder in [*holders, *module.modules()]:
        value = holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
    if name in ("config", "cfg", "args", "params"):
        return next((h for h in holders[1:] if h is not None), None)
    if re.search(r"layer|depth|block", name):
        return _layers(module)
    return None
