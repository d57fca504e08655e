"""Multi-head latent attention: its two ways of computing agree, and its cache holds what the paper says."""

import numpy as np
import pytest
from small_families import small

import minigrad as mg
from transformer.cache import LayerCache
from transformer.decoding import greedy_decode, language_model, plans
from transformer.latent_attention import LatentAttention
from transformer.models.deepseek_v2 import DeepseekV2, DeepseekV2Config
from transformer.moe import MixtureOfExperts
from transformer.positions import RoPE

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("q_rank", [None, 6])
def test_attending_to_the_short_vectors_equals_attending_to_the_keys_made_of_them(q_rank):
    """q (W c) = (q W) c, so that a cache of the short vectors is enough (DeepSeek-V2, section 2.1.2)."""
    mg.manual_seed(0)
    attention = LatentAttention(12, 3, RoPE(4, 16, pairing="interleaved"), 7, 5, 2, q_rank, bias=True).double().eval()
    x = mg.tensor(RNG.standard_normal((2, 6, 12)))
    mask = mg.tensor(np.tri(6, dtype=bool))
    with mg.no_grad():
        whole, weights = attention(x, x, x, mask, need_weights=True)
        cached, same = attention(x, x, x, mask, LayerCache(6), need_weights=True)
    np.testing.assert_allclose(cached, whole, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(same, weights, rtol=1e-10, atol=1e-12)


def test_the_cache_holds_one_short_vector_and_one_rotated_key_a_token():
    """DeepSeek-V2's table 1: (d_c + d_h^R) l numbers a token, where multi-head attention has 2 n_h d_h l."""
    heads, short, rotated, plain, value, layers, room = 16, 64, 16, 32, 32, 2, 50
    model = DeepseekV2(
        DeepseekV2Config(
            vocab_size=19, hidden_size=64, intermediate_size=14, num_hidden_layers=layers, num_attention_heads=heads,
            max_position_embeddings=64, q_lora_rank=None, kv_lora_rank=short, qk_nope_head_dim=plain,
            qk_rope_head_dim=rotated, v_head_dim=value, first_k_dense_replace=layers,
        )
    )  # fmt: skip
    cache = model.new_cache(room)
    greedy_decode(language_model(model, cache), mg.tensor([[1, 2, 3]]), 4)
    assert cache.nbytes == 4 * room * layers * (short + rotated)
    usual = 4 * room * layers * heads * (plain + rotated + value)
    assert usual / cache.nbytes == 16


@pytest.mark.parametrize("dense_layers", [0, 2], ids=["mixture", "no mixture"])
def test_it_is_compiled_with_and_without_a_mixture(dense_layers):
    config = {**small("deepseek_v2").config.to_dict(), "first_k_dense_replace": dense_layers}
    model = DeepseekV2(DeepseekV2Config.from_dict(config)).double().eval()
    ids = mg.tensor(RNG.integers(0, 19, (2, 5)))
    assert plans.plans_of(model, model.new_cache()) is not None
    found = [greedy_decode(language_model(model, model.new_cache(), eager=eager), ids, 12) for eager in (True, False)]
    np.testing.assert_array_equal(*found)


def test_only_experts_of_the_best_groups_are_chosen():
    mixture = MixtureOfExperts(3, 6, 2, lambda: mg.nn.Linear(3, 3), groups=(3, 1))
    probabilities = mg.tensor([[0.2, 0.1, 0.3, 0.0, 0.15, 0.25], [0.1, 0.4, 0.2, 0.1, 0.1, 0.1]])
    allowed = mixture._allowed(probabilities)
    np.testing.assert_allclose(allowed, [[0, 0, 0.3, 0, 0, 0], [0.1, 0.4, 0, 0, 0, 0]])
    with pytest.raises(ValueError, match="6 experts do not stand in 4 groups of which 1 are kept"):
        MixtureOfExperts(3, 6, 2, lambda: mg.nn.Linear(3, 3), groups=(4, 1))


def test_another_way_of_choosing_experts_is_refused():
    with pytest.raises(ValueError, match="topk_method 'noaux_tc' is not built here, only greedy ones"):
        DeepseekV2(DeepseekV2Config.from_dict({**small("deepseek_v2").config.to_dict(), "topk_method": "noaux_tc"}))
