"""Attention: its layout, its masks, its inputs, whether it hides the future by itself."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from conformance.adapters.inference import parameters as p
from conformance.adapters.inference import probes
from conformance.adapters.inference.facts import Fact
from conformance.adapters.inference.fit import fit
from conformance.adapters.inference.masks import Channel, opposite_in
from conformance.adapters.inference.networks import probe_dropout
from conformance.adapters.inference.probes import SIZES, TQ, B, Probe, noise
from conformance.adapters.inference.resolution import Resolution, without_norms
from conformance.adapters.inference.roles import is_norm, turns_inside
from conformance.adapters.torch_subject import masked_row_policy, to_array
from conformance.protocol import ROLES, Arrays, NotProvided
from conformance.reference.attention import causal_mask


def resolve_attention(found: Resolution, module: nn.Module) -> None:
    resolve_inputs(found, module)
    call = found.conventions.call
    probe = probe_of(found, module)
    causal = call.form == "self" and probe_causal(found, probe)
    inputs = _attention_inputs(found, probe)
    mask = causal_mask(TQ)[None, None] if causal else None
    has_norm = any(is_norm(child) for child in module.modules())
    layouts = list(p.attention_layouts(module, found.settings, output=found.role != "self_attention"))
    fit(found, layouts, inputs, mask, has_norm)
    probe_dropout(found, inputs, mask)
    if probes.is_fused(probe):
        found.attributes["fused"] = True
    if found.conventions.bare:
        without_norms(module)
    keys = {"self": ("query",), "context": ("memory",), "qkv": ("key", "value")}[call.form]
    found.conventions = replace(found.conventions, channels=channels_of(found, probe, call.masks, keys))
    _probe_outputs(found)


def resolve_cached(found: Resolution, module: nn.Module) -> None:
    """Checked one token at a time, where no mask is needed; a mistake must show with a prompt as well.

    A module that takes a mask gets the causal one when a call has several tokens, as from its model. One that turns
    queries and keys by their positions has no formula here: it is compared with itself without a cache.
    """
    resolve_inputs(found, module)
    layouts = list(p.attention_layouts(module, found.settings))
    turned = turns_inside(module, found.conventions.call)
    if turned and layouts:
        label, layout = layouts[0]
        found.attributes["positions"] = "inside"
        found.conventions = found.conventions.with_layout(layout)
        found.say("positions", "inside", f"{turned} turns queries and keys, so that their order shows")
        found.say("layout", label, "by names alone: it is compared with itself without a cache")
    else:
        steps: Any = {"x": to_array(noise(B, TQ, SIZES["d_model"])), "chunks": (1,) * TQ}
        prompted: Any = {**steps, "chunks": (TQ - 2, 1, 1)}
        fit(found, layouts, steps, also=[prompted])
    masks = channels_of(found, probe_of(found, module), found.conventions.call.masks, ("query",))
    found.conventions = replace(found.conventions, channels=masks)


def resolve_inputs(found: Resolution, module: nn.Module) -> None:
    """The batch axis, and whether a second input matters."""
    call = found.conventions.call
    first, evidence = probes.batch_axis(probe_of(found, module))
    found.conventions = replace(found.conventions, batch_first=first)
    found.say("layout of inputs", "(B, T, d)" if first else "(T, B, d)", evidence)
    _leave_out_optional_keys(found, module)
    if found.role != "decoder_layer" and call.form == "context" and probes.ignores(probe_of(found, module), "memory"):
        del call.names["memory"]
        found.say("attends to", "its own input", "the second input changes nothing")


def _leave_out_optional_keys(found: Resolution, module: nn.Module) -> None:
    """Self-attention that hides the future by default is called with its queries alone. It may be given other keys, but
    need not be."""
    call = found.conventions.call
    optional = {"key", "value", "memory"} & set(call.names)
    if not optional or not optional <= call.optional:
        return
    alone = copy(call)
    alone.names = {meaning: name for meaning, name in call.names.items() if meaning not in optional}
    probe = Probe(module, alone, found.conventions.batch_first, found.settings.get("d_k", SIZES["d_model"]))
    if not probes.runs(alone, module, SIZES["d_model"]):
        return
    ahead, behind = probes.sight(probe)
    if behind and not ahead:
        found.conventions = replace(found.conventions, call=alone)
        found.say("attends to", "its own input", "without other keys it hides the future")


def probe_of(found: Resolution, module: nn.Module) -> Probe:
    width = found.settings.get("d_k", SIZES["d_model"])
    return Probe(module, found.conventions.call, found.conventions.batch_first, width)


def _attention_inputs(found: Resolution, probe: Probe) -> Arrays:
    """Random inputs under the role's names, equal where the module has one input for several."""
    tensors = probe.inputs()
    if found.role != "multi_head_attention":
        return {"x": to_array(tensors["query"])}
    key = tensors.get("key", tensors.get("memory", tensors["query"]))
    given = {"query": tensors["query"], "key": key, "value": tensors.get("value", key)}
    return {name: to_array(tensor) for name, tensor in given.items()}


def probe_causal(found: Resolution, probe: Probe) -> bool:
    """Whether it hides the future by itself; one that sees the next position only is meant to.

    A module in which no position sees another is not causal: it is broken, or no attention.
    """
    ahead, behind = probes.sight(probe)
    causal = behind > 0 and ahead <= 1
    if causal:
        found.conventions = replace(found.conventions, causal=True)
        found.say("causal", True, "changing the last input changes no earlier output, with no mask given")
    if causal and ahead:
        found.facts[-1] = Fact("causal", "but for the next position", "changing it changes an output", doubtful=True)
    return causal


def channels_of(
    found: Resolution, probe: Probe, parameters: Sequence[str], keys: tuple[str, ...]
) -> tuple[Channel, ...]:
    channels = tuple(probes.channels(probe, list(parameters), found.settings.get("n_heads", 1), keys))
    for channel in channels:
        hides = channel.hides()
        means = f"{channel.encoding}; {', '.join(channel.shapes)}"
        opposite = opposite_in(vars(sys.modules[found.cls.__module__]), channel.encoding)
        if opposite:
            hides += f", but what {opposite} of its file makes marks the others"
        found.say(f"mask {channel.parameter}", means, hides, doubtful=bool(opposite) or channel.leak >= 1e-3)
    for parameter in set(parameters) - {channel.parameter for channel in channels}:
        found.say(f"mask {parameter}", "not used", "the module runs with no encoding of a mask in it")
    return channels


def _probe_outputs(found: Resolution) -> None:
    """Whether weights come out, and what a fully hidden row gives."""
    subject = found.build({k: v for k, v in found.settings.items() if k != "bias"} | _bias(found))
    inputs = _attention_inputs(found, Probe(subject.module, found.conventions.call))
    length = inputs.get("key", inputs.get("x", inputs.get("query"))).shape[1]  # type: ignore[union-attr]
    mask = np.broadcast_to(causal_mask(TQ), (1, 1, TQ, TQ)) if found.conventions.causal else None
    outputs = subject(**inputs, mask=mask) if mask is not None else subject(**inputs)
    if "weights" in outputs:
        found.say("weights", outputs["weights"].shape, "a tensor of this shape is returned or stored")
    hidden = np.zeros((B, 1, TQ, length), bool)
    try:
        found.attributes["masked_row"] = masked_row_policy(subject, inputs, hidden)
    except NotProvided:
        return
    found.say("a row whose keys are all hidden", found.attributes["masked_row"], "a mask that hides every key")


def _bias(found: Resolution) -> dict[str, bool]:
    if "bias" not in found.settings:
        return {}
    return {"bias": all(name in found.conventions.layout for name in _all_names(found))}


def _all_names(found: Resolution) -> Iterable[str]:
    return ROLES[found.role].params({**found.settings, "bias": True})
