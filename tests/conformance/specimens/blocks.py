"""Language models whose blocks are wired in unusual ways, all of them right."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCAB, WIDTH, HEADS, LONGEST = 24, 16, 2, 20


class Attention(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias)
        self.out = nn.Linear(WIDTH, WIDTH, bias)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


def feed_forward():
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.mlp = Attention(), feed_forward()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """A plain GPT: what the others change."""

    block = Block

    def __init__(self, n_layers=2):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.ModuleList(self.block() for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)

    def embedded(self, ids):
        return self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))

    def through(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, ids):
        return self.head(self.norm(self.through(self.embedded(ids))))


class ParallelBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention, self.mlp = nn.LayerNorm(WIDTH), Attention(), feed_forward()

    def forward(self, x):
        h = self.norm(x)
        return x + self.attention(h) + self.mlp(h)


class ParallelBlocks(Decoder):
    """GPT-J. Composition: attention and feed-forward side by side are right."""

    block = ParallelBlock


class PaLMBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        self.fused = nn.Linear(WIDTH, WIDTH + 2 * 8 + 2 * 32, bias=False)
        self.attention_out, self.mlp_out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(32, WIDTH, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v, gate, inner = self.fused(self.norm(x)).split((WIDTH, 8, 8, 32, 32), -1)
        q = q.view(batch, length, HEADS, 8).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(
            q, k[:, None].expand(-1, HEADS, -1, -1), v[:, None].expand(-1, HEADS, -1, -1), is_causal=True
        )
        mixed = mixed.transpose(1, 2).reshape(batch, length, WIDTH)
        return x + self.attention_out(mixed) + self.mlp_out(F.silu(gate) * inner)


class PaLM(Decoder):
    """Composition and formula: one fused projection, one key head for all, and parallel blocks are right."""

    block = PaLMBlock


class SandwichBlock(Block):
    def __init__(self):
        super().__init__()
        self.after1, self.after2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x):
        x = x + self.after1(self.attention(self.norm1(x)))
        return x + self.after2(self.mlp(self.norm2(x)))


class SandwichNorms(Decoder):
    """Composition: a norm before and after each part is right."""

    block = SandwichBlock


class ReZeroBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.mlp = Attention(), feed_forward()
        self.share = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        x = x + self.share * self.attention(x)
        return x + self.share * self.mlp(x)


class ReZero(Decoder):
    """Gradient: parts that have no effect at the start are used, once parameters move."""

    block = ReZeroBlock


class LayerScaleBlock(Block):
    def __init__(self):
        super().__init__()
        self.scale1, self.scale2 = (nn.Parameter(torch.full((WIDTH,), 1e-5)) for _ in range(2))

    def forward(self, x):
        x = x + self.scale1 * self.attention(self.norm1(x))
        return x + self.scale2 * self.mlp(self.norm2(x))


class LayerScale(Decoder):
    """Gradient: a part that is scaled to nearly nothing at the start is used."""

    block = LayerScaleBlock


class ZeroStartBlock(Block):
    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.attention.out.weight)
        nn.init.zeros_(self.mlp[2].weight)


class ZeroStart(Decoder):
    """Gradient: output projections that start at zero (muP) hide the parts before them at first only."""

    block = ZeroStartBlock


class DeepNormBlock(Block):
    def forward(self, x):
        alpha = 4**0.25
        x = self.norm1(alpha * x + self.attention(x))
        return self.norm2(alpha * x + self.mlp(x))


class DeepNorm(Decoder):
    """Composition: a residual that is scaled up before a post-norm is right."""

    block = DeepNormBlock


class Gate(nn.Module):
    """A GRU that decides how much of the new replaces the old."""

    def __init__(self):
        super().__init__()
        self.of_new, self.of_old = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH, bias=False)

    def forward(self, old, new):
        r1, z1, h1 = self.of_new(new).chunk(3, -1)
        r2, z2, h2 = self.of_old(old).chunk(3, -1)
        z = torch.sigmoid(z1 + z2 - 2)
        return (1 - z) * old + z * torch.tanh(h1 + torch.sigmoid(r1 + r2) * h2)


class GTrXLBlock(Block):
    def __init__(self):
        super().__init__()
        self.gate1, self.gate2 = Gate(), Gate()

    def forward(self, x):
        x = self.gate1(x, self.attention(self.norm1(x)).relu())
        return self.gate2(x, self.mlp(self.norm2(x)).relu())


class GTrXL(Decoder):
    """Composition: a gate in the place of the residual sum is right."""

    block = GTrXLBlock


class HyperConnections(Decoder):
    """Composition: several residual streams that each block reads and writes with weights of its own are right."""

    def __init__(self):
        super().__init__(n_layers=2)
        self.reads = nn.Parameter(torch.full((2, 2), 0.5))
        self.writes = nn.Parameter(torch.ones(2, 2))
        self.mixes = nn.Parameter(torch.eye(2).repeat(2, 1, 1))

    def through(self, x):
        streams = torch.stack((x, x))
        for block, read, write, mix in zip(self.blocks, self.reads, self.writes, self.mixes, strict=True):
            new = block(torch.einsum("n,nbtd->btd", read, streams))
            streams = torch.einsum("nm,mbtd->nbtd", mix, streams) + write[:, None, None, None] * new
        return streams.sum(0)


class UShapedSkips(Decoder):
    """Composition: skips from early blocks to late ones are right."""

    def __init__(self):
        super().__init__(n_layers=4)
        self.skips = nn.Parameter(torch.ones(2))

    def through(self, x):
        kept = []
        for i, block in enumerate(self.blocks):
            if i < 2:
                x = block(x)
                kept.append(x)
            else:
                x = block(x + self.skips[i - 2] * kept.pop())
        return x


class SharedLayers(Decoder):
    """ALBERT. Used once, in order: one block that runs three times is right."""

    def __init__(self):
        super().__init__(n_layers=1)

    def through(self, x):
        for _ in range(3):
            x = self.blocks[0](x)
        return x


class UniversalTransformer(Decoder):
    """Used once: one block with a code for each of its steps is right."""

    def __init__(self):
        super().__init__(n_layers=1)
        self.steps = nn.Parameter(torch.randn(3, WIDTH) * 0.02)

    def through(self, x):
        for step in self.steps:
            x = self.blocks[0](x + step)
        return x


class LayerDrop(Decoder):
    """Evaluation and options: whole layers that are left out at random in training are right."""

    def __init__(self, layerdrop=0.2):
        super().__init__(n_layers=3)
        self.layerdrop = layerdrop

    def through(self, x):
        for block in self.blocks:
            if self.training and torch.rand(()) < self.layerdrop:
                continue
            x = block(x)
        return x


def drop_path(x, rate, training):
    if not training or rate == 0:
        return x
    keep = torch.rand(len(x), 1, 1) >= rate
    return x * keep / (1 - rate)


class DropPathBlock(Block):
    def forward(self, x):
        x = x + drop_path(self.attention(self.norm1(x)), 0.1, self.training)
        return x + drop_path(self.mlp(self.norm2(x)), 0.1, self.training)


class DropPath(Decoder):
    """dropout = 0: drop path is another option and stays random."""

    block = DropPathBlock

    def __init__(self, dropout=0.1):
        super().__init__()
        self.drop = nn.Dropout(dropout)

    def embedded(self, ids):
        return self.drop(super().embedded(ids))


class DropPathByBernoulliBlock(Block):
    def forward(self, x):
        return self.dropped(self.mlp(self.norm2(x := x + self.dropped(self.attention(self.norm1(x)))))) + x

    def dropped(self, x):
        if not self.training:
            return x
        mask = x.new_empty(x.shape[0], 1, 1).bernoulli_(0.9)
        return x * mask / 0.9


class DropPathByBernoulli(DropPath):
    """dropout = 0: one random number a sample drops a path, and is no dropout."""

    block = DropPathByBernoulliBlock


class Checkpointed(Decoder):
    """Used once: a block that runs again in the backward pass is right."""

    def through(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


class WeightNormedBlock(Block):
    def __init__(self):
        super().__init__()
        self.attention.out = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))


class WeightNormed(Decoder):
    """Used: a weight that is made anew from a direction and a length in each call is right."""

    block = WeightNormedBlock


class LoRALinear(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.lora_a.T @ self.lora_b.T


class LoRA(Decoder):
    """Gradient: B = 0 hides A at the start, and what is frozen needs no gradient."""

    def __init__(self):
        super().__init__()
        self.requires_grad_(False)
        for block in self.blocks:
            block.attention.qkv = LoRALinear(block.attention.qkv)


class ProjectedEmbeddings(Decoder):
    """Composition: a narrow table and a projection to the width, and back before the tied head, are right."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, 6)
        self.widen, self.narrow = nn.Linear(6, WIDTH, bias=False), nn.Linear(WIDTH, 6, bias=False)
        self.head = nn.Linear(6, VOCAB, bias=False)
        self.head.weight = self.tokens.weight

    def embedded(self, ids):
        return self.widen(self.tokens(ids)) + self.positions(torch.arange(ids.shape[1]))

    def forward(self, ids):
        return self.head(self.narrow(self.norm(self.through(self.embedded(ids)))))


class ScaledEmbeddings(Decoder):
    """Conventions: embeddings times sqrt(d), and a head of its own, are right."""

    def embedded(self, ids):
        return self.tokens(ids) * math.sqrt(WIDTH) + self.positions(torch.arange(ids.shape[1]))


class SwitchFeedForward(nn.Module):
    """One expert a token, as long as it has room: a token that finds none passes by."""

    def __init__(self, n_experts=3, room=1.0):
        super().__init__()
        self.room, self.router = room, nn.Linear(WIDTH, n_experts, bias=False)
        self.experts = nn.ModuleList(feed_forward() for _ in range(n_experts))

    def forward(self, x):
        flat = x.flatten(0, 1)
        share, chosen = self.router(flat).softmax(-1).max(-1)
        out = torch.zeros_like(flat)
        capacity = max(1, int(self.room * len(flat) / len(self.experts)))
        for i, expert in enumerate(self.experts):
            taken = (chosen == i).nonzero().flatten()[:capacity]
            out[taken] = share[taken, None] * expert(flat[taken])
        return out.view_as(x)


class SwitchBlock(Block):
    def __init__(self):
        super().__init__()
        self.mlp = SwitchFeedForward()


class Switch(Decoder):
    """Rows of a batch and prefixes: experts with a capacity share their room."""

    block = SwitchBlock


class ExpertChoiceFeedForward(SwitchFeedForward):
    """Each expert chooses its tokens."""

    def forward(self, x):
        flat = x.flatten(0, 1)
        shares = self.router(flat).softmax(-1)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            share, taken = shares[:, i].topk(max(1, len(flat) // len(self.experts)))
            out = out.index_add(0, taken, share[:, None] * expert(flat[taken]))
        return out.view_as(x)


class ExpertChoiceBlock(Block):
    def __init__(self):
        super().__init__()
        self.mlp = ExpertChoiceFeedForward()


class ExpertChoice(Decoder):
    """Rows of a batch, and what is later: experts that choose among all tokens see all tokens."""

    block = ExpertChoiceBlock


class BatchNormBlock(Block):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = PerFeature(), PerFeature()


class PerFeature(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class BatchNormed(Decoder):
    """Rows of a batch: batch norm mixes them in training, and not in evaluation."""

    block = BatchNormBlock


class MonteCarlo(Decoder):
    """Evaluation repeats: dropout that its option asks to be kept in evaluation is a note."""

    def __init__(self, rate=0.1, mc_dropout=True):
        super().__init__()
        self.rate, self.mc_dropout = rate, mc_dropout

    def through(self, x):
        for block in self.blocks:
            x = F.dropout(block(x), self.rate, self.training or self.mc_dropout)
        return x


class NoisyRouting(Decoder):
    """Evaluation repeats: random projections, as of locality-sensitive hashing, are a note."""

    def through(self, x):
        for block in self.blocks:
            side = (x @ torch.randn(WIDTH, 1, dtype=x.dtype)).sign()
            x = block(x) * (1 + 0.1 * side)
        return x


class NormedOnce(Decoder):
    """Residuals: embeddings that are normalised already need no norm in the first block."""

    def __init__(self):
        super().__init__()
        self.first = nn.LayerNorm(WIDTH)
        self.blocks[0].norm1 = nn.Identity()

    def embedded(self, ids):
        return self.first(super().embedded(ids))


class Capped(Decoder):
    """Dropout: an option whose name ends in p is no rate."""

    def __init__(self, config={"n_layers": 2, "final_softcap": 15.0}):  # noqa: B006
        super().__init__(config["n_layers"])
        self.cap = config["final_softcap"]

    def forward(self, ids):
        return self.cap * torch.tanh(super().forward(ids) / self.cap)
