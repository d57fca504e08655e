"""Checks of adapters beside the weights of a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true


@check("adapters-merge-without-a-change", roles=("module",))
def merge_without_a_change(impl: Any, draw: Draw) -> Evidence:
    """Merged into the weights, adapters give the answers that they gave beside them; taken out again, too."""
    found = impl.build("module", {}).merged()
    close = 1e-4 * max(float(np.abs(found.before).max()), 1e-9)
    off = float(np.abs(found.merged - found.before).max())
    parts = [
        true("the answers with merged adapters", off <= close, got=f"{off:.3g} off").saying(
            diagnosis="Merged into the weights, the adapters give other answers than beside them: they are merged with "
            "another scale or turn, or act a second time.",
            place=found.place,
            mend="W += scaling * B @ A, and no other term once that is done",
        )
    ]
    if found.again is not None:
        off = float(np.abs(found.again - found.before).max())
        parts.append(
            true("the answers with adapters that are taken out again", off <= close, got=f"{off:.3g} off").saying(
                diagnosis="Taken out of the weights again, the adapters give other answers than before.",
                place=found.back,
                mend="subtract what was added: W -= scaling * B @ A",
            )
        )
    return all_of(*parts)
