"""One update: accumulation equals the big batch, groups, clipping, half precision, schedules, losses of tokens."""

import numpy as np
import pytest

import minigrad as mg
import transformer as tf
from minigrad.optim import SGD, AdamW
from transformer.data import PAD
from transformer.training import Batch, LossScale, Trainer, TrainSettings, Updater, parameter_groups, schedule
from transformer.training import token_loss as loss_of_tokens
from transformer.training.optimise import split

VOCAB = 11


def model(seed=0):
    mg.manual_seed(seed)
    return tf.EncoderDecoder(VOCAB, VOCAB, d_model=12, n_heads=3, n_layers=1, d_ff=20, max_len=12, dropout=0.0)


def batch(seed=0, rows=6):
    """Rows of very different lengths."""
    rng = np.random.default_rng(seed)
    words = [rng.integers(3, VOCAB, n).tolist() for n in (7, 1, 6, 2, 1, 3)[:rows]]
    return Batch(
        (tf.data.pad_batch(words), tf.data.pad_batch([[1, *word] for word in words])),
        tf.data.pad_batch([[*word, 2] for word in words]),
    )


def updater(seed=0, lr=0.1, **settings):
    make = settings.pop("make", lambda groups: SGD([{"params": group["params"]} for group in groups], lr=lr))
    settings = {"clip": None, "compile_step": False, **settings}
    return Updater(model(seed), make, loss_of_tokens(PAD), PAD, **settings)


def weights(held):
    return {name: tensor.numpy().copy() for name, tensor in held.weights().items()}


def assert_close(left, right, **tolerance):
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_allclose(left[name], right[name], err_msg=name, **tolerance)


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [2, 3, 4, 6])
def test_accumulation_equals_the_big_batch_with_unequal_token_counts(pieces):
    counts = [int((piece.labels != PAD).sum()) for piece in split(batch(), pieces)]
    assert sum(counts) == 26
    assert len(set(counts)) > 1
    whole, accumulated = updater(), updater(accumulate=pieces)
    for step in range(3):
        expected, got = whole.update(batch(step)), accumulated.update(batch(step))
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert_close(weights(accumulated), weights(whole), rtol=1e-4, atol=1e-6)


def test_the_loss_is_the_mean_over_all_tokens():
    held, given = updater(), batch()
    logits = held.model(*given.inputs).detach().numpy().astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    labels = given.labels.numpy()
    real = labels != PAD
    picked = np.take_along_axis(log_p, labels[..., None], -1)[..., 0]
    assert held.update(given)[0] == pytest.approx(-picked[real].mean(), rel=1e-5)


def test_the_norm_is_that_before_clipping_and_clipping_bounds_the_step():
    free, clipped = updater(lr=1.0), updater(lr=1.0, clip=1e-3)
    before = weights(clipped)
    assert clipped.update(batch())[1] == pytest.approx(free.update(batch())[1])
    after = weights(clipped)
    moved = np.sqrt(sum(((after[name] - before[name]) ** 2).sum() for name in before))
    assert moved == pytest.approx(1e-3, rel=1e-2)


def test_a_compiled_step_is_the_eager_one():
    histories = []
    for compile_step in (False, True):
        held = updater(
            make=lambda groups: AdamW(groups, lr=1e-2), weight_decay=0.1, clip=1.0, compile_step=compile_step
        )
        histories.append([held.update(batch(step)) for step in range(4)])
    np.testing.assert_allclose(histories[0], histories[1], rtol=1e-4)


def test_norms_and_biases_do_not_decay():
    built = model()
    decayed, kept = parameter_groups(built, 0.3)
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.3, 0.0)
    names = {id(parameter): name for name, parameter in built.named_parameters()}
    assert {names[id(p)] for p in kept["params"]} == {
        name for name in names.values() if name.endswith("bias") or "norm" in name
    }
    assert len(decayed["params"]) + len(kept["params"]) == len(names)


def test_batches_that_cannot_be_trained_on_are_refused():
    with pytest.raises(ValueError, match="batch of 6 rows cannot be accumulated from 7 pieces"):
        updater(accumulate=7).update(batch())
    empty = batch()._replace(labels=mg.zeros(6, 8, dtype=mg.int64))
    with pytest.raises(ValueError, match="at least one label that is not padding"):
        updater().update(empty)
    with pytest.raises(ValueError, match="precision must be one of float32, float16, bfloat16, got 'int8'"):
        updater(precision="int8")


# --- half precision -------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "tolerance"), [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_half_precision_follows_float32_with_float32_masters(precision, tolerance):
    settings = {"make": lambda groups: AdamW(groups, lr=2e-3), "clip": 1.0}
    exact, half = updater(**settings), updater(precision=precision, **settings)
    assert {p.dtype.name for p in half.model.parameters()} == {precision}
    losses = np.array([(exact.update(batch(step))[0], half.update(batch(step))[0]) for step in range(8)])
    np.testing.assert_allclose(losses[:, 0], losses[:, 1], rtol=5 * tolerance)
    assert losses[-1, 1] < losses[0, 1]
    for parameter, master in half.masters.items():
        assert master.dtype == mg.float32
        np.testing.assert_array_equal(parameter.detach(), master.detach().to(parameter.dtype))
    assert all(tensor.dtype == mg.float32 for tensor in half.weights().values())


def test_masters_keep_changes_that_half_precision_would_lose():
    held = updater(precision="float16", lr=1e-6)
    before = {name: value.copy() for name, value in weights(held).items()}
    for step in range(3):
        held.update(batch(step))
    changed = [name for name, value in weights(held).items() if (value != before[name]).any()]
    assert "output_proj.weight" in changed


def test_a_scaled_loss_saves_small_gradients_and_an_overflow_only_lowers_the_scale():
    def tiny(model, given):
        return loss_of_tokens(PAD)(model, given) * 1e-6  # gradients below float16's smallest number, 6e-8

    def moved(scale):
        held = updater(precision="float16", lr=1e5)
        held.loss, held.scale = tiny, LossScale(scale)
        before = weights(held)
        held.update(batch())
        return sum(np.abs(value - before[name]).sum() for name, value in weights(held).items()), held.scale.value

    assert moved(2.0**16)[0] > 2 * moved(1.0)[0]
    held = updater(precision="float16")
    held.scale = LossScale(2.0**40)
    before = weights(held)
    held.update(batch())
    assert_close(weights(held), before, rtol=0)
    assert held.scale.value == 2.0**39


def test_the_scale_doubles_after_patience_good_steps():
    scale = LossScale(8.0, patience=3)
    for finite, expected in [
        (True, 8),
        (True, 8),
        (True, 16),
        (True, 16),
        (False, 8),
        (True, 8),
        (True, 8),
        (True, 16),
    ]:
        scale.update(finite)
        assert scale.value == expected


# --- schedules and settings -----------------------------------------------------------------------


def rates(**settings):
    optimizer = SGD([mg.zeros(1, requires_grad=True)], lr=mg.tensor(2.0, dtype=mg.float64))
    plan = schedule(optimizer, TrainSettings(lr=2.0, **settings))
    found = []
    for _ in range(settings["steps"]):
        found.append(plan.get_last_lr()[0])
        plan.step()
    return np.array(found)


def test_schedules_rise_then_fall():
    steps = np.arange(1, 21)
    cosine = rates(steps=20, warmup=4, schedule="cosine")
    np.testing.assert_allclose(cosine[:4], [0.5, 1.0, 1.5, 2.0])
    np.testing.assert_allclose(cosine[4:], 0.2 + 0.9 * (1 + np.cos(np.pi * np.arange(16) / 16)))
    root = rates(steps=20, warmup=4, schedule="inverse-sqrt")
    np.testing.assert_allclose(root, 2.0 * np.minimum(steps / 4, np.sqrt(4 / steps)))
    np.testing.assert_allclose(rates(steps=6, warmup=0, schedule="constant"), 2.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"lr": -1.0}, "lr must be above 0"),
        ({"lr": float("nan")}, "lr must be above 0"),
        ({"warmup": -1}, "warmup must not be negative"),
        ({"schedule": "linear"}, "schedule must be one of cosine, inverse-sqrt, constant, got 'linear'"),
        ({"precision": "half"}, "precision must be one of"),
        ({"label_smoothing": 1.0}, r"label_smoothing must lie in \[0, 1\)"),
        ({"weight_decay": -0.1}, "weight_decay must not be negative"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TrainSettings(**settings)


def test_a_loss_that_explodes_is_said_in_one_sentence():
    trainer = Trainer(model(), batch, TrainSettings(steps=30, lr=1e30, warmup=0, clip=1e30, compile=False))
    with (
        np.errstate(all="ignore"),
        pytest.raises(FloatingPointError, match=r"the loss became .* train with a smaller lr"),
    ):
        trainer.run()
