"""Layers: where their norms stand, how their attention and networks lie in them, and their masks."""

from __future__ import annotations

import re
from dataclasses import replace

import torch
from torch import nn

from conformance.adapters.inference.attention import channels_of, probe_causal, probe_of, resolve_inputs
from conformance.adapters.inference.fit import fit
from conformance.adapters.inference.probes import TQ, Probe
from conformance.adapters.inference.resolution import Resolution
from conformance.adapters.inference.stacks import layer_layouts
from conformance.adapters.torch_subject import to_array
from conformance.reference.attention import causal_mask


def resolve_layer(found: Resolution, module: nn.Module) -> None:
    call, decoder = found.conventions.call, found.role == "decoder_layer"
    resolve_inputs(found, module)
    probe = probe_of(found, module)
    if "norm_first" not in found.constructor.known:
        grows = float(
            probe.run(_scaled(probe, 1e4))[..., 0].abs().max() / probe.run(probe.inputs())[..., 0].abs().max()
        )
        found.fixed["norm_first"] = grows > 100.0
        found.settings["norm_first"] = grows > 100.0
        place = "before each sublayer" if grows > 100.0 else "after each sublayer"
        found.say("norm", place, f"an input 10000 times larger gives an output {grows:.3g} times larger")
    inputs = {"x": to_array(probe.inputs()["query"])}
    if decoder:
        inputs["memory"] = to_array(probe.inputs()["memory"])
    causal = probe_causal(found, probe)
    found.probe_eps(module)
    fit(found, layer_layouts(module, found.settings, decoder), inputs, causal_mask(TQ) if causal else None)
    if not (found.fits or found.own_norms) and not found.fixed.get("norm_first") and not _gives_normalised(found):
        found.fixed.pop("norm_first", None)  # neither place is proven: both formulas apply, and fail
    _probe_written_rates(found)

    cross = [name for name in call.masks if re.search(r"src|source|mem|enc|cross", name.lower())]
    if not decoder:
        cross = []
    own = [name for name in call.masks if name not in cross]
    if decoder and not cross and len(own) > 1:
        own, cross = own[:1], own[1:]
    channels = channels_of(found, probe, own, ("query",))
    found.conventions = replace(found.conventions, channels=channels)
    if cross:
        found.conventions = replace(found.conventions, memory_channels=channels_of(found, probe, cross, ("memory",)))


def _probe_written_rates(found: Resolution) -> None:
    """A rate of 0 that is written beside a sublayer is a choice: the option is then no rate of all that it drops."""
    if "dropout" not in found.constructor.known or "dropout" in found.fixed:
        return
    parts = list(found.make({**found.settings, "dropout": 0.5}).modules())
    rates = {part.p for part in parts if isinstance(part, nn.Dropout)}
    rates |= {part.dropout for part in parts if isinstance(part, nn.MultiheadAttention)}
    if 0.5 in rates and 0.0 in rates:
        found.fixed["dropout"], found.why["dropout"] = 0.0, "writes the rate 0 beside a sublayer"
        found.say("dropout", "not everywhere", "whatever its option is, a dropout in it has the rate 0")


def _gives_normalised(found: Resolution) -> bool:
    """Whether what a fresh layer gives has mean 0 and variance 1, as after a norm of its own."""
    fresh = probe_of(found, found.make(found.settings))
    out = fresh.run(fresh.inputs())
    spread = (out.var(-1, unbiased=False) - 1.0).abs().max()
    return bool(out.mean(-1).abs().max() < 1e-3 and spread < 1e-2)


def _scaled(probe: Probe, factor: float) -> dict[str, torch.Tensor]:
    inputs = probe.inputs()
    return {**inputs, "query": inputs["query"] * factor}
