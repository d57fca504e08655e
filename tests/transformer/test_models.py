"""The documents' models: sizes, initialisation, masking, caches equal to whole passes, a task that learns."""

import gc

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional
import transformer as tf
from minigrad import nn, optim

TIGHT = {"rtol": 1e-10, "atol": 1e-10}


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def small_lm(**changes):
    mg.manual_seed(1)
    settings = {"d_model": 12, "n_heads": 6, "n_kv_heads": 2, "n_layers": 2, "d_ff": 20, "max_len": 16, **changes}
    model = tf.DecoderLM(11, **settings).double().eval()
    with mg.no_grad():  # N(0, 0.02) would make every attention uniform
        for parameter in model.parameters():
            parameter.copy_(mg.randn(*parameter.shape, dtype=mg.float64) * 0.4 + (parameter.ndim == 1))
    return model


def small_translator(**changes):
    mg.manual_seed(1)
    settings = {"d_model": 12, "n_heads": 3, "n_layers": 2, "d_ff": 20, "max_len": 16, "dropout": 0.0, **changes}
    return tf.EncoderDecoder(9, 11, **settings).double().eval()


SRC = mg.tensor([[3, 4, 5, 6], [7, 8, 0, 0]])
TGT = mg.tensor([[1, 2, 3, 4, 5], [1, 6, 7, 0, 0]])
IDS = mg.tensor([[1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 0, 1, 2, 3]])


# --- sizes and starting values --------------------------------------------------------------------


def test_the_base_model_has_the_documents_parameters():
    layer = tf.EncoderLayer(512, 8, 2048)
    assert count(layer.self_attn) == 1_050_624
    assert count(layer.feed_forward) == 2_099_712
    assert count(layer) == 3_152_384
    assert count(tf.DecoderLayer(512, 8, 2048)) == 4_204_032


def test_the_demonstration_models_have_the_documents_parameters():
    d, d_ff, vocab = 256, 512, 5000
    attention, ffn, norm = 4 * (d * d + d), 2 * d * d_ff + d_ff + d, 2 * d
    expected = 3 * (attention + ffn + 2 * norm) + 3 * (2 * attention + ffn + 3 * norm) + 2 * norm
    expected += 2 * vocab * d + d * vocab + vocab
    model = tf.EncoderDecoder(vocab, vocab, d_model=d, n_heads=8, n_layers=3, d_ff=d_ff, max_len=128)
    assert count(model) == expected == 7_799_688
    d, d_ff, vocab = 256, 688, 1000
    lm = tf.DecoderLM(vocab, d_model=d, n_heads=8, n_kv_heads=4, n_layers=4, d_ff=d_ff, max_len=512)
    assert count(lm) == vocab * d + 4 * (3 * d * d + 3 * d * d_ff + 2 * d) + d
    assert lm.lm_head.weight is lm.token_embedding.weight


def test_the_encoder_decoder_starts_from_xavier_and_zero_padding_rows():
    model = tf.EncoderDecoder(50, 60, d_model=32, n_heads=4, n_layers=1, d_ff=64, pad_id=3)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            bound = (6 / sum(parameter.shape)) ** 0.5
            assert 0.9 * bound < np.abs(parameter.detach().numpy()).max() <= bound, name
    assert (model.src_embedding.weight[3] == 0.0).all()
    assert (model.tgt_embedding.weight[3] == 0.0).all()


def test_the_language_model_starts_every_linear_from_n_002():
    model = tf.DecoderLM(300, d_model=64, n_heads=4, n_kv_heads=2, n_layers=1, d_ff=100, tied=False)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            assert module.weight.detach().numpy().std() == pytest.approx(0.02, rel=0.05)
    assert model.token_embedding.weight.detach().numpy().std() == pytest.approx(1.0, rel=0.05)


# --- masking --------------------------------------------------------------------------------------


def test_logits_do_not_depend_on_later_tokens():
    for logits in (small_lm(), lambda ids: small_translator()(SRC, ids)):
        changed = IDS.clone()
        changed[:, 4:] = 5
        before, after = logits(IDS).detach().numpy(), logits(changed).detach().numpy()
        np.testing.assert_allclose(before[:, :4], after[:, :4], **TIGHT)
        assert not np.allclose(before[:, 4:], after[:, 4:])


def test_padding_changes_nothing_for_the_other_tokens():
    model = small_translator()
    whole = model(SRC, TGT).detach().numpy()
    alone = model(SRC[1:, :2], TGT[1:, :3]).detach().numpy()
    np.testing.assert_allclose(whole[1:, :3], alone, **TIGHT)


def test_padding_rows_get_no_gradient():
    model = small_translator()
    (model(SRC, TGT) ** 2).sum().backward()
    assert (model.src_embedding.weight.grad[0] == 0.0).all()
    assert (model.tgt_embedding.weight.grad[0] == 0.0).all()
    assert np.abs(model.tgt_embedding.weight.grad[1]).sum() > 0


def test_order_matters_with_rope():
    swapped = mg.tensor([[2, 1, 3]])
    with_rope, without = small_lm(n_layers=1), small_lm(n_layers=1, rope=None)
    last = [[m(ids)[:, -1].detach().numpy() for ids in (mg.tensor([[1, 2, 3]]), swapped)] for m in (with_rope, without)]
    assert not np.allclose(*last[0])
    np.testing.assert_allclose(*last[1], **TIGHT)  # one layer sees a bag of words


def test_heads_that_do_not_divide_are_refused_first():
    with pytest.raises(ValueError, match="n_heads must divide d_model, got d_model=10, n_heads=3"):
        tf.DecoderLM(7, d_model=10, n_heads=3, n_kv_heads=1)


def test_a_sequence_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="17 tokens do not fit max_len 16"):
        small_lm()(mg.zeros(1, 17, dtype=mg.int64))
    with pytest.raises(ValueError, match="do not fit max_len 16"):
        small_translator()(mg.ones(1, 17, dtype=mg.int64), TGT[:1])


# --- caches ---------------------------------------------------------------------------------------

CHUNKS = [(7,), (1,) * 7, (4, 1, 1, 1), (2, 3, 2)]


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("rope", ["interleaved", "half", None])
def test_a_cached_language_model_equals_a_whole_pass(chunks, rope):
    model = small_lm(rope=rope)
    cache, start, parts = model.new_cache(7), 0, []
    with mg.no_grad():
        for size in chunks:
            parts.append(model(IDS[:, start : start + size], cache))
            start += size
        np.testing.assert_allclose(mg.cat(parts, 1), model(IDS), **TIGHT)
    assert cache.length == 7
    assert cache.nbytes == 2 * 2 * 2 * 2 * 7 * 2 * 8  # k and v, layers, batch, n_kv_heads, positions, d_head, bytes


@pytest.mark.parametrize("chunks", [(5,), (1,) * 5, (2, 2, 1)])
def test_a_cached_encoder_decoder_equals_a_whole_pass(chunks):
    model = small_translator()
    cache, start, parts = model.new_cache(), 0, []
    with mg.no_grad():
        memory, memory_mask = model.encode(SRC)
        for size in chunks:
            parts.append(model.decode(TGT[:, start : start + size], memory, memory_mask, cache))
            start += size
        np.testing.assert_allclose(mg.cat(parts, 1), model(SRC, TGT), **TIGHT)


def test_ids_that_are_no_ids_are_refused():
    with pytest.raises(TypeError, match=r"ids must be token ids \(integers\), got float32"):
        small_lm()(mg.ones(1, 3))
    with pytest.raises(ValueError, match=r"tgt must be \(B, T\) with at least one token, got shape \[3\]"):
        small_translator()(SRC, mg.tensor([1, 2, 3]))


def test_a_cache_has_no_gradients_and_says_so():
    model = small_lm()
    with pytest.raises(RuntimeError, match=r"for decoding and has no gradients: call the model under no_grad"):
        model(IDS, model.new_cache())


def test_a_cache_refuses_what_does_not_fit():
    model = small_lm()
    with mg.no_grad():
        cache = model.new_cache(3)
        model(IDS[:, :3], cache)
        with pytest.raises(ValueError, match="room for 3 positions, 4 were to be stored"):
            model(IDS[:, 3:4], cache)
        cache = model.new_cache(4)
        model(IDS[:, :2], cache)
        with pytest.raises(ValueError, match="use a new cache for another batch"):
            model(IDS[:1, 2:3], cache)


# --- training -------------------------------------------------------------------------------------


def test_a_whole_training_step_can_be_traced():
    model = tf.EncoderDecoder(9, 11, d_model=12, n_heads=3, n_layers=1, d_ff=20, max_len=8, dropout=0.2)
    optimizer = optim.AdamW(model.parameters(), lr=mg.tensor(1e-2))

    def step(src, tgt):
        decoder_input, labels = tf.shift_targets(tgt)
        optimizer.zero_grad()
        loss = mg.functional.cross_entropy(model(src, decoder_input).reshape(-1, 11), labels.reshape(-1), 0, 0.1)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss, norm

    graph = mg.trace(step)(SRC, TGT)
    changed = {id(tensor) for tensor, _ in graph.mutations}
    assert {id(parameter) for parameter in model.parameters()} <= changed
    assert {"encoder.layers.0.self_attn.q_proj", "clip", "optimizer"} <= {node.path for node in graph}
    replayed = graph.run(SRC, TGT)  # before the step changes the weights and the random numbers move on
    for got, expected in zip(replayed, step(SRC, TGT), strict=True):
        np.testing.assert_allclose(got, expected.detach(), rtol=1e-5)


def test_training_steps_leave_nothing_behind():
    model = small_translator(dropout=0.1).train()
    optimizer = optim.Adam(model.parameters())

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            (model(SRC, TGT) ** 2).mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    gc.collect()
    gc.disable()  # what is freed must be freed by reference counting
    try:
        steps(3)
        before = len(gc.get_objects())
        steps(10)
        assert len(gc.get_objects()) <= before
    finally:
        gc.enable()


@pytest.mark.slow
def test_a_tiny_model_learns_to_copy():
    mg.manual_seed(0)
    numbers = np.random.default_rng(0)
    model = tf.EncoderDecoder(10, 10, d_model=32, n_heads=4, n_layers=1, d_ff=64, max_len=8, dropout=0.0)
    optimizer = optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98), eps=1e-9)
    loss_of = nn.CrossEntropyLoss(ignore_index=0)
    for _ in range(180):
        words = numbers.integers(3, 10, (64, 3))
        src, tgt = mg.tensor(words), mg.tensor(np.pad(words, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 2))))
        decoder_input, labels = tf.shift_targets(tgt)
        loss = loss_of(model(src, decoder_input).reshape(-1, 10), labels.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    words = numbers.integers(3, 10, (50, 3))
    next_logits = tf.translator(model, mg.tensor(words), model.new_cache())
    out = tf.greedy_decode(next_logits, mg.ones(50, 1, dtype=mg.int64), 5, eos_id=2).numpy()
    right = (out[:, 1:4] == words).all(1) & (out[:, 4] == 2)
    assert right.mean() >= 0.95, f"loss {loss.item():.3f}, {right.mean():.0%} copied"
