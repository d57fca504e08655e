"""Which line lets a model see what it should not, the future or padding: from recorded runs, where behaviour failed.

These places are no findings by themselves: whether something is seen is judged by the answers alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.adapters.whole.attention import AttentionCore, attentions
from conformance.adapters.whole.attention_masks import mask_op, mask_place
from conformance.adapters.whole.flow import base_name
from conformance.adapters.whole.record import Op, Place, Record, Value

_TRIANGLES = {"tril", "triu"}
_COMPARES = {"ge", "gt", "le", "lt", "eq", "ne"}
_POOLS = {"mean", "sum", "amax", "max", "bmm"}
_SEEN = 1e-12
"""A weight above this counts: e^-1e4 is 0, and an additive -30 is none."""


@dataclass(frozen=True)
class Culprit:
    """A line, and in words what it does. held: the buffer of a mask that is made with the model, whose line that is."""

    words: str
    place: Place | None
    held: str = ""


def seen_future(record: Record, cores: Sequence[AttentionCore]) -> Culprit | None:
    """The self-attention whose visible keys lie ahead of the query: its mask, or that it has none. One that hides some
    keys ahead comes first: beside it an encoder, which sees all, is right."""
    square = [core for core in _of_target(record, cores) if core.hidden.shape[-2] == core.hidden.shape[-1] >= 3]
    leaking = [core for core in square if bool((~core.hidden).triu(1).any())]
    for core in sorted(leaking, key=lambda core: not bool(core.hidden.triu(1).any())):
        mask = mask_op(core)
        name = core.path or "its attention"
        made = _makers(record, core, mask, _TRIANGLES) or _makers(record, core, mask, _COMPARES)
        if made:
            return Culprit(f"the causal mask of {name} is made here", made[-1].place)
        held = [value.name for value in _behind(record, core, mask) if value.kind == "buffer"]
        if held:
            return Culprit(f"the causal mask of {name} is made here", None, held[0])
        return Culprit(f"no causal mask reaches the scores of {name}", core.place)
    return None


def hides_padding(record: Record, real: Tensor) -> bool:
    """Whether every attention over the tokens of a run leaves the padded ones out; False without such attention."""
    found = [(core, padded) for core in attentions(record) if (padded := _padded_keys(core, real)) is not None]
    return bool(found) and not any(_is_seen(core, padded) for core, padded in found)


def _is_seen(core: AttentionCore, padded: Tensor) -> bool:
    weights = core.by_product(core.softmax.gave.data)
    return bool((weights.where(padded, 0.0).nan_to_num() > _SEEN).any())


def _of_target(record: Record, cores: Sequence[AttentionCore]) -> Sequence[AttentionCore]:
    """Of a run with two texts the attentions of the second to itself; of others all."""
    outer = next((call for call in record.calls if call.parent < 0), None)
    texts = [v for v in outer.given if v.data.dtype is torch.int64 and v.data.dim() == 2] if outer is not None else []
    if len(texts) < 2:
        return cores
    return [c for c in cores if all(texts[-1] in record.before([c.sides[side].value]) for side in ("query", "key"))]


def seen_padding(record: Record, real: Tensor) -> Culprit | None:
    """What reads the padded tokens of row 0 of a run. real: (B, T) of bool."""
    for core in attentions(record):
        padded = _padded_keys(core, real)
        if padded is None:
            continue
        if _is_seen(core, padded):
            name = core.path or "its attention"
            mask = mask_op(core)
            made = _makers(record, core, mask, _COMPARES | {"rsub", "sub", "mul", "bitwise_not", "logical_not"})
            hides_others = bool((core.zero < -1e2).any()) and not bool((core.zero.where(padded, 0.0) < -1e2).any())
            words = f"the scores of padded keys in {name} are not hidden"
            if hides_others and made:
                return Culprit(f"the mask of {name} hides other keys than the padded ones", made[-1].place)
            if mask is None and (handed := _left_out_at(record, core)):
                return Culprit(words, handed)
            if made and not bool((core.zero < -1e2).any()):
                return Culprit(f"{words}: their mask hides nothing", made[-1].place)
            return Culprit(words, mask_place(core) if made or mask is None else core.place)
    pooled = _weighed(record, real) or _pooled(record, real)
    return Culprit("tokens are put together with their padding", pooled.place) if pooled else None


def _left_out_at(record: Record, core: AttentionCore) -> Place | None:
    """The line that calls a block without the mask that another block of the same code has; None without one."""
    others = [one for one in attentions(record) if one.place == core.place and mask_op(one) is not None]
    around = {call.number for one in others[:1] for call in record.around(one.call)}
    return next((call.caller for call in record.around(core.call) if call.parent in around), None)


def _behind(record: Record, core: AttentionCore, mask: Op | None) -> set[Value]:
    """The values from which a mask is made."""
    scores = record.after([core.raw])
    return record.before([value for value in mask.inputs if value not in scores]) if mask is not None else set()


def _makers(record: Record, core: AttentionCore, mask: Op | None, names: set[str]) -> list[Op]:
    """The operations of these names from which a mask is made, in order."""
    ops = {value.op for value in _behind(record, core, mask) if value.op >= 0}
    return [record.ops[number] for number in sorted(ops) if base_name(record.ops[number]) in names]


def _padded_keys(core: AttentionCore, real: Tensor) -> Tensor | None:
    """(N, Tq, Tk) of bool: pairs of a real query and a padded key; None where the keys are not the tokens of a row."""
    query, key = core.sides["query"], core.sides["key"]
    found = [_real_rows(side.tokens, [p.base for p in side.projections], real) for side in (query, key)]
    if found[1] is None:
        return None
    reads = found[0] if found[0] is not None else torch.ones(query.tokens.shape[:2], dtype=torch.bool)
    return reads[:, :, None] & ~found[1][:, None, :]


def _real_rows(tokens: Tensor, bases: list[Value], real: Tensor) -> Tensor | None:
    """(N, T) of bool: which vectors of a side come from real tokens."""
    if len({*bases}) != 1 or bool((tokens < 0).any()) or len(bases[0].shape) < 2:
        return None
    sizes = bases[0].shape[:-1]
    if sizes == tuple(real.shape) or sizes == (real.numel(),):
        flat = real.reshape(-1)
    elif sizes == tuple(real.T.shape):
        flat = real.T.reshape(-1)
    else:
        return None
    return flat[tokens[..., 0] & 0xFFFFFFFF]


def _weighed(record: Record, real: Tensor) -> Op | None:
    """The first softmax over the tokens of a row that gives padded tokens of row 0 a weight."""
    for op in record.ops:
        over_tokens = op.name == "_softmax" and op.inputs[0].shape in (tuple(real.shape), (*real.shape, 1))
        if over_tokens and bool((op.outputs[0].data[0, ~real[0]] > _SEEN).any()):
            return op
    return None


def _pooled(record: Record, real: Tensor) -> Op | None:
    """The first sum or mean over tokens whose result the padded tokens of row 0 change."""
    for op in record.ops:
        if base_name(op) not in _POOLS or not op.outputs or not op.inputs:
            continue
        given, gave = op.inputs[0], op.outputs[0]
        if given.shape[:2] != tuple(real.shape) or len(given.shape) != 3 or given.shape[1] in gave.shape[1:]:
            continue
        if not record.computed(given) or given.shape[-1] < 2:
            continue
        changed = given.data.clone()
        changed[0, ~real[0]] += 1.0
        [other] = record.replay([gave], {given: changed})
        divided = base_name(op) == "mean" or bool((other != gave.data).any())
        if divided:
            return op
        for reader in record.consumers(gave):
            if base_name(reader) == "div" and reader.args[1:] and reader.args[1] == given.shape[1]:
                return reader
    return None
