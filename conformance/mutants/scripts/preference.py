"""A language model that learns preferences against its own copy: an average of the weights is judged, on rows apart."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

PAD, WORDS, PROMPT, BETA, EPOCHS, RATE = 0, 20, 3, 0.1, 3, 2e-3


class Answers(Dataset):
    def __init__(self, count=80):
        draw = torch.Generator().manual_seed(4)
        self.rows = []
        for _ in range(count):
            prompt = torch.randint(1, WORDS, (PROMPT,), generator=draw)
            sizes = torch.randint(2, 7, (2,), generator=draw).tolist()
            good = (prompt[-1] + torch.arange(1, sizes[0] + 1)) % (WORDS - 1) + 1
            bad = torch.randint(1, WORDS, (sizes[1],), generator=draw)
            self.rows.append((torch.cat([prompt, good]), torch.cat([prompt, bad])))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(pairs):
    longest = max(len(one) for pair in pairs for one in pair)
    padded = [[F.pad(one, (0, longest - len(one)), value=PAD) for one in pair] for pair in pairs]
    return torch.stack([pair[0] for pair in padded]), torch.stack([pair[1] for pair in padded])


class Writer(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(12, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 48, 0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, ids):
        size = ids.shape[1]
        future = torch.ones(size, size, dtype=torch.bool).triu(1)
        return self.head(self.layer(self.words(ids) + self.places(torch.arange(size)), src_mask=future))


def log_probability(model, ids):
    logits, labels = model(ids)[:, :-1], ids[:, 1:]
    every = logits.log_softmax(-1).gather(2, labels[..., None])[..., 0]
    counts = labels != PAD
    counts[:, : PROMPT - 1] = False
    return (every * counts).sum(1)


def preference_loss(chosen, rejected, reference_chosen, reference_rejected):
    margin = (chosen - rejected) - (reference_chosen - reference_rejected)
    return -F.logsigmoid(BETA * margin).mean()


@torch.no_grad()
def evaluate(model, loader):
    pairs = [(log_probability(model, chosen), log_probability(model, rejected)) for chosen, rejected in loader]
    return torch.cat([chosen > rejected for chosen, rejected in pairs]).float().mean().item()


def main():
    torch.manual_seed(8)
    train_rows, valid_rows = random_split(Answers(), [64, 16])
    train_loader = DataLoader(train_rows, batch_size=8, shuffle=True, collate_fn=collate)
    valid_loader = DataLoader(valid_rows, batch_size=8, collate_fn=collate)
    policy = Writer()
    reference = copy.deepcopy(policy).requires_grad_(False)
    average = copy.deepcopy(policy).requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=RATE, weight_decay=0.0)
    total, step = EPOCHS * len(train_loader), 0
    for epoch in range(EPOCHS):
        for chosen, rejected in train_loader:
            optimizer.param_groups[0]["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * step / total))
            with torch.no_grad():
                fixed = log_probability(reference, chosen), log_probability(reference, rejected)
            loss = preference_loss(log_probability(policy, chosen), log_probability(policy, rejected), *fixed)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for mine, its in zip(average.parameters(), policy.parameters(), strict=True):
                    mine.lerp_(its, 0.1)
            step += 1
        print(epoch, loss.item(), evaluate(average, valid_loader))


if __name__ == "__main__":
    main()
