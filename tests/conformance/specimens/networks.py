"""Language models with unusual feed-forward networks, all of them right: experts, gates, functions, shared layers."""

import torch
from torch import nn

VOCAB, WIDTH, HEADS = 26, 16, 2


def feed_forward():
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), feed_forward()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x, future):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, attn_mask=future, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """A causal language model of a few blocks, which the others change."""

    block = Block

    def __init__(self, n_layers=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(20, WIDTH)
        self.blocks = nn.ModuleList(self.block() for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        length = ids.shape[1]
        x, future = self.wte(ids) + self.wpe(torch.arange(length)), torch.ones(length, length).triu(1).bool()
        for block in self.blocks:
            x = block(x, future)
        return self.head(self.norm(x))


class TiedStack(Decoder):
    """Own parameters: a list that holds one layer many times is right where its author says that layers share."""

    def __init__(self):
        super().__init__(n_layers=1)
        self.blocks = nn.ModuleList([self.blocks[0]] * 3)  # the layers share their weights


class BiasedRoutingFeedForward(nn.Module):
    """Two experts a token, chosen by their scores with a bias, weighted by the scores alone; one more for all."""

    def __init__(self, n_experts=4):
        super().__init__()
        self.router, self.always = nn.Linear(WIDTH, n_experts, bias=False), feed_forward()
        self.experts = nn.ModuleList(feed_forward() for _ in range(n_experts))
        self.register_buffer("bias", torch.linspace(-0.3, 0.3, n_experts))

    def forward(self, x):
        flat = x.flatten(0, 1)
        scores = self.router(flat).sigmoid()
        chosen = (scores + self.bias).topk(2, -1).indices
        shares = scores.gather(-1, chosen)
        shares = 2.5 * shares / shares.sum(-1, keepdim=True)
        out = self.always(flat)
        for i, expert in enumerate(self.experts):
            token, rank = (chosen == i).nonzero(as_tuple=True)
            out = out.index_add(0, token, shares[token, rank, None] * expert(flat[token]))
        return out.view_as(x)


class BiasedRoutingBlock(Block):
    def __init__(self):
        super().__init__()
        self.mlp = BiasedRoutingFeedForward()


class BiasedRouting(Decoder):
    """Weights of experts: a bias changes which experts are asked, and not how much they count (DeepSeek-V3)."""

    block = BiasedRoutingBlock


class OneExpertFeedForward(BiasedRoutingFeedForward):
    def __init__(self):
        super().__init__()
        del self.bias

    def forward(self, x):
        flat = x.flatten(0, 1)
        best = self.router(flat).softmax(-1).max(-1)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            token = best.indices == i
            out[token] = best.values[token, None] * expert(flat[token])
        return self.always(flat).view_as(x) + out.view_as(x)


class OneExpertBlock(Block):
    def __init__(self):
        super().__init__()
        self.mlp = OneExpertFeedForward()


class OneExpertEach(Decoder):
    """Experts that count: where a token has one expert, its answer may be written, as nothing is written over."""

    block = OneExpertBlock


class Bilinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other, self.down = nn.Linear(WIDTH, 24), nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, x):
        return self.down(self.one(x) * self.other(x))


class BilinearBlock(Block):
    def __init__(self):
        super().__init__()
        self.mlp = Bilinear()


class BilinearNetworks(Decoder):
    """A gate's function: a product of two maps is a network by itself, where the author speaks of no function."""

    block = BilinearBlock


class WideAndDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.deep, self.wide, self.down = nn.Linear(WIDTH, 24), nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, x):
        return self.down(torch.relu(self.deep(x)) + self.wide(x))


class WideAndDeepBlock(Block):
    def __init__(self):
        super().__init__()
        self.mlp = WideAndDeep()


class WideNetworks(Decoder):
    """A gate that is added: a linear map beside the function is no gate."""

    block = WideAndDeepBlock


class LearnedSwish(nn.Module):
    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return x * torch.sigmoid(self.beta * x)


class LearnedSwishBlock(Block):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 24), LearnedSwish(), nn.Linear(24, WIDTH))


class LearnedFunctions(Decoder):
    """A function's name: a Swish with a learned slope is one (Ramachandran et al. 2017)."""

    block = LearnedSwishBlock


class StochasticDepth(nn.Module):
    """Layers are dropped whole in training, and count by the share that was kept in evaluation."""

    def __init__(self, drop_rate=0.2):
        super().__init__()
        self.drop_rate = drop_rate

    def forward(self, x):
        if not self.training:
            return x * (1 - self.drop_rate)
        return x * (torch.rand(len(x), *[1] * (x.dim() - 1)) >= self.drop_rate)


class StochasticBlock(Block):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(feed_forward(), StochasticDepth())


class ScaledInEvaluation(Decoder):
    """The mean of what drops: it may be scaled in evaluation and not in training (Huang et al. 2016)."""

    block = StochasticBlock


class CappedLogits(Decoder):
    """Sure of a word: logits that are capped at 15 leave room for any probability."""

    def forward(self, ids):
        return 15.0 * torch.tanh(super().forward(ids) / 15.0)
