"""An encoder of frames: a norm of each utterance, a convolution in strides, Conformer blocks; lengths are optional."""

import torch
import torch.nn.functional as F
from torch import nn


def padding_of(lengths, longest):
    """True where a frame is padding."""
    return torch.arange(longest)[None, :] >= lengths[:, None]


def normalized(frames, padding, eps=1e-5):
    """Mean 0 and variance 1 of each feature over the real frames of each utterance, and 0 in the padding."""
    real = (~padding)[..., None].to(frames.dtype)
    count = real.sum(1, keepdim=True)
    mean = (frames * real).sum(1, keepdim=True) / count
    var = ((frames - mean).square() * real).sum(1, keepdim=True) / count
    return (frames - mean) * (var + eps).rsqrt() * real


class Attention(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, padding):
        q, k, v = (m(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for m in (self.q, self.k, self.v))
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=~padding[:, None, None, :])
        return self.out(x.transpose(1, 2).flatten(2))


class Convolution(nn.Module):
    def __init__(self, width, kernel):
        super().__init__()
        self.gate, self.out = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, padding):
        x = F.glu(self.gate(x), dim=-1)
        x = x.masked_fill(padding[..., None], 0.0)
        x = self.depthwise(x.transpose(1, 2)).transpose(1, 2)
        return self.out(F.silu(self.norm(x)))


class Block(nn.Module):
    def __init__(self, width, n_heads, kernel):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.attention, self.convolution = Attention(width, n_heads), Convolution(width, kernel)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, padding):
        x = x + self.attention(self.norm1(x), padding)
        x = x + self.convolution(self.norm2(x), padding)
        return x + self.down(F.silu(self.up(self.norm3(x))))


class Conformer(nn.Module):
    def __init__(self, n_features=8, width=24, n_heads=2, n_layers=2, kernel=5):
        super().__init__()
        self.shorten = nn.Conv1d(n_features, width, 3, stride=2, padding=1)
        self.places = nn.Embedding(128, width)
        self.blocks = nn.ModuleList(Block(width, n_heads, kernel) for _ in range(n_layers))
        self.norm = nn.LayerNorm(width)
        self.restore = nn.Linear(width, 2 * n_features)

    def forward(self, frames, lengths=None):
        """frames (B, T, n_features), lengths (B,) to the vectors (B, T / 2, width) and their lengths."""
        if lengths is None:
            lengths = torch.full((len(frames),), frames.shape[1])
        frames = normalized(frames, padding_of(lengths, frames.shape[1]))
        x = F.gelu(self.shorten(frames.transpose(1, 2))).transpose(1, 2)
        lengths = (lengths - 1) // 2 + 1
        padding = padding_of(lengths, x.shape[1])
        x = x + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x, padding)
        return self.norm(x), lengths

    def pretrain_loss(self, frames, lengths):
        """The mean error over hidden frames, restored from the others; frames: (B, T, n_features), T even."""
        pairs = frames.unflatten(1, (-1, 2))
        hidden = torch.rand(pairs.shape[:2]) < 0.4
        out, _ = self(pairs.masked_fill(hidden[..., None, None], 0.0).flatten(1, 2), lengths)
        errors = (self.restore(out) - pairs.flatten(2)).square().mean(-1)
        return (errors * hidden).sum() / hidden.sum()
