"""Which role a class plays: proposed by its constructor, its call and its parts."""

from __future__ import annotations

import inspect
import re
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import Call, tensors_in
from conformance.adapters.inference.construct import Constructor
from conformance.adapters.inference.facts import Fact, NoRole, Unresolved
from conformance.adapters.inference.means import means_squares_only
from conformance.adapters.inference.parameters import attention_layouts, kernels, shares_key_heads
from conformance.adapters.inference.parts import PartOf
from conformance.adapters.inference.probes import SIZES, noise

MODELS = ("decoder_lm", "cached_decoder_lm", "encoder_decoder")
"""The roles of whole models, from token ids to logits."""

SUPPORTED = (
    "multi_head_attention",
    "grouped_query_attention",
    "cached_attention",
    "self_attention",
    "layer_norm",
    "rms_norm",
    "feed_forward",
    "swiglu",
    "sinusoidal_positions",
    "learned_positions",
    "embedding",
    "rope",
    "encoder_layer",
    "decoder_layer",
    *MODELS,
)


def is_norm(module: nn.Module) -> bool:
    """Whether it takes one input and gives it back normalised; one whose name says so may do it wrongly.

    Its parameters are one or two vectors. A PreNorm, which holds the sublayer too, is none, nor is an AddNorm of two
    inputs.
    """
    parameters = list(module.parameters())
    if len(parameters) > 2 or any(parameter.ndim > 1 for parameter in parameters):
        return False
    says = re.search(r"norm(ali[sz](ation|er))?$", type(module).__name__.lower())
    if says or not parameters:
        return bool(says)
    x = noise(2, 3, parameters[0].numel())
    try:
        with torch.no_grad():
            out, larger = module(x), module(4.0 * x)
    except Exception:  # it takes something else
        return False
    return isinstance(out, Tensor) and out.shape == x.shape and torch.allclose(out, larger, atol=1e-2)


def centres(norm: nn.Module) -> bool:
    """Whether a norm takes the mean out: LayerNorm does, RMSNorm does not."""
    x = noise(2, 3, next(norm.parameters()).numel())
    try:
        with torch.no_grad():
            return torch.allclose(norm(x + 1.0), norm(x), atol=1e-3)
    except Exception:  # it takes something else
        return False


def norms_in(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """The norms inside, by path, leaving out those inside another of them."""
    found: list[tuple[str, nn.Module]] = []
    for path, child in module.named_modules():
        if path and is_norm(child) and not any(path.startswith(f"{outer}.") for outer, _ in found):
            found.append((path, child))
    return found


def is_attention(module: nn.Module) -> bool:
    """By its name, or because its matrices are queries, keys, values and an output."""
    name = type(module).__name__.lower()
    return "attention" in name or "attn" in name or any(attention_layouts(module, SIZES))


def role_of(cls: type[nn.Module], constructor: Constructor | PartOf, call: Call, module: nn.Module) -> Fact:
    """The role as a Fact. Raises Unresolved when nothing fits."""
    matrices = [p for p in module.parameters() if p.ndim >= 2]
    norms = norms_in(module)
    name = cls.__name__
    options = set() if constructor.is_shared else constructor.known
    if "n_heads" in options and "n_kv_heads" in options and norms:
        raise Unresolved(
            f"{name} puts norms around grouped-query attention, and no role is such a layer: test its parts, or write "
            "a class with build(role, config)"
        )
    said = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).replace("_", " ").lower()
    if isinstance(module, nn.Embedding) and module.num_embeddings == SIZES["vocab"]:
        return Fact("role", "embedding", f"an nn.Embedding of {SIZES['vocab']} tokens")
    if re.search(r"rope|rotary|rotatory", name.lower()) and not matrices:  # an attention that rotates has some
        return Fact("role", "rope", "the class name")
    if re.search(r"\bposition(s|al)?\b|\bpos\b|\bpe\b|\bsinusoid(s|al)?\b", said) and "n_heads" not in options:
        role = "learned_positions" if matrices else "sinusoidal_positions"
        return Fact("role", role, f"the class name, {'a table of' if matrices else 'no'} parameters")
    attentions = top_attentions(module)
    inside = tuple(f"{path}." for path, _ in attentions)
    if attentions and norms and len([k for k in kernels(module, split=True) if not k.pattern.startswith(inside)]) > 1:
        role = "decoder_layer" if call.form == "context" or len(attentions) > 1 else "encoder_layer"
        return Fact("role", role, f"attention, {len(norms)} norms; forward takes {call.form}")
    if is_attention(module) or "n_heads" in options or any(attention_layouts(module, SIZES, output=False)):
        distance = _biased_by_distance(cls, module)
        if distance:
            raise Unresolved(
                f"{name} has {distance}: scores that depend on the distance of words are in no role; write a class "
                "with build(role, config)"
            )
        if "cache" in call.names and _returns_cache(module, call):
            return Fact("role", "cached_attention", f"forward takes {call.names['cache']}")
        turned = turns_inside(module, call)
        if turned:
            raise Unresolved(
                f"{name} turns its queries and keys by their positions ({turned}), and no role is such attention: test "
                "its rotation alone, or write a class with build(role, config)"
            )
        if "n_kv_heads" in options or shares_key_heads(module, SIZES):
            return Fact(
                "role", "grouped_query_attention", "a number of key and value heads, or keys narrower than queries"
            )
        single = any(attention_layouts(module, SIZES, output=False)) and not any(attention_layouts(module, SIZES))
        if "n_heads" in constructor.known and not (single and isinstance(constructor, PartOf)):
            return Fact("role", "multi_head_attention", "queries, keys and values, and a number of heads")
        return Fact("role", "self_attention", "queries, keys and values, and no number of heads")
    if not matrices:
        vectors = [p for p in module.parameters() if p.ndim == 1]
        if len(vectors) in (1, 2):
            return _norm_role(module, said, len(vectors))
    wide = [p for p in matrices if _has_width(p)]
    if len(matrices) == 2 and len(wide) == 2:
        gated = any(2 * SIZES["d_ff"] in p.shape for p in matrices)
        return Fact("role", "swiglu" if gated else "feed_forward", "two matrices between d_model and d_ff")
    if len(matrices) == 3 and len(wide) == 3:
        return Fact("role", "swiglu", "three matrices between d_model and d_ff")
    raise NoRole(
        f"{name} plays none of the roles {', '.join(SUPPORTED)} that can be inferred: name one as file.py:{name}@role, "
        "or write a class with build(role, config)"
    )


def _norm_role(module: nn.Module, said: str, vectors: int) -> Fact:
    """LayerNorm or RMSNorm: by the name, else by a second vector or by whether it takes the mean out. One vector in
    code that takes no mean but that of squares is RMSNorm whatever it is called: T5's is called T5LayerNorm."""
    if vectors == 1 and not centres(module) and means_squares_only(type(module)):
        return Fact("role", "rms_norm", "one vector of d_model, and the only mean that it takes is that of squares")
    for role, expression in (("rms_norm", r"rms|root mean"), ("layer_norm", r"\blayer ?norm")):
        if re.search(expression, said):
            return Fact("role", role, "the class name")
    if vectors == 2 or centres(module):
        return Fact("role", "layer_norm", "two vectors of d_model" if vectors == 2 else "it takes the mean out")
    return Fact("role", "rms_norm", "one vector of d_model, and it leaves the mean in")


def _biased_by_distance(cls: type[nn.Module], module: nn.Module) -> str:
    """The option, parameter or buffer of attention whose scores depend on the distance of words; empty if none."""
    stored = [*dict(module.named_parameters()), *dict(module.named_buffers())]
    options = [name for name in inspect.signature(cls).parameters if "relative" in name.lower()]
    return next(
        (name for name in stored if re.search(r"relative|rel_?(pos|bias|emb)|alibi|slopes", name.lower())),
        next(iter(options), ""),
    )


def turns_inside(module: nn.Module, call: Call) -> str:
    """What in attention says that it turns queries and keys by their positions; empty where the order of the words
    before the last one changes nothing for it, or where nothing says that it should."""
    names = [*dict(module.named_modules()), *dict(module.named_buffers()), *call.names.values()]
    said = next((name for name in names if re.search(r"rope|rotary|freq|(^|[._])(cos|sin)|position", name.lower())), "")
    x = noise(1, 4, SIZES["d_model"])
    try:
        with torch.no_grad():
            straight, exchanged = (_first(call(module, {"query": y})) for y in (x, x[:, [1, 0, 2, 3]]))
    except Exception:  # it takes something else
        return ""
    return said if said and not torch.allclose(straight[:, -1], exchanged[:, -1], atol=1e-5) else ""


def _first(result: Any) -> Tensor:
    return next(tensor for tensor in tensors_in(result) if tensor.is_floating_point())


def _returns_cache(module: nn.Module, call: Call) -> bool:
    """Whether a call gives something to cache beside its output."""
    try:
        with torch.no_grad():
            result = call(module, {"query": noise(1, 2, SIZES["d_model"])})
    except Exception:
        return False
    if not isinstance(result, tuple) or len(result) != 2 or result[1] is None:
        return False
    return not (isinstance(result[1], Tensor) and result[1].shape[-2:] == (2, 2))  # those are weights


def _has_width(matrix: Tensor) -> bool:
    return matrix.shape[0] != matrix.shape[1]


def top_attentions(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """The attention modules inside, by path, leaving out those inside another of them."""
    found: list[tuple[str, nn.Module]] = []
    for path, child in module.named_modules():
        if (
            path
            and is_attention(child)
            and kernels(child)
            and not any(path.startswith(f"{outer}.") for outer, _ in found)
        ):
            found.append((path, child))
    return found
