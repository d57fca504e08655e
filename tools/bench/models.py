"""The benchmark's model, written once for both libraries: minigrad has torch's names."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Size:
    """A GPT and its batch."""

    vocab: int
    d_model: int
    n_heads: int
    n_layers: int
    d_ff: int
    batch: int
    length: int


SIZES = {
    "tiny": Size(65, 64, 4, 2, 256, 16, 32),
    "small": Size(1000, 128, 4, 4, 512, 16, 128),
    "nano": Size(65, 384, 6, 6, 1536, 8, 256),
    "mid": Size(5000, 512, 8, 2, 2048, 4, 256),
}


def build_gpt(lib: ModuleType, nn: Any, functional: Any, size: Size, manual_attention: bool = False) -> Any:
    """A GPT-2-like decoder on `lib`: learned positions, pre-norm, GELU; ids and targets ``(B, T)`` to the mean loss."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            d = size.d_model
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, size.d_ff), nn.Linear(size.d_ff, d)

        def attend(self, x: Any) -> Any:
            b, t, d = x.shape
            heads = self.qkv(x).view(b, t, 3, size.n_heads, d // size.n_heads).permute(2, 0, 3, 1, 4)
            query, key, value = heads[0], heads[1], heads[2]
            if manual_attention:
                scores = query @ key.transpose(-1, -2) * (d // size.n_heads) ** -0.5
                hidden = lib.ones(t, t, dtype=lib.bool).triu(1)
                mixed = functional.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ value
            else:
                mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            return self.out(mixed.transpose(1, 2).reshape(b, t, d))

        def forward(self, x: Any) -> Any:
            x = x + self.attend(self.norm1(x))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(size.vocab, size.d_model)
            self.positions = nn.Embedding(size.length, size.d_model)
            self.blocks = nn.ModuleList([Block() for _ in range(size.n_layers)])
            self.norm = nn.LayerNorm(size.d_model)
            self.head = nn.Linear(size.d_model, size.vocab, bias=False)

        def forward(self, ids: Any, targets: Any) -> Any:
            x = self.tokens(ids) + self.positions(lib.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return functional.cross_entropy(logits.view(-1, size.vocab), targets.view(-1))

    return GPT()
