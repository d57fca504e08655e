"""A masked autoencoder of images: the encoder sees a quarter of the patches, the decoder fills in the others."""

import torch
from torch import nn


def sines(places, width):
    """(N, width) of places (N,): a sine and a cosine of each frequency."""
    rates = 10000.0 ** (-torch.arange(0, width, 2) / width)
    waves = places[:, None] * rates
    return torch.cat((waves.sin(), waves.cos()), 1)


def stack(d_model, n_heads, n_layers):
    layer = nn.TransformerEncoderLayer(d_model, n_heads, 2 * d_model, 0.0, "gelu", batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, n_layers, nn.LayerNorm(d_model), enable_nested_tensor=False)


def picked(tokens, numbers):
    return tokens.gather(1, numbers[..., None].expand(-1, -1, tokens.shape[-1]))


class MaskedAutoencoder(nn.Module):
    def __init__(self, image_size=8, patch_size=2, channels=3, d_model=16, n_heads=2, n_layers=2, share=0.75):
        super().__init__()
        self.side, self.share = image_size // patch_size, share
        self.patches = nn.Conv2d(channels, d_model, patch_size, stride=patch_size)
        rows = torch.arange(self.side).repeat_interleave(self.side)
        columns = torch.arange(self.side).repeat(self.side)
        codes = torch.cat((sines(rows, d_model // 2), sines(columns, d_model // 2)), 1)
        self.register_buffer("pos_embedding", codes[None], persistent=False)
        self.encoder, self.decoder = stack(d_model, n_heads, n_layers), stack(d_model, n_heads, 1)
        self.blank = nn.Parameter(torch.randn(1, 1, d_model) * 0.02)
        self.to_pixels = nn.Linear(d_model, channels * patch_size**2)

    def forward(self, images):
        """The filled in patches (B, N, pixels) of images (B, C, H, W), and a mask (B, N): 1 for hidden ones."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        count = x.shape[1] - int(self.share * x.shape[1])
        order = torch.rand(x.shape[:2]).argsort(1)
        back, kept = order.argsort(1), order[:, :count]
        seen = self.encoder(picked(x + self.pos_embedding, kept))
        blank = self.blank.expand(len(x), x.shape[1] - count, -1)
        filled = picked(torch.cat((seen, blank), 1), back) + self.pos_embedding
        mask = (back >= count).to(x.dtype)
        return self.to_pixels(self.decoder(filled)), mask
