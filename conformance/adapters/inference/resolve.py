"""The inference of one class: its role, how to build a subject of that role, and the facts found on the way."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import nn

from conformance.adapters.inference import parameters as p
from conformance.adapters.inference import probes
from conformance.adapters.inference.calls import Call, Unturned
from conformance.adapters.inference.construct import Constructor
from conformance.adapters.inference.facts import CannotRun, Fact, Unresolved
from conformance.adapters.inference.fit import fit, mend_norms
from conformance.adapters.inference.masks import Channel, opposite_in
from conformance.adapters.inference.models import resolve_encoder_decoder, resolve_language_model
from conformance.adapters.inference.parts import PartOf, class_made
from conformance.adapters.inference.positions import resolve_positions, resolve_rope
from conformance.adapters.inference.probes import NORM_EPS, SIZES, TQ, B, Probe, noise
from conformance.adapters.inference.roles import MODELS, SUPPORTED, is_norm, norms_in, role_of, turns_inside
from conformance.adapters.inference.stacks import layer_layouts
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
from conformance.adapters.torch_subject import TorchSubject, masked_row_policy, to_array
from conformance.places import innermost_line
from conformance.protocol import ROLES, Array, Arrays, NotProvided, Refused
from conformance.reference.attention import causal_mask

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
    """What was inferred of a class, or of the class that a function makes.

    Raises Unresolved, with what to write, when nothing can be guessed.

    facts: everything found, with evidence. conventions: see `Conventions`. fixed: options of the role that the
    class has decided (activation, norm_first, eps, pairing); `why`: in words, where that is not plain. attributes: what
    subjects report besides. runs: whether it could be run in its role at all; fits: whether it equals the role's
    formula; recognised: whether it equals that, or a known mistake in it. What does neither may be another design.
    own_norms: the class of a layer's norms, where they alone keep it from the formula; norms_mended: whether its
    subjects have LayerNorms in their place.
    """

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
        self.own_norms, self.norms_mended = "", False
        self.role = role or ""
        self.conventions = Conventions(Call(cls, self.role if self.role in MODELS else "").for_heads(SIZES["n_heads"]))
        module = self.make({**SIZES, "bias": True})
        if self.role not in MODELS:
            self._settle_call(module)
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
        self.settings = self._probe_settings()
        try:
            self._resolve()
        except Unresolved:
            raise
        except Exception as error:
            computes = isinstance(error, RuntimeError) and not any(
                isinstance(m, nn.Embedding) for m in module.modules()
            )
            raise (CannotRun if computes else Unresolved)(
                f"running {cls.__name__} as {self.role} raised {type(error).__name__}: {error}; name its role as "
                f"file.py:{cls.__name__}@role, or write a class with build(role, config)"
            ) from error

    def _resolve(self) -> None:
        if self.role == "rope":
            resolve_rope(self)
            return
        module = self.make(self.settings)
        if "dropout" in self.settings and self.constructor.is_shared and not _may_drop(module):
            self.fixed["dropout"], self.why["dropout"] = 0.0, "has nothing that drops"
            self.say("dropout", "none", "the option is another part's: nothing in it drops")
        probes.randomise(module)
        resolvers: dict[type[ModuleSubject], Callable[[nn.Module], None]] = {
            Attention: self._resolve_attention,
            CachedAttention: self._resolve_cached,
            Tokenwise: self._resolve_tokenwise,
            Positions: partial(resolve_positions, self),
            Embedding: self._resolve_embedding,
            TransformerLayer: self._resolve_layer,
            LanguageModel: partial(resolve_language_model, self),
            CachedLanguageModel: partial(resolve_language_model, self),
            EncoderDecoder: partial(resolve_encoder_decoder, self),
        }
        resolvers[MODULE_SUBJECTS[self.role]](module)

    def _settle_call(self, module: nn.Module) -> None:
        """Leave out an optional second input that the class refuses; fill a mask that it cannot do without; find the
        form of the turns that it is handed."""
        call = self.conventions.call
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
                for neutral in (torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1, dtype=torch.bool)):
                    call.constants[name] = neutral
                    if probes.runs(call, module, width):
                        return
                call.constants[name] = None

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
            for child in module.modules():
                if isinstance(child, nn.Dropout):  # the model may leave a part at its own default
                    child.p = values["dropout"]
        return module.eval()

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
                _without_norms(module)
            if self.norms_mended:
                mend_norms(module, self.attributes.get("eps", NORM_EPS[0]))
            subject = MODULE_SUBJECTS[self.role](self.role, settings, module, conventions)
        subject.attributes = {**self.fixed, **self.attributes, **(attributes or {})}
        return subject

    def _probe_settings(self) -> dict[str, Any]:
        """The role's settings at the probes' sizes: sizes that the class decides as it decides them."""
        role, known = ROLES[self.role], self.constructor.known
        settings = {option: SIZES.get(option, default) for option, default in role.config.items()}
        if "bias" in settings:
            settings["bias"] = True
        if "n_kv_heads" in settings and "n_kv_heads" not in known and self.role in MODELS:
            settings["n_kv_heads"] = settings["n_heads"]
        if self.role == "self_attention" and "d_k" not in known:
            settings["d_k"] = settings["d_model"]
        if "d_ff" in settings:
            self._probe_inner_width(settings)
        if "activation" in known and "activation" in settings:
            try:
                self.make({**settings, "activation": "gelu"})
            except Unresolved:
                self.constructor.names.pop("activation", None)
        return settings

    def _probe_inner_width(self, settings: dict[str, Any]) -> None:
        """How wide the feed-forward network comes out: LLaMA's is two thirds of its option, others have none."""

        def widths(d_ff: int) -> set[int]:
            made = self.make({**settings, "d_ff": d_ff})
            return {n for kernel in p.kernels(made) for n in kernel.tensor.shape} - {settings["d_model"]}

        grown = widths(96) - widths(48)
        if grown and min(grown) < 96:
            narrowed = min(grown) / 96
            self.conventions = replace(self.conventions, narrowed=narrowed)
            self.say("d_ff", f"{narrowed:.3g} of the option", f"an option of 96 gives {min(grown)} hidden units")
        found = widths(settings["d_ff"])
        if settings["d_ff"] not in found:
            settings["d_ff"] = max(found, default=settings["d_ff"])

    # --- deciding by numbers ----------------------------------------------------------------------

    def probe_eps(self, module: nn.Module) -> None:
        """The eps of the norms inside, where they have one in common."""
        eps = {probes.eps_of(norm, SIZES["d_model"]) for _, norm in norms_in(module)} - {None}
        if len(eps) == 1:
            self.attributes["eps"] = eps.pop()
            self.say("eps of the norms", self.attributes["eps"], "how much they shrink small inputs")

    # --- attention --------------------------------------------------------------------------------

    def _resolve_attention(self, module: nn.Module) -> None:
        call = self.conventions.call
        self._resolve_inputs(module)
        probe = self._probe(module)
        causal = call.form == "self" and self._probe_causal(probe)
        inputs = self._attention_inputs(probe)
        mask = causal_mask(TQ)[None, None] if causal else None
        has_norm = any(is_norm(child) for child in module.modules())
        layouts = list(p.attention_layouts(module, self.settings, output=self.role != "self_attention"))
        fit(self, layouts, inputs, mask, has_norm)
        self._probe_dropout(inputs, mask)
        if self.conventions.bare:
            _without_norms(module)
        keys = {"self": ("query",), "context": ("memory",), "qkv": ("key", "value")}[call.form]
        self.conventions = replace(self.conventions, channels=self._channels(probe, call.masks, keys))
        self._probe_outputs()

    def _resolve_inputs(self, module: nn.Module) -> None:
        """The batch axis, and whether a second input matters."""
        call = self.conventions.call
        first, evidence = probes.batch_axis(self._probe(module))
        self.conventions = replace(self.conventions, batch_first=first)
        self.say("layout of inputs", "(B, T, d)" if first else "(T, B, d)", evidence)
        if self.role != "decoder_layer" and call.form == "context" and probes.ignores(self._probe(module), "memory"):
            del call.names["memory"]
            self.say("attends to", "its own input", "the second input changes nothing")

    def _probe(self, module: nn.Module) -> Probe:
        width = self.settings.get("d_k", SIZES["d_model"])
        return Probe(module, self.conventions.call, self.conventions.batch_first, width)

    def _attention_inputs(self, probe: Probe) -> Arrays:
        """Random inputs under the role's names, equal where the module has one input for several."""
        tensors = probe.inputs()
        if self.role != "multi_head_attention":
            return {"x": to_array(tensors["query"])}
        key = tensors.get("key", tensors.get("memory", tensors["query"]))
        given = {"query": tensors["query"], "key": key, "value": tensors.get("value", key)}
        return {name: to_array(tensor) for name, tensor in given.items()}

    def _probe_causal(self, probe: Probe) -> bool:
        """Whether it hides the future by itself; one that sees the next position only is meant to.

        A module in which no position sees another is not causal: it is broken, or no attention.
        """
        ahead, behind = probes.sight(probe)
        causal = behind > 0 and ahead <= 1
        if causal:
            self.conventions = replace(self.conventions, causal=True)
            self.say("causal", True, "changing the last input changes no earlier output, with no mask given")
        if causal and ahead:
            self.facts[-1] = Fact("causal", "but for the next position", "changing it changes an output", doubtful=True)
        return causal

    def _all_names(self) -> Iterable[str]:
        return ROLES[self.role].params({**self.settings, "bias": True})

    def _channels(self, probe: Probe, parameters: Sequence[str], keys: tuple[str, ...]) -> tuple[Channel, ...]:
        found = tuple(probes.channels(probe, list(parameters), self.settings.get("n_heads", 1), keys))
        for channel in found:
            hides = channel.hides()
            means = f"{channel.encoding}; {', '.join(channel.shapes)}"
            opposite = opposite_in(vars(sys.modules[self.cls.__module__]), channel.encoding)
            if opposite:
                hides += f", but what {opposite} of its file makes marks the others"
            self.say(f"mask {channel.parameter}", means, hides, doubtful=bool(opposite) or channel.leak >= 1e-3)
        for parameter in set(parameters) - {channel.parameter for channel in found}:
            self.say(f"mask {parameter}", "not used", "the module runs with no encoding of a mask in it")
        return found

    def _probe_outputs(self) -> None:
        """Whether weights come out, and what a fully hidden row gives."""
        subject = self.build({k: v for k, v in self.settings.items() if k != "bias"} | self._bias())
        inputs = self._attention_inputs(Probe(subject.module, self.conventions.call))
        length = inputs.get("key", inputs.get("x", inputs.get("query"))).shape[1]  # type: ignore[union-attr]
        mask = np.broadcast_to(causal_mask(TQ), (1, 1, TQ, TQ)) if self.conventions.causal else None
        outputs = subject(**inputs, mask=mask) if mask is not None else subject(**inputs)
        if "weights" in outputs:
            self.say("weights", outputs["weights"].shape, "a tensor of this shape is returned or stored")
        hidden = np.zeros((B, 1, TQ, length), bool)
        try:
            self.attributes["masked_row"] = masked_row_policy(subject, inputs, hidden)
        except NotProvided:
            return
        self.say("a row whose keys are all hidden", self.attributes["masked_row"], "a mask that hides every key")

    def _bias(self) -> dict[str, bool]:
        if "bias" not in self.settings:
            return {}
        return {"bias": all(name in self.conventions.layout for name in self._all_names())}

    def _resolve_cached(self, module: nn.Module) -> None:
        """Checked one token at a time, where no mask is needed; a mistake must show with a prompt as well.

        A module that takes a mask gets the causal one when a call has several tokens, as from its model. One that turns
        queries and keys by their positions has no formula here: it is compared with itself without a cache.
        """
        self._resolve_inputs(module)
        layouts = list(p.attention_layouts(module, self.settings))
        turned = turns_inside(module, self.conventions.call)
        if turned and layouts:
            label, layout = layouts[0]
            self.attributes["positions"] = "inside"
            self.conventions = self.conventions.with_layout(layout)
            self.say("positions", "inside", f"{turned} turns queries and keys, so that their order shows")
            self.say("layout", label, "by names alone: it is compared with itself without a cache")
        else:
            steps: Any = {"x": to_array(noise(B, TQ, SIZES["d_model"])), "chunks": (1,) * TQ}
            prompted: Any = {**steps, "chunks": (TQ - 2, 1, 1)}
            fit(self, layouts, steps, also=[prompted])
        masks = self._channels(self._probe(module), self.conventions.call.masks, ("query",))
        self.conventions = replace(self.conventions, channels=masks)

    # --- networks and norms -----------------------------------------------------------------------

    def _resolve_tokenwise(self, module: nn.Module) -> None:
        layouts: dict[str, Iterable[tuple[str, p.Layout]]] = {
            "feed_forward": p.feed_forward_layouts(p.kernels(module, split=True), self.settings),
            "swiglu": p.swiglu_layouts(p.kernels(module, split=True), self.settings),
            "layer_norm": p.norm_layouts(module, True),
            "rms_norm": p.norm_layouts(module, False),
        }
        inside = any(is_norm(child) for child in module.modules() if child is not module)
        inputs = {"x": to_array(noise(B, TQ, SIZES["d_model"])) * (0.01 if self.role.endswith("norm") else 1.0)}
        fit(self, layouts[self.role], inputs, has_norm=inside)
        self._probe_dropout(inputs)

    def _probe_dropout(self, inputs: Arrays, mask: Array | None = None) -> None:
        """Dropout of the output is no option of the role, which drops inside."""
        if "dropout" not in self.constructor.known or "dropout" not in self.settings or "dropout" in self.fixed:
            return
        subject = self.subject({**self.settings, "dropout": 0.5}, self.conventions, random=True)
        subject.train()
        out = subject(**inputs, **({} if mask is None else {"mask": mask}))["out"]
        if (np.abs(out) < 1e-6).mean() > 0.2:
            self.fixed["dropout"], self.why["dropout"] = 0.0, "drops its output, where the role drops inside"
            self.say("dropout", "on the output", "in training, numbers of the output are dropped")

    def _resolve_embedding(self, module: nn.Module) -> None:
        fit(self, [("a table", {"weight": p.Place(("weight",))})], {"ids": np.arange(6).reshape(2, 3)})

    # --- layers -----------------------------------------------------------------------------------

    def _resolve_layer(self, module: nn.Module) -> None:
        call, decoder = self.conventions.call, self.role == "decoder_layer"
        self._resolve_inputs(module)
        probe = self._probe(module)
        if "norm_first" not in self.constructor.known:
            grows = float(
                probe.run(_scaled(probe, 1e4))[..., 0].abs().max() / probe.run(probe.inputs())[..., 0].abs().max()
            )
            self.fixed["norm_first"] = grows > 100.0
            self.settings["norm_first"] = grows > 100.0
            place = "before each sublayer" if grows > 100.0 else "after each sublayer"
            self.say("norm", place, f"an input 10000 times larger gives an output {grows:.3g} times larger")
        inputs = {"x": to_array(probe.inputs()["query"])}
        if decoder:
            inputs["memory"] = to_array(probe.inputs()["memory"])
        causal = self._probe_causal(probe)
        self.probe_eps(module)
        fit(self, layer_layouts(module, self.settings, decoder), inputs, causal_mask(TQ) if causal else None)
        if not self.fits and not self.fixed.get("norm_first") and not self._gives_normalised():
            self.fixed.pop("norm_first", None)  # neither place is proven: both formulas apply, and fail

        cross = [name for name in call.masks if re.search(r"src|source|mem|enc|cross", name.lower())]
        if not decoder:
            cross = []
        own = [name for name in call.masks if name not in cross]
        if decoder and not cross and len(own) > 1:
            own, cross = own[:1], own[1:]
        found = self._channels(probe, own, ("query",))
        self.conventions = replace(self.conventions, channels=found)
        if cross:
            self.conventions = replace(self.conventions, memory_channels=self._channels(probe, cross, ("memory",)))

    def _gives_normalised(self) -> bool:
        """Whether what a fresh layer gives has mean 0 and variance 1, as after a norm of its own."""
        fresh = self._probe(self.make(self.settings))
        out = fresh.run(fresh.inputs())
        spread = (out.var(-1, unbiased=False) - 1.0).abs().max()
        return bool(out.mean(-1).abs().max() < 1e-3 and spread < 1e-2)


def _scaled(probe: Probe, factor: float) -> dict[str, torch.Tensor]:
    inputs = probe.inputs()
    return {**inputs, "query": inputs["query"] * factor}


def _may_drop(module: nn.Module) -> bool:
    """Whether it has a dropout inside, or a number that is called one."""
    return any(
        isinstance(part, nn.Dropout)
        or any("drop" in name.lower() and value is not None for name, value in vars(part).items())
        for part in module.modules()
    )


def _without_norms(module: nn.Module) -> None:
    """Take the norms of queries and residuals out of a module: nn.Identity in their place."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if is_norm(child):
                setattr(parent, name, nn.Identity())
