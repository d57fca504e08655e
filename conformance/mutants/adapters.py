"""Mutants of adapters that are merged into weights."""

from __future__ import annotations

from conformance.mutants.source import ADAPTED, changed

MERGED = "adapters-merge-without-a-change"

changed(
    "MergedAndBeside",
    ADAPTED,
    "return y if self.is_merged else y +",
    "return y +",
    breaks=(MERGED,),
    defect="Adapters that are merged act beside the weights, too.",
)
changed(
    "MergedWithoutItsScale",
    ADAPTED,
    "self.base.weight += self.scaling * self.b @ self.a",
    "self.base.weight += self.b @ self.a",
    breaks=(MERGED,),
    defect="The update is merged without alpha / r.",
)
changed(
    "AddedWhereTakenOut",
    ADAPTED,
    "self.base.weight -= self.scaling",
    "self.base.weight += self.scaling",
    breaks=(MERGED,),
    defect="The update is added a second time where it should be taken out.",
)
