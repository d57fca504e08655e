"""What watching costs on a model of nanoGPT's size: `python -m tools.watch_cost`. Processor seconds of the same steps,
plain and watched, in turns; and whether the losses are the same bits.

The model is nanoGPT's for characters (6 layers, width 384, 6 heads) on batches of 2 rows of 128 tokens: small batches,
because the cost of watching does not grow with them, so that its share here is larger than in a real run.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

SCRIPT = """
import time
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
V, T, D, H, LAYERS, STEPS = 65, 128, 384, 6, 6, {steps}

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D), nn.Dropout(0.2))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (part.view(b, t, H, D // H).transpose(1, 2) for part in self.qkv(self.first(x)).split(D, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.2 if self.training else 0.0)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, D))
        return x + self.mlp(self.second(x))

class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(V, D), nn.Embedding(T, D)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.places(torch.arange(ids.shape[1])))))

model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randint(V, (20000,))
for step in range(STEPS):
    began = time.process_time()
    at = torch.randint(len(data) - T - 1, (2,))
    x, y = (torch.stack([data[i + ahead : i + ahead + T] for i in at]) for ahead in (0, 1))
    loss = F.cross_entropy(model(x).view(-1, V), y.view(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print("STEP", time.process_time() - began, loss.item().hex(), flush=True)
"""


def steps_of(path: Path, is_watched: bool, steps: int) -> tuple[list[float], list[str]]:
    """Processor seconds and losses of each step but the last, which watching ends."""
    watching = ["-m", "conformance", "watch", "--steps", str(steps)] if is_watched else []
    order = [sys.executable, *watching, str(path)]
    out = subprocess.run(order, capture_output=True, text=True).stdout
    found = re.findall(r"^STEP (\S+) (\S+)$", out, re.MULTILINE)[: steps - 1]
    return [float(seconds) for seconds, _ in found], [loss for _, loss in found]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.watch_cost", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="optimizer steps (default 20)")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="runs of each kind (default 3)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.py"
        path.write_text(SCRIPT.replace("{steps}", str(options.steps)), encoding="utf-8")
        turns = [
            [steps_of(path, is_watched, options.steps) for is_watched in (False, True)] for _ in range(options.turns)
        ]
    plain, watched = ([turn[kind][0] for turn in turns] for kind in (0, 1))
    losses = {tuple(run[1]) for turn in turns for run in turn}
    all_steps = median(map(sum, watched)) / median(map(sum, plain))
    later = median(s for run in watched for s in run[3:]) / median(s for run in plain for s in run[3:])
    print(f"{options.steps - 1} steps watched take {all_steps:.2f} times the processor time of plain ones")
    print(f"those after the third take {later:.2f} times")
    print("the losses are the same bits" if len(losses) == 1 else "the losses differ")
    return 0 if len(losses) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
