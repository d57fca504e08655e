"""Images as rows of vectors: a vector of each square patch, behind one token of its own (Dosovitskiy et al. 2021)."""

from __future__ import annotations

import minigrad as mg
from minigrad import Tensor, nn
from minigrad import functional as F


class Patches(nn.Module):
    """Images ``(B, C, H, W)`` to ``(B, patches, d)``, row by row: a Linear of each square patch.

    weight ``(d, C, side, side)``. What is left of a side on the right and below is not looked at.
    """

    def __init__(self, channels: int, side: int, d: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.normal_(mg.empty(d, channels, side, side)))
        self.bias = nn.Parameter(mg.zeros(d))

    def forward(self, images: Tensor) -> Tensor:
        d, channels, side, _ = self.weight.shape
        high, wide = images.shape[2] // side, images.shape[3] // side
        cut = images[:, :, : high * side, : wide * side].reshape(-1, channels, high, side, wide, side)
        patches = cut.permute(0, 2, 4, 1, 3, 5).reshape(-1, high * wide, channels * side * side)
        return F.linear(patches, self.weight.reshape(d, -1), self.bias)


class PlacedPatches(nn.Module):
    """Images ``(B, channels, size, size)`` to ``(B, 1 + patches, d)``: a learned token, then the patches, each with the
    learned vector of its place. Raises ValueError for patches larger than the image, and for images of another size."""

    def __init__(self, channels: int, size: int, side: int, d: int, dropout: float = 0.0) -> None:
        super().__init__()
        if side > size:
            raise ValueError(f"patches of {side} pixels do not fit an image of {size}")
        self.shape = (channels, size, size)
        self.own_token = nn.Parameter(mg.zeros(1, 1, d))
        self.positions = nn.Parameter(mg.zeros(1, 1 + (size // side) ** 2, d))
        self.patches = Patches(channels, side, d)
        self.dropout = nn.Dropout(dropout)

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[1:] != self.shape:
            raise ValueError(f"images must be (B, {', '.join(map(str, self.shape))}), got {list(images.shape)}")
        own = self.own_token.expand(images.shape[0], -1, -1)
        return self.dropout(mg.cat([own, self.patches(images)], 1) + self.positions)
