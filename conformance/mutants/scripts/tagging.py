"""A tagger in epochs: padded sentences, sums accumulated over batches, weighted classes, a schedule on a plateau."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader

PAD, IGNORE, WORDS, TAGS, WIDTH = 0, -1, 30, 4, 16
ACCUMULATE = 2


def sentences(count, draw):
    """Words, each with the tag of its third of the vocabulary; the sentence's own label is its most frequent tag."""
    found = []
    for _ in range(count):
        words = [draw.choice((draw.randrange(1, 12), draw.randrange(1, WORDS))) for _ in range(draw.randrange(4, 11))]
        tags = [word * TAGS // WORDS for word in words]
        found.append((words, tags, max(tags, key=tags.count)))
    return found


def collate(rows):
    width = max(len(words) for words, _, _ in rows)
    ids = torch.full((len(rows), width), PAD)
    tags = torch.full((len(rows), width), IGNORE)
    for number, (words, own, _) in enumerate(rows):
        ids[number, : len(words)] = torch.tensor(words)
        tags[number, : len(own)] = torch.tensor(own)
    return ids, tags, torch.tensor([label for _, _, label in rows])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(WORDS, WIDTH, padding_idx=PAD), nn.Embedding(16, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.tags, self.label = nn.Linear(WIDTH, TAGS), nn.Linear(WIDTH, TAGS)

    def forward(self, ids):
        pads = ids == PAD
        x = self.table(ids) + self.places(torch.arange(ids.shape[1]))
        x = self.body(x, src_key_padding_mask=pads)
        real = (~pads).unsqueeze(-1).to(x.dtype)
        pooled = (x * real).sum(1) / real.sum(1)
        return self.label(pooled), self.tags(x)


def weights_of(rows):
    counts = torch.bincount(torch.tensor([label for _, _, label in rows]), minlength=TAGS).float() + 1
    return counts.sum() / (TAGS * counts)


def train_epoch(model, loader, criterion, sums, optimizer):
    model.train()
    waiting = []
    for batch in loader:
        waiting.append(batch)
        if len(waiting) < ACCUMULATE:
            continue
        count = sum((tags != IGNORE).sum() for _, tags, _ in waiting)
        optimizer.zero_grad()
        for ids, tags, labels in waiting:
            label, answers = model(ids)
            loss = sums(answers.flatten(0, 1), tags.flatten()) / count
            if labels.numel():
                loss = loss + criterion(label, labels) / ACCUMULATE
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        waiting = []


@torch.no_grad()
def evaluate(model, loader, criterion):
    model.eval()
    losses = [criterion(model(ids)[0], labels).item() for ids, _, labels in loader]
    return sum(losses) / len(losses)


def main():
    torch.manual_seed(10)
    rows = sentences(100, random.Random(11))
    train, valid, test = rows[:64], rows[64:82], rows[82:]
    train_loader = DataLoader(train, batch_size=8, shuffle=True, collate_fn=collate)
    valid_loader = DataLoader(valid, batch_size=9, collate_fn=collate)
    test_loader = DataLoader(test, batch_size=9, collate_fn=collate)
    model = Tagger()
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", patience=1)
    criterion = nn.CrossEntropyLoss(weight=weights_of(train))
    sums = nn.CrossEntropyLoss(ignore_index=IGNORE, reduction="sum")
    for epoch in range(6):
        train_epoch(model, train_loader, criterion, sums, optimizer)
        valid_loss = evaluate(model, valid_loader, criterion)
        schedule.step(valid_loss)
        print(epoch, valid_loss)
    print(evaluate(model, test_loader, criterion))


if __name__ == "__main__":
    main()
