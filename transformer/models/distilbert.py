"""DistilBERT: half of BERT's layers, without kinds of text and without a pooler (Sanh et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minigrad import Tensor, nn
from minigrad import functional as F
from transformer.models.family import Config, Name
from transformer.models.text_encoder import PostNormEncoder


@dataclass(frozen=True, kw_only=True)
class DistilBertConfig(Config):
    """The properties are BERT's words for its settings."""

    model_type = "distilbert"

    vocab_size: int = 30522
    max_position_embeddings: int = 512
    n_layers: int = 6
    n_heads: int = 12
    dim: int = 768
    hidden_dim: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: str = "gelu"
    initializer_range: float = 0.02
    qa_dropout: float = 0.1
    seq_classif_dropout: float = 0.2
    pad_token_id: int | None = 0
    tie_word_embeddings: bool = True
    id2label: dict | None = None

    type_vocab_size = property(lambda self: 0)
    layer_norm_eps = property(lambda self: 1e-12)
    hidden_size = property(lambda self: self.dim)
    num_hidden_layers = property(lambda self: self.n_layers)
    num_attention_heads = property(lambda self: self.n_heads)
    intermediate_size = property(lambda self: self.hidden_dim)
    hidden_act = property(lambda self: self.activation)
    hidden_dropout_prob = property(lambda self: self.dropout)
    attention_probs_dropout_prob = property(lambda self: self.attention_dropout)
    classifier_dropout = property(lambda self: None)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "distilbert.embeddings.word_embeddings.weight": (self.vocab_size, self.dim),
            "distilbert.embeddings.position_embeddings.weight": (self.max_position_embeddings, self.dim),
            f"distilbert.transformer.layer.{self.n_layers - 1}.ffn.lin1.weight": (self.hidden_dim, self.dim),
        }


LAYER = {
    "attention.q_lin": "self_attn.q_proj", "attention.k_lin": "self_attn.k_proj", "attention.v_lin": "self_attn.v_proj",
    "attention.out_lin": "self_attn.out_proj", "sa_layer_norm": "norm1", "ffn.lin1": "feed_forward.linear1",
    "ffn.lin2": "feed_forward.linear2", "output_layer_norm": "norm2",
}  # fmt: skip
HEAD = {"vocab_transform": "lm_head.dense", "vocab_layer_norm": "lm_head.norm", "vocab_projector": "lm_head.decoder",
        "pre_classifier": "pooler", "classifier": "classifier", "qa_outputs": "qa_outputs"}  # fmt: skip


class DistilBert(PostNormEncoder):
    """DistilBERT under one of BERT's heads, or without one."""

    config_class = DistilBertConfig
    architectures = {
        "DistilBertForMaskedLM": {"head": "masked-lm"},
        "DistilBertForSequenceClassification": {"head": "classification"},
        "DistilBertForTokenClassification": {"head": "tagging"},
        "DistilBertForQuestionAnswering": {"head": "answering"},
        "DistilBertModel": {"head": None},
    }
    prefix = "distilbert."
    ignored = (r"distilbert\.embeddings\.position_ids",)
    names = (
        Name("distilbert.embeddings.word_embeddings.weight", "token_embedding.weight"),
        Name("distilbert.embeddings.position_embeddings.weight", "positions.weight"),
        Name("distilbert.embeddings.LayerNorm.*", "norm.*"),
        *(Name(f"distilbert.transformer.layer.{{}}.{a}.*", f"layers.{{}}.{b}.*") for a, b in LAYER.items()),
        *(Name(f"{theirs}.*", f"{ours}.*") for theirs, ours in HEAD.items()),
    )

    def make_head(self, config: Any, head: str | None) -> None:
        super().make_head(config, head)
        for layer in self.layers:
            layer.dropout1 = nn.Dropout(0.0)  # it drops nothing behind attention
        if head == "masked-lm":
            self.lm_head.bias = None  # the decoder has the only one
        elif head in ("classification", "answering"):
            self.classifier_dropout = nn.Dropout(config.qa_dropout if head[0] == "a" else config.seq_classif_dropout)

    def answer(self, x: Tensor, real: Tensor | None) -> Tensor:
        if self.head == "classification":
            return self.classifier(self.classifier_dropout(F.relu(self.pooler(x[:, 0]))))
        return super().answer(self.classifier_dropout(x) if self.head == "answering" else x, real)
