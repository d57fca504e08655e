"""Layers of two kinds: those that see the whole text, and those that see a window; each kind may turn its heads so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from reprlib import repr as short
from typing import Any, ClassVar, Self

from transformer.models.family import CheckpointError, Config
from transformer.models.rope_scaling import Divisors, reach, scaling
from transformer.positions import RoPE

FULL, SLIDING = "full_attention", "sliding_attention"
KINDS = {FULL: False, SLIDING: True}
OLDER_BASES = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}
EVERY = "global_attn_every_n_layers"  # older files' word for layer_types


def windows(layer_types: list, window: int | None, n_layers: int) -> list[int | None]:
    """How far each layer looks, by the names of their kinds. Raises CheckpointError for others or too few."""
    if len(layer_types) != n_layers or not all(isinstance(kind, str) and kind in KINDS for kind in layer_types):
        raise CheckpointError(f"config: layer_types must name one of {', '.join(KINDS)} for each of {n_layers} layers")
    return [window if KINDS[kind] else None for kind in layer_types]


def rope_tables(given: Any, scaled: Any, bases: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """rope_parameters, a table for each kind; bases: of those whose table does not say it.

    scaled: rope_scaling of older files, which is both kinds'. Raises CheckpointError for what is no such table.
    """
    given, scaled = given or {}, scaled or {}
    if not isinstance(given, dict) or not isinstance(scaled, dict) or {*given} - {*bases}:
        raise CheckpointError(
            f"config: rope_parameters must have a table for each of {', '.join(bases)}, got {short(given)}"
        )
    tables = {}
    for kind, base in bases.items():
        own = given.get(kind) or {}
        if not isinstance(own, dict) or own.get("partial_rotary_factor", 1.0) != 1.0:
            raise CheckpointError(f"config: rope_parameters of {kind} must be a table, and turn whole heads")
        own = {**own, **scaled}
        tables[kind] = {"rope_type": own.get("type", "default"), "rope_theta": base, **own}
    return tables


@dataclass(frozen=True, kw_only=True)
class LayerKindsConfig(Config):
    """Settings of a model whose layers are of two kinds, each with a rotation of its own."""

    fixed = {"partial_rotary_factor": 1.0}
    bases: ClassVar[Mapping[str, float]] = {FULL: 160000.0, SLIDING: 10000.0}

    hidden_size: int = 768
    num_hidden_layers: int = 22
    num_attention_heads: int = 12
    max_position_embeddings: int = 8192
    layer_types: list | None = None
    rope_parameters: dict = field(default_factory=lambda: rope_tables(None, None, LayerKindsConfig.bases))

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """As Config's; the bases of older files become those of rope_parameters."""
        settings = dict(settings)
        bases = {kind: settings.pop(name, cls.bases[kind]) for kind, name in OLDER_BASES.items()}
        tables = rope_tables(settings.get("rope_parameters"), settings.pop("rope_scaling", None), bases)
        every = settings.get(EVERY, 3)
        if type(every) is not int or every < 1:
            raise CheckpointError(f"config: {EVERY} must be a whole number, at least 1, got {short(every)}")
        config = super().from_dict({**settings, "rope_parameters": tables})
        config.scalings()
        return config

    def to_dict(self) -> dict[str, Any]:
        """As Config's, with the bases for older readers."""
        older = {name: self.rope_parameters[kind]["rope_theta"] for kind, name in OLDER_BASES.items()}
        return {**super().to_dict(), **older}

    def kinds(self) -> list[Any]:
        """Of each layer: unless given, the first of three, or of so many as older files say, sees everything."""
        every = self.extra.get(EVERY, 3)
        usual = [SLIDING if i % every else FULL for i in range(self.num_hidden_layers)]
        return usual if self.layer_types is None else self.layer_types

    @property
    def d_head(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def scalings(self) -> dict[str, tuple[Divisors, float]]:
        """By how much RoPE slows the pairs of each kind. Raises CheckpointError for scalings that are not built."""
        return {kind: scaling(table, self.d_head, self.max_position_embeddings)
                for kind, table in self.rope_parameters.items()}  # fmt: skip

    def ropes(self) -> dict[str, RoPE]:
        """The rotation of each kind."""
        tables = self.rope_parameters
        longest = max(reach(table, self.max_position_embeddings) for table in tables.values())
        return {kind: RoPE(self.d_head, longest, tables[kind]["rope_theta"], "half", *found)
                for kind, found in self.scalings().items()}  # fmt: skip
