"""BERT: a bidirectional encoder with post-norm layers (Devlin et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from transformer.models.family import Config, Name
from transformer.models.text_encoder import PostNormEncoder


@dataclass(frozen=True, kw_only=True)
class BertConfig(Config):
    """prefix: what the keys of a file begin with."""

    model_type = "bert"
    prefix: ClassVar[str] = "bert"
    fixed = {"add_cross_attention": False, "is_decoder": False, "position_embedding_type": "absolute"}

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    pad_token_id: int | None = 0
    tie_word_embeddings: bool = True
    id2label: dict | None = None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        d = self.hidden_size
        last = f"{self.prefix}.encoder.layer.{self.num_hidden_layers - 1}"
        return {
            f"{self.prefix}.embeddings.word_embeddings.weight": (self.vocab_size, d),
            f"{self.prefix}.embeddings.position_embeddings.weight": (self.max_position_embeddings, d),
            f"{self.prefix}.embeddings.token_type_embeddings.weight": (self.type_vocab_size, d),
            f"{last}.intermediate.dense.weight": (self.intermediate_size, d),
        }


class Bert(PostNormEncoder):
    """BERT under one of its heads, or without one."""

    config_class = BertConfig
    architectures = {
        "BertForMaskedLM": {"head": "masked-lm"},
        "BertForPreTraining": {"head": "masked-lm"},
        "BertForSequenceClassification": {"head": "classification"},
        "BertForTokenClassification": {"head": "tagging"},
        "BertForQuestionAnswering": {"head": "answering"},
        "BertModel": {"head": None},
    }
    ignored = (
        r"bert\.embeddings\.(position_ids|token_type_ids)",
        r"bert\.pooler\..*",
        r"cls\.seq_relationship\..*",
    )
    prefix = "bert."
    renamed = (
        (r"LayerNorm\.gamma$", "LayerNorm.weight"),
        (r"LayerNorm\.beta$", "LayerNorm.bias"),
    )
    copies = {"cls.predictions.decoder.bias": "cls.predictions.bias"}
    names = (
        Name("bert.embeddings.word_embeddings.weight", "token_embedding.weight"),
        Name("bert.embeddings.position_embeddings.weight", "positions.weight"),
        Name("bert.embeddings.token_type_embeddings.weight", "type_embedding.weight"),
        Name("bert.embeddings.LayerNorm.*", "norm.*"),
        Name("bert.encoder.layer.{}.attention.self.query.*", "layers.{}.self_attn.q_proj.*"),
        Name("bert.encoder.layer.{}.attention.self.key.*", "layers.{}.self_attn.k_proj.*"),
        Name("bert.encoder.layer.{}.attention.self.value.*", "layers.{}.self_attn.v_proj.*"),
        Name("bert.encoder.layer.{}.attention.output.dense.*", "layers.{}.self_attn.out_proj.*"),
        Name("bert.encoder.layer.{}.attention.output.LayerNorm.*", "layers.{}.norm1.*"),
        Name("bert.encoder.layer.{}.intermediate.dense.*", "layers.{}.feed_forward.linear1.*"),
        Name("bert.encoder.layer.{}.output.dense.*", "layers.{}.feed_forward.linear2.*"),
        Name("bert.encoder.layer.{}.output.LayerNorm.*", "layers.{}.norm2.*"),
        Name("bert.pooler.dense.*", "pooler.*"),
        Name("cls.predictions.transform.dense.*", "lm_head.dense.*"),
        Name("cls.predictions.transform.LayerNorm.*", "lm_head.norm.*"),
        Name("cls.predictions.decoder.weight", "lm_head.decoder.weight"),
        Name("cls.predictions.bias", "lm_head.bias"),
        Name("cls.predictions.decoder.bias", "lm_head.decoder.bias"),
        Name("classifier.*", "classifier.*"),
        Name("qa_outputs.*", "qa_outputs.*"),
    )
