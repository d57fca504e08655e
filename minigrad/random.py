"""Random numbers: Philox4x32-10 (Salmon et al. 2011), counter based, so that CPU, GPU and replays agree.

A `Generator` is a seed and an offset, kept in a tensor of two int64; every draw takes the next counters. The i-th
32-bit word of a draw is word i mod 4 of the Philox block at counter offset + i // 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad import dtypes, forks
from minigrad.kernels import usable
from minigrad.ops import elementwise, rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.copies import placed
from minigrad.ops.derivation import derive
from minigrad.ops.expression import Symbol
from minigrad.ops.operands import cast, pair
from minigrad.ops.registry import Array, Refusal, op
from minigrad.ops.rules import sizes
from minigrad.ops.selection import where
from minigrad.state import eagerly, state
from minigrad.tensor import Tensor

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
_WORD = 0xFFFFFFFF


def philox(seed: int, offset: int, count: int) -> Array:
    """`count` 32-bit words (uint32) of the stream `seed`, from the counter `offset` on."""
    blocks = -(-count // 4)
    counter = np.arange(offset, offset + blocks, dtype=np.uint64)
    c0, c1 = counter & _LOW, counter >> _SHIFT
    c2 = c3 = np.zeros_like(counter)
    k0, k1 = seed & _WORD, (seed >> 32) & _WORD
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (p1 >> _SHIFT) ^ c1 ^ np.uint64(k0), p1 & _LOW, (p0 >> _SHIFT) ^ c3 ^ np.uint64(k1), p0 & _LOW
        k0, k1 = (k0 + _W0) & _WORD, (k1 + _W1) & _WORD
    return np.stack([c0, c1, c2, c3], axis=1).reshape(-1)[:count].astype(np.uint32)


def _uniform(key: Array, *, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    count = int(np.prod(shape))
    words = philox(int(key[0]), int(key[1]), count)
    return ((words >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)).reshape(shape).astype(dtype)


uniform_op = op(
    "random_uniform",
    _uniform,
    shape=lambda metas, *, shape, dtype: [(shape, dtype)],
    flops=rules.per_element(20),
    samples=lambda rng: [((np.array([3, 5]),), {"shape": (2, 3), "dtype": dtypes.float32})],
    formula="uniform in [0, 1), multiples of 2^-24",
    source="Salmon et al. 2011",
    differentiable=False,
    exact_dtype=True,
    kernels={"cuda.random": "int64"},
    derivation=derive("drawn from a key, not computed from values: there is nothing to differentiate"),
)


def _start(seed: int) -> Array:
    return np.array([rules.integer(seed, "a seed") & 0x7FFFFFFFFFFFFFFF, 0], np.int64)


class Generator:
    """One stream of random numbers, drawn on any device: the n-th draw is the same wherever it is made.

    `state` is an int64 tensor (seed, offset). It lives where the last draw was made, and moves when another device
    draws: to a GPU without waiting for it, from there with. Give data that is drawn on the host beside a model on a
    GPU a generator of its own.
    """

    def __init__(self, seed: int = 0) -> None:
        self.lock = forks.lock()  # threads that share a generator never draw the same numbers
        self.state = Tensor(_start(seed))
        self._homes = {"cpu": self.state}  # device -> its state there: memory that compiled plans refer to

    def move(self, device: str) -> None:
        """Bring the state to `device`. Raises RuntimeError in a trace that has drawn elsewhere already."""
        if self.state.storage.device == device:
            return
        if self.state.storage.abstract:
            raise RuntimeError(
                f"a compiled step draws random numbers of one generator on {self.state.storage.device} and on "
                f"{device}: give each device a generator of its own"
            )
        with eagerly():  # where the state lives is no part of a traced step
            home = self._homes.get(device)
            if home is None:
                self._homes[device] = home = placed(_start(0), device)
            self.state = home.copy_(self.state)

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream `seed` from its beginning."""
        self.state.copy_(_start(seed))
        return self

    def initial_seed(self) -> int:
        return int(self.state[0])

    def get_state(self) -> Tensor:
        """A copy of (seed, offset), int64 ``(2,)``."""
        return self.state.clone()

    def set_state(self, value: Tensor) -> None:
        if value.array.shape != (2,) or value.array.dtype != np.int64:
            raise ValueError(
                f"a generator's state is int64 (2,), got {dtypes.name(value.array.dtype)}{list(value.array.shape)}"
            )
        self.state.copy_(value)

    def take(self, words: int, device: str = "cpu") -> Tensor:
        """The key, on `device`, of a draw of `words` 32-bit words; the stream moves past it."""
        if state.decomposing:
            raise RuntimeError(
                f"composite {state.decomposing} draws random numbers, but its derivative runs it again: "
                "draw them outside and pass them as an argument"
            )
        with self.lock:
            self.move(device)
            state.interpreter.draws(self, device)
            key = self.state.clone()
            self.state += placed(np.array([0, -(-words // 4)]), device)
        return key


default_generator = Generator(0)


def manual_seed(seed: int) -> Generator:
    """Seed the default generator."""
    return default_generator.manual_seed(seed)


def rand(
    *size: Any,
    generator: Generator | None = None,
    dtype: np.dtype | None = None,
    requires_grad: bool = False,
    device: str = "cpu",
) -> Tensor:
    """Uniform in [0, 1)."""
    shape = sizes(size)
    key = (generator or default_generator).take(int(np.prod(shape)), usable(device))
    return uniform_op(key, shape=shape, dtype=dtype or dtypes.DEFAULT).requires_grad_(requires_grad)


def randn(
    *size: Any,
    generator: Generator | None = None,
    dtype: np.dtype | None = None,
    requires_grad: bool = False,
    device: str = "cpu",
) -> Tensor:
    """Standard normal (Box-Muller on two uniforms)."""
    shape = sizes(size)
    pairs = rand(2, *shape, generator=generator, device=device)
    radius = elementwise.sqrt(-2.0 * elementwise.log1p(-pairs[0]))
    return cast(radius * elementwise.cos(2.0 * math.pi * pairs[1]), dtype=dtype or dtypes.DEFAULT).requires_grad_(
        requires_grad
    )


def rand_like(x: Tensor, dtype: np.dtype | None = None) -> Tensor:
    return rand(x.array.shape, dtype=dtype or x.array.dtype, device=x.storage.device)


def randn_like(x: Tensor, dtype: np.dtype | None = None) -> Tensor:
    return randn(x.array.shape, dtype=dtype or x.array.dtype, device=x.storage.device)


def randint(
    low: int,
    high: int | None = None,
    size: Sequence[int] = (),
    generator: Generator | None = None,
    device: str = "cpu",
) -> Tensor:
    """int64 in [low, high), or [0, low): each as likely as the others in ranges up to 2^48, of wider ones not every
    number is drawn. Raises ValueError for an empty range."""
    low = rules.integer(low, "randint: a bound")
    start, stop = (0, low) if high is None else (low, rules.integer(high, "randint: a bound"))
    if stop <= start:
        raise ValueError(f"randint: the range [{start}, {stop}) is empty")
    if stop - start <= 1 << 24:
        numbers = rand(*size, generator=generator, dtype=dtypes.float64, device=device)
    else:  # a word has 24 bits
        high_bits, low_bits = rand(2, *size, generator=generator, dtype=dtypes.float64, device=device)
        numbers = high_bits + 2.0**-24 * low_bits
    return cast(elementwise.floor(numbers * float(stop - start)), dtype=dtypes.int64) + start


def randperm(n: int, generator: Generator | None = None, device: str = "cpu") -> Tensor:
    """A random order of 0..n-1, int64."""
    return rand(n, generator=generator, device=device).argsort()


NO_PROBABILITY: Refusal = (ValueError, "bernoulli: probabilities must lie in [0, 1]")


def _bernoulli(drawn: Array, p: Array) -> Array:
    if not ((p >= 0) & (p <= 1)).all():
        error, sentence = NO_PROBABILITY
        raise error(sentence)
    return np.less(drawn, p).astype(p.dtype)


bernoulli_op = op(
    "bernoulli",
    _bernoulli,
    shape=rules.elementwise,
    flops=rules.per_element(1),
    samples=lambda rng: [((rng.random((3, 4)), rng.random((3, 4))), {})],
    formula="1 where drawn < p, else 0",
    differentiable=False,
    expression=lambda drawn, p: Symbol("bernoulli", (drawn, p)),
    refuses=NO_PROBABILITY,
    derivation=derive(
        "the result is 0 or 1 by a random draw: it has no rate of change, and no gradient flows through it"
    ),
)


def bernoulli(p: Tensor, generator: Generator | None = None) -> Tensor:
    """1 with probability `p`, elementwise, else 0, in the dtype of `p`. Raises ValueError for p outside [0, 1]."""
    drawn = rand(*p.array.shape, generator=generator, device=p.storage.device)
    return cast(bernoulli_op(*pair(drawn, p)), dtype=p.array.dtype)


def multinomial(
    weights: Tensor, num_samples: int, replacement: bool = False, generator: Generator | None = None
) -> Tensor:
    """int64 ``(..., num_samples)``: categories drawn with probability proportional to `weights` ``(..., V)``.

    Without replacement, by the exponential race (the order is that of draws). Weights on a GPU are taken to the host,
    which waits for them. Raises ValueError for negative, infinite
    or all-zero weights, and for more samples than categories with weight.
    """
    device = weights.storage.device
    if device != "cpu":
        return multinomial(weights.to("cpu"), num_samples, replacement, generator).to(device)
    w = weights.array
    if not dtypes.is_floating(w.dtype):
        raise TypeError(
            f"multinomial: weights must be floating, got {dtypes.name(w.dtype)}: convert them with .float()"
        )
    num_samples = rules.integer(num_samples, "multinomial: the number of samples")
    if num_samples < 1:
        raise ValueError(f"multinomial: the number of samples must be positive, got {num_samples}")
    if not weights.storage.abstract:
        if not np.isfinite(w).all() or (w < 0).any() or (w.sum(-1) <= 0).any():
            raise ValueError("multinomial: weights must be finite, not negative, and not all zero in a row")
        if not replacement and ((w > 0).sum(-1) < num_samples).any():
            raise ValueError(
                f"multinomial: {num_samples} samples without replacement need as many categories of weight > 0 "
                "in every row"
            )
    drawn = state.interpreter.categories(weights, num_samples, replacement)
    if drawn is not None:
        return drawn
    weights = cast(weights, dtype=dtypes.float64)
    if not replacement:
        races = elementwise.log1p(-rand(*w.shape, generator=generator, dtype=dtypes.float64)) / weights  # -Exp(weight)
        return where(weights > 0, races, float("-inf")).topk(num_samples, -1)[1]
    edges = weights.cumsum(-1)
    points = rand(*w.shape[:-1], num_samples, generator=generator, dtype=dtypes.float64) * edges[..., -1:]
    return (points.unsqueeze(-1) >= edges[..., None, :-1]).sum(-1)


expect_tensors(globals())
