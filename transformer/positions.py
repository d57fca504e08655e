"""Where a token stands: codes added to embeddings, rotary positions (RoPE), and biases added to scores (ALiBi, T5).

Every module takes the `offset` of its first row, so that a decoder with a cache can go on where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import minigrad as mg
from minigrad import Tensor, nn
from minigrad import functional as F
from transformer.places import Start, Told, end, positions, rows

PAIRINGS = ("interleaved", "half")


def frequencies(d: int, base: float = 10000.0) -> np.ndarray:
    """base^(-2i/d) for the pairs i = 0, 1, ..., float64 ``((d + 1) // 2,)``."""
    return base ** (-np.arange(0, d, 2) / d)


def sinusoid(n: int, d_model: int, base: float = 10000.0) -> np.ndarray:
    """sin and cos of position times frequency side by side, float64 ``(n, d_model)``: the documents' PE matrix."""
    angles = np.multiply.outer(np.arange(n), frequencies(d_model, base))
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, -1)[:, :d_model]


class _Rows:
    """Rows of a float64 table of max_len rows as tensors of any dtype; made from `table(n)`, as many as were asked for.

    A constant, so in no state dict and untouched by Module.to.
    """

    def __init__(self, table: Callable[[int], np.ndarray], max_len: int) -> None:
        self.table, self.max_len = table, max_len
        self.tensors: dict[tuple[np.dtype, str], Tensor] = {}

    def take(self, start: Start, count: int, like: Tensor) -> Tensor:
        """Rows start .. start + count, in the dtype of `like` and where it is. Raises ValueError past the end."""
        needed = end(start, count)
        if needed > self.max_len:
            raise ValueError(
                f"positions up to {needed - 1} do not fit max_len {self.max_len}: "
                "shorten the input or build the model with a larger max_len"
            )
        key = like.dtype, like.device
        if key not in self.tensors or self.tensors[key].shape[0] < needed:
            size = min(self.max_len, 1 << max(needed, 64).bit_length())  # doubling: a long text makes few tables
            self.tensors[key] = mg.from_numpy(self.table(size).astype(like.dtype), like.device)
        if isinstance(start, int):  # here, where a trace finds the table's name
            return self.tensors[key][start:needed]
        return rows(self.tensors[key], start, count)


class SinusoidalPositions(nn.Module):
    """dropout(x + PE): x ``(B, T, d_model)`` (Vaswani et al. 2017, 3.5; document 000 section 2.6.2).

    layout: "interleaved" sets sin and cos of a frequency side by side (the paper), "half" all sin before all cos
    (Marian). Raises ValueError for another layout.
    """

    def __init__(self, d_model: int, max_len: int = 5000, dropout: float = 0.0, layout: str = "interleaved") -> None:
        super().__init__()
        if layout not in PAIRINGS:
            raise ValueError(f"SinusoidalPositions: layout must be 'interleaved' or 'half', got {layout!r}")
        self.d_model, self.max_len, self.layout = d_model, max_len, layout
        self.dropout = nn.Dropout(dropout)
        columns = slice(None) if layout == "interleaved" else [*range(0, d_model, 2), *range(1, d_model, 2)]
        self.rows = _Rows(lambda n: sinusoid(n, d_model)[:, columns], max_len)

    def forward(self, x: Tensor, offset: Start = 0) -> Tensor:
        return self.dropout(x + self.rows.take(offset, x.shape[-2], x))

    def extra_repr(self) -> str:
        return f"{self.d_model}, max_len={self.max_len}, layout={self.layout!r}"


class LearnedPositions(nn.Module):
    """dropout(x + a learned row for each position): x ``(B, T, d_model)``, rows ``(max_len, d_model)`` from N(0, 1)."""

    def __init__(self, max_len: int, d_model: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.normal_(mg.empty(max_len, d_model)))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, offset: Start = 0, positions: Tensor | None = None) -> Tensor:
        """positions: of each token ``(B, T)`` int, where rows stand at different ones; offset, ... unless given."""
        n, max_len = x.shape[-2], self.weight.shape[0]
        if end(offset, n) > max_len:
            raise ValueError(
                f"positions up to {end(offset, n) - 1} do not fit a table of {max_len} rows: shorten the input"
            )
        codes = rows(self.weight, offset, n) if positions is None else F.embedding(positions, self.weight)
        return self.dropout(x + codes)

    def extra_repr(self) -> str:
        return f"{list(self.weight.shape)}"


def interpolation_by_wavelength(
    d_head: int, base: float, factor: float, low: float, high: float, trained_len: int
) -> np.ndarray:
    """LLaMA 3's divisors for RoPE, float64 ``(d_head / 2,)``: pairs that turn slowly are interpolated, fast ones not.

    A pair that turns at least `high` times within trained_len keeps its speed, one that turns at most `low` times is
    slowed by `factor`, and between them the speed is mixed (Grattafiori et al. 2024, as published with LLaMA 3.1).
    """
    turns = trained_len * frequencies(d_head, base) / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return 1.0 / ((1.0 - kept) / factor + kept)


class RoPE(nn.Module):
    """Rotate pair i of the row at position t by the angle t base^(-2i/d) (Su et al. 2021; document 002, RoPE).

    x ``(..., T, d_head)``. pairing: "interleaved" rotates (0, 1), (2, 3), ... (the paper), "half" (i, i + d/2)
    (document 002; LLaMA in Hugging Face's layout). interpolation: positions are divided by it, so that a model
    trained on n tokens sees interpolation * n as positions that it knows (Chen et al. 2023); one number, or one
    for each pair (see `interpolation_by_wavelength`), or a function of the text's length that gives them. factor:
    cosines and sines are multiplied by it. d_rotary: only the first so many numbers of a row are rotated. Raises
    ValueError for an odd d_head or d_rotary, an unknown pairing, an interpolation that is not above 0.
    """

    def __init__(
        self,
        d_head: int,
        max_len: int = 4096,
        base: float = 10000.0,
        pairing: str = "interleaved",
        interpolation: float | np.ndarray | Callable[[int], np.ndarray] = 1.0,
        factor: float = 1.0,
        d_rotary: int | None = None,
    ) -> None:
        super().__init__()
        self.d_rotary = d_head if d_rotary is None else d_rotary
        if self.d_rotary % 2 or not 0 < self.d_rotary <= d_head:
            raise ValueError(f"RoPE rotates pairs, so d_head must be even, got {self.d_rotary} of {d_head}")
        if pairing not in PAIRINGS:
            raise ValueError(f"RoPE: pairing must be 'interleaved' or 'half', got {pairing!r}")
        if not callable(interpolation) and not np.all(np.asarray(interpolation) > 0.0):
            raise ValueError(f"RoPE: interpolation must be above 0, got {interpolation}")
        self.d_head, self.base, self.pairing, self.factor = d_head, base, pairing, factor
        self.interpolation = interpolation
        self.cos = _Rows(lambda n: factor * np.cos(self._table(n)), max_len)
        self.sin = _Rows(lambda n: factor * np.sin(self._table(n)), max_len)

    def _table(self, n: int) -> np.ndarray:
        """The angles of n positions, ``(n, d_rotary / 2)``: where they depend on the length, of each as the last."""
        if callable(self.interpolation):
            return np.concatenate([self._angles(i, i + 1) for i in range(n)])
        return self._angles(0, n)

    def _angles(self, start: int, end: int) -> np.ndarray:
        """How far each pair is turned at the positions start .. end - 1, float64 ``(end - start, d_rotary / 2)``."""
        divisors = self.interpolation(end) if callable(self.interpolation) else self.interpolation
        return np.multiply.outer(np.arange(start, end), frequencies(self.d_rotary, self.base) / divisors)

    def forward(self, x: Tensor, offset: Start = 0) -> Tensor:
        if x.shape[-1] != self.d_head:
            raise ValueError(f"RoPE was built for d_head {self.d_head}, the input {list(x.shape)} has {x.shape[-1]}")
        if callable(self.interpolation) and isinstance(offset, int):  # the rows of a longer text are others
            angles = self._angles(offset, offset + x.shape[-2])
            tables = (self.factor * np.cos(angles), self.factor * np.sin(angles))
            cos, sin = (mg.from_numpy(table.astype(x.dtype), x.device) for table in tables)
        elif callable(self.interpolation) and x.shape[-2] > 1:
            raise RuntimeError("RoPE: the angles of several tokens depend on where the last one stands: run it eagerly")
        else:
            cos, sin = (table.take(offset, x.shape[-2], x) for table in (self.cos, self.sin))
        interleaved = self.pairing == "interleaved"
        if self.d_rotary == self.d_head:
            return F.rope(x, cos, sin, interleaved=interleaved)
        turned = F.rope(x[..., : self.d_rotary], cos, sin, interleaved=interleaved)
        return mg.cat([turned, x[..., self.d_rotary :]], -1)

    def extra_repr(self) -> str:
        return f"{self.d_head}, base={self.base}, pairing={self.pairing!r}"


def alibi_slopes(n_heads: int) -> np.ndarray:
    """How steeply each head's bias falls, float64 ``(n_heads,)``: 2^(-8/n), 2^(-16/n), ... (Press et al. 2022).

    For n that is no power of two: the slopes of the power below, then every other one of the power above.
    """
    power = 1 << (n_heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 / power * np.arange(1, power + 1))
    if power == n_heads:
        return slopes
    between = 2.0 ** (-4.0 / power * np.arange(1, 2 * power + 1, 2))
    return np.concatenate([slopes, between[: n_heads - power]])


def alibi(
    n_heads: int, n_query: int, n_key: int | None = None, dtype: np.dtype | None = None, device: str = "cpu"
) -> Tensor:
    """-slope |distance|, to be added to scaled scores, ``(n_heads, Tq, Tk)``; the last query is the last key."""
    n_key = n_query if n_key is None else n_key
    distance = np.abs(np.arange(n_key - n_query, n_key)[:, None] - np.arange(n_key))
    return mg.from_numpy((-alibi_slopes(n_heads)[:, None, None] * distance).astype(dtype or mg.float32), device)


def relative_buckets(relative: np.ndarray, n_buckets: int, max_distance: int, bidirectional: bool) -> np.ndarray:
    """Which bucket a key at position j = i + relative falls into for the query i, int64 (Raffel et al. 2020, 2.1).

    Half of the buckets are one distance each, the other half grow with its logarithm up to max_distance; if
    `bidirectional`, half of all are for keys after the query, else those share bucket 0.
    """
    if bidirectional:
        n_buckets //= 2
        first, distance = n_buckets * (relative > 0), np.abs(relative)
    else:
        first, distance = np.zeros_like(relative), np.maximum(-relative, 0)
    exact = n_buckets // 2
    # in float32, as T5 was trained: at bucket borders the rounding decides
    grown = np.log(np.maximum(distance, exact).astype(np.float32) / np.float32(exact))
    far = exact + (grown / np.float32(math.log(max_distance / exact)) * np.float32(n_buckets - exact)).astype(np.int64)
    return first + np.where(distance < exact, distance, np.minimum(far, n_buckets - 1))


class RelativePositionBias(nn.Module):
    """A learned number for each head and bucket of distances, added to unscaled scores (T5; Raffel et al. 2020, 2.1).

    weight ``(n_buckets, n_heads)`` from N(0, 1). Called with the numbers of queries and keys, where the last query is
    the last key, it gives ``(1, n_heads, Tq, Tk)``. Raises ValueError for fewer buckets than distances need.
    """

    def __init__(self, n_heads: int, n_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> None:
        super().__init__()
        exact = n_buckets // (4 if bidirectional else 2)
        if exact < 1 or max_distance <= exact:
            raise ValueError(
                f"RelativePositionBias: {n_buckets} buckets with exact distances below {exact} do not fit "
                f"max_distance {max_distance}: use at least {4 if bidirectional else 2} buckets and a larger distance"
            )
        self.n_buckets, self.max_distance, self.bidirectional = n_buckets, max_distance, bidirectional
        self.weight = nn.Parameter(nn.init.normal_(mg.empty(n_buckets, n_heads)))

    def forward(self, n_query: int, n_key: int | None = None, start: Start | None = None) -> Tensor:
        """start: of the first query, instead of n_key: there are then as many keys as positions so far."""
        if start is None:
            start = 0 if n_key is None else n_key - n_query
        device, n_key = self.weight.device, end(start, n_query)
        if isinstance(start, Told):  # of every distance its bucket, of which the queries take theirs
            buckets = self._buckets(np.arange(-n_key + 1, n_key))
            distance = mg.arange(n_key, device=device) - positions(start, n_query).unsqueeze(1)
            chosen = buckets.index_select(0, (distance + n_key - 1).reshape(-1)).reshape(n_query, n_key)
        else:
            chosen = self._buckets(np.arange(n_key) - np.arange(start, n_key)[:, None])
        return F.embedding(chosen, self.weight).permute(2, 0, 1).unsqueeze(0)

    def _buckets(self, relative: np.ndarray) -> Tensor:
        found = relative_buckets(relative, self.n_buckets, self.max_distance, self.bidirectional)
        return mg.from_numpy(found, self.weight.device)

    def extra_repr(self) -> str:
        return f"{self.n_buckets}, max_distance={self.max_distance}, bidirectional={self.bidirectional}"
