"""ModernBERT: a bidirectional encoder with rotary positions, gated networks and windows (Warner et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as short
from typing import Any, Self

from transformer.models.family import CheckpointError, Name
from transformer.models.layer_kinds import LayerKindsConfig
from transformer.models.windowed_encoder import WindowedEncoder


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig(LayerKindsConfig):
    """local_attention: the width of a window, both sides together. classifier_pooling: "cls" or "mean"."""

    model_type = "modernbert"

    vocab_size: int = 50368
    intermediate_size: int = 1152
    hidden_activation: str = "gelu"
    initializer_range: float = 0.02
    norm_eps: float = 1e-5
    norm_bias: bool = False
    pad_token_id: int | None = 50283
    attention_bias: bool = False
    attention_dropout: float = 0.0
    local_attention: int = 128
    embedding_dropout: float = 0.0
    mlp_bias: bool = False
    mlp_dropout: float = 0.0
    decoder_bias: bool = True
    classifier_pooling: str = "cls"
    classifier_dropout: float = 0.0
    classifier_bias: bool = False
    classifier_activation: str = "gelu"
    tie_word_embeddings: bool = True
    id2label: dict | None = None

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        config = super().from_dict(settings)
        if config.classifier_pooling not in ("cls", "mean"):
            raise CheckpointError(f"config: classifier_pooling is {short(config.classifier_pooling)}, not cls or mean")
        return config

    def shapes(self) -> dict[str, tuple[int, ...]]:
        d, last = self.hidden_size, f"model.layers.{self.num_hidden_layers - 1}"
        return {
            "model.embeddings.tok_embeddings.weight": (self.vocab_size, d),
            f"{last}.mlp.Wi.weight": (2 * self.intermediate_size, d),
        }


_ATTENTION = [f"layers.{{}}.self_attn.{part}_proj.*" for part in ("q", "k", "v")]
_NETWORK = [f"layers.{{}}.feed_forward.{part}_proj.*" for part in ("gate", "up")]
_PLACES = {"embeddings.norm": "embedding_norm", "layers.{}.attn_norm": "layers.{}.norm1",
           "layers.{}.attn.Wo": "layers.{}.self_attn.out_proj", "layers.{}.mlp_norm": "layers.{}.norm2",
           "layers.{}.mlp.Wo": "layers.{}.feed_forward.down_proj", "final_norm": "norm"}  # fmt: skip
_HEADS = {"head.dense": "transform.dense", "head.norm": "transform.norm", "decoder": "decoder",
          "classifier": "classifier"}  # fmt: skip


class ModernBert(WindowedEncoder):
    """ModernBERT under one of BERT's heads, or without one."""

    config_class = ModernBertConfig
    architectures = {
        "ModernBertForMaskedLM": {"head": "masked-lm"},
        "ModernBertForSequenceClassification": {"head": "classification"},
        "ModernBertForTokenClassification": {"head": "tagging"},
        "ModernBertForQuestionAnswering": {"head": "answering"},
        "ModernBertModel": {"head": None},
    }
    prefix = "model."
    names = (
        Name("model.embeddings.tok_embeddings.weight", "token_embedding.weight"),
        Name("model.layers.{}.attn.Wqkv.*", *_ATTENTION),
        Name("model.layers.{}.mlp.Wi.*", *_NETWORK),
        *(Name(f"model.{theirs}.*", f"{ours}.*") for theirs, ours in _PLACES.items()),
        *(Name(f"{theirs}.*", f"{ours}.*") for theirs, ours in _HEADS.items()),
    )
