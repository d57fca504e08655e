"""A reader that marks its answer in a text: words that may look both ways, and scores for where it starts and ends."""

import torch
import torch.nn.functional as F
from torch import nn


class SpanReader(nn.Module):
    """Tokens (B, T) to the scores of starts and ends, (B, T) each, and the loss where both are given, (B,)."""

    def __init__(self, vocab_size=40, d_model=16, n_heads=2, n_layers=2, max_len=24, pad_id=0):
        super().__init__()
        self.pad_id = pad_id
        self.words = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)
        self.places = nn.Embedding(max_len, d_model)
        layer = nn.TransformerEncoderLayer(d_model, n_heads, 2 * d_model, 0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, n_layers, nn.LayerNorm(d_model), enable_nested_tensor=False)
        self.ends = nn.Linear(d_model, 2)

    def forward(self, input_ids, start_positions=None, end_positions=None):
        padding = input_ids == self.pad_id
        x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1], device=input_ids.device))
        start, end = self.ends(self.encoder(x, src_key_padding_mask=padding)).unbind(-1)
        start, end = (scores.masked_fill(padding, -1e4) for scores in (start, end))
        if start_positions is None:
            return start, end
        loss = (F.cross_entropy(start, start_positions) + F.cross_entropy(end, end_positions)) / 2
        return loss, start, end
