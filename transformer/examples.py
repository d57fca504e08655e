"""Transformers to draw: each function returns a function (or model) and arguments to trace it with.

Nothing is computed: a model is built inside a trace, so that its initialisation is recorded and thrown away, and the
parameters are memory that is never touched. A model of GPT-2's size costs a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

import minigrad as mg
from minigrad import Tensor, nn
from minigrad import functional as F
from minigrad.optim import AdamW
from transformer.attention import MultiHeadAttention
from transformer.layers import EncoderLayer
from transformer.masks import causal_mask
from transformer.models import DecoderLM, EncoderDecoder

Example = tuple[Callable[..., Any], tuple[Any, ...]]
M = TypeVar("M", bound=nn.Module)


def blank(build: Callable[[], M]) -> M:
    """The model that `build` makes, in evaluation mode, with uninitialised parameters."""
    built: list[M] = []

    def make() -> None:
        built.append(build())

    mg.trace(make)()
    return built[0].eval()


def ids(*shape: int) -> Tensor:
    return mg.tensor(np.ones(shape, np.int64))


class Block(EncoderLayer):
    """GPT-2's layer: pre-norm self-attention and a GELU network, each with a residual connection."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__(d_model, n_heads, 4 * d_model, dropout=0.0, norm_first=True, activation="gelu")


class GPT(nn.Module):
    """GPT-2 (Radford et al. 2019): learned positions, pre-norm blocks, a head tied to the token embedding."""

    def __init__(self, vocab: int, d_model: int, n_heads: int, n_layers: int, max_len: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, d_model)
        self.positions = nn.Embedding(max_len, d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        """ids ``(B, T)`` int to logits ``(B, T, vocab)``."""
        mask = causal_mask(ids.shape[1])
        x = self.tokens(ids) + self.positions(mg.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def multi_head_attention() -> Example:
    x = mg.zeros(2, 7, 64)
    return blank(lambda: MultiHeadAttention(64, 4)), (x, x, x)


def encoder_layer() -> Example:
    return blank(lambda: EncoderLayer(64, 4, 256)), (mg.zeros(2, 7, 64),)


def encoder_decoder() -> Example:
    """The documents' model: 3 layers in each stack."""
    model = blank(lambda: EncoderDecoder(1000, 1200, d_model=128, n_heads=8, n_layers=3, d_ff=512))
    return model, (ids(2, 10), ids(2, 9))


def llama() -> Example:
    """The decoder-only model of document 002, 12 layers."""
    return blank(lambda: DecoderLM(32000, n_layers=12)), (ids(1, 16),)


def gpt() -> Example:
    """GPT-2 small: 124 M parameters."""
    return blank(lambda: GPT(50257, 768, 12, 12, 1024)), (ids(1, 128),)


def gpt_train_step() -> Example:
    """A training step of GPT-2 small: forward, backward, AdamW."""
    model = blank(lambda: GPT(50257, 768, 12, 12, 1024)).train()
    optimizer = AdamW(model.parameters(), lr=6e-4)

    def step(ids: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return step, (ids(1, 128), ids(1, 128))
