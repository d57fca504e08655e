"""The inference of one class: its role, how to build a subject of that role, and the facts found on the way."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from conformance.adapters.inference import probes
from conformance.adapters.inference.attention import resolve_attention, resolve_cached
from conformance.adapters.inference.construct import Constructor
from conformance.adapters.inference.facts import CannotRun, Unresolved
from conformance.adapters.inference.layers import resolve_layer
from conformance.adapters.inference.models import resolve_encoder_decoder, resolve_language_model
from conformance.adapters.inference.networks import resolve_embedding, resolve_tokenwise
from conformance.adapters.inference.parts import PartOf
from conformance.adapters.inference.positions import resolve_positions, resolve_rope
from conformance.adapters.inference.resolution import MODULE_SUBJECTS, Resolution
from conformance.adapters.inference.subjects import (
    Attention,
    CachedAttention,
    CachedLanguageModel,
    Embedding,
    EncoderDecoder,
    LanguageModel,
    ModuleSubject,
    Positions,
    Tokenwise,
    TransformerLayer,
)


def resolution_of(
    cls: Callable[..., nn.Module], role: str | None = None, constructor: Constructor | PartOf | None = None
) -> Resolution:
    """What can be inferred of a class, or of the class that a function makes. role: forces the role.

    Raises Unresolved, with what to write, when nothing can be guessed; CannotRun when it cannot be run in its role.
    """
    found = Resolution(cls, role, constructor)
    try:
        _resolve(found)
    except Unresolved:
        raise
    except Exception as error:
        name, computes = found.cls.__name__, isinstance(error, RuntimeError) and not found.looks_up
        raise (CannotRun if computes else Unresolved)(
            f"running {name} as {found.role} raised {type(error).__name__}: {error}; name its role as "
            f"file.py:{name}@role, or write a class with build(role, config)"
        ) from error
    return found


def _resolve(found: Resolution) -> None:
    if found.role == "rope":
        resolve_rope(found)
        return
    module = found.make(found.settings)
    if "dropout" in found.settings and found.constructor.is_shared and not _may_drop(_that_drops(found)):
        found.fixed["dropout"], found.why["dropout"] = 0.0, "has nothing that drops"
        found.say("dropout", "none", "the option is another part's: nothing in it drops")
    probes.randomise(module)
    resolvers: dict[type[ModuleSubject], Callable[[Resolution, nn.Module], None]] = {
        Attention: resolve_attention,
        CachedAttention: resolve_cached,
        Tokenwise: resolve_tokenwise,
        Positions: resolve_positions,
        Embedding: resolve_embedding,
        TransformerLayer: resolve_layer,
        LanguageModel: resolve_language_model,
        CachedLanguageModel: resolve_language_model,
        EncoderDecoder: resolve_encoder_decoder,
    }
    resolvers[MODULE_SUBJECTS[found.role]](found, module)


def _that_drops(found: Resolution) -> nn.Module:
    """It, made with a rate of dropout; as it is made otherwise where no such rate can be given."""
    try:
        return found.make({**found.settings, "dropout": 0.5})
    except Exception:
        return found.make(found.settings)


def _may_drop(module: nn.Module) -> bool:
    """Whether it has a dropout inside that is not switched off, or something that is called one."""
    return any(
        (isinstance(part, nn.Dropout) and part.p > 0)
        or any("drop" in name.lower() and value not in (None, 0) for name, value in _plain(part).items())
        for part in module.modules()
    )


def _plain(part: nn.Module) -> dict[str, object]:
    """Its attributes that are no tensors, of which nobody can say at once whether they are zero."""
    return {name: value for name, value in vars(part).items() if not isinstance(value, torch.Tensor)}
