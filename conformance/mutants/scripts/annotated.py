"""The translator of the annotated Transformer: Batch, NoamOpt, label smoothing by a divergence, run_epoch."""

import copy
import math

import torch
from torch import nn

PAD, BOS, VOCAB = 0, 1, 12


class Attention(nn.Module):
    def __init__(self, heads, width, dropout):
        super().__init__()
        self.heads, self.parts = heads, nn.ModuleList([nn.Linear(width, width) for _ in range(4)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, mask):
        b, h = query.shape[0], self.heads
        q, k, v = (
            part(x).view(b, -1, h, x.shape[-1] // h).transpose(1, 2)
            for part, x in zip(self.parts, (query, key, value), strict=False)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(mask[:, None] == 0, -1e9)
        x = self.dropout(scores.softmax(-1)) @ v
        return self.parts[-1](x.transpose(1, 2).reshape(b, -1, h * q.shape[-1]))


class Layer(nn.Module):
    def __init__(self, width, dropout, crosses):
        super().__init__()
        self.own = Attention(2, width, dropout)
        self.cross = Attention(2, width, dropout) if crosses else None
        self.feed = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3 if crosses else 2)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask, memory=None, memory_mask=None):
        y = self.norms[0](x)
        x = x + self.dropout(self.own(y, y, y, mask))
        if self.cross is not None:
            x = x + self.dropout(self.cross(self.norms[1](x), memory, memory, memory_mask))
        return x + self.dropout(self.feed(self.norms[-1](x)))


class EncoderDecoder(nn.Module):
    def __init__(self, width=16, dropout=0.1):
        super().__init__()
        self.src_embed, self.tgt_embed = nn.Embedding(VOCAB, width), nn.Embedding(VOCAB, width)
        self.places = nn.Parameter(torch.randn(16, width))
        self.encoder = nn.ModuleList([Layer(width, dropout, False)])
        self.decoder = nn.ModuleList([Layer(width, dropout, True)])
        self.generator = nn.Linear(width, VOCAB)

    def forward(self, src, tgt, src_mask, tgt_mask):
        memory = self.src_embed(src) + self.places[: src.shape[1]]
        for layer in self.encoder:
            memory = layer(memory, src_mask)
        x = self.tgt_embed(tgt) + self.places[: tgt.shape[1]]
        for layer in self.decoder:
            x = layer(x, tgt_mask, memory, src_mask)
        return self.generator(x).log_softmax(-1)


class Batch:
    def __init__(self, src, tgt):
        self.src, self.src_mask = src, (src != PAD).unsqueeze(-2)
        self.tgt = tgt[:, :-1]
        self.tgt_y = tgt[:, 1:]
        self.tgt_mask = (self.tgt != PAD).unsqueeze(-2) & torch.ones(1, *[self.tgt.shape[1]] * 2).tril().bool()
        self.ntokens = (self.tgt_y != PAD).sum()


class NoamOpt:
    def __init__(self, width, factor, warmup, optimizer):
        self.optimizer, self.width, self.factor, self.warmup = optimizer, width, factor, warmup
        self._step = 0

    def step(self):
        self._step += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        self.optimizer.step()

    def rate(self):
        step = self._step
        return self.factor * self.width**-0.5 * min(step**-0.5, step * self.warmup**-1.5)


class LabelSmoothing(nn.Module):
    def __init__(self, size, padding, smoothing):
        super().__init__()
        self.criterion = nn.KLDivLoss(reduction="sum")
        self.size, self.padding, self.smoothing = size, padding, smoothing

    def forward(self, x, target):
        true = torch.full_like(x, self.smoothing / (self.size - 2))
        true.scatter_(1, target[:, None], 1.0 - self.smoothing)
        true[:, self.padding] = 0
        true[target == self.padding] = 0.0
        return self.criterion(x, true)


class SimpleLossCompute:
    def __init__(self, criterion, opt=None):
        self.criterion, self.opt = criterion, opt

    def __call__(self, x, y, norm):
        loss = self.criterion(x.reshape(-1, x.shape[-1]), y.reshape(-1)) / norm
        if self.opt is not None:
            self.opt.optimizer.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item() * norm.item()


def data_gen(batches, size, seed):
    draw = torch.Generator().manual_seed(seed)
    for _ in range(batches):
        words = torch.randint(2, VOCAB, (size, 9), generator=draw)
        lengths = torch.randint(4, 10, (size,), generator=draw)
        src = words.masked_fill(torch.arange(9) >= lengths[:, None], PAD)
        answers = [row[:n].flip(0) for row, n in zip(src, lengths.tolist(), strict=True)]
        flipped = nn.utils.rnn.pad_sequence(answers, batch_first=True, padding_value=PAD)
        yield Batch(src, torch.cat([torch.full((size, 1), BOS), flipped], 1))


def run_epoch(batches, model, compute):
    total, tokens = 0.0, 0
    for batch in batches:
        out = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        total += compute(out, batch.tgt_y, batch.ntokens)
        tokens += batch.ntokens.item()
    return total / tokens


def main():
    torch.manual_seed(4)
    model = EncoderDecoder()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    criterion = LabelSmoothing(VOCAB, PAD, 0.1)
    opt = NoamOpt(16, 1.0, 4, torch.optim.Adam(model.parameters(), lr=0, betas=(0.9, 0.98), eps=1e-9))
    best, best_loss = None, math.inf
    for epoch in range(2):
        model.train()
        run_epoch(data_gen(3, 8, epoch), model, SimpleLossCompute(criterion, opt))
        model.eval()
        with torch.no_grad():
            loss = run_epoch(data_gen(2, 8, 100), model, SimpleLossCompute(criterion))
        print(epoch, loss)
        if loss < best_loss:
            best, best_loss = copy.deepcopy(model.state_dict()), loss
    model.load_state_dict(best)


if __name__ == "__main__":
    main()
