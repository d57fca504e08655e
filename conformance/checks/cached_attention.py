"""Checks of attention with a key/value cache (document 000 section 2.14.5; 002 KV cache listing)."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.self_attention import layer_bound
from conformance.checks.subjects import loaded
from conformance.draw import Draw
from conformance.evidence import Evidence, close
from conformance.protocol import Array, Arrays, Subject
from conformance.reference.attention import causal_mask
from conformance.reference.multi_head import multi_head_attention

ROLE = "cached_attention"


def against_causal(impl: Any, draw: Draw, lengths: tuple[int, ...], rows: slice, what: str) -> Evidence:
    """Rows of the outputs of cached calls of the given lengths against causal attention over the whole sequence."""
    heads, d_head, b = draw.int("heads", 1, 4, 3), draw.int("d_head", 1, 5, 4), draw.int("B", 1, 3, 2)
    subject, p = loaded(impl, draw, ROLE, d_model=heads * d_head, n_heads=heads)
    x: Array = draw.normal("x", (b, sum(lengths), heads * d_head))
    expected = causal(subject, p, x, heads)
    got = subject(x=x, chunks=lengths)["out"]
    return close(what, got[:, rows], expected[:, rows], layer_bound(subject, p, x, x, x))


def causal(subject: Subject, params: Arrays, x: Array, heads: int) -> Array:
    """Causal attention over the whole sequence: by the formula, or, of attention that turns queries and keys by their
    positions inside, the last row of a call without a cache over each prefix, which sees the prefix under any mask."""
    if subject.attributes.get("positions") == "inside":
        prefixes = (x[:, : t + 1] for t in range(x.shape[1]))
        return np.concatenate([subject(x=y, chunks=(y.shape[1],))["out"][:, -1:] for y in prefixes], axis=1)
    return multi_head_attention(params, x, x, x, heads, mask=causal_mask(x.shape[1]))[0]


@check("cached-steps-equal-causal-attention", roles=(ROLE,))
def steps(impl: Any, draw: Draw) -> Evidence:
    """Fed token by token, cached attention gives what causal attention gives over the whole sequence."""
    t = draw.int("T", 1, 7, 6)
    return against_causal(impl, draw, (1,) * t, slice(None), "the outputs of single steps")


@check("a-prefill-needs-a-causal-mask", roles=(ROLE,))
def prefill(impl: Any, draw: Draw) -> Evidence:
    """A prompt given in one call gives the rows of causal attention: none of them sees its future."""
    t = draw.int("prompt", 2, 7, 5)
    draw.bites(t > 1, "the prompt has several tokens")
    return against_causal(impl, draw, (t,), slice(None), "the outputs of the prompt")


@check("an-appended-chunk-needs-a-causal-mask", roles=(ROLE,))
def chunk(impl: Any, draw: Draw) -> Evidence:
    """Several tokens appended to a cache in one call see the cache and their own past, as if they came one by one."""
    prompt, t = draw.int("prompt", 1, 5, 3), draw.int("chunk", 2, 5, 4)
    return against_causal(impl, draw, (*(1,) * prompt, t), slice(prompt, None), "the outputs of the chunk")
