"""Specimens that are given something beside what they are judged by: an image, a class, the columns of a table."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 16


class LabelDropout(nn.Module):
    """Dropout rates: a rate that leaves out whole labels acts, also where the output starts at zero."""

    def __init__(self, in_channels=2, image_size=8, class_dropout_prob=0.1, num_classes=5):
        super().__init__()
        self.class_dropout_prob, self.num_classes = class_dropout_prob, num_classes
        self.patches = nn.Conv2d(in_channels, WIDTH, 4, stride=4)
        self.places = nn.Parameter(torch.randn((image_size // 4) ** 2, WIDTH) * 0.1)
        self.labels = nn.Embedding(num_classes + 1, WIDTH)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, batch_first=True) for _ in range(2))
        self.out = nn.Linear(WIDTH, 16 * in_channels)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, y):
        """x: (B, C, H, W), y: (B,) labels of classes."""
        if self.training and self.class_dropout_prob > 0:
            dropped = torch.rand(len(y), device=y.device) < self.class_dropout_prob
            y = torch.where(dropped, self.num_classes, y)
        h = self.patches(x).flatten(2).transpose(1, 2) + self.places + self.labels(y)[:, None]
        for block in self.blocks:
            h = block(h)
        rows = self.out(h).unflatten(1, (2, 2)).unflatten(-1, (4, 4, -1))
        return rows.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


class SharesOfTheLength(nn.Module):
    """Padding: where places are shares of the padded length, more padding moves them, whatever stands in it."""

    def __init__(self, input_channels=3, num_latents=4, num_classes=5):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(num_latents, WIDTH))
        self.keys = nn.Linear(input_channels + 2, WIDTH)
        self.cross = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, batch_first=True) for _ in range(2))
        self.head = nn.Linear(WIDTH, num_classes)

    def forward(self, data, mask=None):
        """data: (batch, positions, channels), mask: (batch, positions), True where there is data."""
        b, n, _ = data.shape
        place = torch.linspace(-1.0, 1.0, n, device=data.device, dtype=data.dtype)
        waves = torch.stack([place.sin(), place.cos()], -1).expand(b, -1, -1)
        memory = self.keys(torch.cat([data, waves], -1))
        latents = self.latents.expand(b, -1, -1)
        x = latents + self.cross(latents, memory, memory, key_padding_mask=None if mask is None else ~mask)[0]
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


class Captioner(nn.Module):
    """Writing: what is told of an image begins by itself, and ends row by row."""

    def __init__(self, vocab_size=40, max_len=16, bos_id=1, eos_id=2, pad_id=0):
        super().__init__()
        self.bos_id, self.eos_id, self.pad_id = bos_id, eos_id, pad_id
        self.patches = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.words, self.places = nn.Embedding(vocab_size, WIDTH), nn.Embedding(max_len, WIDTH)
        self.blocks = nn.ModuleList(nn.TransformerDecoderLayer(WIDTH, 2, 32, 0.0, batch_first=True) for _ in range(2))
        self.head = nn.Linear(WIDTH, vocab_size)

    def encode(self, images):
        return self.patches(images).flatten(2).transpose(1, 2)

    def decode(self, captions, memory):
        t = captions.shape[1]
        x = self.words(captions) + self.places(torch.arange(t, device=captions.device))
        causal = torch.ones(t, t, dtype=torch.bool, device=captions.device).triu(1)
        for block in self.blocks:
            x = block(x, memory, tgt_mask=causal)
        return self.head(x)

    def forward(self, images, captions):
        """images: (B, 3, 16, 16), captions: (B, T) tokens."""
        return self.decode(captions, self.encode(images))

    @torch.no_grad()
    def caption(self, images, max_new=8):
        memory = self.encode(images)
        said = torch.full((len(images), 1), self.bos_id, dtype=torch.long, device=images.device)
        ended = torch.zeros(len(images), dtype=torch.bool, device=images.device)
        for _ in range(max_new):
            word = self.decode(said, memory)[:, -1].argmax(-1)
            word = torch.where(ended, self.pad_id, word)
            said = torch.cat([said, word[:, None]], 1)
            ended = ended | (word == self.eos_id)
            if ended.all():
                break
        return said


class Columns(nn.Module):
    """Calling: numbers and categories of a table, as many as the parameters say, and a token of the model's own."""

    def __init__(self, n_num_features=5, categories=(3, 4, 6), d_token=WIDTH, d_out=3):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_num_features + 1, d_token))
        self.register_buffer("offsets", torch.tensor([0, *categories[:-1]]).cumsum(0))
        self.categories = nn.Embedding(sum(categories), d_token)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(d_token, 2, 32, 0.0, batch_first=True) for _ in range(2))
        self.head = nn.Linear(d_token, d_out)

    def forward(self, x_num, x_cat):
        x_num = torch.cat([torch.ones(len(x_num), 1, dtype=x_num.dtype), x_num], 1)
        x = torch.cat([self.weight * x_num[:, :, None], self.categories(x_cat + self.offsets)], 1)
        for block in self.blocks:
            x = block(x)
        return self.head(F.relu(x[:, 0]))


class OneKey(nn.Module):
    """Pieces that are read: where attention reads one token, its key counts nothing, and has no gradient."""

    def __init__(self, in_channels=3, n_classes=5):
        super().__init__()
        self.enter, self.blocks = nn.Linear(in_channels, WIDTH), nn.ModuleList(Summary() for _ in range(2))
        self.head = nn.Linear(WIDTH, n_classes)

    def forward(self, x):
        """x: (batch, positions, channels)"""
        h = self.enter(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean(1))


class Summary(nn.Module):
    """Every place reads the mean of all, as far as its own query lets it in."""

    def __init__(self):
        super().__init__()
        self.norm, self.q, self.kv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x):
        k, v = self.kv(self.norm(x).mean(1, keepdim=True)).chunk(2, -1)
        q = self.q(self.norm(x))
        weights = (q @ k.transpose(1, 2) * WIDTH**-0.5).softmax(-1)
        x = x + weights @ v * q.sigmoid()
        return x + self.down(F.gelu(self.up(x)))


class LastNeedsLess(nn.Module):
    """Pieces that are read: what the last block would hand to a block behind it reaches nothing."""

    def __init__(self, in_channels=3, n_classes=5):
        super().__init__()
        self.enter, self.blocks = nn.Linear(in_channels, WIDTH), nn.ModuleList(nn.Linear(WIDTH, 32) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.mix = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, n_classes)

    def forward(self, x):
        """x: (batch, positions, channels)"""
        h, aside = self.enter(x), 0.0
        h = h + self.mix(h, h, h)[0]
        for norm, block in zip(self.norms, self.blocks, strict=True):
            more, handed = block(F.gelu(norm(h) + aside)).chunk(2, -1)
            h, aside = h + more, handed
        return self.head(h.mean(1))


class WordsAndShapes(nn.Module):
    """Calling: two tables of ids that are as long as each other, and added, are no source and target."""

    def __init__(self, n_words=40, n_shapes=6, n_tags=5):
        super().__init__()
        self.words, self.shapes = nn.Embedding(n_words, WIDTH, padding_idx=0), nn.Embedding(n_shapes, WIDTH)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, batch_first=True) for _ in range(2))
        self.out = nn.Linear(WIDTH, n_tags)

    def forward(self, words, shapes):
        """words, shapes: (B, L) ids, 0 is padding."""
        x = self.words(words) + self.shapes(shapes)
        for block in self.blocks:
            x = block(x, src_key_padding_mask=words == 0)
        return self.out(x)


class UtteranceNorm(nn.Module):
    """Each feature of an utterance has mean 0 and variance 1 over its frames."""

    def forward(self, frames):
        centred = frames - frames.mean(1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5)


class ShawFrames(nn.Module):
    """Formulas: a norm of the data is none of a layer; distances that meet the queries are no biases."""

    def __init__(self, num_mel_bins=6, n_classes=5):
        super().__init__()
        self.norm, self.enter = UtteranceNorm(), nn.Linear(num_mel_bins, WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.rel_distance, self.out = nn.Embedding(9, WIDTH), nn.Linear(WIDTH, n_classes)

    def forward(self, features):
        """features: (batch, frames, num_mel_bins)"""
        x = self.enter(self.norm(features))
        place = torch.arange(x.shape[1], device=x.device)
        relative = self.rel_distance((place[None] - place[:, None]).clamp(-4, 4) + 4)
        q = self.q(x) * WIDTH**-0.5
        scores = q @ self.k(x).transpose(1, 2) + torch.einsum("bqd,qkd->bqk", q, relative)
        return self.out(x + self.o(scores.softmax(-1) @ self.v(x)))


class FrameLayer(nn.Module):
    """Attention to frames that are real, and a convolution along the time that is given no padding."""

    def __init__(self, width=WIDTH, kernel=3):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, batch_first=True)
        self.depthwise, self.kernel = nn.Conv1d(width, width, kernel, groups=width), kernel

    def forward(self, x, padding):
        y = self.norm(x)
        x = x + self.attention(y, y, y, key_padding_mask=padding, need_weights=False)[0]
        y = F.pad(x.masked_fill(padding[..., None], 0.0).transpose(1, 2), (self.kernel - 1, 0))
        return x + self.depthwise(y).transpose(1, 2)


class FilledStacks(nn.Module):
    """Lengths behind a stride: a stack that is partly filler is left out. What writes in place may stand alone."""

    def __init__(self, n_mels=8, width=WIDTH):
        super().__init__()
        self.shorten = nn.Conv1d(n_mels, width, 4, stride=4)
        self.places, self.layers = nn.Embedding(128, width), nn.ModuleList(FrameLayer() for _ in range(2))
        self.head = nn.Linear(width, 7)

    def forward(self, mels, lengths):
        filled = F.pad(mels.transpose(1, 2), (0, -mels.shape[1] % 4))
        x = self.shorten(filled).transpose(1, 2)
        F.silu(x, inplace=True)
        padding = torch.arange(x.shape[1]) >= (lengths // 4).clamp(min=1)[:, None]
        x = x + self.places(torch.arange(x.shape[1]))
        for layer in self.layers:
            x = layer(x, padding)
        return self.head(x)


class NormedFrames(nn.Module):
    """Padding of frames: the norm of groups over the time in front of the strides counts it, as wav2vec 2.0's does."""

    def __init__(self, n_mels=8, width=WIDTH):
        super().__init__()
        self.first, self.norm = nn.Conv1d(n_mels, width, 3, stride=2, padding=1), nn.GroupNorm(4, width)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.places, self.layers = nn.Embedding(128, width), nn.ModuleList(FrameLayer() for _ in range(2))

    def forward(self, frames, lengths):
        x = self.second(F.gelu(self.norm(self.first(frames.transpose(1, 2))))).transpose(1, 2)
        padding = torch.arange(x.shape[1]) >= ((lengths + 3) // 4)[:, None]
        x = x + self.places(torch.arange(x.shape[1]))
        for layer in self.layers:
            x = layer(x, padding)
        return x


class FlatResize(nn.Module):
    """Positions of images of other sizes: a table that is resized along the sequence has no rows and columns."""

    def __init__(self, image_size=16, patch_size=4, num_classes=5):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, patch_size, stride=patch_size)
        self.places = nn.Parameter(torch.randn(1, (image_size // patch_size) ** 2, WIDTH) * 0.1)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(WIDTH, num_classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        places = F.interpolate(self.places.transpose(1, 2), x.shape[1], mode="linear").transpose(1, 2)
        return self.head(self.encoder(x + places).mean(1))


class SharedFrames(NormedFrames):
    """Padding of frames: lengths that are shares of the longest are right."""

    def __init__(self, n_mels=8):
        super().__init__(n_mels)
        del self.norm

    def forward(self, frames, wav_lens):
        x = self.second(F.gelu(self.first(frames.transpose(1, 2)))).transpose(1, 2)
        padding = torch.arange(x.shape[1]) >= (wav_lens * x.shape[1]).ceil()[:, None]
        x = x + self.places(torch.arange(x.shape[1]))
        for layer in self.layers:
            x = layer(x, padding)
        return x


class ValidFrames(NormedFrames):
    """Padding of frames: kernels that look nowhere over the end need more frames than a short input has."""

    def __init__(self, n_mels=8):
        super().__init__(n_mels)
        del self.norm
        self.first, self.second = nn.Conv1d(n_mels, WIDTH, 5, stride=2), nn.Conv1d(WIDTH, WIDTH, 3, stride=2)

    def forward(self, frames, lengths):
        x = self.second(F.gelu(self.first(frames.transpose(1, 2)))).transpose(1, 2)
        padding = torch.arange(x.shape[1]) >= (((lengths - 3) // 2 - 1) // 2)[:, None]
        x = x + self.places(torch.arange(x.shape[1]))
        for layer in self.layers:
            x = layer(x, padding)
        return x


def _still(model):
    """What switches a model to evaluation for others."""
    for part in model.modules():
        part.training = False


@torch.no_grad()
def answers(model, batches):
    """Modes: what remembers one and puts it back may have another function switch it."""
    was = model.training
    _still(model)
    found = [model(*batch) for batch in batches]
    model.train(was)
    return found
