"""OPT: GPT-2's layers with ReLU, before or after their norms, and positions that begin at 2 (Zhang et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass

from minigrad import Tensor, nn
from transformer.attention import MultiHeadAttention
from transformer.feedforward import FeedForward
from transformer.layers import Layer
from transformer.models.base import CausalLM
from transformer.models.family import Config, Family, Name, activation, initialise
from transformer.places import Start
from transformer.positions import LearnedPositions

_OFFSET = 2  # the first two rows of its table of positions are never used


@dataclass(frozen=True, kw_only=True)
class OPTConfig(Config):
    """word_embed_proj_dim: width of the embeddings, where a matrix leads to hidden_size and one back."""

    model_type = "opt"
    fixed = {"layerdrop": 0.0, "layer_norm_elementwise_affine": True, "_remove_final_layer_norm": False}

    vocab_size: int = 50272
    hidden_size: int = 768
    num_hidden_layers: int = 12
    ffn_dim: int = 3072
    max_position_embeddings: int = 2048
    do_layer_norm_before: bool = True
    word_embed_proj_dim: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0
    num_attention_heads: int = 12
    activation_function: str = "relu"
    init_std: float = 0.02
    pad_token_id: int | None = 1
    enable_bias: bool = True
    tie_word_embeddings: bool = True

    @property
    def d_embedding(self) -> int:
        return self.hidden_size if self.word_embed_proj_dim is None else self.word_embed_proj_dim

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "model.decoder.embed_tokens.weight": (self.vocab_size, self.d_embedding),
            "model.decoder.embed_positions.weight": (self.max_position_embeddings + _OFFSET, self.hidden_size),
            f"model.decoder.layers.{self.num_hidden_layers - 1}.fc1.weight": (self.ffn_dim, self.hidden_size),
        }


LAYER = {**{f"self_attn.{p}_proj": f"self_attn.{p}_proj" for p in ("q", "k", "v", "out")},
         "self_attn_layer_norm": "norm1", "final_layer_norm": "norm2",
         "fc1": "feed_forward.linear1", "fc2": "feed_forward.linear2"}  # fmt: skip


class OPT(CausalLM, Family):
    """OPT with its language-model head. Raises ValueError where num_attention_heads does not divide hidden_size."""

    config_class = OPTConfig
    architectures = {"OPTForCausalLM": {}}
    prefix = "model."
    names = (
        Name("model.decoder.embed_tokens.weight", "token_embedding.weight"),
        Name("model.decoder.embed_positions.weight", "positions.weight"),
        Name("model.decoder.project_in.weight", "project_in.weight"),
        *(Name(f"model.decoder.layers.{{}}.{theirs}.*", f"layers.{{}}.{ours}.*") for theirs, ours in LAYER.items()),
        Name("model.decoder.final_layer_norm.*", "norm.0.*"),
        Name("model.decoder.project_out.weight", "norm.1.weight"),
        Name("lm_head.weight", "lm_head.weight"),
    )

    def __init__(self, config: OPTConfig) -> None:
        super().__init__()
        self.config, self.max_len = config, config.max_position_embeddings
        d, narrow, first = config.hidden_size, config.d_embedding, config.do_layer_norm_before
        name, biased = activation(config.activation_function), config.enable_bias

        def layer() -> Layer:
            attention = MultiHeadAttention(d, config.num_attention_heads, bias=biased, dropout=config.attention_dropout)
            network = FeedForward(d, config.ffn_dim, name, biased)
            return Layer(attention, network, lambda: nn.LayerNorm(d), config.dropout, norm_first=first)

        self.token_embedding = nn.Embedding(config.vocab_size, narrow, config.pad_token_id)
        self.positions = LearnedPositions(self.max_len + _OFFSET, d)
        self.project_in = nn.Identity() if narrow == d else nn.Linear(narrow, d, bias=False)
        self.layers = nn.ModuleList(layer() for _ in range(config.num_hidden_layers))
        back = nn.Identity() if narrow == d else nn.Linear(d, narrow, bias=False)
        self.norm = nn.Sequential(nn.LayerNorm(d) if first else nn.Identity(), back)
        self.lm_head = nn.Linear(narrow, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.token_embedding.weight
        initialise(self, config.init_std)

    def embed(self, ids: Tensor, start: Start, positions: Tensor | None) -> Tensor:
        behind = None if positions is None else positions + _OFFSET
        return self.positions(self.project_in(self.token_embedding(ids)), start + _OFFSET, behind)
