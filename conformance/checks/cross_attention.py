"""Checks of cross-attention: queries of one sequence, keys and values of another (document 000 section 2.12)."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.multi_head import ROLE, drawn, without_output_projection
from conformance.checks.self_attention import layer_bound
from conformance.checks.subjects import POISON
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, note, refused
from conformance.protocol import Array, Arrays
from conformance.reference import multi_head as f


def _crossed(impl: Any, draw: Draw) -> tuple[Any, Arrays, int, Array, Array]:
    """A loaded layer, a target of another length than the source."""
    subject, p, heads, target, _ = drawn(impl, draw)
    return subject, p, heads, target, draw.normal("source", (len(target), draw.int("Ts", 1, 8, 7), target.shape[-1]))


@check("cross-attention-follows-the-query-length", roles=(ROLE,))
def cross_attention_formula(impl: Any, draw: Draw) -> Evidence:
    """Queries of one sequence, keys and values of another and longer one: the output has the queries' length."""
    subject, p, heads, target, source = _crossed(impl, draw)
    expected, _ = f.multi_head_attention(p, target, source, source, heads)
    got = subject(query=target, key=source, value=source)["out"]
    return close("cross-attention", got, expected, layer_bound(subject, p, target, source, source))


@check("cross-attention-splits-into-heads", roles=(ROLE,))
def cross_attention_splits(impl: Any, draw: Draw) -> Evidence:
    """Cross-attention splits into heads as self-attention does, each scaled by sqrt(d_head): read before W_O."""
    subject, p, heads, target, source = _crossed(impl, draw)
    p = without_output_projection(p)
    subject.load(p)
    outs, _ = f.heads(p, target, source, source, heads)
    got = np.asarray(subject(query=target, key=source, value=source)["out"])
    got = got.reshape(*target.shape[:2], heads, -1).swapaxes(1, 2)
    return close("output before W_O, by head", got, outs, layer_bound(subject, p, target, source, source))


@check("cross-attention-queries-come-from-the-target", roles=(ROLE,))
def cross_attention_sources(impl: Any, draw: Draw) -> Evidence:
    """With W_Q = 0 every target word gets the mean of the source's values, whatever the target holds."""
    subject, p, _, target, source = _crossed(impl, draw)
    p = {**p, "q_proj.weight": 0 * p["q_proj.weight"], "q_proj.bias": 0 * p["q_proj.bias"]}
    subject.load(p)
    got = subject(query=target, key=source, value=source)["out"]
    mean = f.project(p, "out_proj", f.project(p, "v_proj", source).mean(1, keepdims=True))
    bound = layer_bound(subject, p, target, source, source)
    return close("mean of the source's values", got, np.broadcast_to(mean, target.shape), bound)


@check("keys-and-values-are-projections-of-the-source", roles=(ROLE,))
def keys_and_values_are_projected(impl: Any, draw: Draw) -> Evidence:
    """K = memory W_K and V = memory W_V, not memory itself: W_V = 0 leaves only the biases, W_K = 0 the mean."""
    subject, p, _, target, source = _crossed(impl, draw)
    bound = layer_bound(subject, p, target, source, source)
    subject.load({**p, "v_proj.weight": 0 * p["v_proj.weight"]})
    no_values = subject(query=target, key=source, value=source)["out"]
    subject.load({**p, "k_proj.weight": 0 * p["k_proj.weight"]})
    no_keys = subject(query=target, key=source, value=source)["out"]
    constant = p["v_proj.bias"] @ p["out_proj.weight"].T + p["out_proj.bias"]
    mean = f.project(p, "out_proj", f.project(p, "v_proj", source).mean(1, keepdims=True))
    return all_of(
        close("W_V = 0", no_values, np.broadcast_to(constant, target.shape), bound),
        close("W_K = 0", no_keys, np.broadcast_to(mean, target.shape), bound),
    )


@check("query-key-and-value-may-be-three-tensors", roles=(ROLE,))
def three_tensors(impl: Any, draw: Draw) -> Evidence:
    """Query, key and value inputs may be three different tensors, each with its own projection."""
    subject, p, heads, query, key = _crossed(impl, draw)
    value = draw.normal("value", key.shape)
    expected, _ = f.multi_head_attention(p, query, key, value, heads)
    bound = layer_bound(subject, p, query, key, value)
    return close("three inputs", subject(query=query, key=key, value=value)["out"], expected, bound)


@check("cross-attention-sees-the-whole-source", roles=(ROLE,))
def cross_attention_sees_everything(impl: Any, draw: Draw) -> Evidence:
    """Cross-attention is not causal: the first target word sees the last source word."""
    subject, p, _, target, source = _crossed(impl, draw)
    order = draw.rng("order").permutation(source.shape[1])
    draw.bites((order != np.arange(len(order))).any(), "some source word moved")
    moved = source[:, order]
    got = subject(query=target, key=moved, value=moved)["out"]
    expected = subject(query=target, key=source, value=source)["out"]
    return close("source in another order", got, expected, layer_bound(subject, p, target, source, source))


@check("keys-and-values-must-share-their-length", roles=(ROLE,), examples=1)
def keys_and_values_share_length(impl: Any, draw: Draw) -> Evidence:
    """Seven keys with six values are refused; that torch's own function takes them is only noted."""
    subject = impl.build(ROLE, {"d_model": 12, "n_heads": 3})
    x = draw.normal("x", (2, 7, 12))
    evidence = refused("7 keys, 6 values", lambda: subject(query=x[:, :5], key=x, value=x[:, :6]))
    if not evidence.ok and subject.attributes.get("fused"):
        return note("F.scaled_dot_product_attention takes keys and values of unequal length", "7 keys, 6 values")
    return evidence


@check("source-padding-is-masked-in-cross-attention", roles=(ROLE,))
def source_padding_is_masked(impl: Any, draw: Draw) -> Evidence:
    """Cross-attention needs the source's padding mask: with it, padding in the source changes nothing."""
    subject, p, _, target, source = _crossed(impl, draw)
    b, ts = source.shape[:2]
    lengths = 1 + (np.arange(b) + draw.int("first length", 0, ts - 1, 3)) % ts
    real = np.arange(ts) < lengths[:, None]
    draw.bites(not real.all(), "some source word is padding")
    poisoned = np.where(real[..., None], source, POISON)
    mask = np.broadcast_to(real[:, None, None, :], (b, 1, target.shape[1], ts))
    got = subject(query=target, key=poisoned, value=poisoned, mask=mask)["out"]
    alone = [
        subject(query=target[i : i + 1], key=source[i : i + 1, :n], value=source[i : i + 1, :n])["out"]
        for i, n in enumerate(lengths)
    ]
    return close("unpadded source", got, np.concatenate(alone), layer_bound(subject, p, target, source, source))
