"""Where a check's inputs come from.

`Draw` names every value that it hands out, with a range to explore and a *pin*: the value of the first,
always-run example (and of shrunk ones: simple values lie near the pin's side of the range). Arrays come from a
seeded generator, so a failing example is described completely by its small named values.
"""

from __future__ import annotations

import builtins
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.random.bit_generator import ISeedSequence

Shape = tuple[int, ...]


class Source(Protocol):
    """Where choices come from: pinned values, a seeded generator, or hypothesis."""

    def integer(self, low: int, high: int, pin: int) -> int: ...


class Pinned:
    """The pinned example: every choice takes its pin."""

    def integer(self, low: int, high: int, pin: int) -> int:
        return pin


class Seeded:
    """Random choices from one seed: fast, no shrinking (mutant runs use it)."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def integer(self, low: int, high: int, pin: int) -> int:
        return int(self.generator.integers(low, high, endpoint=True))


class Recorded:
    """Another source whose `choices` are kept, for `Replayed`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.choices: list[int] = []

    def integer(self, low: int, high: int, pin: int) -> int:
        self.choices.append(self.source.integer(low, high, pin))
        return self.choices[-1]


class Replayed:
    """Choices made before, in their order. Raises IndexError when asked for more of them."""

    def __init__(self, choices: Sequence[int]) -> None:
        self.choices = list(reversed(choices))

    def integer(self, low: int, high: int, pin: int) -> int:
        return self.choices.pop()


class _Start(ISeedSequence):
    """What a seed and a name start a generator with. To mix it takes forty times as long as to make the generator, and
    each known mistake that a wrong answer is laid beside asks for the same ones."""

    def __init__(self, seed: int, name: str) -> None:
        self.words = np.random.SeedSequence([seed, zlib.crc32(name.encode())]).generate_state(4, np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        """As PCG64 asks for it: four words of 64 bits."""
        return self.words


_start = lru_cache(maxsize=1 << 12)(_Start)


class Draw:
    """One example's inputs. `values` records the named choices; `bitten` which preconditions held."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.values: dict[str, Any] = {}
        self.bitten: dict[str, bool] = {}
        self._seed: int | None = None

    def int(self, name: str, low: int, high: int, pin: int) -> int:
        """An integer in [low, high]."""
        value = self.source.integer(low, high, pin)
        self.values[name] = value
        return value

    def choice(self, name: str, options: Sequence[Any], pin: Any) -> Any:
        """One of `options`."""
        value = options[self.source.integer(0, len(options) - 1, list(options).index(pin))]
        self.values[name] = value
        return value

    def bool(self, name: str, pin: bool = False) -> bool:
        return bool(self.choice(name, (False, True), pin))

    def float(self, name: str, low: float, high: float, pin: float) -> builtins.float:
        """A number in [low, high], on a grid of 1000 steps (so that it can be printed and replayed)."""
        k = self.source.integer(0, 1000, -1)
        value = pin if k < 0 else low + (high - low) * k / 1000
        self.values[name] = value
        return value

    def rng(self, name: str) -> np.random.Generator:
        """A generator of its own for `name`: adding a draw never shifts another's numbers."""
        if self._seed is None:
            self._seed = self.int("seed", 0, 2**16, 0)
        return np.random.Generator(np.random.PCG64(_start(self._seed, name)))  # type: ignore[arg-type]

    def normal(self, name: str, shape: Sequence[builtins.int], scale: builtins.float = 1.0) -> np.ndarray:
        """Standard normal numbers times `scale`, float64."""
        return np.asarray(self.rng(name).standard_normal(tuple(shape)) * scale)

    def uniform(
        self, name: str, shape: Sequence[builtins.int], low: builtins.float = -1.0, high: builtins.float = 1.0
    ) -> np.ndarray:
        return np.asarray(self.rng(name).uniform(low, high, tuple(shape)))

    def integers(self, name: str, shape: Sequence[builtins.int], low: builtins.int, high: builtins.int) -> np.ndarray:
        """int64 numbers in [low, high)."""
        return self.rng(name).integers(low, high, tuple(shape), dtype=np.int64)

    def mask(self, name: str, shape: Sequence[builtins.int], visible: builtins.float = 0.6) -> np.ndarray:
        """A random bool mask whose every row (last axis) has at least one True, and where it can, one False."""
        rng = self.rng(name)
        mask = rng.random(tuple(shape)) < visible
        width = mask.shape[-1]
        if width:
            rows = mask.reshape(-1, width)
            at = rng.integers(0, width, len(rows))
            rows[np.arange(len(rows)), at] = True
            if width > 1:
                hide = (at + 1 + rng.integers(0, width - 1, len(rows))) % width
                rows[np.arange(len(rows)), hide] = False
        return mask

    def params(self, shapes: Mapping[str, Shape], scale: builtins.float | None = None) -> dict[str, np.ndarray]:
        """Random parameters for a role: matrices ~ N(0, 1/fan_in) (or `scale`), vectors N(0, 0.5) around 1 for
        ``*norm*.weight``; nothing is zero, one, or shared, so that a forgotten parameter shows."""
        arrays = {}
        for name, shape in shapes.items():
            spread = scale if scale is not None else (shape[-1] ** -0.5 if len(shape) > 1 else 0.5)
            arrays[name] = self.normal(f"params.{name}", shape, spread)
            if len(shape) == 1 and name.endswith("weight"):
                arrays[name] += 1.0
        return arrays

    def bites(self, condition: Any, what: str) -> None:
        """Say that the precondition `what` held in this example (a mask hid something, a cut happened).

        A claim whose precondition never held in any example is VACUOUS, not passed.
        """
        self.bitten[what] = self.bitten.get(what, False) or bool(condition)
