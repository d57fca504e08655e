"""How published models make rotary positions reach further than they were trained: what divides each pair's speed.

`scaling` reads the table rope_parameters of a config.json: types default, linear (Chen et al. 2023), dynamic
(NTK-aware, by the length of the text), llama3, yarn (Peng et al. 2023) and longrope (Ding et al. 2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from reprlib import repr as short
from typing import Any

import numpy as np

from transformer.models.family import CheckpointError
from transformer.positions import interpolation_by_wavelength

Divisors = float | np.ndarray | Callable[[int], np.ndarray]  # the last: of a text of so many tokens
ROPE_NUMBERS = {  # what rope_parameters of each type must say
    "default": ("rope_theta",),
    "linear": ("rope_theta", "factor"),
    "dynamic": ("rope_theta", "factor"),
    "llama3": ("rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("rope_theta", "factor", "original_max_position_embeddings"),
    "longrope": ("rope_theta", "original_max_position_embeddings"),
}


def scaling(parameters: Mapping[str, Any], d_rotary: int, max_len: int) -> tuple[Divisors, float]:
    """(what divides the speeds, by what cosines and sines are multiplied). Raises CheckpointError by name."""
    given = {"factor": 1.0, **parameters}
    kind = given.get("rope_type", given.get("type", "default"))
    if not isinstance(kind, str) or kind not in ROPE_NUMBERS:
        raise CheckpointError(f"config: RoPE of type {short(kind)} is not built here, only {', '.join(ROPE_NUMBERS)}")
    for name in ROPE_NUMBERS[kind]:
        number: Any = given.get(name)
        if type(number) not in (int, float) or not 0 < number < math.inf:
            raise CheckpointError(f"config: {name} of rope_parameters must be a number above 0, got {short(number)}")
    theta = given["rope_theta"]
    if kind == "linear":
        return float(given["factor"]), 1.0
    if kind == "dynamic":
        return _dynamic(d_rotary, float(given["factor"]), max_len), 1.0
    if kind == "llama3":
        return interpolation_by_wavelength(d_rotary, theta, *(given[name] for name in ROPE_NUMBERS[kind][1:])), 1.0
    if kind == "yarn":
        return _yarn(d_rotary, theta, given)
    return _long(d_rotary, given, max_len, parameters.get("factor")) if kind == "longrope" else (1.0, 1.0)


def reach(parameters: Mapping[str, Any], trained: int) -> int:
    """How many tokens a model reads that was trained on so many: those that dynamic scaling adds, too."""
    more = parameters.get("factor", 1.0) if parameters.get("rope_type") == "dynamic" else 1.0
    return int(trained * max(more, 1.0))


def _dynamic(d: int, factor: float, trained: int) -> Callable[[int], np.ndarray]:
    """A base that grows once the text is longer than what was trained on (NTK-aware)."""

    def divisors(length: int) -> np.ndarray:
        grown = factor * max(length, trained) / trained - (factor - 1)
        return grown ** (np.arange(0, d, 2) / max(d - 2, 1))

    return divisors


def _yarn(d: int, theta: float, given: Mapping[str, Any]) -> tuple[np.ndarray, float]:
    """Pairs that turn often keep their speed, those that turn seldom are slowed, between them a ramp of pairs."""
    factor, trained = float(given["factor"]), given["original_max_position_embeddings"]

    def pair(turns: float) -> float:
        return d * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair(given.get("beta_fast") or 32), pair(given.get("beta_slow") or 1)
    if given.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    kept = 1 - np.clip((np.arange(d // 2) - low) / (high - low if high != low else 0.001), 0, 1)

    one, every = given.get("mscale"), given.get("mscale_all_dim")
    usual = magnitude(factor, one) / magnitude(factor, every) if one and every else magnitude(factor, 1.0)
    found = given.get("attention_factor")
    return 1.0 / ((1 - kept) / factor + kept), float(usual if found is None else found)


def magnitude(factor: float, scale: float) -> float:
    """How much larger scores become for texts that are `factor` times as long (Peng et al. 2023, section 3.4)."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _long(d: int, given: Mapping[str, Any], max_len: int, factor: Any) -> tuple[Callable[[int], np.ndarray], float]:
    """A divisor for each pair, of two lists: for texts as long as those trained on, and for longer ones."""
    lists: list[np.ndarray] = []
    for name in ("short_factor", "long_factor"):
        numbers = given.get(name)
        if not isinstance(numbers, list) or len(numbers) != d // 2 or not all(
            type(n) in (int, float) and 0 < n < math.inf for n in numbers
        ):  # fmt: skip
            raise CheckpointError(f"config: {name} of rope_parameters must be {d // 2} numbers above 0")
        lists.append(np.array(numbers, np.float64))
    trained = given["original_max_position_embeddings"]
    factor = max_len / trained if factor is None else factor
    usual = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(trained))
    found = given.get("attention_factor")
    return lambda length: lists[length > trained], float(usual if found is None else found)
