"""Encoders of texts and their heads: what all share, and BERT's post-norm layers, which RoBERTa and DistilBERT have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minigrad as mg
from minigrad import Tensor, nn
from minigrad import functional as F
from transformer.attention import MultiHeadAttention
from transformer.feedforward import ACTIVATIONS, FeedForward
from transformer.ids import check_ids
from transformer.layers import Layer
from transformer.models.family import Family, activation, initialise
from transformer.positions import LearnedPositions


class Transform(nn.Module):
    """norm(activation(dense(x))), what stands between an encoder and a head; norm: makes one."""

    def __init__(self, d_model: int, activation: str, norm: Callable[[], nn.Module], bias: bool = True) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.dense = nn.Linear(d_model, d_model, bias)
        self.norm = norm()

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(x)))


class MaskedLMHead(Transform):
    """Logits over the vocabulary for each token: dense, activation, LayerNorm, the embedding's matrix, a bias.

    bias: the decoder's where the model ties, else a second one, which files have and nothing uses.
    """

    def __init__(self, d_model: int, vocab: int, activation: str, eps: float) -> None:
        super().__init__(d_model, activation, lambda: nn.LayerNorm(d_model, eps))
        self.decoder = nn.Linear(d_model, vocab)
        self.bias: nn.Parameter | None = nn.Parameter(mg.zeros(vocab))

    def tie(self, table: nn.Parameter) -> None:
        """Make the embedding's table the decoder's matrix, and the two biases one."""
        self.decoder.weight, self.bias = table, self.decoder.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(super().forward(x))


class TextEncoder(nn.Module, Family):
    """An encoder under one of its heads, or without one.

    "masked-lm" gives logits ``(B, T, vocab)``, "tagging" logits of each token ``(B, T, n_labels)``, "answering" those
    of each as an answer's first and last ``(B, T, 2)``, "classification" logits of each text ``(B, n_labels)``, None
    the last hidden states ``(B, T, hidden_size)``. A model defines `encode` and `answer`.
    """

    head: str | None

    def encode(self, ids: Tensor, types: Tensor | None = None, real: Tensor | None = None) -> Tensor:
        """The last hidden states ``(B, T, hidden_size)``; arguments as forward's."""
        raise NotImplementedError

    def answer(self, x: Tensor, real: Tensor | None) -> Tensor:
        """What the head makes of hidden states ``(B, T, hidden_size)``; real as forward's, None where all are."""
        raise NotImplementedError

    def forward(self, ids: Tensor, types: Tensor | None = None, real: Tensor | None = None) -> Tensor:
        """ids ``(B, T)`` int to what the head gives; types ``(B, T)`` int: which of two texts, 0 unless given.

        real bool ``(B, T)``: the tokens that are no padding, unless given those that are not pad_token_id.
        """
        x = self.encode(ids, types, real)
        return x if self.head is None else self.answer(x, self.known_real(ids, real))

    def known_real(self, ids: Tensor, real: Tensor | None) -> Tensor | None:
        """`real`, or what pad_token_id says of the ids, None where there is none. Raises what `check_ids` does."""
        check_ids(ids)
        pad = self.config.pad_token_id
        return ids != pad if real is None and pad is not None else real

    @property
    def max_len(self) -> int:
        """How many tokens it reads at most."""
        return self.config.max_position_embeddings


class PostNormEncoder(TextEncoder):
    """BERT's encoder, and its heads.

    pooled: the tanh layer over the first token, from which classification starts, is there without a head too. Raises
    ValueError for another head and where heads do not divide. Families override `place`, `make_head` and `answer`.
    """

    def __init__(self, config: Any, head: str | None = "masked-lm", pooled: bool = False) -> None:
        super().__init__()
        self.check_head(head)
        self.config, self.head = config, head
        d, eps, dropout = config.hidden_size, config.layer_norm_eps, config.hidden_dropout_prob
        self.token_embedding = nn.Embedding(config.vocab_size, d, config.pad_token_id)
        if config.type_vocab_size:
            self.type_embedding = nn.Embedding(config.type_vocab_size, d)
        self.positions = LearnedPositions(config.max_position_embeddings, d)
        self.norm = nn.LayerNorm(d, eps)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            Layer(
                MultiHeadAttention(d, config.num_attention_heads, dropout=config.attention_probs_dropout_prob),
                FeedForward(d, config.intermediate_size, activation(config.hidden_act)),
                lambda: nn.LayerNorm(d, eps),
                dropout,
            )
            for _ in range(config.num_hidden_layers)
        )
        if pooled:
            self.pooler = nn.Linear(d, d)
        self.make_head(config, head)
        initialise(self, config.initializer_range)

    def make_head(self, config: Any, head: str | None) -> None:
        """The modules of a head."""
        d = config.hidden_size
        if head == "classification":
            self.pooler = nn.Linear(d, d)
        if head == "masked-lm":
            self.lm_head = MaskedLMHead(d, config.vocab_size, self.head_activation(config), config.layer_norm_eps)
            if config.tie_word_embeddings:
                self.lm_head.tie(self.token_embedding.weight)
        elif head == "answering":
            self.qa_outputs = nn.Linear(d, 2)
        elif head is not None:
            last = config.classifier_dropout
            self.classifier_dropout = nn.Dropout(config.hidden_dropout_prob if last is None else last)
            self.classifier = nn.Linear(d, config.n_labels)

    @staticmethod
    def head_activation(config: Any) -> str:
        """Of the language-model head."""
        return activation(config.hidden_act)

    def encode(self, ids: Tensor, types: Tensor | None = None, real: Tensor | None = None) -> Tensor:
        real = self.known_real(ids, real)
        mask = None if real is None else real.unsqueeze(1).unsqueeze(1)
        x = self.token_embedding(ids)
        if self.config.type_vocab_size:
            x = x + self.type_embedding(mg.zeros_like(ids) if types is None else types)
        x = self.dropout(self.norm(self.positions(x, positions=self.place(ids))))
        for layer in self.layers:
            x = layer(x, mask)
        return x

    def place(self, ids: Tensor) -> Tensor | None:
        """At which position each of the ids ``(B, T)`` stands, None where they stand at 0, 1, ..."""
        return None

    def pool(self, x: Tensor) -> Tensor:
        """tanh of a Linear of the first token: hidden states ``(B, T, hidden_size)`` to ``(B, hidden_size)``."""
        return F.tanh(self.pooler(x[:, 0]))

    def answer(self, x: Tensor, real: Tensor | None) -> Tensor:
        if self.head == "masked-lm":
            return self.lm_head(x)
        if self.head == "answering":
            return self.qa_outputs(x)
        return self.classifier(self.classifier_dropout(self.pool(x) if self.head == "classification" else x))
