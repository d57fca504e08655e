"""RoBERTa: BERT with positions that count the real tokens, and other heads (Liu et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minigrad import Tensor
from minigrad import functional as F
from transformer.models.bert import Bert, BertConfig
from transformer.models.family import Name
from transformer.models.text_encoder import PostNormEncoder


@dataclass(frozen=True, kw_only=True)
class RobertaConfig(BertConfig):
    model_type = "roberta"
    prefix = "roberta"

    vocab_size: int = 50265
    pad_token_id: int = 1


class Roberta(PostNormEncoder):
    """RoBERTa under one of BERT's heads, or without one.

    Positions are those of BERT's table behind the padding's number; padding itself stands at that number.
    """

    config_class = RobertaConfig
    architectures = {
        "RobertaForMaskedLM": {"head": "masked-lm"},
        "RobertaForSequenceClassification": {"head": "classification"},
        "RobertaForTokenClassification": {"head": "tagging"},
        "RobertaForQuestionAnswering": {"head": "answering"},
        "RobertaModel": {"head": None},
    }
    prefix = "roberta."
    ignored = (r"roberta\.embeddings\.(position_ids|token_type_ids)", r"roberta\.pooler\..*")
    copies = {"lm_head.decoder.bias": "lm_head.bias"}
    names = (
        *(Name(f"roberta{name.theirs[4:]}", *name.ours) for name in Bert.names if name.theirs.startswith("bert.")),
        Name("lm_head.dense.*", "lm_head.dense.*"),
        Name("lm_head.layer_norm.*", "lm_head.norm.*"),
        Name("lm_head.decoder.weight", "lm_head.decoder.weight"),
        Name("lm_head.bias", "lm_head.bias"),
        Name("lm_head.decoder.bias", "lm_head.decoder.bias"),
        Name("classifier.dense.*", "dense.*"),
        Name("classifier.out_proj.*", "out_proj.*"),
        Name("classifier.*", "classifier.*"),
        Name("qa_outputs.*", "qa_outputs.*"),
    )

    @staticmethod
    def head_activation(config: Any) -> str:
        return "gelu"

    def make_head(self, config: Any, head: str | None) -> None:
        super().make_head(config, head)
        if head == "classification":
            self.dense, self.out_proj = self.pooler, self.classifier
            del self.pooler, self.classifier

    @property
    def max_len(self) -> int:
        return self.config.max_position_embeddings - self.config.pad_token_id - 1

    def place(self, ids: Tensor) -> Tensor:
        """Raises ValueError for more tokens than there are positions behind the padding's."""
        pad = self.config.pad_token_id
        if ids.shape[1] > self.max_len:
            raise ValueError(f"{ids.shape[1]} tokens do not fit {self.max_len} positions: shorten the input")
        real = (ids != pad).long()
        return real.cumsum(1) * real + pad

    def answer(self, x: Tensor, real: Tensor | None) -> Tensor:
        if self.head != "classification":
            return super().answer(x, real)
        return self.out_proj(self.classifier_dropout(F.tanh(self.dense(self.classifier_dropout(x[:, 0])))))
