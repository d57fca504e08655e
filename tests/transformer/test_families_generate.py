"""Greedy and beam generations of published families: token by token those of the library `transformers`."""

import numpy as np
import pytest

pytest.importorskip("transformers")

from reference_families import DECODERS, SEQ2SEQ, pair, torch
from transformers.generation import logits_process

import minigrad as mg
from transformer.decoding import beam_decode, greedy_decode, language_model, sampling_probabilities, translator
from transformer.decoding.sampling import penalise_repetition

NEW = 6


def prompts(family, model):
    """ids and the token that pads them: on the left for decoders, on the right for the sources of encoders."""
    rng = np.random.default_rng(4)
    config = model.config
    pad = 0 if family in DECODERS else config.pad_token_id
    ids = rng.integers(3, config.vocab_size, (3, 6))
    scaled = getattr(config, "rope_parameters", {}).get("rope_type")
    if scaled == "dynamic":  # keys of a cache are turned as they were written: where a row begins then matters
        return ids[:, :5], pad  # shorter than what was trained: the library then forgets the text before
    if family in DECODERS:
        ids[1, :3] = ids[2, :1] = pad
    else:
        ids[1, 3:] = ids[2, 5:] = pad
    return ids, pad


def theirs(family, model, ids, pad, eos, **settings):
    """The new tokens that the library generates."""
    start = 1 if family in SEQ2SEQ else ids.shape[1]
    model.generation_config = type(model.generation_config)(
        bos_token_id=0, decoder_start_token_id=model.config.decoder_start_token_id if start == 1 else None
    )
    out = model.generate(
        torch.tensor(ids),
        attention_mask=torch.tensor(ids != pad).long(),
        max_new_tokens=NEW,
        do_sample=False,
        use_cache=family not in ("t5", "t5-gated", "mt5"),  # its cache cannot hold a decoder deeper than the encoder
        pad_token_id=pad,
        eos_token_id=eos,
        **settings,
    )
    return out[:, start:].numpy()


def ours(family, model, ids, pad, decode):
    """The new tokens that `decode` makes of next-token logits and a prompt, through a cache."""
    prompt, cache = mg.tensor(ids), model.new_cache(20)
    if family in DECODERS:
        return decode(language_model(model, cache, pad), prompt)[:, ids.shape[1] :].numpy()
    start = mg.full((len(ids), 1), model.config.extra["decoder_start_token_id"])
    return decode(translator(model, prompt, cache), start)[:, 1:].numpy()


def frequent(tokens):
    """A token that some generation reaches: as the end token it makes rows end at different steps."""
    return int(tokens[0, NEW // 2])


def ended(tokens, eos):
    """Rows up to their end token, which then fills them: the library fills with it too where the padding is token 0."""
    after = np.cumsum(tokens == eos, 1) > 0
    return np.pad(np.where(after, eos, tokens), ((0, 0), (0, NEW - tokens.shape[1])), constant_values=eos)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.deep), pytest.param(2, marks=pytest.mark.deep)])
@pytest.mark.parametrize("family", [*DECODERS, *SEQ2SEQ])
def test_generations_equal_the_librarys(family, seed, tmp_path):
    reference, model = pair(family, seed, tmp_path, "float32")
    ids, pad = prompts(family, reference)
    free = theirs(family, reference, ids, pad, None)
    np.testing.assert_array_equal(ours(family, model, ids, pad, lambda f, p: greedy_decode(f, p, NEW)), free)
    eos = frequent(free)
    expected = ended(theirs(family, reference, ids, pad, eos), eos)
    got = ours(family, model, ids, pad, lambda f, p: greedy_decode(f, p, NEW, eos, pad))
    np.testing.assert_array_equal(ended(got, eos), expected)
    for beams, penalty in ((3, 1.0), (4, 0.4)):
        expected = theirs(family, reference, ids, pad, eos, num_beams=beams, length_penalty=penalty)
        got = ours(family, model, ids, pad, lambda f, p, b=beams, e=penalty: beam_decode(f, p, NEW, b, e, eos, pad))
        np.testing.assert_array_equal(ended(got, eos), ended(expected, eos), err_msg=f"{beams} beams, {penalty}")


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_the_repetition_penalty_does_not_see_padding_as_the_librarys_does_not(family, tmp_path):
    reference, model = pair(family, 3, tmp_path, "float32")
    for head in (reference.lm_head.weight.data, model.lm_head.weight.data):
        head[0] += 0.5  # the token that pads is one that is wanted, too
    ids, pad = prompts(family, reference)
    expected = theirs(family, reference, ids, pad, None, repetition_penalty=1.8)
    got = ours(family, model, ids, pad, lambda f, p: greedy_decode(f, p, NEW, None, pad, repetition_penalty=1.8))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("settings", "processors"),
    [
        ({"temperature": 0.7}, [("TemperatureLogitsWarper", 0.7)]),
        ({"top_k": 5}, [("TopKLogitsWarper", 5)]),
        ({"top_k": 99}, [("TopKLogitsWarper", 99)]),
        ({"top_p": 0.8}, [("TopPLogitsWarper", 0.8)]),
        ({"top_p": 0.05}, [("TopPLogitsWarper", 0.05)]),
        ({"min_p": 0.2}, [("MinPLogitsWarper", 0.2)]),
        (
            {"temperature": 1.3, "top_k": 9, "top_p": 0.7, "min_p": 0.05},
            [("TemperatureLogitsWarper", 1.3), ("TopKLogitsWarper", 9), ("TopPLogitsWarper", 0.7),
             ("MinPLogitsWarper", 0.05)],
        ),
    ],
    ids=str,
)  # fmt: skip
def test_filtered_probabilities_equal_the_librarys(settings, processors):
    logits = np.random.default_rng(0).standard_normal((50, 23)) * 2
    ids, scores = torch.zeros(50, 1, dtype=torch.long), torch.tensor(logits)
    for name, value in processors:
        scores = getattr(logits_process, name)(value)(ids, scores)
    got = sampling_probabilities(mg.tensor(logits), **settings)
    np.testing.assert_allclose(got, scores.softmax(-1).numpy(), rtol=1e-10, atol=1e-12)


def test_the_repetition_penalty_equals_the_librarys():
    rng = np.random.default_rng(0)
    logits, ids = rng.standard_normal((6, 23)), rng.integers(0, 23, (6, 8))
    expected = logits_process.RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor(ids), torch.tensor(logits))
    np.testing.assert_allclose(penalise_repetition(mg.tensor(logits), mg.tensor(ids), 1.7), expected, rtol=1e-12)
