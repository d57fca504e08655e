"""mT5: T5 1.1 with a vocabulary of a hundred languages (Xue et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from transformer.models.t5 import T5, T5Config


@dataclass(frozen=True, kw_only=True)
class MT5Config(T5Config):
    model_type = "mt5"

    vocab_size: int = 250112
    d_ff: int = 1024
    num_layers: int = 8
    num_heads: int = 6
    feed_forward_proj: str = "gated-gelu"
    scale_decoder_outputs: bool = False

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """As T5Config's; the decoder's outputs are never scaled."""
        return super().from_dict({**settings, "scale_decoder_outputs": False})


class MT5(T5):
    """mT5 with its language-model head."""

    config_class = MT5Config
    architectures = {"MT5ForConditionalGeneration": {}, "MT5Model": {}}
