"""Marian: BART with sinusoidal positions, for translation (Junczys-Dowmunt et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from minigrad import nn
from transformer.models.bart import BartConfig
from transformer.models.post_norm import PostNormSeq2Seq
from transformer.positions import SinusoidalPositions


@dataclass(frozen=True, kw_only=True)
class MarianConfig(BartConfig):
    """decoder_vocab_size: of a decoder with a vocabulary of its own (not share_encoder_decoder_embeddings)."""

    model_type = "marian"

    vocab_size: int = 58101
    decoder_vocab_size: int | None = None
    share_encoder_decoder_embeddings: bool = True
    pad_token_id: int | None = 58100

    @property
    def shared(self) -> bool:
        return self.share_encoder_decoder_embeddings

    @property
    def target_size(self) -> int:
        return self.vocab_size if self.shared or self.decoder_vocab_size is None else self.decoder_vocab_size

    def table_shapes(self) -> dict[str, tuple[int, ...]]:
        if self.shared:
            return super().table_shapes()
        sizes = {"encoder": self.vocab_size, "decoder": self.target_size}
        return {f"model.{side}.embed_tokens.weight": (size, self.d_model) for side, size in sizes.items()}

    def position_shapes(self) -> dict[str, tuple[int, ...]]:
        return {}


class Marian(PostNormSeq2Seq):
    """Marian with its language-model head: BART with sinusoidal positions and no LayerNorm on the embeddings."""

    config_class = MarianConfig
    architectures = {"MarianMTModel": {}, "MarianModel": {}}
    ignored = (r"model\.(encoder|decoder)\.embed_positions\.weight",)

    def __init__(self, config: MarianConfig) -> None:
        super().__init__(
            config,
            lambda: SinusoidalPositions(config.d_model, config.max_position_embeddings, layout="half"),
            nn.Identity,
        )
