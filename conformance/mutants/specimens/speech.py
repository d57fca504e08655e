"""A speech recogniser: frames and their lengths to log-probabilities of letters, behind convolutions with strides."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def padding_of(lengths, longest):
    """True where a frame is padding."""
    return torch.arange(longest)[None, :] >= lengths[:, None]


class SelfAttention(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, padding):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.n_heads)
        weights = scores.masked_fill(padding[:, None, None, :], -torch.inf).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, n_heads)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, padding):
        x = x + self.attention(self.norm1(x), padding)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class SpeechCTC(nn.Module):
    def __init__(self, n_features=8, width=16, n_heads=2, n_layers=2, n_letters=12):
        super().__init__()
        self.conv1 = nn.Conv1d(n_features, width, 3, stride=2, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.places = nn.Embedding(64, width)
        self.layers = nn.ModuleList(Layer(width, n_heads) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, n_letters)

    def forward(self, frames, lengths):
        """frames (B, T, n_features), lengths (B,) to log-probabilities (B, T / 4, n_letters) and their lengths."""
        x = F.gelu(self.conv2(F.gelu(self.conv1(frames.transpose(1, 2))))).transpose(1, 2)
        lengths = (lengths + 3) // 4
        padding = padding_of(lengths, x.shape[1])
        x = x + self.places.weight[: x.shape[1]]
        for layer in self.layers:
            x = layer(x, padding)
        return self.head(self.norm(x)).log_softmax(-1), lengths

    def loss(self, frames, lengths, targets, target_lengths):
        """targets (B, S) of letters above the blank, 0; target_lengths (B,) to the mean loss."""
        scores, kept = self(frames, lengths)
        return F.ctc_loss(scores.transpose(0, 1), targets, kept, target_lengths, blank=0)

    @torch.no_grad()
    def transcribe(self, frames, lengths):
        """The letters of each sentence, by its best path."""
        scores, kept = self(frames, lengths)
        paths = (row[:n].unique_consecutive() for row, n in zip(scores.argmax(-1), kept.tolist(), strict=True))
        return [path[path != 0].tolist() for path in paths]
