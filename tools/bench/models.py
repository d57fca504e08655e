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


def build_decoder(lib: ModuleType, nn: Any, functional: Any, size: Size, whole_cache: bool) -> Any:
    """The same GPT for decoding with a static cache, batch 1: an id ``(1, 1)`` and its position to the next id.

    whole_cache: attend over the whole cache under a mask, the position a tensor (what a compiled step needs); else over
    the filled part, the position an int (what eager code does).
    """
    d, heads = size.d_model, size.n_heads

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, size.d_ff), nn.Linear(size.d_ff, d)
            self.key = lib.zeros(1, heads, size.length, d // heads)
            self.value = lib.zeros(1, heads, size.length, d // heads)

        def attend(self, x: Any, position: Any, visible: Any) -> Any:
            new = self.qkv(x).view(3, heads, d // heads)
            self.key[0, :, position] = new[1]
            self.value[0, :, position] = new[2]
            query = new[0].view(1, heads, 1, d // heads)
            if whole_cache:
                mixed = functional.scaled_dot_product_attention(query, self.key, self.value, attn_mask=visible)
            else:
                filled = position + 1
                key, value = self.key[:, :, :filled], self.value[:, :, :filled]
                mixed = functional.scaled_dot_product_attention(query, key, value)
            return self.out(mixed.view(1, 1, d))

        def forward(self, x: Any, position: Any, visible: Any) -> Any:
            x = x + self.attend(self.norm1(x), position, visible)
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(size.vocab, d)
            self.positions = nn.Embedding(size.length, d)
            self.blocks = nn.ModuleList([Block() for _ in range(size.n_layers)])
            self.norm = nn.LayerNorm(d)
            self.head = nn.Linear(d, size.vocab, bias=False)

        def forward(self, ids: Any, position: Any) -> Any:
            visible = (lib.arange(size.length) <= position).view(1, 1, 1, size.length) if whole_cache else None
            at = position.view(1, 1) if whole_cache else lib.tensor([[position]])
            x = self.tokens(ids) + self.positions(at)
            for block in self.blocks:
                x = block(x, position, visible)
            return self.head(self.norm(x)).argmax(-1)

    return Decoder()
