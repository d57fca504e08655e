"""Decoding by compiled plans: the tokens of eager decoding, whatever the family, batch, padding, length and way."""

import weakref

import numpy as np
import pytest
from slow import one_in
from small_families import DECODERS, SEQ2SEQ, small

import minigrad as mg
import transformer as tf
from transformer.decoding import beam_search, greedy_decode, language_model, plans, sample_decode, translator
from transformer.moe import MixtureOfExperts

PLANNED = DECODERS
RNG = np.random.default_rng(0)
PROMPTS = RNG.integers(2, 19, (3, 24))
SOURCES = np.where(np.arange(9) < np.array([[9], [4], [6]]), RNG.integers(2, 19, (3, 9)), 1)  # 1 pads BART


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch):
    """Plans for 2, 4, 8, 16 positions, so that a text of 20 tokens crosses every border."""
    monkeypatch.setattr(plans, "LEAST", 2)


def tracing(monkeypatch):
    """A list that grows with every trace of a step."""
    made, step = [], plans._step

    def counted(model_of, room, *how):
        inner = step(model_of, room, *how)
        return lambda *arguments: made.append(arguments[0].shape) or inner(*arguments)

    monkeypatch.setattr(plans, "_step", counted)
    return made


def decoder(family, model, eager, pad=None, length=7, room=24, cache=None):
    """(next-token logits, prompt) of the family's model."""
    cache = model.new_cache(room) if cache is None else cache
    if family in DECODERS:
        prompt = PROMPTS[:, :length].copy()
        if pad is not None:
            prompt[1, : length // 2], prompt[2, : length - 1] = pad, pad
        return language_model(model, cache, pad, eager=eager), mg.tensor(prompt)
    return translator(model, mg.tensor(SOURCES[:, :length]), cache, eager=eager), mg.full((3, 1), 2)


def both(run):
    """What `run` gives, eagerly and by plans, and by plans in the memory that the first ones left."""
    return run(True), run(False), run(False)


@pytest.mark.parametrize("family", one_in(3, [*PLANNED, *SEQ2SEQ]))
def test_every_family_writes_by_plans_what_it_writes_eagerly(family, monkeypatch):
    made, model = tracing(monkeypatch), small(family)
    for pad in (None, 0) if family in DECODERS else (None,):

        def run(eager, pad=pad):
            return greedy_decode(*decoder(family, model, eager, pad), 15).numpy()

        eager, planned, again = both(run)
        np.testing.assert_array_equal(planned, eager)
        np.testing.assert_array_equal(again, eager)
    assert made, "no plan was made"


BORDERS = [(family, length) for family in ("gpt2", "mistral", "gemma2") for length in (1, 3, 8, 17, 23)]


@pytest.mark.parametrize(("family", "length"), [*BORDERS, ("t5", 1), ("t5", 9), ("bart", 8)])
def test_logits_are_equal_at_every_border_of_buckets(family, length):
    model = small(family)
    logits = []
    for eager in (True, False):
        step, ids = decoder(family, model, eager, length=length)
        text = mg.tensor(PROMPTS) if family in DECODERS else mg.cat([ids, mg.tensor(PROMPTS)], 1)
        logits.append([step(text[:, :n]).numpy() for n in range(ids.shape[1], 25)])
    np.testing.assert_allclose(logits[1], logits[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [16, 17, 64, 130])
def test_long_prompts_in_buckets_of_their_usual_size(length, monkeypatch):
    monkeypatch.undo()
    mg.manual_seed(1)
    model = tf.DecoderLM(13, d_model=16, n_heads=4, n_kv_heads=2, n_layers=2, d_ff=24, max_len=140).eval()
    ids = mg.tensor(RNG.integers(0, 13, (2, length)))
    found = [greedy_decode(language_model(model, model.new_cache(), eager=eager), ids, 9) for eager in (True, False)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "marian"])
def test_beams_by_plans_are_eager_beams(family):
    model = small(family)

    def run(eager):
        return beam_search(*decoder(family, model, eager), 12, beams=4, eos_id=5)

    eager, planned, again = both(run)
    for found in (planned, again):
        assert [[one.ids for one in row] for row in found] == [[one.ids for one in row] for row in eager]
        scores = [[one.score for one in row] for row in found]
        assert scores == [pytest.approx([one.score for one in row], rel=1e-9) for row in eager]


def test_draws_by_plans_are_eager_draws():
    model = small("qwen3")

    def run(eager):
        step, ids = decoder("qwen3", model, eager, 0)
        return sample_decode(step, ids, 12, 0.9, top_k=9, repetition_penalty=1.2, generator=mg.Generator(5)).numpy()

    eager, planned, again = both(run)
    np.testing.assert_array_equal(planned, eager)
    np.testing.assert_array_equal(again, eager)


def test_the_next_cache_of_a_model_takes_the_plans_over_and_sees_nothing_of_the_last_text(monkeypatch):
    made, model = tracing(monkeypatch), small("gpt2")
    step, ids = decoder("gpt2", model, False)
    greedy_decode(step, ids, 12)
    step.cache.layers[0].key[:, :, :18] = float("nan")
    step.cache.layers[1].value[:, :, :18] = float("nan")
    count = len(made)
    assert count == 4  # the prompt and steps that look at 8, 16 and 24 positions
    del step
    found = greedy_decode(*decoder("gpt2", model, False), 12)
    assert len(made) == count
    np.testing.assert_array_equal(found, greedy_decode(*decoder("gpt2", model, True), 12))


def test_two_texts_at_a_time_have_memory_of_their_own():
    model = small("llama")
    texts = [mg.tensor(PROMPTS[i : i + 1, :5]) for i in range(3)]
    alone = [greedy_decode(language_model(model, model.new_cache(24), eager=True), ids, 9).numpy() for ids in texts]
    steps = [language_model(model, model.new_cache(24)) for _ in texts]
    for _ in range(9):
        texts = [mg.cat([ids, step(ids).argmax(-1, keepdim=True)], 1) for step, ids in zip(steps, texts, strict=True)]
    np.testing.assert_array_equal(mg.cat(texts), np.concatenate(alone))


@pytest.mark.parametrize("family", ["gpt2", "bart"])
def test_eager_steps_and_plans_may_follow_each_other_in_one_cache(family):
    model = small(family)
    step, ids = decoder(family, model, True)
    text = mg.tensor(PROMPTS) if family in DECODERS else mg.cat([ids, mg.tensor(PROMPTS)], 1)
    first = ids.shape[1]
    expected = [step(text[:, :n]).numpy() for n in range(first, 20)]
    cache = model.new_cache(24)
    steps = [decoder(family, model, eager, cache=cache)[0] for eager in (True, False)]
    steps[0].memory, steps[0].memory_mask = (getattr(steps[1], name, None) for name in ("memory", "memory_mask"))
    for i, n in enumerate(range(first, 20)):
        np.testing.assert_allclose(steps[n // 3 % 2](text[:, :n]), expected[i], rtol=1e-9, atol=1e-9)
    cache.crop(first + 3)
    np.testing.assert_allclose(steps[1](text[:, : first + 5]), expected[5], rtol=1e-9, atol=1e-9)


def test_a_model_that_was_changed_is_compiled_again():
    model = small("gpt2")
    greedy_decode(*decoder("gpt2", model, False), 3)
    model.lm_head = mg.nn.Linear(12, 19, bias=False).double()
    found = greedy_decode(*decoder("gpt2", model, False), 9)
    np.testing.assert_array_equal(found, greedy_decode(*decoder("gpt2", model, True), 9))
    with mg.no_grad():
        model.lm_head.weight.copy_(-model.lm_head.weight)
    changed = greedy_decode(*decoder("gpt2", model, False), 9)
    np.testing.assert_array_equal(changed, greedy_decode(*decoder("gpt2", model, True), 9))
    assert not np.array_equal(changed, found)


def test_what_listens_to_a_part_hears_every_step():
    model, heard = small("gpt2"), []
    handle = model.norm.register_forward_hook(lambda module, args, out: heard.append(out.shape[1]))
    greedy_decode(*decoder("gpt2", model, False), 3)
    assert heard == [7, 1, 1]
    handle.remove()
    greedy_decode(*decoder("gpt2", model, False), 3)
    assert heard == [7, 1, 1]


def test_a_model_that_looks_at_values_is_not_compiled_and_decodes(monkeypatch):
    made, model = tracing(monkeypatch), small("llama")
    embed = type(model).embed
    monkeypatch.setattr(type(model), "embed", lambda self, ids, *rest: ids.sum().item() and embed(self, ids, *rest))
    found = greedy_decode(*decoder("llama", model, False), 9)
    np.testing.assert_array_equal(found, greedy_decode(*decoder("llama", model, True), 9))
    assert len(made) <= 2  # a prompt and one step were tried


@pytest.mark.parametrize("family", ["mixtral", "deepseek_v2"])
def test_a_mixture_reads_only_the_experts_that_are_chosen(family, monkeypatch):
    """Steps have plans, where only `chosen_linear` reads the experts; prompts and wide batches run eagerly."""
    made, model = tracing(monkeypatch), small(family)
    greedy_decode(*decoder(family, model, False), 3)
    assert set(made) == {(3, 1)}
    step = language_model(model, cache := model.new_cache(9))
    greedy_decode(step, mg.tensor(PROMPTS[:, :4]), 2)
    (_, room, _) = plans._ROOMS[cache]
    mixtures = [module for module in model.modules() if isinstance(module, MixtureOfExperts)]
    experts = {id(p.array) for mixture in mixtures for p in mixture.experts.parameters()}
    readers = set()
    for compiled in room.steps.values():
        for graph in (plan.graph for plan, _ in compiled.plans.values()):
            held = {node for node, array in graph.constants.items() if id(array) in experts}
            readers |= {n.op for n in graph.nodes for edge in n.inputs if edge is not None and edge[0] in held}
    assert readers == {"chosen_linear"}
    made.clear()
    greedy_decode(language_model(model, model.new_cache()), mg.tensor(np.repeat(PROMPTS[:, :4], 2, 0)), 3)
    assert not made


def test_plans_are_gone_with_their_model():
    model = small("gpt2")
    greedy_decode(*decoder("gpt2", model, False), 3)
    weight = weakref.ref(model.lm_head.weight)
    del model
    assert weight() is None


def test_a_full_cache_and_another_batch_are_refused():
    model = small("gpt2")
    step, ids = decoder("gpt2", model, False, room=8)
    with pytest.raises(ValueError, match="room for 8 positions, 9 were to be stored"):
        greedy_decode(step, ids, 5)
    step = language_model(model, model.new_cache(99))
    with pytest.raises(ValueError, match="25 tokens do not fit max_len 24"):
        step(mg.full((1, 25), 2))
    step, ids = decoder("gpt2", model, False)
    step(ids)
    with pytest.raises(ValueError, match="holds a batch of 3, and 2 rows came"):
        step(mg.cat([ids, ids[:, :1]], 1)[:2])
    with pytest.raises(IndexError, match="19"):
        decoder("gpt2", model, False)[0](mg.full((3, 2), 19))


@pytest.mark.parametrize("count", [1, 15, 16, 17, 100, 128, 129, 1000, 1025])
def test_buckets_waste_at_most_a_quarter(count):
    size = plans.bucket(count)
    assert count <= size <= max(count + 15, 1.25 * count)
    assert len({plans.bucket(n) for n in range(1, count + 1)}) <= 8 + 4 * max(count.bit_length() - 7, 0)
