"""Whether padding is attended to: the vector of the padding is another one, and no answer for the words may change."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from conformance.watch.events import Probe
from conformance.watch.record import Run
from conformance.watch.repeating import Call
from conformance.watch.stated import classes

_ATTENTION = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
_STACKS = (*_ATTENTION, nn.TransformerEncoder, nn.TransformerDecoder, nn.Transformer)
_NEIGHBOURS = (nn.RNNBase, nn.RNNCellBase, nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm)
"""Padding reaches the words beside it through these in correct models, too."""
_WEIGHED = re.compile(r"scaled_dot_product_attention|softmax\(")
_SAYS = re.compile(r"(?:==|!=|\.eq\(|\.ne\()\s*(?:\w+\.)*(pad|\w*_pad|pad_\w+)\b", re.IGNORECASE)


def attended(run: Run, call: Call, tails: Any) -> bool:
    """Record how far the answers for words move with the vector of the padding, where a model attends, and its author
    says what is padding: as its table's padding index, or by a comparison. tails: of ids, the places of padding."""
    parts = [*call.module.modules()]
    if any(isinstance(part, _NEIGHBOURS) for part in parts):
        return False
    texts = [ast.unparse(owner) for _, owner in classes(run)]
    if not any(map(_attends, parts)) and not any(map(_WEIGHED.search, texts)):
        return False
    says = any(map(_SAYS.search, texts))
    looked_up = [(table, ids) for table, ids in _asked(call) if ids.dim() == 2 and ids.shape[1] >= 3]
    for table, ids in looked_up:
        tail = next((tail for tail in tails(ids) if bool(tail[:, -1].any())), None)
        if tail is None:
            continue
        value = int(ids[tail][0])
        if value != table.padding_idx and not (says and table.padding_idx is None):
            continue
        before = call.answers()
        kept = table.weight[value].clone()
        table.weight[value] = kept + torch.arange(len(kept)).cos().to(kept)  # no constant, which a norm takes away
        try:
            after = call.answers()
        finally:
            table.weight[value] = kept
        real = {tuple(ids.shape): ~tail}
        for _, other in looked_up:
            shape = tuple(other.shape)
            for padded in (places for places in tails(other) if bool((other[places] == value).all())):
                real[shape] = real.get(shape, ~padded) & ~padded  # a source may be as long as its target
        pairs = zip(before, after, strict=True)
        moved = [_moved(*pair, real, value, table.num_embeddings) for pair in pairs]
        if moved:
            lines = tuple(_unmasked(run)) or tuple(_masked(run))
            place = run.modules[call.number][1]
            run.add(Probe(what="padding", error=max(moved), place=place, unmasked=lines))
            return True
    return False


def _attends(part: nn.Module) -> bool:
    """Whether a part is an attention of torch's, or one of another library by its name."""
    return isinstance(part, _ATTENTION) or "attention" in type(part).__name__.lower()


def _asked(call: Call) -> list[tuple[nn.Embedding, Tensor]]:
    """The tables of a module, with the ids that they are asked for."""
    found: list[tuple[nn.Embedding, Tensor]] = []
    tables = [part for part in call.module.modules() if isinstance(part, nn.Embedding)]
    call.look_into(tables, lambda table, given, _: found.append((table, given[0])) if given else None)
    return found


def _moved(before: Tensor, after: Tensor, real: dict[tuple[int, ...], Tensor], pad: int, words: int) -> float:
    """How far answers for words moved, as a share of the largest; without the score of the padding itself."""
    if before.dim() >= 3 and tuple(before.shape[:2]) in real:
        here = real[tuple(before.shape[:2])]
        before, after = before[here], after[here]
    if before.shape[-1] == words:
        others = torch.arange(words) != pad
        before, after = before[..., others], after[..., others]
    if not before.numel() or not bool(before.isfinite().all()) or not bool(after.isfinite().all()):
        return 0.0
    return float((before - after).abs().max() / before.abs().max().clamp(min=1e-6))


def _unmasked(run: Run) -> Iterator[str]:
    """The lines that call attention without a mask of padding."""
    stacks = {path.rpartition(".")[2] for parts in run.parts.values() for path, cls in parts.items()
              if isinstance(cls, type) and issubclass(cls, _STACKS)}  # fmt: skip
    for source, owner in classes(run):
        for one in (n for n in ast.walk(owner) if isinstance(n, ast.Call)):
            called = one.func.attr if isinstance(one.func, ast.Attribute) else ""
            named = {word.arg or "" for word in one.keywords if ast.unparse(word.value) != "None"}
            is_stack = called in stacks and not any("padding" in name for name in named)
            is_weighed = called == "scaled_dot_product_attention" and "attn_mask" not in named
            if is_stack or (is_weighed and len(one.args) < 4):
                yield source.place(source.statement(one))


def _masked(run: Run) -> Iterator[str]:
    """The lines of the model that hand a mask of padding on."""
    for source, owner in classes(run):
        for one in (n for n in ast.walk(owner) if isinstance(n, ast.keyword) and "padding_mask" in (n.arg or "")):
            yield source.place(one.value)
