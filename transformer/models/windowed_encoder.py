"""Encoders of texts with pre-norm layers, rotary positions, gated networks, and windows in some layers."""

from __future__ import annotations

from typing import Any

from minigrad import Tensor, nn
from transformer.attention import MultiHeadAttention
from transformer.feedforward import GatedFeedForward
from transformer.layers import Layer
from transformer.masks import sliding_window_mask
from transformer.models.family import activation, initialise
from transformer.models.layer_kinds import windows
from transformer.models.text_encoder import TextEncoder, Transform


class WindowedEncoder(TextEncoder):
    """Layers that look both ways, all the way or at most local_attention // 2 tokens far; a network is gated.

    The first layer's attention has no norm, since the embeddings have one. Before each head stands a `Transform`.
    Raises ValueError for another head and where heads do not divide.
    """

    def __init__(self, config: Any, head: str | None = "masked-lm") -> None:
        super().__init__()
        self.check_head(head)
        self.config, self.head, d = config, head, config.hidden_size

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(d, config.norm_eps, bias=config.norm_bias)

        def layer(kind: str) -> Layer:
            attention = MultiHeadAttention(
                d, config.num_attention_heads, bias=config.attention_bias, dropout=config.attention_dropout,
                rope=turned[kind],
            )  # fmt: skip
            network = GatedFeedForward(
                d, config.intermediate_size, activation(config.hidden_activation), config.mlp_bias,
                inner_dropout=config.mlp_dropout,
            )  # fmt: skip
            made = Layer(attention, network, norm, norm_first=True)
            made.dropout1 = nn.Dropout(config.attention_dropout)
            return made

        kinds = config.kinds()
        self.windows = windows(kinds, config.local_attention // 2 + 1, config.num_hidden_layers)
        turned = config.ropes()
        self.token_embedding = nn.Embedding(config.vocab_size, d, config.pad_token_id)
        self.embedding_norm, self.dropout = norm(), nn.Dropout(config.embedding_dropout)
        self.layers = nn.ModuleList(map(layer, kinds))
        self.layers[0].norm1 = nn.Identity()
        self.norm = norm()
        if head is not None:
            self.transform = Transform(d, activation(config.classifier_activation), norm, config.classifier_bias)
        if head == "masked-lm":
            self.decoder = nn.Linear(d, config.vocab_size, config.decoder_bias)
            if config.tie_word_embeddings:
                self.decoder.weight = self.token_embedding.weight
        elif head is not None:
            self.classifier_dropout = nn.Dropout(config.classifier_dropout)
            self.classifier = nn.Linear(d, 2 if head == "answering" else config.n_labels)
        initialise(self, config.initializer_range)

    def encode(self, ids: Tensor, types: Tensor | None = None, real: Tensor | None = None) -> Tensor:
        real = self.known_real(ids, real)
        shown = None if real is None else real.unsqueeze(1).unsqueeze(1)
        masks = {window: self._mask(ids, window, shown) for window in {*self.windows}}
        x = self.dropout(self.embedding_norm(self.token_embedding(ids)))
        for layer, window in zip(self.layers, self.windows, strict=True):
            x = layer(x, masks[window])
        return self.norm(x)

    @staticmethod
    def _mask(ids: Tensor, window: int | None, shown: Tensor | None) -> Tensor | None:
        if window is None:
            return shown
        near = sliding_window_mask(ids.shape[1], window, causal=False, device=ids.device)
        return near if shown is None else near & shown

    def answer(self, x: Tensor, real: Tensor | None) -> Tensor:
        if self.head == "classification":
            x = self.pool(x, real)
        x = self.transform(x)
        return self.decoder(x) if self.head == "masked-lm" else self.classifier(self.classifier_dropout(x))

    def pool(self, x: Tensor, real: Tensor | None) -> Tensor:
        """The first token's hidden state, or the mean of the real ones': ``(B, T, d)`` to ``(B, d)``."""
        if self.config.classifier_pooling == "cls":
            return x[:, 0]
        if real is None:
            return x.mean(1)
        share = real.to(x.dtype).unsqueeze(-1)
        return (x * share).sum(1) / share.sum(1)
