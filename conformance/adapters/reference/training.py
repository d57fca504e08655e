"""Reference subjects of dropout, losses, clipping, schedule and optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.base import ReferenceSubject, reference
from conformance.protocol import Arrays
from conformance.reference import training as f


@reference("dropout")
class Dropout(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, rate = inputs["x"], self.config["p"]
        if not self.training or rate == 0.0:
            return {"out": x}
        return {"out": np.where(self.rng.random(x.shape) < rate, 0.0, x / max(1.0 - rate, np.finfo(x.dtype).tiny))}


@reference("cross_entropy")
class CrossEntropy(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": np.asarray(f.cross_entropy(inputs["logits"], inputs["targets"], **self.config))}


@reference("mse")
class MSE(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": np.asarray(((inputs["x"] - inputs["target"]) ** 2).mean())}


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
