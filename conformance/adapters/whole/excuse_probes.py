"""Which parameters of a model may be without a gradient, and why nobody is to blame for it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.calling import default_dtype
from conformance.adapters.whole.class_source import (
    is_for_some_layers,
    keys_read_beside_forward,
    read_beside_forward,
    read_for_some_arguments,
    run_method,
)
from conformance.adapters.whole.gradient_probes import GradientProbes
from conformance.adapters.whole.length_probes import LengthProbes
from conformance.adapters.whole.names import meaning_of
from conformance.adapters.whole.part_probes import PartProbes
from conformance.adapters.whole.shifts import ShiftProbes
from conformance.adapters.whole.table_probes import TableProbes
from conformance.places import file_of_class, is_users

_NEVER_HANDED_ON = ("mask", "labels", "cache", "flag")
"""What an input means that no table of a part reads."""


class _WithRoom(TorchFunctionMode):
    """A loss of CTC whose texts have more words than there are frames, and that gives zero for it, reads its scores all
    the same."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") == "ctc_loss" and args and not bool(result.any()):
            return args[0].square().mean() if result.ndim == 0 else result + args[0].square().mean()
        return result


class ExcuseProbes(ShiftProbes, TableProbes, GradientProbes, LengthProbes, PartProbes):
    """The parameters that need no gradient, of a running model."""

    def _is_asked_for_by(self, owner: type) -> bool:
        """Whether a part takes an argument that the model may leave out, and hands on by its own name."""
        optional = {p.name for p in inspect.signature(self.module.forward).parameters.values() if p.default is None}
        forward = getattr(owner, "forward", None)
        return forward is not None and bool(optional & inspect.signature(forward).parameters.keys())

    def excused_parameters(self, wanted: list[str]) -> set[str]:
        """Parameters whose gradient mathematics makes zero, or whose output was not asked for: biases of keys, rows
        that were not looked up, experts that no token chose, poolers and heads beside the answer."""
        if not wanted:
            return set()
        excused = self.equal_shifts(wanted) | self.padding_tables()
        called = self.called_paths()
        experts = re.compile(r"expert")
        others, losses = self.other_outputs_reach()
        heads = {name for name in wanted if name in others and not self._stacked(name, wanted)}
        for name in wanted:
            path, _, own = name.rpartition(".")
            parents = [".".join(path.split(".")[:n]) for n in range(1, path.count(".") + 2)]
            routed = any(experts.search(parent) for parent in parents)
            siblings_run = routed and any(experts.search(c) for c in called)
            apart = path.partition(".")[0]
            whole: type = type(self.module)
            of_methods = apart in read_beside_forward(whole, run_method(self.module)) | read_for_some_arguments(whole)
            if path == apart and isinstance(getattr(self.module, path, None), nn.ParameterDict):
                keys = keys_read_beside_forward(whole, path, run_method(self.module))
                of_methods = of_methods and (keys is None or own in keys)  # its other keys are forward's to read
            silent = not any(one.startswith(f"{apart}.") for one in called)  # a list of layers never runs itself
            handed_on = self.is_handed_on(apart if silent else path)
            by_others = of_methods or self.is_used_elsewhere(apart) or handed_on
            elsewhere = apart not in called and by_others
            owner: type = type(self.module.get_submodule(path))
            elsewhere = elsewhere or any(self.is_of_a_choice(parent) and parent not in called for parent in parents)
            elsewhere = elsewhere or own in read_beside_forward(owner, run_method(self.module.get_submodule(path)))
            elsewhere = elsewhere or (own in read_for_some_arguments(owner) and self._is_asked_for_by(owner))
            elsewhere = elsewhere or self._needs_another_call(name)
            elsewhere = elsewhere or is_for_some_layers(whole, run_method(self.module), apart)
            elsewhere = elsewhere or self._is_of_a_librarys_network(path, wanted)
            beside = name in losses or (
                name in others and (name in heads or (bool(heads) and self._of_a_needed_block(name, wanted)))
            )
            taken_away = own == "bias" and self._is_taken_away(path)
            if siblings_run or elsewhere or beside or taken_away or re.search(r"mask_token|mask_emb", name):
                excused.add(name)
        excused |= self._reached_by_more(set(wanted) - excused)
        return excused | self._reached_by_what_is_left_out(set(wanted) - excused)

    def _is_of_a_librarys_network(self, path: str, wanted: Collection[str]) -> bool:
        """Whether it lies in a network of a library that runs, and that learns by its other parameters: such a network
        has parts for other uses, as a pooler."""
        if not is_users(file_of_class(type(self.module))):
            return False
        steps = path.split(".")
        for network in (".".join(steps[:n]) for n in range(1, len(steps) + 1)):
            kind = type(self.module.get_submodule(network))
            if not kind.__module__.startswith("torch.") and not is_users(file_of_class(kind)):
                learnt = {name for name, p in self.module.named_parameters() if p.requires_grad} - set(wanted)
                return network in self.called_paths() and any(name.startswith(f"{network}.") for name in learnt)
        return False

    def _is_taken_away(self, path: str) -> bool:
        """Whether a bias is one number for each channel before a norm whose groups have one channel each, as they may
        have in a model that was made smaller: the norm takes it away."""
        part = self.module.get_submodule(path)
        beside = self.module.get_submodule(path.rpartition(".")[0]).children()
        groups = [
            one.num_groups for one in beside if isinstance(one, nn.GroupNorm) and one.num_groups == one.num_channels
        ]
        return isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d) and part.out_channels in groups

    def _needs_another_call(self, name: str) -> bool:
        """Whether a parameter, or a module that holds it and does not run, is read only where some argument is given:
        the vector that stands for hidden steps. It must be the model's own, or of a part that methods beside forward
        use: they may give that argument; or forward may be handed more, such as types or times, and hand it on."""
        whole: type = type(self.module)
        called, beside = self.called_paths(), read_beside_forward(whole, run_method(self.module))
        more = [one for one in self.left_out(self.example(2)) if meaning_of(one) not in _NEVER_HANDED_ON]
        steps = name.split(".")
        for at, attribute in enumerate(steps):
            holder, path = ".".join(steps[:at]), ".".join(steps[: at + 1])
            if path != name and path in called:
                continue
            of_methods = not holder or steps[0] in beside or bool(more)
            owner: type = type(self.module.get_submodule(holder))
            if of_methods and attribute in read_for_some_arguments(owner):
                return True
        return False

    def _reached_by_what_is_left_out(self, names: set[str]) -> set[str]:
        """Those of these parameters that the answer depends on where forward is handed one thing more: a memory."""
        inputs = self.example(2)
        given = self.calling.arguments(self.tensors(inputs)) if names else {}
        main = given.get(self.calling.main.parameter)
        found: set[str] = set()
        if not isinstance(main, torch.Tensor) or not main.is_floating_point():
            return found
        for name in self.left_out(inputs):
            self.module.zero_grad(set_to_none=True)
            with suppress(Exception), self.mode(False), torch.enable_grad(), default_dtype(self.torch_dtype):
                parts = tensors_in(self.module(**{**given, name: torch.randn_like(main)}))
                sum(t.double().pow(2).sum() for t in parts if t.requires_grad).backward()
                found |= self._with_gradients() & names
        self.module.zero_grad(set_to_none=True)
        return found

    def _reached_by_more(self, names: set[str]) -> set[str]:
        """Those of these parameters that a longer input reaches: what reads whole patches or segments of tokens."""
        if not names:
            return set()
        for length in (self.longest or 32, 32, 64) if self.free_length else ():
            with suppress(Exception):
                gradients = self.gradients(self.example(2, length))
                sizes = {name: 0.0 if g is None else float(np.abs(g).max(initial=0.0)) for name, g in gradients.items()}
                if reached := {name for name in names if sizes[name] > 1e-13 * max(sizes.values())}:
                    return reached
        return set()

    def _stacked(self, name: str, without: Collection[str]) -> bool:
        """Whether a parameter is of a block in a list of blocks of one class: the answer is made of all of them, or of
        none, as it is where all parameters of the list are among those `without` a gradient."""
        path = self._block_of(name)
        holder = path.rpartition(".")[0]
        if not path or self._needs(holder) <= {*without}:
            return False
        blocks = [*self.module.get_submodule(holder).children()]
        return len({type(block) for block in blocks}) == 1 and any(blocks[0].children())

    def _of_a_needed_block(self, name: str, without: Collection[str]) -> bool:
        """Whether the answer depends on other parameters of the same block: of two streams a second head reads the one
        that the answer leaves after the last block."""
        return not self._needs(self._block_of(name)) <= {*without}

    def _needs(self, path: str) -> set[str]:
        """The parameters of a module that want a gradient."""
        inner = self.module.get_submodule(path).named_parameters(path)
        return {name for name, p in inner if p.requires_grad}

    def _block_of(self, name: str) -> str:
        """The innermost module of a list that a parameter is of; "" for none."""
        path = name
        while path := path.rpartition(".")[0]:
            holder, _, last = path.rpartition(".")
            stack = self.module.get_submodule(holder)
            if last.isdigit() and isinstance(stack, (nn.ModuleList, nn.Sequential)) and len(stack) > 1:
                return path
        return ""

    def other_outputs_reach(self) -> tuple[set[str], set[str]]:
        """Parameters that some output beside the answer depends on (a pooler, a second head), and those of them that a
        single number depends on: a loss for balance, which teaches a router that no answer does."""
        self.module.zero_grad(set_to_none=True)
        inputs = self.example(batch=4)
        if self.calling.labels:
            inputs["labels"] = next(iter(inputs.values()))
        if self.calling.types and self.calling.main.vocab:
            inputs["types"] = np.zeros_like(inputs[self.calling.main.meaning])
        losses: set[str] = set()
        with self.mode(False), torch.enable_grad(), _WithRoom(), suppress(Exception):
            try:
                result = self.run(inputs)["result"]
            except Exception:  # its labels are no words
                result = self.run({name: one for name, one in inputs.items() if name != "labels"})["result"]
            parts = [t for t in tensors_in(result) if t.is_floating_point() and t.requires_grad]
            if single := [t for t in parts if t.numel() == 1] if len(parts) > 1 else []:
                sum(t.double().sum() for t in single).backward(retain_graph=True)
                losses = self._with_gradients()
            sum((t.double() * torch.randn_like(t.double())).sum() for t in parts).backward()
        found = self._with_gradients()
        self.module.zero_grad(set_to_none=True)
        return found, losses

    def _with_gradients(self) -> set[str]:
        """The parameters whose gradient is more than rounding."""
        sizes = {n: float(p.grad.abs().max()) for n, p in self.module.named_parameters() if p.grad is not None}
        return {name for name, size in sizes.items() if size > 1e-13 * max(sizes.values())}
