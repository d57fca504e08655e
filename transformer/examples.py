"""Computations to draw, from one neuron to GPT-2: each function returns a function (or model) and its arguments.

The big ones are not computed: a model is built inside a trace (`blank`), so that its initialisation is recorded and
thrown away, and its parameters are memory that is never touched. A model of GPT-2's size costs a fraction of a second.
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
        positions = mg.arange(ids.shape[1])
        x = self.tokens(ids) + self.positions(positions)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def neuron() -> Example:
    """tanh(w1 x1 + w2 x2 + b) and its backward pass, on scalars."""

    def step(x1: mg.Tensor, x2: mg.Tensor, w1: mg.Tensor, w2: mg.Tensor, b: mg.Tensor) -> mg.Tensor:
        out = (x1 * w1 + x2 * w2 + b).tanh()
        out.backward()
        return out

    return step, tuple(mg.tensor(v, requires_grad=True) for v in (2.0, 0.0, -3.0, 1.0, 6.8813735870195432))


def mlp() -> Example:
    """Two linear layers with a ReLU, cross-entropy, and the backward pass."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def step(x: mg.Tensor, labels: mg.Tensor) -> mg.Tensor:
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        return loss

    return step, (mg.randn(5, 4), mg.tensor([0, 2, 1, 1, 0]))


def softmax() -> Example:
    """A composite op, to be unfolded into its steps."""
    return lambda x: x.softmax(-1), (mg.randn(2, 3),)


def attention() -> Example:
    """softmax(Q K^T / sqrt(d_k)) V with a causal mask, written out op by op."""
    visible = mg.tensor(np.tri(4, dtype=bool))

    def scaled_dot_product(query: mg.Tensor, key: mg.Tensor, value: mg.Tensor) -> mg.Tensor:
        scores = query @ key.transpose(-1, -2) / 8**0.5
        return scores.masked_fill(~visible, float("-inf")).softmax(-1) @ value

    return scaled_dot_product, (mg.randn(4, 8), mg.randn(4, 8), mg.randn(4, 8))


def multi_head_attention() -> Example:
    x = mg.randn(2, 7, 64)
    return MultiHeadAttention(64, 4), (x, x, x)


def encoder_layer() -> Example:
    return EncoderLayer(64, 4, 256).eval(), (mg.randn(2, 7, 64),)


def encoder_decoder() -> Example:
    """The documents' model: 3 layers in each stack."""
    model = EncoderDecoder(1000, 1200, d_model=128, n_heads=8, n_layers=3, d_ff=512)
    return model.eval(), (ids(2, 10), ids(2, 9))


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
