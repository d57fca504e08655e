"""A translator with label smoothing by a divergence, padding on both sides, and the warm-up of the paper."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

torch.manual_seed(1)
PAD, BOS, EOS, VOCAB, D = 0, 1, 2, 20, 16


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCAB, D, padding_idx=PAD)
        self.places = nn.Embedding(16, D)
        self.body = nn.Transformer(D, 2, 1, 1, 32, 0.1, batch_first=True)
        self.out = nn.Linear(D, VOCAB)

    def embedded(self, ids):
        return self.table(ids) * D**0.5 + self.places(torch.arange(ids.shape[1]))

    def forward(self, src, tgt):
        later = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).triu(1)
        hidden = self.body(
            self.embedded(src),
            self.embedded(tgt),
            tgt_mask=later,
            src_key_padding_mask=src == PAD,
            tgt_key_padding_mask=tgt == PAD,
            memory_key_padding_mask=src == PAD,
        )
        return torch.log_softmax(self.out(hidden), dim=-1)


class LabelSmoothing(nn.Module):
    def __init__(self, smoothing=0.1):
        super().__init__()
        self.smoothing = smoothing
        self.criterion = nn.KLDivLoss(reduction="sum")

    def forward(self, x, target):
        wanted = torch.full_like(x, self.smoothing / (VOCAB - 2))
        wanted.scatter_(1, target[:, None], 1 - self.smoothing)
        wanted[:, PAD] = 0
        wanted[target == PAD] = 0
        return self.criterion(x, wanted)


class Pairs(torch.utils.data.Dataset):
    def __init__(self, count):
        draw = torch.Generator().manual_seed(3)
        self.rows = [
            torch.randint(3, VOCAB, (int(torch.randint(3, 9, (1,), generator=draw)),), generator=draw)
            for _ in range(count)
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index].tolist()
        return row, [BOS, *reversed(row), EOS]


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def collate(pairs):
    return padded([src for src, _ in pairs]), padded([tgt for _, tgt in pairs])


def rate(step, warmup=5):
    step = max(step, 1)
    return D**-0.5 * min(step**-0.5, step * warmup**-1.5)


model, criterion = Translator(), LabelSmoothing()
optimizer = torch.optim.Adam(model.parameters(), lr=0.5, betas=(0.9, 0.98), eps=1e-9)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=rate)
for _ in range(2):
    for src, tgt in DataLoader(Pairs(24), batch_size=6, shuffle=True, collate_fn=collate):
        model.train()
        out = model(src, tgt[:, :-1])
        wanted = tgt[:, 1:]
        count = (wanted != PAD).sum()
        loss = criterion(out.reshape(-1, VOCAB), wanted.reshape(-1)) / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        scheduler.step()
    print(loss.item())
