"""The optional masks that a model's caller makes: in the convention in which they hide what they should."""

from __future__ import annotations

import inspect
import re
from contextlib import suppress
from dataclasses import replace

import torch
from torch import nn

from conformance.adapters.inference.facts import Fact
from conformance.adapters.whole.calling import Calling, T, first_data, hides, other_words, quiet_evaluation
from conformance.adapters.whole.hiding import hides_padding
from conformance.adapters.whole.masking import Mask, by_convention, choices
from conformance.adapters.whole.masks_told import documented_masks, told_masks
from conformance.adapters.whole.names import PADDING_MASK
from conformance.adapters.whole.proposing import FRAMES
from conformance.adapters.whole.record import record

_HIDES = 0.5
"""A token that a mask hides changes the answers by less of what a shown one does."""
_NO_EFFECT = 0.95
"""A token that a mask hides and that changes the answers by so much of what a shown one does, is not hidden at all."""


def with_masks(module: nn.Module, calling: Calling, kind: str) -> Calling:
    """The calling with the optional masks that its kind needs: a caller hides the future where the model does not."""
    if not calling.optional_masks or kind not in ("language_model", "sequence_to_sequence"):
        return calling
    with quiet_evaluation(module):
        if _is_causal(module, calling):
            return calling
        meanings = [one.meaning for one in calling.inputs]
        for masks in choices(module, calling.optional_masks, meanings, True if kind == "language_model" else None):
            candidate = replace(calling, masks=(*calling.masks, *masks))
            try:
                if hides(module, candidate) and _is_causal(module, candidate):
                    how = ", ".join(f"{mask.parameter} = {mask.how}" for mask in masks)
                    fact = Fact("masks of its caller", how, "found by running it")
                    return replace(candidate, facts=(*calling.facts, fact))
            except Exception:
                continue
    return calling


_SIDE = re.compile(r"(src|source|tgt|trg|target|memory|mem|context|enc|encoder|dec|decoder)(?=_|$)")


def _is_of_another(module: nn.Module, calling: Calling, mask: str) -> bool:
    """Whether a mask is called after an input that stands beside those that are judged, as tgt_key_padding_mask after
    tgt_tokens where the memory is."""
    side = _SIDE.match(mask.lower())
    if side is None:
        return False
    names = [name for name in inspect.signature(module.forward).parameters if "mask" not in name.lower()]
    after = {name for name in names if (found := _SIDE.match(name.lower())) is not None and found[0] == side[0]}
    return bool(after) and after.isdisjoint(one.parameter for one in calling.inputs)


def with_padding_mask(module: nn.Module, calling: Calling) -> Calling:
    """The calling with the optional masks that say which tokens are real: in the first convention that hides a token,
    else in that which comes closest to it; and with the optional numbers of real tokens. A mask that changes nothing in
    any is taken for one only where its name says that it is about padding. Where the user's files hand one over, it is
    filled as these fill it, whatever it then hides."""
    added = []
    filled = {mask.parameter for mask in calling.masks}
    calling = replace(calling, shares=_shares(module, calling))
    told = told_masks(module, [name for name in calling.optional_masks if name not in filled])
    documented = documented_masks(module, calling.optional_masks)
    with quiet_evaluation(module):
        for parameter, keys in calling.optional_lengths.items():
            counted = replace(calling, lengths={**calling.lengths, parameter: keys})
            leak = _leak(module, counted, keys, -1)
            if (leak is not None and leak < _NO_EFFECT) or _counts_frames(module, calling, counted):
                how = "it hides the others" if leak is not None and leak < _NO_EFFECT else "answers follow it"
                fact = Fact("padding", f"{parameter} = the number of real ones", how)
                calling = replace(counted, facts=(*counted.facts, fact))
        for parameter in calling.optional_masks:
            if parameter in filled or _is_of_another(module, calling, parameter):
                continue
            meanings = [one.meaning for one in calling.inputs]
            marks_real = documented.get(parameter)
            conventions = by_convention(parameter, meanings, False, marks_real=marks_real)
            offered = [mask for mask in conventions if not mask.square]
            if parameter in told:
                for mask in _as_told(module, calling, offered, told[parameter]):
                    fact = Fact("padding", f"{parameter} = {mask.how}", "calls in the user's files fill it so")
                    calling = replace(calling, masks=(*calling.masks, mask), facts=(*calling.facts, fact))
                continue
            leaks = []
            for at, mask in enumerate(offered):
                leak = _leak(module, replace(calling, masks=(*calling.masks, mask)), mask.keys, 1)
                leaks += [(leak, at)] if leak is not None else []
            if not leaks:
                continue
            least, at = min(leaks)
            alike = [other for leak, other in leaks if leak == least]
            at = next((other for other in alike if _is_neutral(module, calling, offered[other])), at)
            named = PADDING_MASK.search(parameter.lower()) is not None
            rest = [offered[other] for _, other in sorted(leaks)] if least >= _HIDES else []
            attended = next((mask for mask in rest if _hides_from_attention(module, calling, mask)), None)
            if attended is not None:  # what is hidden there still counts elsewhere, as in a mean over all tokens
                added.append(replace(attended, when_padded=True))
            elif least < _HIDES or named:
                added.append(replace(offered[at if least < _NO_EFFECT else leaks[0][1]], when_padded=True))
    how = ", ".join(f"{mask.parameter} = {mask.how}" for mask in added)
    fact = Fact("padding", how, "of the ways tried, this one hides padding best")
    facts = (*calling.facts, fact) if added else calling.facts
    return replace(calling, masks=(*calling.masks, *added), facts=facts)


def _as_told(module: nn.Module, calling: Calling, offered: list[Mask], marks_real: bool) -> list[Mask]:
    """The first of these masks that runs and marks what the user's files mark by it: real tokens, or padding."""
    encodings = ("bool, True = may attend", "0 and 1, 1 = may attend") if marks_real else ("bool, True = hidden",)
    for mask in [mask for encoding in encodings for mask in offered if mask.encoding == encoding]:
        data = first_data(calling, calling.main.length or T)
        real = torch.ones(data[mask.keys].shape[:2], dtype=torch.bool)
        real[:, -1] = False
        data |= {"padding" if mask.keys in ("ids", "x") else f"{mask.keys}_padding": real}
        with suppress(Exception):
            if bool(replace(calling, masks=(*calling.masks, mask))(module, data)["out"].isfinite().all()):
                return [replace(mask, when_padded=True)]
    return []


def _shares(module: nn.Module, calling: Calling) -> frozenset[str]:
    """Which lengths are shares of the longest: forward multiplies them by the size of something."""
    with suppress(OSError, TypeError):
        source = inspect.getsource(type(module).forward)
        size = r"[\w.]+\.(shape\[|size\()"
        return frozenset(
            name
            for name in {**calling.lengths, **calling.optional_lengths}
            if re.search(rf"\b{name}\s*\*\s*{size}|{size}-?\d[\])]\s*\*\s*{name}\b", source)
        )
    return frozenset()


def _leak(module: nn.Module, candidate: Calling, keys: str, hidden_at: int) -> float | None:
    """How much a token that is hidden changes the other answers, beside a token that is shown: 0 where it is hidden,
    near 1 where that changes nothing. None where the model does not run so, or hides too much."""
    candidate = replace(candidate, filler=None)
    data = first_data(candidate, candidate.main.length or T)
    main = candidate.main.meaning
    if data[keys].ndim != 2 and candidate.input(keys).shape[0] is not None:
        return None
    real = torch.ones(data[keys].shape[:2], dtype=torch.bool)
    real[:, hidden_at] = False
    padded = {**data, "padding" if keys in ("ids", "x") else f"{keys}_padding": real}

    def moved(at: int) -> dict[str, torch.Tensor]:
        changed = {**padded, keys: data[keys].clone()}
        changed[keys][:, at] = other_words(changed[keys][:, at])
        return changed

    try:
        before, hidden, shown = (candidate(module, x)["out"] for x in (padded, moved(hidden_at), moved(0)))
    except Exception:
        return None
    if not bool(before.isfinite().all()):
        return None
    if keys == main and before.ndim == 3 and before.shape[1] == real.shape[1]:
        before, hidden, shown = (x[:, real[0]] for x in (before, hidden, shown))
    scale = float(before.abs().max() + 1e-9)
    leak, seen = float((hidden - before).abs().max()), float((shown - before).abs().max())
    if seen <= 1e-5 * scale:
        return None
    return 0.0 if leak <= 1e-5 * scale else leak / seen


def _counts_frames(module: nn.Module, calling: Calling, counted: Calling) -> bool:
    """Whether the number of real frames changes what is answered, where an answer is one for several frames: what the
    last of them is made of is real, too, so that none of these hides a frame alone."""
    data = first_data(calling, calling.main.length or FRAMES)
    if calling.main.meaning != "x" or data["x"].ndim != 3:
        return False
    real = torch.ones(data["x"].shape[:2], dtype=torch.bool)
    real[0, real.shape[1] // 2 :] = False
    with suppress(Exception):
        before, after = (one(module, {**data, "padding": real})["out"] for one in (calling, counted))
        fewer = before.ndim == 3 and before.shape == after.shape and before.shape[1] < real.shape[1]
        return fewer and bool(after.isfinite().all()) and not torch.allclose(before, after, atol=1e-5)
    return False


def _is_neutral(module: nn.Module, calling: Calling, mask: Mask) -> bool:
    """Whether a mask that hides nothing changes nothing: another form may take the place of the causal mask."""
    data = first_data(calling, calling.main.length or T)
    real = torch.ones(data[mask.keys].shape[:2], dtype=torch.bool)
    shown = {**data, "padding" if mask.keys in ("ids", "x") else f"{mask.keys}_padding": real}
    with suppress(Exception):
        before, after = (
            calling(module, data)["out"],
            replace(calling, masks=(*calling.masks, mask))(module, shown)["out"],
        )
        return torch.allclose(before, after, atol=1e-5)
    return False


def _hides_from_attention(module: nn.Module, calling: Calling, mask: Mask) -> bool:
    """Whether a mask keeps every attention of the model from the tokens that it hides."""
    data = first_data(calling, calling.main.length or T)
    real = torch.ones(data[mask.keys].shape[:2], dtype=torch.bool)
    real[:, 1] = False
    padded = {**data, "padding" if mask.keys in ("ids", "x") else f"{mask.keys}_padding": real}
    candidate = replace(calling, masks=(*calling.masks, mask))
    with suppress(Exception):
        return hides_padding(record(module, lambda: candidate(module, padded)), real)
    return False


def _is_causal(module: nn.Module, calling: Calling) -> bool:
    """Whether the last token leaves the answers before it as they are."""
    data = first_data(calling, calling.main.length or T)
    main = calling.main.meaning
    changed = {**data, main: data[main].clone()}
    changed[main][:, -1] = other_words(changed[main][:, -1])
    before, after = (calling(module, x).get("out") for x in (data, changed))
    if before is None or before.ndim < 3:
        return True
    return float((before - after)[:, :-1].abs().max()) <= 1e-5 * float(before.abs().max() + 1e-9)
