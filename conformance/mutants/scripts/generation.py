"""Points of two classes: a variational encoder writes their codes, and a diffusion model with guidance learns these."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES, NULL, TIMES, CODE = 2, 2, 20, 3
P_UNCOND, GUIDANCE = 0.1, 2.0


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(4, 16), nn.Linear(CODE, 4)
        self.mean, self.log_var = nn.Linear(16, CODE), nn.Linear(16, CODE)

    def encode(self, rows):
        hidden = torch.relu(self.inner(rows))
        return self.mean(hidden), self.log_var(hidden)

    def forward(self, rows):
        mu, logvar = self.encode(rows)
        noise = torch.randn_like(mu)
        return self.out(mu + torch.exp(0.5 * logvar) * noise), mu, logvar


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes, self.times = nn.Embedding(CLASSES + 1, 8), nn.Embedding(TIMES, 8)
        self.body = nn.Sequential(nn.Linear(CODE + 16, 32), nn.SiLU(), nn.Linear(32, CODE))

    def forward(self, codes, times, labels):
        return self.body(torch.cat([codes, self.times(times), self.classes(labels)], dim=-1))


def code_loss(coder, rows):
    answer, mu, logvar = coder(rows)
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=-1).mean()
    return F.mse_loss(answer, rows) + 0.01 * kl


def diffusion_loss(model, codes, labels, kept):
    times = torch.randint(TIMES, (len(codes),))
    share = kept[times][:, None]
    noise = torch.randn_like(codes)
    noisy = share.sqrt() * codes + (1 - share).sqrt() * noise
    labels = labels.clone()
    labels[torch.rand(len(labels)) < P_UNCOND] = NULL
    return F.mse_loss(model(noisy, times, labels), noise)


@torch.no_grad()
def sample(model, labels, betas, kept):
    model.eval()
    codes = torch.randn(len(labels), CODE)
    for time in reversed(range(TIMES)):
        times = torch.full((len(labels),), time)
        eps_cond = model(codes, times, labels)
        eps_uncond = model(codes, times, torch.full_like(labels, NULL))
        eps = eps_uncond + GUIDANCE * (eps_cond - eps_uncond)
        codes = (codes - betas[time] / (1 - kept[time]).sqrt() * eps) / (1 - betas[time]).sqrt()
        if time:
            codes = codes + betas[time].sqrt() * torch.randn_like(codes)
    model.train()
    return codes


def main():
    torch.manual_seed(3)
    labels = torch.randint(CLASSES, (96,))
    rows = torch.randn(96, 4) * 0.3 + labels[:, None] * 2.0 - 1.0
    loader = DataLoader(TensorDataset(rows, labels), batch_size=16, shuffle=True)
    coder, model = Coder(), Denoiser()
    betas = torch.linspace(1e-3, 0.2, TIMES)
    kept = (1 - betas).cumprod(0)
    first = torch.optim.Adam(coder.parameters(), lr=3e-3)
    for _ in range(4):
        for some, _ in loader:
            loss = code_loss(coder, some)
            first.zero_grad()
            loss.backward()
            first.step()
    coder.eval().requires_grad_(False)
    second = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(4):
        for some, classes in loader:
            codes = coder.encode(some)[0]
            loss = diffusion_loss(model, codes, classes, kept)
            second.zero_grad()
            loss.backward()
            second.step()
        print(epoch, loss.item(), sample(model, labels[:8], betas, kept).mean().item())


if __name__ == "__main__":
    main()
