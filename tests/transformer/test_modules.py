"""Attention, masks, positions, feed-forward and layers: equal to torch's with the same weights; masks leak nothing."""

import numpy as np
import pytest

import minigrad as mg
import transformer as tf
from minigrad import nn
from transformer.positions import sinusoid

TIGHT = {"rtol": 1e-10, "atol": 1e-10}
POISON = 1e30


def rng():
    return np.random.default_rng(0)


def randomised(module):
    """The module in float64 with random numbers in every parameter, in evaluation mode."""
    numbers = rng()
    module.double().eval()
    module.load_state_dict({name: numbers.standard_normal(p.shape) for name, p in module.state_dict().items()})
    return module


def given(*shape, seed=0, grad=False):
    return mg.tensor(np.random.default_rng(seed).standard_normal(shape), requires_grad=grad)


# --- masks ----------------------------------------------------------------------------------------


def test_causal_mask_aligns_the_last_query_with_the_last_key():
    np.testing.assert_array_equal(tf.causal_mask(3), np.tri(3, dtype=bool))
    np.testing.assert_array_equal(tf.causal_mask(2, 4), [[1, 1, 1, 0], [1, 1, 1, 1]])
    with pytest.raises(ValueError, match="3 queries cannot all be among 2 keys"):
        tf.causal_mask(3, 2)


def test_padding_and_both():
    ids = mg.tensor([[5, 6, 0], [7, 0, 0]])
    assert tf.padding_mask(ids).shape == (2, 1, 1, 3)
    both = tf.causal_padding_mask(ids)
    np.testing.assert_array_equal(both[1, 0], [[1, 0, 0], [1, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(both[0, 0], [[1, 0, 0], [1, 1, 0], [1, 1, 0]])


# --- attention ------------------------------------------------------------------------------------


def torch_mha(torch, own, d_model, n_heads):
    """torch.nn.MultiheadAttention with the weights of `own`."""
    theirs = torch.nn.MultiheadAttention(d_model, n_heads, batch_first=True, dtype=torch.float64).eval()
    state = {name: torch.tensor(value.numpy()) for name, value in own.state_dict().items()}
    copy_attention(torch, theirs, state, "")
    return theirs


def copy_attention(torch, theirs, state, prefix):
    with torch.no_grad():
        for kind in ("weight", "bias"):
            stacked = torch.cat([state[f"{prefix}{name}_proj.{kind}"] for name in "qkv"])
            getattr(theirs, f"in_proj_{kind}").copy_(stacked)
            getattr(theirs.out_proj, kind).copy_(state[f"{prefix}out_proj.{kind}"])


def test_multi_head_attention_equals_torch_with_its_gradients():
    torch = pytest.importorskip("torch")
    own = randomised(tf.MultiHeadAttention(12, 3))
    theirs = torch_mha(torch, own, 12, 3)
    q, k, v = given(2, 4, 12, seed=1, grad=True), given(2, 5, 12, seed=2, grad=True), given(2, 5, 12, seed=3, grad=True)
    visible = rng().random((2, 1, 4, 5)) < 0.6
    visible[..., 2] = True
    out, weights = own(q, k, v, mg.tensor(visible), need_weights=True)
    tq, tk, tv = (torch.tensor(x.detach().numpy(), requires_grad=True) for x in (q, k, v))
    hidden = torch.tensor(~np.broadcast_to(visible, (2, 3, 4, 5)).reshape(6, 4, 5))
    expected, expected_weights = theirs(tq, tk, tv, attn_mask=hidden, average_attn_weights=False)
    np.testing.assert_allclose(out.detach(), expected.detach().numpy(), **TIGHT)
    np.testing.assert_allclose(weights, expected_weights.detach().numpy(), **TIGHT)
    cotangent = rng().standard_normal((2, 4, 12))
    out.backward(mg.tensor(cotangent))
    expected.backward(torch.tensor(cotangent))
    for a, b in ((q, tq), (k, tk), (v, tv), (own.out_proj.weight, theirs.out_proj.weight)):
        np.testing.assert_allclose(a.grad, b.grad.numpy(), **TIGHT)
    stacked = np.concatenate([own.q_proj.weight.grad, own.k_proj.weight.grad, own.v_proj.weight.grad])
    np.testing.assert_allclose(stacked, theirs.in_proj_weight.grad.numpy(), **TIGHT)


def test_grouped_query_attention_equals_multi_head_attention_with_repeated_heads():
    grouped = randomised(tf.GroupedQueryAttention(12, 6, 2))
    state = grouped.state_dict()
    whole = tf.MultiHeadAttention(12, 6, bias=False).double().eval()
    for name in ("k_proj.weight", "v_proj.weight"):
        state[name] = mg.tensor(np.repeat(state[name].numpy().reshape(2, 2, 12), 3, axis=0).reshape(12, 12))
    whole.load_state_dict(state)
    x, mask = given(2, 5, 12), tf.causal_mask(5)
    np.testing.assert_allclose(grouped(x, mask).detach(), whole(x, x, x, mask).detach(), **TIGHT)


def test_scaled_dot_product_equals_torch():
    torch = pytest.importorskip("torch")
    q, k, v = given(2, 3, 4, 6, seed=1), given(2, 3, 5, 6, seed=2), given(2, 3, 5, 7, seed=3)
    out, weights = tf.scaled_dot_product(q, k, v)
    expected = torch.nn.functional.scaled_dot_product_attention(*(torch.tensor(x.numpy()) for x in (q, k, v)))
    np.testing.assert_allclose(out, expected.numpy(), **TIGHT)
    np.testing.assert_allclose(weights.sum(-1), np.ones((2, 3, 4)), **TIGHT)


def test_dropout_drops_weights_before_they_meet_the_values():
    drop = nn.Dropout(0.5, generator=mg.Generator(1))
    q, k = given(40, 6, seed=1), given(50, 6, seed=2)
    out, weights = tf.scaled_dot_product(q, k, mg.eye(50, dtype=mg.float64), dropout=drop)
    np.testing.assert_allclose(weights, tf.scaled_dot_product(q, k, k)[1], **TIGHT)  # reported before dropout
    ratio = out.numpy() / weights.numpy()
    assert set(np.unique(ratio.round(9))) == {0.0, 2.0}
    assert 0.4 < (ratio == 0.0).mean() < 0.6


def test_what_a_mask_hides_leaks_neither_into_values_nor_into_gradients():
    own = randomised(tf.MultiHeadAttention(8, 2))
    visible = mg.tensor([True, True, False, True])
    x = given(1, 4, 8).numpy()
    poisoned = x.copy()
    poisoned[:, 2] = POISON
    results = []
    for memory in (x, poisoned):
        key = mg.tensor(memory, requires_grad=True)
        query = given(1, 3, 8, seed=5)
        out = own(query, key, key, visible)
        out.sum().backward()
        results.append((out.detach().numpy(), key.grad.numpy()))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert (results[1][1][:, 2] == 0.0).all()
    assert np.isfinite(results[1][1]).all()


def test_a_row_that_may_attend_to_nothing_gives_the_bias_alone():
    own = randomised(tf.MultiHeadAttention(8, 2))
    x = given(1, 3, 8)
    out = own(x, x, x, mg.tensor([[True] * 3, [False] * 3, [True] * 3]))
    np.testing.assert_allclose(out[0, 1].detach(), own.out_proj.bias.detach(), **TIGHT)


def test_self_attention_is_one_head_without_an_output_projection():
    own = randomised(tf.SelfAttention(6, 4))
    x = given(2, 5, 6)
    out, weights = own(x, tf.causal_mask(5), need_weights=True)
    q, k, v = (x.numpy() @ p.weight.detach().numpy().T + p.bias.detach().numpy()
               for p in (own.q_proj, own.k_proj, own.v_proj))  # fmt: skip
    scores = np.where(np.tri(5, dtype=bool), q @ k.swapaxes(1, 2) / 2.0, -np.inf)
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, expected, **TIGHT)
    np.testing.assert_allclose(out.detach(), expected @ v, **TIGHT)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tf.MultiHeadAttention(10, 3), "n_heads must divide d_model, got d_model=10, n_heads=3"),
        (lambda: tf.GroupedQueryAttention(12, 6, 4), "n_kv_heads must divide n_heads, got n_heads=6, n_kv_heads=4"),
        (lambda: tf.RoPE(5), "d_head must be even"),
        (lambda: tf.RoPE(4, pairing="pairs"), "'interleaved' or 'half'"),
        (lambda: tf.FeedForward(4, 8, activation="tan"), "no activation 'tan'"),
        (lambda: tf.LearnedPositions(3, 4)(mg.zeros(1, 4, 4)), "do not fit a table of 3 rows"),
        (lambda: tf.SinusoidalPositions(4, 3)(mg.zeros(1, 4, 4)), "do not fit max_len 3"),
        (
            lambda: tf.MultiHeadAttention(8, 2)(*[mg.zeros(1, 3, 8)] * 3, mg.ones(2, dtype=mg.bool)),
            "does not broadcast",
        ),
    ],
)
def test_errors_say_what_was_wrong(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_mask_that_is_not_bool_is_refused():
    x = mg.zeros(1, 3, 8)
    with pytest.raises(TypeError, match="a mask must be bool"):
        tf.MultiHeadAttention(8, 2)(x, x, x, mg.ones(3, 3))


# --- positions ------------------------------------------------------------------------------------


def test_sinusoid_is_the_documents_formula():
    table = sinusoid(6, 5)
    for pos in range(6):
        for j in range(5):
            angle = pos / 10000 ** ((j - j % 2) / 5)
            assert table[pos, j] == pytest.approx(np.sin(angle) if j % 2 == 0 else np.cos(angle), abs=1e-12)


@pytest.mark.parametrize("make", [lambda: tf.SinusoidalPositions(6), lambda: tf.LearnedPositions(9, 6)])
def test_positions_with_an_offset_go_on_where_they_stopped(make):
    positions = make().double()
    x = given(2, 7, 6)
    whole = positions(x).detach().numpy()
    np.testing.assert_array_equal(positions(x[:, 3:], offset=3).detach(), whole[:, 3:])
    assert not np.allclose(positions(x[:, 3:]).detach(), whole[:, 3:])


def test_sinusoidal_positions_are_exact_in_float64_and_in_no_state_dict():
    positions = tf.SinusoidalPositions(6)
    np.testing.assert_array_equal(positions(mg.zeros(1, 4, 6, dtype=mg.float64))[0], sinusoid(4, 6))
    assert not positions.state_dict()


@pytest.mark.parametrize("pairing", ["interleaved", "half"])
def test_rope_rotates_pairs_as_complex_numbers(pairing):
    x = given(2, 3, 5, 8).numpy()
    first, second = (slice(0, 8, 2), slice(1, 8, 2)) if pairing == "interleaved" else (slice(0, 4), slice(4, 8))
    angles = np.outer(np.arange(7, 12), 100.0 ** (-np.arange(0, 8, 2) / 8))
    turned = (x[..., first] + 1j * x[..., second]) * np.exp(1j * angles)
    out = tf.RoPE(8, base=100.0, pairing=pairing)(mg.tensor(x), offset=7).numpy()
    np.testing.assert_allclose(out[..., first], turned.real, **TIGHT)
    np.testing.assert_allclose(out[..., second], turned.imag, **TIGHT)


def test_rope_products_depend_on_the_distance_alone():
    rope = tf.RoPE(8)
    q, k = given(1, 8, seed=1), given(1, 8, seed=2)
    products = [(rope(q, offset=n) * rope(k, offset=n + 3)).sum().item() for n in (0, 5, 50)]
    np.testing.assert_allclose(products, products[0], **TIGHT)


# --- feed-forward and layers ----------------------------------------------------------------------


def test_swiglu_is_its_formula():
    own = randomised(tf.SwiGLU(4, 6))
    x = given(2, 3, 4)
    gate, up, down = (p.weight.detach().numpy() for p in (own.gate_proj, own.up_proj, own.down_proj))
    a = x.numpy() @ gate.T
    expected = (a / (1 + np.exp(-a)) * (x.numpy() @ up.T)) @ down.T
    np.testing.assert_allclose(own(x).detach(), expected, **TIGHT)


def copy_layer(torch, theirs, own):
    """The weights of one of our layers in torch's."""
    state = {name: torch.tensor(value.numpy()) for name, value in own.state_dict().items()}
    copy_attention(torch, theirs.self_attn, state, "self_attn.")
    if hasattr(theirs, "multihead_attn"):
        copy_attention(torch, theirs.multihead_attn, state, "cross_attn.")
    plain = dict(theirs.named_parameters())
    with torch.no_grad():
        for name, value in state.items():
            if "attn" not in name:
                plain[name.removeprefix("feed_forward.")].copy_(value)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer_equals_torch(norm_first, activation):
    torch = pytest.importorskip("torch")
    own = randomised(tf.EncoderLayer(12, 3, 20, norm_first=norm_first, activation=activation))
    theirs = torch.nn.TransformerEncoderLayer(
        12, 3, 20, activation=activation, norm_first=norm_first, batch_first=True, dtype=torch.float64
    ).eval()
    copy_layer(torch, theirs, own)
    x = given(2, 5, 12)
    expected = theirs(torch.tensor(x.numpy()), src_mask=torch.tensor(~np.tri(5, dtype=bool)))
    np.testing.assert_allclose(own(x, tf.causal_mask(5)).detach(), expected.detach().numpy(), **TIGHT)


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer_equals_torch(norm_first):
    torch = pytest.importorskip("torch")
    own = randomised(tf.DecoderLayer(12, 3, 20, norm_first=norm_first))
    theirs = torch.nn.TransformerDecoderLayer(
        12, 3, 20, norm_first=norm_first, batch_first=True, dtype=torch.float64
    ).eval()
    copy_layer(torch, theirs, own)
    x, memory = given(2, 4, 12), given(2, 5, 12, seed=9)
    real = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)
    out = own(x, memory, tf.causal_mask(4), mg.tensor(real[:, None, None]))
    expected = theirs(
        torch.tensor(x.numpy()),
        torch.tensor(memory.numpy()),
        tgt_mask=torch.tensor(~np.tri(4, dtype=bool)),
        memory_key_padding_mask=torch.tensor(~real),
    )
    np.testing.assert_allclose(out.detach(), expected.detach().numpy(), **TIGHT)


def test_attention_drops_nothing_unless_asked_to():
    layer, x = tf.MultiHeadAttention(8, 2), given(2, 3, 8)
    layer.double().train()
    trained = layer(x, x, x).tolist()
    assert trained == layer.eval()(x, x, x).tolist()
