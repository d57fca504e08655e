"""Small functions of tensors: activations, softmax, clipping, the shift of teacher forcing, masked tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conformance.adapters.functions.arguments import PAD, read
from conformance.adapters.functions.subjects import Served, agrees, first_tensor, noise
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.protocol import NotProvided
from conformance.seeds import seed_torch

KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
_NAMED = (("gelu", r"gelu"), ("silu", r"silu|swish"), ("relu", r"relu"), ("sigmoid", r"sigmoid"), ("tanh", r"tanh"))


def activation(function: Callable[..., Any]) -> list[Served]:
    """The kind is the one of its name; of the two GELUs, the one that it is, or is nearer to."""
    arguments = read(function, {"x": r"x|inputs?|tensor|z|h"}, ("x",))
    x = 3.0 * noise(200)
    with torch.no_grad():
        got = first_tensor(arguments.call(function, x=x.clone()))
    name = function.__name__.lower()
    kind = next(kind for kind, words in _NAMED if re.search(words, name))
    if kind == "gelu":
        away = {k: float((got - KINDS[k](x)).abs().max()) for k in ("gelu", "gelu_tanh")}
        kind = min(away, key=lambda k: away[k])

    def make(config: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
        if config["kind"] != kind:
            raise NotProvided(f"{function.__name__} is {kind}")
        return lambda training, x: {"out": first_tensor(arguments.call(function, x=x))}

    return [
        Served("activation", make, [Fact("kind", kind, "its name and its values")], agrees(got, KINDS[kind](x), 1e-5))
    ]


def as_function(cls: type[nn.Module]) -> Callable[[Tensor], Any]:
    """What a class without options computes, under its name."""

    def run(x: Tensor) -> Any:
        return cls()(x)

    run.__name__ = cls.__name__
    return run


def softmax(function: Callable[..., Any]) -> list[Served]:
    """Along an axis that it takes, or the last one."""
    arguments = read(function, {"dim": r"dim|axis", "x": r"x|inputs?|logits|scores|z|tensor"}, ("x",))
    x = noise(3, 4, 5)
    off = {"dim": -1}
    got, again = (first_tensor(arguments.call(function, x=x.clone(), **off)) for _ in range(2))
    if not torch.equal(got, again):
        raise Unresolved(f"{function.__name__} draws random numbers, and is no softmax alone")

    def make(config: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
        def compute(training: bool, x: Tensor) -> dict[str, Any]:
            if not arguments.has("dim") and config["dim"] not in (-1, x.ndim - 1):
                raise NotProvided(f"{function.__name__} takes the last axis only")
            return {"out": first_tensor(arguments.call(function, x=x, dim=config["dim"]))}

        return compute

    return [
        Served(
            "softmax",
            make,
            [Fact("axis", "as asked" if arguments.has("dim") else "last", "its parameters")],
            agrees(got, x.softmax(-1)),
        )
    ]


def clip(function: Callable[..., Any]) -> list[Served]:
    """Clipping of gradients by their global norm: of parameters in place, or of a list that it returns."""
    words = {
        "max_norm": r"max_?(grad_?)?norm|clip(_?(value|norm|grad))?|theta|threshold|c|max",
        "gradients": r"grads?|gradients?",
    }
    arguments = read(function, {**words, "parameters": r"param(eter)?s?|model|net|named_parameters"}, ("parameters",))
    if not arguments.has("max_norm"):
        raise Unresolved(f"{function.__name__} has no parameter for the largest norm")
    of_model = arguments.parameter_of.get("parameters", "").lower() in ("model", "net")

    def call(grads: list[Tensor], max_norm: float) -> dict[str, Any]:
        copies = [grad.clone() for grad in grads]
        holder = nn.Module()
        for i, grad in enumerate(copies):
            parameter = nn.Parameter(torch.zeros_like(grad))
            parameter.grad = grad
            holder.register_parameter(f"p{i}", parameter)
        parameters = list(holder.parameters())
        made = arguments.call(
            function, parameters=holder if of_model else parameters, gradients=copies, max_norm=max_norm
        )
        out = [parameter.grad for parameter in parameters]
        lists = [m for m in (made if isinstance(made, tuple) else (made,)) if isinstance(m, list)]
        if lists:
            out = lists[0]
        numbers = [m for m in (made if isinstance(made, tuple) else (made,)) if isinstance(m, (float, Tensor))]
        found: dict[str, Any] = {"out": out}
        if numbers and torch.as_tensor(numbers[0]).numel() == 1:
            found["norm"] = torch.as_tensor(numbers[0])
        return found

    call([noise(2, 3), noise(4)], 0.1)

    def make(config: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
        return lambda training, grads: call(grads, config["max_norm"])

    return [
        Served(
            "clip_grad_norm",
            make,
            [Fact("gradients", "of a model" if of_model else "of a list", "its parameters")],
            None,
        )
    ]


def shift(function: Callable[..., Any]) -> list[Served]:
    """Decoder input and labels of token ids. Raises Unresolved when it returns anything but two texts of ids."""
    arguments = read(function, {"ids": r"ids|tokens?|seq(uence)?s?|batch|x|tgt|trg|target|text|inputs?"}, ("ids",))

    def call(ids: Tensor) -> tuple[Tensor, Tensor]:
        made = arguments.call(function, ids=ids.clone())
        made = tuple(made.values()) if isinstance(made, dict) else made
        if not (isinstance(made, (tuple, list)) and len(made) == 2 and all(isinstance(m, Tensor) for m in made)):
            raise Unresolved(f"{function.__name__} does not return an input and its labels")
        return made[0], made[1]

    ids = torch.arange(1, 13).reshape(2, 6)
    given, labels = call(ids)

    def make(config: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
        return lambda training, ids: dict(zip(("out", "labels"), call(ids), strict=True))

    fits = torch.equal(given, ids[:, :-1]) and torch.equal(labels, ids[:, 1:])
    return [Served("shift_targets", make, [Fact("returns", "input, labels", "two texts of ids")], fits)]


MASKED = {
    "mask_id": r"mask_?(token)?_?(id|idx|index)?|mask_token_id",
    "vocab": r"vocab(_size|_len)?|n_vocab|num_tokens",
    "special_ids": r"special(_tokens?)?_?(ids?|mask)?|specials|never",
    "rate": r"(mlm_?|mask(ing)?_?)?(prob(ability)?|rate|ratio|p)|p",
    "mask_share": r"(replace|mask)_(share|ratio|frac(tion)?)",
    "random_share": r"random_(share|ratio|frac(tion)?|prob)",
    "ignore_index": r"ignore_?(index|id|label)",
    "generator": r"generator|rng|g",
    "pad": PAD,
    "ids": r"ids|input_ids|inputs?|tokens?|x|batch|seq",
}


def masked_tokens(function: Callable[..., Any]) -> list[Served]:
    """Corruption for masked language modelling, under a seed. Raises Unresolved when it returns no text and labels."""
    arguments = read(function, MASKED, ("ids",))

    def call(config: Mapping[str, Any], ids: Tensor, seed: int) -> dict[str, Any]:
        seed_torch(seed)
        values = {name: config[name] for name in config if arguments.has(name)}
        if arguments.has("generator"):
            values["generator"] = torch.Generator().manual_seed(seed)
        made = arguments.call(function, ids=ids.clone(), **values)
        if not (isinstance(made, (tuple, list)) and all(isinstance(m, Tensor) for m in made[:2]) and len(made) >= 2):
            raise Unresolved(f"{function.__name__} does not return the masked text and its labels")
        return {"out": made[0], "labels": made[1]}

    usual = {"rate": 0.15, "mask_share": 0.8, "random_share": 0.1, "special_ids": (), "ignore_index": -100}
    call({**usual, "vocab": 20, "mask_id": 19}, torch.randint(5, 19, (2, 8)), 0)

    def make(config: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
        for name, value in usual.items():
            if not arguments.has(name) and config[name] != value:
                raise NotProvided(f"{function.__name__} has no option for {name}")
        for name in ("vocab", "mask_id"):
            if not arguments.has(name):
                raise NotProvided(f"{function.__name__} has no parameter for {name}")
        return lambda training, ids, seed: call(config, ids, seed)

    return [Served("masked_tokens", make, [Fact("returns", "the masked text, labels", "its result")], None)]
