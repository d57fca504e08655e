"""Learned biases of relative positions: are they a function of the distance, and do both sides have their own?

Only a table that is called so and is read by indices that the run's data does not choose is one; a bias by the contents
of a graph or of an image is another matter.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from conformance.adapters.whole.attention import AttentionCore
from conformance.adapters.whole.attention_masks import WEAK
from conformance.adapters.whole.attention_scale import reads_another_sequence
from conformance.adapters.whole.findings import Finding
from conformance.adapters.whole.record import Op, Place, Record, Value

_RELATIVE = re.compile(r"rel|bias|dist|bucket|offset", re.IGNORECASE)
_HALVES = re.compile(
    r"\bif [^\n]*(bidirectional|two_way|both_(ways|sides|directions))[^\n]*:\s*\n(\s*#[^\n]*\n)?[^\n]*//=?\s*2\b"
    r"|\b(\w*(side|half|direction)\w*|n(um)?_buckets)\s*(//=\s*2\b|=\s*[\w.]*buckets\s*//\s*2\b)"
)
"""Code that keeps half of its buckets for each direction."""
_FEWEST = 4
_RULE = "attention-relative-bias-depends-on-distance"
_SIDES = "attention-relative-bias-tells-before-from-after"
_EVERYWHERE = "attention-relative-bias-reaches-every-layer"
_NUMBER = re.compile(r"\b\d+\b")


def relative_bias(core: AttentionCore) -> Iterator[Finding]:
    """Self-attention over rows of tokens."""
    lookup = _lookup(core)
    size = core.zero.shape[-1]
    if lookup is None or core.zero.shape[-2] != size or size < _FEWEST or not _reads_rows(core):
        return
    if _times_contents(core, lookup):
        return
    visible = core.zero > WEAK  # no bias is as low: that is a mask, such as the -100 of shifted windows
    found = {k: _diagonal(core.zero, visible, k) for k in range(1 - size, size)}
    lines = {k: line for k, line in found.items() if line is not None}
    values = {k: line.nanmedian(-1).values for k, line in lines.items()}
    if any(bool((line - values[k][:, None]).nan_to_num(0.0).abs().max() > 1e-6) for k, line in lines.items()):
        if of_a_grid(core.zero, visible):
            return
        yield _finding(
            core,
            lookup,
            _RULE,
            "The relative bias of two tokens depends on where they stand, not on their distance.",
            "key position - query position",
            "another number",
        )
        return
    behind = [values[k] for k in sorted(values, reverse=True) if k <= 0]
    ahead = [values[k] for k in sorted(values) if k > 0]
    if len(behind) < _FEWEST:
        return
    if all(_alike(value, behind[0]) for value in (*behind, *ahead)):
        yield _finding(
            core,
            lookup,
            _RULE,
            "All pairs of tokens get one relative bias, whatever their distance.",
            "a bias for each distance",
            "one bias",
        )
    elif len(ahead) >= _FEWEST - 1:
        for one, other, words in ((ahead, behind, "behind the query"), (behind[1:], ahead, "before the query")):
            if all(_alike(value, behind[0]) for value in one) and not all(_alike(value, other[-1]) for value in other):
                yield _finding(
                    core,
                    lookup,
                    _SIDES,
                    f"All keys {words} get the bias of the query's own place, though all are seen.",
                    "a bias for each distance on both sides",
                    "one bias for all of them",
                )
                return
        if _halved(lookup) and all(_alike(*pair) for pair in zip(ahead, behind[1:], strict=False)):
            yield _finding(
                core,
                lookup,
                _SIDES,
                "A key has one bias before and behind the query, though the code halves the buckets for two sides.",
                "biases that tell both sides apart",
                "the same bias on both sides",
            )


def bias_in_every_layer(cores: Sequence[AttentionCore]) -> Iterator[Finding]:
    """Where the first layer of a stack adds a table of relative biases, and nothing tells the others a distance. The
    other layers of T5 use the first one's table."""
    stacks: dict[tuple[str, type], list[AttentionCore]] = {}
    for core in cores:
        if core.call is not None and core.axis == "keys" and _is_of_one_sequence(core):
            stacks.setdefault((_NUMBER.sub("#", core.path), type(core.call.module)), []).append(core)
    for first, *others in stacks.values():
        if others and _lookup(first) and _tells_places(first) and not any(map(_tells_places, others)):
            yield Finding(
                _EVERYWHERE,
                "The first layer adds a relative bias to its scores, and no other layer does: they see no order.",
                _called_at(others[0], first.path),
                "the bias of the first layer in all layers",
                f"no bias in {others[0].path}",
                "Hand every layer the bias that the first one computes.",
                paths=tuple(core.path for core in others),
            )


def _is_of_one_sequence(core: AttentionCore) -> bool:
    size = core.zero.shape[-1]
    return core.zero.shape[-2] == size >= _FEWEST and _reads_rows(core) and not reads_another_sequence(core)


def _tells_places(core: AttentionCore) -> bool:
    """Whether the scores of a zero product differ among the keys that are seen."""
    seen = core.zero[core.zero > WEAK]
    return seen.numel() > 1 and float(seen.max() - seen.min()) > 1e-6


def _called_at(core: AttentionCore, other: str) -> Place | None:
    """The line that calls the layer in which a core stands, of a path that differs from another by its number."""
    parts, others = core.path.split("."), other.split(".")
    same = next((at for at, (one, two) in enumerate(zip(parts, others, strict=True)) if one != two), len(parts))
    layer = ".".join(parts[: same + 1])  # of a layer that runs several times its own path
    return next((call.caller for call in core.record.around(core.call) if call.path == layer), core.place)


def of_a_grid(bias: Tensor, visible: Tensor) -> bool:
    """Whether the tokens are the places of a picture, in rows, and a bias belongs to how far two places lie apart in
    both directions."""
    size = bias.shape[-1]
    for width in (n for n in range(2, size // 2 + 1) if size % n == 0):
        at = torch.stack([torch.arange(size) // width, torch.arange(size) % width], -1)
        apart = (at[:, None] - at[None]).flatten(0, 1)
        _, group = apart.unique(dim=0, return_inverse=True)
        rows, shown = bias.reshape(-1, size * size), visible.reshape(-1, size * size)
        least, most = (
            torch.full((len(rows), int(group.max()) + 1), start, dtype=rows.dtype).scatter_reduce(
                1, group.expand_as(rows), torch.where(shown, rows, start), how
            )
            for start, how in ((torch.inf, "amin"), (-torch.inf, "amax"))
        )
        if bool((most - least <= 1e-6).all()):
            return True
    return False


def _halved(lookup: Op) -> bool:
    """Whether the code keeps half of its buckets for each direction, as T5 does."""
    lines = linecache.getlines(lookup.place.file) if lookup.place else []
    return bool(_HALVES.search("".join(lines)))


def _finding(core: AttentionCore, lookup: Op, claim: str, sentence: str, expected: str, got: str) -> Finding:
    return Finding(
        claim,
        sentence,
        lookup.place,
        expected,
        got,
        "Look up the bucket of key position - query position; an encoder has buckets for both signs.",
        paths=(core.path,),
    )


def _lookup(core: AttentionCore) -> Op | None:
    """The only lookup in a table of relative biases between product and softmax."""
    record = core.record
    added = record.before([core.softmax.given]) - record.before([core.raw])
    found = {}
    for value in added:
        op = record.producer(value)
        if op is None or op.name not in ("embedding", "index", "index_select") or len(op.inputs) < 2:
            continue
        table, ids = op.inputs[0], op.inputs[1]
        tells = len(table.shape) == 2 and len(table.data.unique(dim=0)) > 2
        if tells and table.kind == "parameter" and _is_called_relative(record, table) and not record.computed(ids):
            found[op.number] = op
    return next(iter(found.values())) if len(found) == 1 else None


def _is_called_relative(record: Record, table: Value) -> bool:
    """Whether a table, or the class of a part that holds it, is called after relative positions."""
    parts = table.name.split(".")[:-1]
    holders = (record.module.get_submodule(".".join(parts[:at])) for at in range(1, len(parts) + 1))
    return any(_RELATIVE.search(name) for name in (table.name, *(type(one).__name__ for one in holders)))


def _times_contents(core: AttentionCore, lookup: Op) -> bool:
    """Whether what was looked up is multiplied with queries or keys on its way: it is no bias (Shaw et al. 2018)."""
    record = core.record
    products = (
        op
        for value in record.before([core.softmax.given]) - record.before([core.raw])
        if (op := record.producer(value)) is not None and op.name in ("bmm", "mm", "matmul", "einsum", "baddbmm")
    )
    return any(record.producer(value) is lookup for op in products for value in record.before(list(op.inputs)))


def _reads_rows(core: AttentionCore) -> bool:
    """Was the model given rows of tokens or frames, whose places are one number each?"""
    record = core.record
    outer = [value for call in record.calls if call.parent < 0 for value in call.given]
    return any(len(value.shape) in (2, 3) and min(value.shape[:2]) > 1 for value in outer) and not any(
        len(value.shape) == 4 and value.data.is_floating_point() for value in outer
    )


def _diagonal(zero: Tensor, visible: Tensor, k: int) -> Tensor | None:
    """(N, n): the biases of one distance, NaN where hidden; None where all are hidden."""
    seen = visible.diagonal(k, -2, -1)
    line = torch.where(seen, zero.diagonal(k, -2, -1), torch.nan)
    return line if bool(seen.any(-1).all()) else None


def _alike(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() < 1e-6)
