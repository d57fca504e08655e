"""Mutants of the groups of parameters that a model's file makes for its optimizer."""

from __future__ import annotations

from conformance.mutants.source import CAREFUL, VIT, changed

RATES = "model-optimizer-slows-lower-layers"

changed(
    "VectorsInBothGroups",
    CAREFUL,
    "(decay if parameter.dim() > 1 else no_decay).append(parameter)",
    "decay.append(parameter)\n            no_decay.extend([parameter] if parameter.dim() < 2 else [])",
    breaks=("model-optimizer-holds-each-parameter-once",),
    defect="Norms and biases stand in the group that decays, too.",
)
changed(
    "SomeBiasesDecay",
    VIT,
    "weight_decay if parameter.dim() > 1 else 0.0",
    'weight_decay if not name.endswith((".bias", "norm1.weight", "norm2.weight", "norm.weight")) else 0.0',
    breaks=("model-optimizer-keeps-all-of-a-kind-from-decay",),
    defect="The biases of attention are called in_proj_bias, which no word of the list fits.",
)
changed(
    "LowerLayersLearnFaster",
    VIT,
    "layer_decay ** (above - layer)",
    "layer_decay**layer",
    breaks=(RATES,),
    defect="The rate falls from the first layer to the head.",
)
changed(
    "RatesAreWrittenOver",
    VIT,
    "    return groups",
    '    for group in groups:\n        group["lr"] = lr\n    return groups',
    breaks=(RATES,),
    defect="A loop gives all groups the rate of the head.",
)
