"""Published checkpoints: a folder with config.json and model.safetensors, as the library `transformers` writes it.

`load(folder)` builds the model that config.json describes, with the weights; `save(model, folder)` writes one that
`transformers` reads. Large weights may be spread over several files (model.safetensors.index.json).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import Tensor, dtypes, nn
from minigrad.files import write_atomically
from minigrad.io import FormatError, load_file, release, save_file
from transformer.models.bart import Bart
from transformer.models.bert import Bert
from transformer.models.deepseek_v2 import DeepseekV2
from transformer.models.distilbert import DistilBert
from transformer.models.family import CheckpointError, Config, Family, Name
from transformer.models.gemma import Gemma
from transformer.models.gemma2 import Gemma2
from transformer.models.gpt2 import GPT2
from transformer.models.gpt_neox import GPTNeoX
from transformer.models.llama import Llama
from transformer.models.marian import Marian
from transformer.models.mistral import Mistral
from transformer.models.mixtral import Mixtral
from transformer.models.modernbert import ModernBert
from transformer.models.mt5 import MT5
from transformer.models.opt import OPT
from transformer.models.phi import Phi
from transformer.models.phi3 import Phi3
from transformer.models.qwen import Qwen2, Qwen3
from transformer.models.roberta import Roberta
from transformer.models.t5 import T5
from transformer.models.vit import ViT
from transformer.models.whisper import Whisper
from transformer.quantization import check_kind, matrices, quantize, stored_in
from transformer.quantization import replace as replace_matrices

FAMILIES: dict[str, type[Any]] = {
    family.config_class.model_type: family
    for family in (
        GPT2, OPT, GPTNeoX, Phi, Llama, Mistral, Mixtral, Qwen2, Qwen3, Phi3, Gemma, Gemma2, DeepseekV2,
        Bert, Roberta, DistilBert, ModernBert, T5, MT5, Bart, Marian, Whisper, ViT,
    )
}  # fmt: skip
STRIP = 32  # columns that are copied at a time
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
QUANTIZED, SCALE = "quantization_config", "_scale"
INT8: dict[str, Any] = {
    "quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
    "config_groups": {"group_0": {
        "targets": ["Linear"], "format": "int-quantized", "input_activations": None, "output_activations": None,
        "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
    }},
    "ignore": [], "kv_cache_scheme": None, "global_compression_ratio": None,
}  # fmt: skip
"""How a config.json says that matrices are int8, each row with a scale, and are computed in floats."""
OWN_INT8, BYTES = {**INT8, "quant_method": "int8-rows", "format": "int8-rows"}, "_int8"
"""The same of models that compressed-tensors would misread (tables of embeddings, matrices stored turned round): their
keys have another end, so that other libraries find no weights rather than wrong ones."""
_LAYOUTS = [(layout["quant_method"], layout["format"]) for layout in (INT8, OWN_INT8)]
Folder = str | os.PathLike[str]


def load(folder: Folder, dtype: np.dtype | None = None, weights: str | None = None) -> Any:
    """The model in `folder`, in evaluation mode; its parameters in `dtype`, in float32 unless given.

    weights: "int8" or "bfloat16", what its matrices are stored as (see `transformer.quantization`). A folder that
    holds int8 is loaded as int8.

    Parameters that the file has as they are here lie in its pages (see `minigrad.io.load_file`, mapped): they cost
    memory when they are looked at, and their own memory when they are changed. Others are copied one by one.
    Raises ValueError for another kind of weights, or for a dtype beside them that is not float32. Raises
    CheckpointError where files are missing, broken or of an unknown model type, a setting is not supported, keys or
    shapes of the weights are not those that config.json asks for, or values cannot be stored as `weights`.
    """
    if weights is not None:
        check_kind(weights)
        if dtype is not None and dtype != mg.float32:
            raise ValueError(
                f"weights in {weights} are computed in float32, not in {dtypes.name(dtype)}: leave one out"
            )
    folder = Path(folder)
    family, config, arguments = _described(folder)
    arrays, scales = _apart(family, config, _read_weights(folder), folder)
    if scales and weights == "bfloat16":
        raise ValueError(f"{folder} holds int8 already: leave out the weights, or load the folder that it was made of")
    if scales and dtype is not None and dtype != mg.float32:
        raise ValueError(f"{folder} holds int8, which is computed in float32, not in {dtypes.name(dtype)}")
    _check_sizes(family, config, arrays, folder)
    dtype = mg.float32 if dtype is None else dtype
    model = _made(family, config, arguments, folder).to(dtype)
    if getattr(config, "tie_word_embeddings", False) and _differ(model, arrays):  # as files of T5 1.1 do
        model = _made(family, replace(config, tie_word_embeddings=False), arguments, folder).to(dtype)
    if scales:
        _fill_stored(model, arrays, scales, folder)
        return model
    stored = matrices(model) if weights is not None else []
    _fill(model, _own_values(model, arrays, folder), {id(matrix) for matrix in stored})
    if weights is not None:
        read = [matrix.detach().numpy() for matrix in stored]
        try:
            quantize(model, weights)
        except ValueError as error:
            raise CheckpointError(f"{folder}: {error}") from None
        for array in read:
            release(array)
    return model


def without_weights(folder: Folder) -> Any:
    """The model that config.json describes, in evaluation mode and in float32, with parameters that hold anything.

    Raises CheckpointError where config.json is missing or cannot be used.
    """
    return _made(*_described(Path(folder)), Path(folder))


def _described(folder: Path) -> tuple[type[Any], Any, Mapping[str, Any]]:
    """The family, its configuration, and the arguments beside it that config.json names."""
    settings = _read_json(folder / CONFIG)
    family, arguments = _family(settings)
    return family, family.config_class.from_dict(settings), arguments


def _made(family: type[Any], config: Any, arguments: Mapping[str, Any], folder: Path) -> Any:
    try:
        with nn.init.skipped():
            return family(config, **arguments).eval()
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from None


def _fill(model: Any, values: Mapping[str, np.ndarray], halves: Container[int]) -> None:
    """Put the values into the model, whose memory they become where they lie in the right order and precision.

    halves: ids of the tensors that may be bfloat16 where the file is.
    """
    own, filled = _tensors(model), set()
    for name, value in values.items():
        tensor = own[name]
        if value.dtype.kind in "iub":
            raise CheckpointError(f"the weights of {name} are {value.dtype.name} without a scale: they are not known")
        if id(tensor) in filled:
            continue
        filled.add(id(tensor))
        fits = value.dtype == tensor.dtype or (value.dtype == mg.bfloat16 and id(tensor) in halves)
        if fits and value.flags.c_contiguous and value.flags.writeable:
            tensor.data = mg.from_numpy(value, tensor.device)
            continue
        target = tensor.detach().numpy()
        step = max(1, STRIP if value.ndim > 1 else value.size)
        for first in range(0, value.shape[-1] if value.ndim else 1, step):  # a transpose in strips: twice as fast
            target[..., first : first + step] = value[..., first : first + step]
        release(value)


def _fill_stored(model: Any, arrays: Mapping[str, np.ndarray], scales: Mapping[str, np.ndarray], folder: Path) -> None:
    """Put the values of a folder that holds int8 into the model, whose matrices lie in the file's pages."""
    values, own = _own_values(model, arrays, folder), _tensors(model)
    rows: dict[str, np.ndarray] = {}
    for rule in _rules(model):
        if rule.theirs in scales:
            shapes = [(own[name].shape[0], 1) for name in rule.ours]
            key = f"{rule.theirs}{SCALE}"
            _check_shape(key, scales[rule.theirs], rule.stored_shape(shapes), folder)
            if arrays[rule.theirs].dtype != np.int8 or not np.isfinite(scales[rule.theirs]).all():
                raise CheckpointError(f"{folder}: {key} and its matrix are no int8 rows with finite scales")
            rows.update(zip(rule.ours, rule.split(scales[rule.theirs], shapes), strict=True))
    named = {rule.theirs for rule in _rules(model)}
    unknown = [f"{key}{SCALE}" for key in scales if key not in named]
    if unknown:
        raise CheckpointError(f"{folder}: the weights have {_some(unknown)}, of which config.json says nothing")
    made = {
        id(own[name]): nn.Stored.of(
            mg.from_numpy(np.ascontiguousarray(values[name])),
            mg.from_numpy(np.ascontiguousarray(rows[name].reshape(-1), np.float32)),
        )
        for name in rows
    }
    _fill(model, {name: value for name, value in values.items() if id(own[name]) not in made}, ())
    replace_matrices(model, made)


def generation(folder: Folder) -> dict[str, Any]:
    """What a folder says about how its model writes (generation_config.json), empty where it says nothing."""
    path = Path(folder) / "generation_config.json"
    return _read_json(path) if path.is_file() else {}


def save(model: Any, folder: Folder) -> None:
    """Write config.json and model.safetensors; a crash leaves each file as it was or as it shall be.

    Weights in fewer bytes are saved as they are stored: bfloat16, or int8 with the scales of its rows (INT8, OWN_INT8).
    Raises TypeError for a model that is none of FAMILIES.
    """
    if not isinstance(model, Family) or not isinstance(model, nn.Module):
        raise TypeError(f"only models of the families {', '.join(FAMILIES)} are saved so, got {type(model).__name__}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    own = _tensors(model)
    arrays = stored_arrays(model, {name: tensor.detach().numpy() for name, tensor in own.items()})
    scales = {name: matrix.scales.numpy()[:, None] for name, matrix in stored_in(model).items()
              if matrix.scales is not None}  # fmt: skip
    for key, array in stored_arrays(model, scales).items():
        arrays[f"{key}{SCALE}"] = array
        if _int8_layout(model) is OWN_INT8:
            arrays[f"{key}{BYTES}"] = arrays.pop(key)
    save_file(arrays, folder / WEIGHTS, {"format": "pt"})
    save_settings(model, folder)


def save_settings(model: Any, folder: Folder) -> None:
    """Write config.json, whole or not at all, into a folder that there is."""
    settings = model.config.to_dict()
    settings["architectures"] = [model.architecture()]
    kept = stored_in(model).values()
    in_int8 = any(matrix.scales is not None for matrix in kept)
    half = bool(kept) and not in_int8
    settings["dtype"] = "bfloat16" if half else "float32" if kept else dtypes.name(next(model.parameters()).dtype)
    for name in ("torch_dtype", QUANTIZED):
        settings.pop(name, None)
    if in_int8:
        settings[QUANTIZED] = _int8_layout(model)
    write_atomically(Path(folder) / CONFIG, [(json.dumps(settings, indent=2, sort_keys=True) + "\n").encode()])


def _int8_layout(model: Any) -> dict[str, Any]:
    """What config.json says of a model in int8: INT8 where compressed-tensors reads it, too."""
    kept = stored_in(model)
    turned = any(rule.transposed and rule.ours[0] in kept for rule in _rules(model))
    tables = any(isinstance(module, nn.StoredEmbedding) for module in model.modules())
    return OWN_INT8 if turned or tables else INT8


def stored_arrays(model: Any, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Values by our names (parameters, or their gradients) as a weights file has them, tied ones once."""
    own = _tensors(model)
    by_tensor = {id(own[name]): value for name, value in values.items()}
    stored: dict[str, np.ndarray] = {}
    seen: set[int] = set()
    for rule in _rules(model):
        tensors = [id(own[name]) for name in rule.ours]
        if tensors[0] not in seen and tensors[0] in by_tensor:
            stored[rule.theirs] = np.ascontiguousarray(rule.stored([by_tensor[each] for each in tensors]))
            seen.add(tensors[0])
    return stored


def _tensors(model: Any) -> dict[str, Tensor]:
    """Every parameter and buffer itself, a matrix as it is stored; a tied one under each of its names."""
    every = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    kept = {name: matrix.stored for name, matrix in stored_in(model).items()}
    return {name: tensor for name, tensor in every.items() if ".matrix." not in name} | kept


def _rules(model: Any) -> list[Name]:
    own, heads = list(_tensors(model)), getattr(model.config, "num_attention_heads", 1)
    return [concrete for name in model.names for concrete in name.concrete(own, heads)]


def _own_values(model: Any, arrays: Mapping[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """Our state dict out of the file's arrays. Raises CheckpointError for missing, unknown and misshapen keys."""
    own = _tensors(model)
    values: dict[str, np.ndarray] = {}
    used: set[str] = set()
    missing: dict[str, str] = {}
    for rule in _rules(model):
        shapes = [own[name].shape for name in rule.ours]
        key = model.found(rule.theirs, arrays)
        if key is not None:
            used.add(key)
            _check_shape(key, arrays[key], rule.stored_shape(shapes), folder)
            values.update(zip(rule.ours, rule.split(arrays[key], shapes), strict=True))
        elif rule.optional:
            values[rule.ours[0]] = own[rule.ours[0]].detach().numpy()
        else:
            missing[rule.ours[0]] = rule.theirs
    given = {id(own[name]) for name in values}
    absent = [theirs for ours, theirs in missing.items() if id(own[ours]) not in given]
    if absent:
        raise CheckpointError(f"{folder}: the weights have no {_some(absent)}, which config.json asks for")
    unknown = [key for key in arrays if key not in used and not model.ignores(key)]
    if unknown:
        raise CheckpointError(f"{folder}: the weights have {_some(unknown)}, of which config.json says nothing")
    return values


def _check_shape(key: str, array: np.ndarray, expected: tuple[int, ...], folder: Path) -> None:
    if array.shape != expected:
        raise CheckpointError(
            f"{folder}: {key} has shape {list(array.shape)} in the weights, config.json asks for {list(expected)}"
        )


def _some(keys: list[str]) -> str:
    return ", ".join(sorted(keys)[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _family(settings: Mapping[str, Any]) -> tuple[type[Any], Mapping[str, Any]]:
    """The model class that a configuration names, and the arguments beside the configuration."""
    kind = settings.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise CheckpointError(f"config: model_type {short(kind)} is not known here, only {', '.join(FAMILIES)}")
    family = FAMILIES[kind]
    named = settings.get("architectures") or [next(iter(family.architectures))]
    if not isinstance(named, list) or not isinstance(named[0], str) or named[0] not in family.architectures:
        raise CheckpointError(
            f"config: architectures {short(named)} of {kind} are not built here, only {', '.join(family.architectures)}"
        )
    return family, family.architectures[named[0]]


def _check_sizes(family: type[Family], config: Config, arrays: Mapping[str, np.ndarray], folder: Path) -> None:
    """Does the file have what the configuration says? Asked before a model of that size is built."""
    for key, expected in config.shapes().items():
        there = family.found(key, arrays)
        if there is None:
            raise CheckpointError(f"{folder}: the weights have no {key}, which config.json asks for")
        _check_shape(there, arrays[there], expected, folder)


def _differ(model: Any, arrays: Mapping[str, np.ndarray]) -> bool:
    """Has the file different values for two names of one tensor of ours?"""
    own = _tensors(model)
    first: dict[int, np.ndarray] = {}
    return any(
        not np.array_equal(first.setdefault(id(own[rule.ours[0]]), arrays[rule.theirs]), arrays[rule.theirs])
        for rule in _rules(model)
        if len(rule.ours) == 1 and rule.theirs in arrays
    )


# --- files ----------------------------------------------------------------------------------------


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: a checkpoint is a folder with {CONFIG} and {WEIGHTS}") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror})") from None
    except RecursionError:
        raise CheckpointError(f"{path} is nested too deeply") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is not a table of settings")
    return content


def _read_weights(folder: Path) -> dict[str, np.ndarray]:
    """Every tensor of a checkpoint, from one file or from all that the index names."""
    if (folder / WEIGHTS).is_file() or not (folder / INDEX).is_file():
        return _read_tensors(folder / WEIGHTS)
    places = _read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(_is_plain(name) for name in places.values()):
        raise CheckpointError(f"{folder / INDEX} does not say which file in its folder has which tensor")
    arrays: dict[str, np.ndarray] = {}
    for name in sorted(set(places.values())):
        arrays.update(_read_tensors(folder / name))
    lost = [key for key in places if key not in arrays]
    if lost:
        raise CheckpointError(f"{folder}: the files have no {_some(lost)}, which the index promises")
    return arrays


def _is_plain(name: Any) -> bool:
    """Is it the name of a file in the same folder, and not a path out of it?"""
    return isinstance(name, str) and name.endswith(".safetensors") and not re.search(r"[/\\\0]|^\.", name)


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    try:
        return {key: tensor.numpy() for key, tensor in load_file(path, mapped=True).items()}
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing (weights as a pickle, pytorch_model.bin, are not read)") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror})") from None
    except FormatError as error:
        raise CheckpointError(str(error)) from None


def _apart(
    family: type[Family], config: Config, arrays: Mapping[str, np.ndarray], folder: Path
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The arrays, and the scales of those that are int8, under the keys of the family's names."""
    given = config.extra.get(QUANTIZED)
    if given is None:
        return _canonical(family, arrays, folder), {}
    if not isinstance(given, dict) or (given.get("quant_method"), given.get("format")) not in _LAYOUTS:
        found = given.get("quant_method") if isinstance(given, dict) else given
        raise CheckpointError(
            f"{folder / CONFIG}: weights quantized by {short(found)} are not read here, only those in the format "
            f"{INT8['format']} of {INT8['quant_method']}, or what is not quantized"
        )
    scales = {key.removesuffix(SCALE): array for key, array in arrays.items() if key.endswith(SCALE)}
    rest = {key.removesuffix(BYTES): array for key, array in arrays.items() if not key.endswith(SCALE)}
    return _canonical(family, rest, folder), _canonical(family, scales, folder)


def _canonical(family: type[Family], arrays: Mapping[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """The arrays under the keys of the family's names. Raises CheckpointError where two that are one key differ."""
    found: dict[str, np.ndarray] = {}
    for key, array in arrays.items():
        name = family.canonical(key)
        if name in found and not np.array_equal(found[name], array):
            raise CheckpointError(f"{folder}: {key} and {name} should be one tensor, and their values differ")
        found[name] = array
    return found
