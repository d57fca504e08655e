"""What `--impl` gives for PyTorch code: the whole model as it runs, and its components in the roles that they play.

`kind` is what the model is (a key of the whole models' roles), None for a component by itself. `untested` says, in one
sentence each, what of the thing that was pointed at could not be tested, and why.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from conformance.adapters import Specification, SpecificationError, programs
from conformance.adapters.functions.implementation import FunctionImplementation, of_class
from conformance.adapters.helpers.beside import (
    classes_beside,
    criteria_beside,
    functions_beside,
    methods_of,
    methods_of_parts,
    objects_beside,
    of_guest,
    training_methods_of,
)
from conformance.adapters.helpers.implementation import HelpersImplementation
from conformance.adapters.inference.construct import Constructor, evaluating
from conformance.adapters.inference.facts import DOUBT, RUNNING, Unresolved, describe
from conformance.adapters.inference.resolution import Resolution
from conformance.adapters.stated import Stated, StatedError
from conformance.adapters.torch_module import TorchModuleImplementation
from conformance.adapters.undropped import NoDropouts
from conformance.adapters.whole.attention_scale import says_unscaled, starts_scaled
from conformance.adapters.whole.class_source import source_of
from conformance.adapters.whole.findings import Finding
from conformance.adapters.whole.guests import Guest
from conformance.adapters.whole.in_place import in_place
from conformance.adapters.whole.making import ONE_SIDE, Made, all_made_of, made_of
from conformance.adapters.whole.model import WholeModel, part, takes_each_word_alone, whole_model
from conformance.adapters.whole.names import families_of
from conformance.adapters.whole.reference import Difference, first_difference
from conformance.adapters.whole.remaking import otherwise_made, reads_words
from conformance.adapters.whole.shapes import CONVOLUTIONS, OVER_PLACES
from conformance.adapters.whole.variants import variants
from conformance.protocol import WHOLE_MODELS, NotProvided

NORM = "norm-is-its-formula"
_IS_UNSCALED = re.compile(r"do(es)? not scale|not (scaled|divided)|scale of the scores is 1\.$", re.IGNORECASE)
"""Of what a class looks like: that it leaves its scores as they are."""
_NORM_SIDES = re.compile(r"(pre|post)_?(layer_?)?(norm|ln)|(norm|ln)_?first|normalize_?before")
"""Names of flags by which a layer is told where its norms stand."""


class PointedImplementation:
    """A class, a function, an expression or an instance of PyTorch code.

    stated: what the user says of it. reference: a second one to compare it with, and its specification; `difference`
    is the first module whose output differs. guest: what is tested beside it, in the place of its own file. Raises
    Unresolved, in one sentence, when neither a whole model nor a component nor a function beside it can be run, and
    StatedError when what is stated cannot be so.
    """

    def __init__(
        self,
        found: Any,
        spec: Specification,
        stated: Stated | None = None,
        reference: tuple[Any, Specification] | None = None,
        guest: Guest | None = None,
    ) -> None:
        stated = stated or Stated()
        self.name = spec.name.partition("(")[0] or spec.text
        self.untested: list[str] = []
        self.left_out = programs.told(spec.target) if spec.is_file else []
        self.whole: WholeModel | None = None
        self.parts: TorchModuleImplementation | FunctionImplementation | None = None
        role = spec.role or None
        self.infers = role is None
        reasons: list[SpecificationError] = []
        made: Made | None = None
        try:
            made = made_of(found, spec)
        except SpecificationError as error:
            reasons.append(error)
        if made is not None and role in (None, *WHOLE_MODELS):
            try:
                self.whole = whole_model(made, role or "", stated)
            except StatedError:
                raise
            except SpecificationError as error:
                if stated.options:  # what is stated speaks of the whole
                    raise
                reasons.append(error)
                made, self.whole = otherwise_made(all_made_of(found, spec), made, error, role or "", stated)
        if role is None or role not in WHOLE_MODELS:
            try:
                maker = found if made is None or isinstance(found, nn.Module) else made.maker
                self.parts = TorchModuleImplementation(maker, role)
            except Exception as error:
                told = error if isinstance(error, SpecificationError) else Unresolved(" ".join(str(error).split()))
                reasons.append(told)
        if isinstance(found, type) and role is None and not (self.parts and _fits(self.parts)):
            self.parts = of_class(found, self.name) or self.parts
        ran, self.whole = self.whole, self.whole if self.whole and self._is_whole(self.whole) else None
        self.running = self.whole
        if self.running is None and made is not None and role not in WHOLE_MODELS:
            try:
                self.running = part(made)
            except Exception as error:
                reasons.append(Unresolved(" ".join(str(error).split())))
        if self.running is None and not (self.parts and _fits(self.parts)) and role is None and isinstance(found, type):
            with suppress(Unresolved):
                self.running = in_place(found, str(reasons[0]))
        if role is None and self.running is not None and self.parts and self._maps_to_another_width():
            self.parts = None
        if self.running is None and self.parts is None and ran is not None and ran.calling.reads_its_data:
            self.running = ran  # it ran as a model, and is nothing else
            self.whole = None if takes_each_word_alone(ran) else ran
        in_parts = made if self.running is None and made and role is None and reads_words(made) else None
        self.beside: HelpersImplementation | None = None
        shown = self.whole.twin().module if self.whole else evaluating(in_parts.fresh()) if in_parts else None
        if shown is not None and role is None:
            options = made.options if made else {}
            beside = of_guest(guest, shown, options) if guest else _beside(found, shown, options)
            self.beside = HelpersImplementation(beside, self.name, self.whole)
        self.reference = reference[1].text or reference[1].name if reference else ""
        self.difference = self._difference_from(*reference, role or "", stated) if reference else None
        if self.running is None and self.parts is None and not (self.beside and self.beside.roles):
            asked_for_a_part = role is not None and role not in WHOLE_MODELS
            raise reasons[-1 if asked_for_a_part else 0]  # what comes later follows from the first
        if self.whole is not None and not self.whole.kind:
            self.untested.append(
                f"{self.name} is a whole model, and what it shall be is open: {self.whole.facts[-1].evidence}"
            )
        if self.whole is not None and (one := next((f for f in self.whole.facts if f.subject == ONE_SIDE), None)):
            self.untested.append(f"of {self.name} only {one.value} was run: {one.evidence}")
        if in_parts:
            why = str(reasons[0]).removeprefix("UNRESOLVED: ")
            tested = "parts of" if self.parts is not None else "functions beside"
            self.untested.append(f"only {tested} {self.name} were tested, and not how they work together: {why}")
        if self.whole is None and (self.running or self.parts):
            self.untested += self._untested_part()

    def _difference_from(self, found: Any, spec: Specification, role: str, stated: Stated) -> Difference | None:
        if self.running is None:
            raise StatedError(f"--claims-reference: {self.name} is no model that could be run, so nothing is compared")
        theirs = whole_model(made_of(found, spec), role, Stated(input=stated.input, device=stated.device))
        return first_difference(self.running, theirs)

    def _is_whole(self, whole: WholeModel) -> bool:
        """Whether it is a model and no component: it reads tokens through a table, or images, or plays no role and
        gives other vectors than it takes, or is a stack of blocks. What takes each word alone is a part. What gives a
        picture of the same shape, and neither attends nor convolves, takes vectors, which the numbers of a picture may
        be, too. What takes one sentence and no batch answers each word, and is judged as it runs. What calls itself an
        embedding and does not attend is part of a model."""
        main = whole.calling.main
        if not whole.calling.reads_its_data or whole.rows_are_words:
            return False
        seen: frozenset[str] = frozenset()
        with suppress(Exception):
            seen = whole.inside().seen
        if not seen & {"attention", "blocks"} and takes_each_word_alone(whole):
            return False
        if re.search(r"embed", self.name, re.IGNORECASE) and "attention" not in seen:
            return False
        is_image = len(main.shape) == 3
        same_shape = is_image and whole.calling.outputs == math.prod(size or 0 for size in main.shape)
        convolves = any(isinstance(part, CONVOLUTIONS) for part in whole.module.modules())
        if same_shape and not convolves and not seen & {"attention", "blocks"}:
            return False
        if main.vocab or is_image:
            return len(list(whole.module.modules())) > 3
        if (whole.answers_stretches or whole.calling.takes_several_kinds) and "attention" in seen:
            return True
        gives_others = whole.calling.outputs != main.shape[-1]
        if self.parts is not None:  # a part of it plays a role, such as a norm, and it does not
            own = type(whole.module)
            plays = not _resolutions(self.parts) or any(one.cls is own for one in _resolutions(self.parts).values())
            return not plays and gives_others and "blocks" in seen
        return gives_others or "blocks" in seen

    def _maps_to_another_width(self) -> bool:
        """Whether what was taken for a feed-forward network by its names runs, and gives other vectors than it takes: a
        router, a head."""
        assert self.parts is not None
        assert self.running is not None
        found = _resolutions(self.parts).values()
        main = self.running.calling.main
        gives_others = bool(main.shape) and self.running.calling.outputs != main.shape[-1]
        return gives_others and not _fits(self.parts) and {one.role for one in found} == {"feed_forward"}

    def _untested_part(self) -> list[str]:
        """Why a component was not tested: neither is it the formula of a role, nor did its run show what it is."""
        if self.parts is not None and _fits(self.parts):
            return []
        resolutions = _resolutions(self.parts).values()
        seen: frozenset[str] = frozenset()
        if self.running is not None:
            with suppress(Exception):
                seen = self.running.inside().seen
        wanted = families_of(self.name)
        parts = self.running.module.modules() if self.running else ()
        inner = {type(part).__name__ for part in parts if not isinstance(part, OVER_PLACES)} - {self.name}
        if resolutions or any("modules" not in families_of(name) for name in inner):
            wanted -= {"modules"}  # its role, or the parts inside, promise more
        if seen & wanted:
            return []
        shown = " or ".join(sorted(wanted - {"modules"}))
        reasons = [
            f"{r.cls.__name__} as {r.role}: it is not the formula in any layout that is known" for r in resolutions
        ]
        return [*reasons, f"{self.name} as it runs: no {shown} is seen in it"][:1]

    def while_asked(self, roles: Iterable[str]) -> AbstractContextManager[Any]:
        """Where a model runs in float64, torch's fused attention is off, on the way back, too (see
        `calling.default_dtype`)."""
        is_wide = self.running is not None and self.running.torch_dtype is torch.float64
        exact = is_wide and not {"module", *WHOLE_MODELS}.isdisjoint(roles)
        return sdpa_kernel(SDPBackend.MATH) if exact else nullcontext()

    @property
    def draws_anew(self) -> bool:
        """Whether it gives other answers to the same input in evaluation mode."""
        return self.running is not None and self.running.draws_anew

    @property
    def undropped(self) -> type[NoDropouts] | None:
        """The surroundings in which its answers are not random, where dropouts in evaluation mode make them so."""
        return NoDropouts if self.running is not None and self.running.drops_in_evaluation else None

    @property
    def kind(self) -> str | None:
        return (self.whole.kind or None) if self.whole else None

    @property
    def is_large(self) -> bool:
        """Whether it has more parameters than a test should take, and no option makes it smaller."""
        return self.running is not None and self.running.made.large

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that it plays, a whole model's first."""
        whole = ("module", *(("model", self.kind) if self.kind else ())) if self.running else ()
        beside = self.beside.roles if self.beside else ()
        return tuple(dict.fromkeys((*whole, *(self.parts.roles if self.parts else ()), *beside)))

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        """A subject: of a whole model a copy, whose experiments leave the others alone. Raises NotProvided."""
        if role == "module" and self.running is not None:
            return self.running.later_twin()
        if role in WHOLE_MODELS:
            if self.whole is None or role not in ("model", self.whole.kind):
                raise NotProvided(f"{self.name} is no {role.replace('_', ' ')}")
            return self.whole.later_twin()
        if self.beside is not None and role in self.beside.roles and (not self.parts or role not in self.parts.roles):
            return self.beside.build(role, config)
        if self.parts is None:
            raise NotProvided(f"{self.name} has no component that plays the role {role}")
        found = _resolutions(self.parts).get(role)
        if found is not None and not found.recognised:
            raise NotProvided(
                f"{found.cls.__name__} is neither the formula of a {role.replace('_', ' ')} nor a known mistake"
            )
        if found is not None and found.own_norms:  # a mistake of theirs that is told is none of the layer's
            found.norms_mended = self._is_told(found.own_norms)
        if found is not None and self.whole is not None and (told := _told_its_norms(found.cls)):
            raise NotProvided(f"the callers of {found.cls.__name__} say where its norms stand, by {told}")
        if found is not None and _looks_unscaled(found) and self._means_no_scale(found.cls):
            raise NotProvided(f"{found.cls.__name__} leaves its scores unscaled on purpose, by its words or weights")
        if found is not None and _looks_causal(found) and (told := _told_to_be_causal(found.cls)):
            raise NotProvided(f"{found.cls.__name__} hides the future where its callers ask for it, by {told}")
        if role == "swiglu" and found is not None and (told := _other_gate(found.cls)):
            raise NotProvided(f"{found.cls.__name__} is no SwiGLU by its own words: its gate goes through {told}")
        return self.parts.build(role, config)

    def _means_no_scale(self, cls: type) -> bool:
        """Whether a class says that its scores are left as they are, or its maps begin with the scale in them."""
        parts = [one for one in self.whole.made.fresh().modules() if type(one) is cls] if self.whole else []
        return says_unscaled(cls) or any(map(starts_scaled, parts))

    def _is_told(self, norm: str) -> bool:
        """Whether the recorded run shows a mistake in norms of this class, by name."""
        if self.running is None:
            return False
        told: list[Finding] = []
        with suppress(Exception):
            told = [one for one in self.running.inside().findings if one.claim == NORM and one.certain]
        paths = [path for one in told for path in one.paths]
        return any(type(self.running.module.get_submodule(path)).__name__ == norm for path in paths)

    def variants(self) -> Iterator[tuple[str, _Variant]]:
        """The whole model made with its other options, one option each."""
        for option, model in variants(self.whole) if self.whole is not None else ():
            yield option, _Variant(self.name, model)

    @property
    def graph(self) -> list[dict[str, Any]]:
        """The boxes of the model's graph, as values of JSON; none before a claim needed the recorded run."""
        inside = self.running.known.get("inside") if self.running is not None else None
        if inside is None:
            return []
        roles: dict[type, list[str]] = {}
        for role, found in _resolutions(self.parts).items():
            roles.setdefault(found.cls, []).append(role)
        return [box.to_json(roles) for box in inside.graph]

    @property
    def notes(self) -> list[str]:
        """What was inferred, a line a fact."""
        lines = [DOUBT + one for one in self.left_out]
        if self.difference is not None:
            lines.append(f"{DOUBT}{self.difference}")
        elif self.reference:
            lines.append(f"every module gives what it gives in the reference {self.reference}")
        if self.running is not None:
            kind = (self.whole.kind or "model") if self.whole is not None else RUNNING
            lines += describe(self.name, kind, self.running.facts).splitlines()
        lines += self.beside.notes if self.beside else []
        return lines + (self.parts.notes if self.parts else [])

    def describe(self) -> str:
        return "\n".join(self.notes)


def _beside(found: Any, shown: nn.Module, options: Mapping[str, Any]) -> list[Callable[..., Any]]:
    """What can be called in the file of a model, and of its methods what is no part of its forward."""
    found_beside = [*functions_beside(found, shown, options), *methods_of(shown), *methods_of_parts(shown)]
    found_beside += training_methods_of(shown)
    found_beside += [*criteria_beside(found), *classes_beside(found), *objects_beside(found, shown, options)]
    return found_beside


@dataclass(frozen=True)
class _Variant:
    """A whole model made with another option: what `build` gives for its roles."""

    name: str
    whole: WholeModel

    def build(self, role: str, config: Mapping[str, Any]) -> WholeModel:
        if role not in ("module", "model", self.whole.kind):
            raise NotProvided(f"{self.name} is no {role.replace('_', ' ')}")
        return self.whole.twin()


def _looks_unscaled(found: Resolution) -> bool:
    """Whether a class is the formula of its role but for scores that are left as they are."""
    return any(fact.subject == "looks like" and _IS_UNSCALED.search(str(fact.value)) for fact in found.facts)


def _looks_causal(found: Resolution) -> bool:
    """Whether a class is the formula of its role but for a causal mask between two sequences."""
    return any(fact.subject == "looks like" and "causal mask" in str(fact.value) for fact in found.facts)


def _told_to_be_causal(cls: type) -> str:
    """The parameter of a constructor by which callers say whether the future is hidden; "" for none."""
    with suppress(Exception):
        return next(iter(Constructor(cls).names.get("causal", [])), "")
    return ""


def _other_gate(cls: type) -> str:
    """The function of a gate that the class names, where that is not SwiGLU's (GEGLU, ReGLU); "" for none."""
    source = (source_of(cls) or ("", "", 0))[0]
    if re.search(r"(?i)swi_?glu|silu|swish", source):
        return ""
    named = re.search(r"(?i)\b(gelu|relu|sigmoid|tanh)\b|geglu|reglu", source)
    return named[0] if named else ""


def _told_its_norms(cls: type) -> str:
    """The parameter of a layer's forward that says where its norms stand; "" for none."""
    with suppress(TypeError, ValueError):
        if issubclass(cls, nn.Module):
            names = inspect.signature(cast(type[nn.Module], cls).forward).parameters
            return next((name for name in names if _NORM_SIDES.fullmatch(name.lower())), "")
    return ""


def _resolutions(parts: TorchModuleImplementation | FunctionImplementation | None) -> Mapping[str, Resolution]:
    """What was inferred of classes, by role."""
    return parts.resolutions if isinstance(parts, TorchModuleImplementation) else {}


def _fits(parts: TorchModuleImplementation | FunctionImplementation) -> bool:
    """Whether something in it is the formula of its role, or that with a known mistake."""
    found = _resolutions(parts).values()
    return isinstance(parts, FunctionImplementation) or any(each.runs and each.recognised for each in found)
