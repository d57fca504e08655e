"""What is inferred of one class (`Resolution`): its role, how a subject of it is built, and the facts found on the way.

`resolve` fills it, with what stands between the two: `fit`, and a file for each family of roles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import nn

from conformance.adapters.inference import parameters as p
from conformance.adapters.inference import probes
from conformance.adapters.inference.calls import Call, Unturned
from conformance.adapters.inference.construct import Constructor, evaluating
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.adapters.inference.norms import mend_norms
from conformance.adapters.inference.parts import PartOf, class_made
from conformance.adapters.inference.probes import NORM_EPS, SIZES
from conformance.adapters.inference.roles import MODELS, SUPPORTED, is_norm, norms_in, role_of
from conformance.adapters.inference.subjects import (
    Attention,
    CachedAttention,
    CachedLanguageModel,
    Conventions,
    Embedding,
    EncoderDecoder,
    LanguageModel,
    ModuleSubject,
    Positions,
    Rope,
    Tokenwise,
    TransformerLayer,
)
from conformance.adapters.torch_subject import TorchSubject
from conformance.places import innermost_line
from conformance.protocol import ROLES, NotProvided, Refused

MODULE_SUBJECTS: dict[str, type[ModuleSubject]] = {
    "multi_head_attention": Attention,
    "grouped_query_attention": Attention,
    "self_attention": Attention,
    "cached_attention": CachedAttention,
    "layer_norm": Tokenwise,
    "rms_norm": Tokenwise,
    "feed_forward": Tokenwise,
    "swiglu": Tokenwise,
    "sinusoidal_positions": Positions,
    "learned_positions": Positions,
    "embedding": Embedding,
    "encoder_layer": TransformerLayer,
    "decoder_layer": TransformerLayer,
    "decoder_lm": LanguageModel,
    "cached_decoder_lm": CachedLanguageModel,
    "encoder_decoder": EncoderDecoder,
}


class Resolution:
    """What was inferred of a class, or of the class that a function makes: at first its role, and how it is called.

    Raises Unresolved, with what to write, when nothing can be guessed.

    looks_up: whether it has a table that is read by ids. facts: everything found, with evidence. conventions: see
    `Conventions`. fixed: options of the role that the class has decided (activation, norm_first, eps, pairing); `why`:
    in words, where that is not plain. attributes: what subjects report besides. runs: whether it could be run in its
    role at all; fits: whether it equals the role's formula; recognised: whether it equals that, or a known mistake in
    it. What does neither may be another design. own_norms: the class of a layer's norms, where they alone keep it from
    the formula; norms_mended: whether its subjects have LayerNorms in their place.
    """

    own_norms, norms_mended = "", False

    def __init__(
        self,
        cls: Callable[..., nn.Module],
        role: str | None = None,
        constructor: Constructor | PartOf | None = None,
    ) -> None:
        if role is not None and role not in SUPPORTED:
            raise Unresolved(f"role {role!r} cannot be inferred for a class; choose one of {', '.join(SUPPORTED)}")
        self.constructor = constructor or Constructor(cls)
        self.cls = cls = cls if isinstance(cls, type) else class_made(self.constructor)
        self.facts: list[Fact] = []
        self.fixed: dict[str, Any] = {}
        self.attributes: dict[str, Any] = {}
        self.why: dict[str, str] = {}
        self.runs = self.fits = self.recognised = True
        self.role = role or ""
        self.conventions = Conventions(Call(cls, self.role if self.role in MODELS else "").for_heads(SIZES["n_heads"]))
        module = self.make({**SIZES, "bias": True})
        self.looks_up = any(isinstance(part, nn.Embedding) for part in module.modules())
        if self.role not in MODELS:
            _settle_call(self, module)
        proposed = Fact("role", role, "as asked")
        if role is None:
            proposed = role_of(cls, self.constructor, self.conventions.call, module)
        self.role = str(proposed.value)
        self.facts += [proposed, self.constructor.fact(), self.conventions.call.fact()]
        if "n_heads" in ROLES[self.role].config and "n_heads" not in self.constructor.known:
            raise Unresolved(
                f"{cls.__name__} decides its number of heads by itself: write a subclass or a function around it that "
                "takes n_heads"
            )
        self.settings = _probe_settings(self)

    def say(self, subject: str, value: Any, evidence: str, doubtful: bool = False) -> None:
        self.facts.append(Fact(subject, value, evidence, doubtful))

    @property
    def is_mistaken(self) -> bool:
        """Whether it equals the role's formula with a known mistake."""
        return any(fact.subject == "looks like" for fact in self.facts)

    # --- building ---------------------------------------------------------------------------------

    def make(self, settings: Mapping[str, Any]) -> nn.Module:
        """The module for the role's settings, in evaluation mode."""
        values = {"dropout": 0.0, "max_len": 128, "bias": True, "n_kv_heads": settings.get("n_heads"), **settings}
        if "n_heads" in values and self.role != "self_attention":
            values["d_k"] = values["d_model"] // values["n_heads"]
        values["d_k"] = values["d_v"] = values.get("d_k", values.get("d_model"))
        if "d_ff" in values:
            values["d_ff"] = ceil(values["d_ff"] / self.conventions.narrowed)
        if self.role == "learned_positions" and "max_len" not in self.constructor.known:
            values["vocab"] = values["max_len"]  # a table of positions, whose rows are called embeddings
        if "padding_idx" in values:
            values["pad_id"] = values["padding_idx"]
        values["d_out"] = values["d_k"] if self.role == "self_attention" else values.get("d_model")
        keep = {
            k: v
            for k, v in values.items()
            if v is not None and (k not in self.fixed or self.constructor.config_parameter)
        }
        module: nn.Module = self.constructor.make(keep)
        if "dropout" not in self.constructor.known or isinstance(self.constructor, PartOf):
            for child in module.modules():  # the model may leave a part at its own default
                if isinstance(child, nn.Dropout):
                    child.p = values["dropout"]
                vars(child).update(dict.fromkeys(_rates(child), values["dropout"]))
        return evaluating(module)

    def build(self, config: Mapping[str, Any]) -> TorchSubject:
        """A subject. Raises NotProvided for options that the class has not."""
        settings = ROLES[self.role].settings(config)
        for option, value in self.fixed.items():
            if settings.get(option, value) != value:
                why = self.why.get(option, f"has {option} {value!r}, and no option for {settings[option]!r}")
                raise NotProvided(f"{self.cls.__name__} {why}")
        if "d_k" in self.constructor.known and settings.get("d_model", 0) % settings.get("n_heads", 1):
            raise NotProvided(f"{self.cls.__name__} takes the width of a head by itself")
        turned = any(isinstance(value, Unturned) for value in self.conventions.call.constants.values())
        if turned and settings["d_model"] // settings.get("n_heads", 1) % 2:
            raise Refused(f"{self.cls.__name__} turns pairs, and the width of a head is odd here")
        for option, neutral in (("dropout", 0.0), ("n_kv_heads", settings.get("n_heads")), ("padding_idx", None)):
            named = "pad_id" if option == "padding_idx" else option
            if settings.get(option, neutral) != neutral and named not in self.constructor.known:
                raise NotProvided(f"{self.cls.__name__}'s constructor has no option for {option}")
        try:
            subject = self.subject(settings, self.conventions)
        except (Unresolved, ValueError, AssertionError) as error:
            if isinstance(self.constructor, PartOf) and isinstance(error, Unresolved):  # perhaps it is another part
                raise NotProvided(
                    f"{self.constructor.whole.cls.__name__} cannot be built in this size: {error}"
                ) from error
            said = str(error) or f"{type(error).__name__} at {innermost_line(error)}"
            raise Refused(f"{self.cls.__name__} refuses these sizes: {said}") from error
        if self.role == "sinusoidal_positions" and "max_len" not in self.constructor.known:
            try:
                subject(x=np.zeros((1, settings["max_len"], settings["d_model"])))
            except Exception as error:
                raise NotProvided(
                    f"{self.cls.__name__} does not serve {settings['max_len']} positions here, and has no option for it"
                ) from error
        if self.role == "embedding" and settings["padding_idx"] != getattr(subject.module, "padding_idx", None):
            raise NotProvided(f"{self.cls.__name__} has its own padding_idx, {subject.module.padding_idx}")
        return subject

    def subject(
        self,
        settings: Mapping[str, Any],
        conventions: Conventions,
        attributes: Mapping[str, Any] | None = None,
        random: bool = False,
    ) -> TorchSubject:
        subject: TorchSubject
        if self.role == "rope":
            subject = Rope(settings, lambda width: self.make({**settings, "d_model": width}), conventions)
        else:
            module = self.make(settings)
            if random:
                probes.randomise(module)
            if conventions.bare:
                without_norms(module)
            if self.norms_mended:
                mend_norms(module, self.attributes.get("eps", NORM_EPS[0]))
            subject = MODULE_SUBJECTS[self.role](self.role, settings, module, conventions)
        subject.attributes = {**self.fixed, **self.attributes, **(attributes or {})}
        return subject

    # --- deciding by numbers ----------------------------------------------------------------------

    def probe_eps(self, module: nn.Module) -> None:
        """The eps of the norms inside, where they have one in common."""
        eps = {probes.eps_of(norm, SIZES["d_model"]) for _, norm in norms_in(module)} - {None}
        if len(eps) == 1:
            self.attributes["eps"] = eps.pop()
            self.say("eps of the norms", self.attributes["eps"], "how much they shrink small inputs")

    # --- networks and norms -----------------------------------------------------------------------


def _settle_call(found: Resolution, module: nn.Module) -> None:
    """Leave out an optional second input that the class refuses; fill a mask that it cannot do without; find the
    form of the turns that it is handed."""
    call = found.conventions.call
    width = SIZES["d_model"]
    if "memory" in call.optional and {"query", "memory"} <= set(call.names):
        takes = probes.runs(call, module, width)
        memory = call.names.pop("memory")
        matters = takes and not probes.same_without(call, module, width, memory)
        needed = not takes and not probes.runs(call, module, width)
        if matters or needed:
            call.names["memory"] = memory
    turns = [name for name, value in call.constants.items() if isinstance(value, Unturned)]
    for forms in zip(*(Unturned.forms(name.lower()) for name in turns), strict=False):
        if probes.runs(call, module, width):
            break
        call.constants.update(zip(turns, forms, strict=True))
    if not probes.runs(call, module, width):
        for name in [name for name in call.masks if call.constants.get(name, ...) is None]:
            for axes in (2, 3, 4):  # one with too many gives the scores more, and the heads another place
                for neutral in (torch.zeros(axes * (1,)), torch.ones(axes * (1,), dtype=torch.bool)):
                    call.constants[name] = neutral
                    if probes.runs(call, module, width):
                        return
            call.constants[name] = None


def _probe_settings(found: Resolution) -> dict[str, Any]:
    """The role's settings at the probes' sizes: sizes that the class decides as it decides them."""
    role, known = ROLES[found.role], found.constructor.known
    settings = {option: SIZES.get(option, default) for option, default in role.config.items()}
    if "bias" in settings:
        settings["bias"] = True
    if "n_kv_heads" in settings and "n_kv_heads" not in known and found.role in MODELS:
        settings["n_kv_heads"] = settings["n_heads"]
    if found.role == "self_attention" and "d_k" not in known:
        settings["d_k"] = settings["d_model"]
    if "d_ff" in settings:
        _probe_inner_width(found, settings)
    if "activation" in known and "activation" in settings:
        try:
            found.make({**settings, "activation": "gelu"})
        except Unresolved:
            found.constructor.names.pop("activation", None)
    return settings


def _probe_inner_width(found: Resolution, settings: dict[str, Any]) -> None:
    """How wide the feed-forward network comes out: LLaMA's is two thirds of its option, others have none."""

    def widths(d_ff: int) -> set[int]:
        made = found.make({**settings, "d_ff": d_ff})
        return {n for kernel in p.kernels(made) for n in kernel.tensor.shape} - {settings["d_model"]}

    grown = widths(96) - widths(48)
    if grown and min(grown) < 96:
        narrowed = min(grown) / 96
        found.conventions = replace(found.conventions, narrowed=narrowed)
        found.say("d_ff", f"{narrowed:.3g} of the option", f"an option of 96 gives {min(grown)} hidden units")
    inner = widths(settings["d_ff"])
    if settings["d_ff"] not in inner:
        settings["d_ff"] = max(inner, default=settings["d_ff"])


def without_norms(module: nn.Module) -> None:
    """Take the norms of queries and residuals out of a module: nn.Identity in their place."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if is_norm(child):
                setattr(parent, name, nn.Identity())


def _rates(module: nn.Module) -> list[str]:
    """Its own attributes that are rates of dropout, as nn.MultiheadAttention has one."""
    return [n for n, value in vars(module).items() if "drop" in n.lower() and type(value) is float and 0 < value < 1]
