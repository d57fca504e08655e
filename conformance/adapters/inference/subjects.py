"""The role's subject around a user's module: layout, masks and outputs translated by what was inferred."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import Call, arrays_of, cache_of, output_of, tensors_in, weights_of
from conformance.adapters.inference.masks import Channel, encode, encode_if_any
from conformance.adapters.inference.parameters import Layout, numbered
from conformance.adapters.torch_subject import TorchSubject
from conformance.protocol import ROLES, Array, Arrays, NotProvided


@dataclass
class Conventions:
    """What was inferred of a class and holds for every configuration of it.

    batch_first: False for (T, B, d). causal: built in. channels: mask parameters, `memory_channels` those of
    cross-attention. bare: norms inside are taken out; residual: the module adds its input. scale: what a positional
    encoding multiplies its input by (1), or None when it returns the codes alone; rooted: that is sqrt(d_model), at any
    width. heads_axis: rotary input is (B, H, T, d) when 1, (B, T, H, d) when 2, (B * H, T, d) when 0. rotation: the
    name of the function, in the class's file, that rotates by the cosines and sines which the module returns; None
    when the module rotates. positions_alike: it is handed the positions of one row for all. narrowed: the share of its
    option for d_ff that a network is wide.
    """

    call: Call
    layout: Layout = field(default_factory=dict)
    batch_first: bool = True
    causal: bool = False
    channels: Sequence[Channel] = ()
    memory_channels: Sequence[Channel] = ()
    bare: bool = False
    residual: bool = False
    scale: float | None = 1.0
    rooted: bool = False
    heads_axis: int = 1
    rotation: str | None = None
    positions_alike: bool = False
    narrowed: float = 1.0

    def with_layout(self, layout: Layout, bare: bool = False, residual: bool = False) -> Conventions:
        return replace(self, layout=layout, bare=bare, residual=residual)


UNITS = (
    *("linear1.weight", "linear1.bias", "linear2.weight"),
    *("gate_proj.weight", "gate_proj.bias", "up_proj.weight", "up_proj.bias", "down_proj.weight"),
)
"""Parameters of hidden units, of which a module may have more than asked for: the surplus is held at zero."""


class ModuleSubject(TorchSubject):
    """A user's module in a role. Stored parameters that the configuration leaves out (biases) are held at zero."""

    def __init__(self, role: str, config: Mapping[str, Any], module: nn.Module, conventions: Conventions) -> None:
        stored = dict(module.named_parameters(remove_duplicate=False))
        settings = ROLES[role].settings(config)
        layout = numbered(conventions.layout, settings.get("n_layers", 0))
        places = {name: place.slot(stored, settings) for name, place in layout.items()}
        slots = {
            name: slot
            for name, slot in places.items()
            if slot.pieces and all(piece in stored for piece, _ in slot.pieces)
        }
        wanted = ROLES[role].params(settings)
        self.absent = {name for name in wanted if name not in slots}
        for name in self.absent:
            if not name.endswith("bias"):
                raise NotProvided(f"{type(module).__name__} has no parameter for {name}")
        self.misfits = {
            n: slots[n].size(stored) for n, s in wanted.items() if n in slots and slots[n].size(stored) != prod(s)
        }
        super().__init__(role, config, module, {name: slots[name] for name in wanted if name in slots})
        self.conventions = replace(conventions, call=conventions.call.for_heads(config.get("n_heads", 1)))
        with torch.no_grad():
            kept: list[tuple[Any, Tensor]] = []
            for name, slot in slots.items():
                left_out = name not in wanted and name.endswith("bias")
                if left_out or name.endswith(UNITS):
                    size = (slot.size(stored),)
                    kept.append((slot, slot.read(stored, size).clone() if name in wanted else torch.zeros(size)))
            for slot, _ in kept:
                for piece, _ in slot.pieces:
                    stored[piece].zero_()
            for slot, used in kept:  # two of them may share a tensor
                slot.write(stored, used + slot.offset)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: shape for name, shape in super().shapes().items() if name not in self.absent}

    def params(self) -> Arrays:
        self.need_sizes()
        if self.absent:
            raise NotProvided(f"{type(self.module).__name__} has no {', '.join(sorted(self.absent))}")
        return super().params()

    def weights(self) -> Arrays:
        """`params`, with zeros for the biases that the module has not."""
        self.need_sizes()
        whole = ROLES[self.role].params(self.config)
        return {**super().params(), **{name: np.zeros(whole[name]) for name in self.absent}}

    def need_sizes(self) -> None:
        for name, size in self.misfits.items():
            wanted = super().shapes()[name]
            raise NotProvided(f"{type(self.module).__name__} has {size} numbers for {name}, which has shape {wanted}")

    def load(self, params: Mapping[str, Array]) -> None:
        """A bias that the module has not can only be zero."""
        self.need_sizes()
        for name in self.absent:
            if np.any(params.get(name, 0.0)):
                raise NotProvided(f"{type(self.module).__name__} has no {name}")
        super().load({name: value for name, value in params.items() if name not in self.absent})

    def masks(self, mask: Tensor | None, shape: tuple[int, int, int, int]) -> dict[str, Tensor]:
        """The mask in the module's convention; a causal module takes only masks that hide the future."""
        full = torch.ones(shape, dtype=torch.bool) if mask is None else mask.broadcast_to(shape)
        if self.conventions.causal:
            past = torch.ones(shape[2:], dtype=torch.bool).tril(shape[3] - shape[2])
            if (full & ~past).any():
                raise NotProvided(f"{type(self.module).__name__} is causal by itself: it cannot look ahead")
            if torch.equal(full, past.broadcast_to(shape)):
                return {}
        elif mask is None:
            return {}
        return encode_if_any(self.conventions.channels, full)

    def swapped(self, x: Tensor) -> Tensor:
        """Between the protocol's (B, T, d) and the module's order."""
        return x if self.conventions.batch_first else x.transpose(0, 1)


class Tokenwise(ModuleSubject):
    """Norms and feed-forward networks: one input, the same shape out."""

    def forward(self, *, x: Tensor) -> dict[str, Any]:
        out = output_of(self.conventions.call(self.module, {"query": x}), tuple(x.shape))
        return {"out": out - x if self.conventions.residual else out}


class Embedding(ModuleSubject):
    """A table of tokens: ids in."""

    def forward(self, *, ids: Tensor) -> dict[str, Any]:
        return {"out": self.conventions.call(self.module, {"query": ids})}


class Attention(ModuleSubject):
    """Attention modules, in the roles multi_head_attention, grouped_query_attention and self_attention."""

    def forward(self, *args: Any, mask: Tensor | None = None, **inputs: Any) -> dict[str, Any]:
        query = inputs["query"] if "query" in inputs else inputs["x"]
        key, value = inputs.get("key", query), inputs.get("value", query)
        arguments = self.arguments(query, key, value)
        shape = (len(query), self.config.get("n_heads", 1), query.shape[1], key.shape[1])
        result = self.conventions.call(self.module, arguments, self.masks(mask, shape))
        width = self.config.get("d_k", self.config["d_model"])
        found = output_of(result, (*self.swapped(query).shape[:2], width))
        out = self.swapped(found)
        outputs = {"out": out - query if self.conventions.residual else out}
        weights = weights_of([t for t in tensors_in(result) if t is not found], self.module, shape)
        if weights is not None:
            outputs["weights"] = weights[:, 0] if self.role == "self_attention" else weights
        return outputs

    def arguments(self, query: Tensor, key: Tensor, value: Tensor) -> dict[str, Tensor]:
        """The module's inputs. Raises NotProvided when it has one input for several that differ."""
        form = self.conventions.call.form
        name = type(self.module).__name__
        if form != "qkv" and not (key is value or torch.equal(key, value)):
            raise NotProvided(f"{name} takes keys and values from one input; these differ")
        if form == "self" and not (query is key or torch.equal(query, key)):
            raise NotProvided(f"{name} is self-attention: queries, keys and values are one input; these differ")
        given = {"query": query, "key": key, "value": value, "memory": key}
        return {name: self.swapped(given[name]) for name in self.conventions.call.names if name in given}

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        """Gradients; none of inputs that the module takes as one."""
        of_inputs, of_params = super().vjp(inputs, cotangent)
        apart = self.role != "multi_head_attention" or self.conventions.call.form == "qkv"
        return (of_inputs if apart else {}), of_params


class CachedAttention(Attention):
    """Causal self-attention run through its cache: each call gets the next chunk, the cache of the last one, where it
    stands if it asks, and the causal mask if it takes one and has several tokens."""

    def forward(self, *args: Any, **inputs: Any) -> dict[str, Any]:
        call, outs, start = self.conventions.call, [], 0
        cache: Any = None
        for chunk in inputs["x"].split(list(inputs["chunks"]), dim=1):
            end = start + chunk.shape[1]
            given: dict[str, Any] = {"query": self.swapped(chunk)} | ({} if cache is None else {"cache": cache})
            if "offset" in call.names:
                given["offset"] = start
            if "positions" in call.names:
                given["positions"] = torch.arange(start, end).expand(len(chunk), -1)
            visible = torch.ones(end - start, end, dtype=torch.bool).tril(start)
            masked = self.conventions.channels and not visible.all()
            masks = encode(self.conventions.channels, self.for_all(visible, chunk)) if masked else {}
            result = call(self.module, given, masks)
            outs.append(self.swapped(output_of(result, tuple(self.swapped(chunk).shape))))
            start, cache = end, cache_of(result)
            if cache is None:
                raise NotProvided("it returns no cache beside its output")
        return {"out": torch.cat(outs, dim=1)}

    def for_all(self, visible: Tensor, x: Tensor) -> Tensor:
        """A mask (Tq, Tk) for every head of every sample."""
        return visible.expand(len(x), self.config["n_heads"], -1, -1)


class Positions(ModuleSubject):
    """Positional encodings that are added: to their input, or returned alone."""

    def forward(self, *, x: Tensor) -> dict[str, Any]:
        swapped = self.swapped(x)
        result = self.conventions.call(self.module, {"query": swapped})
        if self.conventions.scale is not None:
            out = output_of(result, tuple(swapped.shape))
            scale = x.shape[-1] ** 0.5 if self.conventions.rooted else self.conventions.scale
            return {"out": self.swapped(out) - (scale - 1.0) * x}
        codes = result.reshape(-1, x.shape[-1]) if result.numel() == x[0].numel() else self.swapped(result)
        return {"out": x + codes}


class Rope(TorchSubject):
    """Rotary positions: (x), or (queries, keys) of which the first is taken; with an offset where there is one.

    A module that returns tables of cosines and sines for (x, positions) has a function beside it that rotates by them,
    `conventions.rotation`. The width is that of the input, so the module is made at the first call with
    each width.
    """

    def __init__(self, config: Mapping[str, Any], make: Callable[[int], nn.Module], conventions: Conventions) -> None:
        super().__init__("rope", config)
        self.modules: dict[int, nn.Module] = {}
        self.make = make
        self.conventions = conventions

    def forward(self, *, x: Tensor, offset: int = 0) -> dict[str, Any]:
        width, call = x.shape[-1], self.conventions.call
        if width not in self.modules:
            self.modules[width] = self.make(width)
        module = self.modules[width]
        if offset and not {"offset", "positions"} & set(call.names):
            raise NotProvided(f"{type(module).__name__} has no offset argument")
        axis = self.conventions.heads_axis
        turned = x.transpose(1, 2) if axis == 2 else x if axis else x.flatten(0, 1)
        given: dict[str, Any] = {name: turned for name in ("query", "key") if name in call.names}
        if "offset" in call.names:
            given["offset"] = offset
        if "positions" in call.names:
            positions = torch.arange(offset, offset + x.shape[-2])
            given["positions"] = positions if self.conventions.positions_alike else positions.expand(len(turned), -1)
        result = call(module, given)
        if self.conventions.rotation is not None:
            rotate = getattr(sys.modules[type(module).__module__], self.conventions.rotation)
            cosines, sines = result
            result = rotate(turned, turned, cos=cosines, sin=sines)
        out = output_of(result, tuple(turned.shape))
        return {"out": out.transpose(1, 2) if axis == 2 else out.reshape(x.shape)}


class TransformerLayer(ModuleSubject):
    """Encoder and decoder layers."""

    def forward(self, *, x: Tensor, mask: Any = None, memory: Any = None, memory_mask: Any = None) -> dict[str, Any]:
        heads, keys = self.config["n_heads"], x if memory is None else memory
        masks = self.masks(mask, (len(x), heads, x.shape[1], x.shape[1]))
        if memory_mask is not None:
            shape = (len(x), heads, x.shape[1], keys.shape[1])
            masks |= encode_if_any(self.conventions.memory_channels, memory_mask.broadcast_to(shape))
        given = {"query": self.swapped(x)} | ({} if memory is None else {"memory": self.swapped(memory)})
        out = output_of(self.conventions.call(self.module, given, masks), tuple(given["query"].shape))
        return {"out": self.swapped(out)}


class LanguageModel(ModuleSubject):
    """Decoder-only models, from token ids to logits."""

    def forward(self, *args: Any, **inputs: Any) -> dict[str, Any]:
        return {"out": self.logits(self.result(inputs["ids"], {}), inputs["ids"])}

    def result(self, ids: Tensor, past: Mapping[str, Any]) -> Any:
        """What the model returns for new tokens after `past` (a cache, or how many there were)."""
        call = self.conventions.call
        start = {"offset": 0} if "offset" in call.names and "offset" not in call.optional else {}
        return call(self.module, {"ids": ids, **start, **past})

    def logits(self, result: Any, ids: Tensor) -> Tensor:
        return output_of(result, (*ids.shape, self.config["vocab"]))


class CachedLanguageModel(LanguageModel):
    """The same run through its cache: one that is handed on from call to call, or one inside, told where it stands."""

    def forward(self, *args: Any, **inputs: Any) -> dict[str, Any]:
        names, logits, start = self.conventions.call.names, [], 0
        cache: Any = None
        for chunk in inputs["ids"].split(list(inputs["chunks"]), dim=1):
            past = {"offset": start} if "offset" in names else {}
            result = self.result(chunk, past | ({} if cache is None else {"cache": cache}))
            logits.append(self.logits(result, chunk))
            start += chunk.shape[1]
            cache = cache_of(result) if "cache" in names else None
            if cache is None and "cache" in names:
                raise NotProvided(f"{type(self.module).__name__} returns no cache")
        held = {tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in arrays_of(cache)}
        return {"out": torch.cat(logits, dim=1)} | ({"cache_bytes": sum(held.values())} if held else {})


class EncoderDecoder(ModuleSubject):
    """Models of two sides, from token ids to logits; padding and future are hidden inside."""

    def forward(self, *, src: Tensor, tgt: Tensor) -> dict[str, Any]:
        result = self.conventions.call(self.module, {"src": src, "tgt": tgt})
        return {"out": output_of(result, (*tgt.shape, self.config["tgt_vocab"]))}
