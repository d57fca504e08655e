"""Parameter counts and sizes that the documents state, counted from the shapes in the role table."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from conformance.evidence import Evidence, all_of, close, same, true
from conformance.protocol import ROLES
from conformance.verifications.base import erratum, rounds_to, verify

BASE: dict[str, Any] = {"d_model": 512, "n_heads": 8, "d_ff": 2048}
SMALL: dict[str, Any] = {"d_model": 256, "n_heads": 8, "d_ff": 512}


def count(role: str, under: str = "", **config: Any) -> int:
    """How many numbers the parameters of `role` hold; with `under`, only those whose name begins so."""
    shapes = ROLES[role].params(ROLES[role].settings(config))
    return sum(prod(shape) for name, shape in shapes.items() if name.startswith(under))


def linear(n_in: int, n_out: int, bias: bool = True) -> int:
    return count("linear", n_in=n_in, n_out=n_out, bias=bias)


def attention(d_model: int, n_heads: int = 1, bias: bool = True) -> int:
    return count("multi_head_attention", d_model=d_model, n_heads=n_heads, bias=bias)


# --- heads and attention --------------------------------------------------------------------------


@verify("512-over-8-heads-is-64")
def head_width() -> Evidence:
    return all_of(
        same("512 / 8", 512 / 8, 64),
        same("8 heads of 64 concatenated", 8 * 64, 512),
        same(
            "widths of (512, 8), (768, 12), (1024, 16)", [d / h for d, h in ((512, 8), (768, 12), (1024, 16))], [64] * 3
        ),
    )


@verify("16-heads-of-512-have-width-32")
def sixteen_heads() -> Evidence:
    widths = [512 / 8, 512 / 16]
    right = same("64 with 16 heads needs d_model = 1024", 1024 / 16, 64)
    return erratum("head width of d_model 512 with 8 and 16 heads", [64, 64], widths, right)


@verify("three-projections-to-64-hold-98304-numbers")
def three_projections() -> Evidence:
    shapes = ROLES["self_attention"].params({"d_model": 512, "d_k": 64, "bias": False})
    return all_of(
        same("W_Q, W_K and W_V map 512 to 64", set(shapes.values()), {(64, 512)}),
        same("their parameters", count("self_attention", d_model=512, d_k=64), 98_304),
    )


@verify("single-head-self-attention-has-no-output-projection")
def single_head() -> Evidence:
    return all_of(
        same("three 8 x 8 layers with bias", count("self_attention", d_model=8, d_k=8, bias=True), 3 * (64 + 8)),
        same("at d_model = 512", count("self_attention", d_model=512, d_k=512, bias=True), 787_968),
    )


@verify("multi-head-attention-has-four-square-layers")
def multi_head_count() -> Evidence:
    return all_of(
        same("with biases, h = 1, 2, 4, 8", [attention(512, h) for h in (1, 2, 4, 8)], [1_050_624] * 4),
        same("without biases", attention(512, 8, bias=False), 4 * 512**2),
        same("at d_model = 256", attention(256, 8), 263_168),
    )


@verify("multi-head-attention-holds-four-d-squared")
def not_one_square() -> Evidence:
    right = same("4 d_model^2 without biases", attention(512, 8, bias=False), 4 * 512**2)
    return erratum("parameters of multi-head attention", 512 * 512, attention(512, 8, bias=False), right)


@verify("grouped-projections-shrink-with-the-groups")
def grouped_count() -> Evidence:
    counts = [count("grouped_query_attention", d_model=256, n_heads=8, n_kv_heads=kv) for kv in (8, 4, 2, 1)]
    narrow = ROLES["grouped_query_attention"].params({"d_model": 256, "n_heads": 8, "n_kv_heads": 1, "bias": False})
    return all_of(
        same("8, 4, 2 and 1 key/value heads", counts, [262_144, 196_608, 163_840, 147_456]),
        same("one key/value head: the weight of k_proj", narrow["k_proj.weight"], (32, 256)),
    )


# --- feed-forward ---------------------------------------------------------------------------------


@verify("feed-forward-widens-four-times")
def feed_forward_count() -> Evidence:
    return all_of(
        same("2048 / 512", 2048 / 512, 4),
        same("weights, then biases", count("feed_forward", d_model=512, d_ff=2048), 2 * 512 * 2048 + 2048 + 512),
        same("the printed total", count("feed_forward", d_model=512, d_ff=2048), 2_099_712),
    )


@verify("feed-forward-is-narrow-wide-narrow")
def narrow_wide_narrow() -> Evidence:
    shapes = ROLES["feed_forward"].params({"d_model": 512, "d_ff": 2048, "bias": True})
    sizes = [shapes["linear1.weight"][1], shapes["linear1.weight"][0], shapes["linear2.weight"][0]]
    right = same("in, hidden and out", sizes, [512, 2048, 512])
    return erratum("wide in, narrow out", [2048, 512], [sizes[0], sizes[-1]], right)


@verify("feed-forward-has-twice-the-parameters-of-attention")
def ffn_against_attention() -> Evidence:
    ratio = count("feed_forward", d_model=512, d_ff=2048) / attention(512, 8)
    return close("FFN over attention at d = 512", ratio, 2, 0.002, "biases: 2,560 against 2,048")


@verify("feed-forward-holds-two-thirds-of-an-encoder-layer-only")
def ffn_share() -> Evidence:
    ffn, encoder, decoder = count("feed_forward", d_model=512, d_ff=2048), count("encoder_layer", **BASE), 4_204_032
    layers = 6 * (encoder + count("decoder_layer", **BASE))
    whole = layers + 37_000 * 512
    right = all_of(
        close("share of an encoder layer", ffn / encoder, 2 / 3, 1e-3, "biases and norms"),
        same("parameters of a decoder layer", count("decoder_layer", **BASE), decoder),
        close("share of a decoder layer", ffn / decoder, 0.4995, 5e-5, "given to 4 digits"),
        close("share of the base model with a shared embedding of 37,000", 12 * ffn / whole, 0.3994, 5e-5, "4 digits"),
    )
    return erratum("the FFN's share of the model", 2 / 3, 12 * ffn / whole, right, by=0.1)


@verify("swiglu-width-is-eight-thirds")
def swiglu_width() -> Evidence:
    matrices = [(d, count("swiglu", d_model=d, d_ff=f)) for d, f in ((512, 1376), (256, 688))]
    return all_of(
        same(
            "8/3 d rounded up to a multiple of 32 and of 16",
            [-(-8 * 512 // 96) * 32, -(-8 * 256 // 48) * 16],
            [1376, 688],
        ),
        same("three matrices", [n for _, n in matrices], [2_113_536, 528_384]),
        close(
            "against 8 d^2 of a two-matrix FFN", [n / (8 * d * d) for d, n in matrices], [1.0, 1.0], 0.01, "within 1 %"
        ),
    )


@verify("attention-is-a-third-of-an-encoder-layer")
def attention_share() -> Evidence:
    share = attention(512, 8) / count("encoder_layer", **BASE)
    right = rounds_to("attention's share of the parameters", share, 0.333, 3)
    return erratum("nothing but attention", 1.0, share, right, by=0.5)


# --- layers and models of the encoder-decoder -----------------------------------------------------


@verify("encoder-layer-has-3152384-parameters")
def encoder_layer_count() -> Evidence:
    parts = attention(512, 8) + count("feed_forward", d_model=512, d_ff=2048) + 2 * count("layer_norm", d_model=512)
    return all_of(
        same("attention + FFN + two norms", count("encoder_layer", **BASE), parts),
        same("(512, 8, 2048)", parts, 3_152_384),
        same("(256, 8, 512)", count("encoder_layer", **SMALL), 527_104),
    )


@verify("decoder-layer-has-two-attentions-and-three-norms")
def decoder_layer_count() -> Evidence:
    parts = 2 * attention(512, 8) + count("feed_forward", d_model=512, d_ff=2048) + 3 * count("layer_norm", d_model=512)
    return all_of(
        same("(512, 8, 2048)", [count("decoder_layer", **BASE), parts], [4_204_032] * 2),
        same("(256, 8, 512)", count("decoder_layer", **SMALL), 790_784),
    )


@verify("the-figure-of-a-decoder-layer-lacks-a-norm")
def figure_lacks_a_norm() -> Evidence:
    norms = count("decoder_layer", under="norm", **BASE)
    right = same("three Add & Norm hold 3 gamma/beta pairs", norms, 3 * 2 * 512)
    return erratum("parameters of the two norms drawn", 2 * 2 * 512, norms, right)


@verify("six-layers-on-each-side")
def stacks() -> Evidence:
    return all_of(
        same("six encoder layers", count("encoder", n_layers=6, final_norm=False, **BASE), 18_914_304),
        same("six decoder layers", count("decoder", n_layers=6, final_norm=False, **BASE), 25_224_192),
    )


@verify("an-encoder-decoder-needs-two-stacks")
def two_stacks() -> Evidence:
    encoder, decoder = (count(stack, n_layers=6, final_norm=False, **BASE) for stack in ("encoder", "decoder"))
    return rounds_to("6 + 6 layers over 6 decoder-only layers", (encoder + decoder) / encoder, 2.3336, 4)


@verify("a-decoder-only-layer-has-no-cross-attention")
def decoder_only_layer() -> Evidence:
    with_cross = count("decoder_layer", **BASE)
    without = with_cross - count("decoder_layer", under="cross_attn", **BASE) - count("layer_norm", d_model=512)
    right = all_of(
        same("without it and its norm it is an encoder layer", without, count("encoder_layer", **BASE)),
        same("cross-attention at d = 256", count("decoder_layer", under="cross_attn", **SMALL), 263_168),
    )
    return erratum("the layer of a decoder-only model is the decoder layer", with_cross, without, right)


@verify("cross-attention-belongs-to-the-decoder")
def cross_in_decoder() -> Evidence:
    cross = [count(role, under="cross_attn", **SMALL) for role in ("encoder_layer", "decoder_layer")]
    right = same(
        "both have an FFN",
        [count(r, under="feed_forward", **SMALL) for r in ("encoder_layer", "decoder_layer")],
        [262_912] * 2,
    )
    return erratum(
        "where the drawing puts cross-attention: encoder, decoder", [True, False], np.array(cross) > 0, right
    )


DEMO: dict[str, Any] = {"src_vocab": 5000, "tgt_vocab": 5000, "n_layers": 3, **SMALL}


@verify("the-demo-model-has-7799688-parameters")
def demo_count() -> Evidence:
    sides = [
        count("encoder_decoder", under=side, **DEMO) + count("encoder_decoder", under=table, **DEMO)
        for side, table in (("encoder", "src_embedding"), ("decoder", "tgt_embedding"))
    ]
    return all_of(
        same("encoder and decoder with their embeddings", sides, [2_861_824, 3_652_864]),
        same("output projection", count("encoder_decoder", under="output_proj", **DEMO), 1_285_000),
        same("together", count("encoder_decoder", **DEMO), 7_799_688),
        same("arrays", len(ROLES["encoder_decoder"].params(ROLES["encoder_decoder"].settings(DEMO))), 134),
    )


@verify("the-training-demo-has-1048040-parameters")
def training_demo_count() -> Evidence:
    config: dict[str, Any] = {
        "src_vocab": 1000,
        "tgt_vocab": 1000,
        "d_model": 128,
        "n_heads": 4,
        "n_layers": 2,
        "d_ff": 256,
    }
    return same("(1000, 1000, 128, 4, 2, 256)", count("encoder_decoder", **config), 393_216 + 525_824 + 129_000)


@verify("the-default-transformer-has-90250544-parameters")
def default_count() -> Evidence:
    config: dict[str, Any] = {"src_vocab": 30_000, "tgt_vocab": 30_000, "n_layers": 6, **BASE}
    return same("vocabularies of 30,000", count("encoder_decoder", **config), 90_250_544)


# --- decoder-only models --------------------------------------------------------------------------

GPT_DEMO: dict[str, Any] = {"vocab": 1000, "d_model": 256, "n_heads": 8, "n_kv_heads": 4, "n_layers": 4, "d_ff": 688}
GPT_DEFAULT: dict[str, Any] = {
    "vocab": 32_000,
    "d_model": 512,
    "n_heads": 8,
    "n_kv_heads": 4,
    "n_layers": 6,
    "d_ff": 1376,
}


@verify("the-gpt-demo-has-3158272-parameters")
def gpt_demo_count() -> Evidence:
    return all_of(
        same("a layer", count("decoder_lm", under="layers.0", **GPT_DEMO), 725_504),
        same("together", count("decoder_lm", **GPT_DEMO), 256_000 + 4 * 725_504 + 256),
        same("the printed total", count("decoder_lm", **GPT_DEMO), 3_158_272),
    )


@verify("the-printed-parts-of-the-gpt-demo-miss-the-final-norm")
def gpt_parts() -> Evidence:
    total = count("decoder_lm", **GPT_DEMO)
    parts = count("decoder_lm", under="token_embedding", **GPT_DEMO) + count("decoder_lm", under="layers", **GPT_DEMO)
    right = same("parts and final norm", parts + count("decoder_lm", under="norm", **GPT_DEMO), total)
    return erratum("embedding and layers are the whole", total, parts, right)


@verify("the-default-gpt-has-33790464-parameters")
def gpt_default_count() -> Evidence:
    return all_of(
        same(
            "tied and untied",
            [count("decoder_lm", tied=t, **GPT_DEFAULT) for t in (True, False)],
            [33_790_464, 50_174_464],
        ),
        same("a layer", count("decoder_lm", under="layers.0", **GPT_DEFAULT), 2_900_992),
    )


@verify("sharing-the-head-saves-vocabulary-times-width")
def shared_head() -> Evidence:
    saved = [count("decoder_lm", tied=False, **c) - count("decoder_lm", **c) for c in (GPT_DEMO, GPT_DEFAULT)]
    return same("demo and default", saved, [1000 * 256, 32_000 * 512])


@verify("gpt-2-has-none-of-the-llama-parts")
def gpt_2_count() -> Evidence:
    d, layers, vocab, length = 768, 12, 50_257, 1024
    layer = count("encoder_layer", d_model=d, n_heads=12, d_ff=4 * d)
    norm = count("layer_norm", d_model=d)
    gpt_2 = vocab * d + count("learned_positions", d_model=d, max_len=length) + layers * layer + norm
    llama_like = count(
        "decoder_lm", vocab=vocab, d_model=d, n_heads=12, n_kv_heads=4, n_layers=layers, d_ff=2048, tied=True
    )
    llama_2_7b = count(
        "decoder_lm", vocab=32_000, d_model=4096, n_heads=32, n_kv_heads=32, n_layers=32, d_ff=11_008, tied=False
    )
    right = all_of(
        same("LayerNorm, two-matrix FFN, learned positions and full attention give GPT-2 small", gpt_2, 124_439_808),
        same("full multi-head attention gives LLaMA-2 7B", llama_2_7b, 6_738_415_616),
    )
    return erratum("RMSNorm, SwiGLU, RoPE and grouped queries give GPT-2 small", llama_like, 124_439_808, right)


# --- embeddings, norms, experts -------------------------------------------------------------------


@verify("a-layer-of-3-by-4-has-12-connections")
def connections() -> Evidence:
    return all_of(
        same("3 inputs fully connected with 4 nodes", linear(3, 4, bias=False), 12),
        same("a 3-4-2 network", count("mlp", sizes=(3, 4, 2)), 3 * 4 + 4 + 4 * 2 + 2),
    )


@verify("an-embedding-table-of-10000-by-300-has-3-million-numbers")
def embedding_table() -> Evidence:
    table = ROLES["embedding"].params({"vocab": 10_000, "d_model": 300})["weight"]
    return all_of(
        same("V rows, D columns", table, (10_000, 300)),
        same("[1 x V] times [V x D]", (1, table[1]), (np.zeros((1, table[0])) @ np.zeros(table)).shape),
        same("numbers", count("embedding", vocab=10_000, d_model=300), 3_000_000),
    )


@verify("v-times-d-counts-the-table-only")
def table_only() -> Evidence:
    v, d = 10_000, 300
    counts = [linear(v, d), count("embedding", vocab=v, d_model=d) + linear(d, v, bias=False)]
    right = all_of(
        same(
            "embedding or bias-free layer",
            [count("embedding", vocab=v, d_model=d), linear(v, d, bias=False)],
            [v * d] * 2,
        ),
        same("layer with bias; Word2Vec with its output layer", counts, [v * d + d, 2 * v * d]),
    )
    return erratum("V D for a fully connected layer and for the model", [v * d] * 2, counts, right)


@verify("the-output-layer-of-50000-words")
def output_layer() -> Evidence:
    return same(
        "512 to 50,000, without and with bias",
        [linear(512, 50_000, b) for b in (False, True)],
        [25_600_000, 25_650_000],
    )


@verify("rms-norm-has-half-the-parameters-of-layer-norm")
def rms_norm_count() -> Evidence:
    return same(
        "RMSNorm and LayerNorm at 512", [count(n, d_model=512) for n in ("rms_norm", "layer_norm")], [512, 1024]
    )


def mixture(experts: int, d_ff: int, d_model: int = 4096, n_layers: int = 32) -> tuple[int, int]:
    """Parameters of Mixtral's layout with so many experts: all, and of the experts alone."""
    shared = count(
        "decoder_lm", vocab=32_000, d_model=d_model, n_heads=32, n_kv_heads=8, n_layers=n_layers, d_ff=d_ff, tied=False
    )
    one = count("swiglu", d_model=d_model, d_ff=d_ff)
    in_experts = n_layers * experts * one
    return shared - n_layers * one + in_experts + n_layers * experts * d_model, in_experts


@verify("mixture-experts-multiply-the-parameters")
def experts_multiply() -> Evidence:
    total, in_experts = mixture(8, 14_336)
    cut, _ = mixture(8, 14_336 // 8)
    right = all_of(
        rounds_to("Mixtral 8x7B in billions", total / 1e9, 46.70, 2),
        rounds_to("share of its experts", in_experts / total, 0.966, 3),
    )
    return erratum("an FFN cut into 8 keeps the total", cut, total, right)


@verify("two-of-sixteen-experts-are-more-than-a-tenth")
def active_share() -> Evidence:
    total, in_experts = mixture(8, 14_336)
    active = total - in_experts * 6 / 8
    least = [2 / 8, 2 / 16]
    right = all_of(
        close("Mixtral's active share", active / total, 0.276, 5e-4, "given to 3 digits"),
        true("a tenth needs at least 20 equal experts", 2 / 20 <= 0.1 < 2 / 19, got=(2 / 20, 2 / 19)),
    )
    return erratum("10 of 100 billion active with 8 or 16 experts", [0.1, 0.1], least, right, by=0.02)
