"""A language model: accumulation, warm-up, clipping, evaluation, a checkpoint."""

import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
VOCAB, T, WIDTH = 23, 12, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        h = self.norm1(x)
        x = x + self.drop(self.attention(h, h, h, attn_mask=later, need_weights=False)[0])
        return x + self.drop(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(T, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(self.start)

    def start(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def made(count, seed):
    start = torch.randint(10**6, (count, 1), generator=torch.Generator().manual_seed(seed))
    return TensorDataset((start + start // VOCAB % 7 * torch.arange(T + 1) + torch.arange(T + 1) ** 2) % VOCAB)


def loss_of(model, row):
    logits = model(row[:, :-1])
    return F.cross_entropy(logits.reshape(-1, VOCAB), row[:, 1:].reshape(-1))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    losses = [loss_of(model, row).item() for (row,) in loader]
    model.train()
    return sum(losses) / len(losses)


model = GPT()
decayed = [p for p in model.parameters() if p.dim() > 1]
others = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=1e-2)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
train = DataLoader(made(48, 1), batch_size=4, shuffle=True)
valid = DataLoader(made(8, 2), batch_size=4)
accumulated = 2
for epoch in range(2):
    model.train()
    for number, (row,) in enumerate(train):
        loss = loss_of(model, row) / accumulated
        loss.backward()
        if (number + 1) % accumulated == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    print(epoch, evaluate(model, valid))
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
    with tempfile.TemporaryDirectory() as folder:
        torch.save(state, os.path.join(folder, "last.pt"))
