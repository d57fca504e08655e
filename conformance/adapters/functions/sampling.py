"""Filters of logits, and functions that draw the next token: what they draw from is read where they draw."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

from conformance.adapters.functions.arguments import Arguments, read
from conformance.adapters.functions.roles import LOGITS
from conformance.adapters.functions.subjects import Served, agrees, first_tensor, noise
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.protocol import NotProvided

WORDS = {
    "temperature": r"temp(erature)?|tau|t",
    "top_k": r"top_?k|k",
    "min_p": r"min_?p",
    "top_p": r"top_?p|p|nucleus(_p)?|threshold",
    "logits": LOGITS,
}
CUT = {"cut": r"(filter_)?thres(hold)?"}
"""Of a function that is called after top-k: the share of the tokens that it cuts off, in the place of their number."""
OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "cut": 0.0}


@contextmanager
def drawn(place: int | None = None) -> Iterator[list[Tensor]]:
    """What torch.multinomial is given inside, Categorical's draws among it. place: the one that each draw gives."""
    found: list[Tensor] = []
    real = torch.multinomial

    def draw(weights: Tensor, *arguments: Any, **keywords: Any) -> Tensor:
        found.append(weights.detach().clone())
        places = real(weights, *arguments, **keywords)
        return places if place is None else torch.full_like(places, place)

    with mock.patch.object(torch, "multinomial", draw), mock.patch.object(torch.Tensor, "multinomial", draw):
        yield found


def resolve(function: Callable[..., Any]) -> list[Served]:
    """The function as sampling_filter. Raises Unresolved when nothing that it gives is a distribution of tokens."""
    counts = re.search(r"top_?k", getattr(function, "__name__", "").lower())
    arguments = read(function, {**CUT, **WORDS} if counts else WORDS, ("logits",))
    if not arguments.has("logits"):
        raise Unresolved(f"{arguments.name} has no parameter for the logits")
    if arguments.has("min_p") and not any(arguments.has(name) for name in ("temperature", "top_k", "top_p")):
        raise Unresolved(f"{arguments.name} keeps what comes near the best, which is no filter by rank or by sum")
    logits = noise(2, 7)
    reasons: list[str] = []
    for rows in (False, True):
        try:
            got, how = _probabilities(function, arguments, rows, logits, {})
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
            continue
        own = any(arguments.has(name) for name in ("temperature", "top_k", "top_p", "min_p", "cut"))
        if not own and bool((got == 0).any()):
            raise Unresolved(f"{arguments.name} filters by a number of its own, whose meaning is not known")
        facts = [Fact("logits", "(V,)" if rows else "(B, V)", "it runs so"), Fact("gives", how, "its result")]
        make = partial(_make, function, arguments, rows)
        said = {"default_top_k": _default_top_k(function, arguments)}
        return [Served("sampling_filter", make, facts, agrees(got, logits.softmax(-1)), said)]
    raise Unresolved(f"{arguments.name} does not run on logits (B, V) or (V,): {reasons[0]}")


def _default_top_k(function: Callable[..., Any], arguments: Arguments) -> int | None:
    """The top-k with which it filters where none is asked for; None where it then keeps all."""
    if not arguments.has("top_k"):
        return None
    default = inspect.signature(function).parameters[arguments.parameter_of["top_k"]].default
    return default if type(default) is int and default > 0 else None


def _make(
    function: Callable[..., Any], arguments: Arguments, rows: bool, config: Mapping[str, Any]
) -> Callable[..., dict[str, Any]]:
    wanted = {"temperature": None if config["temperature"] == 1.0 else config["temperature"]}
    wanted |= {"top_k": config["top_k"], "top_p": config["top_p"]}
    asked = {name: value for name, value in wanted.items() if value is not None}
    cuts = "top_k" in asked and arguments.has("cut")
    for name in asked:
        if not arguments.has(name) and not (cuts and name == "top_k"):
            raise NotProvided(f"{arguments.name} has no {name}")

    def compute(training: bool, logits: Tensor) -> dict[str, Any]:
        wanted = dict(asked)
        if cuts:
            wanted["cut"] = _cut(function, arguments, rows, logits, wanted.pop("top_k"))
        return {"out": _probabilities(function, arguments, rows, logits, wanted)[0]}

    return compute


def _cut(function: Callable[..., Any], arguments: Arguments, rows: bool, logits: Tensor, kept: int) -> float:
    """The share to cut off so that `kept` tokens are left, whether the function rounds their number down or up."""
    tokens = logits.shape[-1]
    if kept >= tokens:
        return 0.0
    ladder = torch.arange(tokens, dtype=logits.dtype).expand(1, tokens)
    down, up = (1 - (kept + part) / tokens for part in (0.5, -0.5))
    left = int((_probabilities(function, arguments, rows, ladder, {"cut": down})[0] > 0).sum())
    return down if left == kept else up


def _probabilities(
    function: Callable[..., Any], arguments: Arguments, rows: bool, logits: Tensor, asked: Mapping[str, Any]
) -> tuple[Tensor, str]:
    """The probabilities (B, V) that tokens are drawn with, and what the function gives. Raises what it raises."""
    if rows:
        parts = [_probabilities_of(function, arguments, row, asked) for row in logits]
        return torch.stack([part for part, _ in parts]), parts[0][1]
    return _probabilities_of(function, arguments, logits, asked)


def _probabilities_of(
    function: Callable[..., Any], arguments: Arguments, logits: Tensor, asked: Mapping[str, Any]
) -> tuple[Tensor, str]:
    signature = inspect.signature(function).parameters
    values: dict[str, Any] = {"logits": logits.clone()}
    for name, off in OFF.items():
        if name in asked:
            values[name] = asked[name]
        elif arguments.has(name):
            default = signature[arguments.parameter_of[name]].default
            values[name] = default if default in (None, 0, -1) and name != "temperature" else off
            if name == "top_k" and default is inspect.Parameter.empty:
                values[name] = logits.shape[-1]  # what has no default may know no 0 that keeps all

    def token() -> Tensor:
        return first_tensor(arguments.call(function, **values))

    with drawn() as found:
        made = token()
    if found:
        weights = _of_tokens(found[0], token, logits)
        return weights / weights.sum(-1, keepdim=True), "tokens: what it draws from is read"
    if made.shape == logits.shape and made.is_floating_point():
        sums = made.sum(-1)
        if bool((made >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
            return made, "probabilities"
        if made.ndim > 1 and torch.allclose(made.sum(0), torch.ones_like(made[0]), atol=1e-4):
            raise TypeError("its probabilities sum to one along the first axis")
        nothing = (made == -torch.inf).all(-1, keepdim=True)
        if bool(nothing.any()):
            return made.softmax(-1).masked_fill(nothing, 0.0), "logits, and of some rows none is left"
        probabilities = made.softmax(-1)
        torch.multinomial(probabilities, 1)  # what cannot be drawn from is refused there
        return probabilities, "logits: their softmax is taken"
    if made.is_floating_point() or made.numel() != logits.numel() // logits.shape[-1]:
        raise TypeError(f"it returns {tuple(made.shape)}, which is no distribution of tokens and no token")
    return F.one_hot(made.reshape(logits.shape[:-1]), logits.shape[-1]).float(), "the token"


def _of_tokens(weights: Tensor, token: Callable[[], Tensor], logits: Tensor) -> Tensor:
    """The weights of the tokens (like `logits`), of those of the places that are drawn from: a function that sorts the
    logits first draws a rank, which it looks up. Which place is which token is seen by deciding the draw."""
    rows = logits.reshape(-1, logits.shape[-1])
    if weights.numel() // weights.shape[-1] != len(rows):
        return weights.reshape(logits.shape)
    places, found = weights.reshape(len(rows), -1), torch.zeros_like(rows)
    for place in range(places.shape[1]):
        with drawn(place):
            tokens = token()
        if tokens.is_floating_point() or tokens.numel() != len(rows):
            return weights.reshape(logits.shape)  # it gives something else, too: a place is taken for a token
        found.scatter_add_(1, tokens.reshape(-1, 1), places[:, place : place + 1].to(found))
    return found.reshape(logits.shape)
