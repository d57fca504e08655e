"""Two towers: forward compares every picture with every text; the loss stands beside the model."""

import math

import torch
import torch.nn.functional as F
from torch import nn

PAD_ID, END_ID = 0, 2


class Tower(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, n_heads, 2 * width, dropout=0.0, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, hidden=None):
        x = self.norm(self.layer(x, src_key_padding_mask=hidden))
        return x.mean(1) if hidden is None else x.masked_fill(hidden[..., None], 0).sum(1) / (~hidden).sum(1)[:, None]


class Towers(nn.Module):
    def __init__(self, vocab_size=31, width=16, n_heads=2, image_size=12, patch_size=4, max_len=16, out=10):
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch_size, stride=patch_size)
        self.patch_places = nn.Parameter(torch.randn((image_size // patch_size) ** 2, width) / 4)
        self.words = nn.Embedding(vocab_size, width)
        self.word_places = nn.Embedding(max_len, width)
        self.of_pictures, self.of_texts = Tower(width, n_heads), Tower(width, n_heads)
        self.picture_head, self.text_head = nn.Linear(width, out, bias=False), nn.Linear(width, out, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def encode_image(self, images):
        x = self.patch(images).flatten(2).transpose(1, 2) + self.patch_places
        z = self.picture_head(self.of_pictures(x))
        return F.normalize(z, dim=-1)

    def encode_text(self, ids):
        hidden = ids == PAD_ID  # padding behind the end is not seen
        z = self.text_head(self.of_texts(self.words(ids) + self.word_places.weight[: ids.shape[1]], hidden))
        return z / z.norm(dim=1, keepdim=True)

    def forward(self, images, ids):
        """(N, N): pictures (N, 3, 12, 12) along the rows, texts (N, T) along the columns."""
        return self.logit_scale.exp() * self.encode_image(images) @ self.encode_text(ids).t()

    def loss(self, images, ids):
        return contrastive_loss(self(images, ids))


def contrastive_loss(logits):
    own = torch.arange(len(logits), device=logits.device)
    of_pictures = F.cross_entropy(logits, own)
    of_texts = F.cross_entropy(logits.t(), own)
    return (of_pictures + of_texts) / 2
