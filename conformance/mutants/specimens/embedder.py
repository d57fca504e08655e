"""An encoder of sentences: one normalised vector a text, lists sorted inside, contrast within a batch."""

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, real):
        h = self.norm1(x)
        q, k, v = (part(h).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        q, k = F.normalize(q, dim=-1) * q.shape[-1] ** 0.5, F.normalize(k, dim=-1) * k.shape[-1] ** 0.5
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None, :])
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class SentenceEncoder(nn.Module):
    def __init__(self, vocab_size=41, width=16, n_heads=2, n_layers=2, out=12, max_len=24, temperature=0.1, pad_id=0):
        super().__init__()
        self.temperature, self.pad_id = temperature, pad_id
        self.words = nn.Embedding(vocab_size, width, padding_idx=pad_id)
        self.places = nn.Embedding(max_len, width)
        self.layers = nn.ModuleList(Layer(width, n_heads) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, out)

    def forward(self, ids, attention_mask=None):
        """A vector (B, out) of length 1 for each text (B, T)."""
        real = ids != self.pad_id if attention_mask is None else attention_mask.bool()
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, real)
        x = self.norm(x) * real[..., None]
        return F.normalize(self.head(x.sum(1) / real.sum(1, keepdim=True)), dim=-1)

    def contrastive_loss(self, anchors, positives, negatives=None):
        """Each anchor (B, T) with its own positive (B, T) against those of the other anchors, in both directions;
        negatives (N, T) are false for all anchors."""
        scores = self(anchors) @ self(positives).t() / self.temperature
        own = torch.arange(len(scores))
        of_positives = F.cross_entropy(scores.t(), own)
        if negatives is not None:
            worse = self(anchors) @ self(negatives).t()
            scores = torch.cat([scores, worse / self.temperature], 1)
        return 0.5 * (F.cross_entropy(scores, own) + of_positives)

    @torch.no_grad()
    def encode(self, texts, batch_size=8):
        """The vectors of lists of ids, in the order of the list."""
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        made = torch.empty(len(texts), self.head.out_features, dtype=self.head.weight.dtype)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            batch = [torch.tensor(texts[at]) for at in chosen]
            batch = nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=self.pad_id)
            made[chosen] = self(batch)
        return made
