"""Single-head, multi-head and grouped-query attention (document 000 sections 2.3.8 and 2.4.4; 002 GPT; Vaswani 3.2.2).

Parameters are a dict of torch-layout arrays: ``q_proj.weight`` is ``(out, in)``; a missing bias is none.
The formulas are written head by head, as the documents state them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from conformance.reference.attention import Array, attention

Params = Mapping[str, Array]


def project(p: Params, name: str, x: Array) -> Array:
    """x W^T + b with the parameters ``name.weight`` and ``name.bias``."""
    y = x @ p[f"{name}.weight"].T
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def self_attention(p: Params, x: Array, mask: Array | None = None) -> tuple[Array, Array]:
    """softmax(X W_Q (X W_K)^T / sqrt(d_k)) X W_V and the weights; x ``(B, T, d_model)``, mask ``(B, T, T)``."""
    return attention(project(p, "q_proj", x), project(p, "k_proj", x), project(p, "v_proj", x), mask)


def heads(
    p: Params,
    query: Array,
    key: Array,
    value: Array,
    n_heads: int,
    n_kv_heads: int | None = None,
    mask: Array | None = None,
) -> tuple[Array, Array]:
    """head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), stacked as ``(B, H, Tq, d_head)``, and the weights.

    Head i owns columns ``i*d_head .. (i+1)*d_head`` of the query projection; with fewer key/value heads,
    ``H / n_kv_heads`` consecutive query heads share one. mask broadcasts to ``(B, H, Tq, Tk)``.
    """
    group = n_heads // (n_kv_heads or n_heads)
    q, k, v = project(p, "q_proj", query), project(p, "k_proj", key), project(p, "v_proj", value)
    d_head = q.shape[-1] // n_heads
    if mask is not None:
        mask = np.broadcast_to(mask, (q.shape[0], n_heads, q.shape[1], k.shape[1]))
    outs, weights = [], []
    for i in range(n_heads):
        own = slice(i * d_head, (i + 1) * d_head)
        shared = slice(i // group * d_head, (i // group + 1) * d_head)
        out, weight = attention(q[..., own], k[..., shared], v[..., shared], None if mask is None else mask[:, i])
        outs.append(out)
        weights.append(weight)
    return np.stack(outs, 1), np.stack(weights, 1)


def multi_head_attention(
    p: Params,
    query: Array,
    key: Array,
    value: Array,
    n_heads: int,
    n_kv_heads: int | None = None,
    mask: Array | None = None,
) -> tuple[Array, Array]:
    """Concat(head_1, ..., head_h) W^O, ``(B, Tq, d_model)``, and the weights ``(B, H, Tq, Tk)``."""
    outs, weights = heads(p, query, key, value, n_heads, n_kv_heads, mask)
    return project(p, "out_proj", np.concatenate(list(np.moveaxis(outs, 1, 0)), -1)), weights
