"""Any nn.Module class as the implementation under test, without code of the user's (``--impl file.py:Class``).

The class is inferred once (`conformance.adapters.inference`): which role it plays, how it is constructed and
called, where its parameters are, what its masks mean. Each fact has its evidence, for the report to print.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from torch import nn

from conformance.adapters.inference.calls import Call
from conformance.adapters.inference.construct import Constructor
from conformance.adapters.inference.facts import DOUBT, CannotRun, Fact, NoRole, Unresolved, describe
from conformance.adapters.inference.models import looks_ahead
from conformance.adapters.inference.parts import PartOf, components, handed_axes, is_whole, whole_model
from conformance.adapters.inference.probes import SIZES
from conformance.adapters.inference.resolution import Resolution
from conformance.adapters.inference.resolve import resolution_of
from conformance.adapters.inference.roles import MODELS
from conformance.adapters.inference.subjects import ModuleSubject
from conformance.adapters.torch_subject import TorchSubject
from conformance.protocol import NotProvided, Refused

_ATTEND = ("encoder_layer", "decoder_layer", "multi_head_attention", "grouped_query_attention", "self_attention")
"""Roles whose inputs are laid out as the attention in them takes them."""

__all__ = ["Fact", "TorchModuleImplementation", "Unresolved"]


class TorchModuleImplementation:
    """A user's class in the role that it plays, or a whole model in the roles of its components; a function that makes
    modules serves as a class.

    Raises Unresolved, with what to write, when no role can be told. role: forces the role (of a whole model: picks
    the component). inference: the facts found; `notes` are their lines, `describe()` their text.
    """

    def __init__(self, cls: Callable[..., nn.Module], role: str | None = None) -> None:
        if isinstance(cls, nn.Module):
            raise Unresolved(f"{type(cls).__name__} is an instance; name the class, which is built in many sizes")
        self.name = cls.__name__
        self.unresolved: list[str] = []
        self._by_themselves: dict[str, Resolution | None] = {}
        self.resolutions = {found.role: found for found in self._components(cls, role)}
        self._lay_out_positions()
        if not self.resolutions:
            whole = resolution_of(cls, role)
            self.resolutions = {whole.role: whole}

    def _components(self, cls: Callable[..., nn.Module], role: str | None) -> Iterator[Resolution]:
        """The components of a whole model that play a role, the first of each role; none of a class that is a part."""
        try:
            constructor = Constructor(cls)
            width = {"d_model": SIZES["d_model"], "d_ff": SIZES["d_ff"]}
            model = whole_model(constructor, {**width, "n_heads": 1, "n_kv_heads": 1})
        except Exception:  # no model by itself; as a component it may have more to say
            return
        if not is_whole(constructor, model):
            return
        found: set[str] = set()
        for path, part in components(model):
            name = f"{path} ({type(part).__name__})"
            try:
                resolution = resolution_of(type(part), None, PartOf(constructor, path))
            except NoRole:
                self.unresolved.append(f"  {name}: it plays none of the roles")
                continue
            except Exception as error:
                mark = DOUBT if isinstance(error, CannotRun) else "  "
                self.unresolved.append(f"{mark}{name}: {' '.join(str(error).split())}")
                continue
            if not resolution.runs:
                self.unresolved.append(f"  {name}: it cannot be run as {resolution.role}")
            elif resolution.role not in found and role in (None, resolution.role):
                found.add(resolution.role)
                yield resolution
        if hasattr(model, "generate") and looks_ahead(model):
            self.unresolved.append(f"{DOUBT}the whole: it generates, and a token changes what is said before it")
        plain: set[str] = set()
        for name in MODELS:
            if role not in (None, name) or not _takes_tokens(type(model), name, constructor):
                continue
            try:
                resolution = resolution_of(cls, name)
            except Exception as error:
                self.unresolved.append(f"  the whole as {name}: {' '.join(str(error).split())}")
                continue
            cache_alone = name == "cached_decoder_lm" and "decoder_lm" in plain and resolution.runs
            if resolution.fits or resolution.is_mistaken or cache_alone:
                resolution.recognised |= cache_alone  # without its cache it is the formula
                plain.add(name)
                yield resolution
            else:
                self.unresolved.append(
                    f"  the whole as {name}: another design than the documents', judged by behaviour"
                )

    def _lay_out_positions(self) -> None:
        """In a whole model codes are tested in the layout in which it hands them their input: that of its attention, or
        the other one where it turns the axes in between."""
        attending = next((self.resolutions[role] for role in _ATTEND if role in self.resolutions), None)
        for role in ("sinusoidal_positions", "learned_positions"):
            codes = self.resolutions.get(role)
            if codes is None or attending is None or codes.conventions.scale is None:
                continue
            turned = _handed_turned(codes, attending)
            first = attending.conventions.batch_first is not turned
            if turned is None or first == codes.conventions.batch_first:
                continue
            codes.conventions = replace(codes.conventions, batch_first=first)
            codes.facts = [fact for fact in codes.facts if fact.subject != "layout of inputs"]
            shown = "(B, T, d)" if first else "(T, B, d)"
            codes.say("layout of inputs", shown, f"the model hands it so, by what {attending.cls.__name__} takes")

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that it plays."""
        return tuple(self.resolutions)

    @property
    def role(self) -> str:
        """Its role, or the roles of its components."""
        return ", ".join(self.resolutions)

    @property
    def inference(self) -> list[Fact]:
        return [fact for resolution in self.resolutions.values() for fact in resolution.facts]

    def build(self, role: str, config: Mapping[str, Any]) -> TorchSubject:
        """Raises NotProvided for other roles, and for options that the class has not."""
        if role not in self.resolutions:
            raise NotProvided(f"{self.name} plays the role {self.role}")
        try:
            subject = self.resolutions[role].build(config)
            if isinstance(subject, ModuleSubject) and subject.misfits and self._alone(role) is not None:
                subject.need_sizes()  # the model may decide sizes that the class takes
            return subject
        except NotProvided:
            alone = self._alone(role)
            if alone is None:
                raise
            try:
                return alone.build(config)
            except Unresolved as error:  # not other parts of the model: its own constructor
                raise Refused(f"{alone.cls.__name__} refuses it: {error}") from error

    def _alone(self, role: str) -> Resolution | None:
        """The class of a whole model's component, constructed by itself: for sizes and options that the model refuses.

        None for a class that is tested by itself, or cannot be constructed so.
        """
        if role not in self._by_themselves:
            part = self.resolutions[role]
            self._by_themselves[role] = None
            if isinstance(part.constructor, PartOf):
                with suppress(Exception):  # whatever it raises, it cannot be had
                    found = resolution_of(part.cls, role)
                    alike = _activation(found) == _activation(part)  # by itself it may have another by default
                    self._by_themselves[role] = found if found.fits and alike else None
        return self._by_themselves[role]

    @property
    def notes(self) -> list[str]:
        """The inference, a line a fact, for the report."""
        return self.describe().splitlines()

    def describe(self) -> str:
        """The inference as text, a fact a line, component by component; then the components without a role."""
        told = [describe(r.cls.__name__, r.role, r.facts) for r in self.resolutions.values()]
        several = "s" if len(self.unresolved) > 1 else ""
        heading = [f"{len(self.unresolved)} component{several} without a role"] if self.unresolved else []
        return "\n".join([*told, *heading, *self.unresolved])


def _activation(resolution: Resolution) -> str | None:
    return next((str(fact.value) for fact in resolution.facts if fact.subject == "activation"), None)


def _handed_turned(codes: Resolution, attending: Resolution) -> bool | None:
    """Whether the axes of what the model hands the one are those of the other turned around; None if unknown."""
    one, other = codes.constructor, attending.constructor
    axes = handed_axes(one, other) if isinstance(one, PartOf) and isinstance(other, PartOf) else None
    if axes is None or sorted(axes[0]) != sorted(axes[1]):
        return None
    return axes[0] != axes[1]


def _takes_tokens(cls: type[nn.Module], role: str, constructor: Constructor) -> bool:
    """Whether it has the inputs and the vocabularies of a whole model's role."""
    if role == "encoder_decoder" and not {"src_vocab", "tgt_vocab"} <= constructor.known:
        return False
    try:
        names = Call(cls, role).names
    except Unresolved:
        return False
    return role != "cached_decoder_lm" or bool({"cache", "offset"} & set(names))
