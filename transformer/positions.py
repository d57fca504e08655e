"""Where a token stands: sinusoidal and learned codes that are added to embeddings, and rotary positions (RoPE).

Every module takes the `offset` of its first row, so that a decoder with a cache can go on where it stopped.
"""

from __future__ import annotations

import numpy as np

import minigrad as mg
from minigrad import Tensor, nn


def frequencies(d: int, base: float = 10000.0) -> np.ndarray:
    """base^(-2i/d) for the pairs i = 0, 1, ..., float64 ``((d + 1) // 2,)``."""
    return base ** (-np.arange(0, d, 2) / d)


def sinusoid(n: int, d_model: int, base: float = 10000.0) -> np.ndarray:
    """sin and cos of position times frequency side by side, float64 ``(n, d_model)``: the documents' PE matrix."""
    angles = np.multiply.outer(np.arange(n), frequencies(d_model, base))
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, -1)[:, :d_model]


class _Rows:
    """Rows of a float64 table as tensors of any dtype; a constant, so in no state dict and untouched by Module.to."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = table
        self.tensors: dict[np.dtype, Tensor] = {}

    def take(self, start: int, count: int, dtype: np.dtype) -> Tensor:
        """Rows start .. start + count. Raises ValueError past the end."""
        if start + count > len(self.table):
            raise ValueError(
                f"positions {start} to {start + count - 1} do not fit max_len {len(self.table)}: "
                "shorten the input or build the model with a larger max_len"
            )
        if dtype not in self.tensors:
            self.tensors[dtype] = mg.from_numpy(self.table.astype(dtype))
        return self.tensors[dtype][start : start + count]


class SinusoidalPositions(nn.Module):
    """dropout(x + PE): x ``(B, T, d_model)`` (Vaswani et al. 2017, 3.5; document 000 section 2.6.2)."""

    def __init__(self, d_model: int, max_len: int = 5000, dropout: float = 0.0) -> None:
        super().__init__()
        self.d_model, self.max_len = d_model, max_len
        self.dropout = nn.Dropout(dropout)
        self.rows = _Rows(sinusoid(max_len, d_model))

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        return self.dropout(x + self.rows.take(offset, x.shape[-2], x.dtype))

    def extra_repr(self) -> str:
        return f"{self.d_model}, max_len={self.max_len}"


class LearnedPositions(nn.Module):
    """dropout(x + a learned row for each position): x ``(B, T, d_model)``, rows ``(max_len, d_model)`` from N(0, 1)."""

    def __init__(self, max_len: int, d_model: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(mg.randn(max_len, d_model))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        n, max_len = x.shape[-2], self.weight.shape[0]
        if offset + n > max_len:
            raise ValueError(
                f"positions up to {offset + n - 1} do not fit a table of {max_len} rows: shorten the input"
            )
        return self.dropout(x + self.weight[offset : offset + n])

    def extra_repr(self) -> str:
        return f"{list(self.weight.shape)}"


PAIRINGS = ("interleaved", "half")


class RoPE(nn.Module):
    """Rotate pair i of the row at position t by the angle t base^(-2i/d) (Su et al. 2021; document 002, RoPE).

    x ``(..., T, d_head)``. pairing: "interleaved" rotates (0, 1), (2, 3), ... (the paper), "half" (i, i + d/2)
    (document 002; LLaMA in Hugging Face's layout). Raises ValueError for an odd d_head or an unknown pairing.
    """

    def __init__(self, d_head: int, max_len: int = 4096, base: float = 10000.0, pairing: str = "interleaved") -> None:
        super().__init__()
        if d_head % 2:
            raise ValueError(f"RoPE rotates pairs, so d_head must be even, got {d_head}")
        if pairing not in PAIRINGS:
            raise ValueError(f"RoPE: pairing must be 'interleaved' or 'half', got {pairing!r}")
        self.d_head, self.base, self.pairing = d_head, base, pairing
        angles = np.multiply.outer(np.arange(max_len), frequencies(d_head, base))
        self.cos, self.sin = _Rows(np.cos(angles)), _Rows(np.sin(angles))

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        if x.shape[-1] != self.d_head:
            raise ValueError(f"RoPE was built for d_head {self.d_head}, the input {list(x.shape)} has {x.shape[-1]}")
        cos, sin = (rows.take(offset, x.shape[-2], x.dtype) for rows in (self.cos, self.sin))
        if self.pairing == "half":
            a, b = x[..., : self.d_head // 2], x[..., self.d_head // 2 :]
            return mg.cat([a * cos - b * sin, a * sin + b * cos], -1)
        a, b = x[..., 0::2], x[..., 1::2]
        return mg.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    def extra_repr(self) -> str:
        return f"{self.d_head}, base={self.base}, pairing={self.pairing!r}"
