"""Correct parts in everyday style: the names that people give to sizes, and norms by other names."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from torch_subjects import correct, merge, split, wrong
from torch_subjects.attention import CachedHeads, FusedPerHead, SeparateProjections


@correct
class NetworkByAbbreviations(nn.Module):
    role = "feed_forward"

    def __init__(self, hid_dim, pf_dim, dropout_probability):
        super().__init__()
        self.fc_1, self.fc_2 = nn.Linear(hid_dim, pf_dim), nn.Linear(pf_dim, hid_dim)
        self.drop = nn.Dropout(dropout_probability)

    def forward(self, x):
        return self.fc_2(self.drop(torch.relu(self.fc_1(x))))


@correct
class NetworkByFactor(nn.Module):
    """Its hidden width is a multiple of the other."""

    role = "feed_forward"

    def __init__(self, embed_size, forward_expansion):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(embed_size, forward_expansion * embed_size),
            nn.ReLU(),
            nn.Linear(forward_expansion * embed_size, embed_size),
        )

    def forward(self, x):
        return self.net(x)


@correct
class GatedInTwoThirds(nn.Module):
    """Takes two thirds of the hidden width that it is asked for, rounded up to a multiple."""

    role = "swiglu"

    def __init__(self, dim: int, hidden_dim: int, multiple_of: int):
        super().__init__()
        hidden_dim = int(2 * hidden_dim / 3)
        hidden_dim = multiple_of * ((hidden_dim + multiple_of - 1) // multiple_of)
        self.w1, self.w3 = (nn.Linear(dim, hidden_dim, bias=False) for _ in range(2))
        self.w2 = nn.Linear(hidden_dim, dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


@correct
class LayerNormalization(nn.Module):
    role = "layer_norm"

    def __init__(self, ninp, layer_norm_epsilon=1e-5):
        super().__init__()
        self.alpha, self.bias = nn.Parameter(torch.ones(ninp)), nn.Parameter(torch.zeros(ninp))
        self.eps = layer_norm_epsilon

    def forward(self, x):
        deviation = (x.var(-1, keepdim=True, unbiased=False) + self.eps).sqrt()
        return self.alpha * (x - x.mean(-1, keepdim=True)) / deviation + self.bias


@correct
class LayerNorm(nn.Module):
    """One vector, and a LayerNorm for all that: it has no bias."""

    role = "layer_norm"

    def __init__(self, ndim, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(ndim)), eps

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, None, self.eps)


@correct
class Centred(LayerNorm):
    """Nothing but what it does says which norm it is."""


class Projections(nn.Module):
    def __init__(self, nhid, nhead, src_seq_len):
        super().__init__()
        self.heads, self.limit = nhead, src_seq_len
        self.q, self.k, self.v, self.o = (nn.Linear(nhid, nhid) for _ in range(4))

    def forward(self, x, mask=None):
        q, k, v = (split(f(x), self.heads) for f in (self.q, self.k, self.v))
        return self.o(merge(F.scaled_dot_product_attention(q, k, v, mask)))


@correct
class NormalizedLayer(nn.Module):
    """Its norms are called normalisations, its sizes by abbreviations."""

    role = "encoder_layer"

    def __init__(self, ninp, nhead, feed_forward_hidden, dropout_probability, src_pad_idx):
        super().__init__()
        self.attention = Projections(ninp, nhead, 16)
        self.norm1, self.norm2 = LayerNormalization(ninp), LayerNormalization(ninp)
        self.network = NetworkByAbbreviations(ninp, feed_forward_hidden, dropout_probability)
        self.dropout = nn.Dropout(dropout_probability)

    def forward(self, x, mask=None):
        x = self.norm1(x + self.dropout(self.attention(x, mask)))
        return self.norm2(x + self.dropout(self.network(x)))


@correct
class TenThousandBelow(FusedPerHead):
    """Hidden keys lose 10000 of their score, as BERT's do."""

    def forward(self, hidden_states, attention_mask=None):
        q, k, v = self.query_key_value(hidden_states).unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(3, -1)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if attention_mask is not None:
            scores = scores + self.added(attention_mask)[:, None, None, :]
        return self.dense(merge(scores.softmax(-1) @ v))

    def added(self, mask):
        return (1.0 - mask) * -10000.0


@wrong
class TenThousandBelowTurnedAround(TenThousandBelow):
    """The mask lowers the scores of the words, not those of the padding."""

    breaks = ("padding-does-not-change-real-words",)

    def added(self, mask):
        return mask * -10000.0


@correct
class NormOfAShape(nn.Module):
    """Takes the sizes of the axes that it normalises."""

    role = "layer_norm"

    def __init__(self, parameters_shape, eps=1e-5):
        super().__init__()
        self.axes, self.eps = [-1 - i for i in range(len(parameters_shape))], eps
        self.gamma = nn.Parameter(torch.ones(parameters_shape))
        self.beta = nn.Parameter(torch.zeros(parameters_shape))

    def forward(self, inputs):
        centred = inputs - inputs.mean(self.axes, keepdim=True)
        return self.gamma * centred / ((centred**2).mean(self.axes, keepdim=True) + self.eps).sqrt() + self.beta


@correct
class MultiplesOfEight(SeparateProjections):
    """Refuses other widths by an assertion without words."""

    def __init__(self, d_model, num_heads, dropout=0.1):
        assert d_model % 8 == 0
        super().__init__(d_model, num_heads, dropout)


@wrong
class DropsATenth(SeparateProjections):
    """Drops a tenth of its weights, whatever it is told."""

    breaks = ("multi-head-dropout-thins-the-weights",)

    def __init__(self, d_model, num_heads, dropout=0.1):
        super().__init__(d_model, num_heads, 0.1)


@correct
class RotaryWordsFirst(nn.Module):
    """(B, T, H, d), pairs (0, 1), (2, 3), ...; refuses more words than its table has."""

    role = "rope"

    def __init__(self, dim, max_seq_len=128, base=10000.0):
        super().__init__()
        angles = torch.outer(torch.arange(max_seq_len), base ** -(torch.arange(0, dim, 2) / dim))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x):
        b, t, heads, d = x.shape
        assert t <= len(self.turns)
        pairs = torch.view_as_complex(x.reshape(b, t, heads, d // 2, 2))
        return torch.view_as_real(pairs * self.turns[:t, None]).flatten(3)


@correct
class RotaryWithoutHeads(RotaryWordsFirst):
    """(B, T, d): one head at a time."""

    def forward(self, x):
        b, t, d = x.shape
        return super().forward(x.reshape(b, t, 1, d)).reshape(b, t, d)


@wrong
class RotaryWordsFirstTooFast(RotaryWordsFirst):
    """Turns by half the exponent."""

    breaks = ("rope-rotates-pairs-by-position-times-frequency",)

    def __init__(self, dim, max_seq_len=128, base=10000.0):
        super().__init__(dim, max_seq_len, base**0.5)


@correct
class CachedAndMaskedByItsModel(CachedHeads):
    """Hides nothing by itself: the model hands it the mask."""

    def forward(self, x, mask=None, past_kv=None):
        q, k, v = self.query_key_value(x).unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(3, -1)
        if past_kv is not None:
            k, v = (torch.cat([old, new], 2) for old, new in zip(past_kv, (k, v), strict=True))
        return self.dense(merge(F.scaled_dot_product_attention(q, k, v, mask))), (k, v)


@wrong
class CachedAndDeafToItsMask(CachedAndMaskedByItsModel):
    """Takes a mask and does not use it."""

    breaks = ("a-prefill-needs-a-causal-mask", "an-appended-chunk-needs-a-causal-mask")

    def forward(self, x, mask=None, past_kv=None):
        return super().forward(x, None, past_kv)


@correct
class CachedAndTurned(CachedAndMaskedByItsModel):
    """Turns queries and keys by their positions, which go on from call to call."""

    def __init__(self, hidden_size, num_attention_heads):
        super().__init__(hidden_size, num_attention_heads)
        width = hidden_size // num_attention_heads // 2 * 2
        self.register_buffer("inv_freq", 10000.0 ** -(torch.arange(0, width, 2) / width))

    def turn(self, x, start):
        angles = (torch.arange(x.shape[-2]) + start)[:, None] * self.inv_freq
        a, b, rest = x.split([len(self.inv_freq), len(self.inv_freq), x.shape[-1] - 2 * len(self.inv_freq)], -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos(), rest], -1)

    def forward(self, x, mask=None, past_kv=None):
        q, k, v = self.query_key_value(x).unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(3, -1)
        start = 0 if past_kv is None else self.start(past_kv)
        q, k = self.turn(q, start), self.turn(k, start)
        if past_kv is not None:
            k, v = (torch.cat([old, new], 2) for old, new in zip(past_kv, (k, v), strict=True))
        return self.dense(merge(F.scaled_dot_product_attention(q, k, v, mask))), (k, v)

    def start(self, past_kv):
        return past_kv[0].shape[2]


@wrong
class CachedAndTurnedFromTheStart(CachedAndTurned):
    """Every call counts its positions from 0."""

    breaks = ("cached-steps-equal-causal-attention", "an-appended-chunk-needs-a-causal-mask")

    def start(self, past_kv):
        return 0


class TurnedFromOutside(nn.Module):
    """Is handed the turns of its queries and keys, and no others than of its own shape."""

    role = "multi_head_attention"

    def __init__(self, dim, n_heads):
        super().__init__()
        self.heads = n_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def attend(self, x, turn, mask):
        q, k, v = (split(f(x), self.heads) for f in (self.wq, self.wk, self.wv))
        return self.wo(merge(F.scaled_dot_product_attention(turn(q), turn(k), v, mask)))


@correct
class TurnedByUnitNumbers(TurnedFromOutside):
    def forward(self, x, freqs_cis, mask=None):
        def turn(y):
            pairs = torch.view_as_complex(y.unflatten(-1, (-1, 2)).contiguous())
            assert freqs_cis.shape == pairs.shape[-2:]
            return torch.view_as_real(pairs * freqs_cis).flatten(-2)

        return self.attend(x, turn, mask)


@correct
class TurnedByTables(TurnedFromOutside):
    def forward(self, x, freqs_cos, freqs_sin, mask=None):
        def turn(y):
            a, b = y.unflatten(-1, (-1, 2)).unbind(-1)
            assert freqs_cos.shape == freqs_sin.shape == a.shape[-2:]
            return torch.stack([a * freqs_cos - b * freqs_sin, a * freqs_sin + b * freqs_cos], -1).flatten(-2)

        return self.attend(x, turn, mask)
