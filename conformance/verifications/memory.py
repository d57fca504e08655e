"""Memory figures: attention matrices, activations kept for the backward pass, key-value caches, blockwise attention."""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np

from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.reference.attention import attention
from conformance.verifications.base import erratum, rounds_to, verify

Array = np.ndarray
FLOAT32, FLOAT16 = np.dtype(np.float32).itemsize, np.dtype(np.float16).itemsize
MIB, GIB = 2**20, 2**30


def matrix_bytes(n: Any, heads: int = 1, itemsize: int = FLOAT32) -> Any:
    """Bytes of the attention weights ``(heads, n, n)``; n an integer or an integer array."""
    return heads * n * n * itemsize


def attention_saved(n: int, d: int, heads: int) -> int:
    """float32 bytes that the backward pass of attention needs: X, Q, K, V and the heads' output, and the weights."""
    return (5 * n * d + heads * n * n) * FLOAT32


def recurrent_saved(n: int, d: int) -> int:
    """float32 bytes that the backward pass of an RNN needs: inputs and states."""
    return 2 * n * d * FLOAT32


def cache_bytes(layers: int, kv_heads: int, d_head: int, length: int, itemsize: int) -> int:
    """Bytes of the cached keys and values of one sequence."""
    return 2 * layers * kv_heads * d_head * length * itemsize


LENGTHS = np.array([512, 2048, 8192, 32_768])


@verify("float32-attention-matrix-in-mib")
def matrix_sizes() -> Evidence:
    _, weights = attention(*np.zeros((3, 16, 2)))
    return all_of(
        same("numbers of a matrix of 16 tokens", weights.size * FLOAT32, matrix_bytes(16)),
        same("512, 2048, 8192 tokens in MiB", matrix_bytes(LENGTHS[:3]) / MIB, [1, 16, 256]),
        same("32768 tokens in GiB", matrix_bytes(LENGTHS[3]) / GIB, 4),
    )


@verify("every-head-has-its-own-matrix")
def a_matrix_a_head() -> Evidence:
    _, weights = attention(*np.random.default_rng(0).standard_normal((3, 4, 8, 2)))
    return same("bytes of 4 heads over bytes of one", weights.size * FLOAT32 / matrix_bytes(8), 4)


@verify("32-heads-and-12-layers-are-384-matrices")
def heads_and_layers() -> Evidence:
    total = 32 * 12 * matrix_bytes(LENGTHS)
    return all_of(
        same("matrices", total[0] / matrix_bytes(LENGTHS[0]), 384),
        same("in GiB for 512, 2048, 8192, 32768 tokens", total / GIB, [0.375, 6, 96, 1536]),
    )


@verify("inference-holds-one-layer-of-matrices-at-a-time")
def one_layer_at_a_time() -> Evidence:
    rng = np.random.default_rng(1)
    x, live, peak = rng.standard_normal((2, 8, 4)), [], 0
    for _ in range(12):
        out, weights = attention(x, x, x)
        live = [weights]  # the previous layer's weights are freed
        peak = max(peak, sum(w.size for w in live))
        x = x + out
    right = same("peak of 12 layers in matrices of one head", peak / 8**2, 2)
    return erratum("matrices of 2 heads and 12 layers in inference", 2 * 12, peak / 8**2, right)


@verify("attention-memory-grows-fourfold-a-doubling")
def fourfold() -> Evidence:
    n = 2 ** np.arange(9, 14)
    return all_of(
        same("bytes of twice the length", matrix_bytes(2 * n) / matrix_bytes(n), np.full(5, 4.0)),
        same("slope in log2", np.diff(np.log2(matrix_bytes(n))), np.full(4, 2.0)),
    )


@verify("attention-holds-n-squared-and-n-d")
def total_space() -> Evidence:
    n = np.array([2**k for k in (9, 11, 13)])
    forward = np.array([attention_saved(int(k), 64, 1) for k in n])
    a, b = np.linalg.lstsq(np.stack([n * n, n * 64], 1).astype(float), forward.astype(float), rcond=None)[0]
    return close("coefficients of n^2 and n d in float32 bytes", [a, b], [4, 20], 1e-6, "least squares")


@verify("training-holds-more-than-the-matrix")
def training_holds_more() -> Evidence:
    n = np.array([256, 512, 1024])
    kept = np.array([(4 * k * 64 + k * k) * FLOAT32 for k in n]) / matrix_bytes(n)
    with_gradient = kept + 1
    return all_of(
        same("X, Q, K, V and the weights over the bare matrix, d = 64", kept, [2.0, 1.5, 1.25]),
        true(
            "with the gradient of the scores more than twice",
            with_gradient.min() > 2,
            got=with_gradient,
            expected="> 2",
        ),
    )


@verify("an-rnn-stores-less-than-attention")
def rnn_stores_less() -> Evidence:
    n, d, heads = np.array([1024, 2048]), 64, 4
    exponents = [
        log2(f(2048) / f(1024)) for f in (lambda k: attention_saved(k, d, heads), lambda k: recurrent_saved(k, d))
    ]
    long = matrix_bytes(4096, 8) / MIB, 4096 * 512 * FLOAT32 / MIB
    right = all_of(
        true("attention's exponent", exponents[0] > 1.8, got=exponents[0], expected="> 1.8"),
        close("the RNN's exponent", exponents[1], 1, 1e-9),
        same("n = 4096: weights of 8 heads and RNN states of width 512, in MiB", long, (512, 8)),
    )
    stored = [attention_saved(int(k), d, heads) < recurrent_saved(int(k), d) for k in n]
    return erratum("a Transformer stores less than an RNN", [True, True], stored, right)


@verify("weights-take-h-n-squared")
def weights_of_heads() -> Evidence:
    n, heads = 1024, 8
    right = all_of(
        same("numbers", matrix_bytes(n, heads) // FLOAT32, 8_388_608),
        same("MiB in float32", matrix_bytes(n, heads) / MIB, 32),
    )
    return erratum("n^2 numbers", n * n, matrix_bytes(n, heads) // FLOAT32, right)


@verify("no-array-of-n-n-d-exists")
def no_cubic_array() -> Evidence:
    n, heads = 1024, 4
    saved = np.array([attention_saved(n, d, heads) for d in (64, 256)])
    right = all_of(
        true(
            "four times the width takes less than twice the memory",
            saved[1] / saved[0] < 2,
            got=saved[1] / saved[0],
            expected="< 2",
        ),
        same("n^2 d at n = 1024, d = 512 over the weights of 8 heads", n * n * 512 / (8 * n * n), 64),
    )
    return erratum("O(n^2 d): four times the width", 4, saved[1] / saved[0], right, by=1)


@verify("attention-pays-n-squared-for-its-parallelism")
def pays_n_squared() -> Evidence:
    total = attention_saved(2048, 64, 4) / attention_saved(1024, 64, 4)
    return all_of(
        same("weights of twice the length", matrix_bytes(2048, 4) / matrix_bytes(1024, 4), 4),
        true("the whole approaches it", 3.5 < total < 4, got=total, expected="between 3.5 and 4"),
    )


# --- caches and tables ----------------------------------------------------------------------------


@verify("grouped-queries-shrink-the-cache")
def grouped_cache() -> Evidence:
    demo = [cache_bytes(4, kv, 32, 512, FLOAT32) for kv in (8, 4)]
    default = [cache_bytes(6, kv, 64, 2048, FLOAT16) for kv in (8, 4)]
    return all_of(
        same("demo model, 512 tokens, float32", demo, [4_194_304, 2_097_152]),
        same("default model, 2048 tokens, float16", default, [25_165_824, 12_582_912]),
        same("factor h / h_kv", [demo[0] / demo[1], default[0] / default[1]], [8 / 4, 8 / 4]),
    )


@verify("the-cache-costs-two-l-n-d")
def cache_price() -> Evidence:
    base = cache_bytes(12, 8, 64, 4096, FLOAT32)
    return all_of(
        same("12 layers, 4096 tokens, d = 512, float32", base, 192 * MIB),
        same("twice the length", cache_bytes(12, 8, 64, 8192, FLOAT32) / base, 2),
    )


@verify("the-precomputed-mask-is-quadratic-in-max-length")
def mask_buffer() -> Evidence:
    mask = np.tri(512, dtype=np.float32)[None, None]
    return all_of(
        same("(1, 1, 512, 512) in float32", mask.nbytes, 1_048_576),
        same("at the default length of 2048", mask.nbytes * (2048 // 512) ** 2, 16_777_216),
    )


@verify("benchmark-scores-at-4096-tokens-are-512-mib")
def benchmark_scores() -> Evidence:
    return same(
        "8 heads, 256, 1024 and 4096 tokens, MiB", [matrix_bytes(n, 8) / MIB for n in (256, 1024, 4096)], [2, 32, 512]
    )


@verify("4k-is-no-limit-of-standard-attention")
def length_limit() -> Evidence:
    largest = int((80e9 / (2 * 8 * FLOAT16)) ** 0.5)
    right = all_of(
        same(
            "scores of 8 heads in float16: 4096 and 131072 tokens",
            [matrix_bytes(n, 8, FLOAT16) / MIB for n in (4096, 131_072)],
            [256, 2**18],
        ),
        close("scores and weights fill 80 GB at", largest, 50_000, 1),
    )
    return erratum("the longest sequence in 80 GB", 4096, largest, right, by=40_000)


# --- fixed-size context ---------------------------------------------------------------------------


@verify("a-fixed-vector-loses-only-what-exceeds-its-bits")
def fixed_vector() -> Evidence:
    held, a_word = 512 * 32, log2(10_000)
    shift = np.eye(12, k=-4)
    words = np.random.default_rng(2).standard_normal((5, 4))
    state = np.zeros(12)
    for word in words:
        state = shift @ state + np.r_[word, np.zeros(8)]
    right = all_of(
        rounds_to("bits of 100 words out of 10,000", 100 * a_word, 1328.8, 1),
        same("words from which loss is forced", int(held / a_word) + 1, 1234),
        same("a shift register of 12 numbers holds the last three words", state.reshape(3, 4), words[:1:-1]),
    )
    return erratum("100 words do not fit into 512 float32 numbers", True, 100 * a_word > held, right)


# --- blockwise attention --------------------------------------------------------------------------


def blockwise(
    query: Array, key: Array, value: Array, rows: int, columns: int, causal: bool = False
) -> tuple[Array, int]:
    """Attention by online softmax over blocks, and the largest number of scores held at once.

    A running maximum m, sum s and unnormalised output o of each row are rescaled by exp(m_old - m_new) whenever a
    block raises the maximum (Milakov and Gimelshein 2018; Dao et al. 2022). query, key ``(n, d)``, value ``(n, d_v)``.
    """
    n, d = query.shape
    out, largest = np.empty((n, value.shape[1]), query.dtype), 0
    for i in range(0, n, rows):
        block = query[i : i + rows] / np.sqrt(d, dtype=query.dtype)
        m = np.full((len(block), 1), np.finfo(query.dtype).min)
        s, o = np.zeros_like(m), np.zeros((len(block), value.shape[1]), query.dtype)
        for j in range(0, n, columns):
            scores = block @ key[j : j + columns].T
            largest = max(largest, scores.size)
            visible = np.ones(scores.shape, dtype=bool)
            if causal:
                visible = np.add.outer(np.arange(len(block)) + i, -np.arange(scores.shape[1]) - j) >= 0
            highest = np.maximum(m, np.where(visible, scores, m).max(-1, keepdims=True))
            weights = np.where(visible, np.exp(np.where(visible, scores, highest) - highest), 0)
            s = s * np.exp(m - highest) + weights.sum(-1, keepdims=True)
            o = o * np.exp(m - highest) + weights @ value[j : j + columns]
            m = highest
        out[i : i + rows] = o / s
    return out, largest


@verify("blockwise-attention-is-exact")
def blockwise_exact() -> Evidence:
    q, k, v = np.random.default_rng(3).standard_normal((3, 25, 8))
    exact, _ = attention(q, k, v)
    causal, _ = attention(q, k, v, np.tri(25, dtype=bool))
    q32, k32, v32 = (a.astype(np.float32) for a in (q, k, v))
    bound = tolerance(np.float64, 25, float(np.abs(v).max()))
    return all_of(
        *(
            close(f"blocks of {r} x {c}", blockwise(q, k, v, r, c)[0], exact, bound)
            for r, c in ((1, 1), (8, 12), (25, 25))
        ),
        close("causal", blockwise(q, k, v, 8, 12, causal=True)[0], causal, bound),
        close("float32", blockwise(q32, k32, v32, 8, 12)[0], exact, tolerance(np.float32, 25, float(np.abs(v).max()))),
    )


@verify("blockwise-attention-stores-no-n-by-n-matrix")
def blockwise_memory() -> Evidence:
    lengths = (32, 64)
    inputs = [np.random.default_rng(4).standard_normal((n, 4)) for n in lengths]
    held = [blockwise(x, x, x, 8, 12)[1] for x in inputs]
    whole = [attention(x, x, x)[1].size for x in inputs]
    return all_of(
        same("scores held at once do not grow with n", held, [8 * 12, 8 * 12]),
        same("standard attention's grow fourfold a doubling", whole[1] / whole[0], 4),
    )


@verify("standard-attention-writes-two-matrices")
def two_matrices() -> Evidence:
    lengths = np.array([512, 1024, 2048])
    matrices, output = 2 * matrix_bytes(lengths, 8), 8 * lengths * 64 * FLOAT32
    return rounds_to("scores, weights and output of 8 heads, MiB", (matrices + output) / MIB, [17, 66, 260], 0)
