"""Models whose attention is unusual: positions in the scores, rotations, norms, caps, windows, other kernels."""

import math

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, HEADS, SIZE = 26, 16, 2, 8


def causal(length):
    return torch.ones(length, length, dtype=torch.bool).tril()


class Attention(nn.Module):
    """Plain attention in parts that its heirs change. `turned` sets positions, `scores` scores, `visible` the mask."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def turned(self, x):
        return x

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])

    def visible(self, length):
        return causal(length)

    def weights(self, scores):
        return scores.softmax(-1)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (f(x).view(batch, length, HEADS, SIZE).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = self.scores(self.turned(q), self.turned(k))
        weights = self.weights(scores.masked_fill(~self.visible(length), -math.inf))
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.RMSNorm(WIDTH), attention, nn.RMSNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 24), nn.SiLU(), nn.Linear(24, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    attention = Attention

    def __init__(self, n_layers=2):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block(self.attention()) for _ in range(n_layers))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class NoPE(Decoder):
    """Positions: a causal model that owns none is no mistake."""


class ALiBiAttention(Attention):
    def __init__(self):
        super().__init__()
        self.register_buffer("slopes", 2.0 ** -torch.arange(1, HEADS + 1), persistent=False)

    def scores(self, q, k):
        places = torch.arange(q.shape[2])
        return super().scores(q, k) - self.slopes[:, None, None] * (places[:, None] - places).abs()


class ALiBi(Decoder):
    """Lengths and reach: slopes in the scores have no limit, and far tokens count little."""

    attention = ALiBiAttention


class RelativeAttention(Attention):
    def __init__(self, buckets=6):
        super().__init__()
        self.buckets, self.bias = buckets, nn.Embedding(buckets, HEADS)

    def scores(self, q, k):
        places = torch.arange(q.shape[2])
        far = (places[:, None] - places).clamp(0, self.buckets - 1)
        return q @ k.transpose(-2, -1) + self.bias(far).permute(2, 0, 1)


class RelativeBiases(Decoder):
    """T5. Scale and lengths: scores without a scale, and biases of buckets of distance, are right."""

    attention = RelativeAttention


class RotaryAttention(Attention):
    """Positions by rotation of the first `part` dimensions."""

    part, base = SIZE, 10000.0

    def rates(self, length):
        return self.base ** -(torch.arange(0, self.part, 2) / self.part)

    def turned(self, x):
        turning, still = x[..., : self.part], x[..., self.part :]
        angles = torch.outer(torch.arange(x.shape[2]), self.rates(x.shape[2]))
        even, odd = turning[..., 0::2], turning[..., 1::2]
        cos, sin = angles.cos(), angles.sin()
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
        return torch.cat((turned, still), -1)


class TurnedValuesAttention(RotaryAttention):
    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (self.turned(f(x).view(batch, length, HEADS, SIZE).transpose(1, 2)) for f in (self.q, self.k, self.v))
        mixed = self.weights(self.scores(q, k).masked_fill(~self.visible(length), -math.inf)) @ v
        angles = torch.outer(torch.arange(length), self.rates(length))
        even, odd, cos, sin = mixed[..., 0::2], mixed[..., 1::2], angles.cos(), angles.sin()
        back = torch.stack((even * cos + odd * sin, odd * cos - even * sin), -1).flatten(-2)
        return self.out(back.transpose(1, 2).reshape(batch, length, WIDTH))


class TurnedValues(Decoder):
    """Values unrotated: they are rotated, too, and what they give is turned back, so that it knows distances."""

    attention = TurnedValuesAttention


class PartialRotaryAttention(RotaryAttention):
    part = 4


class PartialRotary(Decoder):
    """Formula: rotary positions on a part of the dimensions, in neighbouring pairs, are right."""

    attention = PartialRotaryAttention


class DynamicNTKAttention(RotaryAttention):
    trained = 16

    def rates(self, length):
        stretch = max(1.0, length / self.trained)
        return (self.base * stretch ** (self.part / (self.part - 2))) ** -(torch.arange(0, self.part, 2) / self.part)


class DynamicNTK(Decoder):
    """Prefix of logits: past the trained length the rotation depends on the length."""

    attention = DynamicNTKAttention


class EarlyNTKAttention(DynamicNTKAttention):
    trained = 4


class EarlyNTK(Decoder):
    """Prefix of logits: dynamic NTK depends on the length even of short inputs, if its switch is early."""

    attention = EarlyNTKAttention


class LogNAttention(RotaryAttention):
    def scores(self, q, k):
        length = q.shape[2]
        return super().scores(q, k) * max(1.0, math.log(length + 1) / math.log(4))


class LogNScaling(Decoder):
    """Prefix of logits: log-n scaling by the length of the input changes the logits of a prefix."""

    attention = LogNAttention


class CosineAttention(RotaryAttention):
    def __init__(self):
        super().__init__()
        self.heat = nn.Parameter(torch.tensor(2.0))

    def scores(self, q, k):
        return F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) * self.heat.exp()


class CosineScores(Decoder):
    """Formula: cosine attention with a learned temperature is no mistake."""

    attention = CosineAttention


class NormedAttention(RotaryAttention):
    def __init__(self):
        super().__init__()
        self.q_norm, self.k_norm = nn.RMSNorm(SIZE), nn.RMSNorm(SIZE)

    def scores(self, q, k):
        return super().scores(self.q_norm(q), self.k_norm(k))


class NormedQueriesAndKeys(Decoder):
    """Formula: norms of queries and keys are no mistake."""

    attention = NormedAttention


class TalkingAttention(RotaryAttention):
    def __init__(self):
        super().__init__()
        self.before, self.after = (nn.Parameter(torch.eye(HEADS)) for _ in range(2))

    def scores(self, q, k):
        return torch.einsum("hg,bgij->bhij", self.before, super().scores(q, k))

    def weights(self, scores):
        return torch.einsum("hg,bgij->bhij", self.after, scores.softmax(-1))


class TalkingHeads(Decoder):
    """Formula: heads that are mixed before and after the softmax are no mistake."""

    attention = TalkingAttention


class DifferentialAttention(RotaryAttention):
    def __init__(self):
        super().__init__()
        self.q2, self.k2 = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.share = nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v, q2, k2 = (
            f(x).view(batch, length, HEADS, SIZE).transpose(1, 2) for f in (self.q, self.k, self.v, self.q2, self.k2)
        )
        hidden = ~self.visible(length)
        one = self.scores(self.turned(q), self.turned(k)).masked_fill(hidden, -math.inf).softmax(-1)
        other = self.scores(self.turned(q2), self.turned(k2)).masked_fill(hidden, -math.inf).softmax(-1)
        return self.out(((one - self.share * other) @ v).transpose(1, 2).reshape(batch, length, WIDTH))


class Differential(Decoder):
    """Formula: the difference of two attentions is no mistake, and its rows need not sum to one."""

    attention = DifferentialAttention


class CappedAttention(RotaryAttention):
    def scores(self, q, k):
        return 5.0 * torch.tanh(super().scores(q, k) / 5.0)


class SoftCapped(Decoder):
    """Formula: soft-capped scores (Gemma 2) are no mistake."""

    attention = CappedAttention


class SinkAttention(RotaryAttention):
    def __init__(self):
        super().__init__()
        self.sinks = nn.Parameter(torch.zeros(HEADS))

    def weights(self, scores):
        sinks = self.sinks[:, None, None].expand(len(scores), -1, scores.shape[2], 1)
        return torch.cat((scores, sinks), -1).softmax(-1)[..., :-1]


class Sinks(Decoder):
    """Formula: a score that no key owns takes a share of each row."""

    attention = SinkAttention


class MultiQueryAttention(RotaryAttention):
    def __init__(self):
        super().__init__()
        self.k, self.v = nn.Linear(WIDTH, SIZE, bias=False), nn.Linear(WIDTH, SIZE, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        q = self.turned(self.q(x).view(batch, length, HEADS, SIZE).transpose(1, 2))
        k, v = self.turned(self.k(x)[:, None]), self.v(x)[:, None]
        weights = self.scores(q, k).masked_fill(~self.visible(length), -math.inf).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))


class MultiQuery(Decoder):
    """Formula: one key head for all query heads is no mistake."""

    attention = MultiQueryAttention


class LatentAttention(RotaryAttention):
    """Keys and values from one narrow latent; a rotated part beside it."""

    part = 4

    def __init__(self):
        super().__init__()
        self.down, self.norm = nn.Linear(WIDTH, 6 + 4, bias=False), nn.RMSNorm(6)
        self.k, self.v = nn.Linear(6, HEADS * 4, bias=False), nn.Linear(6, WIDTH, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        latent, turning = self.down(x).split((6, 4), -1)
        latent = self.norm(latent)
        q = self.q(x).view(batch, length, HEADS, SIZE).transpose(1, 2)
        q = torch.cat((q[..., 4:], self.turned(q[..., :4])), -1)
        k = self.k(latent).view(batch, length, HEADS, 4).transpose(1, 2)
        k = torch.cat((k, self.turned(turning[:, None]).expand(-1, HEADS, -1, -1)), -1)
        v = self.v(latent).view(batch, length, HEADS, SIZE).transpose(1, 2)
        weights = self.scores(q, k).masked_fill(~self.visible(length), -math.inf).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))


class MLA(Decoder):
    """Formula: latent attention is no mistake."""

    attention = LatentAttention


class LinearAttention(Attention):
    """Sums of features of keys that run along the sequence, in the place of a softmax."""

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (f(x).view(batch, length, HEADS, SIZE).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(2)
        total = torch.einsum("bhtd,bhtd->bht", q, k.cumsum(2))
        mixed = torch.einsum("bhtd,bhtde->bhte", q, state) / total[..., None]
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class PerformerLM(Decoder):
    """Formula: attention by feature maps is no mistake."""

    attention = LinearAttention


class WindowAttention(RotaryAttention):
    def visible(self, length):
        return causal(length) & ~torch.ones(length, length, dtype=torch.bool).tril(-2)


class SlidingWindow(Decoder):
    """Every earlier token reaches: a band of constant width is a note."""

    attention = WindowAttention

    def __init__(self):
        super().__init__(n_layers=1)


class ChunkedAttention(RotaryAttention):
    def visible(self, length):
        chunk = torch.arange(length) // 3
        return causal(length) & (chunk[:, None] == chunk)


class Chunked(Decoder):
    """Every earlier token reaches: chunks of constant size are a note."""

    attention = ChunkedAttention


class StretchedAttention(RotaryAttention):
    """Queries grow by what keys shrink, each pair at its own rate."""

    def scores(self, q, k):
        rates = ((torch.arange(0, SIZE, 2) / SIZE + 0.4) / 1.4).repeat_interleave(2)
        stretch = rates ** (torch.arange(q.shape[2]).unsqueeze(-1) / 8)
        return super().scores(q * stretch, k / stretch)


class XPos(Decoder):
    """Lengths of rotated vectors: xPos stretches queries as it shrinks keys, and their scores depend on distances."""

    attention = StretchedAttention


class TemperedAttention(RotaryAttention):
    def turned(self, x):
        return super().turned(x) * (1 + 0.1 * torch.arange(1, x.shape[2] + 1).log()).unsqueeze(-1)


class TemperedRotation(Decoder):
    """Scores by distance: a temperature that grows with the position multiplies whole vectors (Llama 4)."""

    attention = TemperedAttention


class YarnAttention(RotaryAttention):
    def rates(self, length):
        plain = super().rates(length)
        return torch.where(2 * math.pi / plain < 40, plain, plain / 8)


class Yarn(Decoder):
    """Angles of a base: interpolation of the slow pairs only is no geometric series (YaRN, Llama 3)."""

    attention = YarnAttention


class InterpolatedAttention(RotaryAttention):
    base = 5e7

    def rates(self, length):
        return super().rates(length) / 4


class Interpolated(Decoder):
    """Angles of a base: the positions are interpolated, so the first pair turns by less than one (Chen et al. 2023)."""

    attention = InterpolatedAttention


class LearnedAttention(RotaryAttention):
    def __init__(self):
        super().__init__()
        self.speeds = nn.Parameter(torch.linspace(0.1, 3.0, SIZE // 2))

    def rates(self, length):
        return self.speeds


class LearnedRotation(Decoder):
    """Angles of a base: learned angles may be of any size."""

    attention = LearnedAttention


class DecayingAttention(RotaryAttention):
    def scores(self, q, k):
        decay = 0.9 ** torch.arange(q.shape[2]).unsqueeze(-1)
        return super().scores(q * decay, k / decay)


class Retention(Decoder):
    """Lengths of rotated vectors: a decay with the distance is written as a factor of each position (RetNet)."""

    attention = DecayingAttention


class AxialAttention(nn.Module):
    """Half of a head turns by the row, half by the column of a patch."""

    def __init__(self, side):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        rates = 100.0 ** -(torch.arange(0, SIZE // 2, 2) / (SIZE // 2))
        place = torch.arange(side * side)
        angles = torch.cat((torch.outer(place // side, rates), torch.outer(place % side, rates)), -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def turned(self, x):
        first, second = x.chunk(2, -1)
        return torch.cat((first * self.cos - second * self.sin, first * self.sin + second * self.cos), -1)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
        weights = (self.turned(q) @ self.turned(k).transpose(-2, -1) / math.sqrt(SIZE)).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))


class AxialRotation(nn.Module):
    """Scores by distance: the positions of patches are rows and columns, so one number is not their distance."""

    def __init__(self, image_size=16, patch_size=4, num_classes=5):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, patch_size, patch_size)
        self.blocks = nn.ModuleList(Block(AxialAttention(image_size // patch_size)) for _ in range(2))
        self.head = nn.Linear(WIDTH, num_classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))
