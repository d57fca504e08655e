"""The decoder-only language model, as document 002 builds it in LLaMA's style, with its KV cache."""

from __future__ import annotations

from minigrad import Tensor, nn
from transformer.attention import GroupedQueryAttention, check_heads
from transformer.cache import LayerCache
from transformer.feedforward import SwiGLU
from transformer.models.base import CausalLM
from transformer.positions import RoPE


class DecoderLMLayer(nn.Module):
    """x + attn(attn_norm(x)), then x + ffn(ffn_norm(x)): pre-RMSNorm, grouped-query attention, SwiGLU."""

    def __init__(
        self, d_model: int, n_heads: int, n_kv_heads: int, d_ff: int, dropout: float = 0.0, rope: RoPE | None = None
    ) -> None:
        super().__init__()
        self.attn_norm = nn.RMSNorm(d_model, eps=1e-6)
        self.attn = GroupedQueryAttention(d_model, n_heads, n_kv_heads, dropout=dropout, rope=rope)
        self.ffn_norm = nn.RMSNorm(d_model, eps=1e-6)
        self.ffn = SwiGLU(d_model, d_ff, dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: LayerCache | None = None) -> Tensor:
        """x ``(B, T, d_model)``, mask to ``(B, H, T, T)`` (cached positions included); returns ``(B, T, d_model)``."""
        x = x + self.attn(self.attn_norm(x), mask, cache)
        return x + self.ffn(self.ffn_norm(x))


class DecoderLM(CausalLM):
    """Next-token logits: token embedding, n_layers decoder layers, RMSNorm, a head that is the embedding (`tied`).

    rope: the pairing of the rotary positions, "interleaved" or "half", or None (document 002 prints none, and without
    them the model sees order only through the causal mask). Every Linear starts from N(0, 0.02).
    """

    def __init__(
        self,
        vocab: int,
        d_model: int = 512,
        n_heads: int = 8,
        n_kv_heads: int = 4,
        n_layers: int = 6,
        d_ff: int = 1376,
        max_len: int = 2048,
        dropout: float = 0.0,
        rope: str | None = "interleaved",
        tied: bool = True,
        rope_base: float = 10000.0,
    ) -> None:
        super().__init__()
        check_heads(d_model, n_heads, n_kv_heads)
        self.max_len = max_len
        self.token_embedding = nn.Embedding(vocab, d_model)
        rotary = None if rope is None else RoPE(d_model // n_heads, max_len, rope_base, rope)
        self.layers = nn.ModuleList(
            DecoderLMLayer(d_model, n_heads, n_kv_heads, d_ff, dropout, rotary) for _ in range(n_layers)
        )
        self.norm = nn.RMSNorm(d_model, eps=1e-6)
        self.lm_head = nn.Linear(d_model, vocab, bias=False)
        if tied:
            self.lm_head.weight = self.token_embedding.weight
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0.0, 0.02)
