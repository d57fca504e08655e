"""A made-up class to try grading on: `python -m tools.hand_ins FOLDER` writes 30 files with an attention each.

Three ways to write it, each right four times and wrong six times, with one usual mistake a file. The same files every
time. docs/tutorials/grading-a-class.md grades them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

SEPARATE = '''"""Attention with a projection each for query, key and value."""
import math

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.q_proj, self.k_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v_proj, self.out_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def split(self, x):
        return x.view(x.shape[0], -1, self.n_heads, self.d_head).transpose(1, 2)

    def forward(self, query, key, value, mask=None):
        q, k, v = self.split(self.q_proj(query)), self.split(self.k_proj(key)), self.split(self.v_proj(value))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_head)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        out = (weights @ v).transpose(1, 2)
        return self.out_proj(out.reshape(query.shape[0], -1, self.n_heads * self.d_head))
'''
EINSUM = '''"""Attention in the notation of Einstein."""
import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = n_heads
        self.scale = (d_model // n_heads) ** -0.5
        self.to_q = nn.Linear(d_model, d_model, bias=False)
        self.to_k = nn.Linear(d_model, d_model, bias=False)
        self.to_v = nn.Linear(d_model, d_model, bias=False)
        self.to_out = nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        q, k, v = (x.unflatten(-1, (self.heads, -1)) for x in (self.to_q(query), self.to_k(key), self.to_v(value)))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * self.scale
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        weights = scores.softmax(dim=-1)
        out = torch.einsum("bhij,bjhd->bihd", weights, v)
        return self.to_out(out.flatten(-2))
'''
ANNOTATED = '''"""Attention after the Annotated Transformer."""
import math

import torch
from torch import nn


def attention(query, key, value, mask=None):
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    weights = scores.softmax(dim=-1)
    return torch.matmul(weights, value)


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.d_k = d_model // n_heads
        self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])

    def forward(self, query, key, value, mask=None):
        nbatches = query.size(0)
        query, key, value = [
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value))
        ]
        x = attention(query, key, value, mask=mask)
        x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
        return self.linears[-1](x)
'''
MISTAKES = {  # style -> (what is there, what stands there instead)
    SEPARATE: [
        (" / math.sqrt(self.d_head)", ""),
        ("masked_fill(~mask", "masked_fill(mask"),
        ("softmax(scores, dim=-1)", "softmax(scores, dim=-2)"),
        ("        out = (weights @ v).transpose(1, 2)", "        out = weights @ v"),
        ("self.split(self.v_proj(value))", "self.split(self.v_proj(key))"),
        ("return self.out_proj(out", "return (out"),
    ],
    EINSUM: [
        ("(d_model // n_heads) ** -0.5", "d_model ** -0.5"),
        ("mask == 0", "mask == 1"),
        ("softmax(dim=-1)", "softmax(dim=1)"),
        ("self.to_v(value)", "self.to_k(value)"),
        ("bhij,bjhd->bihd", "bhji,bjhd->bihd"),
        ("scores = scores.masked_fill(mask == 0, -1e9)", "scores.masked_fill(mask == 0, -1e9)"),
    ],
    ANNOTATED: [
        ("math.sqrt(query.size(-1))", "query.size(-1)"),
        ("-1e9", "0"),
        ("x.transpose(1, 2).contiguous()", "x.contiguous()"),
        ("zip(self.linears, (query, key, value))", "zip(self.linears, (query, key, key))"),
        ("    return torch.matmul(weights, value)", "    return torch.matmul(weights, value).relu()"),
        ("attention(query, key, value, mask=mask)", "attention(query, key, value)"),
    ],
}
RIGHT = 4
NAMES = (
    "aoife", "bela", "chidi", "dong", "elif", "farid", "greta", "hana", "igor", "jun", "kofi", "lena", "mei", "nadia",
    "omar", "priya", "quinn", "rosa", "sami", "tara", "umut", "vera", "wei", "ximena", "yara", "zoltan", "anton",
    "bianca", "carlos", "dina",
)  # fmt: skip


def hand_ins() -> Iterator[tuple[str, str]]:
    """(author, file), in the order of the authors."""
    files = [style for style in MISTAKES for _ in range(RIGHT)]
    for style, mistakes in MISTAKES.items():
        for old, new in mistakes:
            assert style.count(old) == 1, old
            files.append(style.replace(old, new))
    return zip(NAMES, sorted(files, key=lambda text: hash_of(text)), strict=True)


def hash_of(text: str) -> int:
    """A number that is the same in every process: who wrote what shall not follow the order of the mistakes."""
    return sum(ord(letter) * 31 ** (at % 7) for at, letter in enumerate(text)) % 1_000_003


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.hand_ins", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    if folder.exists() and any(folder.iterdir()):
        print(f"{folder} is not empty: name a new folder", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in hand_ins():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    print(f"30 hand-ins in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
