"""GPT-2: learned positions, pre-norm layers with LayerNorm and GELU (Radford et al. 2019)."""

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


@dataclass(frozen=True, kw_only=True)
class GPT2Config(Config):
    model_type = "gpt2"
    fixed = {"add_cross_attention": False, "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False}

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True

    @property
    def d_ff(self) -> int:
        return 4 * self.n_embd if self.n_inner is None else self.n_inner

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "transformer.wte.weight": (self.vocab_size, self.n_embd),
            "transformer.wpe.weight": (self.n_positions, self.n_embd),
            f"transformer.h.{self.n_layer - 1}.mlp.c_fc.weight": (self.n_embd, self.d_ff),
        }


class GPT2(CausalLM, Family):
    """GPT-2 with its language-model head. Raises ValueError where n_head does not divide n_embd."""

    config_class = GPT2Config
    architectures = {"GPT2LMHeadModel": {}, "GPT2Model": {}}
    ignored = (r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",)
    prefix = "transformer."
    names = (
        Name("transformer.wte.weight", "token_embedding.weight"),
        Name("transformer.wpe.weight", "positions.weight"),
        Name("transformer.h.{}.ln_1.*", "layers.{}.norm1.*"),
        Name("transformer.h.{}.attn.c_attn.*", *(f"layers.{{}}.self_attn.{p}_proj.*" for p in "qkv"), transposed=True),
        Name("transformer.h.{}.attn.c_proj.*", "layers.{}.self_attn.out_proj.*", transposed=True),
        Name("transformer.h.{}.ln_2.*", "layers.{}.norm2.*"),
        Name("transformer.h.{}.mlp.c_fc.*", "layers.{}.feed_forward.linear1.*", transposed=True),
        Name("transformer.h.{}.mlp.c_proj.*", "layers.{}.feed_forward.linear2.*", transposed=True),
        Name("transformer.ln_f.*", "norm.*"),
        Name("lm_head.weight", "lm_head.weight"),
    )

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.config, self.max_len = config, config.n_positions
        d, dropout = config.n_embd, config.resid_pdrop
        self.token_embedding = nn.Embedding(config.vocab_size, d)
        self.positions = LearnedPositions(config.n_positions, d, config.embd_pdrop)
        self.layers = nn.ModuleList(
            Layer(
                MultiHeadAttention(d, config.n_head, dropout=config.attn_pdrop),
                FeedForward(d, config.d_ff, activation(config.activation_function)),
                lambda: nn.LayerNorm(d, config.layer_norm_epsilon),
                dropout,
                norm_first=True,
            )
            for _ in range(config.n_layer)
        )
        self.norm = nn.LayerNorm(d, config.layer_norm_epsilon)
        self.lm_head = nn.Linear(d, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.token_embedding.weight
        initialise(self, config.initializer_range)
        for name, parameter in self.named_parameters():
            if name.endswith(("out_proj.weight", "linear2.weight")):  # these add up along the layers (section 2.3)
                nn.init.normal_(parameter, 0.0, config.initializer_range / (2 * config.n_layer) ** 0.5)

    def embed(self, ids: Tensor, start: Start, positions: Tensor | None) -> Tensor:
        return self.positions(self.token_embedding(ids), start, positions)
