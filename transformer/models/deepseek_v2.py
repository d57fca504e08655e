"""DeepSeek-V2: multi-head latent attention, and mixtures of many experts beside shared ones (DeepSeek-AI 2024)."""

from __future__ import annotations

from dataclasses import dataclass

from minigrad import nn
from transformer.feedforward import GatedFeedForward
from transformer.latent_attention import LatentAttention
from transformer.models.family import CheckpointError, Name, activation
from transformer.models.rope_scaling import magnitude
from transformer.models.rotary import GATED, NAMES, RotaryConfig, RotaryLM
from transformer.moe import MixtureOfExperts, WithShared
from transformer.positions import RoPE


@dataclass(frozen=True, kw_only=True)
class DeepseekV2Config(RotaryConfig):
    model_type = "deepseek_v2"
    fixed = {"scoring_func": "softmax", "moe_layer_freq": 1, "norm_topk_prob": False}

    vocab_size: int = 102400
    attention_bias: bool = False
    mlp_bias: bool = False
    q_lora_rank: int | None = 1536
    kv_lora_rank: int = 512
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    v_head_dim: int = 128
    first_k_dense_replace: int = 0
    n_routed_experts: int = 64
    n_shared_experts: int = 2
    num_experts_per_tok: int = 6
    moe_intermediate_size: int = 1407
    routed_scaling_factor: float = 1.0
    topk_method: str = "greedy"
    n_group: int | None = None
    topk_group: int | None = None

    kv_heads = property(lambda self: self.num_attention_heads)
    d_head = property(lambda self: self.qk_rope_head_dim)

    def rope(self) -> RoPE:
        found = super().rope()
        found.pairing = "interleaved"
        return found

    def self_attention(self, rope: RoPE) -> nn.Module:
        scale, table = (self.qk_nope_head_dim + self.qk_rope_head_dim) ** -0.5, self.rope_parameters
        if table.get("rope_type", "default") != "default" and table.get("mscale_all_dim"):
            scale *= magnitude(table["factor"], table["mscale_all_dim"]) ** 2
        return LatentAttention(
            self.hidden_size, self.num_attention_heads, rope, self.kv_lora_rank, self.qk_nope_head_dim,
            self.v_head_dim, self.q_lora_rank, self.attention_bias, self.attention_dropout, scale,
        )  # fmt: skip

    def network_of(self, layer: int) -> nn.Module:
        d, small, silu = self.hidden_size, self.moe_intermediate_size, activation(self.hidden_act)
        if layer < self.first_k_dense_replace:
            return GatedFeedForward(d, self.intermediate_size, silu, self.mlp_bias)
        if self.topk_method not in ("greedy", "group_limited_greedy"):
            raise CheckpointError(f"config: topk_method {self.topk_method!r} is not built here, only greedy ones")
        groups = (self.n_group or 1, self.topk_group or 1) if self.topk_method != "greedy" else None
        mixture = MixtureOfExperts(
            d, self.n_routed_experts, self.num_experts_per_tok, lambda: GatedFeedForward(d, small, silu),
            normalised=False, factor=self.routed_scaling_factor, groups=groups,
        )  # fmt: skip
        return WithShared(mixture, GatedFeedForward(d, small * self.n_shared_experts, silu, self.mlp_bias))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        attention = f"model.layers.{self.num_hidden_layers - 1}.self_attn"
        width = self.num_attention_heads * (self.qk_nope_head_dim + self.v_head_dim)
        return {
            "model.embed_tokens.weight": (self.vocab_size, self.hidden_size),
            f"{attention}.kv_b_proj.weight": (width, self.kv_lora_rank),
        }


ATTENTION = {"q_proj": "q_proj", "q_a_proj": "q_proj.0", "q_a_layernorm": "q_proj.1", "q_b_proj": "q_proj.2",
             "kv_a_proj_with_mqa": "kv_down", "kv_a_layernorm": "kv_norm", "kv_b_proj": "kv_up"}  # fmt: skip
MLP, OURS = "model.layers.{}.mlp", "layers.{}.feed_forward"


class DeepseekV2(RotaryLM):
    """DeepSeek-V2 with its language-model head."""

    config_class = DeepseekV2Config
    architectures = {"DeepseekV2ForCausalLM": {}}
    names = (
        *(name for name in NAMES if not name.ours[0].endswith(("q_proj.*", "k_proj.*", "v_proj.*"))),
        *(Name(f"model.layers.{{}}.self_attn.{a}.*", f"layers.{{}}.self_attn.{b}.*") for a, b in ATTENTION.items()),
        *GATED,
        Name(f"{MLP}.gate.weight", f"{OURS}.mixture.router.weight"),
        *(Name(f"{MLP}.shared_experts.{p}_proj.*", f"{OURS}.shared.{p}_proj.*") for p in ("gate", "up", "down")),
        *(Name(f"{MLP}.experts.{{}}.{p}_proj.*", f"{OURS}.mixture.experts.{{}}.{p}_proj.*")
          for p in ("gate", "up", "down")),
    )  # fmt: skip
