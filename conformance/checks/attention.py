"""Checks of attention, masks, multi-head and grouped-query attention."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, close, tolerance
from conformance.reference import attention as f


@check("attention-is-scaled-by-sqrt-d-k", roles=("attention",))
def attention_formula(impl: Any, draw: Draw) -> Evidence:
    """out = softmax(Q K^T / sqrt(d_k)) V, with B, H, Tq, Tk, d_k and d_v all different."""
    b, h = draw.int("B", 1, 3, 2), draw.int("H", 1, 4, 3)
    t_query, t_key = draw.int("Tq", 1, 6, 4), draw.int("Tk", 1, 7, 5)
    d_k, d_v = draw.int("d_k", 1, 8, 6), draw.int("d_v", 1, 9, 7)
    query, key = draw.normal("query", (b, h, t_query, d_k)), draw.normal("key", (b, h, t_key, d_k))
    value = draw.normal("value", (b, h, t_key, d_v))
    subject = impl.build("attention", {})
    got = subject(query=query, key=key, value=value)["out"]
    expected, _ = f.attention(query, key, value)
    bound = tolerance(subject.dtype, length=d_k + t_key, scale=float(abs(value).max()))
    return close("softmax(Q K^T / sqrt(d_k)) V", got, expected, bound)
