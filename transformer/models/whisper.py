"""Whisper: a pre-norm encoder-decoder that hears log-mel frames and writes what was said (Radford et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import minigrad as mg
from minigrad import Tensor, nn
from transformer.frames import PlacedFrames
from transformer.models.family import Config, Name, initialise
from transformer.models.stacks import LAYER_NAMES, TwoStacks
from transformer.places import Start
from transformer.positions import LearnedPositions


@dataclass(frozen=True, kw_only=True)
class WhisperConfig(Config):
    """scale_embedding of a file is kept and not followed, as in the library: nothing is scaled."""

    model_type = "whisper"
    fixed = {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "apply_spec_augment": False}

    vocab_size: int = 51865
    num_mel_bins: int = 80
    d_model: int = 384
    encoder_layers: int = 4
    decoder_layers: int = 4
    encoder_attention_heads: int = 6
    decoder_attention_heads: int = 6
    encoder_ffn_dim: int = 1536
    decoder_ffn_dim: int = 1536
    activation_function: str = "gelu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    max_source_positions: int = 1500
    max_target_positions: int = 448
    init_std: float = 0.02
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 50256

    def shapes(self) -> dict[str, tuple[int, ...]]:
        d = self.d_model
        return {
            "model.encoder.conv1.weight": (d, self.num_mel_bins, 3),
            "model.encoder.embed_positions.weight": (self.max_source_positions, d),
            "model.decoder.embed_tokens.weight": (self.vocab_size, d),
            "model.decoder.embed_positions.weight": (self.max_target_positions, d),
            f"model.encoder.layers.{self.encoder_layers - 1}.fc1.weight": (self.encoder_ffn_dim, d),
            f"model.decoder.layers.{self.decoder_layers - 1}.fc1.weight": (self.decoder_ffn_dim, d),
        }


class Whisper(TwoStacks):
    """Whisper with its language-model head. Sources are frames ``(B, num_mel_bins, 2 max_source_positions)``.

    Raises ValueError where heads do not divide, and for an odd d_model.
    """

    config_class = WhisperConfig
    architectures = {"WhisperForConditionalGeneration": {}, "WhisperModel": {}}
    reads_ids = False
    prefix = "model."
    names = (
        *(Name(f"model.encoder.conv{i}.*", f"frames.conv{i}.*") for i in (1, 2)),
        Name("model.encoder.embed_positions.weight", "frames.positions"),
        Name("model.decoder.embed_tokens.weight", "token_embedding.weight"),
        Name("model.decoder.embed_positions.weight", "decoder_positions.weight"),
        *LAYER_NAMES,
        *(Name(f"model.{side}.layer_norm.*", f"{side}_norm.*") for side in ("encoder", "decoder")),
        Name("proj_out.weight", "lm_head.weight"),
    )

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        self.config, self.n_layers, self.max_len = config, config.decoder_layers, config.max_target_positions
        d = config.d_model
        self.frames = PlacedFrames(config.num_mel_bins, config.max_source_positions, d, config.dropout)
        self.token_embedding = nn.Embedding(config.vocab_size, d, config.pad_token_id)
        self.decoder_positions = LearnedPositions(self.max_len, d, config.dropout)
        self.make_layers(norm_first=True, key_bias=False)
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.token_embedding.weight
        initialise(self, config.init_std)

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """Frames ``(B, num_mel_bins, T)`` to the memory ``(B, T / 2, d_model)`` and its mask, which hides nothing."""
        x = self.frames(src)
        for layer in self.encoder_layers:
            x = layer(x)
        return self.encoder_norm(x), mg.ones(x.shape[0], 1, 1, x.shape[1], dtype=mg.bool, device=x.device)

    def embed_target(self, tgt: Tensor, start: Start) -> Tensor:
        return self.decoder_positions(self.token_embedding(tgt), start)

    def logits(self, x: Tensor) -> Tensor:
        return self.lm_head(self.decoder_norm(x))
