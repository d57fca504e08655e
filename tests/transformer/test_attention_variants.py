"""Variants of attention, positions and routing: each equals its formula, written as loops or as plain attention."""

import math

import numpy as np
import pytest

import minigrad as mg
import transformer as tf
from minigrad import nn, optim
from minigrad.study.gradcheck import gradcheck
from transformer.attention import scaled_dot_product
from transformer.feedforward import GatedFeedForward
from transformer.linear_attention import causal_linear_attention, elu_features, linear_attention
from transformer.masks import block_sparse_mask, causal_mask, sliding_window_mask
from transformer.moe import MixtureOfExperts, load_balancing_loss, routing
from transformer.positions import RelativePositionBias, alibi, alibi_slopes, relative_buckets
from transformer.scores import AdditiveScore, DotScore, GeneralScore, attend

TIGHT = {"rtol": 1e-10, "atol": 1e-10}


def given(*shape, seed=0, grad=False):
    return mg.tensor(np.random.default_rng(seed).standard_normal(shape), requires_grad=grad)


def randomised(module, seed=0):
    """The module in float64 with random numbers in every parameter, in evaluation mode."""
    numbers = np.random.default_rng(seed)
    module.double().eval()
    module.load_state_dict({name: numbers.standard_normal(p.shape) for name, p in module.state_dict().items()})
    return module


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# --- multi-query attention and masks --------------------------------------------------------------


def test_multi_query_attention_is_grouped_query_attention_with_one_key_head():
    own = randomised(tf.GroupedQueryAttention(12, 4, 1))
    assert own.k_proj.weight.shape == own.v_proj.weight.shape == (3, 12)
    x = given(2, 5, 12).numpy()
    q, k, v = (x @ getattr(own, f"{p}_proj").weight.detach().numpy().T for p in "qkv")
    heads = [softmax(q[..., 3 * h : 3 * h + 3] @ k.swapaxes(1, 2) / math.sqrt(3)) @ v for h in range(4)]
    expected = np.concatenate(heads, -1) @ own.out_proj.weight.detach().numpy().T
    np.testing.assert_allclose(own(mg.tensor(x)).detach(), expected, **TIGHT)


def test_attention_takes_a_head_size_a_scale_and_a_bias():
    own = randomised(tf.MultiHeadAttention(7, 3, d_head=4, scale=0.9))
    x, bias = given(2, 5, 7).numpy(), given(3, 5, 5, seed=1).numpy()
    q, k, v = (x @ p.weight.detach().numpy().T + p.bias.detach().numpy() for p in (own.q_proj, own.k_proj, own.v_proj))
    parts = []
    for h in range(3):
        at = slice(4 * h, 4 * h + 4)
        scores = 0.9 * q[..., at] @ k[..., at].swapaxes(1, 2) + bias[h]
        parts.append(softmax(np.where(np.tri(5, dtype=bool), scores, -np.inf)) @ v[..., at])
    expected = np.concatenate(parts, -1) @ own.out_proj.weight.detach().numpy().T + own.out_proj.bias.detach().numpy()
    given_x = mg.tensor(x)
    out = own(given_x, given_x, given_x, causal_mask(5), bias=mg.tensor(bias))
    np.testing.assert_allclose(out.detach(), expected, **TIGHT)


def test_the_gradient_of_a_bias():
    q, k, v = (given(1, 2, 3, 4, seed=s, grad=True) for s in range(3))
    bias = given(2, 3, 3, seed=3, grad=True)
    mask = causal_mask(3)
    assert gradcheck(lambda *a: scaled_dot_product(*a[:3], mask, scale=0.7, bias=a[3])[0], [q, k, v, bias])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n_query", "n_key", "window"), [(6, 6, 1), (6, 6, 3), (2, 7, 4), (5, 5, 99)])
def test_a_sliding_window_is_its_definition(n_query, n_key, window, causal):
    mask = sliding_window_mask(n_query, window, n_key, causal)
    for i in range(n_query):
        at = i + n_key - n_query
        for j in range(n_key):
            assert mask[i, j].item() == (abs(at - j) < window and (j <= at or not causal))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n", "block", "local", "first"), [(7, 2, 1, 1), (8, 3, 0, 1), (6, 1, 2, 0), (5, 9, 0, 0)])
def test_a_block_sparse_mask_is_its_definition(n, block, local, first, causal):
    mask = block_sparse_mask(n, block, local, first, causal=causal)
    for i in range(n):
        for j in range(n):
            near = abs(i // block - j // block) <= local or i // block < first or j // block < first
            assert mask[i, j].item() == (near and (j <= i or not causal))


def test_the_last_rows_of_a_mask_are_the_mask_of_the_last_queries():
    for build in (lambda n, k: sliding_window_mask(n, 3, k), lambda n, k: block_sparse_mask(n, 2, 0, 1, k)):
        np.testing.assert_array_equal(build(3, 8), build(8, 8)[5:])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sliding_window_mask(3, 0), "a window holds at least the token itself, got 0"),
        (lambda: sliding_window_mask(3, 2, 2), "3 queries cannot all be among 2 keys"),
        (lambda: block_sparse_mask(3, 0), "block must be at least 1"),
        (lambda: tf.RoPE(4, interpolation=0.0), "interpolation must be above 0"),
        (lambda: tf.SinusoidalPositions(4, layout="pairs"), "'interleaved' or 'half'"),
        (lambda: RelativePositionBias(2, 2), "buckets"),
        (lambda: RelativePositionBias(2, 32, 8), "larger distance"),
        (lambda: MixtureOfExperts(4, 3, 4, nn.Identity), "between 1 and all 3 experts, got top_k=4"),
        (lambda: load_balancing_loss([], 1), "at least one layer"),
        (lambda: causal_linear_attention(*[given(1, 3, 2)] * 3, block=0), "block must be at least 1"),
    ],
)
def test_errors_say_what_was_wrong(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- linear attention -----------------------------------------------------------------------------


def brute_linear(q, k, v, causal, visible):
    def phi(x):
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))

    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    for index in np.ndindex(q.shape[:-2]):
        for i in range(q.shape[-2]):
            above, below = 0.0, 0.0
            for j in range(k.shape[-2]):
                if visible[(*index, j)] and (not causal or j <= i):
                    weight = phi(q[(*index, i)]) @ phi(k[(*index, j)])
                    above, below = above + weight * v[(*index, j)], below + weight
            out[(*index, i)] = above / below if np.any(below) else 0.0
    return out


@pytest.mark.parametrize("hidden", [False, True])
def test_linear_attention_is_its_sum(hidden):
    q, k, v = given(2, 3, 4, 5, seed=1), given(2, 3, 6, 5, seed=2), given(2, 3, 6, 7, seed=3)
    visible = np.random.default_rng(4).random((2, 3, 6)) < (0.5 if hidden else 2.0)
    visible[0, 0] = not hidden
    out = linear_attention(q, k, v, mg.tensor(visible) if hidden else None)
    np.testing.assert_allclose(out, brute_linear(*(x.numpy() for x in (q, k, v)), False, visible), **TIGHT)


@pytest.mark.parametrize("block", [1, 3, 64])
@pytest.mark.parametrize("hidden", [False, True])
def test_causal_linear_attention_is_its_sum_and_goes_on_from_its_state(block, hidden):
    q, k, v = given(2, 8, 5, seed=1), given(2, 8, 5, seed=2), given(2, 8, 3, seed=3)
    visible = np.random.default_rng(4).random((2, 8)) < (0.6 if hidden else 2.0)
    visible[0, :2] = not hidden
    expected = brute_linear(*(x.numpy() for x in (q, k, v)), True, visible)
    keys = mg.tensor(visible)
    out, _ = causal_linear_attention(q, k, v, keys, block=block)
    np.testing.assert_allclose(out, expected, **TIGHT)
    parts, state, start = [], None, 0
    for size in (3, 1, 4):
        at = slice(start, start + size)
        part, state = causal_linear_attention(q[:, at], k[:, at], v[:, at], keys[:, at], state=state, block=block)
        parts.append(part)
        start += size
    np.testing.assert_allclose(mg.cat(parts, 1), expected, **TIGHT)
    assert state[0].shape == (2, 5, 3)


def test_the_gradients_of_linear_attention():
    inputs = [given(1, 4, 2, seed=s, grad=True) for s in range(3)]
    assert gradcheck(lambda q, k, v: linear_attention(q, k, v), inputs)
    assert gradcheck(lambda q, k, v: causal_linear_attention(q, k, v, block=3)[0], inputs)


def test_features_are_positive_and_do_not_overflow():
    x = mg.tensor([-1e4, -1.0, 0.0, 1.0, 1e4], requires_grad=True)
    y = elu_features(x)
    np.testing.assert_allclose(y.detach(), [0.0, math.exp(-1), 1.0, 2.0, 10001.0], rtol=1e-6)
    y.sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


# --- scores ---------------------------------------------------------------------------------------


def test_scores_are_their_formulas():
    q, k = given(2, 3, 4, seed=1), given(2, 5, 6, seed=2)
    general, additive = randomised(GeneralScore(4, 6)), randomised(AdditiveScore(4, 6, 7))
    w = general.proj.weight.detach().numpy()
    wq, wk, v = (p.weight.detach().numpy() for p in (additive.query_proj, additive.key_proj, additive.v))
    for b in range(2):
        for i in range(3):
            for j in range(5):
                query, key = q[b, i].numpy(), k[b, j].numpy()
                assert general(q, k)[b, i, j].item() == pytest.approx(query @ w @ key, abs=1e-10)
                expected = (v @ np.tanh(wq @ query + wk @ key)).item()
                assert additive(q, k)[b, i, j].item() == pytest.approx(expected, abs=1e-10)
    same = given(2, 5, 4, seed=3)
    np.testing.assert_allclose(DotScore()(q, same), q.numpy() @ same.numpy().swapaxes(1, 2), **TIGHT)


def test_attending_to_scores_masks_and_sums():
    scores, value = given(2, 3, 5, seed=1), given(2, 5, 4, seed=2)
    visible = np.random.default_rng(3).random((2, 3, 5)) < 0.5
    visible[0, 0], visible[..., 4] = False, [[False, True, True], [True, True, True]]
    context, weights = attend(scores, value, mg.tensor(visible))
    e = np.where(visible, np.exp(scores.numpy()), 0.0)
    total = e.sum(-1, keepdims=True)
    expected = e / np.where(total == 0, 1.0, total)
    np.testing.assert_allclose(weights, expected, **TIGHT)
    np.testing.assert_allclose(context, expected @ value.numpy(), **TIGHT)


def test_the_gradients_of_scores():
    q, k = given(1, 2, 3, seed=1, grad=True), given(1, 4, 3, seed=2, grad=True)
    for score in (DotScore(), randomised(GeneralScore(3, 3)), randomised(AdditiveScore(3, 3, 2))):
        inputs = [q, k, *score.parameters()]
        assert gradcheck(lambda q, k, *_, score=score: attend(score(q, k), k)[0], inputs)


# --- positions ------------------------------------------------------------------------------------


def test_alibi_slopes_are_the_papers():
    np.testing.assert_allclose(alibi_slopes(8), [2.0**-i for i in range(1, 9)])
    np.testing.assert_allclose(alibi_slopes(4), [2.0 ** (-2 * i) for i in range(1, 5)])
    np.testing.assert_allclose(alibi_slopes(6), [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3])
    np.testing.assert_allclose(alibi_slopes(1), [2.0**-8])


def test_alibi_is_minus_slope_times_distance():
    bias = alibi(3, 2, 5, dtype=mg.float64)
    for h in range(3):
        for i in range(2):
            for j in range(5):
                assert bias[h, i, j].item() == pytest.approx(-alibi_slopes(3)[h] * abs(i + 3 - j), abs=1e-12)


@pytest.mark.parametrize("shared", [1, 2])
def test_attention_with_alibi_never_stores_its_scores(shared):
    """As its bias given in full; with and without the weights, behind a cache, in a plan."""
    heads = tf.MultiHeadAttention(12, 6, 6 // shared, alibi=True).to(mg.float64)
    plain = tf.MultiHeadAttention(12, 6, 6 // shared).to(mg.float64)
    plain.load_state_dict(heads.state_dict())
    for parameter in (*heads.parameters(), *plain.parameters()):
        parameter.requires_grad = False
    x, mask = given(2, 5, 12), causal_mask(5)
    expected = plain(x, x, x, mask, bias=alibi(6, 5, dtype=mg.float64))
    graph = mg.trace(heads)(x, x, x, mask)
    assert "flash_attention" in {node.op for node in graph.nodes}
    np.testing.assert_allclose(heads(x, x, x, mask), expected, **TIGHT)
    np.testing.assert_allclose(heads(x, x, x, mask, need_weights=True)[0], expected, **TIGHT)
    np.testing.assert_allclose(mg.compile(heads)(x, x, x, mask), expected, **TIGHT)
    last = x[:, 4:]
    np.testing.assert_allclose(heads(last, x, x), expected[:, 4:], **TIGHT)


@pytest.mark.parametrize("pairing", ["interleaved", "half"])
def test_position_interpolation_squeezes_positions(pairing):
    squeezed = tf.RoPE(6, pairing=pairing, interpolation=3.0)
    plain = tf.RoPE(6, pairing=pairing)
    x = given(1, 10, 6)
    for t in (0, 3, 6, 9):
        np.testing.assert_allclose(squeezed(x)[:, t], plain(x[:, t : t + 1], offset=t // 3)[:, 0], **TIGHT)


def test_a_sinusoid_in_halves_has_the_same_columns():
    x = mg.zeros(1, 5, 7, dtype=mg.float64)
    halves, pairs = tf.SinusoidalPositions(7, layout="half")(x), tf.SinusoidalPositions(7)(x)
    np.testing.assert_array_equal(halves[..., :4], pairs[..., 0::2])
    np.testing.assert_array_equal(halves[..., 4:], pairs[..., 1::2])


def test_rotary_tables_grow_with_the_text_alone():
    rope = tf.RoPE(4, max_len=10**9)  # a table of all of them would not fit any memory
    x = given(1, 3, 4)
    np.testing.assert_allclose(rope(x, offset=200), tf.RoPE(4, max_len=203)(x, offset=200), **TIGHT)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 9), (20, 100), (6, 40)])
def test_relative_buckets_are_t5s(n_buckets, max_distance, bidirectional):
    torch = pytest.importorskip("torch")
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    relative = np.arange(-3 * max_distance, 3 * max_distance + 1)
    expected = t5.T5Attention._relative_position_bucket(torch.tensor(relative), bidirectional, n_buckets, max_distance)
    np.testing.assert_array_equal(relative_buckets(relative, n_buckets, max_distance, bidirectional), expected)


def test_relative_position_bias_looks_up_its_table():
    bias = randomised(RelativePositionBias(3, 8, 16, bidirectional=False))
    table, out = bias.weight.detach().numpy(), bias(2, 6).detach().numpy()
    assert out.shape == (1, 3, 2, 6)
    for i in range(2):
        for j in range(6):
            bucket = min(max(i + 4 - j, 0), 4)  # distances below 4 have a bucket each, 4 begins the next
            np.testing.assert_array_equal(out[0, :, i, j], table[bucket])
    bias(4).sum().backward()
    assert np.abs(bias.weight.grad.numpy()).sum() > 0


# --- mixture of experts ---------------------------------------------------------------------------


def mixture(n_experts=4, top_k=2):
    return randomised(MixtureOfExperts(3, n_experts, top_k, lambda: GatedFeedForward(3, 5)))


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_a_mixture_is_the_weighted_sum_of_the_chosen_experts(top_k):
    moe = mixture(top_k=top_k)
    x = given(2, 6, 3)
    probabilities = softmax(x.numpy() @ moe.router.weight.detach().numpy().T)
    out = moe(x).detach().numpy()
    for b in range(2):
        for t in range(6):
            p = probabilities[b, t]
            chosen = np.argsort(-p)[:top_k]
            expected = sum(p[e] * moe.experts[e](x[b, t : t + 1]).detach().numpy()[0] for e in chosen) / p[chosen].sum()
            np.testing.assert_allclose(out[b, t], expected, **TIGHT)


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_a_compiled_mixture_gives_what_it_gives_eagerly_whatever_the_routing(top_k):
    moe = mixture(top_k=top_k)

    def step(x, real):
        moe.zero_grad()
        with routing(moe) as logits:
            out = moe(x)
        ((out * out).mean() + load_balancing_loss(logits, top_k, real)).backward()
        return out

    compiled = mg.compile(step)
    real = mg.tensor(np.arange(12).reshape(2, 6) % 5 != 3)
    for seed in range(3):  # other tokens, other routes, one plan
        x = given(2, 6, 3, seed=seed)
        wanted = step(x, real).detach().numpy()
        gradients = {name: parameter.grad for name, parameter in moe.named_parameters()}
        np.testing.assert_allclose(compiled(x, real).detach().numpy(), wanted, **TIGHT)
        for name, parameter in moe.named_parameters():
            wanted = 0.0 if gradients[name] is None else gradients[name].numpy()
            np.testing.assert_allclose(parameter.grad.numpy(), wanted, err_msg=name, **TIGHT)
    assert len(compiled.plans) == 1


def test_the_gradients_of_a_mixture_reach_router_and_experts():
    moe = mixture()
    x = given(5, 3, grad=True)
    assert gradcheck(lambda x, *_: moe(x), [x, *moe.parameters()])


def test_an_expert_that_no_token_chose_gets_no_gradient():
    moe = mixture(3, 1)
    with mg.no_grad():
        moe.router.weight[2] = moe.router.weight[0] * 0.0 - 100.0
    moe(mg.ones(1, 4, 3, dtype=mg.float64)).sum().backward()
    assert all(parameter.grad is None for parameter in moe.experts[2].parameters())


def test_the_balancing_loss_is_top_k_where_routing_is_even_and_more_where_it_is_not():
    even = mg.zeros(8, 4, dtype=mg.float64)
    assert load_balancing_loss([even], 2).item() == pytest.approx(2.0)
    lopsided = mg.tensor(np.tile([9.0, 8.0, 0.0, 0.0], (8, 1)))
    assert load_balancing_loss([lopsided], 2).item() > 3.9
    logits = given(8, 4, grad=True)
    assert gradcheck(lambda logits: load_balancing_loss([logits], 2), [logits])


@pytest.mark.parametrize("padded", [False, True])
def test_the_balancing_loss_equals_mixtrals(padded):
    torch = pytest.importorskip("torch")
    mixtral = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
    layers = [given(10, 5, seed=s) for s in range(3)]
    real = np.random.default_rng(9).random((2, 5)) < 0.6
    expected = mixtral.load_balancing_loss_func(
        tuple(torch.tensor(x.numpy()) for x in layers), 5, 2, torch.tensor(real).long() if padded else None
    )
    got = load_balancing_loss(layers, 2, mg.tensor(real) if padded else None)
    assert got.item() == pytest.approx(expected.item(), rel=1e-6)  # the library adds up in float32


def test_routing_collects_the_logits_of_every_mixture():
    model = nn.Sequential(mixture(), mixture())
    x = given(2, 5, 3)
    with routing(model) as logits:
        model(x)
    model(x)
    assert [tuple(each.shape) for each in logits] == [(10, 4), (10, 4)]
    np.testing.assert_allclose(logits[0].detach(), model[0].router(x.reshape(-1, 3)).detach(), **TIGHT)


def test_training_with_the_balancing_loss_balances():
    mg.manual_seed(0)
    moe = MixtureOfExperts(4, 4, 1, lambda: nn.Linear(4, 4))
    with mg.no_grad():
        moe.router.weight[0].copy_(mg.ones(4))
    x = mg.rand(64, 4)
    optimizer = optim.Adam(moe.parameters(), lr=0.05)

    def loss():
        with routing(moe) as logits:
            moe(x)
        return load_balancing_loss(logits, 1)

    before = loss().item()
    for _ in range(40):
        optimizer.zero_grad()
        current = loss()
        current.backward()
        optimizer.step()
    assert loss().item() < 1.2 < 1.5 < before


# --- batch norm -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5)])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_equals_torch_in_training_and_evaluation(shape, momentum):
    torch = pytest.importorskip("torch")
    own = nn.BatchNorm1d(3, momentum=momentum).double()
    theirs = torch.nn.BatchNorm1d(3, momentum=momentum, dtype=torch.float64)
    weight, bias = np.array([0.5, 2.0, -1.0]), np.array([0.1, 0.2, 0.3])
    with mg.no_grad(), torch.no_grad():
        own.weight.copy_(mg.tensor(weight))
        own.bias.copy_(mg.tensor(bias))
        theirs.weight.copy_(torch.tensor(weight))
        theirs.bias.copy_(torch.tensor(bias))
    for step in range(3):
        x = given(*shape, seed=step, grad=True)
        other = torch.tensor(x.detach().numpy(), requires_grad=True)
        cotangent = given(*shape, seed=10 + step)
        out, expected = own(x), theirs(other)
        np.testing.assert_allclose(out.detach(), expected.detach().numpy(), **TIGHT)
        out.backward(cotangent)
        expected.backward(torch.tensor(cotangent.numpy()))
        np.testing.assert_allclose(x.grad, other.grad.numpy(), rtol=1e-9, atol=1e-12)
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(own.state_dict()[name], value.numpy(), **TIGHT)
    x = given(*shape, seed=9)
    np.testing.assert_allclose(own.eval()(x).detach(), theirs.eval()(torch.tensor(x.numpy())).detach().numpy(), **TIGHT)


def test_batch_norm_refuses_what_it_cannot_normalise():
    norm = nn.BatchNorm1d(3)
    with pytest.raises(ValueError, match=r"expected \(N, 3\)"):
        norm(mg.zeros(2, 4))
    with pytest.raises(ValueError, match="more than one value"):
        norm(mg.zeros(1, 3))
