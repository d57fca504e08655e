"""What one recorded run of a model shows of its inside: attention, norms, feed-forward networks, the stream of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from conformance.adapters.whole.attention import attentions
from conformance.adapters.whole.attention_findings import attention_findings
from conformance.adapters.whole.findings import Finding
from conformance.adapters.whole.record import record

if TYPE_CHECKING:
    from conformance.adapters.whole.model import WholeModel


@dataclass(frozen=True)
class Inside:
    """findings: what is wrong or odd. seen: the families of claims that the run could break: "attention", ..."""

    findings: tuple[Finding, ...]
    seen: frozenset[str]


class InsideProbes:
    """The experiment, as a method of `WholeModel`."""

    def inside(self: WholeModel) -> Inside:  # type: ignore[misc]
        """What a run on two sentences shows; recorded once for all copies of the model."""
        if "inside" not in self.known:
            inputs = self.example(batch=2, length=6, seed=60)
            with self.mode(False), torch.no_grad():
                run = record(self.module, lambda: self.run(inputs))
            cores = attentions(run)
            seen = {"attention"} if cores else set()
            self.known["inside"] = Inside(tuple(attention_findings(cores)), frozenset(seen))
        found: Inside = self.known["inside"]
        return found
