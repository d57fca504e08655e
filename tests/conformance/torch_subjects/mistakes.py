"""One planted mistake each; `breaks` names claims that it breaks."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from torch_subjects import merge, split, wrong
from torch_subjects.attention import CachedHeads, FusedPerHead, GroupedQuery, SeparateProjections
from torch_subjects.layers import EncoderBlock, PreNormDecoderBlock
from torch_subjects.parts import GatedMLP, PositionwiseFeedForward, RMSNormMinusOne, RotaryEmbedding


@wrong
class Unscaled(SeparateProjections):
    breaks = ("multi-head-formula", "multi-head-scales-by-the-width-of-one-head")

    def scores(self, q, k):
        return q @ k.transpose(-2, -1)


@wrong
class ScaledByModelWidth(SeparateProjections):
    breaks = ("multi-head-formula", "multi-head-scales-by-the-width-of-one-head")

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1] * self.heads)


@wrong
class WeakMask(SeparateProjections):
    """Hidden scores are -10, which a trained layer overcomes."""

    breaks = ("padding-does-not-change-real-words",)

    def masked(self, scores, mask):
        return scores.masked_fill(mask == 0, -10.0)


@wrong
class MaskAfterSoftmax(SeparateProjections):
    """The weights are masked, not the scores, and not renormalised."""

    breaks = ("multi-head-obeys-both-masks",)

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            split(f(x), self.heads) for f, x in ((self.w_query, query), (self.w_key, key), (self.w_value, value))
        )
        weights = self.scores(q, k).softmax(-1)
        if mask is not None:
            weights = weights * mask
        return self.w_out(merge(weights @ v))


@wrong
class MixedPositions(SeparateProjections):
    """Heads are split by a view without the transpose."""

    breaks = ("multi-head-formula", "splitting-heads-does-not-mix-words")

    def forward(self, query, key, value, mask=None):
        b, d = query.shape[0], query.shape[2] // self.heads
        q, k, v = (
            f(x).reshape(b, self.heads, -1, d)
            for f, x in ((self.w_query, query), (self.w_key, key), (self.w_value, value))
        )
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.masked(scores, mask)
        return self.w_out((scores.softmax(-1) @ v).reshape(query.shape))


@wrong
class KeysFromTheQueryProjection(SeparateProjections):
    breaks = ("multi-head-formula",)

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            split(f(x), self.heads) for f, x in ((self.w_query, query), (self.w_query, key), (self.w_value, value))
        )
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.masked(scores, mask)
        return self.w_out(merge(scores.softmax(-1) @ v))


@wrong
class TiledKeyHeads(GroupedQuery):
    """Key and value heads are repeated in turn, not next to each other."""

    breaks = ("grouped-query-attention-formula",)

    def repeated(self, x):
        return x.repeat(1, self.heads // self.kv_heads, 1, 1)


@wrong
class UnbiasedLayerNorm(nn.Module):
    """Divides by the unbiased deviation, eps outside the root."""

    role = "layer_norm"
    breaks = ("layer-norm-formula",)

    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.a_2, self.b_2, self.eps = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features)), eps

    def forward(self, x):
        return self.a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps) + self.b_2


@wrong
class CentredRMSNorm(RMSNormMinusOne):
    breaks = ("rms-norm-formula",)

    def forward(self, x):
        return super().forward(x - x.mean(-1, keepdim=True))


@wrong
class GatedByGELU(GatedMLP):
    breaks = ("swiglu-formula",)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x)) * self.w3(x))


@wrong
class ActivationLast(PositionwiseFeedForward):
    """The activation comes after the second map."""

    breaks = ("feed-forward-formula",)

    def forward(self, x):
        return F.relu(self.net[3](self.net[0](x)))


@wrong
class NextFrequencyPositions(nn.Module):
    """The cosines use the next frequency."""

    role = "sinusoidal_positions"
    breaks = ("sinusoid-formula",)

    def __init__(self, d_model, max_len=5000):
        super().__init__()
        even = torch.arange(0, d_model, 2)
        position = torch.arange(max_len)[:, None]
        rates, next_rates = 10000.0 ** (-even / d_model), 10000.0 ** (-(even + 2) / d_model)
        table = torch.stack([(position * rates).sin(), (position * next_rates).cos()], -1)
        self.register_buffer("pe", table.flatten(1)[None])

    def forward(self, x):
        return x + self.pe[:, : x.shape[1]]


@wrong
class RotaryWithMixedPairs(RotaryEmbedding):
    """The angles of adjacent pairs, turned as halves."""

    breaks = ("rope-rotates-pairs-by-position-times-frequency",)

    def turn(self, x, start_pos):
        angles = ((torch.arange(x.shape[-2]) + start_pos)[:, None] * self.rates).repeat_interleave(2, -1)
        a, b = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-b, a], -1) * angles.sin()


@wrong
class NoResidualBlock(EncoderBlock):
    breaks = ("post-norm-encoder-layer-formula",)

    def forward(self, x, src_mask=None):
        x = self.norm1(self.attention(x, x, x, src_mask))
        return self.norm2(x + self.ff2(F.relu(self.ff1(x))))


@wrong
class ResidualOfTheNormalised(EncoderBlock):
    """Pre-norm, but the residual is taken after the norm."""

    breaks = ("pre-norm-encoder-layer-formula", "pre-norm-layer-without-sublayers-is-the-identity")

    def forward(self, x, src_mask=None):
        x = self.norm1(x)
        x = x + self.attention(x, x, x, src_mask)
        y = self.norm2(x)
        return x + self.ff2(F.relu(self.ff1(y)))


@wrong
class KeysFromTheDecoder(PreNormDecoderBlock):
    """Cross-attention takes keys and values from the decoder."""

    breaks = ("every-target-token-sees-the-whole-source",)

    def forward(self, x, memory, tgt_mask=None, memory_key_padding_mask=None):
        y = self.norms[0](x)
        x = x + self.self_attn(y, y, y, attn_mask=tgt_mask)[0]
        y = self.norms[1](x)
        x = x + self.cross_attn(y, y, y)[0]
        return x + self.mlp(self.norms[2](x))


@wrong
class CachedWithoutMask(CachedHeads):
    """No causal mask when a call has several positions."""

    breaks = ("a-prefill-needs-a-causal-mask", "an-appended-chunk-needs-a-causal-mask")

    def forward(self, x, past_kv=None):
        q, k, v = self.query_key_value(x).unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(3, -1)
        if past_kv is not None:
            k, v = (torch.cat([old, new], 2) for old, new in zip(past_kv, (k, v), strict=True))
        return self.dense(merge(F.scaled_dot_product_attention(q, k, v))), (k, v)


@wrong
class DropoutInEvaluation(SeparateProjections):
    """Drops weights in evaluation, too."""

    breaks = ("multi-head-dropout-thins-the-weights",)

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            split(f(x), self.heads) for f, x in ((self.w_query, query), (self.w_key, key), (self.w_value, value))
        )
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.masked(scores, mask)
        return self.w_out(merge(F.dropout(scores.softmax(-1), self.dropout.p) @ v))


@wrong
class WeightsAppliedToKeys(SeparateProjections):
    breaks = ("multi-head-formula",)

    def forward(self, query, key, value, mask=None):
        q, k, _ = (
            split(f(x), self.heads) for f, x in ((self.w_query, query), (self.w_key, key), (self.w_value, value))
        )
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.masked(scores, mask)
        return self.w_out(merge(self.dropout(scores.softmax(-1)) @ k))


@wrong
class InvertedAttentionMask(FusedPerHead):
    """Hides what an `attention_mask` of 1 shows: the name fixes the convention, so probing does not adopt it."""

    breaks = ("padding-does-not-change-real-words",)

    def forward(self, hidden_states, attention_mask=None):
        return super().forward(hidden_states, None if attention_mask is None else 1.0 - attention_mask.float())
