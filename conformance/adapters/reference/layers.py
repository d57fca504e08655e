"""Reference subjects of layers and stacks. `formulas` is what a variant replaces."""

from __future__ import annotations

from typing import Any

from conformance.adapters.reference.base import ReferenceSubject, reference
from conformance.adapters.reference.feed_forward import dropout_of
from conformance.protocol import Arrays
from conformance.reference import layers as f


class LayerSubject(ReferenceSubject):
    """A subject whose formulas are the steps of `conformance.reference.layers.Layers`."""

    formulas: type[f.Layers] = f.Layers
    attributes = {"activation": "relu", "eps": 1e-5}

    def steps(self) -> f.Layers:
        drop = dropout_of(self) if "dropout" in self.config else f.ff.unchanged
        said = self.attributes
        return self.formulas(self.config["n_heads"], self.config["norm_first"], drop, said["activation"], said["eps"])


@reference("encoder_layer")
class EncoderLayer(LayerSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": self.steps().encoder_layer(p, **inputs)}


@reference("decoder_layer")
class DecoderLayer(LayerSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": self.steps().decoder_layer(p, **inputs)}


@reference("encoder")
class Encoder(LayerSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": self.steps().encoder(p, **inputs)}


@reference("decoder")
class Decoder(LayerSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": self.steps().decoder(p, **inputs)}
