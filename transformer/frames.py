"""Sound as rows of vectors: two convolutions over frames, and the place of each in time (Radford et al. 2022)."""

from __future__ import annotations

import numpy as np

import minigrad as mg
from minigrad import Tensor, nn
from minigrad import functional as F


class Convolution(nn.Module):
    """Frames ``(B, channels, T)`` to ``(B, d, T')``: a Linear of each `width` frames, the middle ones `step` apart.

    weight ``(d, channels, width)``; zeros stand before and behind, so that T' is T / step, rounded up. Raises
    ValueError for an even width, which has no middle.
    """

    def __init__(self, channels: int, d: int, width: int = 3, step: int = 1) -> None:
        super().__init__()
        if width % 2 == 0:
            raise ValueError(f"Convolution: the width must be odd, got {width}")
        self.step = step
        self.weight = nn.Parameter(nn.init.normal_(mg.empty(d, channels, width)))
        self.bias = nn.Parameter(mg.zeros(d))

    def forward(self, frames: Tensor) -> Tensor:
        d, _, width = self.weight.shape
        padded, count = F.pad(frames, (width // 2, width // 2)), -(-frames.shape[-1] // self.step)
        end = (count - 1) * self.step + 1
        seen = mg.stack([padded[..., k : k + end : self.step] for k in range(width)], 2).flatten(1, 2)
        return mg.matmul(self.weight.reshape(d, -1), seen) + self.bias.unsqueeze(-1)

    def extra_repr(self) -> str:
        return f"{list(self.weight.shape)}, step={self.step}"


def times(n: int, d: int) -> np.ndarray:
    """sin of position times frequency, then cos, float64 ``(n, d)``; frequencies fall from 1 to 1/10,000, both ends
    included. Raises ValueError for a d below 4 or an odd one."""
    if d < 4 or d % 2:
        raise ValueError(f"d must be even and at least 4, got {d}")
    angles = np.multiply.outer(np.arange(n), 10000.0 ** -np.linspace(0, 1, d // 2))
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)


class PlacedFrames(nn.Module):
    """Frames ``(B, channels, 2 n)`` to ``(B, n, d)``: two convolutions with GELU, of which the second takes every
    other frame, then the vector of each place, which is not learned. Raises ValueError for frames of another shape."""

    positions: Tensor

    def __init__(self, channels: int, n: int, d: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = (channels, 2 * n)
        self.conv1, self.conv2 = Convolution(channels, d), Convolution(d, d, step=2)
        self.register_buffer("positions", mg.from_numpy(times(n, d).astype(np.float32)))
        self.dropout = nn.Dropout(dropout)

    def forward(self, frames: Tensor) -> Tensor:
        if frames.shape[1:] != self.shape:
            raise ValueError(f"frames must be (B, {', '.join(map(str, self.shape))}), got {list(frames.shape)}")
        x = F.gelu(self.conv2(F.gelu(self.conv1(frames))))
        return self.dropout(x.transpose(1, 2) + self.positions)
