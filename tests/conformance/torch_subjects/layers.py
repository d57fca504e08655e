"""Encoder and decoder layers, all right."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from torch_subjects import correct
from torch_subjects.attention import FusedCausal, GPTConfig, SeparateProjections
from torch_subjects.parts import FourTimesWide


@correct
class EncoderBlock(nn.Module):
    """Post-norm, of the parts above."""

    role = "encoder_layer"

    def __init__(self, d_model, n_heads, d_ff, dropout=0.1):
        super().__init__()
        self.attention = SeparateProjections(d_model, n_heads, dropout)
        self.dropout = nn.Dropout(dropout)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.ff1, self.ff2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x, src_mask=None):
        x = self.norm1(x + self.dropout(self.attention(x, x, x, src_mask)))
        return self.norm2(x + self.dropout(self.ff2(F.relu(self.ff1(x)))))


@correct
class PreNormDecoderBlock(nn.Module):
    """Pre-norm, torch's attention inside."""

    role = "decoder_layer"

    def __init__(self, dim, heads, mlp_dim):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(dim, mlp_dim), nn.GELU(), nn.Linear(mlp_dim, dim))

    def forward(self, x, memory, tgt_mask=None, memory_key_padding_mask=None):
        y = self.norms[0](x)
        x = x + self.self_attn(y, y, y, attn_mask=tgt_mask)[0]
        y = self.norms[1](x)
        x = x + self.cross_attn(y, memory, memory, key_padding_mask=memory_key_padding_mask)[0]
        return x + self.mlp(self.norms[2](x))


@correct
class CausalBlock(nn.Module):
    """Pre-norm around attention that is causal by itself."""

    role = "encoder_layer"

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn, self.mlp = FusedCausal(config), FourTimesWide(config)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x):
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.mlp(self.ln_2(x))
