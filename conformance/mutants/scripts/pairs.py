"""Two towers that learn which sentence belongs to which, beside a teacher; then a small model of its answers."""

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, CLASSES, STEPS, WARMUP, RATE = 30, 16, 5, 24, 6, 5e-3


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.drop = nn.Embedding(VOCAB, WIDTH), nn.Dropout(0.1)
        self.inner, self.out = nn.Linear(WIDTH, 32), nn.Linear(32, CLASSES)
        self.down, self.up = nn.Parameter(0.1 * torch.randn(WIDTH, 4)), nn.Parameter(torch.zeros(4, 32))

    def forward(self, ids):
        x = self.drop(self.table(ids)).mean(1)
        return self.out(torch.relu(self.inner(x) + x @ self.down @ self.up))


class Matching(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = Tower(), Tower()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, first, second):
        one = F.normalize(self.left(first), dim=-1)
        two = F.normalize(self.right(second), dim=-1)
        return self.scale.exp() * one @ two.T


class Taught(nn.Module):
    def __init__(self, teacher, temperature=2.0):
        super().__init__()
        self.teacher, self.student = teacher.requires_grad_(False), Tower()
        self.temperature = temperature

    def train(self, mode=True):
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, ids):
        wanted, given = self.teacher(ids), self.student(ids)
        return F.kl_div(
            F.log_softmax(given / self.temperature, dim=-1),
            F.softmax(wanted / self.temperature, dim=-1),
            reduction="batchmean",
        ) * (self.temperature**2)


def rate(step):
    return RATE * (step + 1) / WARMUP if step < WARMUP else RATE * (STEPS - step) / (STEPS - WARMUP)


def match(model, data, draw):
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for step in range(STEPS):
        rows = data[torch.randperm(len(data), generator=draw)[:8]]
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        scores = model(rows[:, :6], rows[:, 6:])
        wanted = torch.arange(len(rows))
        loss = F.cross_entropy(scores, wanted) + F.cross_entropy(scores.T, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("matched", loss.item())


def teach(model, data, draw):
    optimizer = torch.optim.Adam(model.student.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / STEPS))
    model.train()
    for _ in range(STEPS):
        loss = model(data[torch.randint(len(data), (8,), generator=draw)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    print("taught", loss.item())


def main():
    torch.manual_seed(4)
    draw = torch.Generator().manual_seed(6)
    data = torch.randint(VOCAB, (64, 12), generator=draw)
    model = Matching()
    match(model, data, draw)
    teach(Taught(model.left), data, draw)


if __name__ == "__main__":
    main()
