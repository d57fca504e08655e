"""The benchmark's models, written once for both libraries: minigrad has torch's names."""

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
    "gpt2": Size(50257, 768, 12, 12, 3072, 1, 256),
}


@dataclass(frozen=True)
class EncoderDecoder:
    """A translation model (document 000, part 3) and its batch."""

    vocab: int = 5000
    d_model: int = 256
    n_heads: int = 8
    n_layers: int = 3
    d_ff: int = 512
    batch: int = 16
    source: int = 20
    target: int = 15


PADDING = 0  # the id of the encoder-decoder's padding


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
                hidden = lib.ones(t, t, dtype=lib.bool, device=x.device).triu(1)
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
            x = self.tokens(ids) + self.positions(lib.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return functional.cross_entropy(logits.view(-1, size.vocab), targets.view(-1))

    return GPT()


def build_encoder_decoder(
    lib: ModuleType, nn: Any, functional: Any, size: EncoderDecoder, manual_attention: bool = False
) -> Any:
    """The documents' encoder-decoder on `lib`: post-norm, ReLU, learned positions, one embedding table for both sides;
    source ``(B, S)``, target ``(B, T)`` and labels ``(B, T)`` to the mean loss with label smoothing 0.1. Padding is
    hidden as keys, and ignored in the loss."""
    d, heads = size.d_model, size.n_heads

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.out = (nn.Linear(d, d) for _ in range(4))

        def forward(self, x: Any, memory: Any, visible: Any) -> Any:
            def split(y: Any) -> Any:
                return y.view(y.shape[0], y.shape[1], heads, d // heads).transpose(1, 2)

            query, key, value = split(self.query(x)), split(self.key(memory)), split(self.value(memory))
            if manual_attention:
                scores = query @ key.transpose(-1, -2) * (d // heads) ** -0.5
                mixed = functional.softmax(scores.masked_fill(~visible, float("-inf")), dim=-1) @ value
            else:
                mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=visible)
            return self.out(mixed.transpose(1, 2).reshape(x.shape))

    class FeedForward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(d, size.d_ff), nn.Linear(size.d_ff, d)

        def forward(self, x: Any) -> Any:
            return self.down(functional.relu(self.up(x)))

    class EncoderLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.feedforward = Attention(), FeedForward()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)

        def forward(self, x: Any, visible: Any) -> Any:
            x = self.norm1(x + self.attention(x, x, visible))
            return self.norm2(x + self.feedforward(x))

    class DecoderLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.cross, self.feedforward = Attention(), Attention(), FeedForward()
            self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)

        def forward(self, x: Any, memory: Any, visible: Any, memory_visible: Any) -> Any:
            x = self.norm1(x + self.attention(x, x, visible))
            x = self.norm2(x + self.cross(x, memory, memory_visible))
            return self.norm3(x + self.feedforward(x))

    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(size.vocab, d)
            self.positions = nn.Embedding(max(size.source, size.target), d)
            self.encoder = nn.ModuleList([EncoderLayer() for _ in range(size.n_layers)])
            self.decoder = nn.ModuleList([DecoderLayer() for _ in range(size.n_layers)])
            self.head = nn.Linear(d, size.vocab)

        def embed(self, ids: Any) -> Any:
            return self.tokens(ids) * d**0.5 + self.positions(lib.arange(ids.shape[1], device=ids.device))

        def forward(self, source: Any, target: Any, labels: Any) -> Any:
            real = (source != PADDING).view(source.shape[0], 1, 1, source.shape[1])
            causal = lib.ones(target.shape[1], target.shape[1], dtype=lib.bool, device=target.device).tril()
            own = (target != PADDING).view(target.shape[0], 1, 1, target.shape[1]) & causal
            memory = self.embed(source)
            for layer in self.encoder:
                memory = layer(memory, real)
            x = self.embed(target)
            for layer in self.decoder:
                x = layer(x, memory, own, real)
            return functional.cross_entropy(
                self.head(x).view(-1, size.vocab), labels.view(-1), ignore_index=PADDING, label_smoothing=0.1
            )

    return Translator()


def build_decoder(lib: ModuleType, nn: Any, functional: Any, size: Size, whole_cache: bool) -> Any:
    """The same GPT for decoding with a static cache, batch 1: an id ``(1, 1)`` and its position to the next id.

    whole_cache: attend over the whole cache under a mask, the position a tensor (what a compiled step needs); else over
    the filled part, the position an int (what eager code does).
    """
    d, heads = size.d_model, size.n_heads

    def store(cache: Any, position: Any, new: Any) -> None:
        if lib.__name__ == "torch" and whole_cache:  # the form that torch compiles without a graph break
            cache.index_copy_(2, position.view(1), new.view(1, heads, 1, d // heads))
        else:
            cache[:, :, position] = new

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
            store(self.key, position, new[1])
            store(self.value, position, new[2])
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
            device, visible = ids.device, None
            if whole_cache:
                visible = (lib.arange(size.length, device=device) <= position).view(1, 1, 1, size.length)
            at = position.view(1, 1) if whole_cache else lib.tensor([[position]], device=device)
            x = self.tokens(ids) + self.positions(at)
            for block in self.blocks:
                x = block(x, position, visible)
            return self.head(self.norm(x)).argmax(-1)

    return Decoder()
