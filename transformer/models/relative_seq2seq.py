"""Encoder-decoders whose positions are biases of unscaled scores: what T5 and mT5 share."""

from __future__ import annotations

from typing import Any

from minigrad import Tensor, nn
from transformer.attention import MultiHeadAttention
from transformer.cache import KVCache
from transformer.feedforward import FeedForward, GatedFeedForward
from transformer.ids import check_ids
from transformer.layers import Layer
from transformer.masks import padding_mask, visible_mask
from transformer.models.base import Seq2Seq
from transformer.models.family import Family, activation
from transformer.places import Start
from transformer.positions import RelativePositionBias


class RelativeSeq2Seq(Seq2Seq, Family):
    """Pre-norm layers with RMSNorm; both gated and plain feed-forward networks. Texts have no longest length.

    The first target token is the padding token, by convention, so decoding hides no padding.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, self.n_layers, self.max_len = config, config.decoder_layers, 2**31
        d, dropout = config.d_model, config.dropout_rate
        self.token_embedding = nn.Embedding(config.vocab_size, d)
        self.dropout = nn.Dropout(dropout)
        buckets = (config.num_heads, config.relative_attention_num_buckets, config.relative_attention_max_distance)
        self.encoder_bias = RelativePositionBias(*buckets)
        self.decoder_bias = RelativePositionBias(*buckets, bidirectional=False)

        def attention() -> MultiHeadAttention:
            return MultiHeadAttention(d, config.num_heads, bias=False, dropout=dropout, d_head=config.d_kv, scale=1.0)

        def feed_forward() -> nn.Module:
            gate, _, name = config.feed_forward_proj.rpartition("-")
            name = activation("gelu_new" if config.feed_forward_proj == "gated-gelu" else name)
            if gate == "gated":
                return GatedFeedForward(d, config.d_ff, name)
            return FeedForward(d, config.d_ff, name, bias=False, dropout=dropout)

        def layer(cross: bool) -> Layer:
            norm = lambda: nn.RMSNorm(d, config.layer_norm_epsilon)  # noqa: E731
            return Layer(attention(), feed_forward(), norm, dropout, True, attention() if cross else None)

        self.encoder_layers = nn.ModuleList(layer(cross=False) for _ in range(config.num_layers))
        self.decoder_layers = nn.ModuleList(layer(cross=True) for _ in range(config.decoder_layers))
        self.encoder_norm = nn.RMSNorm(d, config.layer_norm_epsilon)
        self.decoder_norm = nn.RMSNorm(d, config.layer_norm_epsilon)
        self.lm_head = nn.Linear(d, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.token_embedding.weight
        self._initialise(config.initializer_factor)

    def _initialise(self, factor: float) -> None:
        """Each matrix so that its output has the variance of its input; unscaled scores: queries smaller still."""
        config = self.config
        for name, parameter in self.named_parameters():
            if name.endswith("q_proj.weight"):
                std = (config.d_model * config.d_kv) ** -0.5
            elif name.endswith("out_proj.weight"):
                std = (config.num_heads * config.d_kv) ** -0.5
            elif name.endswith(("linear2.weight", "down_proj.weight")):
                std = config.d_ff**-0.5
            else:
                std = 1.0 if name in ("token_embedding.weight", "lm_head.weight") else config.d_model**-0.5
            if parameter.ndim > 1:
                nn.init.normal_(parameter, 0.0, factor * std)

    def encode(self, src: Tensor, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """src ``(B, Ts)`` int to the memory ``(B, Ts, d_model)`` and its mask ``(B, 1, 1, Ts)``.

        real bool ``(B, Ts)``: the tokens that are no padding, unless given those that are not pad_token_id.
        """
        check_ids(src, "src")
        pad = -1 if self.config.pad_token_id is None else self.config.pad_token_id
        mask = padding_mask(src, pad) if real is None else real.unsqueeze(1).unsqueeze(1)
        x, bias = self.dropout(self.token_embedding(src)), self.encoder_bias(src.shape[1])
        for layer in self.encoder_layers:
            x = layer(x, mask, bias=bias)
        return self.dropout(self.encoder_norm(x)), mask

    def decode(self, tgt: Tensor, memory: Tensor, memory_mask: Tensor, cache: KVCache | None = None) -> Tensor:
        check_ids(tgt, "tgt")
        n = tgt.shape[1]
        start: Start = 0 if cache is None else cache.length
        x, bias = self.dropout(self.token_embedding(tgt)), self.decoder_bias(n, start=start)
        mask = visible_mask(n, start, device=tgt.device)
        for i, layer in enumerate(self.decoder_layers):
            own, cross = (None, None) if cache is None else (cache.layers[i], cache.memory[i])
            x = layer(x, mask, own, memory, memory_mask, cross, bias)
        x = self.dropout(self.decoder_norm(x))
        return self.lm_head(x * self.config.d_model**-0.5 if self.config.scale_decoder_outputs else x)
