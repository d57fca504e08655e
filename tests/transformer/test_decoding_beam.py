"""Beam search: equal to brute force and to itself row by row, finished hypotheses frozen, caches reordered."""

import itertools

import numpy as np
import pytest

import minigrad as mg
import transformer as tf

VOCAB, END = 4, 2
START = mg.ones(1, 1, dtype=mg.int64)


def language(seed=0, vocab=VOCAB):
    """A random language: the next token's logits depend on the last two tokens and the position, so nothing ties."""
    table = np.random.default_rng(seed).standard_normal((16, vocab, vocab, vocab)) * 2

    def next_logits(ids):
        ids = ids.numpy()
        before = ids[:, -2] if ids.shape[1] > 1 else np.zeros(len(ids), int)
        return mg.tensor(table[ids.shape[1], before % vocab, ids[:, -1] % vocab])

    return next_logits


def log_probability(next_logits, prompt, tokens):
    ids, total = list(prompt), 0.0
    for token in tokens:
        logits = next_logits(mg.tensor([ids]))[0].numpy()
        total += logits[token] - np.log(np.exp(logits).sum())
        ids.append(token)
    return total


def brute_force(next_logits, prompt, longest, length_penalty):
    """Every sequence that ends with END or has the greatest length, best first."""
    found = []
    for length in range(1, longest + 1):
        for tokens in itertools.product(range(VOCAB), repeat=length):
            if END in tokens[:-1] or (tokens[-1] != END and length < longest):
                continue
            found.append((log_probability(next_logits, prompt, tokens) / length**length_penalty, list(tokens)))
    return sorted(found, key=lambda pair: -pair[0])


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.5, -0.5])
@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_is_brute_force(seed, length_penalty):
    next_logits = language(seed)
    expected = brute_force(next_logits, [1], 4, length_penalty)
    (found,) = tf.beam_search(next_logits, START, 4, VOCAB**4, length_penalty, END)
    assert [hypothesis.ids for hypothesis in found] == [ids for _, ids in expected]
    np.testing.assert_allclose([hypothesis.score for hypothesis in found], [score for score, _ in expected])


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("beams", [1, 2, 3])
def test_scores_are_those_of_the_hypotheses_and_never_above_the_best(beams, early_stopping):
    for seed in range(10):
        next_logits = language(seed)
        (found,) = tf.beam_search(next_logits, START, 6, beams, 0.7, END, early_stopping)
        assert 1 <= len(found) <= beams
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        for ids, score in found:
            assert score == pytest.approx(log_probability(next_logits, [1], ids) / len(ids) ** 0.7)
            assert END not in ids[:-1]
            assert ids[-1] == END or len(ids) == 6
        assert (
            brute_force(next_logits, [1], 4, 0.7)[0][0]
            >= tf.beam_search(next_logits, START, 4, beams, 0.7, END)[0][0].score - 1e-12
        )


def test_one_beam_without_length_penalty_is_greedy():
    for seed in range(5):
        next_logits = language(seed)
        greedy = tf.greedy_decode(next_logits, START, 7)
        np.testing.assert_array_equal(tf.beam_decode(next_logits, START, 7, 1, 0.0), greedy)


def test_a_finished_hypothesis_is_frozen():
    """END is likely at once; what its row writes afterwards must not touch it."""

    def next_logits(ids):
        logits = np.full((ids.shape[0], VOCAB), -1.0)
        logits[:, END] = 1.0
        logits[(ids == END).any(-1).numpy()] = np.nan  # nothing continues a finished hypothesis
        return mg.tensor(logits)

    (found,) = tf.beam_search(next_logits, START, 5, 3, 1.0, END)
    assert [END] in [h.ids for h in found]
    assert all(np.isfinite(h.score) for h in found)


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
def test_a_batch_is_its_rows(early_stopping):
    next_logits = language(3, 7)
    prompts = [[1, 3], [5, 6], [0, 4], [3, 3]]
    together = tf.beam_search(next_logits, mg.tensor(prompts), 8, 3, 0.8, END, early_stopping)
    for prompt, found in zip(prompts, together, strict=True):
        assert found == tf.beam_search(next_logits, mg.tensor([prompt]), 8, 3, 0.8, END, early_stopping)[0]
    lengths = {len(row[0].ids) for row in together}
    assert len(lengths) > 1  # rows finish at different steps
    padded = tf.beam_decode(next_logits, mg.tensor(prompts), 8, 3, 0.8, END, 0, early_stopping)
    assert padded.shape == (4, 2 + max(lengths))
    for row, found in zip(padded.tolist(), together, strict=True):
        best = found[0].ids
        assert row[2:] == best + [0] * (max(lengths) - len(best))


def test_early_stopping_stops_earlier():
    calls = {}
    for early_stopping in (True, False, "never"):
        calls[early_stopping] = 0
        for seed in range(8):
            inner = language(seed, 7)

            def counted(ids, inner=inner, early_stopping=early_stopping):
                calls[early_stopping] += 1
                return inner(ids)

            tf.beam_search(counted, START, 12, 2, 1.0, END, early_stopping)
    assert calls[True] < calls[False] < calls["never"]


def test_models_search_the_same_with_and_without_a_cache():
    mg.manual_seed(4)
    prompt = mg.tensor([[1, 5, 6], [1, 7, 8]])
    lm = tf.DecoderLM(13, d_model=16, n_heads=4, n_kv_heads=2, n_layers=2, d_ff=24, max_len=20).double()
    model = tf.EncoderDecoder(13, 13, d_model=12, n_heads=3, n_layers=2, d_ff=20, max_len=16).double()
    with mg.no_grad():
        for parameter in [*lm.parameters(), *model.parameters()]:
            parameter.mul_(3.0)  # starting values give nearly uniform probabilities
    for make in (
        lambda cached: tf.language_model(lm, lm.new_cache() if cached else None),
        lambda cached: tf.translator(model, prompt, model.new_cache() if cached else None),
    ):
        cached, plain = (tf.beam_search(make(cached), prompt, 8, 3, 1.0, END) for cached in (True, False))
        for left, right in zip(cached, plain, strict=True):
            assert [h.ids for h in left] == [h.ids for h in right]
            np.testing.assert_allclose([h.score for h in left], [h.score for h in right])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beams": 0}, "at least 1 beam and 1 new token, got 0 and 3"),
        ({"max_new_tokens": 0}, "got 4 and 0"),
        ({"ids": mg.zeros(1, 0, dtype=mg.int64)}, "the prompt must be"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tf.beam_search(**{"next_logits": language(), "ids": START, "max_new_tokens": 3, **arguments})


def test_beams_are_a_whole_number():
    with pytest.raises(TypeError, match=r"beams must be an integer, got 2\.5"):
        tf.beam_decode(lambda ids: mg.zeros(1, 4), mg.ones(1, 1, dtype=mg.int64), 2, beams=2.5)
