"""Experiments on a running model that need more than its answers: what learns, what is forgotten."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import Lookups, default_dtype, quiet_evaluation
from conformance.adapters.whole.entries import is_for_another_method
from conformance.adapters.whole.language import (
    chosen_by_arguments,
    keys_read_beside_forward,
    read_beside_forward,
    read_for_some_arguments,
    run_method,
)
from conformance.adapters.whole.usage import surroundings
from conformance.adapters.whole.watching import Watching, argument
from conformance.protocol import Arrays, NotProvided

if TYPE_CHECKING:
    from conformance.adapters.whole.model import WholeModel

_POSITIONS = re.compile(
    r"pos(?!ition_?wise|_?wise|_?ff|itive|t|e)|(?<![a-z])pe(?![a-z])|rope|rotary|freqs|inv_freq|(?<![a-z])(cos|sin)|alibi|slopes|relative"
)


class _Choices(Watching):
    """Whether a choice was made along the tokens of a batch: the largest, the first so many, a running count."""

    def __init__(self, among: int) -> None:
        super().__init__()
        self.among, self.seen = among, False
        self.found: set[int] = set()  # where in memory the places are that a condition holds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name in ("topk", "sort", "cumsum"):
            at = {"topk": 2, "sort": 1, "cumsum": 1}[name]
            axis = argument(args, kwargs, at, "dim", -1)
            self.seen = self.seen or (args[0].dim() > 0 and args[0].shape[axis] == self.among)
        elif name == "nonzero":
            self.found.add(result.untyped_storage()._cdata)
        elif name == "slice" and args[0].untyped_storage()._cdata in self.found:
            self.seen = self.seen or len(result) < len(args[0])
        return result


class Probes:
    """The experiments, as methods of `WholeModel`."""

    @property
    def draws_anew(self: WholeModel) -> bool:  # type: ignore[misc]
        """Whether the same input gets another answer in evaluation mode: other numbers are drawn each time. Draws that
        decide about few tokens change an answer once in a while only."""
        if "draws_anew" not in self.known:
            inputs, twin = self.example(), self.twin()
            torch.manual_seed(1)
            before, first = torch.get_rng_state(), twin(**inputs)["out"]
            tries = 1 if torch.equal(before, torch.get_rng_state()) else 20  # draws that are not torch's show at once
            others = (self.twin()(**inputs)["out"] for _ in range(tries))  # a twin each: what a call keeps is no draw
            differs = any(float(np.abs(first - other).max(initial=0.0)) > 0 for other in others)
            self.known["draws_anew"] = differs or bool(self.renewed)
        return bool(self.known["draws_anew"])

    @property
    def tokens_compete(self: WholeModel) -> bool:  # type: ignore[misc]
        """Whether a choice is made among all tokens of a batch: experts with a capacity, experts that choose."""
        if "tokens_compete" not in self.known:
            batch, length = 3, self.calling.main.length or 7
            with self.mode(False), torch.no_grad(), _Choices(batch * length) as choices:
                self.run(self.example(batch, length))
            self.known["tokens_compete"] = choices.seen
        return bool(self.known["tokens_compete"])

    def excused_parameters(self: WholeModel, wanted: list[str]) -> set[str]:  # type: ignore[misc]
        """Parameters whose gradient mathematics makes zero, or whose output was not asked for: biases of keys, rows
        that were not looked up, experts that no token chose, poolers and heads beside the answer."""
        if not wanted:
            return set()
        excused = self.equal_shifts(wanted) | self.padding_tables()
        called = self.called_paths()
        experts = re.compile(r"expert")
        others = self.other_outputs_reach()
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
            elsewhere = apart not in called and (of_methods or self.is_used_elsewhere(apart) or self.is_handed_on(path))
            owner: type = type(self.module.get_submodule(path))
            elsewhere = elsewhere or any(self.is_of_a_choice(parent) and parent not in called for parent in parents)
            elsewhere = elsewhere or own in read_beside_forward(owner, run_method(self.module.get_submodule(path)))
            beside = name in others and not self._stacked(name, wanted)
            if siblings_run or elsewhere or beside or re.search(r"mask_token|mask_emb", name):
                excused.add(name)
        return excused | self._reached_by_more(set(wanted) - excused)

    def _reached_by_more(self: WholeModel, names: set[str]) -> set[str]:  # type: ignore[misc]
        """Those of these parameters that a longer input reaches: what reads whole patches or segments of tokens."""
        if not names or not self.free_length or not self.positions:
            return set()
        for length in (32, 64):
            with suppress(Exception):
                gradients = self.gradients(self.example(2, length))
                sizes = {name: 0.0 if g is None else float(np.abs(g).max(initial=0.0)) for name, g in gradients.items()}
                if reached := {name for name in names if sizes[name] > 1e-13 * max(sizes.values())}:
                    return reached
        return set()

    def _stacked(self: WholeModel, name: str, without: Collection[str]) -> bool:  # type: ignore[misc]
        """Whether a parameter is of a block in a list of blocks of one class: the answer is made of all of them, or of
        none, as it is where all parameters of the list are among those `without` a gradient."""
        path = name
        while path := path.rpartition(".")[0]:
            holder, _, last = path.rpartition(".")
            stack = self.module.get_submodule(holder)
            if last.isdigit() and isinstance(stack, (nn.ModuleList, nn.Sequential)) and len(stack) > 1:
                if {f"{holder}.{inner}" for inner, p in stack.named_parameters() if p.requires_grad} <= {*without}:
                    return False
                return len({type(block) for block in stack}) == 1 and any(stack[0].children())
        return False

    def is_of_a_choice(self: WholeModel, path: str) -> bool:  # type: ignore[misc]
        """Whether the part at a path is one of several in an nn.ModuleDict of which an argument chooses."""
        owner = path.rpartition(".")[0]
        holder, _, name = owner.rpartition(".")
        around: type = type(self.module.get_submodule(holder))
        return isinstance(self.module.get_submodule(owner), nn.ModuleDict) and name in chosen_by_arguments(around)

    def padding_tables(self: WholeModel) -> set[str]:  # type: ignore[misc]
        """Tables of which a run reads no row but that of padding, which never learns: all of one segment, perhaps."""
        with quiet_evaluation(self.module), Lookups() as lookups:
            self.run(self.example(batch=4))
        read: dict[int, list[Tensor]] = {}
        for table, ids in lookups.seen:
            read.setdefault(table.data_ptr(), []).append(ids)
        return {
            f"{path}.weight".lstrip(".")
            for path, part in self.module.named_modules()
            if isinstance(part, nn.Embedding)
            and part.padding_idx is not None
            and part.weight.data_ptr() in read
            and all(bool((ids == part.padding_idx).all()) for ids in read[part.weight.data_ptr()])
        }

    def is_used_elsewhere(self: WholeModel, name: str) -> bool:  # type: ignore[misc]
        """Whether the user's file calls a part of the model outside of its forward: a head that the loss applies."""
        module = sys.modules.get(type(self.module).__module__)
        if not name or module is None:
            return False
        return bool(re.search(rf"(?<!self)\.{name}\(", surroundings(module).own.text))

    def is_handed_on(self: WholeModel, path: str) -> bool:  # type: ignore[misc]
        """Whether a file of the repository hands a part to something else: `loss_of(model.generator, ...)`. What lies
        deeper than the model's own parts is its owner's to use."""
        module = sys.modules.get(type(self.module).__module__)
        if not path or "." in path or module is None:
            return False
        handed = re.compile(rf"[(,=]\s*[\w.]*(model|net|former)\.{path}\s*[,)]")
        return any(handed.search(source.text) for source in surroundings(module).sources)

    def other_outputs_reach(self: WholeModel) -> set[str]:  # type: ignore[misc]
        """Parameters that some output beside the answer depends on: a pooler, a second head, an auxiliary loss."""
        from conformance.adapters.inference.calls import tensors_in

        self.module.zero_grad(set_to_none=True)
        inputs = self.example(batch=4)
        if self.calling.labels:
            inputs["labels"] = next(iter(inputs.values()))
        if self.calling.types and self.calling.main.vocab:
            inputs["types"] = np.zeros_like(inputs[self.calling.main.meaning])
        with self.mode(False), torch.enable_grad(), suppress(Exception):
            result = self.run(inputs)["result"]
            parts = [t for t in tensors_in(result) if t.is_floating_point() and t.requires_grad]
            sum((t.double() * torch.randn_like(t.double())).sum() for t in parts).backward()
        found = {n for n, p in self.module.named_parameters() if p.grad is not None and bool(p.grad.abs().max() > 0)}
        self.module.zero_grad(set_to_none=True)
        return found

    def called_paths(self: WholeModel) -> list[str]:  # type: ignore[misc]
        """The paths of the parts that run, in the order in which they are called."""
        called: list[str] = []
        hooks = [
            part.register_forward_pre_hook(lambda *_, path=path: called.append(path))
            for path, part in self.module.named_modules()
        ]
        try:
            with self.mode(False), torch.no_grad():
                self.run(self.example())
        finally:
            for hook in hooks:
                hook.remove()
        return called

    def worst_gradient(self: WholeModel, inputs: Arrays) -> tuple[str, float, float, float]:  # type: ignore[misc]
        """Of all parameters the one whose slope along a random direction differs most from its gradient: its name, the
        error that differences allow, the slope, and the gradient's."""
        generator = torch.Generator().manual_seed(12)
        with torch.no_grad(), self.mode(False):
            answer = self.run(inputs)["out"]
            weight = torch.randn(answer.shape, generator=generator, dtype=torch.float64)
        gradients = self.gradients(inputs, to_array(weight))
        directions = {
            name: torch.randn(p.shape, generator=generator, dtype=torch.float64)
            * max(float(p.detach().double().std(correction=0)), 1e-2)
            for name, p in self.module.named_parameters()
            if p.requires_grad
        }
        for path, part in self.module.named_modules():
            if (
                isinstance(part, nn.Embedding)
                and part.padding_idx is not None
                and (name := f"{path}.weight") in directions
            ):
                directions[name][part.padding_idx] = 0.0  # torch gives the row of padding no gradient

        def slope(names: list[str], step: float) -> float:
            parameters = dict(self.module.named_parameters())
            ends = []
            for sign in (1.0, -1.0):
                with torch.no_grad(), self.mode(False):
                    for name in names:
                        parameters[name].add_(directions[name].to(parameters[name].dtype), alpha=sign * step)
                    ends.append(float((self.run(inputs)["out"].double() * weight).sum()))
                    for name in names:
                        parameters[name].sub_(directions[name].to(parameters[name].dtype), alpha=sign * step)
            return (ends[0] - ends[1]) / (2 * step)

        def of_gradient(names: list[str]) -> float:
            return sum(float((gradients[n] * to_array(directions[n])).sum()) for n in names if gradients[n] is not None)

        def differs(names: list[str]) -> tuple[bool, float, float, float]:
            told = of_gradient(names)
            for step in (1e-5, 1e-6, 1e-7):  # the error of kinks shrinks with the step, that of a mistake does not
                coarse, fine = slope(names, 2 * step), slope(names, step)
                kink = 3 * abs(coarse - fine) + 1e-7 * (
                    abs(fine) + float((answer.double() * weight).abs().sum()) * 1e-4
                )
                wrong = abs(fine - told) > max(1e-4 * abs(fine), kink)
                if not wrong:
                    break
            return wrong, kink, fine, told

        everything = list(directions)
        wrong, error, expected, got = differs(everything)
        if not wrong:
            return everything[0], error, expected, got
        for name in everything:
            wrong, error, expected, got = differs([name])
            if wrong:
                return name, error, expected, got
        return everything[0], abs(expected - got), expected, got

    def idle_buffers(self: WholeModel) -> list[str] | None:  # type: ignore[misc]
        """Parts all of whose tables of numbers change nothing; None when there are no tables. Triangles are masks,
        what a call changes is a cache, and one table may be made from another of the same part."""
        groups: dict[str, list[str]] = {}
        used = self.twin()
        used(**self.example(seed=3))
        after = dict(used.module.named_buffers())
        for name, buffer in self.module.named_buffers():
            if buffer.layout is not torch.strided or not torch.equal(buffer, after[name]):
                continue
            numbers = buffer.is_floating_point() and buffer.numel() > 1 and bool(buffer.isfinite().all())
            if (
                numbers
                and bool((buffer != 0).any())
                and not _is_mask(buffer)
                and not is_for_another_method(self.module, name)
            ):
                groups.setdefault(name.rpartition(".")[0], []).append(name)
        if not groups:
            return None
        inputs = self.example(length=min(self.longest or 6, 6))
        before = self(**inputs)["out"]
        first = None
        with suppress(NotProvided):
            first = self.fresh().module
        idle = []
        for names in groups.values():
            other = self.twin()
            _forget(other.module, first)
            buffers = {name: one for name, one in other.module.named_buffers() if name in names}
            if not buffers:  # all are kept from the first call
                continue
            with torch.no_grad():
                for buffer in buffers.values():
                    noise = torch.randn(buffer.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
                    buffer.add_(noise.to(buffer.dtype))
            if np.array_equal(before, other(**inputs)["out"]):
                idle.append(names[0])
        return idle

    def position_parts(self: WholeModel) -> list[str]:  # type: ignore[misc]
        """The paths of what is called after positions: parameters, buffers and parts."""
        stored = [n for n, _ in (*self.module.named_parameters(), *self.module.named_buffers())]
        parts = [
            path
            for path, part in self.module.named_modules()
            if path and _POSITIONS.search(type(part).__name__.lower())
        ]
        return [*parts, *(name for name in stored if _POSITIONS.search(name.lower()))]

    def load_state_of(self: WholeModel, other: WholeModel) -> list[str]:  # type: ignore[misc]
        """Load another model's state dict; the names of tensors that differ all the same."""
        self.module.load_state_dict(copy.deepcopy(other.module.state_dict()))
        return [
            name
            for name, mine in _plain_tensors(self.module)
            if (theirs := dict(_plain_tensors(other.module)).get(name)) is not None and not torch.equal(mine, theirs)
        ]

    def changed_inputs(self: WholeModel, inputs: Arrays) -> list[str]:  # type: ignore[misc]
        """The inputs that a call changes in place."""
        given = self.tensors(inputs)
        before = {name: value.clone() for name, value in given.items() if isinstance(value, Tensor)}
        with self.mode(False), torch.no_grad(), default_dtype(self.torch_dtype):
            self.calling(self.module, given)
        return [name for name, value in before.items() if not torch.equal(value, given[name])]

    def in_precision(self: WholeModel, name: str) -> WholeModel:  # type: ignore[misc]
        """A copy that computes in "float32", "bfloat16", ..."""
        return self.twin(getattr(torch, name))


def _is_mask(buffer: Tensor) -> bool:
    """Whether it has two values at most, or is a triangle of a fill value: a mask."""
    return buffer.unique().numel() <= 2


def _plain_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors that parts hold as plain attributes, in lists too."""
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name.startswith("_"):
                continue
            held = value if isinstance(value, (list, tuple)) else [value]
            for item in held:
                if isinstance(item, Tensor):
                    yield f"{path}.{name}".lstrip("."), item
                elif isinstance(item, nn.Module) and item not in list(part.children()):
                    for inner, tensor in item.named_parameters():
                        yield f"{path}.{name}.{inner}".lstrip("."), tensor


def _forget(module: nn.Module, first: nn.Module | None) -> None:
    """Take out of a module what its first call made and kept: tables, and numbers that say how long they are. A new
    module has none of these yet."""
    new = dict(first.named_modules()) if first is not None else {}
    for path, part in module.named_modules():
        for name, buffer in (new[path]._buffers if path in new else {}).items():
            if buffer is None and name in part._buffers:
                part._buffers[name] = None
        for name, value in (vars(new[path]) if path in new else {}).items():
            if (value is None or type(value) is int) and name in vars(part):
                setattr(part, name, value)
