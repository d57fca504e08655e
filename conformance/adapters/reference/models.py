"""Reference subjects of whole models. `formulas` is what a variant replaces."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.base import ReferenceSubject, reference
from conformance.adapters.reference.feed_forward import dropout_of
from conformance.protocol import Array, Arrays
from conformance.reference import models as f


@reference("encoder_decoder")
class EncoderDecoder(ReferenceSubject):
    """Xavier matrices; the padding rows of both embeddings start at zero."""

    formulas: type[f.EncoderDecoder] = f.EncoderDecoder

    def initialise(self) -> Arrays:
        weights = super().initialise()
        for table in ("src_embedding.weight", "tgt_embedding.weight"):
            weights[table][self.config["pad_id"]] = 0.0
        return weights

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        steps = self.formulas(self.config["n_heads"], drop=dropout_of(self), pad_id=self.config["pad_id"])
        return {"out": steps.logits(p, inputs["src"], inputs["tgt"])}


class LanguageModelSubject(ReferenceSubject):
    """Matrices start from N(0, 0.02), norm weights at one."""

    formulas: type[f.DecoderLM] = f.DecoderLM
    attributes = {"eps": 1e-6}

    def initialise(self) -> Arrays:
        weights = super().initialise()
        rng = np.random.default_rng(0)
        for name, value in weights.items():
            if value.ndim > 1:
                weights[name] = (0.02 * rng.standard_normal(value.shape)).astype(self.dtype)
        return weights

    def steps(self, ids: Array) -> f.DecoderLM:
        if ids.shape[1] > self.config["max_len"]:
            raise ValueError(f"{ids.shape[1]} tokens do not fit max_len {self.config['max_len']}; shorten the input")
        config, eps = self.config, self.attributes["eps"]
        return self.formulas(config["n_heads"], config["n_kv_heads"], config["rope"], eps)


@reference("decoder_lm")
class DecoderLM(LanguageModelSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        ids = inputs["ids"]
        return {"out": self.steps(ids).logits(p, ids)}


@reference("cached_decoder_lm")
class CachedDecoderLM(LanguageModelSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        ids = inputs["ids"]
        logits, held = self.steps(ids).cached_logits(p, ids, inputs["chunks"])
        return {"out": logits, "cache_bytes": np.array(held)}
