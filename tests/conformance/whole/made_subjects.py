"""What the tests of making share: small classes of the field as text, and the evidence of what was made."""

from __future__ import annotations

from conformance.adapters.whole.making import Made

HEAD = "import copy\nimport torch\nfrom dataclasses import dataclass\nfrom torch import nn\n"
NET = """
class Net(nn.Module):
    def __init__(self, ninp, nhid):
        super().__init__()
        self.fc = nn.Linear(ninp, nhid)
"""
"""A class whose sizes only its calls tell."""

GPT = """
class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.blocks = nn.ModuleList(nn.Linear(config.n_embd, config.n_embd) for _ in range(config.n_layer))
        self.drop = nn.Dropout(config.dropout)
"""
CONFIG = """
@dataclass
class GPTConfig:
    block_size: int = 16
    vocab_size: int = 30
    n_layer: int = 3
    n_head: int = 2
    n_embd: int = 8
    dropout: float = 0.1
"""
ENCODER = """
class Encoder(nn.Module):
    def __init__(self, vocab_size=40):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 8)

    def forward(self, ids):
        return self.embedding(ids)
"""
"""A model beside which functions and objects stand."""


def evidence(made: Made) -> str:
    return "\n".join(map(str, made.facts))
