"""The settings of a training run: one dataclass, of which options, TOML files and checkpoints are three spellings."""

from __future__ import annotations

import argparse
import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer.lora import AdaptSettings
from transformer.tasks import LONG_COPY, MASKED, MIXTURE, NAMES, TEXT, TRANSLATE, ModelSettings
from transformer.training import TrainSettings


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings, TrainSettings, AdaptSettings):
    """All that `train` can be told."""

    task: str

    def __post_init__(self) -> None:
        ModelSettings.__post_init__(self)
        TrainSettings.__post_init__(self)
        AdaptSettings.__post_init__(self)
        if self.precision != "float32" and (self.lora or self.frozen):
            raise ValueError(f"what is frozen keeps its digits in float32 only, got the precision {self.precision!r}")


# What serves each task, where it differs from the defaults of the classes above. Tried on two cores.
_SMALL = {"d_model": 64, "d_ff": 128, "dropout": 0.0, "max_len": 32}
DEFAULTS: dict[str, dict[str, Any]] = {
    "copy": {**_SMALL, "steps": 1000, "lr": 2e-3},
    "reverse": {**_SMALL, "steps": 1500, "lr": 2e-3},
    "sort": {**_SMALL, "steps": 4000, "lr": 2e-3},
    "addition": {**_SMALL, "steps": 2500, "size": 3},
    LONG_COPY: {"size": 30, "d_model": 96, "steps": 1000, "lr": 4e-3, "dropout": 0.0, "max_len": 32},
    TRANSLATE: {"steps": 2000, "vocab": 800, "max_len": 96, "batch_size": 32, "evaluate_every": 500},
    TEXT: {"steps": 1500, "lr": 2e-3, "dropout": 0.0, "batch_size": 16},
    MASKED: {"steps": 2500, "lr": 2e-3, "dropout": 0.0, "batch_size": 64, "max_len": 32},
    MIXTURE: {"steps": 1500, "lr": 2e-3, "dropout": 0.0, "batch_size": 16, "d_ff": 128},
}

HELP = {
    "steps": "updates of the weights",
    "lr": "learning rate at its peak",
    "warmup": "updates over which it rises",
    "schedule": "how it falls then: cosine, inverse-sqrt or constant",
    "weight_decay": "AdamW's decay of matrices",
    "beta2": "AdamW's second decay rate",
    "clip": "largest global norm of the gradients",
    "label_smoothing": "share of the target spread over all tokens",
    "accumulate": "pieces in which a batch is run",
    "precision": "float32, float16 or bfloat16 (half types with float32 master weights)",
    "compile": "replay the training step as a compiled plan",
    "seed": "of weights, data and dropout",
    "log_every": "updates between two log lines",
    "evaluate_every": "updates between two evaluations",
    "save_every": "updates between two checkpoints",
    "d_model": "width",
    "n_heads": "attention heads",
    "n_kv_heads": "key and value heads of the text model",
    "n_layers": "layers (of encoder and decoder each)",
    "d_ff": "width of the feed-forward networks",
    "dropout": "share of values dropped in training",
    "max_len": "longest sequence in tokens",
    "data": "one's own text to learn: a file, or a folder of .txt files (text, masked, mixture)",
    "patience": "evaluations without a better held-out loss after which training ends; 0 is never",
    "base": "a run of the same task, or a published model, from whose weights training begins",
    "lora": "rank of adapters, which are all that is trained then; 0 is none",
    "lora_alpha": "weight of the adapters, which is divided by their rank",
    "lora_layers": "names of the linear layers that get adapters, a regular expression",
    "frozen": "names of parameters that are not trained, a regular expression",
    "vocab": "tokens of the BPE vocabulary; 259 are bytes alone",
    "batch_size": "rows of a batch",
    "size": "letters of a word, digits of a number (synthetic tasks)",
    "source": "language that is read: en, de or zh (translate)",
    "target": "language that is written (translate)",
    "score": "how the decoder looks back: none, dot, general or additive (long-copy)",
    "mask_rate": "share of tokens that are hidden (masked)",
    "n_experts": "networks of a layer (mixture)",
    "experts_per_token": "of them, how many each token goes through (mixture)",
    "balance": "weight of the loss that keeps experts equally busy (mixture)",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """An option for every setting but the task; unset ones are absent from the parsed namespace."""
    for field in dataclasses.fields(Settings):
        if field.name == "task":
            continue
        option = "--" + field.name.replace("_", "-")
        if field.type == "bool":
            parser.add_argument(
                option, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=HELP[field.name]
            )
        else:
            kind = {"int": int, "float": float, "str": str}[str(field.type)]
            metavar = {"int": "N", "float": "X", "str": "NAME"}[str(field.type)]
            parser.add_argument(
                option, type=kind, default=argparse.SUPPRESS, metavar=metavar, help=f"{HELP[field.name]}"
            )


def collect(task: str | None, file: Mapping[str, Any], options: Mapping[str, Any]) -> Settings:
    """The task's defaults, overridden by a file's settings, overridden by options.

    Raises ValueError for no task, an unknown one, an unknown setting, and a value of the wrong type or out of range.
    """
    task = task or file.get("task")
    if task is None:
        raise ValueError(f"no task was given: name one of {', '.join(NAMES)}, or set task in the TOML file")
    if task not in NAMES:
        raise ValueError(f"there is no task {task!r}: the tasks are {', '.join(NAMES)}")
    given = {**DEFAULTS[task], **file, **options, "task": task}
    kinds = {field.name: str(field.type) for field in dataclasses.fields(Settings)}
    for name, value in given.items():
        if name not in kinds:
            raise ValueError(f"there is no setting {name!r}: the settings are {', '.join(sorted(kinds))}")
        allowed = ("int", "float") if kinds[name] == "float" else (kinds[name],)
        if type(value).__name__ not in allowed:
            raise ValueError(f"the setting {name} must be of type {kinds[name]}, got {value!r}")
    return Settings(**given)


def read_toml(path: Path) -> dict[str, Any]:
    """The settings of a TOML file. Raises ValueError for a file that is not TOML, FileNotFoundError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no settings file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None


def to_toml(settings: Settings) -> str:
    """The settings as a TOML file, which `read_toml` reads back."""
    lines = []
    for name, value in dataclasses.asdict(settings).items():
        text = (
            str(value).lower()
            if isinstance(value, bool)
            else json.dumps(value, ensure_ascii=False)
            if isinstance(value, str)
            else repr(value)
        )
        lines.append(f"{name} = {text}\n")
    return "".join(sorted(lines, key=lambda line: not line.startswith("task")))
