"""The five models that every viewer is given: small, in torch, as people write them. MODELS names each with inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, LENGTH, VOCABULARY, LAYERS = 64, 4, 16, 100, 4


class SelfAttention(nn.Module):
    """x: (B, T, WIDTH). Its heads see what came before, if `causal`."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = query @ key.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        if self.causal:
            future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        mixed = scores.softmax(dim=-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    """Pre-norm: attention, then a feed-forward network, each added to its input."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = SelfAttention(causal)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    """ids (B, T) to logits (B, T, VOCABULARY)."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(causal=True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


class RotaryBlock(nn.Module):
    """As in LLaMA: RMS norms, rotated queries and keys, half as many key heads, a gated network."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.key, self.value = nn.Linear(WIDTH, WIDTH // 2, bias=False), nn.Linear(WIDTH, WIDTH // 2, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        batch, length, _ = x.shape
        normed = self.first(x)

        def heads(projected: Tensor) -> Tensor:
            return projected.view(batch, length, -1, WIDTH // HEADS).transpose(1, 2)

        def rotated(x: Tensor) -> Tensor:
            left, right = x.chunk(2, dim=-1)
            return x * cosines + torch.cat((-right, left), dim=-1) * sines

        query, key = rotated(heads(self.query(normed))), rotated(heads(self.key(normed)))
        key, value = (each.repeat_interleave(2, dim=1) for each in (key, heads(self.value(normed))))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        normed = self.second(x)
        result: Tensor = x + self.down(F.silu(self.gate(normed)) * self.up(normed))
        return result


class Llama(nn.Module):
    """ids (B, T) to logits (B, T, VOCABULARY)."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(RotaryBlock() for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        rates = 10000 ** -(torch.arange(0, WIDTH // HEADS, 2) / (WIDTH // HEADS))
        angles = torch.outer(torch.arange(LENGTH), rates).repeat(1, 2)
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())

    def forward(self, ids: Tensor) -> Tensor:
        x, length = self.tokens(ids), ids.shape[1]
        cosines, sines = self.cosines[:length], self.sines[:length]
        for layer in self.layers:
            x = layer(x, cosines, sines)
        logits: Tensor = self.head(self.norm(x))
        return logits


class Classifier(nn.Module):
    """As BERT: every word sees every other; the first one's state is classified. ids (B, T) to scores (B, 3)."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device)))
        scores: Tensor = self.head(self.encoder(x)[:, 0])
        return scores


class ViT(nn.Module):
    """images (B, 3, 16, 16) in patches of 4 x 4 to scores (B, 10)."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, 17, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block(causal=False) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(images), -1, -1), patches), dim=1) + self.positions
        scores: Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return scores


class Translator(nn.Module):
    """torch's own encoder-decoder. source, target (B, T, WIDTH) to (B, T, WIDTH)."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.transformer = nn.Transformer(WIDTH, HEADS, layers, layers, 4 * WIDTH, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        future = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        result: Tensor = self.transformer(source, target, tgt_mask=future, tgt_is_causal=True)
        return result


def _ids() -> tuple[Tensor, ...]:
    return (torch.arange(LENGTH)[None] % VOCABULARY,)


MODELS: dict[str, tuple[Callable[..., nn.Module], Callable[[], tuple[Tensor, ...]]]] = {
    "GPT": (GPT, _ids),
    "LLaMA": (Llama, _ids),
    "BERT classifier": (Classifier, _ids),
    "ViT": (ViT, lambda: (torch.randn(1, 3, 16, 16),)),
    "encoder-decoder": (Translator, lambda: (torch.randn(1, LENGTH, WIDTH), torch.randn(1, LENGTH, WIDTH))),
}
