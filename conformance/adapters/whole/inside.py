"""What one recorded run of a model shows of its inside: attention, norms, networks, the stream of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from conformance.adapters.whole.attention import attentions
from conformance.adapters.whole.attention_findings import attention_findings
from conformance.adapters.whole.findings import Finding
from conformance.adapters.whole.norms import network_findings, networks, norm_findings, norms
from conformance.adapters.whole.record import record
from conformance.adapters.whole.residuals import residual_findings, sublayers
from conformance.adapters.whole.stream import stacks, stream_findings

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
            nets = networks(run)
            parts = sublayers(run, cores, nets)
            families = {"attention": cores, "norm": norms(run), "feed-forward": nets, "blocks": stacks(run)}
            families |= {"sublayers": parts}
            findings = [
                *attention_findings(cores),
                *norm_findings(run),
                *network_findings(run),
                *residual_findings(run, parts),
                *(finding for finding in stream_findings([run]) if not self.is_beside_forward(finding)),
            ]
            seen = frozenset({"modules", "results", *(name for name, found in families.items() if found)})
            self.known["inside"] = Inside(tuple(findings), seen)
        found: Inside = self.known["inside"]
        return found

    def is_beside_forward(self: WholeModel, finding: Finding) -> bool:  # type: ignore[misc]
        """Whether it is about a part that the user's file calls outside of forward: a head that the loss applies."""
        parts = {path.partition(".")[0] for path in finding.paths}
        return finding.claim == "modules-that-are-made-run" and any(map(self.is_used_elsewhere, parts))
