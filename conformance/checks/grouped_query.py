"""Checks of grouped-query and multi-query attention (document 002 GPT: decoder-only; 003 Modern models)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.masks import interior_padding
from conformance.checks.self_attention import layer_bound
from conformance.checks.subjects import POISON, loaded, offered, usual_mask
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, refused, same
from conformance.protocol import Array, Arrays
from conformance.reference import multi_head as f

GROUPED = "grouped_query_attention"


def attend(subject: Any, x: Array, mask: Array | None = None) -> Array:
    return np.asarray((subject(x=x) if mask is None else subject(x=x, mask=mask))["out"], np.float64)


def _grouped(impl: Any, draw: Draw) -> tuple[Any, Arrays, int, int, Array, Array | None]:
    """A loaded layer with 1 < kv heads < heads in the pinned example, an input, and its `usual_mask`."""
    kv, group = draw.int("kv heads", 1, 3, 3), draw.int("group", 1, 3, 2)
    heads, d_head = kv * group, draw.int("half d_head", 1, 2, 2) * 2
    sizes = {"d_model": heads * d_head, "n_heads": heads, "n_kv_heads": kv}
    biases = (True, False) if draw.bool("bias", pin=False) else (False, True)
    subject, p = loaded(impl, draw, GROUPED, **offered(impl, GROUPED, sizes, bias=biases))
    x = draw.normal("x", (draw.int("B", 1, 3, 2), draw.int("T", 1, 6, 5), heads * d_head))
    return subject, p, heads, kv, x, usual_mask(partial(attend, subject), x)


@check("grouped-query-attention-formula", roles=(GROUPED,))
def grouped_formula(impl: Any, draw: Draw) -> Evidence:
    """Query head i uses key/value head i // (h / h_kv): each K/V head serves consecutive query heads."""
    subject, p, heads, kv, x, mask = _grouped(impl, draw)
    expected, _ = f.multi_head_attention(p, x, x, x, heads, kv, mask)
    return close("grouped-query attention", attend(subject, x, mask), expected, layer_bound(subject, p, x, x, x))


@check("grouped-query-attention-is-multi-head-with-repeated-keys", roles=(GROUPED,))
def grouped_equals_repeated(impl: Any, draw: Draw) -> Evidence:
    """With each K/V head's weights repeated for its group, a layer with h_kv = h gives the same output."""
    subject, p, heads, kv, x, mask = _grouped(impl, draw)
    repeated = dict(p)
    for name in p:
        if name.startswith(("k_proj", "v_proj")):
            by_head = p[name].reshape(kv, -1, *p[name].shape[1:])
            repeated[name] = np.repeat(by_head, heads // kv, axis=0).reshape(-1, *p[name].shape[1:])
    draw.bites(kv < heads, "key/value heads are shared")
    config = {"d_model": x.shape[-1], "n_heads": heads, "n_kv_heads": heads, "bias": "q_proj.bias" in p}
    full = impl.build(GROUPED, config)
    full.load(repeated)
    bound = layer_bound(subject, p, x, x, x)
    return close("repeated K/V heads", attend(subject, x, mask), attend(full, x, mask), bound)


@check("a-key-head-serves-its-group-only", roles=(GROUPED,))
def key_head_serves_its_group(impl: Any, draw: Draw) -> Evidence:
    """Changing key/value head j changes the columns of its own consecutive query heads and no others."""
    kv, group, d_head = draw.int("kv heads", 2, 3, 2), draw.int("group", 2, 3, 3), 4
    heads, j = kv * group, draw.int("j", 0, kv - 1, 1)
    d = heads * d_head
    subject, p = loaded(impl, draw, GROUPED, d_model=d, n_heads=heads, n_kv_heads=kv)
    x = draw.normal("x", (2, 5, d))
    mask = usual_mask(partial(attend, subject), x)
    p = {**p, "out_proj.weight": np.eye(d)}
    other = {name: value.copy() for name, value in p.items()}
    for name in ("k_proj.weight", "v_proj.weight"):
        other[name][j * d_head : (j + 1) * d_head] += draw.normal(f"change {name}", (d_head, d))
    subject.load(p)
    before = attend(subject, x, mask)
    subject.load(other)
    moved = (abs(attend(subject, x, mask) - before) > layer_bound(subject, other, x, x, x)).any((0, 1))
    expected = np.arange(d) // (group * d_head) == j
    return same("columns that move", moved.reshape(heads, -1).any(-1), expected.reshape(heads, -1).any(-1))


@check("one-key-head-is-multi-query-attention", roles=(GROUPED,))
def one_key_head(impl: Any, draw: Draw) -> Evidence:
    """With one key/value head all query heads share it: K and V have the width of one head."""
    heads, d_head = draw.int("heads", 1, 4, 3), draw.int("half d_head", 1, 3, 2) * 2
    subject, p = loaded(impl, draw, GROUPED, d_model=heads * d_head, n_heads=heads, n_kv_heads=1)
    x = draw.normal("x", (2, 5, heads * d_head))
    mask = usual_mask(partial(attend, subject), x)
    expected, _ = f.multi_head_attention(p, x, x, x, heads, 1, mask)
    return all_of(
        same("shape of W_K", subject.params()["k_proj.weight"].shape, (d_head, heads * d_head)),
        close("multi-query attention", attend(subject, x, mask), expected, layer_bound(subject, p, x, x, x)),
    )


@check("key-heads-must-divide-the-heads", roles=(GROUPED,), examples=2)
def key_heads_must_divide(impl: Any, draw: Draw) -> Evidence:
    """A number of heads that is not a multiple of the key/value heads is refused."""
    heads, kv = draw.choice("heads, kv heads", ((8, 3), (4, 3), (6, 4)), (8, 3))

    def use(kv: int) -> None:
        subject = impl.build(GROUPED, {"d_model": 4 * heads, "n_heads": heads, "n_kv_heads": kv})
        x = np.ones((1, 5, 4 * heads))
        attend(subject, x, usual_mask(partial(attend, subject), x))

    use(heads // 2)  # what divides is accepted
    return refused(f"{heads} heads with {kv} key/value heads", partial(use, kv))


@check("grouped-query-attention-has-fewer-parameters", roles=(GROUPED,), examples=2)
def grouped_has_fewer_parameters(impl: Any, draw: Draw) -> Evidence:
    """Projections go to h d_head and h_kv d_head without bias: 2 d^2 (1 + h_kv / h) parameters."""
    d, heads = 32, 8
    kv = draw.choice("kv heads", (1, 2, 4, 8), 4)
    p = impl.build(GROUPED, {"d_model": d, "n_heads": heads, "n_kv_heads": kv}).params()
    return all_of(
        same("parameters", sum(v.size for v in p.values()), 2 * d * d + 2 * d * d * kv // heads),
        same("shape of W_V", p["v_proj.weight"].shape, (d * kv // heads, d)),
    )


@check("grouped-query-attention-obeys-its-mask", roles=(GROUPED,))
def grouped_obeys_its_mask(impl: Any, draw: Draw) -> Evidence:
    """Causal and padding masks reach every query head of every group."""
    subject, p, heads, kv, x, _ = _grouped(impl, draw)
    b, t = x.shape[:2]
    real = interior_padding(draw, b, t)
    mask = np.tri(t, dtype=bool) & real[:, None, None, :]
    poisoned = np.where(real[..., None], x, POISON)
    expected, _ = f.multi_head_attention(p, x, x, x, heads, kv, mask)
    got = attend(subject, poisoned, mask)
    return close("real words", got[real], expected[real], layer_bound(subject, p, x, x, x))
