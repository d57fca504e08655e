"""A translator trained in epochs: train_epoch, evaluate, accumulation, mixed precision, early stopping by the best."""

import copy
import math

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

PAD, BOS, EOS, VOCAB, WIDTH = 0, 1, 2, 24, 16
ACCUMULATE = 2


def pairs(count, seed):
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 9, (count,), generator=draw).tolist()
    sources = [torch.randint(3, VOCAB, (n,), generator=draw) for n in lengths]
    return [(s, torch.cat([torch.tensor([BOS]), (s - 3 + 7) % (VOCAB - 3) + 3, torch.tensor([EOS])])) for s in sources]


def collate(batch):
    src = pad_sequence([s for s, _ in batch], padding_value=PAD)
    tgt = pad_sequence([t for _, t in batch], padding_value=PAD)
    return src, tgt


class Seq2SeqTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.src_tok_emb, self.tgt_tok_emb = nn.Embedding(VOCAB, WIDTH), nn.Embedding(VOCAB, WIDTH)
        self.positions, self.drop = nn.Embedding(16, WIDTH), nn.Dropout(0.1)
        self.transformer = nn.Transformer(WIDTH, 2, 1, 1, 32, 0.1)
        self.generator = nn.Linear(WIDTH, VOCAB)

    def embed(self, table, ids):
        return self.drop(table(ids) * math.sqrt(WIDTH) + self.positions(torch.arange(len(ids)))[:, None])

    def forward(self, src, tgt, tgt_mask, src_padding, tgt_padding):
        out = self.transformer(
            self.embed(self.src_tok_emb, src),
            self.embed(self.tgt_tok_emb, tgt),
            tgt_mask=tgt_mask,
            src_key_padding_mask=src_padding,
            tgt_key_padding_mask=tgt_padding,
            memory_key_padding_mask=src_padding,
        )
        return self.generator(out)


def create_mask(src, tgt):
    later = torch.ones(len(tgt), len(tgt), dtype=torch.bool).triu(1)
    return later, (src == PAD).T, (tgt == PAD).T


def loss_of(model, loss_fn, src, tgt):
    tgt_input = tgt[:-1]
    logits = model(src, tgt_input, *create_mask(src, tgt_input))
    tgt_out = tgt[1:]
    return loss_fn(logits.reshape(-1, VOCAB), tgt_out.reshape(-1))


def train_epoch(model, loader, optimizer, scaler, loss_fn):
    model.train()
    losses = 0.0
    optimizer.zero_grad()
    for number, (src, tgt) in enumerate(loader):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, loss_fn, src, tgt)
        scaler.scale(loss / ACCUMULATE).backward()
        if (number + 1) % ACCUMULATE == 0:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        losses += loss.item()
    return losses / len(loader)


@torch.no_grad()
def evaluate(model, loader, loss_fn):
    model.eval()
    return sum(loss_of(model, loss_fn, src, tgt).item() for src, tgt in loader) / len(loader)


def main():
    torch.manual_seed(6)
    model = Seq2SeqTransformer()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    loss_fn = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    train_loader = DataLoader(pairs(24, 21), batch_size=6, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(pairs(12, 22), batch_size=6, collate_fn=collate)
    best, best_loss = copy.deepcopy(model.state_dict()), math.inf
    for epoch in range(3):
        train_loss = train_epoch(model, train_loader, optimizer, scaler, loss_fn)
        scheduler.step()
        val_loss = evaluate(model, val_loader, loss_fn)
        print(epoch, train_loss, val_loss)
        if val_loss < best_loss:
            best, best_loss = copy.deepcopy(model.state_dict()), val_loss
    model.load_state_dict(best)
    print(evaluate(model, val_loader, loss_fn))


if __name__ == "__main__":
    main()
