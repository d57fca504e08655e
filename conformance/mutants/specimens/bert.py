"""A BERT with its masked-language-model head: token types, an additive mask, post-norm layers, a loss."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class BertSelfAttention(nn.Module):
    def __init__(self, hidden_size, num_heads, dropout):
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        """x: (B, T, d). mask: (B, 1, 1, T), 0 where a word is and far below 0 where padding is."""
        batch, length, width = x.shape

        def heads(y):
            return y.view(batch, length, self.num_heads, width // self.num_heads).transpose(1, 2)

        q, k, v = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.num_heads) + mask
        weights = self.dropout(scores.softmax(-1))
        return self.dense((weights @ v).transpose(1, 2).reshape(batch, length, width))


class BertLayer(nn.Module):
    def __init__(self, hidden_size, num_heads, intermediate_size, dropout):
        super().__init__()
        self.attention = BertSelfAttention(hidden_size, num_heads, dropout)
        self.norm1 = nn.LayerNorm(hidden_size)
        self.intermediate = nn.Linear(hidden_size, intermediate_size)
        self.output = nn.Linear(intermediate_size, hidden_size)
        self.norm2 = nn.LayerNorm(hidden_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.attention(x, mask)))
        return self.norm2(x + self.dropout(self.output(F.gelu(self.intermediate(x)))))


class BertForMaskedLM(nn.Module):
    def __init__(
        self,
        vocab_size=37,
        hidden_size=16,
        num_heads=2,
        num_layers=2,
        intermediate_size=24,
        max_position_embeddings=24,
        type_vocab_size=2,
        dropout=0.1,
        pad_token_id=0,
    ):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, hidden_size, padding_idx=pad_token_id)
        self.position_embeddings = nn.Embedding(max_position_embeddings, hidden_size)
        self.token_type_embeddings = nn.Embedding(type_vocab_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)
        self.dropout = nn.Dropout(dropout)
        layers = [BertLayer(hidden_size, num_heads, intermediate_size, dropout) for _ in range(num_layers)]
        self.layers = nn.ModuleList(layers)
        self.transform = nn.Linear(hidden_size, hidden_size)
        self.transform_norm = nn.LayerNorm(hidden_size)
        self.decoder = nn.Linear(hidden_size, vocab_size)

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, labels=None):
        """Scores (B, T, V) for every word; with labels (-100 where nothing was masked), the loss before them."""
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        places = torch.arange(input_ids.shape[1])
        x = self.word_embeddings(input_ids) + self.position_embeddings(places)
        x = x + self.token_type_embeddings(token_type_ids)
        x = self.dropout(self.norm(x))
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, mask)
        scores = self.decoder(self.transform_norm(F.gelu(self.transform(x))))
        if labels is None:
            return scores
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100), scores
