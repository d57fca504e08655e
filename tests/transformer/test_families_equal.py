"""Published model families: from the same checkpoint files, the same numbers as the library `transformers`."""

import numpy as np
import pytest

pytest.importorskip("transformers")

from reference_families import (
    EXACT,
    FAMILIES,
    SEQ2SEQ,
    assert_close,
    hf_class,
    inputs,
    pair,
    reference_model,
    run_ours,
    run_theirs,
    saved,
    stored_gradients,
    torch,
)

import minigrad as mg
from minigrad import functional as F
from transformer.checkpoints import load, save, stored_arrays

QUICK = [(family, seed) for family in FAMILIES for seed in (0, 1)]
DEEP = [pytest.param(family, seed, marks=pytest.mark.deep) for family in FAMILIES for seed in range(2, 14)]
DTYPES = ("float32", "float64")


def tolerance(family, dtype):
    """The library computes norms and rotary angles in float32 for the families that are not EXACT."""
    return 1e-9 if dtype == "float64" and family in EXACT else 1e-4


def visible(values, real):
    """Only what is no padding: what a model computes at padding means nothing."""
    values = np.asarray(values)
    return values[real] if values.shape[:2] == real.shape else values


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("family", "seed"), [*QUICK, *DEEP])
def test_logits_and_every_hidden_state_and_every_gradient_equal_the_librarys(family, seed, dtype, tmp_path):
    theirs, ours = pair(family, seed, tmp_path / "model", dtype)
    ids, real, targets = inputs(family, theirs, seed)
    expected, their_states = run_theirs(family, theirs, ids, real, targets)
    got, our_states = run_ours(family, ours, ids, real, targets)
    bound = tolerance(family, dtype)
    shown = real if targets is None else np.ones_like(targets, bool)
    assert_close(visible(got.detach(), shown), visible(expected.detach(), shown), bound, "logits")
    for stack, states in their_states.items():
        of = real if stack != "decoder" else shown
        assert len(states) == len(our_states[stack]), stack
        for i, (own, state) in enumerate(zip(our_states[stack], states, strict=True)):
            assert_close(visible(own.detach(), of), visible(state.detach(), of), bound, f"{stack} state {i}")

    rng = np.random.default_rng(seed)
    labels = rng.integers(0, expected.shape[-1], expected.shape[:-1])
    if labels.shape == shown.shape:
        labels = np.where(shown, labels, -100)
    classes = expected.shape[-1]
    torch.nn.functional.cross_entropy(expected.reshape(-1, classes), torch.tensor(labels.reshape(-1))).backward()
    F.cross_entropy(got.reshape(-1, classes), mg.tensor(labels.reshape(-1))).backward()
    expected_gradients = stored_gradients(theirs, tmp_path / "gradients")
    gradients = stored_arrays(ours, {n: p.grad.numpy() for n, p in ours.named_parameters() if p.grad is not None})
    expected_gradients = {ours.canonical(key): gradient for key, gradient in expected_gradients.items()}
    assert set(gradients) <= set(expected_gradients)
    for key in set(expected_gradients) - set(gradients):  # of an expert that no token chose: zero there, none here
        assert "experts" in key, key
        assert not expected_gradients[key].any(), key
    largest = max(np.abs(g).max() for g in expected_gradients.values())
    # some gradients are zero but for rounding (of a bias of keys): their error is that of the terms that cancel
    rounding = 32 * float(np.finfo(np.float64 if bound < 1e-8 else np.float32).eps) * largest
    for key in gradients:
        scale = np.abs(expected_gradients[key]).max()
        error = np.abs(gradients[key] - expected_gradients[key]).max()
        assert error <= bound * scale + rounding, f"the gradient of {key} is off by {error:.3g} of {scale:.3g}"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_we_save_the_library_loads(family, tmp_path):
    theirs = reference_model(family, 5).float()
    ours = load(saved(theirs, tmp_path / "theirs"))
    with mg.no_grad():
        for parameter in ours.parameters():
            parameter.mul_(1.25)
    save(ours, tmp_path / "ours")
    eager = {"experts_implementation": "eager"} if family in ("mixtral", "deepseek_v2") else {}
    back, info = hf_class(family).from_pretrained(tmp_path / "ours", output_loading_info=True, **eager)
    assert not info["missing_keys"] - {"pooler.dense.weight", "pooler.dense.bias"}
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    ids, real, targets = inputs(family, theirs)
    expected, _ = run_theirs(family, back.eval(), ids, real, targets)
    got, _ = run_ours(family, ours, ids, real, targets)
    shown = real if family not in SEQ2SEQ else np.ones_like(targets, bool)
    assert_close(visible(got.detach(), shown), visible(expected.detach(), shown), 1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_we_save_we_load_bit_for_bit(family, tmp_path):
    ours = load(saved(reference_model(family, 6).float(), tmp_path / "theirs"))
    save(ours, tmp_path / "ours")
    again = load(tmp_path / "ours")
    assert again.config.to_dict() == load(tmp_path / "ours").config.to_dict()
    for name, value in ours.state_dict().items():
        np.testing.assert_array_equal(value, again.state_dict()[name])
