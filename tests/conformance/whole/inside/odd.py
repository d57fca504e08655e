"""Correct models whose composition is unusual: each is one class, and none deserves a certain finding."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x, y=None):
        y = x if y is None else y
        return self.inner(x, y, y, need_weights=False)[0]


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class Pre(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.net = Attention(width), Net(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.net(self.norm2(x))


class Parallel(Pre):
    def forward(self, x):
        h = self.norm1(x)
        return x + self.attention(h) + self.net(self.norm2(x))


class Sandwich(Pre):
    def __init__(self, width=16):
        super().__init__(width)
        self.norm3, self.norm4 = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x):
        x = x + self.norm3(self.attention(self.norm1(x)))
        return x + self.norm4(self.net(self.norm2(x)))


class PostNorm(Pre):
    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.net(x))


class AfterNorm(Pre):
    """BLOOM's option: what is added is what the norm gave, in both sublayers."""

    def forward(self, x):
        h = self.norm1(x)
        x = h + self.attention(h)
        h = self.norm2(x)
        return h + self.net(h)


class Highway(Pre):
    """A gate that is computed, in the place of a sum."""

    def __init__(self, width=16):
        super().__init__(width)
        self.gate = nn.Linear(width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        gate = self.gate(x).sigmoid()
        return gate * self.net(self.norm2(x)) + (1 - gate) * x


class Scaled(Pre):
    """DeepNorm, and a layer scale."""

    def __init__(self, width=16):
        super().__init__(width)
        self.gamma = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        x = self.norm1(2.0 * x + self.attention(x))
        return self.norm2(2.0 * x + self.gamma * self.net(x))


class Modulated(Pre):
    """DiT: norms whose scale and shift are computed."""

    def __init__(self, width=16):
        super().__init__(width)
        self.modulation = nn.Linear(width, 3 * width)

    def forward(self, x):
        scale, shift, gate = self.modulation(x.mean(1, keepdim=True)).chunk(3, -1)
        x = x + gate * self.attention(self.norm1(x) * (1 + scale) + shift)
        return x + gate * self.net(self.norm2(x) * (1 + scale) + shift)


class Windows(Pre):
    """Swin: the tokens are padded and rolled before the attention, and rolled back after it."""

    def forward(self, x):
        h = F.pad(self.norm1(x), (0, 0, 0, 1)).roll(-1, 1)
        x = x + self.attention(h).roll(1, 1)[:, : x.shape[1]]
        return x + self.net(self.norm2(x))


class Experts(nn.Module):
    def __init__(self, width=16, count=4):
        super().__init__()
        self.gate = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(Net2(width) for _ in range(count))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        weights, chosen = self.gate(flat).softmax(-1).topk(1)
        chosen = chosen.clamp(max=2)  # the last expert is never asked
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            rows = (chosen[:, 0] == i).nonzero()[:, 0]
            if len(rows):
                out[rows] = expert(flat[rows]) * weights[rows]
        return out.view_as(x)


class Net2(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.parts = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return self.parts(x)


class Mixture(Pre):
    def __init__(self, width=16):
        super().__init__(width)
        self.net = Experts(width)


class Periodic(Pre):
    """Every third layer has no positions, as an option says."""

    def __init__(self, width=16, turns=True):
        super().__init__(width)
        self.turns = turns

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h.sin() if self.turns else h)
        return x + self.net(self.norm2(x))


class Stack(nn.Module):
    def __init__(self, block, layers=4, width=16):
        super().__init__()
        self.words = nn.Embedding(11, width)
        self.layers = nn.ModuleList(block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 11)

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Shared(nn.Module):
    """ALBERT: one layer, called four times; a factorised embedding."""

    def __init__(self, width=16):
        super().__init__()
        self.words, self.wider = nn.Embedding(11, 6), nn.Linear(6, width)
        self.layer, self.head = Pre(width), nn.Linear(width, 11)

    def forward(self, ids):
        x = self.wider(self.words(ids))
        for _ in range(4):
            x = self.layer(x)
        return self.head(x)


class Skips(Stack):
    """U-shaped: the second half also gets what the first half gave."""

    def forward(self, ids):
        x, kept = self.words(ids), []
        for i, layer in enumerate(self.layers):
            if i >= len(self.layers) // 2:
                x = x + kept.pop()
            x = layer(x)
            kept.append(x)
        return self.head(self.norm(x))


class Drops(Stack):
    """LayerDrop, in training."""

    def forward(self, ids):
        x = self.words(ids)
        for i, layer in enumerate(self.layers):
            if not (self.training and i == 1):
                x = layer(x)
        return self.head(self.norm(x))


class Pooled(Stack):
    """A pooler and a second head that this run does not ask for, and a frozen copy."""

    def __init__(self):
        super().__init__(Pre)
        self.pooler, self.lm_head = nn.Linear(16, 16), nn.Linear(16, 11)
        self.average = Pre().requires_grad_(False)


class LayerByLayer(nn.Module):
    """Decoder layer i reads encoder layer i."""

    def __init__(self, width=16):
        super().__init__()
        self.words, self.head = nn.Embedding(11, width), nn.Linear(width, 11)
        self.encoder = nn.ModuleList(Pre(width) for _ in range(3))
        self.decoder = nn.ModuleList(nn.TransformerDecoderLayer(width, 2, 32, batch_first=True) for _ in range(3))

    def forward(self, ids):
        x, memories = self.words(ids), []
        for layer in self.encoder:
            x = layer(x)
            memories.append(x)
        y = self.words(ids[:, :3])
        for layer, memory in zip(self.decoder, memories, strict=True):
            y = layer(y, memory)
        return self.head(y)


class Alternating(Stack):
    def __init__(self):
        super().__init__(Pre)
        self.layers = nn.ModuleList(Periodic(turns=i % 3 != 2) for i in range(4))


MODELS = {
    "parallel": lambda: Stack(Parallel),
    "pre": lambda: Stack(Pre),
    "sandwich": lambda: Stack(Sandwich),
    **{
        block.__name__: lambda block=block: Stack(block)
        for block in (PostNorm, AfterNorm, Highway, Scaled, Modulated, Windows)
    },
    "mixture": lambda: Stack(Mixture),
    "shared": Shared,
    "skips": lambda: Skips(Pre),
    "drops": lambda: Drops(Pre),
    "pooled": Pooled,
    "layer by layer": LayerByLayer,
    "alternating": Alternating,
    "sequential": lambda: nn.Sequential(nn.Embedding(11, 16), nn.Sequential(*(Pre() for _ in range(3)))),
}
