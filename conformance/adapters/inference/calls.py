"""Calls: the protocol's inputs by the names of forward's parameters, and its outputs by their shapes."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.adapters.inference.names import INPUTS, MODEL_INPUTS, POSITIONS, TURNS, WEIGHT_FLAGS

_MAIN = {"decoder_lm": ("ids",), "cached_decoder_lm": ("ids",), "encoder_decoder": ("src", "tgt")}
"""Role of a whole model -> the inputs that it cannot do without, in the order in which unknown names mean them."""


@dataclasses.dataclass(frozen=True)
class Unturned:
    """Cosines, sines, angles or unit numbers that turn nothing. share: their width by that of a head, in (T, width); 0
    for (1, 1, 1), which goes with any."""

    value: complex
    share: float = 0.0

    @classmethod
    def forms(cls, name: str) -> list[Unturned]:
        """What a parameter of this name may want, the likeliest first."""
        values = (1.0,) if "cos" in name else (0.0,) if "sin" in name else (1.0 + 0.0j, 0.0)
        return [cls(value, share) for value in values for share in (0.0, 0.5, 1.0)]

    def of(self, query: Tensor, heads: int) -> Tensor:
        shape = (query.shape[1], int(query.shape[-1] // heads * self.share)) if self.share else (1, 1, 1)
        return torch.full(shape, self.value)


class Call:
    """How to call a module's forward: `names` maps the protocol's inputs to its parameters, `masks` those of masks.

    role: that of a whole model; the calls of components are read alike. Raises Unresolved when forward has a required
    parameter whose meaning is unknown, or no input.
    """

    def __init__(self, cls: type[nn.Module], role: str = "") -> None:
        self.names: dict[str, str] = {}
        self.masks: list[str] = []
        self.constants: dict[str, Any] = {}
        self.optional: set[str] = set()
        self.shows: set[str] = set()
        """The flags that ask for weights, which a forward need not be given. It may take another way for who asks, and
        is trained without them."""
        self.heads = 1
        meanings = MODEL_INPUTS.get(role, INPUTS)
        unknown = []
        parameters = list(inspect.signature(cls.forward).parameters.values())[1:]
        for parameter in parameters:
            name, lower = parameter.name, parameter.name.lower()
            required = parameter.default is parameter.empty
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            meaning = next((m for m, names in meanings.items() if lower in names and m not in self.names), None)
            if "mask" in lower or lower in ("attn_bias", "attention_bias"):
                self.masks.append(name)
                if required:
                    self.constants[name] = None
            elif lower in WEIGHT_FLAGS:
                self.constants[name] = True
                self.shows |= {name} if parameter.default is False else set()
            elif lower == "average_attn_weights" or (lower in ("is_causal", "causal") and required):
                self.constants[name] = False
            elif lower == "use_cache" and (required or role == "cached_decoder_lm"):
                self.constants[name] = role == "cached_decoder_lm"
            elif lower == "position_embeddings":  # the cosines and sines of no rotation
                self.constants[name] = (torch.ones(1, 1, 1), torch.zeros(1, 1, 1))
            elif required and lower in POSITIONS:
                self.names["positions"] = name
            elif required and lower in TURNS:
                self.constants[name] = Unturned.forms(lower)[0]
            elif meaning is not None:
                self.names[meaning] = name
                if not required:
                    self.optional.add(meaning)
                elif meaning == "cache":
                    self.constants[name] = None
            elif required:
                unknown.append(name)
        main = _MAIN.get(role, ("query", "memory"))
        for meaning in main:
            taken = meaning in self.names or (meaning == "memory" and ("key" in self.names or len(unknown) > 1))
            if unknown and not taken:
                self.names[meaning] = unknown.pop(0)
        needed = main if role else main[:1]
        if unknown or not set(needed) <= set(self.names):
            missing = ", ".join(unknown) or "its input"
            wanted = ", ".join(main) if role else "query, key, value (or x) and mask"
            raise Unresolved(
                f"{cls.__name__}.forward needs {missing}, whose meaning is unknown: write a subclass whose forward "
                f"takes {wanted}, or a class with build(role, config)"
            )

    @property
    def form(self) -> str:
        """'qkv' (three inputs), 'context' (queries, and one input for keys and values) or 'self' (one input)."""
        if "key" in self.names:
            return "qkv"
        return "context" if "memory" in self.names else "self"

    def __call__(self, module: nn.Module, inputs: Mapping[str, Any], masks: Mapping[str, Any] | None = None) -> Any:
        """forward's result; `inputs` by the protocol's names, `masks` by forward's."""
        # Copies: a module that adds to its input in place must not change what it is compared with.
        named = {self.names[k]: v.clone() if isinstance(v, Tensor) else v for k, v in inputs.items()}
        constants = {
            name: value.of(inputs["query"], self.heads) if isinstance(value, Unturned) else value
            for name, value in self.constants.items()
            if not (module.training and name in self.shows)
        }
        return module(**{**constants, **named, **(masks or {})})

    def for_heads(self, heads: int) -> Call:
        """The same call of a module with so many heads."""
        call = copy(self)
        call.heads = heads
        return call

    def fact(self) -> Fact:
        shown = [f"{name} = {meaning}" if name != meaning else name for meaning, name in self.names.items()]
        return Fact("call", ", ".join([*shown, *self.masks]), "parameter names of forward")


def tensors_in(result: Any) -> Iterator[Tensor]:
    """The tensors of a result, in order: in tuples, lists, dicts and dataclasses too."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping):
        for value in result.values():
            yield from tensors_in(value)
    elif isinstance(result, (tuple, list)):
        for value in result:
            yield from tensors_in(value)
    elif dataclasses.is_dataclass(result):
        for field in dataclasses.fields(result):
            yield from tensors_in(getattr(result, field.name))


def output_of(result: Any, shape: tuple[int, ...]) -> Tensor:
    """The first floating tensor of the expected shape. Raises ValueError when there is none."""
    found = [t for t in tensors_in(result) if t.is_floating_point()]
    for tensor in found:
        if tuple(tensor.shape) == tuple(shape):
            return tensor
    shapes = ", ".join(str(tuple(t.shape)) for t in found) or "no floating tensor"
    raise ValueError(f"expected an output of shape {tuple(shape)}, got {shapes}")


_OF_WEIGHTS = re.compile(r"att(entio)?n|weight|prob|alpha|scores?$|maps?$", re.IGNORECASE)
"""Names under which a module keeps its attention weights; hooks keep other results of the same shape."""


def weights_of(result: Any, module: nn.Module, shape: tuple[int, int, int, int]) -> Tensor | None:
    """Attention weights as (B, H or 1, Tq, Tk) for `shape` (B, H, Tq, Tk): returned, or stored on the module under a
    name that says so.

    A candidate has one of the shapes (B, H, Tq, Tk), (B, 1, Tq, Tk), (B, Tq, Tk), (B * H, Tq, Tk) and no negatives.
    """
    b, heads, t_query, t_key = shape
    kept = [pair for child in module.modules() for pair in vars(child).items()]
    stored = [value for name, value in kept if name[0] != "_" and _OF_WEIGHTS.search(name)]
    for tensor in [*tensors_in(result), *tensors_in(stored)]:
        if tensor.shape[-2:] != (t_query, t_key) or not tensor.is_floating_point() or (tensor < 0).any():
            continue
        if tensor.shape in (shape, (b, 1, t_query, t_key)):
            return tensor
        if tensor.shape == (b, t_query, t_key):
            return tensor.unsqueeze(1)
        if tensor.shape == (b * heads, t_query, t_key):
            return tensor.reshape(shape)
    return None


def cache_of(result: Any) -> Any:
    """What a call gave to cache: under one of the names of caches, or the second of two results; else None."""
    if isinstance(result, tuple) and not hasattr(result, "_fields"):
        return result[1] if len(result) == 2 else None
    named = (getattr(result, name, None) for name in INPUTS["cache"])
    return next((cache for cache in named if cache is not None), None)


def arrays_of(cache: Any) -> Iterator[Tensor]:
    """The keys and values that a cache holds: its floating tensors of three axes or more, inside objects too."""
    if isinstance(cache, Tensor):
        if cache.ndim >= 3 and cache.is_floating_point():
            yield cache
    elif isinstance(cache, (tuple, list)):
        for value in cache:
            yield from arrays_of(value)
    elif isinstance(cache, Mapping) or hasattr(cache, "__dict__"):
        yield from arrays_of(list((cache if isinstance(cache, Mapping) else vars(cache)).values()))
