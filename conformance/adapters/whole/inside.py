"""What one recorded run of a model shows of its inside: attention, norms, networks, the stream of blocks."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from conformance.adapters.whole.activations import activation_findings
from conformance.adapters.whole.attention import attentions
from conformance.adapters.whole.attention_findings import attention_findings, samples_as_words
from conformance.adapters.whole.class_source import (
    read_beside_forward,
    read_for_some_arguments,
    run_method,
    source_of,
)
from conformance.adapters.whole.dropping import DropProbes
from conformance.adapters.whole.experts import expert_findings, mixtures
from conformance.adapters.whole.findings import Finding, once
from conformance.adapters.whole.flow import base_name, carriers, moves
from conformance.adapters.whole.graph import Box, graph_of
from conformance.adapters.whole.hiding import Culprit, seen_future, seen_padding
from conformance.adapters.whole.looked_for import looked_for
from conformance.adapters.whole.norm_places import norm_place_findings
from conformance.adapters.whole.norms import network_findings, networks, norm_findings, norms, perceptrons
from conformance.adapters.whole.numbers_of_blocks import numbers_of_blocks
from conformance.adapters.whole.pads import PadProbes
from conformance.adapters.whole.part_probes import PartProbes
from conformance.adapters.whole.pixels import pixel_findings
from conformance.adapters.whole.place_grids import grid_findings, grids
from conformance.adapters.whole.place_vectors import added_positions, place_findings
from conformance.adapters.whole.record import Call, Op, Record, Value, record
from conformance.adapters.whole.residuals import residual_findings, sublayers
from conformance.adapters.whole.starts_told import told_as_means
from conformance.adapters.whole.stream import stacks, stream_findings
from conformance.adapters.whole.thrown_away import thrown_away
from conformance.adapters.whole.tokens import makes_tokens, token_findings
from conformance.adapters.whole.told_by_file import told_by_files
from conformance.protocol import Arrays, NotProvided


def _is_cut(run: Record, op: Op) -> bool:
    """Is it a detach that the user's line asks for, of something that was computed with parameters?"""
    asked = op.place is not None and re.search(r"detach|\.data\b", op.place.text) is not None
    return asked and any(value.kind == "parameter" for value in run.before(op.inputs))


@dataclass(frozen=True)
class Inside:
    """findings: what is wrong or odd. seen: the families of claims that the run could break: "attention", ...
    attention: the line where the first attention takes its softmax, "" without one. future: what lets a token see the
    future, if one does. graph: the calls of the run."""

    findings: tuple[Finding, ...]
    seen: frozenset[str]
    attention: str
    future: Culprit | None
    graph: tuple[Box, ...]


class InsideProbes(PadProbes, PartProbes, DropProbes):
    """The experiment, of a running model."""

    def _recorded(self, inputs: Arrays) -> Record:
        """The run in evaluation mode, recorded. Raises NotProvided where it raises only when it is recorded: torch's
        layers leave their fast path then."""
        if "unrecorded" not in self.known:
            try:
                with self.mode(False), torch.no_grad():
                    return record(self.module, lambda: self.run(inputs))
            except Exception as error:
                self(**inputs)  # what it raises by itself is told as it is
                self.known["unrecorded"] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise NotProvided(f"it runs only on torch's fast path, and else raises {self.known['unrecorded']}")

    def inside(self) -> Inside:
        """What a run on two sentences shows; recorded once for all copies of the model."""
        if "inside" not in self.known:
            inputs = self.example(batch=2, length=32 if self.answers_stretches else 6, seed=60)
            run = self._recorded(inputs)
            cores = attentions(run)
            nets = networks(run)
            parts = sublayers(run, cores, nets)
            normed, stacked = norms(run), stacks(run)
            shows: dict[str, list[Call | None]] = {
                "attention": [core.call for core in cores],
                "norm": [norm.call for norm in normed],
                "feed-forward": [
                    next((call for call in run.around(run.call_of(net.second)) if net.first.number in call.ops), None)
                    for net in perceptrons(run)
                ],
                "experts": [mixture.call for mixture in mixtures(run)],
                "blocks": [call for stack in stacked for call in stack.calls],
                "sublayers": [part.block for part in parts],
            }
            findings = [
                *attention_findings(cores),
                *once(one for core in cores if self.calling.batch_first for one in samples_as_words(core)),
                *norm_findings(run),
                *network_findings(run),
                *activation_findings(run),
                *expert_findings(run),
                *residual_findings(run, parts),
                *norm_place_findings(run, parts),
                *token_findings(run),
                *pixel_findings(run),
                *place_findings(run),
                *grid_findings(run),
                *once(thrown_away(run)),
                *numbers_of_blocks(run),
                *once(looked_for(run)),
                *once(told_as_means(run)),
                *once(told_by_files(run)),
                *(finding for finding in stream_findings([run]) if not self.is_excused(finding)),
            ]
            first = str(cores[0].place or "") if cores else ""
            seen = frozenset(
                {
                    "modules",
                    "results",
                    *({"tokens"} if makes_tokens(run) else ()),
                    *({"positions"} if added_positions(run) or grids(run) else ()),
                    *(name for name, calls in shows.items() if calls),
                }
            )
            self.known["inside"] = Inside(
                tuple(findings), seen, first, seen_future(run, cores), tuple(graph_of(run, shows))
            )
        found: Inside = self.known["inside"]
        return found

    def attention_place(self) -> str:
        """file:line where attention takes its softmax: in the recorded run, else the first such line in the source."""
        with suppress(Exception):
            if ran := self.inside().attention:
                return ran
        return self.line_of(r"softmax|scaled_dot_product_attention|MultiheadAttention\(|nn\.Transformer\w*\(")

    def future_place(self) -> str:
        """file:line of what lets a token see the future, where one does: its mask, attention without one, or a norm
        that is none of one token."""
        with suppress(Exception):
            found = self.inside().future
            if found is not None and (found.place or found.held):
                return str(found.place or "") or self.made_at(found.held)
            norms = [one.place for one in self.inside().findings if one.claim == "norm-is-its-formula" and one.certain]
            if norms:
                return str(norms[0] or "")
        return self.attention_place()

    def detached_at(self) -> str:
        """file:line that cuts the answer off from its parameters: the last detach on its way; "" without one."""
        with suppress(Exception):
            with self.mode(False), torch.enable_grad():
                run = record(self.module, lambda: self.run(self.example()))
            on_the_way = run.before(run.results)
            cuts = [op for op in run.ops if op.name == "detach" and set(op.outputs) & on_the_way and _is_cut(run, op)]
            return str(cuts[-1].place) if cuts else ""
        return ""

    def padding_seen(self, name: str) -> Culprit:
        """What reads the padded tokens of an input, for an answer that depends on them."""
        key = "padding" if name in ("ids", "x") else f"{name}_padding"
        inputs = self.example(batch=2, src=7, tgt=6, seed=61)
        data = inputs[name]
        real = np.ones(data.shape[:2], bool)
        real[0, -2:] = False
        with suppress(Exception):
            if self.padding_of(name) == "token":
                data[0, -2:] = self.pad_id
            with self.mode(False), torch.no_grad():
                run = record(self.module, lambda: self.run({**inputs, key: real}))
            return seen_padding(run, torch.tensor(real)) or Culprit("", None)
        return Culprit("", None)

    def bound_of_logits(self) -> tuple[float, str] | None:
        """Between minus and plus which number a tanh or sigmoid keeps the answers, with its line; None without one."""
        with self.mode(False), torch.no_grad():
            run = record(self.module, lambda: self.run(self.example(batch=2, length=6, seed=60)))
        width, factor = self.calling.outputs, 1.0
        answers = [value for value in run.results if value.shape[-1:] == (width,) and run.computed(value)]
        here = max(answers, key=lambda value: value.number, default=None)
        while here is not None:
            op = run.producer(here)
            behind = [value for value in carriers(op) if run.computed(value)] if op is not None else []
            if op is None or len(behind) != 1:
                return None
            name, others = base_name(op), [one for one in op.args if one is not behind[0]]
            if name in ("tanh", "sigmoid"):
                return abs(factor) * (1.0 if name == "tanh" else 0.5), str(op.place or "")
            if name in ("mul", "div"):
                number = others[0].data.double() if isinstance(others[0], Value) else torch.tensor(float(others[0]))
                if number.numel() != 1:
                    return None
                factor *= float(number) if name == "mul" else 1 / float(number)
            elif not moves(op):
                return None
            here = behind[0]
        return None

    def told_apart(self) -> dict[str, bool]:
        """For each input of tokens: whether some self-attention can tell one place from another, if all words are one
        word. Inputs without a self-attention are left out."""
        inputs = self.example(batch=2, length=6, seed=60)
        alike = {name: np.full_like(value, value[0, 0]) for name, value in inputs.items() if value.ndim == 2}
        with self.mode(False), torch.no_grad():
            run = record(self.module, lambda: self.run(inputs | alike))
        outer = next(call for call in run.calls if call.parent < 0)
        words = {one.meaning: outer.kwargs.get(one.parameter) for one in self.calling.inputs if one.vocab}
        given = {meaning: value for meaning, value in words.items() if isinstance(value, Value)}
        found: dict[str, bool] = {}
        for core in attentions(run):
            query, key = core.sides["query"], core.sides["key"]
            if [p.base for p in query.projections] != [p.base for p in key.projections] or not key.projections:
                continue
            before = run.before([query.value])
            names = [meaning for meaning, value in given.items() if value in before]
            if len(names) == 1:
                found[names[0]] = found.get(names[0], False) or core.tells_places
        return found

    def is_excused(self, finding: Finding) -> bool:
        """Whether it is about a part that the user's file calls outside of forward, as a head that the loss applies, or
        only for arguments that the recorded run did not have, or a dropout whose rate attention is given."""
        parts = {path.partition(".")[0] for path in finding.paths}
        return finding.claim == "modules-that-are-made-run" and (
            any(map(self.is_used_elsewhere, parts))
            or any(map(self.is_handed_on, finding.paths))
            or any(map(self._is_used_for_some_arguments, finding.paths))
            or any(map(self._is_asked_by_methods, finding.paths))
            or any(map(self._runs_in_training, finding.paths))
            or all(map(self._acts_by_its_rate, finding.paths))
        )

    def _runs_in_training(self, path: str) -> bool:
        """Whether a part runs where the model is in training mode, as what makes noise for a router does."""
        twin = self.twin()
        ran: list[str] = []
        handle = twin.module.get_submodule(path).register_forward_hook(lambda *_: ran.append(path))
        with suppress(Exception):
            twin.in_training(0, **twin.example(batch=2))
        handle.remove()
        return bool(ran)

    def _is_asked_by_methods(self, path: str) -> bool:
        """Whether a part has no forward, and its owner calls other methods of it: it never runs as a module does."""
        owner, _, name = path.rpartition(".")
        cls: type = type(self.module.get_submodule(path))
        if "forward" in {method for base in cls.__mro__ if base is not nn.Module for method in vars(base)}:
            return False
        holder: type = type(self.module.get_submodule(owner))
        around = source_of(holder)
        return around is not None and bool(re.search(rf"\bself\.{name}\.\w+\(", around[0]))

    def _acts_by_its_rate(self, path: str) -> bool:
        """Whether a dropout does not run, and torch's attention drops with its rate."""
        part = self.module.get_submodule(path)
        if not isinstance(part, nn.Dropout):
            return False
        fused = [one.rate for one in self.active_dropouts(True) if one.what.startswith("scaled_dot_product_attention")]
        return part.p in fused

    def _is_used_for_some_arguments(self, path: str) -> bool:
        owner, _, name = path.rpartition(".")
        module = self.module.get_submodule(owner)
        if isinstance(module, nn.ModuleDict):
            return self.is_of_a_choice(path)
        if isinstance(module, nn.ModuleList):  # its entries are read by the list's name
            return self._is_used_for_some_arguments(owner)
        cls: type = type(module)
        return name in read_for_some_arguments(cls) | read_beside_forward(cls, run_method(module))
