"""The adapter of torch's own modules: parameters, gradients, conventions, and that no check fails on torch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import conformance.checks  # noqa: E402, F401
from conformance.adapters.torch import ABSENT, TorchImplementation  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.protocol import ROLES, NotProvided  # noqa: E402
from conformance.reference.attention import attention  # noqa: E402
from conformance.runner import evidence_of  # noqa: E402

D = {"d_model": 6}
LAYER = {**D, "n_heads": 2, "d_ff": 7}
CONFIGS = {
    "linear": {"n_in": 3, "n_out": 4},
    "embedding": {"vocab": 5, **D},
    "layer_norm": D,
    "rms_norm": D,
    "mlp": {"sizes": (3, 4, 5)},
    "rnn": {"d_input": 3, "d_hidden": 4},
    "self_attention": {**D, "d_k": 3, "bias": True},
    "multi_head_attention": {**D, "n_heads": 2},
    "grouped_query_attention": {"d_model": 8, "n_heads": 4, "n_kv_heads": 2},
    "feed_forward": {**D, "d_ff": 7},
    "encoder_layer": LAYER,
    "decoder_layer": {**LAYER, "norm_first": True},
    "encoder": {**LAYER, "n_layers": 2},
    "decoder": {**LAYER, "n_layers": 2, "final_norm": False},
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def random_inputs(role, config):
    rng = np.random.default_rng(0)
    if role == "embedding":
        return {"ids": rng.integers(0, config["vocab"], (2, 3))}
    width = next(config[k] for k in ("d_model", "n_in", "d_input", "sizes") if k in config)
    shape = (2, 3, width) if isinstance(width, int) else (2, width[0])
    names = {"multi_head_attention": ("query", "key", "value")}.get(role, ("x",))
    inputs = {name: rng.standard_normal(shape) for name in names}
    return {**inputs, "memory": rng.standard_normal((2, 4, width))} if role.startswith("decoder") else inputs


@pytest.mark.parametrize("role", CONFIGS)
def test_parameters_are_the_roles_and_survive_a_round_trip(role):
    subject = TorchImplementation().build(role, CONFIGS[role])
    shapes = ROLES[role].params(ROLES[role].settings(CONFIGS[role]))
    assert {name: value.shape for name, value in subject.params().items()} == shapes
    rng = np.random.default_rng(1)
    values = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    subject.load(values)
    for name, value in subject.params().items():
        np.testing.assert_array_equal(value, values[name], err_msg=name)


@pytest.mark.parametrize("role", CONFIGS)
def test_gradients_are_the_slopes_along_random_directions(role):
    """sum(out * c) moves along a direction by gradient . direction: for the inputs and for every parameter."""
    subject = TorchImplementation().build(role, CONFIGS[role])
    subject.module.double()
    subject.torch_dtype = torch.float64
    inputs, weights = random_inputs(role, CONFIGS[role]), subject.params()
    rng = np.random.default_rng(2)
    cotangent = rng.standard_normal(subject(**inputs)["out"].shape)
    of_inputs, of_weights = subject.vjp(inputs, cotangent)
    step = 1e-6

    def slope(group, name):
        direction = rng.choice([-1.0, 1.0], np.shape(group[name]))

        def moved(by):
            changed = {**group, name: group[name] + by * direction}
            subject.load(changed if group is weights else weights)
            return float(np.sum(subject(**(changed if group is inputs else inputs))["out"] * cotangent))

        return (moved(step) - moved(-step)) / (2 * step), float(np.sum(direction * gradient[name]))

    for group, gradient in ((inputs, of_inputs), (weights, of_weights)):
        assert set(gradient) == {k for k, v in group.items() if v.dtype.kind == "f"}
        for name in gradient:
            measured, computed = slope(group, name)
            assert computed == pytest.approx(measured, rel=1e-6, abs=1e-6), name


@pytest.mark.parametrize("t_query", [2, 4])
def test_causal_attention_lets_the_last_query_see_every_key(t_query):
    rng = np.random.default_rng(3)
    query, key, value = (rng.standard_normal((1, 2, t, 3)) for t in (t_query, 4, 4))
    mask = np.array([True, False, True, True])
    got = TorchImplementation().build("attention", {"causal": True})(query=query, key=key, value=value, mask=mask)
    expected, _ = attention(query, key, value, mask & np.tri(t_query, 4, 4 - t_query, dtype=bool))
    np.testing.assert_allclose(got["out"], expected, atol=1e-6)


def test_the_policy_for_fully_hidden_rows_is_probed():
    impl = TorchImplementation()
    assert impl.build("attention", {}).attributes["masked_row"] == "zero"
    assert impl.build("multi_head_attention", CONFIGS["multi_head_attention"]).attributes["masked_row"] == "nan"


def test_dropout_acts_in_training_only():
    subject, ones = TorchImplementation().build("dropout", {"p": 0.5}), np.ones(100)
    assert (subject(x=ones)["out"] == 1).all()
    subject.train()
    assert set(np.unique(subject(x=ones)["out"])) == {0.0, 2.0}
    subject.train(False)
    assert (subject(x=ones)["out"] == 1).all()


@pytest.mark.parametrize("role", ABSENT)
def test_what_torch_has_not_is_not_provided_with_a_reason(role):
    required = {"warmup": 4, "max_new_tokens": 2, "max_len": 8, "src_vocab": 5, "tgt_vocab": 5, "vocab": 5}
    required |= {"n_experts": 3, "top_k": 2, "beams": 2, "pieces": 2, "mask_id": 1}
    every = {**required, **CONFIGS["grouped_query_attention"], "d_ff": 7, "n_layers": 1}
    config = {key: every[key] for key in ROLES[role].config if key in every}
    with pytest.raises(NotProvided, match=r"torch|nn\."):
        TorchImplementation().build(role, config)


@pytest.mark.deep  # `pytest conformance/ --impl torch` is a stage of CI
@pytest.mark.parametrize("claim", CHECKS)
def test_torch_fails_no_check(claim):
    try:
        evidence, _ = evidence_of(CHECKS[claim], TorchImplementation(), examples=2)
    except NotProvided as reason:
        pytest.skip(str(reason))
    assert evidence.ok, f"{evidence.what}: expected {evidence.expected}, got {evidence.got}"
