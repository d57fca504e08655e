"""Post-norm encoder-decoders: what BART and Marian share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minigrad as mg
from minigrad import Tensor, nn
from transformer.ids import check_ids
from transformer.masks import padding_mask
from transformer.models.family import Name, initialise
from transformer.models.stacks import LAYER_NAMES, TwoStacks
from transformer.places import Start, end


class PostNormSeq2Seq(TwoStacks):
    """Everything but the positions and a LayerNorm after them.

    positions: makes one stack's module, called with embeddings and an offset. The tables of encoder and decoder, and
    the head's, are one where `tie_word_embeddings`; where not, the files have a fourth table, `token_embedding`, that
    nothing uses.
    """

    positions_offset = 0
    logits_bias: Tensor
    prefix = "model."
    copies = {f"model.{side}.embed_tokens.weight": "model.shared.weight" for side in ("encoder", "decoder")}
    names = (
            Name("model.shared.weight", "token_embedding.weight"),
            Name("model.encoder.embed_tokens.weight", "encoder_embedding.weight"),
            Name("model.decoder.embed_tokens.weight", "decoder_embedding.weight"),
            Name("model.encoder.embed_positions.weight", "encoder_positions.weight"),
            Name("model.decoder.embed_positions.weight", "decoder_positions.weight"),
            Name("model.encoder.layernorm_embedding.*", "encoder_norm.*"),
            Name("model.decoder.layernorm_embedding.*", "decoder_norm.*"),
            *LAYER_NAMES,
            Name("final_logits_bias", "logits_bias", optional=True),
            Name("lm_head.weight", "lm_head.weight"),
    )  # fmt: skip

    def __init__(self, config: Any, positions: Callable[[], nn.Module], norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.config, self.n_layers, self.max_len = config, config.decoder_layers, config.max_position_embeddings
        d = config.d_model
        self.encoder_embedding = nn.Embedding(config.vocab_size, d, config.pad_token_id)
        self.decoder_embedding = nn.Embedding(config.target_size, d, config.pad_token_id)
        if config.shared:
            self.token_embedding = nn.Embedding(config.vocab_size, d, config.pad_token_id)
        self.encoder_positions, self.decoder_positions = positions(), positions()
        self.encoder_norm, self.decoder_norm = norm(), norm()
        self.dropout = nn.Dropout(config.dropout)

        self.make_layers()
        self.lm_head = nn.Linear(d, config.target_size, bias=False)
        self.register_buffer("logits_bias", mg.zeros(1, config.target_size))
        if config.tie_word_embeddings:
            if config.shared:
                self.encoder_embedding.weight = self.decoder_embedding.weight = self.token_embedding.weight
            self.lm_head.weight = self.decoder_embedding.weight
        initialise(self, config.init_std)

    def _embed(self, ids: Tensor, start: Start, table: nn.Module, positions: nn.Module, norm: nn.Module) -> Tensor:
        n = end(start, ids.shape[1])
        if n > self.max_len:
            raise ValueError(f"{n} tokens do not fit max_len {self.max_len}: shorten the input")
        x = table(ids)
        x = x * self.config.d_model**0.5 if self.config.scale_embedding else x
        return self.dropout(norm(positions(x, start + self.positions_offset)))

    def encode(self, src: Tensor, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """src ``(B, Ts)`` int to the memory ``(B, Ts, d_model)`` and its mask ``(B, 1, 1, Ts)``.

        real bool ``(B, Ts)``: the tokens that are no padding, unless given those that are not pad_token_id.
        """
        check_ids(src, "src")
        pad = -1 if self.config.pad_token_id is None else self.config.pad_token_id
        mask = padding_mask(src, pad) if real is None else real.unsqueeze(1).unsqueeze(1)
        x = self._embed(src, 0, self.encoder_embedding, self.encoder_positions, self.encoder_norm)
        for layer in self.encoder_layers:
            x = layer(x, mask)
        return x, mask

    def embed_target(self, tgt: Tensor, start: Start) -> Tensor:
        return self._embed(tgt, start, self.decoder_embedding, self.decoder_positions, self.decoder_norm)

    def logits(self, x: Tensor) -> Tensor:
        return self.lm_head(x) + self.logits_bias
