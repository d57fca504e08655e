"""A Transformer that cleans images: patches by a convolution, sines of rows and columns, pixels put together again."""

import torch
from torch import nn


def sines(places, width):
    """(N, width) of places (N,): a sine and a cosine of each frequency."""
    rates = 10000.0 ** (-torch.arange(0, width, 2) / width)
    waves = places[:, None] * rates
    return torch.cat((waves.sin(), waves.cos()), 1)


class Restorer(nn.Module):
    def __init__(self, image_size=8, patch_size=2, channels=3, d_model=16, n_heads=2, n_layers=2, dropout=0.1):
        super().__init__()
        self.side, self.patch_size, self.channels = image_size // patch_size, patch_size, channels
        self.patches = nn.Conv2d(channels, d_model, patch_size, stride=patch_size)
        rows = torch.arange(self.side).repeat_interleave(self.side)
        columns = torch.arange(self.side).repeat(self.side)
        codes = torch.cat((sines(rows, d_model // 2), sines(columns, d_model // 2)), 1)
        self.register_buffer("pos_embedding", codes[None], persistent=False)
        layer = nn.TransformerEncoderLayer(
            d_model, n_heads, 2 * d_model, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d_model)
        self.to_pixels = nn.Linear(d_model, channels * patch_size**2)

    def forward(self, images):
        """Clean images (B, C, H, W) of images (B, C, H, W)."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = self.to_pixels(self.norm(self.encoder(x + self.pos_embedding)))
        x = x.view(len(images), self.side, self.side, self.channels, self.patch_size, self.patch_size)
        return x.permute(0, 3, 1, 4, 2, 5).reshape(images.shape)
