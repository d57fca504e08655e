"""A diffusion Transformer: the noise in an image, by its step and class; guidance, an average of weights."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Classes(nn.Module):
    """Vectors of classes; the last stands for none, which some samples get in training."""

    def __init__(self, n_classes, width, drop=0.2):
        super().__init__()
        self.table, self.none, self.drop = nn.Embedding(n_classes + 1, width), n_classes, drop

    def forward(self, labels):
        if self.training:
            labels = torch.where(torch.rand(labels.shape) < self.drop, self.none, labels)
        return self.table(labels)


class Denoiser(nn.Module):
    def __init__(self, image_size=8, patch_size=4, width=16, n_heads=2, n_layers=2, n_classes=5, n_steps=50):
        super().__init__()
        self.patch_size, self.side, self.n_classes = patch_size, image_size // patch_size, n_classes
        self.patches = nn.Conv2d(3, width, patch_size, stride=patch_size)
        self.places = nn.Parameter(torch.randn(self.side**2, width) / 4)
        self.steps, self.classes = nn.Embedding(n_steps, width), Classes(n_classes, width)
        layer = nn.TransformerEncoderLayer(width, n_heads, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)
        self.norm, self.to_pixels = nn.LayerNorm(width), nn.Linear(width, 3 * patch_size**2)
        angles = torch.linspace(0.02, 0.98, n_steps) * math.pi / 2
        self.register_buffer("alpha_bar", angles.cos() ** 2, persistent=False)

    def forward(self, x, t, labels):
        """The noise (N, 3, H, W) in images (N, 3, H, W) at steps (N,), of classes (N,)."""
        h = self.patches(x).flatten(2).transpose(1, 2) + self.places
        h = h + (self.steps(t) + self.classes(labels))[:, None]
        h = self.to_pixels(self.norm(self.encoder(h)))
        h = h.view(len(x), self.side, self.side, 3, self.patch_size, self.patch_size)
        return h.permute(0, 3, 1, 4, 2, 5).reshape(x.shape)

    def add_noise(self, x, t, noise):
        a = self.alpha_bar[t].view(-1, 1, 1, 1)
        return a.sqrt() * x + (1 - a).sqrt() * noise

    def guided(self, x, t, labels, scale):
        """The noise, led to the classes."""
        without = self(x, t, torch.full_like(labels, self.n_classes))
        return without + scale * (self(x, t, labels) - without)

    def loss(self, x, labels):
        """Images (N, 3, H, W) and their classes (N,) to the mean square error of the noise."""
        t, noise = torch.randint(0, len(self.alpha_bar), labels.shape), torch.randn_like(x)
        return F.mse_loss(self(self.add_noise(x, t, noise), t, labels), noise)

    @torch.no_grad()
    def sample(self, labels, n_steps=8):
        """Images of classes (N,), without noise of their own (DDIM)."""
        x = torch.randn(len(labels), 3, self.side * self.patch_size, self.side * self.patch_size)
        steps = torch.linspace(len(self.alpha_bar) - 1, 0, n_steps).long().tolist()
        for now, later in zip(steps, [*steps[1:], None], strict=True):
            kept, next_kept = self.alpha_bar[now], 1.0 if later is None else self.alpha_bar[later]
            noise = self(x, torch.full_like(labels, now), labels)
            x = (x - (1 - kept) ** 0.5 * noise) / kept**0.5
            x = next_kept**0.5 * x + (1 - next_kept) ** 0.5 * noise
        return x

    @torch.no_grad()
    def update_ema(self, ema, decay=0.99):
        for slow, fast in zip(ema.parameters(), self.parameters(), strict=True):
            slow.mul_(decay).add_(fast, alpha=1 - decay)
