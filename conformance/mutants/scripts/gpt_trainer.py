"""A small GPT with a trainer class, as minGPT has them: configuration, callbacks, groups of decay, a sampler."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler


class SortDataset(Dataset):
    """Digits, then the same digits in order; only the second half is learned."""

    def __init__(self, split, count=60, length=6, digits=8):
        draw = torch.Generator().manual_seed(7 if split == "train" else 8)
        self.rows = torch.randint(digits, (count, length), generator=draw)
        self.length, self.digits = length, digits

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        cat = torch.cat([row, row.sort()[0]])
        x, y = cat[:-1].clone(), cat[1:].clone()
        y[: self.length - 1] = -1
        return x, y


class Attention(nn.Module):
    def __init__(self, width, heads, block, dropout):
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.dropout, self.drop = heads, dropout, nn.Dropout(dropout)
        self.register_buffer("mask", torch.ones(block, block).tril().bool())

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (one.view(b, t, self.heads, c // self.heads).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
        weights = F.dropout(scores.softmax(-1), self.dropout, self.training)
        return self.drop(self.proj((weights @ v).transpose(1, 2).reshape(b, t, c)))


class Block(nn.Module):
    def __init__(self, width, heads, block, dropout):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads, block, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocab, block, width=16, heads=2, layers=2, dropout=0.1):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(block, width)
        self.blocks = nn.ModuleList([Block(width, heads, block, dropout) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.apply(self.initialise)

    def initialise(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def configure_optimizers(self, config):
        decay = [p for p in self.parameters() if p.dim() >= 2]
        rest = [p for p in self.parameters() if p.dim() < 2]
        groups = [{"params": decay, "weight_decay": config.weight_decay}, {"params": rest, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas)

    def forward(self, idx, targets=None):
        x = self.tokens(idx) + self.places(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1), ignore_index=-1)
        return logits, loss


class Config:
    max_iters, batch_size, learning_rate, betas = 12, 8, 1e-3, (0.9, 0.95)
    weight_decay, grad_norm_clip, warmup = 0.1, 1.0, 4


class Trainer:
    def __init__(self, config, model, dataset):
        self.config, self.model, self.dataset = config, model, dataset
        self.callbacks, self.iteration = {}, 0

    def add_callback(self, name, callback):
        self.callbacks[name] = callback

    def rate(self):
        return self.config.learning_rate * min(1.0, (self.iteration + 1) / self.config.warmup)

    def run(self):
        model, config = self.model, self.config
        self.optimizer = model.configure_optimizers(config)
        sampler = RandomSampler(self.dataset, replacement=True, num_samples=10**6)
        loader = DataLoader(self.dataset, sampler=sampler, batch_size=config.batch_size)
        model.train()
        for x, y in loader:
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate()
            _, self.loss = model(x, y)
            model.zero_grad(set_to_none=True)
            self.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_norm_clip)
            self.optimizer.step()
            self.callbacks["on_batch_end"](self)
            self.iteration += 1
            if self.iteration >= config.max_iters:
                break


def main():
    torch.manual_seed(3)
    train, test = SortDataset("train"), SortDataset("test")
    model = GPT(vocab=8, block=11)

    @torch.no_grad()
    def eval_split():
        model.eval()
        losses = [model(x, y)[1].item() for x, y in DataLoader(test, batch_size=16)]
        model.train()
        return sum(losses) / len(losses)

    def on_batch_end(trainer):
        if trainer.iteration % 4 == 1:
            print(trainer.iteration, trainer.loss.item(), eval_split())

    trainer = Trainer(Config(), model, train)
    trainer.add_callback("on_batch_end", on_batch_end)
    trainer.run()


if __name__ == "__main__":
    main()
