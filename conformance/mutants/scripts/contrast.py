"""A sentence encoder that learns by contrast: a slow copy gives the keys, a queue keeps them; a schedule by hand."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, WARMUP, STEPS = 40, 16, 8, 24


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.drop = nn.Embedding(VOCAB, WIDTH), nn.Dropout(0.1)
        self.inner, self.out = nn.Linear(WIDTH, 32), nn.Linear(32, 8)

    def forward(self, ids):
        return F.normalize(self.out(torch.relu(self.inner(self.drop(self.table(ids)).mean(1)))), dim=-1)


class Contrast(nn.Module):
    def __init__(self, momentum=0.95, temperature=0.2, size=48):
        super().__init__()
        self.momentum, self.temperature = momentum, temperature
        self.query, self.key = Encoder(), Encoder()
        self.key.load_state_dict(self.query.state_dict())
        for parameter in self.key.parameters():
            parameter.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(size, 8), dim=-1))
        self.at = 0

    @torch.no_grad()
    def update_key(self):
        for mine, slow in zip(self.query.parameters(), self.key.parameters(), strict=True):
            slow.mul_(self.momentum).add_(mine, alpha=1 - self.momentum)

    @torch.no_grad()
    def enqueue(self, keys):
        self.queue[self.at : self.at + len(keys)] = keys
        self.at = (self.at + len(keys)) % len(self.queue)

    def forward(self, first, second):
        answers = self.query(first)
        with torch.no_grad():
            keys = self.key(second)
        own = (answers * keys).sum(-1, keepdim=True)
        others = answers @ self.queue.clone().T
        logits = torch.cat([own, others], dim=1) / self.temperature
        return F.cross_entropy(logits, torch.zeros(len(answers), dtype=torch.long)), keys


def view(rows, draw):
    """Two thirds of each row's words, in another order."""
    return torch.stack([row[torch.randperm(len(row), generator=draw)[:6]] for row in rows])


def rate(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.5 * (1.0 + math.cos(math.pi * (step - WARMUP) / STEPS))


@torch.no_grad()
def evaluate(encoder, rows, draw):
    encoder.eval()
    found = (encoder(view(rows, draw)) @ encoder(view(rows, draw)).T).argmax(1)
    encoder.train()
    return (found == torch.arange(len(rows))).float().mean().item()


def main():
    torch.manual_seed(8)
    draw = torch.Generator().manual_seed(9)
    data = torch.randint(VOCAB, (96, 9), generator=draw)
    train, held = data[:80], data[80:]
    model = Contrast()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    last = copy.deepcopy(model.state_dict())
    for step in range(STEPS):
        rows = train[torch.randint(len(train), (8,), generator=draw)]
        loss, keys = model(view(rows, draw), view(rows, draw))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        model.update_key()
        model.enqueue(keys)
        if step % 8 == 7:
            last = copy.deepcopy(model.state_dict())
            print(step, loss.item(), evaluate(model.query, held, draw))
    model.load_state_dict(last)


if __name__ == "__main__":
    main()
