"""Trained weights from a file (`load_weights`), and another device than the CPU (`placed`)."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.stated import StatedError
from conformance.places import innermost_line

_HOLDERS = ("state_dict", "model_state_dict", "model", "module")
"""Under which name a training script keeps the state dict, beside its optimizer's and others."""
_PREFIXES = ("module.", "_orig_mod.", "model.")
"""What wrappers put before every name: data parallel, torch.compile, Lightning."""
_OF_EVERY_MODULE = vars(nn.Module()).keys()
"""The attributes of every module."""


def load_weights(module: nn.Module, file: str) -> None:
    """Load a state dict (safetensors, or torch.save's) into a module. Raises StatedError when it is none, or does not
    fit. Nothing that the file holds is run."""
    found = _state_dict(_read(file), module)
    if found is None:
        raise StatedError(f"--claims-weights {file}: it holds no state dict (a dict of names and tensors)")
    own = module.state_dict()
    wrong = [f"it has no {name}" for name in own if name not in found]
    wrong += [f"the model has no {name}" for name in found if name not in own]
    wrong += [
        f"{name} is {tuple(found[name].shape)} in the file and {tuple(value.shape)} in the model"
        for name, value in own.items()
        if name in found and found[name].shape != value.shape
    ]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise StatedError(
            f"--claims-weights {file} does not fit {type(module).__name__}: {wrong[0]}{more}; write the model's own "
            f"sizes out, as in --impl 'model.py:{type(module).__name__}(...)'"
        )
    module.load_state_dict(found)


def _read(file: str) -> Any:
    path = Path(file).expanduser()
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except ImportError as error:
        raise StatedError(f"--claims-weights {file}: safetensors is not installed; pip install safetensors") from error
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise StatedError(
            f"--claims-weights {file} cannot be read as safetensors or by torch.load(weights_only=True): {first}"
        ) from error


def _state_dict(values: Any, module: nn.Module) -> dict[str, Tensor] | None:
    """The state dict in what a file holds, without the prefixes of wrappers; None where there is none."""
    if not isinstance(values, Mapping):
        return None
    if not values or not all(isinstance(value, Tensor) for value in values.values()):
        inner = (values[name] for name in _HOLDERS if name in values)
        return next((found for value in inner if (found := _state_dict(value, module)) is not None), None)
    found = dict(values)
    for prefix in _PREFIXES:
        has = any(name.startswith(prefix) for name in module.state_dict())
        if not has and all(name.startswith(prefix) for name in found):
            found = {name.removeprefix(prefix): value for name, value in found.items()}
    return found


def check_device(device: str) -> None:
    """Raises StatedError when this machine has no such device."""
    asked = torch.device(device or "cpu")
    if asked.type == "cpu":
        return
    devices = torch.get_device_module(asked)
    if not devices.is_available():
        raise StatedError(f"--claims-device {device}: PyTorch finds no CUDA GPU here; leave it out to test on the CPU")
    if asked.index is not None and asked.index >= devices.device_count():
        raise StatedError(f"--claims-device {device}: this machine has only {devices.device_count()} GPUs, from cuda:0")


def check_placed(module: nn.Module, device: str, run: Callable[[], Any]) -> None:
    """Raises StatedError when `run`, which calls the new module, fails on a device where `.to(device)` alone brought
    the module: what it holds besides parameters and buffers stayed behind, or it makes tensors on the CPU."""
    try:
        with placed(module, device, held=False):
            run()
    except Exception as error:
        raise StatedError(
            f"--claims-device {device}: {type(module).__name__} runs on the CPU and not there: {type(error).__name__}: "
            f"{' '.join(str(error).split())} at {innermost_line(error)}"
        ) from error


@contextmanager
def placed(module: nn.Module, device: str, held: bool = True) -> Iterator[None]:
    """The module is on a device inside, and is called as if it were on the CPU: what comes in is moved there, what
    comes out is moved back. held: so are tensors that it holds as plain attributes, as a run before may have left."""
    if device in ("", "cpu"):
        yield
        return
    hooks = [
        module.register_forward_pre_hook(
            lambda _, args, words: (moved_to(args, device), moved_to(words, device)), with_kwargs=True
        ),
        module.register_forward_hook(lambda _, __, result: moved_to(result, "cpu")),
    ]
    try:
        _move(module, device, held)
        yield
    finally:
        for hook in hooks:
            hook.remove()
        _move(module, "cpu", held=True)


def _move(module: nn.Module, device: str, held: bool) -> None:
    module.to(device)
    for part in module.modules() if held else ():
        own = vars(part)
        for name in own.keys() - _OF_EVERY_MODULE:
            if any(True for _ in tensors_in(own[name])):
                own[name] = moved_to(own[name], device)


def moved_to(value: Any, device: str) -> Any:
    """The value with every tensor in it on the device: in tuples, lists, dicts, and the outputs of libraries."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        items = [moved_to(item, device) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [moved_to(item, device) for item in value]
    if isinstance(value, dict):
        for name in list(value):
            value[name] = moved_to(value[name], device)
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        there = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(there, field.name, moved_to(getattr(value, field.name), device))  # it may be frozen
        return there
    return value
