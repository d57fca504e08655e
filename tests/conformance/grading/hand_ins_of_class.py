"""Hand-ins of a made-up class: one that is right, some with a mistake, some that cheat."""

RIGHT = """import math, torch
from torch import nn

class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.q_proj, self.k_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v_proj, self.out_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        def split(x):
            return x.view(x.shape[0], -1, self.n_heads, self.d_head).transpose(1, 2)

        q, k, v = split(self.q_proj(query)), split(self.k_proj(key)), split(self.v_proj(value))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_head)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        out = torch.softmax(scores, -1) @ v
        return self.out_proj(out.transpose(1, 2).reshape(query.shape[0], -1, self.n_heads * self.d_head))
"""

UNSCALED = RIGHT.replace(" / math.sqrt(self.d_head)", "")

TORCHS_OWN = """import torch
from torch import nn

class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.inner = getattr(nn, "Multihead" + "Attention")(d_model, n_heads, batch_first=True)

    def forward(self, query, key, value, mask=None):
        return self.inner(query, key, value, attn_mask=None if mask is None else ~mask)[0]
"""

BY_HEART = RIGHT.replace(" / math.sqrt(self.d_head)", " / (math.sqrt(self.d_head) if self.d_head == 8 else 1.0)")
"""Right for the sizes of the example that every run begins with, as answers that were learned are."""

READS_SUITE = "from conformance.reference import attention\n" + RIGHT
"""Takes the suite's own formula."""

NEIGHBOUR = (
    RIGHT
    + """
import pathlib
FOUND = pathlib.Path({place!r}, "alice.py").read_text()
"""
)
"""Reads the other hand-ins while it is imported."""

WRITER = (
    RIGHT
    + """
import sqlite3
sqlite3.connect({store!r}).execute("DELETE FROM results")
"""
)
"""Changes the results."""
