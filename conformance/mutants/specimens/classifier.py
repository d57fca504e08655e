"""A classifier of sentences: torch's own attention, padding known by its token, the mean over the real words."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, d_model, n_heads, dropout):
        super().__init__()
        self.dropout = dropout
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attention = nn.MultiheadAttention(d_model, n_heads, dropout=dropout, batch_first=True)
        self.inner, self.outer = nn.Linear(d_model, 2 * d_model), nn.Linear(2 * d_model, d_model)

    def forward(self, x, hidden):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, key_padding_mask=hidden, need_weights=False)[0]
        h = F.dropout(self.inner(self.norm2(x)).relu(), self.dropout, self.training)
        return x + self.outer(h)


class TextClassifier(nn.Module):
    def __init__(
        self, vocab_size=33, n_classes=4, d_model=16, n_heads=2, n_layers=2, max_len=24, dropout=0.1, pad_id=0
    ):
        super().__init__()
        self.pad_id = pad_id
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)
        self.positions = nn.Parameter(torch.randn(max_len, d_model) * 0.02)
        self.blocks = nn.ModuleList(Block(d_model, n_heads, dropout) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, n_classes)

    def forward(self, ids):
        """Scores (B, classes) of sentences (B, T), with padding on the right or on the left."""
        hidden = ids == self.pad_id
        places = ((~hidden).cumsum(1) - 1).clamp(min=0)
        x = self.embedding(ids) + self.positions[places]
        for block in self.blocks:
            x = block(x, hidden)
        words = (~hidden).unsqueeze(-1).to(x.dtype)
        mean = (self.norm(x) * words).sum(1) / words.sum(1)
        return self.head(mean)

    @torch.no_grad()
    def predict_proba(self, ids):
        return self(ids).softmax(-1)
