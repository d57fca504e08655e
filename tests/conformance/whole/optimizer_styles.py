"""A small language model and functions that make its optimizer, as text; and what is told of them."""

from wholes import Whole

import conformance.checks  # noqa: F401
from conformance.adapters.whole.model import whole_model
from conformance.check import CHECKS
from conformance.runner import run_check

HEAD = '''
import math
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, SequentialLR

class GPT(nn.Module):
    """A causal language model."""
    def __init__(self, vocab_size=31):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, 8), nn.Embedding(16, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.head = nn.Linear(8, vocab_size)
    def forward(self, ids):
        future = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
        return self.head(self.block(self.wte(ids) + self.wpe(torch.arange(ids.shape[1])), future))

'''
SORTED = """
def build_optimizer(model, lr=1e-3, weight_decay=0.1):
    decay, no_decay = set(), set()
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        {rule}
    params = dict(model.named_parameters())
    return torch.optim.AdamW([
        {{"params": [params[n] for n in sorted(decay)], "weight_decay": weight_decay}},
        {{"params": [params[n] for n in sorted(no_decay)], "weight_decay": 0.0}},
    ], lr=lr)
"""
WHOLE = "(no_decay if p.ndim < 2 else decay).add(name)"


def result(made, text, claim, head=HEAD):
    return run_check(CHECKS[claim], Whole(whole_model(made("GPT", head + text))), "quick")
