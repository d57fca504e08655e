"""Whole models taken apart: each component is tested in its role, through the model's own constructor."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from conformance.adapters.torch_module import TorchModuleImplementation  # noqa: E402
from conformance.protocol import NotProvided  # noqa: E402


class Layer(nn.Module):
    """Its constructor tells nothing: only the model can build it."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(model.width)
        self.attn = nn.MultiheadAttention(model.width, model.heads, batch_first=True)
        self.norm2 = nn.LayerNorm(model.width)
        self.fc1 = nn.Linear(model.width, model.inner)
        self.fc2 = nn.Linear(model.inner, model.width)

    def forward(self, x: torch.Tensor, attn_mask: torch.Tensor | None = None) -> torch.Tensor:
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=attn_mask, need_weights=False)[0]
        return x + self.fc2(torch.relu(self.fc1(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocab_size: int, n_embd: int, n_head: int, n_layer: int, d_ff: int, block_size: int) -> None:
        super().__init__()
        self.width, self.heads, self.inner = n_embd, n_head, d_ff
        self.tokens = nn.Embedding(vocab_size, n_embd)
        self.positions = nn.Embedding(block_size, n_embd)
        self.layers = nn.ModuleList(Layer(self) for _ in range(n_layer))
        self.head = nn.Linear(n_embd, vocab_size)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def test_the_components_of_a_model_play_their_roles() -> None:
    implementation = TorchModuleImplementation(GPT)
    assert {"embedding", "layer_norm", "multi_head_attention", "encoder_layer"} <= set(implementation.roles)
    subject = implementation.build("layer_norm", {"d_model": 6, "eps": 1e-5})
    x = np.random.default_rng(0).normal(size=(2, 3, 6))
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(subject(x=x)["out"], expected, atol=1e-5)


def test_a_role_that_no_component_plays_is_not_provided() -> None:
    with pytest.raises(NotProvided):
        TorchModuleImplementation(GPT).build("swiglu", {"d_model": 6, "d_ff": 8})
