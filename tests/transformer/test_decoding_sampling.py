"""Sampling and streaming: filters by their definitions, seeds, penalties, stop sequences, left padding, lengths."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
import transformer as tf
from transformer import decoding

PROMPT = mg.tensor([[1, 4, 5]])


def constant(*rows):
    """Next-token logits that are the same whatever has been written."""
    return lambda ids: mg.tensor(np.asarray(rows, np.float64))


def scripted(*rows):
    """Next-token logits that make row i write rows[i] after a prompt of one token."""

    def next_logits(ids):
        logits = np.zeros((len(rows), 10))
        for i, row in enumerate(rows):
            logits[i, row[min(ids.shape[1] - 1, len(row) - 1)]] = 9.0
        return mg.tensor(logits)

    return next_logits


def small_lm(**changes):
    mg.manual_seed(1)
    sizes = {"d_model": 16, "n_heads": 4, "n_kv_heads": 2, "n_layers": 2, "d_ff": 24, "max_len": 12, **changes}
    model = tf.DecoderLM(13, **sizes).double()
    with mg.no_grad():
        for parameter in model.parameters():
            parameter.copy_(mg.randn(*parameter.shape, dtype=mg.float64) * 0.4 + (parameter.ndim == 1))
    return model


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 9),
    p=st.floats(0.01, 1.0),
    least=st.floats(0.0, 1.0),
    temperature=st.floats(0.1, 5.0),
)
def test_filters_keep_what_their_definitions_say(seed, k, p, least, temperature):
    logits = np.random.default_rng(seed).standard_normal(7) * 3
    q = np.exp(logits / temperature - (logits / temperature).max())
    order = np.argsort(-q)
    kept = list(order[:k])  # top-k
    share = q[kept] / q[kept].sum()
    nucleus = [token for token, before in zip(kept, np.cumsum(share) - share, strict=True) if before < p]  # top-p
    best = [token for token in nucleus if q[token] / q[nucleus].sum() >= least * q[nucleus].max() / q[nucleus].sum()]
    expected = np.zeros(7)
    expected[best] = q[best] / q[best].sum()
    got = tf.sampling_probabilities(mg.tensor(logits[None]), temperature, k, p, least).numpy()[0]
    np.testing.assert_allclose(got, expected, atol=1e-9)


def test_min_p_is_relative_to_the_most_probable_token():
    logits = mg.tensor(np.log([[0.5, 0.25, 0.15, 0.1]]))
    kept = [(tf.sampling_probabilities(logits, min_p=p).numpy() > 0).sum() for p in (0.0, 0.25, 0.4, 0.6, 1.0)]
    assert kept == [4, 3, 2, 1, 1]


def test_the_repetition_penalty_lowers_what_was_written():
    logits = mg.tensor([[2.0, -2.0, 1.0, -1.0]])
    ids = mg.tensor([[0, 1, 1]])
    np.testing.assert_allclose(decoding.penalise_repetition(logits, ids, 2.0), [[1.0, -4.0, 1.0, -1.0]])
    out = tf.greedy_decode(constant([3.0, 2.0, 1.9, -5.0]), mg.tensor([[3]]), 4, repetition_penalty=1.9)
    np.testing.assert_array_equal(out, [[3, 0, 1, 2, 0]])  # each is best until it has been written


def test_a_penalised_row_is_continued_in_the_same_way_however_it_is_padded():
    model = small_lm()
    with mg.no_grad():
        model.lm_head.weight[0] *= 3  # the token that pads is wanted, too
    alone = tf.greedy_decode(tf.language_model(model, pad_id=0), PROMPT, 6, repetition_penalty=1.9)
    padded = mg.tensor([[0, 0, 0, 1, 4, 5], [3, 7, 2, 1, 4, 5]])
    together = tf.greedy_decode(tf.language_model(model, pad_id=0), padded, 6, repetition_penalty=1.9)
    assert together[0, 3:].tolist() == alone[0].tolist()
    assert 0 in alone[0].tolist()


def test_the_same_seed_writes_the_same_text_and_top_k_1_is_greedy():
    model = small_lm()
    draw = lambda seed: tf.sample_decode(tf.language_model(model), PROMPT, 8, 1.5, generator=mg.Generator(seed))  # noqa: E731
    np.testing.assert_array_equal(draw(1), draw(1))
    assert len({tuple(draw(seed).tolist()[0]) for seed in range(6)}) > 3
    greedy = tf.greedy_decode(tf.language_model(model), PROMPT, 8)
    np.testing.assert_array_equal(tf.sample_decode(tf.language_model(model), PROMPT, 8, top_k=1), greedy)


def test_rows_end_at_their_own_stop_sequences():
    next_logits = scripted([5, 6, 7, 8, 9, 4], [6, 5, 6, 5, 7, 4], [2, 2, 2, 2, 2, 2])
    prompt = mg.ones(3, 1, dtype=mg.int64)
    out = tf.greedy_decode(next_logits, prompt, 6, eos_id=2, stop=[[7, 8], [5, 7]])
    np.testing.assert_array_equal(out, [[1, 5, 6, 7, 8, 0], [1, 6, 5, 6, 5, 7], [1, 2, 0, 0, 0, 0]])


def test_a_stop_sequence_must_be_new():
    out = tf.greedy_decode(constant([0, 9.0, 0]), mg.tensor([[1]]), 3, stop=[[1, 1]])
    np.testing.assert_array_equal(out, [[1, 1, 1]])  # the prompt's 1 does not count


def test_a_stream_yields_each_step_when_it_is_made():
    calls = []
    inner = scripted([5, 6, 2, 9], [6, 2, 9, 9])

    def next_logits(ids):
        calls.append(ids.shape[1])
        return inner(ids)

    seen = []
    for token in tf.stream_decode(next_logits, mg.ones(2, 1, dtype=mg.int64), 9, eos_id=2):
        assert len(calls) == len(seen) + 1
        seen.append(token.tolist())
    assert seen == [[5, 6], [6, 2], [2, 0]]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("rope", ["interleaved", "half"])
def test_left_padded_rows_decode_as_they_do_alone(cached, rope):
    model = small_lm(rope=rope, max_len=20)
    prompts = [[1, 2, 3, 4, 5], [6, 7], [8]]
    batch = tf.data.pad_batch(prompts, left=True)
    cache = model.new_cache() if cached else None
    out = tf.greedy_decode(tf.language_model(model, cache, pad_id=0), batch, 9).tolist()
    for row, prompt in zip(out, prompts, strict=True):
        alone = tf.greedy_decode(tf.language_model(model), mg.tensor([prompt]), 9).tolist()[0]
        assert row[5:] == alone[len(prompt) :]


def test_what_does_not_fit_the_model_is_refused_before_it_is_run():
    model = small_lm()
    assert tf.greedy_decode(tf.language_model(model), PROMPT, 10).shape == (1, 13)
    with pytest.raises(ValueError, match="3 tokens leaves room for 10 new ones in the model's 12 positions, and 11 "):
        tf.greedy_decode(tf.language_model(model), PROMPT, 11)
    with pytest.raises(ValueError, match="prompt of 13 tokens is longer than the model's 12 positions"):
        tf.beam_decode(tf.language_model(model), mg.ones(1, 13, dtype=mg.int64), 1)
    translator = tf.EncoderDecoder(9, 9, d_model=12, n_heads=3, n_layers=1, d_ff=20, max_len=5)
    with pytest.raises(ValueError, match="source of 6 tokens does not fit the model's 5"):
        tf.translator(translator, mg.ones(1, 6, dtype=mg.int64))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0.0}, "temperature must be above 0 and finite, got 0.0: decode greedily"),
        ({"temperature": float("nan")}, "temperature must be above 0"),
        ({"temperature": 1e-300}, r"above 0 and finite, got 1e-300: .* \(float32 holds 1.4e-45 to 3.4e\+38\)"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_p": 0.0}, r"top_p must lie in \(0, 1\], got 0.0"),
        ({"min_p": 1.1}, r"min_p must lie in \[0, 1\], got 1.1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0"),
        ({"stop": [[]]}, "stop sequence needs at least one token"),
        ({"max_new_tokens": -1}, "must not be negative"),
    ],
)
def test_bad_settings_are_refused_before_the_first_token(arguments, message):
    def never(ids):
        raise AssertionError("the model was run")

    with pytest.raises(ValueError, match=message):
        tf.sample_decode(**{"next_logits": never, "ids": PROMPT, "max_new_tokens": 2, **arguments})
