"""Networks, norms and tables of words: which layout their parameters have, and whether they drop their output."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from torch import nn

from conformance.adapters.inference import parameters as p
from conformance.adapters.inference.fit import fit
from conformance.adapters.inference.probes import SIZES, TQ, B, noise
from conformance.adapters.inference.resolution import Resolution
from conformance.adapters.inference.roles import is_norm
from conformance.adapters.torch_subject import to_array
from conformance.protocol import Array, Arrays


def resolve_tokenwise(found: Resolution, module: nn.Module) -> None:
    layouts: dict[str, Iterable[tuple[str, p.Layout]]] = {
        "feed_forward": p.feed_forward_layouts(p.kernels(module, split=True), found.settings),
        "swiglu": p.swiglu_layouts(p.kernels(module, split=True), found.settings),
        "layer_norm": p.norm_layouts(module, True),
        "rms_norm": p.norm_layouts(module, False),
    }
    inside = any(is_norm(child) for child in module.modules() if child is not module)
    inputs = {"x": to_array(noise(B, TQ, SIZES["d_model"])) * (0.01 if found.role.endswith("norm") else 1.0)}
    fit(found, layouts[found.role], inputs, has_norm=inside)
    probe_dropout(found, inputs)


def probe_dropout(found: Resolution, inputs: Arrays, mask: Array | None = None) -> None:
    """Dropout of the output is no option of the role, which drops inside."""
    if "dropout" not in found.constructor.known or "dropout" not in found.settings or "dropout" in found.fixed:
        return
    subject = found.subject({**found.settings, "dropout": 0.5}, found.conventions, random=True)
    subject.train()
    out = subject(**inputs, **({} if mask is None else {"mask": mask}))["out"]
    if (np.abs(out) < 1e-6).mean() > 0.2:
        found.fixed["dropout"], found.why["dropout"] = 0.0, "drops its output, where the role drops inside"
        found.say("dropout", "on the output", "in training, numbers of the output are dropped")


def resolve_embedding(found: Resolution, module: nn.Module) -> None:
    fit(found, [("a table", {"weight": p.Place(("weight",))})], {"ids": np.arange(6).reshape(2, 3)})
