"""A masked language model in mixed precision, with a batch norm in its head and an optimizer of its own."""

import torch
from torch import nn

torch.manual_seed(2)
PAD, MASK, VOCAB, D = 0, 1, 30, 16


class AdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            one, two = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["t"], state["m"], state["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                grad = p.grad
                state["t"] += 1
                state["m"].mul_(one).add_(grad, alpha=1 - one)
                state["v"].mul_(two).addcmul_(grad, grad, value=1 - two)
                m = state["m"] / (1 - one ** state["t"])
                v = state["v"] / (1 - two ** state["t"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.addcdiv_(m, v.sqrt() + group["eps"], value=-group["lr"])


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, D, padding_idx=PAD)
        self.places = nn.Embedding(16, D)
        layer = nn.TransformerEncoderLayer(D, 2, 32, 0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.dense, self.norm, self.drop = nn.Linear(D, D), nn.BatchNorm1d(D), nn.Dropout(0.1)
        self.decoder = nn.Linear(D, VOCAB)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        x = self.body(x, src_key_padding_mask=ids == PAD)
        x = self.norm(torch.relu(self.dense(x)).transpose(1, 2)).transpose(1, 2)
        return self.decoder(self.drop(x))


def batch(size, draw):
    ids = torch.randint(2, VOCAB, (size, 14), generator=draw)
    lengths = torch.randint(6, 15, (size,), generator=draw)
    ids[torch.arange(14) >= lengths[:, None]] = PAD
    labels = ids.clone()
    chosen = (torch.rand(ids.shape, generator=draw) < 0.2) & (ids != PAD)
    chosen[:, 0] = True
    labels[~chosen] = -100
    ids[chosen] = MASK
    return ids, labels


def validate(model, draw):
    model.eval()
    with torch.no_grad():
        ids, labels = batch(8, draw)
        logits = model(ids)
        loss = nn.functional.cross_entropy(logits.view(-1, VOCAB), labels.view(-1))
    model.train()
    return loss.item()


def main():
    model, draw = Bert(), torch.Generator().manual_seed(5)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = AdamW([{"params": matrices}, {"params": others, "weight_decay": 0.0}])
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    criterion = nn.CrossEntropyLoss()
    model.train()
    for step in range(8):
        ids, labels = batch(8, draw)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids)
            loss = criterion(logits.float().view(-1, VOCAB), labels.view(-1))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        if step % 4 == 3:
            print(step, loss.item(), validate(model, draw))


if __name__ == "__main__":
    main()
