"""Checkpoints: all that the next step depends on, in one file that is written whole or not at all.

Tensors are `model.NAME`, `optimizer.INDEX.NAME` (INDEX counts parameters over the groups) and `random`, the state of
the default generator; the metadata's "training" is JSON with the step, the loss scale and whatever the caller adds.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import minigrad as mg
from minigrad.io import FormatError, load_file, load_metadata, save_file
from minigrad.random import default_generator
from minigrad.tensor import Tensor
from transformer.training.optimise import Updater

FILE = "checkpoint.safetensors"
_PLACE = re.compile(r"optimizer\.(\d+)\.(\w+)")
_STATE = {"step", "exp_avg", "exp_avg_sq"}  # of AdamW, for a parameter that it has updated


def save(folder: Path, updater: Updater, step: int, notes: dict[str, Any]) -> None:
    """Write folder/checkpoint.safetensors: the state after `step` updates. A crash leaves the last one or this one."""
    tensors: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in updater.weights().items()}
    for index, state in updater.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in state.items()}
    tensors["random"] = default_generator.get_state()
    scale = {"value": updater.scale.value, "good_steps": updater.scale.good_steps}
    save_file(tensors, folder / FILE, {"training": json.dumps({**notes, "step": step, "scale": scale})})


def clean(folder: Path) -> None:
    """Remove what a killed process was writing."""
    for unfinished in folder.glob(".*.tmp"):
        unfinished.unlink(missing_ok=True)


def notes(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a checkpoint (its file or its folder) says of itself.

    Raises FileNotFoundError where there is none, FormatError for a file that is none.
    """
    file = locate(path)
    text = load_metadata(file).get("training")
    if text is None:
        raise FormatError(f"{file} holds tensors but no training: it was not written by `python -m transformer train`")
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or type(found.get("step")) is not int or found["step"] < 0:
        raise FormatError(f"{file}: what it says of its training cannot be read")
    return found


def locate(path: str | os.PathLike[str]) -> Path:
    """The checkpoint's file, given the file or its folder. Raises FileNotFoundError."""
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no checkpoint {file}: train one with `python -m transformer train`")
    return file


def model_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The weights of a checkpoint by the model's names."""
    return {n.removeprefix("model."): t for n, t in load_file(locate(path)).items() if n.startswith("model.")}


def restore(folder: Path, updater: Updater) -> int:
    """Continue where folder's checkpoint stands; returns its step. Raises ValueError if it does not fit, FormatError
    for one that lacks something."""
    found = notes(folder)
    tensors = load_file(folder / FILE)
    updater.load_weights({n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")})
    groups = updater.optimizer.state_dict()["param_groups"]
    count = sum(len(group["params"]) for group in groups)
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            place = _PLACE.fullmatch(name)
            if place is None or int(place[1]) >= count:
                raise FormatError(f"{folder / FILE}: {name} is no state of an optimizer of {count} parameters")
            state.setdefault(int(place[1]), {})[place[2]] = tensor
    scale = found.get("scale")
    updated = bool(state) or found["step"] == 0 or bool(updater.masters)  # steps in half precision may all overflow
    whole = updated and all(values.keys() == _STATE for values in state.values())
    if not whole or "random" not in tensors or not isinstance(scale, dict) or scale.keys() != {"value", "good_steps"}:
        raise FormatError(f"{folder / FILE} is not whole: it lacks a part of what the next step depends on")
    updater.optimizer.load_state_dict({"state": state, "param_groups": groups})
    updater.scale.value, updater.scale.good_steps = scale["value"], scale["good_steps"]
    with mg.no_grad():
        default_generator.set_state(tensors["random"])
    return found["step"]
