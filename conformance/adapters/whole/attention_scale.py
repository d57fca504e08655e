"""Is the scale of an attention core the formula's? If not: which mistake is it, or which design."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator

import torch
from torch import nn

from conformance.adapters.whole.attention import AttentionCore
from conformance.adapters.whole.attention_lengths import has_unit_vectors
from conformance.adapters.whole.attention_masks import between, drops
from conformance.adapters.whole.findings import Finding
from conformance.adapters.whole.flow import base_name
from conformance.adapters.whole.record import Op, Place, Value
from conformance.adapters.whole.statements import made_line

OWN = "a constant of its own"
"""The name of a scale that is no known mistake: cosine scores, log n, and learned temperatures have such."""
_NORMS = {"native_layer_norm", "_fused_rms_norm", "rsqrt", "linalg_vector_norm", "norm"}


def scale(core: AttentionCore) -> Iterator[Finding]:
    got, width = core.scale, core.width
    if got is None:
        return
    expected = 1 / math.sqrt(width)
    ops = [op for part in core.factors for op in part.ops]
    after = _constant_after(core)
    if after is not None and not math.isclose(after[0], 1.0, rel_tol=1e-3):
        number, op = after
        yield Finding(
            "attention-scale-is-one-over-sqrt-d-head",
            f"The weights are multiplied by {number:.6g} after the softmax: they no longer sum to one.",
            op.place,
            "scaled scores, then the softmax",
            f"the softmax, then a factor of {number:.6g}",
            f"Scale the scores by 1 / sqrt({width}) before the softmax.",
            paths=(core.path,),
        )
        return
    if any(math.isclose(got, expected / math.sqrt(terms), rel_tol=1e-4) for terms in {1, core.terms}):
        return
    name, certain = _wrong_scale(core, got, _scale_place(core, ops))
    certain = certain and not has_unit_vectors(core)  # of length 1: the factors are theirs, and a temperature
    of_sets = any(_OF_SETS.search(_text(type(call.module))) for call in core.record.around(core.call))
    certain = certain and not of_sets
    if not certain and (of_sets or _scale_is_named(core, got)):
        sentence = f"The scores are scaled by {got:.6g} ({name}), as the code or its configuration says."
    else:
        sentence = f"The scores are scaled by {got:.6g} ({name}), not by 1 / sqrt({width})."
        certain = certain or not (name == OWN or _normalised(core))
    yield Finding(
        "attention-scale-is-one-over-sqrt-d-head",
        sentence,
        _scale_place(core, ops),
        expected,
        got,
        f"Divide the scores once by sqrt({width}), the square root of the length of one head's query.",
        certain,
        (core.path,),
    )


def _scale_place(core: AttentionCore, ops: list[Op]) -> Place | None:
    """The line that scales; where it reads a number that the module keeps, the line that makes this number."""
    if not ops:
        return core.scores_place
    place, number = ops[-1].place, _constant(ops[-1])
    module = core.call.module if core.call is not None else None
    return made_line(place, module, number) if place and module is not None and number else place


_ROOT = re.compile(r"sqrt|\*\* ?\(?-? ?(0?\.5|1 ?/ ?2)")


def _wrong_scale(core: AttentionCore, got: float, place: Place | None) -> tuple[str, bool]:
    """A name for a scale that is not the formula's, and whether no design uses it. place: the line that makes it: where
    the model is as wide as a head is squared, its text tells 1 / d from the root of the whole width."""
    width, heads = core.width, core.order.shape[1]
    times = sum(
        math.isclose(abs(math.log(part)), math.log(width) / 2, rel_tol=1e-3)
        for part in (_constant(op) for item in core.factors for op in item.ops)
        if part and part > 0
    )
    names = {
        1.0: ("no scale", False),
        math.sqrt(width): ("times sqrt(d) instead of divided by it", True),
        float(width): ("times d instead of divided by sqrt(d)", True),
        1 / width: ("1 / sqrt(d) twice", True) if times >= 2 else ("1 / d", False),
        width**-0.25: ("the fourth root of d, on one side only", True),
    }
    for projection in core.sides["query"].projections:
        model = projection.base.shape[-1]
        if model == width**2 and place is not None and _ROOT.search(place.text):
            names.pop(1 / width, None)
        names.setdefault(1 / math.sqrt(model), ("1 / sqrt(d_model), the width of all heads together", True))
        names.setdefault(1 / model, ("1 / d_model", False))
    names.setdefault(1 / math.sqrt(width * heads), ("1 / sqrt(d_model), the width of all heads together", True))
    names.setdefault(1 / math.sqrt(core.raw.shape[-1]), ("1 / sqrt(number of keys)", True))
    names.setdefault(1 / math.sqrt(heads), ("1 / sqrt(number of heads)", True))
    for value, (name, certain) in names.items():
        if math.isclose(got, value, rel_tol=1e-4):
            return name, certain
    return OWN, False


def _normalised(core: AttentionCore) -> bool:
    """Whether the queries are normalised behind their projection: then the norm's gain, or nothing, is their scale."""
    side = core.sides["query"]
    start = {found.value for found in side.projections}
    behind = core.record.before([side.value], beyond=start) - start
    made = (core.record.producer(value) for value in behind)
    return any(op is not None and base_name(op) in _NORMS for op in made)


def _constant(op: Op) -> float | None:
    for argument in op.args[:2]:
        if isinstance(argument, int | float):
            return float(argument)
        if isinstance(argument, Value) and argument.data.numel() == 1:
            return float(argument.data)
    return None


def _scale_is_named(core: AttentionCore, got: float) -> bool:
    """Does a class, an option or a comment say that the scale is meant to be as it is?"""
    close = [got, 1 / got, got**-2, got**2] if got > 0 else [got]
    for call in core.record.around(core.call):
        module = call.module
        if says_unscaled(type(module)) or (math.isclose(got, 1.0) and starts_scaled(module)):
            return True
        for holder in (module, getattr(module, "config", None), getattr(module, "args", None)):
            for name, value in vars(holder).items() if hasattr(holder, "__dict__") else ():
                if not re.search(r"scal|query_pre_attn|mup|temperature", name, re.I):
                    continue
                if (value is False or value is None) and math.isclose(got, 1.0):
                    return True
                if isinstance(value, int | float) and any(math.isclose(value, one, rel_tol=1e-4) for one in close):
                    return True
        if re.search(r"\bmuP\b|μP|mu-?transfer", _text(type(module)), re.I):
            return True
    return has_a_table_for_scale(core)


_OF_SETS = re.compile(r"(?i)set[ _-]?transformer|class (mab|i?sab|pma)\b|multihead attention block")
"""Names of the Set Transformer and its blocks, which scale by the width of all heads (Lee et al. 2019, modules.py)."""
_UNSCALED = re.compile(
    r"\b(no|without|un|not|omits?|omitted|omitting)[ -]?scal|"
    r"\b(no|not|without|omits?|omitting)\b[^.\n]{0,24}(scaling|sqrt|division)|\bm?t5(config)?\b",
    re.IGNORECASE,
)
"""Words by which authors say that scores are left unscaled."""


def says_unscaled(cls: type) -> bool:
    """Whether the name or the words of a class say that its scores are not divided, as in T5."""
    return bool(re.search(r"T5|GPTNeo|Pix2Struct", cls.__name__) or _UNSCALED.search(_text(cls)))


_QUERY, _KEY = re.compile(r"((to|w|W)_?)?q(uery)?(_?proj)?"), re.compile(r"((to|w|W)_?)?k(ey)?(_?proj)?")
_HEADS = re.compile(r"(n|num)?_?h(eads?)?|nhead")


def starts_scaled(module: nn.Module) -> bool:
    """Whether the map of the queries begins smaller than that of the keys by the root of the width of a head, as in T5:
    the scale is in the weights."""
    maps = {name: one for name, one in module.named_children() if isinstance(one, nn.Linear)}
    queries, keys = ([one for name, one in maps.items() if named.fullmatch(name)] for named in (_QUERY, _KEY))
    heads = [value for name, value in vars(module).items() if type(value) is int and _HEADS.fullmatch(name)]
    if len(queries) != 1 or len(keys) != 1 or len(heads) != 1 or not heads[0]:
        return False
    ratio = float((queries[0].weight.std() / keys[0].weight.std().clamp(min=1e-9)).detach())
    return math.isclose(ratio, (queries[0].out_features / heads[0]) ** -0.5, rel_tol=0.15)


def has_a_table_for_scale(core: AttentionCore) -> bool:
    """T5 leaves the scale out where it adds a table of relative positions. Layers may share the table: the scores of a
    later one come from it, too, by way of the earlier ones."""
    if core.scale is None or not math.isclose(core.scale, 1.0, rel_tol=1e-4):
        return False
    beside = core.record.before([core.softmax.given], beyond={core.raw})
    return any(value.kind == "parameter" for value in beside)


def reads_another_sequence(core: AttentionCore) -> bool:
    """T5 leaves the scale out of its attention to the source, too, where no table of positions is added."""
    query, key = (core.sides[name].projections for name in ("query", "key"))
    return bool(query and key) and query[0].base is not key[0].base


def _text(cls: type) -> str:
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        return ""


def _constant_after(core: AttentionCore) -> tuple[float, Op] | None:
    """A constant that multiplies the weights between softmax and values, outside of dropout."""
    ops = between(core)
    if any(drops(core.record, op) for op in ops):
        return None
    one = torch.ones_like(core.softmax.gave.data)
    ([ones], [twos]) = (core.record.replay([core.used], {core.softmax.gave: given}) for given in (one, 2 * one))
    if not torch.allclose(twos, 2 * ones):  # divided by a number of their own, such as their norm
        return None
    numbers = ones.double().reshape(-1)
    multiplying = [op for op in ops if base_name(op) in ("mul", "div")]
    if len(numbers) and multiplying and bool((numbers - numbers[0]).abs().max() < 1e-6):
        return float(numbers[0]), multiplying[-1]
    return None
