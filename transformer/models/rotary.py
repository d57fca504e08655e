"""Decoders with rotary positions: what LLaMA, its descendants, GPT-NeoX and Phi share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from reprlib import repr as short
from typing import Any, Self

from minigrad import nn
from transformer.attention import MultiHeadAttention
from transformer.feedforward import GatedFeedForward
from transformer.layers import Layer
from transformer.models.base import CausalLM
from transformer.models.family import CheckpointError, Config, Family, Name, activation, initialise
from transformer.models.rope_scaling import Divisors, reach, scaling
from transformer.positions import RoPE


@dataclass(frozen=True, kw_only=True)
class RopeConfig(Config):
    """What all decoders with rotary positions have in common.

    The properties are the options of an architecture: a family overrides those in which it differs.
    """

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    rope_parameters: dict = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10000.0})
    attention_dropout: float = 0.0
    initializer_range: float = 0.02
    tie_word_embeddings: bool = False
    pad_token_id: int | None = None

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """As Config's; rope_theta, rope_scaling and the rotary share, as older files say it, become rope_parameters."""
        settings = dict(settings)
        older = dict(cls().rope_parameters)
        for name, new in OLDER.items():
            value = settings.pop(name, None)
            older |= {} if value is None else {new: value}
        scaled = settings.pop("rope_scaling", None) or {}
        given = settings.get("rope_parameters", scaled) or {}
        if not isinstance(given, dict):
            raise CheckpointError(f"config: rope_parameters or rope_scaling must be a table, got {short(given)}")
        if "type" in given:
            older.pop("rope_type", None)
        config = super().from_dict({**settings, "rope_parameters": {**older, **given}})
        config.interpolation()
        return config

    def to_dict(self) -> dict[str, Any]:
        """As Config's, with rope_theta, rope_scaling and the rotary share for older readers."""
        scaled = {name: value for name, value in self.rope_parameters.items() if name not in ("rope_theta", SHARE)}
        plain = self.rope_parameters.get("rope_type", "default") == "default" and "type" not in scaled
        older = {"rope_theta": self.rope_parameters["rope_theta"], "rope_scaling": None if plain else scaled}
        share = {SHARE: self.rope_parameters[SHARE]} if SHARE in self.rope_parameters else {}
        return {**super().to_dict(), **older, **share}

    def interpolation(self) -> Divisors:
        """By how much RoPE slows its pairs. Raises CheckpointError for scalings that are not built here."""
        return self._scaling()[0]

    def _scaling(self) -> tuple[Divisors, float]:
        return scaling(self.rope_parameters, self.d_rotary, self.max_position_embeddings)

    def rope(self) -> RoPE:
        """The rotation of queries and keys."""
        divisors, factor = self._scaling()
        theta = self.rope_parameters["rope_theta"]
        return RoPE(self.d_head, self.longest, theta, "half", divisors, factor, self.d_rotary)

    @property
    def longest(self) -> int:
        """How many tokens the model reads: those that dynamic scaling adds, too."""
        return reach(self.rope_parameters, self.max_position_embeddings)

    @property
    def d_rotary(self) -> int:
        """How many numbers of a head are rotated. Raises CheckpointError for a share outside (0, 1]."""
        share: Any = self.rope_parameters.get(SHARE, 1.0)
        if type(share) not in (int, float) or not 0 < share <= 1:
            raise CheckpointError(f"config: {SHARE} must lie in (0, 1], got {short(share)}")
        return int(self.d_head * share)

    @property
    def kv_heads(self) -> int:
        return self.num_attention_heads

    @property
    def d_head(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def attention(self) -> dict[str, Any]:
        """What differs in the attention: arguments of MultiHeadAttention."""
        return {"bias": False}

    def self_attention(self, rope: RoPE) -> nn.Module:
        """A layer's attention."""
        return MultiHeadAttention(
            self.hidden_size, self.num_attention_heads, self.kv_heads, dropout=self.attention_dropout, rope=rope,
            d_head=self.d_head, **self.attention(),
        )  # fmt: skip

    def norm(self) -> nn.Module:
        """One of the norms of width hidden_size."""
        raise NotImplementedError

    def network_of(self, layer: int) -> nn.Module:
        """The feed-forward network of the layer with that number."""
        return self.network()

    def network(self) -> nn.Module:
        """A layer's feed-forward network, where all are alike."""
        return GatedFeedForward(self.hidden_size, self.intermediate_size, activation(self.hidden_act))

    def windows(self) -> list[int | None]:
        """How far each layer looks back, None for all the way."""
        return [None] * self.num_hidden_layers


@dataclass(frozen=True, kw_only=True)
class RotaryConfig(RopeConfig):
    """What LLaMA and its descendants have in common: RMSNorm, and heads of keys that queries share."""

    num_key_value_heads: int | None = None
    head_dim: int | None = None
    rms_norm_eps: float = 1e-6

    def to_dict(self) -> dict[str, Any]:
        heads = {"num_key_value_heads": self.kv_heads, "head_dim": self.d_head}  # where None is not what is left out
        return {**super().to_dict(), **heads}

    @property
    def kv_heads(self) -> int:
        return self.num_attention_heads if self.num_key_value_heads is None else self.num_key_value_heads

    @property
    def d_head(self) -> int:
        return self.hidden_size // self.num_attention_heads if self.head_dim is None else self.head_dim

    def norm(self) -> nn.Module:
        return nn.RMSNorm(self.hidden_size, self.rms_norm_eps)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        attention = f"model.layers.{self.num_hidden_layers - 1}.self_attn"
        return {
            "model.embed_tokens.weight": (self.vocab_size, self.hidden_size),
            f"{attention}.q_proj.weight": (self.num_attention_heads * self.d_head, self.hidden_size),
            f"{attention}.k_proj.weight": (self.kv_heads * self.d_head, self.hidden_size),
            **self.network_shapes(),
        }

    def network_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of a layer's feed-forward network."""
        network = f"model.layers.{self.num_hidden_layers - 1}.mlp"
        return {f"{network}.gate_proj.weight": (self.intermediate_size, self.hidden_size)}


SHARE = "partial_rotary_factor"  # how much of a head is rotated
OLDER = {"rope_theta": "rope_theta", "rotary_emb_base": "rope_theta", SHARE: SHARE, "rotary_pct": SHARE}

NAMES = (
    Name("model.embed_tokens.weight", "token_embedding.weight"),
    Name("model.layers.{}.input_layernorm.weight", "layers.{}.norm1.weight"),
    Name("model.layers.{}.self_attn.q_proj.*", "layers.{}.self_attn.q_proj.*"),
    Name("model.layers.{}.self_attn.k_proj.*", "layers.{}.self_attn.k_proj.*"),
    Name("model.layers.{}.self_attn.v_proj.*", "layers.{}.self_attn.v_proj.*"),
    Name("model.layers.{}.self_attn.o_proj.*", "layers.{}.self_attn.out_proj.*"),
    Name("model.layers.{}.post_attention_layernorm.weight", "layers.{}.norm2.weight"),
    Name("model.norm.weight", "norm.weight"),
    Name("lm_head.weight", "lm_head.weight"),
)


GATED = tuple(
    Name(f"model.layers.{{}}.mlp.{name}_proj.*", f"layers.{{}}.feed_forward.{name}_proj.*")
    for name in ("gate", "up", "down")
)


class RotaryLM(CausalLM, Family):
    """A decoder of pre-norm layers with rotary attention, made of its configuration's options.

    layer: the class of its layers. Raises ValueError where heads do not divide.
    """

    ignored = (r".*\.rotary_emb\.inv_freq",)
    prefix = "model."
    names = (*NAMES, *GATED)

    def __init__(self, config: Any, layer: Callable[..., Layer] = Layer) -> None:
        super().__init__()
        self.config, self.max_len, rope = config, config.longest, config.rope()
        self.windows = config.windows()
        d = config.hidden_size
        self.token_embedding = nn.Embedding(config.vocab_size, d, config.pad_token_id)
        self.layers = nn.ModuleList(
            layer(
                config.self_attention(rope),
                config.network_of(i),
                config.norm,
                self.dropout(config),
                norm_first=True,
            )
            for i in range(config.num_hidden_layers)
        )
        self.norm = config.norm()
        self.lm_head = nn.Linear(d, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.token_embedding.weight
        initialise(self, config.initializer_range)

    @staticmethod
    def dropout(config: Any) -> float:
        """Of what is added to the stream of hidden states."""
        return 0.0
