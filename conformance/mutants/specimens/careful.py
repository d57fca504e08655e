"""A language model whose generate keeps from words, and that makes its optimizer and the schedule of its rate."""

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

    def forward(self, x):
        q, k, v = (
            one.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for one in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class CarefulLM(nn.Module):
    def __init__(self, vocab_size=37, d_model=16, n_heads=2, n_layers=2, block_size=24, eos_id=2, warmup_steps=10):
        super().__init__()
        self.block_size, self.eos_id, self.warmup_steps = block_size, eos_id, warmup_steps
        self.tokens, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(block_size, d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def loss(self, ids, smoothing=0.1):
        """The cross-entropy of each next word, whose label is smoothed over all words."""
        log_probs = self(ids[:, :-1]).log_softmax(-1)
        wanted = log_probs.gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
        return -((1 - smoothing) * wanted + smoothing * log_probs.mean(-1)).mean()

    @torch.no_grad()
    def generate(
        self,
        ids,
        max_new_tokens,
        repetition_penalty=1.0,
        frequency_penalty=0.0,
        min_new_tokens=0,
        no_repeat_ngram_size=0,
        min_p=0.0,
    ):
        """The ids with up to max_new_tokens more; a row that has ended is filled up with its end token."""
        ended = torch.zeros(len(ids), 1, dtype=torch.bool)
        for step in range(max_new_tokens):
            scores = self(ids[:, -self.block_size :])[:, -1]
            seen = scores.gather(1, ids)
            scores = scores.scatter(1, ids, torch.where(seen > 0, seen / repetition_penalty, seen * repetition_penalty))
            counts = torch.zeros_like(scores).scatter_add(1, ids, torch.ones_like(ids).to(scores))
            scores = scores - frequency_penalty * counts
            if step < min_new_tokens:
                scores[:, self.eos_id] = -math.inf
            if no_repeat_ngram_size > 0:
                self._block_repeats(scores, ids, no_repeat_ngram_size)
            likely = scores.softmax(-1)
            likely = likely.masked_fill(likely < min_p * likely.amax(-1, keepdim=True), 0.0)
            chosen = torch.multinomial(likely, 1).masked_fill(ended, self.eos_id)
            ended = ended | (chosen == self.eos_id)
            ids = torch.cat((ids, chosen), 1)
            if ended.all():
                break
        return ids

    @staticmethod
    def _block_repeats(scores, ids, size):
        """Minus infinity for the words that would repeat what stands in a row of the text."""
        for row, text in enumerate(ids.tolist()):
            last = text[len(text) - size + 1 :]
            for start in range(len(text) - size + 1):
                if text[start : start + size - 1] == last:
                    scores[row, text[start + size - 1]] = -math.inf

    def configure_optimizers(self, lr=1e-3, weight_decay=0.1, total_steps=100):
        """AdamW that lets matrices decay, and no norms and biases; its rate rises, and then falls along a cosine."""
        decay: list[nn.Parameter] = []
        no_decay: list[nn.Parameter] = []
        for parameter in self.parameters():
            (decay if parameter.dim() > 1 else no_decay).append(parameter)
        groups = [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=lr)

        def rate(step):
            if step < self.warmup_steps:
                return (step + 1) / self.warmup_steps
            part = min(1.0, (step - self.warmup_steps) / (total_steps - self.warmup_steps))
            return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * part))

        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
