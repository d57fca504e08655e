"""Training scripts that are right and look wrong: two optimizers, a closure, a frozen body, a second stage."""

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402


def broken(text):
    """The claims that a script breaks, conventions left out."""
    results = results_of(run_of(text, "right.py").run)
    return [slug for slug, result in results.items() if result.verdict in (Verdict.FAIL, Verdict.ERROR)]


GAN = """
import torch
from torch import nn
maker, judge = (nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.1), nn.Linear(8, n)) for n in (3, 1))
ours, theirs = (torch.optim.Adam(m.parameters(), lr=1e-3) for m in (maker, judge))
bce = nn.BCEWithLogitsLoss()
for step in range(6):
    real, fake = torch.randn(4, 3), maker(torch.randn(4, 3))
    theirs.zero_grad()
    bce(judge(real), torch.ones(4, 1)).backward()
    bce(judge(fake.detach()), torch.zeros(4, 1)).backward()
    theirs.step()
    ours.zero_grad()
    bce(judge(fake), torch.ones(4, 1)).backward()
    ours.step()
"""

AUTOENCODER = """
import torch
from torch import nn
class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(9, 8), nn.Linear(8, 9)
    def forward(self, ids):
        text = self.embed(ids).mean(1, keepdim=True)
        return self.out(self.embed(ids[:, :-1]) + text)
model = Autoencoder()
adam = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(6):
    ids = torch.randint(1, 9, (4, 7))
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids[:, 1:].flatten())
    adam.zero_grad()
    loss.backward()
    adam.step()
"""

MOMENTUM_COPY = """
import copy
import torch
from torch import nn
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 4))
key = copy.deepcopy(net).requires_grad_(False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(6):
    x = torch.randn(6, 4)
    q = net(x)
    with torch.no_grad():
        for mine, its in zip(net.parameters(), key.parameters()):
            its.mul_(0.9).add_(mine, alpha=0.1)
        k = key(x)
    loss = nn.functional.cross_entropy(q @ k.T, torch.arange(6))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

CLOSURE = """
import torch
from torch import nn
model = nn.Linear(4, 3)
x, y = torch.randn(8, 4), torch.randint(3, (8,))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
def closure():
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    return loss
for step in range(4):
    optimizer.step(closure)
"""

BY_HAND = """
import torch
from torch import nn
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    for group in optimizer.param_groups:
        group["lr"] = 0.1 / (step + 1)
    nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
    optimizer.step()
    for p in model.parameters():
        p.grad = None
"""

FROZEN_BODY = """
import torch
from torch import nn
body, head = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2)), nn.Linear(8, 3)
for p in body.parameters():
    p.requires_grad = False
body.eval()
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2, weight_decay=0.0)
for step in range(5):
    with torch.no_grad():
        features = body(torch.randn(8, 4))
    loss = nn.functional.cross_entropy(head(features), torch.randint(3, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

COPY_TASK = """
import torch
from torch import nn
table, gru, head = nn.Embedding(12, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 12)
decoder = nn.GRU(8, 8, batch_first=True)
model = nn.ModuleList([table, gru, head, decoder])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(5):
    src = torch.randint(2, 12, (6, 7))
    given = torch.cat([torch.ones(6, 1, dtype=torch.long), src[:, :-1]], 1)
    _, state = gru(table(src))
    out, _ = decoder(table(given), state)
    loss = nn.functional.cross_entropy(head(out).transpose(1, 2), src)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

TWO_STAGES = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 3))
for rate in (1e-2, 1e-3):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(4):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(3, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "text",
    [GAN, AUTOENCODER, MOMENTUM_COPY, CLOSURE, BY_HAND, FROZEN_BODY, COPY_TASK, TWO_STAGES],
    ids=["gan", "autoencoder", "momentum-copy", "closure", "by-hand", "frozen-body", "copy-task", "two-stages"],
)
def test_a_right_script_of_an_unusual_kind_breaks_nothing(text):
    assert broken("import torch\ntorch.manual_seed(0)\n" + text) == []


ENDS = """
import torch
from torch import nn
PAD, EOS = 0, 2
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 8, padding_idx=PAD)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 9)
    def forward(self, ids):
        return self.head(self.layer(self.words(ids), src_key_padding_mask=ids == PAD))
model = Reader()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    ids = torch.randint(3, 9, (4, 6))
    ids[0, 4:] = ids[1, 5:] = EOS
    opt.zero_grad()
    nn.functional.cross_entropy(model(ids).transpose(1, 2), ids.roll(2, 1)).backward()
    opt.step()
"""


def test_ends_that_fill_a_row_are_no_padding_where_the_table_says_what_is():
    assert "run-padding-is-hidden" not in broken(ENDS)


PADDED = """
import torch
from torch import nn
PAD, SEP = 0, 2
class SelfAttention(nn.Module):
    def forward(self, x, hidden):
        scores = (x @ x.mT).masked_fill(hidden[:, None], -1e9)
        return torch.nn.functional.normalize(scores.exp(), p=1, dim=-1) @ x
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.kinds = nn.Embedding(9, 8, padding_idx=PAD), nn.Embedding(2, 8)
        self.attention, self.head = SelfAttention(), nn.Linear(8, 9)
    def forward(self, ids, hidden):
        return self.head(self.attention(self.words(ids) + self.kinds(torch.zeros_like(ids)), hidden))
model = Reader()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    ids = torch.randint(3, 9, (4, 6))
    ids[0, 3], ids[1:, 5], ids[:, 1] = SEP, SEP, SEP
    ids[0, 4:] = PAD
    labels = ids.roll(2, 1).masked_fill(ids == PAD, -100)
    opt.zero_grad()
    nn.functional.cross_entropy(model(ids, HIDDEN).transpose(1, 2), labels).backward()
    opt.step()
"""


@pytest.mark.parametrize(("hidden", "wrong"), [("ids == PAD", False), ("ids < 0", True)])
def test_padding_is_found_at_the_ends_of_few_rows_and_in_anybodys_attention(hidden, wrong):
    assert ("run-padding-is-hidden" in broken(PADDED.replace("HIDDEN", hidden))) == wrong
