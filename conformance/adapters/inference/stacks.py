"""Where layers and whole models keep the parameters of their roles: the parts' layouts put together.

A layer is its attention modules, the two or three matrices outside them, and its norms; a model is one or two stacks
of equal layers, token tables, final norms and a head. In layouts of models a ``*`` in a parameter's name stands for the
number of a layer, as does the first one in its place (`parameters.numbered`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import permutations, product

from torch import nn

from conformance.adapters.inference import parameters as p
from conformance.adapters.inference.facts import Unresolved
from conformance.adapters.inference.roles import centres, norms_in, top_attentions


def layer_layouts(layer: nn.Module, config: p.Config, decoder: bool) -> Iterator[tuple[str, p.Layout]]:
    """The documents' encoder and decoder layers: one attention or two, two matrices, a LayerNorm for each sublayer."""
    attentions = top_attentions(layer)
    if decoder:
        attentions.sort(key=lambda item: bool(re.search(r"cross|enc|src|inter|multihead|memory", item[0].lower())))
    names = ("self_attn", "cross_attn")[: 1 + decoder]
    norms = _norms(layer)
    if len(attentions) != len(names) or len(norms) != len(names) + 1:
        return
    base: p.Layout = {}
    for i, (path, norm) in enumerate(norms):
        layouts = list(p.norm_layouts(norm, True))
        if not layouts or (len(layouts[0][1]) == 1 and not centres(norm)):  # an RMSNorm: no layer of the documents
            return
        base |= p.under(layouts[0][1], f"{path}.", f"norm{i + 1}")
    for _, layout in p.feed_forward_layouts(_outside(layer, attentions), config):
        base |= {f"feed_forward.{name}": place for name, place in layout.items()}
    parts = [p.attention_layouts(child, config) for _, child in attentions]
    for together in zip(*parts, strict=False):
        layout = dict(base)
        for name, (path, _), (_, inner) in zip(names, attentions, together, strict=True):
            layout |= p.under(inner, f"{path}.", name)
        yield together[0][0], layout


def decoder_lm_layouts(model: nn.Module, config: p.Config) -> Iterator[tuple[str, p.Layout]]:
    """The documents' decoder-only model: RMSNorms, grouped-query attention and SwiGLU in every layer.

    Raises Unresolved, with what is missing or too much, when the model is another one.
    """
    path, layer = _only(_stacks(model, config["n_layers"]), "stack of layers with attention")
    table, _ = _only(_tables(model, config["vocab"]), "table of tokens")
    norm, final = _only(_norms(model, outside=path), "final norm")
    attention, inside = _only(top_attentions(layer), "attention module in a layer")
    norms = _norms(layer)
    if len(norms) != 2:
        raise Unresolved(f"decoder_lm has two norms in a layer, and {type(layer).__name__} has {len(norms)}")
    matrices = _outside(layer, top_attentions(layer))
    gated, gains = list(p.swiglu_layouts(matrices, config)), list(_gain(final))
    if not gated or not gains:
        what = "SwiGLU in its layers" if not gated else "RMSNorms"
        raise Unresolved(f"decoder_lm has {what}, and {type(layer).__name__} has something else: another model")
    base = {"token_embedding.weight": p.Place((f"{table}.weight",))}
    for head, linear in _heads(model, config["vocab"]):
        if linear.weight is not model.get_submodule(table).weight:
            base["lm_head.weight"] = p.Place((f"{head}.weight",))
    for order, (label, found), (_, network), (_, closing) in product(
        permutations(norms), p.attention_layouts(inside, config), gated, gains
    ):
        inner = p.under(found, f"{attention}.", "attn")
        inner |= {f"ffn.{name}": place for name, place in network.items()}
        for name, (place, one) in zip(("attn_norm", "ffn_norm"), order, strict=True):
            for _, gain in _gain(one):
                inner |= p.under(gain, f"{place}.", name)
        layout = base | _in_layers(inner, path, "layers") | p.under(closing, f"{norm}.", "norm")
        _no_more(model, layout, config, "decoder_lm")
        yield label, layout


def encoder_decoder_layouts(model: nn.Module, config: p.Config) -> Iterator[tuple[str, p.Layout]]:
    """The documents' full model: two stacks, each with a table of tokens and a final LayerNorm, and a head.

    Raises Unresolved, with what is missing or too much, when the model is another one.
    """
    stacks = {len(top_attentions(layer)): (path, layer) for path, layer in _stacks(model, config["n_layers"])}
    if set(stacks) != {1, 2}:
        raise Unresolved("encoder_decoder has a stack of layers with one attention module and one with two")
    named = {"encoder": stacks[1], "decoder": stacks[2]}
    head, _ = _only(_heads(model, config["tgt_vocab"]), "head")
    base = {f"output_proj.{kind}": p.Place((f"{head}.{kind}",)) for kind in ("weight", "bias")}
    for side in ("src", "tgt"):
        table, _ = _only(_tables(model, config[f"{side}_vocab"]), f"{side} table")
        base[f"{side}_embedding.weight"] = p.Place((f"{table}.weight",))
    norms = dict(_norms(model, outside=tuple(path for path, _ in named.values())))
    for name, (path, _) in named.items():
        near = [norm for norm in norms if norm.rpartition(".")[0] == path.rpartition(".")[0]]
        closing, _ = _only([(norm, norms[norm]) for norm in near], f"final norm of the {name}")
        for _, layout in list(p.norm_layouts(norms[closing], True))[:1]:
            base |= p.under(layout, f"{closing}.", f"{name}.norm")
    sides = [layer_layouts(layer, config, decoder=name == "decoder") for name, (_, layer) in named.items()]
    for (label, encoder), (_, decoder) in zip(*sides, strict=False):
        layout = dict(base)
        for (name, (path, _)), inner in zip(named.items(), (encoder, decoder), strict=True):
            layout |= _in_layers(inner, path, f"{name}.layers")
        _no_more(model, layout, config, "encoder_decoder")
        yield label, layout


# --- parts of models ------------------------------------------------------------------------------


def _stacks(model: nn.Module, layers: int) -> list[tuple[str, nn.Module]]:
    """(path, first layer) of each list of `layers` equal modules with attention."""
    return [
        (path, next(iter(child)))
        for path, child in model.named_modules()
        if isinstance(child, (nn.ModuleList, nn.Sequential))
        and len(child) == layers
        and len({type(layer) for layer in child}) == 1
        and top_attentions(next(iter(child)))
    ]


def _tables(model: nn.Module, tokens: int) -> list[tuple[str, nn.Module]]:
    return [
        (path, child)
        for path, child in model.named_modules()
        if isinstance(child, nn.Embedding) and child.num_embeddings == tokens
    ]


def _heads(model: nn.Module, tokens: int) -> list[tuple[str, nn.Linear]]:
    return [
        (path, child)
        for path, child in model.named_modules()
        if isinstance(child, nn.Linear) and child.out_features == tokens
    ]


def _norms(module: nn.Module, outside: str | tuple[str, ...] = ()) -> list[tuple[str, nn.Module]]:
    """The norms inside, but for those below the paths `outside`."""
    inside = tuple(f"{path}." for path in ((outside,) if isinstance(outside, str) else outside))
    return [(path, norm) for path, norm in norms_in(module) if not path.startswith(inside)]


def _outside(layer: nn.Module, attentions: Iterable[tuple[str, nn.Module]]) -> list[p.Kernel]:
    """The matrices of a layer that belong to no attention module."""
    inside = tuple(f"{path}." for path, _ in attentions)
    return [kernel for kernel in p.kernels(layer, split=True) if not kernel.pattern.startswith(inside)]


def _gain(norm: nn.Module) -> Iterator[tuple[str, p.Layout]]:
    yield from list(p.norm_layouts(norm, False))[:1]


def _in_layers(layout: p.Layout, path: str, name: str) -> p.Layout:
    """The layout of a layer as that of every layer of the stack at `path`."""
    return p.under(layout, f"{path}.*.", f"{name}.*")


def _only(found: list[tuple[str, nn.Module]], what: str) -> tuple[str, nn.Module]:
    if len(found) != 1:
        raise Unresolved(f"the role has one {what}, and here are {len(found)}")
    return found[0]


def _no_more(model: nn.Module, layout: p.Layout, config: p.Config, role: str) -> None:
    """Raises Unresolved when the model has parameters that the role has not: it is another model."""
    tensors = dict(model.named_parameters(remove_duplicate=False))
    places = p.numbered(layout, config["n_layers"])
    used = {name for place in places.values() for name, _ in place.slot(tensors, config).pieces}
    shared = {id(tensors[name]) for name in used if name in tensors}
    more = [name for name, tensor in tensors.items() if name not in used and id(tensor) not in shared]
    if more:
        raise Unresolved(f"{role} has no {more[0]} (and {len(more) - 1} more)")
