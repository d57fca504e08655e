"""A classifier of rows: parts of one data set, scaled by the training rows; a cosine of epochs; the best weights."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

FEATURES, CLASSES, EPOCHS, PATIENCE = 6, 3, 8, 3


class Rows(Dataset):
    def __init__(self, count=160):
        draw = torch.Generator().manual_seed(2)
        sizes = torch.tensor([0.5, 8.0, 30.0, 2.0, 5.0, 60.0])
        self.inputs = sizes * (1.0 + torch.randn(count, FEATURES, generator=draw))
        self.labels = ((self.inputs / sizes) @ torch.randn(FEATURES, CLASSES, generator=draw)).argmax(1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.inputs[index], self.labels[index]


class Scaled(Dataset):
    def __init__(self, rows, mean, spread):
        self.rows, self.mean, self.spread = rows, mean, spread

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        x, label = self.rows[index]
        return (x - self.mean) / self.spread, label


def statistics(rows):
    inputs = torch.stack([x for x, _ in rows])
    return inputs.mean(0), inputs.std(0)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    losses = [F.cross_entropy(model(x), labels, reduction="sum").item() for x, labels in loader]
    return sum(losses) / len(loader.dataset)


def main():
    torch.manual_seed(1)
    rows = Rows()
    order = torch.randperm(len(rows)).tolist()
    train_rows, valid_rows = Subset(rows, order[:112]), Subset(rows, order[112:])
    known = statistics(train_rows)
    train_set, valid_set = Scaled(train_rows, *known), Scaled(valid_rows, *known)
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
    valid_loader = DataLoader(valid_set, batch_size=16)
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)
    best, best_loss, waited = copy.deepcopy(model.state_dict()), math.inf, 0
    for epoch in range(EPOCHS):
        model.train()
        for x, labels in train_loader:
            loss = F.cross_entropy(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        valid_loss = evaluate(model, valid_loader)
        print(epoch, loss.item(), valid_loss)
        if valid_loss < best_loss:
            best, best_loss, waited = copy.deepcopy(model.state_dict()), valid_loss, 0
        else:
            waited += 1
        if waited == PATIENCE:
            break
    model.load_state_dict(best)
    print(evaluate(model, valid_loader))


if __name__ == "__main__":
    main()
