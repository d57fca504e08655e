"""The check of losses that mix the samples of a batch."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true


@check("losses-of-mixed-samples-teach-both-labels", roles=("classifier",))
def mixed_labels(impl: Any, draw: Draw) -> Evidence:
    """Where a loss mixes samples, each counts in the labels as much as in the input."""
    parts = []
    for mixed in impl.build("classifier", {}).mixed_losses():
        row = int((mixed.inputs - mixed.labels).abs().amax(-1).argmax())
        shares, labels = (one[row].round(decimals=3).tolist() for one in (mixed.inputs, mixed.labels))
        of_one = max(labels) > 0.999
        parts.append(
            true(f"the labels of sample {row} in {mixed.name}", mixed.agrees, expected=shares, got=labels).saying(
                diagnosis=f"{mixed.name} mixes samples, and "
                + ("teaches the label of one of them only." if of_one else "weighs their labels otherwise."),
                place=mixed.place,
                mend="share * loss(scores, labels) + (1 - share) * loss(scores, labels[order])",
            )
        )
    return all_of(*parts)
