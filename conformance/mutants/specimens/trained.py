"""A small language model with the functions that train it beside it, as they stand in many files."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, 2 * d_model), nn.GELU(), nn.Linear(2 * d_model, d_model))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = (
            one.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for one in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.drop(self.mlp(self.norm2(x)))


class TrainedGPT(nn.Module):
    def __init__(self, vocab_size=31, d_model=16, n_heads=2, n_layers=2, block_size=16):
        super().__init__()
        self.block_size = block_size
        self.tokens, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(block_size, d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class EMA:
    """The average of a model's weights, which follows them slowly."""

    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            self.shadow[name].mul_(self.decay).add_(p, alpha=1 - self.decay)


def train_one_epoch(model, loader, optimizer, device="cpu", max_norm=1.0):
    """One pass over batches of token ids (B, T); the mean loss."""
    model.train()
    total = 0.0
    for ids in loader:
        ids = ids.to(device)
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def evaluate(model, batches):
    """The mean loss of batches of token ids, without learning from them."""
    model.eval()
    with torch.no_grad():
        losses = [F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()) for ids in batches]
    return sum(losses) / len(losses)


def fit(model, loader, val_loader, epochs=2, accumulation_steps=2, lr=1e-3):
    """Several passes; a step for every accumulation_steps batches, along a line down to zero."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    steps = epochs * len(loader) // accumulation_steps
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (steps + 1))
    for epoch in range(epochs):
        model.train()
        for number, ids in enumerate(loader):
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            (loss / accumulation_steps).backward()
            if (number + 1) % accumulation_steps == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
        print(epoch, evaluate(model, val_loader).item())


@torch.no_grad()
def perplexity(model, batches):
    """Of all words of some batches of token ids together."""
    model.eval()
    total, count = 0.0, 0
    for ids in batches:
        words = ids[:, 1:].flatten()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), words)
        total += loss.item() * len(words)
        count += len(words)
    return math.exp(total / count)


@torch.no_grad()
def log_likelihoods(model, texts, pad_id=0):
    """Of each text the sum of the logarithms of the probabilities of its words, but of the first."""
    model.eval()
    ids = nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True, padding_value=pad_id)
    words = ids[:, 1:]
    logarithms = model(ids[:, :-1]).log_softmax(-1).gather(-1, words[..., None]).squeeze(-1)
    return (logarithms * (words != pad_id)).sum(1)
