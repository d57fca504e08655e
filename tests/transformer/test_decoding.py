"""Decoding: greedy with rows that finish at different steps, sampling filters, caches, teacher forcing."""

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional
import transformer as tf


def scripted(*rows):
    """Next-token logits that make row i write rows[i], whatever it has written."""

    def next_logits(ids):
        step = ids.shape[1] - 1
        wanted = [row[min(step, len(row) - 1)] for row in rows]
        return mg.functional.one_hot(mg.tensor(wanted), 10).float()

    return next_logits


def test_greedy_fills_finished_rows_and_stops_when_all_have_finished():
    prompt = mg.ones(2, 1, dtype=mg.int64)
    out = tf.greedy_decode(scripted([5, 2, 9], [6, 7, 8, 2]), prompt, 10, eos_id=2, pad_id=0)
    np.testing.assert_array_equal(out, [[1, 5, 2, 0, 0], [1, 6, 7, 8, 2]])
    out = tf.greedy_decode(scripted([5, 2, 9], [6, 7, 8, 2]), prompt, 2, eos_id=None)
    np.testing.assert_array_equal(out, [[1, 5, 2], [1, 6, 7]])


@pytest.mark.parametrize("cached", [False, True])
def test_models_decode_the_same_with_and_without_a_cache(cached):
    mg.manual_seed(3)
    lm = tf.DecoderLM(13, d_model=16, n_heads=4, n_kv_heads=2, n_layers=2, d_ff=24, max_len=20, dropout=0.5)
    prompt = mg.tensor([[1, 2, 3], [4, 5, 6]])
    cache = lm.new_cache() if cached else None
    out = tf.greedy_decode(tf.language_model(lm, cache), prompt, 9)
    assert out.shape == (2, 12)
    for length in range(3, 12):
        with mg.no_grad():
            expected = lm.eval()(out[:, :length])[:, -1].argmax(-1)
        np.testing.assert_array_equal(out[:, length], expected)


def test_decoding_runs_in_evaluation_mode_and_restores_training():
    lm = tf.DecoderLM(13, d_model=16, n_heads=4, n_kv_heads=2, n_layers=1, d_ff=24, dropout=0.9)
    lm.layers[0].ffn.eval()
    next_logits = tf.language_model(lm)
    np.testing.assert_array_equal(next_logits(mg.tensor([[1, 2]])), next_logits(mg.tensor([[1, 2]])))
    assert lm.training
    assert lm.layers[0].attn.training
    assert not lm.layers[0].ffn.training


def test_translator_equals_the_whole_model_step_by_step():
    mg.manual_seed(0)
    model = tf.EncoderDecoder(9, 11, d_model=12, n_heads=3, n_layers=1, d_ff=20, max_len=16)
    src = mg.tensor([[3, 4, 5], [6, 7, 0]])
    start = mg.ones(2, 1, dtype=mg.int64)
    plain = tf.greedy_decode(tf.translator(model, src), start, 8, eos_id=2)
    cached = tf.greedy_decode(tf.translator(model, src, model.new_cache()), start, 8, eos_id=2)
    np.testing.assert_array_equal(plain, cached)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ids": mg.zeros(1, 0, dtype=mg.int64)}, "at least one token"),
        ({"ids": mg.ones(3, dtype=mg.int64)}, "at least one token"),
        ({"max_new_tokens": -1}, "must not be negative"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"top_p": 1.5}, "top_p must lie in"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    settings = {"ids": mg.ones(1, 1, dtype=mg.int64), "max_new_tokens": 2, **arguments}
    with pytest.raises(ValueError, match=message):
        tf.sample_decode(scripted([5]), **settings)


# --- sampling -------------------------------------------------------------------------------------

PROBABILITIES = np.array([[0.5, 0.25, 0.15, 0.07, 0.03]])
LOGITS = mg.tensor(np.log(PROBABILITIES))


def test_temperature_sharpens_and_flattens():
    cold = tf.sampling_probabilities(LOGITS, temperature=0.5)
    np.testing.assert_allclose(cold, PROBABILITIES**2 / (PROBABILITIES**2).sum(), rtol=1e-12)


@pytest.mark.parametrize("temperature", [1e-10, 1e-39, 1e-44])
def test_at_the_coldest_temperatures_the_largest_logit_is_certain(temperature):
    logits = mg.tensor([[1.0, 3e5, 2.5, float("-inf")]])
    cold = tf.sampling_probabilities(logits, temperature, top_k=3, top_p=0.9, min_p=0.1)
    assert cold.tolist() == [[0.0, 1.0, 0.0, 0.0]]


def test_top_k_keeps_the_k_largest_and_ties():
    np.testing.assert_allclose(tf.sampling_probabilities(LOGITS, top_k=2), [[2 / 3, 1 / 3, 0, 0, 0]], rtol=1e-12)
    np.testing.assert_allclose(tf.sampling_probabilities(LOGITS, top_k=99), PROBABILITIES, rtol=1e-12)
    tied = tf.sampling_probabilities(mg.tensor([[1.0, 0.0, 0.0, -1.0]]), top_k=2)
    assert (tied.numpy() > 0).sum() == 3


@pytest.mark.parametrize(("p", "kept"), [(0.4, 1), (0.6, 2), (0.76, 3), (0.95, 4), (1.0, 5), (1e-9, 1)])
def test_top_p_keeps_the_token_that_crosses_p(p, kept):
    probabilities = tf.sampling_probabilities(LOGITS, top_p=p).numpy()
    assert (probabilities > 0).sum() == kept
    np.testing.assert_allclose(
        probabilities[0, :kept], PROBABILITIES[0, :kept] / PROBABILITIES[0, :kept].sum(), rtol=1e-12
    )


def test_top_p_counts_what_top_k_left():
    probabilities = tf.sampling_probabilities(LOGITS, top_k=2, top_p=0.6).numpy()
    np.testing.assert_allclose(probabilities, [[1.0, 0, 0, 0, 0]])


def test_sampling_follows_the_probabilities_and_the_seed():
    prompt = mg.ones(4000, 1, dtype=mg.int64)
    next_logits = lambda ids: LOGITS.expand(ids.shape[0], 5)  # noqa: E731
    draw = lambda seed: tf.sample_decode(next_logits, prompt, 1, top_k=3, generator=mg.Generator(seed)).numpy()[:, 1]  # noqa: E731
    counts = np.bincount(draw(7), minlength=5) / 4000
    np.testing.assert_allclose(counts, [0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0, 0], atol=0.03)
    np.testing.assert_array_equal(draw(7), draw(7))
    assert (draw(7) != draw(8)).any()


def test_teacher_forcing_shifts_by_one():
    decoder_input, labels = tf.shift_targets(mg.tensor([[1, 5, 6, 2]]))
    np.testing.assert_array_equal(decoder_input, [[1, 5, 6]])
    np.testing.assert_array_equal(labels, [[5, 6, 2]])
    with pytest.raises(ValueError, match="at least 2 tokens"):
        tf.shift_targets(mg.tensor([[1]]))
