"""The adapter of this project's engine and models: roles, canonical parameters, kernels, modes, no failed check."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from slow import slow_but

import conformance.checks  # noqa: F401
from conformance.adapters import SpecificationError, resolve
from conformance.adapters.minigrad import MinigradImplementation
from conformance.check import CHECKS
from conformance.protocol import AS_THEY_ARE, REQUIRED, ROLES
from conformance.runner import evidence_of
from minigrad import kernels, later
from minigrad.kernels.cuda import runtime
from minigrad.kernels.cuda.simulated import SimulatedDriver

SIZES = {
    "d_model": 12, "n_heads": 6, "n_kv_heads": 2, "n_layers": 2, "d_ff": 14, "d_k": 4, "max_len": 9, "vocab": 7,
    "src_vocab": 7, "tgt_vocab": 8, "n_in": 3, "n_out": 4, "sizes": (3, 4, 5), "d_input": 3, "d_hidden": 4,
    "kind": "relu", "warmup": 4, "max_new_tokens": 2, "max_norm": 1.0, "lr": 0.1, "program": (),
    "n_experts": 3, "top_k": 2, "beams": 2, "pieces": 2, "mask_id": 1,
}  # fmt: skip


ABSENT = {*AS_THEY_ARE, "training_loss"}
"""Roles of PyTorch code that minigrad does not play."""


def config_of(role):
    required = {name: SIZES[name] for name, default in ROLES[role].config.items() if default is REQUIRED}
    return {**required, "kind": "sgd"} if role == "optimizer" else required


@pytest.mark.parametrize("role", [role for role in ROLES if role not in ABSENT])
def test_every_role_is_provided_with_its_canonical_parameters(role):
    subject = MinigradImplementation().build(role, config_of(role))
    shapes = ROLES[role].params(ROLES[role].settings(config_of(role)))
    assert {name: value.shape for name, value in subject.params().items()} == shapes
    rng = np.random.default_rng(1)
    values = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    subject.load(values)
    for name, value in subject.params().items():
        np.testing.assert_array_equal(value, values[name], err_msg=name)


OF_PARTS = [claim for claim, check in CHECKS.items() if not ABSENT & set(check.roles)]


@pytest.mark.deep  # `pytest conformance/` is a stage of CI
@pytest.mark.parametrize("claim", OF_PARTS)
def test_minigrad_fails_no_check(claim):
    evidence, _ = evidence_of(CHECKS[claim], MinigradImplementation(), examples=2)
    assert evidence.ok, f"{evidence.what}: expected {evidence.expected}, got {evidence.got}"


ONE_OF_A_KIND = (
    "encoder-decoder-formula",
    "cached-steps-equal-the-full-pass",
    "sgd-subtracts-the-rate-times-the-gradient",
    "every-op-has-the-gradient-of-its-value",
)


@pytest.mark.parametrize("claim", slow_but(ONE_OF_A_KIND, lambda claim: claim in ONE_OF_A_KIND[1:3]))
def test_compiled_plans_keep_claims_about_models_caches_updates_and_gradients(claim):
    evidence, _ = evidence_of(CHECKS[claim], MinigradImplementation("compiled"), examples=0)
    assert evidence.ok, f"{evidence.what}: expected {evidence.expected}, got {evidence.got}"


def kernels_used(impl, monkeypatch):
    """Which ops ran by a kernel while a small encoder layer was computed and differentiated."""
    used = set()
    load = later.load

    def recording(spec):
        used.add(spec.rpartition(":")[2])
        return load(spec)

    monkeypatch.setattr(later, "load", recording)
    subject = impl.build("encoder_layer", config_of("encoder_layer"))
    x = np.random.default_rng(0).standard_normal((1, 2, 12))
    subject(x=x)
    subject.vjp({"x": x}, np.ones((1, 2, 12)))
    return used


def test_kernels_run_at_every_size_and_the_reference_mode_has_none(monkeypatch):
    before = kernels.get_mode()
    assert {"layer_norm", "layer_norm_grad"} <= kernels_used(MinigradImplementation(), monkeypatch)
    assert not kernels_used(MinigradImplementation("reference"), monkeypatch)
    assert kernels.get_mode() == before


def test_without_a_gpu_the_cuda_mode_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    monkeypatch.setattr(runtime, "_runtime", None)
    monkeypatch.delenv("MINIGRAD_CUDA", raising=False)
    with pytest.raises(
        SpecificationError, match=r"^--impl minigrad:cuda: device .cuda. needs .* numba-cuda, which is not"
    ):
        resolve("minigrad:cuda")


@pytest.mark.parametrize(
    "claim",
    [
        "layer-norm-formula",
        "rms-norm-formula",
        "clipping-uses-one-norm-over-all-parameters",
        "sgd-subtracts-the-rate-times-the-gradient",
    ],
)
def test_the_cuda_mode_keeps_claims_on_the_device(claim):
    pytest.importorskip("greenlet", reason="the simulator needs greenlet")
    with runtime.use(SimulatedDriver()) as device:
        evidence, _ = evidence_of(CHECKS[claim], resolve("minigrad:cuda"), examples=0)
        assert evidence.ok, f"{evidence.what}: expected {evidence.expected}, got {evidence.got}"
        assert device.driver.counts["launch"]


def test_wrong_parameters_are_refused_by_name():
    subject = MinigradImplementation().build("linear", {"n_in": 3, "n_out": 4})
    with pytest.raises(ValueError, match="no value for bias; no parameter or buffer called offset"):
        subject.load({"weight": np.zeros((4, 3)), "offset": np.zeros(4)})


def test_gradients_of_what_the_output_does_not_depend_on_are_zeros():
    subject = MinigradImplementation().build("learned_positions", {"d_model": 2, "max_len": 4})
    of_inputs, of_params = subject.vjp({"x": np.zeros((1, 3, 2))}, np.ones((1, 3, 2)))
    np.testing.assert_array_equal(of_inputs["x"], np.ones((1, 3, 2)))
    np.testing.assert_array_equal(of_params["weight"], [[1, 1], [1, 1], [1, 1], [0, 0]])
