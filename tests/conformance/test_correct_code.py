"""Correct code that is not as the documents' code is: no check blames it for what is a matter of choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import conformance.checks  # noqa: F401 (registers them)
from conformance.adapters.reference import REFERENCE, ReferenceImplementation
from conformance.catalogue import load
from conformance.check import CHECKS
from conformance.protocol import NotProvided
from conformance.runner import run_check
from conformance.verdict import Verdict


def verdict(claim: str, subject: type[Any]) -> Verdict:
    """The verdict on the reference with one of its subjects replaced."""
    return run_check(CHECKS[claim], ReferenceImplementation({subject.role: subject}), "quick").verdict


class SlowCodes(REFERENCE["sinusoidal_positions"]):  # type: ignore[misc]
    """Neighbouring codes differ by 0.07 at most."""

    def __call__(self, *, x: np.ndarray) -> dict[str, np.ndarray]:
        angles = 0.07 * np.arange(x.shape[1])[:, None] / 2.0 ** np.arange(x.shape[2] // 2)
        return {"out": x + np.concatenate([np.sin(angles), np.cos(angles)], -1)}


@pytest.mark.parametrize("claim", ["positions-run-along-the-sequence", "sinusoid-positions-are-distinct"])
def test_codes_may_turn_slowly(claim: str) -> None:
    assert verdict(claim, SlowCodes) is Verdict.PASS
    assert verdict("sinusoid-formula", SlowCodes) is Verdict.FAIL


class Louder(REFERENCE["encoder_decoder"]):  # type: ignore[misc]
    """Another model: its logits are twice as large."""

    def __call__(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        return {"out": 2.0 * super().__call__(**inputs)["out"]}


def test_a_model_of_another_formula_still_drops_in_training_only() -> None:
    assert verdict("model-drops-in-training-only", Louder) is Verdict.PASS
    assert verdict("encoder-decoder-formula", Louder) is Verdict.FAIL


class FewOps(REFERENCE["autograd"]):  # type: ignore[misc]
    """An engine without division, powers and GELU."""

    def __init__(self, config: Any) -> None:
        if {"div", "pow", "gelu"} & {op for _, op, *_ in config["program"]}:
            raise NotProvided("no such op")
        super().__init__(config)


class FewOpsAndADoubledSum(FewOps):
    """The gradient of a product is twice what it should be."""

    def vjp(self, inputs: Any, cotangent: Any) -> Any:
        of_inputs, of_params = super().vjp(inputs, cotangent)
        doubled = any(op in ("mul", "tanh") for _, op, *_ in self.config["program"])
        return {name: value * (1 + doubled) for name, value in of_inputs.items()}, of_params


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param("every-op-has-the-gradient-of-its-value", marks=pytest.mark.slow),
        "gradient-of-a-broadcast-value-is-summed",
        "activations-act-element-by-element",
        "activations-stay-finite-at-large-inputs",
    ],
)
def test_an_engine_without_an_op_is_judged_by_the_others(claim: str) -> None:
    result = run_check(CHECKS[claim], ReferenceImplementation({"autograd": FewOps}), "quick")
    assert result.verdict is Verdict.PASS
    assert set(result.example["not provided"].replace(",", " ").split()) & {"div", "gelu"}
    assert verdict(claim, FewOpsAndADoubledSum) is Verdict.FAIL


class SmoothedOverTheOthers(REFERENCE["cross_entropy"]):  # type: ignore[misc]
    """Knows label smoothing over the other classes only."""

    def __init__(self, config: Any) -> None:
        if config["label_smoothing"] and config["smoothing_over"] == "all":
            raise NotProvided("smoothing is spread over the other classes")
        super().__init__(config)


class PaddingInTheCount(SmoothedOverTheOthers):
    """Its mean divides by all labels."""

    def __call__(self, *, logits: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
        out = super().__call__(logits=logits, targets=targets)["out"]
        share = np.mean(targets != self.config["ignore_index"])
        return {"out": out * share if self.config["reduction"] == "mean" else out}


def test_a_loss_that_smooths_over_the_other_classes_is_judged_by_that() -> None:
    assert verdict("cross-entropy-leaves-padding-out-of-the-mean", SmoothedOverTheOthers) is Verdict.PASS
    assert verdict("cross-entropy-leaves-padding-out-of-the-mean", PaddingInTheCount) is Verdict.FAIL


CONVENTIONS = [
    "decoder-lm-has-no-bias-and-no-cross-attention",
    "head-shares-the-embedding",
    "source-and-target-embed-separately",
    "embeddings-are-scaled-by-sqrt-d-model",
    "vectors-keep-their-default-start",
    "linear-weights-start-normal-0-02",
    "matrices-start-xavier-uniform",
    "pad-row-starts-at-zero",
    "fresh-attention-is-nearly-uniform",
    "a-key-head-serves-its-group-only",
]


@pytest.mark.parametrize("slug", CONVENTIONS)
def test_initialisation_and_design_are_conventions(slug: str) -> None:
    assert load().claims[slug].verdict == "convention"
