"""BART: a post-norm encoder-decoder with learned positions (Lewis et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from minigrad import nn
from transformer.models.family import Config
from transformer.models.post_norm import PostNormSeq2Seq
from transformer.positions import LearnedPositions

_POSITION_OFFSET = 2  # the first two rows of BART's tables are never used


@dataclass(frozen=True, kw_only=True)
class BartConfig(Config):
    model_type = "bart"

    vocab_size: int = 50265
    d_model: int = 1024
    encoder_layers: int = 12
    decoder_layers: int = 12
    encoder_attention_heads: int = 16
    decoder_attention_heads: int = 16
    encoder_ffn_dim: int = 4096
    decoder_ffn_dim: int = 4096
    activation_function: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    max_position_embeddings: int = 1024
    scale_embedding: bool = False
    init_std: float = 0.02
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        d, encoder, decoder = self.d_model, self.encoder_layers - 1, self.decoder_layers - 1
        return {
            **self.table_shapes(),
            f"model.encoder.layers.{encoder}.fc1.weight": (self.encoder_ffn_dim, d),
            f"model.decoder.layers.{decoder}.fc1.weight": (self.decoder_ffn_dim, d),
            **self.position_shapes(),
        }

    @property
    def target_size(self) -> int:
        """How many tokens the decoder reads and writes."""
        return self.vocab_size

    @property
    def shared(self) -> bool:
        """Do encoder and decoder read the same tokens?"""
        return True

    def table_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tables of tokens."""
        return {"model.shared.weight": (self.vocab_size, self.d_model)}

    def position_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tables of positions, which Marian has none of."""
        shape = (self.max_position_embeddings + _POSITION_OFFSET, self.d_model)
        return {f"model.{side}.embed_positions.weight": shape for side in ("encoder", "decoder")}


class Bart(PostNormSeq2Seq):
    """BART with its language-model head. Raises ValueError where heads do not divide."""

    config_class = BartConfig
    architectures = {"BartForConditionalGeneration": {}, "BartModel": {}}
    positions_offset = _POSITION_OFFSET

    def __init__(self, config: BartConfig) -> None:
        d, rows = config.d_model, config.max_position_embeddings + _POSITION_OFFSET
        super().__init__(config, lambda: LearnedPositions(rows, d), lambda: nn.LayerNorm(d))
