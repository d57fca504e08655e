"""The canonical parameters of each role with weights: configuration -> {name: shape}.

Names are those of the modules that the documents list; a Linear weight is ``(out, in)``. A configuration is complete
(`Role.settings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

Config = Mapping[str, Any]
Shapes = dict[str, tuple[int, ...]]


def linear(prefix: str, n_out: int, n_in: int, bias: bool) -> Shapes:
    shapes: Shapes = {f"{prefix}.weight": (n_out, n_in)}
    if bias:
        shapes[f"{prefix}.bias"] = (n_out,)
    return shapes


def under(prefix: str, shapes: Shapes) -> Shapes:
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def attention(c: Config) -> Shapes:
    d, heads = c["d_model"], c["n_heads"]
    d_kv = d // heads * c.get("n_kv_heads", heads)
    bias = c["bias"]
    return {
        **linear("q_proj", d, d, bias),
        **linear("k_proj", d_kv, d, bias),
        **linear("v_proj", d_kv, d, bias),
        **linear("out_proj", d, d, bias),
    }


def feed_forward(c: Config) -> Shapes:
    return {
        **linear("linear1", c["d_ff"], c["d_model"], c["bias"]),
        **linear("linear2", c["d_model"], c["d_ff"], c["bias"]),
    }


def swiglu(c: Config) -> Shapes:
    d, d_ff = c["d_model"], c["d_ff"]
    return {
        **linear("gate_proj", d_ff, d, False),
        **linear("up_proj", d_ff, d, False),
        **linear("down_proj", d, d_ff, False),
    }


def norm(d: int) -> Shapes:
    return {"weight": (d,), "bias": (d,)}


def encoder_layer(c: Config) -> Shapes:
    c = {"bias": True, **c}
    return {
        **under("self_attn", attention(c)),
        **under("feed_forward", feed_forward(c)),
        **under("norm1", norm(c["d_model"])),
        **under("norm2", norm(c["d_model"])),
    }


def decoder_layer(c: Config) -> Shapes:
    c = {"bias": True, **c}
    return {
        **under("self_attn", attention(c)),
        **under("cross_attn", attention(c)),
        **under("feed_forward", feed_forward(c)),
        **under("norm1", norm(c["d_model"])),
        **under("norm2", norm(c["d_model"])),
        **under("norm3", norm(c["d_model"])),
    }


def encoder(c: Config) -> Shapes:
    shapes: Shapes = {}
    for i in range(c["n_layers"]):
        shapes.update(under(f"layers.{i}", encoder_layer(c)))
    return {**shapes, **under("norm", norm(c["d_model"]))} if c["final_norm"] else shapes


def decoder(c: Config) -> Shapes:
    shapes: Shapes = {}
    for i in range(c["n_layers"]):
        shapes.update(under(f"layers.{i}", decoder_layer(c)))
    return {**shapes, **under("norm", norm(c["d_model"]))} if c["final_norm"] else shapes


def encoder_decoder(c: Config) -> Shapes:
    c = {"final_norm": True, "norm_first": False, **c}
    d = c["d_model"]
    return {
        "src_embedding.weight": (c["src_vocab"], d),
        "tgt_embedding.weight": (c["tgt_vocab"], d),
        **under("encoder", encoder(c)),
        **under("decoder", decoder(c)),
        **linear("output_proj", c["tgt_vocab"], d, True),
    }


def decoder_lm(c: Config) -> Shapes:
    """The documents' decoder-only model: RMSNorm, grouped-query attention, SwiGLU, tied head, no biases."""
    d = c["d_model"]
    shapes: Shapes = {"token_embedding.weight": (c["vocab"], d)}
    for i in range(c["n_layers"]):
        shapes.update(
            {
                f"layers.{i}.attn_norm.weight": (d,),
                **under(f"layers.{i}.attn", attention({**c, "bias": False})),
                f"layers.{i}.ffn_norm.weight": (d,),
                **under(f"layers.{i}.ffn", swiglu(c)),
            }
        )
    shapes["norm.weight"] = (d,)
    if not c["tied"]:
        shapes["lm_head.weight"] = (c["vocab"], d)
    return shapes


def mlp(c: Config) -> Shapes:
    shapes: Shapes = {}
    sizes = c["sizes"]
    for i, (n_in, n_out) in enumerate(pairwise(sizes)):
        shapes.update(linear(f"layers.{i}", n_out, n_in, c["bias"]))
    return shapes


def rnn(c: Config) -> Shapes:
    h, d = c["d_hidden"], c["d_input"]
    return {"weight_ih": (h, d), "weight_hh": (h, h), "bias": (h,)}


def mixture_of_experts(c: Config) -> Shapes:
    """A router without bias over the tokens, and SwiGLU experts side by side."""
    shapes: Shapes = {"router.weight": (c["n_experts"], c["d_model"])}
    for i in range(c["n_experts"]):
        shapes.update(under(f"experts.{i}", swiglu(c)))
    return shapes
