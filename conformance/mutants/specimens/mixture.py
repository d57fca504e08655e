"""A mixture of experts: causal blocks whose feed-forward networks a router chooses, with a loss for its balance."""

import torch
import torch.nn.functional as F
from torch import nn


def network(d_model, d_ff):
    return nn.Sequential(nn.Linear(d_model, d_ff), nn.GELU(), nn.Linear(d_ff, d_model))


class Mixture(nn.Module):
    """The two best of n_experts networks for each token, by weights that sum to one: the softmax of their scores."""

    def __init__(self, d_model, d_ff, n_experts):
        super().__init__()
        self.router = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(network(d_model, d_ff) for _ in range(n_experts))

    def forward(self, x, real):
        flat = x.flatten(0, 1)
        scores = self.router(flat)
        best, chosen = scores.topk(2, -1)
        weights = best.softmax(-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, rank = torch.where(chosen == number)
            out = out.index_add(0, token, weights[token, rank, None] * expert(flat[token]))
        kept = real.flatten()
        load = F.one_hot(chosen[kept], len(self.experts)).to(x.dtype).sum(1).mean(0)
        return out.view_as(x), len(self.experts) * (load * scores.softmax(-1)[kept].mean(0)).sum()


class DropPath(nn.Module):
    """What a layer adds is dropped for some sentences, in training."""

    def __init__(self, drop_rate=0.1):
        super().__init__()
        self.drop_rate = drop_rate

    def forward(self, x):
        if not self.training:
            return x
        kept = torch.rand(len(x), 1, 1, dtype=x.dtype) >= self.drop_rate
        return x * kept / (1 - self.drop_rate)


class Block(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, n_experts):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.mixture, self.drop_path = Mixture(d_model, d_ff, n_experts), DropPath()

    def forward(self, x, real):
        h, length = self.norm1(x), x.shape[1]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = x + self.attention(h, h, h, attn_mask=future, key_padding_mask=~real, need_weights=False)[0]
        mixed, balance = self.mixture(self.norm2(x), real)
        return x + self.drop_path(mixed), balance


class MixtureLM(nn.Module):
    def __init__(self, vocab_size=31, d_model=16, n_heads=2, d_ff=24, n_experts=4, n_layers=2, max_len=24):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(max_len, d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads, d_ff, n_experts) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size)

    def forward(self, ids, labels=None, attention_mask=None):
        """A dict of logits (B, T, V) and the balance loss; with labels (the tokens themselves), the whole loss, too.
        attention_mask (B, T): 1 for words, 0 for padding behind them."""
        real = torch.ones_like(ids).bool() if attention_mask is None else attention_mask.view_as(ids).bool()
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        aux_loss = 0.0
        for block in self.blocks:
            x, balance = block(x, real)
            aux_loss = aux_loss + balance
        logits = self.head(self.norm(x))
        if labels is None:
            return {"logits": logits, "aux_loss": aux_loss}
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        return {"loss": loss + 0.01 * aux_loss, "logits": logits, "aux_loss": aux_loss}

    def configure_optimizers(self, learning_rate=1e-3, weight_decay=0.1):
        """AdamW that lets matrices decay, and no norms and biases."""
        matrices = [parameter for parameter in self.parameters() if parameter.dim() > 1]
        vectors = [parameter for parameter in self.parameters() if parameter.dim() < 2]
        groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=learning_rate)
