"""Attention written as a function of queries, keys and values."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from conformance.adapters.functions.arguments import Arguments, read
from conformance.adapters.functions.roles import KEY, QUERY, VALUE
from conformance.adapters.functions.subjects import Served, agrees, noise, source_of
from conformance.adapters.functions.visibility import convention_of
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.adapters.inference.masks import SHAPES, Channel, encode, probe
from conformance.adapters.undropped import NoDropouts
from conformance.protocol import NotProvided

WORDS = {
    "query": QUERY,
    "key": KEY,
    "value": VALUE,
    "mask": r"(?!.*(causal|is_)).*mask.*|attn_bias|bias",
    "causal": r"(is_|use_)?(causal|look_?ahead|autoregressive)(_mask|ity)?|mask_future",
    "training": r"(is_)?train(ing)?",
    "dropout": r"(attn_|attention_)?drop(out)?(_?(p|prob|rate|layer|fn))?|p|pdrop",
    "width": r"d_?k|d_?head|head_?(dim|size)|dim|d_?model",
    "temperature": r"temperature|temp",
    "scale": r"scale|scaling|scale_factor|softmax_scale",
}

Layout = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]
LAYOUTS: dict[str, Layout] = {
    "(B, H, T, d)": (lambda x: x, lambda x: x),
    "(B, T, H, d)": (lambda x: x.transpose(1, 2), lambda x: x.transpose(1, 2)),
    "(B, T, d)": (lambda x: x.flatten(0, 1), lambda x: x[:, None]),
    "(T, d)": (lambda x: x.flatten(0, 2) if x.shape[:2] == (1, 1) else _apart(), lambda x: x[None, None]),
}
"""How the protocol's (B, H, T, d) is handed over, and what comes back; without heads, heads go as sequences."""


def _apart() -> Tensor:
    raise NotProvided("it takes one sequence at a time")


@dataclass(frozen=True)
class Call:
    """How the function is called: its arguments, the layout, and what a required scale does.

    undropped: it draws in every call, though nobody asks for dropout, and is run as if it did not. opens: what its mask
    holds (Tq, Tk) where nothing is hidden, if None does not do."""

    function: Callable[..., Any]
    arguments: Arguments
    layout: str
    module_dropout: bool = False
    multiplies: bool = True
    undropped: bool = False
    opens: bool | None = None

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, masks: Mapping[str, Tensor] | None = None, **options: Any
    ) -> dict[str, Tensor]:
        """out, and weights where it returns them. Raises what the function raises, TypeError for another shape."""
        into, back = LAYOUTS[self.layout]
        batch, heads = query.shape[:2]
        scale = query.shape[-1] ** -0.5
        values = {
            "query": into(query),
            "key": into(key),
            "value": into(value),
            "width": query.shape[-1],
            "temperature": 1 / scale,
            "scale": scale if self.multiplies else 1 / scale,
            **{name: option for name, option in options.items() if option is not None},
        }
        signature = inspect.signature(self.function).parameters
        for name in ("width", "scale", "temperature"):  # left alone where the function finds it itself
            parameter = self.arguments.parameter_of.get(name)
            if parameter and signature[parameter].default is not inspect.Parameter.empty:
                del values[name]
        function = partial(self.function, **(masks or {}))
        if self.arguments.has("mask") and not masks:
            open_ = None if self.opens is None else torch.full((query.shape[2], key.shape[2]), self.opens)
            values["mask"] = open_
        with NoDropouts() if self.undropped else nullcontext():
            given = self.arguments.call(function, **values)
        parts = [given] if isinstance(given, Tensor) else [x for x in given if isinstance(x, Tensor)]
        wanted = (batch, heads, query.shape[2], value.shape[3]), (batch, heads, query.shape[2], key.shape[2])
        found: dict[str, Tensor] = {}
        for part in parts:
            for name, shape in zip(("out", "weights"), wanted, strict=True):
                shown = self._read(part, back if name == "out" or self.layout != "(B, T, H, d)" else _same, shape)
                if name not in found and shown is not None:
                    found[name] = shown
                    break
        if "out" not in found:
            shapes = ", ".join(str(tuple(part.shape)) for part in parts)
            raise TypeError(f"it returns {shapes or 'no tensor'} where {wanted[0]} was expected")
        return found

    def _read(self, part: Tensor, back: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> Tensor | None:
        try:
            shown = back(part)
        except (IndexError, RuntimeError):
            return None
        if self.layout == "(B, T, d)":
            shown = shown.reshape(shape) if shown.shape == (shape[0] * shape[1], 1, *shape[2:]) else shown
        return shown if tuple(shown.shape) == shape else None


def _same(x: Tensor) -> Tensor:
    return x


def formula(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1) @ value


def resolve(function: Callable[..., Any]) -> list[Served]:
    """The function as the role attention. Raises Unresolved when it runs in no layout."""
    arguments = read(function, WORDS, ("query", "key", "value"))
    missing = [name for name in ("query", "key", "value") if not arguments.has(name)]
    if missing:
        raise Unresolved(f"{arguments.name} has no parameter for {', '.join(missing)}")
    module_dropout = _calls_dropout(function, arguments)
    ran: list[tuple[Call, bool, bool]] = []
    reasons: list[str] = []
    for lengths, layout in product((UNEQUAL, EQUAL), LAYOUTS):
        masks = (None, False, True) if _needs_a_mask(function, arguments) else (None,)
        for multiplies, opens in product((True, False) if arguments.has("scale") else (True,), masks):
            call = Call(function, arguments, layout, module_dropout, multiplies, opens=opens)
            try:
                with torch.no_grad():
                    call = replace(call, undropped=_draws(call))
                    is_causal = _is_causal(call)
                    fits = _fits(call, EQUAL if is_causal else lengths, is_causal)
            except Exception as error:
                reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
                continue
            ran.append((call, fits, is_causal))
        if ran and layout == list(LAYOUTS)[-1]:
            break
    if not ran:
        raise Unresolved(f"{arguments.name} runs on queries, keys and values in no layout: {reasons[0]}")
    call, fits, is_causal = next((r for r in ran if r[1]), ran[0])
    facts = [Fact("layout", call.layout, "it gives softmax(Q K^T / sqrt(d_k)) V" if fits else "it runs so")]
    if arguments.has("scale") and fits:
        facts.append(Fact("scale", "multiplies" if call.multiplies else "divides", "the scores are the formula's"))
    channel = _channel(call, is_causal) if arguments.has("mask") else None
    if channel is not None:
        _, why = convention_of(function, arguments.parameter_of["mask"])
        how = f"{why}; {channel.hides()}" if why else channel.hides()
        facts.append(
            Fact(f"mask {channel.parameter}", f"{channel.encoding}, {channel.shapes[0]}", how, channel.leak >= 1e-3)
        )
    if call.undropped:
        facts.append(Fact("dropout", "in every call", "two equal calls that ask for none give other numbers"))
    if is_causal:
        facts.append(Fact("causal", "always", "the result is that of the causal mask"))
    make = partial(_make, call, channel, is_causal)
    return [Served("attention", make, facts, fits, _attributes(make))]


def _needs_a_mask(function: Callable[..., Any], arguments: Arguments) -> bool:
    """Whether its mask has no value of its own: None may be none that it takes."""
    parameter = inspect.signature(function).parameters.get(arguments.parameter_of.get("mask", ""))
    return parameter is not None and parameter.default is parameter.empty


UNEQUAL, EQUAL = (4, 5, 6, 7), (4, 4, 6, 6)
"""Tq, Tk, d_k and d_v of what it is run on: unequal ones leave no axis to be taken for another."""


def _inputs(call: Call, lengths: tuple[int, int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
    t_query, t_key, d_k, d_v = lengths
    batch = (1, 1) if call.layout == "(T, d)" else (2, 3)
    return noise(*batch, t_query, d_k), noise(*batch, t_key, d_k, seed=1), noise(*batch, t_key, d_v, seed=2)


def _draws(call: Call) -> bool:
    """Whether two equal calls that ask for no dropout give other numbers, by a dropout of torch's."""
    query, key, value = _inputs(call, EQUAL)

    def repeats(call: Call) -> bool:
        first, second = (call(query, key, value, **_dropout(call, 0.0, False))["out"] for _ in range(2))
        return torch.equal(first, second)

    return not repeats(call) and repeats(replace(call, undropped=True))


def _fits(call: Call, lengths: tuple[int, int, int, int], causal: bool) -> bool:
    query, key, value = _inputs(call, lengths)
    past = torch.ones(query.shape[2], key.shape[2]).tril().bool() if causal else None
    return agrees(call(query, key, value, **_dropout(call, 0.0, False))["out"], formula(query, key, value, past))


def _is_causal(call: Call) -> bool:
    """Whether no earlier query sees the last key, though nothing asked for that."""
    query, key, value = _inputs(call, EQUAL)
    off = _dropout(call, 0.0, False)
    before = call(query, key, value, **off)["out"]
    changed = torch.zeros_like(key)
    changed[..., -1, :] = 1.0
    after = call(query, key + changed, value + changed, **off)["out"]
    return torch.equal(before[..., :-1, :], after[..., :-1, :]) and not torch.equal(before, after)


def _attributes(make: Callable[[Mapping[str, Any]], Callable[..., Any]]) -> dict[str, Any]:
    """What a row without keys gives."""
    x = torch.ones(1, 1, 2, 2)
    hidden = torch.zeros(1, 1, 2, 2, dtype=torch.bool)
    try:
        with torch.no_grad():
            compute = make({"causal": False, "dropout": 0.0})
            first, second = (compute(False, query=y, key=y, value=y, mask=hidden)["out"] for y in (x, x + 1.0))
    except Exception:  # it takes no mask
        return {}
    if first.isnan().any():
        return {"masked_row": "nan"}
    return {"masked_row": "zero" if np.allclose(first, second, atol=1e-6) else "uniform"}


def _make(
    call: Call, channel: Channel | None, always: bool, config: Mapping[str, Any]
) -> Callable[..., dict[str, Any]]:
    arguments = call.arguments
    if config["causal"] and not always and not arguments.has("causal"):
        raise NotProvided(f"{arguments.name} has no causal option")
    if config["dropout"] and call.undropped:
        call = replace(call, undropped=False)
    elif config["dropout"] and not arguments.has("dropout"):
        raise NotProvided(f"{arguments.name} has no dropout")
    modules = {training: nn.Dropout(config["dropout"]).train(training) for training in (True, False)}

    def compute(
        training: bool, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> dict[str, Any]:
        shape = (*query.shape[:2], query.shape[2], key.shape[2])
        options = _dropout(call, modules[training] if call.module_dropout else config["dropout"], training)
        if arguments.has("causal"):
            options["causal"] = config["causal"]
        if always and not config["causal"]:
            past = torch.ones(shape[2:], dtype=torch.bool).tril(shape[3] - shape[2])
            if mask is None or (mask.broadcast_to(shape) & ~past).any():
                raise NotProvided(f"{arguments.name} is causal by itself: it cannot look ahead")
            mask = None if torch.equal(mask.broadcast_to(shape), past.broadcast_to(shape)) else mask
        masks: dict[str, Tensor] = {}
        if mask is not None:
            full = mask.broadcast_to(shape)
            full = full.flatten(0, 1)[:, None] if call.layout == "(B, T, d)" else full
            masks = encode([channel] if channel else [], full)
        return call(query, key, value, masks, **options)

    return compute


def _dropout(call: Call, rate: Any, training: bool) -> dict[str, Any]:
    """The options that switch dropout: a flag where there is one, else the caller leaves it out of evaluation."""
    if not call.arguments.has("dropout"):
        return {"training": training}
    if call.module_dropout or call.arguments.has("training"):
        return {"dropout": rate if rate else None, "training": training}
    return {"dropout": rate if training else 0.0}


def _calls_dropout(function: Callable[..., Any], arguments: Arguments) -> bool:
    """Whether the parameter for dropout is a module, which the function calls, not a number."""
    name = arguments.parameter_of.get("dropout")
    return bool(name and re.search(rf"(?<![.\w]){re.escape(name)}(\(|\.p\b|\.training\b)", source_of(function)))


def _channel(call: Call, is_causal: bool) -> Channel | None:
    """How the mask parameter is filled: what its name, its words or its file tell; else what hides a key."""
    parameter = call.arguments.parameter_of["mask"]
    told, _ = convention_of(call.function, parameter)
    query, key, value = (noise(2, 3, 4, 6, seed=s) for s in range(3))
    shown = torch.ones(2, 3, 4, 4, dtype=torch.bool)
    shown[..., 2] = False
    shown &= torch.ones(4, 4).tril().bool() if is_causal else True
    if call.layout == "(B, T, d)":
        shown = shown.flatten(0, 1)[:, None]
    single = call.layout == "(T, d)"
    if single:
        query, key, value, shown = (x[:1, :1] for x in (query, key, value, shown))

    def leak(encoding: str, shape: str) -> float | None:
        if told and not (encoding.startswith("additive") or told in encoding):
            return None
        part = Channel(parameter, encoding, (shape,), 0.0).encode(shown)
        if part is None:
            return None
        off = _dropout(call, 0.0, False)

        def out(at: int | None = None) -> Tensor:
            moved = [key.clone(), value.clone()]
            for x in moved:
                if at is not None:
                    x[..., at, :] += 1.0
            with torch.no_grad():
                return call(query, moved[0], moved[1], {parameter: part}, **off)["out"]

        try:
            before = out()
            hidden, seen = (float((out(at) - before).abs().max()) for at in (2, 0))
        except Exception:  # it takes no such mask
            return None
        if not math.isfinite(hidden) or not math.isfinite(seen):
            return None
        return hidden / max(seen, 1e-12)

    found = probe(parameter, leak)
    if found is None:
        return Channel(parameter, "bool, True = may attend", ("(B, 1, Tq, Tk)",), 1.0)
    order = {shape: i for i, shape in enumerate(SHAPES)}
    return Channel(parameter, found.encoding, tuple(sorted(found.shapes, key=lambda s: order[s])), found.leak)
