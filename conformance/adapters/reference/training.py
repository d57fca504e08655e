"""Reference subjects of dropout, losses, masked tokens, clipping, schedule, accumulation and optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.adapters.reference.base import ReferenceSubject, reference
from conformance.protocol import Array, Arrays
from conformance.reference import training as f


@reference("dropout")
class Dropout(ReferenceSubject):
    def factors(self, shape: tuple[int, ...]) -> Array:
        """What each entry is multiplied by: 0 with probability p, else 1 / (1 - p); in evaluation 1."""
        rate = self.config["p"]
        if not self.training or rate == 0.0:
            return np.ones(shape)
        return np.where(self.rng.random(shape) < rate, 0.0, 1.0 / (1.0 - rate) if rate < 1.0 else 0.0)

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        return {"out": x * self.factors(x.shape).astype(x.dtype)}

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        """Of a forward pass of its own, with the mask that it draws."""
        return {"x": cotangent * self.factors(np.shape(inputs["x"]))}, {}


@reference("cross_entropy")
class CrossEntropy(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": np.asarray(f.cross_entropy(inputs["logits"], inputs["targets"], **self.config))}


@reference("training_loss")
class TrainingLoss(ReferenceSubject):
    """Fed all tokens but the last, taught all but the first, the mean over the labels that are no padding."""

    def labels(self, ids: Array) -> Array:
        return ids[:, 1:]

    def loss(self, logits: Array, labels: Array) -> Array:
        """Of logits (N, V) and labels (N,)."""
        return f.cross_entropy(logits, labels, ignore_index=0)

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        given, labels = inputs["ids"][:, :-1], self.labels(inputs["ids"])
        logits = inputs["logits"][:, : labels.shape[1]]
        return {"out": np.asarray(self.loss(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))), "given": given}


@reference("mse")
class MSE(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": np.asarray(((inputs["x"] - inputs["target"]) ** 2).mean())}


@reference("masked_tokens")
class MaskedTokens(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        given, labels = f.masked_tokens(inputs["ids"], np.random.default_rng(inputs["seed"]), **self.config)
        return {"out": given, "labels": labels}


@reference("gradient_accumulation")
class GradientAccumulation(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        pieces, pad = self.config["pieces"], self.config["pad_id"]
        return {"out": f.accumulated_gradient(p["weight"], inputs["x"], inputs["labels"], pieces, pad)}


@reference("clip_grad_norm")
class ClipGradNorm(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Any:
        gradients = inputs["grads"]
        return {
            "out": f.clip_by_global_norm(gradients, self.config["max_norm"]),
            "norm": np.asarray(f.global_norm(gradients)),
        }


@reference("lr_schedule")
class WarmupSchedule(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": np.asarray(f.warmup_rate(inputs["step"], self.config["d_model"], self.config["warmup"]))}


@reference("optimizer")
class Optimizer(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Any:
        return {"out": f.optimize(inputs["params"], inputs["grads"], self.config)}
