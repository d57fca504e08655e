"""What a model keeps: tables of numbers that change nothing, what a state dict forgets, and what a call changes."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import default_dtype, quiet_evaluation
from conformance.adapters.whole.class_source import read_for_some_arguments
from conformance.adapters.whole.entries import is_for_another_method
from conformance.adapters.whole.length_probes import LengthProbes
from conformance.adapters.whole.record import written_by
from conformance.adapters.whole.running import RunningModel
from conformance.adapters.whole.used_functions import text_of
from conformance.adapters.whole.watching import Watching, user_line
from conformance.protocol import Array, Arrays, NotProvided


class StateProbes(LengthProbes):
    """What is kept, of a running model."""

    def idle_buffers(self) -> list[str] | None:
        """Parts all of whose tables of numbers change nothing; None when there are no tables. Triangles are masks,
        what a call changes is a cache, and one table may be made from another of the same part."""
        groups: dict[str, list[str]] = {}
        used = self.twin()
        ran: set[str] = set()
        for path, part in used.module.named_modules():
            part.register_forward_pre_hook(lambda _part, _given, path=path: ran.add(path))
        used(**self.example(seed=3))
        is_method = "forward" in vars(self.module)  # one side of several: the others keep tables of their own
        after, filled = dict(used.module.named_buffers()), self._filled_by_a_call()
        for name, buffer in self.module.named_buffers():
            if buffer.layout is not torch.strided or name in filled or not torch.equal(buffer, after[name]):
                continue
            numbers = buffer.is_floating_point() and buffer.numel() > 1 and bool(buffer.isfinite().all())
            if (
                numbers
                and bool((buffer != 0).any())
                and not _is_mask(buffer)
                and not _is_kept_beside(self.module, name, buffer)
                and not is_for_another_method(self.module, name)
                and not (is_method and name.rpartition(".")[0] not in {*ran, ""})
                and not self._is_for_some_arguments(name)
            ):
                groups.setdefault(name.rpartition(".")[0], []).append(name)
        if not groups:
            return None
        inputs = self.example(length=min(self.longest or 6, 6))
        before = _everything(self, inputs)
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
            after_noise = _everything(other, inputs)
            if all(np.array_equal(one, again) for one, again in zip(before, after_noise, strict=True)):
                idle.append(names[0])
        return idle

    def _is_for_some_arguments(self, name: str) -> bool:
        path, _, own = name.rpartition(".")
        cls: type = type(self.module.get_submodule(path))
        return own in read_for_some_arguments(cls, sizes_count=False)

    def _filled_by_a_call(self) -> set[str]:
        """The tables whose numbers the first call of a new model changes."""
        with suppress(Exception):
            new = self.fresh()
            before = {name: buffer.clone() for name, buffer in new.module.named_buffers()}
            new(**self.example(seed=3))
            after = dict(new.module.named_buffers())
            return {
                name
                for name, one in before.items()
                if name in after and one.shape == after[name].shape and not torch.equal(one, after[name])
            }
        return set()

    def load_state_of(self, other: RunningModel) -> list[str]:
        """Load another model's state dict; the names of tensors that differ all the same."""
        self.module.load_state_dict(copy.deepcopy(other.module.state_dict()))
        return [
            name
            for name, mine in _plain_tensors(self.module)
            if (theirs := dict(_plain_tensors(other.module)).get(name)) is not None and not torch.equal(mine, theirs)
        ]

    def changed_inputs(self, inputs: Arrays) -> dict[str, str]:
        """The inputs that a call changes in place, with the user's line that writes first; "" where none is seen."""
        given = {name: value for name, value in self.tensors(inputs).items() if isinstance(value, Tensor)}
        before = {name: value.clone() for name, value in given.items()}
        with self.mode(False), torch.no_grad(), default_dtype(self.torch_dtype), _FirstWrites(given.values()) as writes:
            self.calling(self.module, {**self.tensors(inputs), **given})
        changed = {name: given[name] for name, value in before.items() if not torch.equal(value, given[name])}
        return {name: writes.lines.get(_memory(value), "") for name, value in changed.items()}


class _FirstWrites(Watching):
    """The user's line that writes first into the memory of each of some tensors."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        super().__init__()
        self.lines: dict[int, str] = {}
        self._watched = set(map(_memory, tensors))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for memory in self._watched.intersection(map(_memory, written_by(func, args, kwargs or {}))):
            self.lines.setdefault(memory, user_line())
        return func(*args, **(kwargs or {}))


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _is_kept_beside(module: nn.Module, name: str, buffer: Tensor) -> bool:
    """Whether its part keeps the same numbers under another name, too, and its forward reads them there."""
    part = module.get_submodule(name.rpartition(".")[0])
    text = text_of(type(part).forward)
    return any(
        isinstance(one, Tensor)
        and one.shape == buffer.shape
        and torch.allclose(one.to(buffer.dtype), buffer)
        and re.search(rf"\bself\.{other}\b", text) is not None
        for other, one in vars(part).items()
    )


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


def _everything(subject: RunningModel, inputs: Arrays) -> list[Array]:
    """All numbers that a call gives: the answer, and losses beside it."""
    with quiet_evaluation(subject.module), default_dtype(subject.torch_dtype):
        result = subject.run(inputs)
    given = [result["out"], *tensors_in(result["result"])]
    return [to_array(one.detach().double()) for one in given if isinstance(one, torch.Tensor) and one.numel()]
