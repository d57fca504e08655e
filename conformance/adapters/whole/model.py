"""A whole model, or a component, as a subject: how what was made is called, what kind it is, and all experiments.

The families of experiments stand in layers: each inherits from the families whose findings it uses, and from
`RunningModel` at the bottom. None calls what stands above it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from conformance.adapters.inference.construct import evaluating
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.adapters.stated import Stated, shapes_of
from conformance.adapters.whole.balance import BalanceProbes
from conformance.adapters.whole.beside_words import BesideWordProbes
from conformance.adapters.whole.best_paths import BestPathProbes
from conformance.adapters.whole.caller_masks import with_masks, with_padding_mask
from conformance.adapters.whole.calling import Calling, T, first_data
from conformance.adapters.whole.calling_parts import part_calling
from conformance.adapters.whole.capacity import with_room
from conformance.adapters.whole.chained import as_forward, encoders_of, has_forward, sides_of, with_scores
from conformance.adapters.whole.class_source import source_of
from conformance.adapters.whole.copying import in_dtype
from conformance.adapters.whole.ctc import CtcProbes
from conformance.adapters.whole.deciding import DecideProbes
from conformance.adapters.whole.denoising import DenoisingProbes
from conformance.adapters.whole.drawn_items import DrawnItemProbes
from conformance.adapters.whole.excuse_probes import ExcuseProbes
from conformance.adapters.whole.followers import FollowerProbes
from conformance.adapters.whole.frames import FrameProbes
from conformance.adapters.whole.future_losses import FutureLossProbes
from conformance.adapters.whole.gaps import GapProbes
from conformance.adapters.whole.hidden_patches import HiddenPatchProbes
from conformance.adapters.whole.imputing import ImputeProbes
from conformance.adapters.whole.inside import InsideProbes
from conformance.adapters.whole.kinds import KINDS, kind_of
from conformance.adapters.whole.label_probes import LabelProbes
from conformance.adapters.whole.last_rows import LastRowProbes
from conformance.adapters.whole.layouts import OF_PLACES, ONE_ANSWER
from conformance.adapters.whole.making import Made
from conformance.adapters.whole.marks import with_marks
from conformance.adapters.whole.masked_losses import MaskedLossProbes
from conformance.adapters.whole.measuring import MeasureProbes
from conformance.adapters.whole.merging import MergeProbes
from conformance.adapters.whole.mixed_losses import MixedLossProbes
from conformance.adapters.whole.mixing import MixingProbes
from conformance.adapters.whole.pads import pad_of
from conformance.adapters.whole.pair_losses import PairLossProbes
from conformance.adapters.whole.parameter_groups import GroupProbes
from conformance.adapters.whole.placing import check_device, check_placed, load_weights
from conformance.adapters.whole.recommending import RecommendProbes
from conformance.adapters.whole.resizing import ResizeProbes
from conformance.adapters.whole.row_methods import RowMethodProbes
from conformance.adapters.whole.running import moved
from conformance.adapters.whole.scaling import parameters_in
from conformance.adapters.whole.searching import NoAnswer, calling_of
from conformance.adapters.whole.several_labels import SeveralLabelProbes
from conformance.adapters.whole.sizes import MAX_WIDE_PARAMETERS
from conformance.adapters.whole.span_losses import SpanLossProbes
from conformance.adapters.whole.start_probes import StartProbes
from conformance.adapters.whole.state_probes import StateProbes
from conformance.adapters.whole.ties import TieProbes
from conformance.adapters.whole.unread import UnreadProbes
from conformance.adapters.whole.used_functions import functions_called_by, text_of
from conformance.adapters.whole.vain_terms import VainTermProbes


@dataclass
class WholeModel(
    InsideProbes,
    PairLossProbes,
    LabelProbes,
    BalanceProbes,
    VainTermProbes,
    SpanLossProbes,
    BesideWordProbes,
    BestPathProbes,
    SeveralLabelProbes,
    DrawnItemProbes,
    DenoisingProbes,
    HiddenPatchProbes,
    LastRowProbes,
    ExcuseProbes,
    StateProbes,
    GroupProbes,
    RecommendProbes,
    FutureLossProbes,
    ImputeProbes,
    GapProbes,
    DecideProbes,
    FrameProbes,
    ResizeProbes,
    StartProbes,
    MeasureProbes,
    MergeProbes,
    RowMethodProbes,
    UnreadProbes,
    MixingProbes,
    CtcProbes,
    MaskedLossProbes,
    MixedLossProbes,
    FollowerProbes,
    TieProbes,
):
    """A running model with all experiments."""


# --- from what was made to a subject --------------------------------------------------------------


def whole_model(made: Made, kind: str = "", stated: Stated | None = None) -> WholeModel:
    """The model that `made` makes, as a subject of `kind` (inferred when empty). Weights that the user gives stay.

    Raises Unresolved, and StatedError when what the user states cannot be so.
    """
    stated = stated or Stated()
    check_device(stated.device)
    module = evaluating(made.fresh())
    if stated.weights:
        load_weights(module, stated.weights)
    else:
        moved(module)
    evidence: list[Fact] = []
    pairs = None
    try:
        calling = calling_of(module, shapes_of(stated.input), made.options)
    except NoAnswer as error:
        pairs = error.pairs
        try:
            calling, made = _with_scores(module, made, error) or _of_one_side(module, made, error)
        except Unresolved:
            if (main := _main_part(module)) and not stated.weights and not stated.input:
                return whole_model(_of_main_part(made, module, main, error), kind, stated)
            raise
    if not has_forward(module):
        evidence.append(Fact("forward", "decode(encode(...), ...)", f"{made.name} defines none"))
    if kind not in KINDS:
        kind, told = kind_of(module, calling)
        evidence += told
    calling = with_padding_mask(module, with_marks(module, with_masks(module, calling, kind)))
    subject = WholeModel(made, module, calling, kind, [*made.facts, *calling.facts, *evidence], pairs=pairs)
    subject = in_double(subject)
    subject = subject if stated.weights else with_room(subject)
    subject = _with_numbers_that_run(subject)
    subject.pad_id = pad_of(subject)
    if stated.device:
        fresh = in_dtype(evaluating(subject.made.fresh()), subject.torch_dtype)
        check_placed(fresh, stated.device, lambda: replace(subject, module=fresh)(**subject.example()))
        subject.device = stated.device
    return subject


def _with_numbers_that_run(subject: WholeModel) -> WholeModel:
    """The subject; where its answer is no number, it is handed what stands beside its words above zero, if that helps:
    of a time or a count a logarithm may be taken."""
    with suppress(Exception):
        inputs = subject.example()
        if np.isfinite(subject(**inputs)["out"]).all():
            return subject
        fixed = {name: partial(_above_zero, make) for name, make in subject.calling.fixed.items()}
        other = replace(subject, calling=replace(subject.calling, fixed=fixed), known={})
        if np.isfinite(other(**inputs)["out"]).all():
            return other
    return subject


def _above_zero(make: Callable[[Mapping[str, Tensor]], Any], inputs: Mapping[str, Tensor]) -> Any:
    made = make(inputs)
    return made.abs() if isinstance(made, Tensor) and made.is_floating_point() else made


def _with_scores(module: nn.Module, made: Made, error: NoAnswer) -> tuple[Calling, Made] | None:
    """How to call a model that gives a loss only, and how to make such, with the scores of each place that its loss
    compares as its answer; None where that compares others, and the module is as it was then."""
    before = vars(module).get("forward")
    if error.pairs is None:
        with suppress(Unresolved):
            calling = calling_of(with_scores(module), options=made.options, known=error.climbed)
            if calling.main.vocab and calling.layout in (*OF_PLACES, *ONE_ANSWER):
                return calling, made.answering_with_scores(str(error))
    if before is None:
        vars(module).pop("forward", None)
    else:
        module.forward = before
    return None


def _of_one_side(module: nn.Module, made: Made, error: NoAnswer) -> tuple[Calling, Made]:
    """How to call the first method that answers for one side, or the first part that does, and how to make modules
    with it as their forward; the module is such a one from now on. Raises what calling forward raised where there is
    none."""
    data = first_data(error.pairs, error.pairs.main.length or T) if error.pairs else {}
    sides = sides_of(module, error.pairs.arguments(data)) if error.pairs else []
    for method in (*encoders_of(module), *sides):
        with suppress(Unresolved):
            return calling_of(as_forward(module, method), options=made.options), made.called_by(method, str(error))
    raise error


_MOST = 0.8
"""A part with more than this share of all parameters is the model, and what is around it trains it."""


def _main_part(module: nn.Module) -> str:
    """The part, of a class of the user's, that holds most parameters of a module which gives a loss only: the encoder
    beside its criterion. "" where there is none."""
    sizes: dict[str, int] = {}
    for name, part in module.named_children():
        cls: type = type(part)
        if source_of(cls) is not None:
            sizes[name] = parameters_in(part)
    largest = max(sizes, key=lambda name: sizes[name], default="")
    return largest if largest and sizes[largest] > _MOST * parameters_in(module) else ""


def _of_main_part(made: Made, module: nn.Module, name: str, error: NoAnswer) -> Made:
    fact = Fact("model", f"{made.name}(...).{name}", str(error).removeprefix("UNRESOLVED: ").partition(",")[0])
    return made.part_of(type(module.get_submodule(name)), [*made.facts, fact], lambda whole: whole.get_submodule(name))


_PART = re.compile(r"head$|proj(ection)?(head)?$|mlp|ffn|feed_?forward|perceptron|adapter", re.IGNORECASE)
"""Names of parts that take each word alone."""


def takes_each_word_alone(subject: WholeModel) -> bool:
    """Whether an encoder of few parts, one that is called after a part, or one of vectors that neither attends nor has
    blocks, answers each word as if there were no others: a map, a norm, a table, a head."""
    if subject.kind != "encoder_model" or not subject.positions or subject.answers_stretches:
        return False
    if len(list(subject.module.modules())) > 3 and not _PART.search(type(subject.module).__name__):
        if subject.calling.main.vocab:
            return False
        with suppress(Exception):
            if subject.inside().seen & {"attention", "blocks"}:
                return False
    name = subject.calling.main.meaning
    inputs, others = (subject.example(2, T, seed) for seed in (58, 59))
    with suppress(Exception):
        before = subject(**inputs)["out"]
        for at in (0, T - 1):
            changed = {**inputs, name: inputs[name].copy()}
            changed[name][:, at] = others[name][:, at]
            rest = np.delete(subject(**changed)["out"] - before, at, 1)
            if before.shape[:2] != inputs[name].shape[:2] or rest.any():
                return False
        return True
    return False


def part(made: Made) -> WholeModel:
    """The component that `made` makes, as it runs: no whole model, so of no kind. Raises Unresolved."""
    module = evaluating(moved(made.fresh()))
    calling = part_calling(module)
    return in_double(WholeModel(made, module, calling, "", [*made.facts, *calling.facts]))


def in_double(subject: WholeModel) -> WholeModel:
    """The subject in float64; as it is where it cannot compute so, or is so large that few copies would fit in the
    memory."""
    if parameters_in(subject.module) > MAX_WIDE_PARAMETERS:
        return subject
    wide = subject.twin(torch.float64)
    with suppress(Exception):
        out = wide(**wide.example())["out"]
        if np.isfinite(out).all() and (_finite_behind_padding(wide) or not _finite_behind_padding(subject)):
            return subject.twin(torch.bfloat16) if _trains_in_half_only(wide) else wide
    return subject


def _finite_behind_padding(subject: WholeModel) -> bool:
    """Whether a sentence behind padding gets numbers: the least number of float64 that hides all keys of a query is
    minus infinity where the code turns it to float32, and then there are none. True where it takes no such padding."""
    inputs, main = subject.example(), subject.calling.main
    real = np.ones(inputs[main.meaning].shape[:2], dtype=bool)
    real[0, :2] = False
    padding = f"{main.meaning}_padding" if subject.calling.two_sided else "padding"
    with suppress(Exception):
        return bool(np.isfinite(subject(**inputs, **{padding: real})["out"]).all())
    return True


def _trains_in_half_only(subject: WholeModel) -> bool:
    """Whether its code makes numbers of half precision by hand that only parameters of half precision go together with
    in training; in evaluation torch may turn them by itself."""
    forward = inspect.unwrap(type(subject.module).forward)
    if not any("bfloat16" in text_of(one) for one in (forward, *functions_called_by(forward))):
        return False
    try:
        subject.twin().in_training(0, **subject.example())
    except RuntimeError as error:
        if "dtype" not in str(error):
            return False
        with suppress(Exception):
            half = subject.twin(torch.bfloat16)
            return bool(np.isfinite(half.in_training(0, **half.example())["out"]).all())
    return False
