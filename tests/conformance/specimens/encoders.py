"""Encoders, masked language models and classifiers of unusual design: windows, fixed lengths, poolers, numbers."""

import math

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, HEADS, LONGEST = 30, 16, 2, 24


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x, mask=None):
        batch, length, _ = x.shape
        q, k, v = (f(x).view(batch, length, HEADS, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Layer(nn.Module):
    mixer = Attention

    def __init__(self):
        super().__init__()
        self.attention, self.norm1, self.norm2 = self.mixer(), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inner, self.outer = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, x, mask=None):
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.outer(F.gelu(self.inner(x))))


class Encoder(nn.Module):
    """Words, positions, layers."""

    layer = Layer

    def __init__(self, n_layers=2):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, WIDTH, padding_idx=0), nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList(self.layer() for _ in range(n_layers))

    def forward(self, ids, mask=None):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x, mask)
        return x


class BertWithPooler(nn.Module):
    """Gradient: a pooler beside the answer is no idle part."""

    def __init__(self):
        super().__init__()
        self.encoder, self.pooler = Encoder(), nn.Linear(WIDTH, WIDTH)

    def forward(self, input_ids, attention_mask=None):
        mask = None if attention_mask is None else attention_mask.bool()[:, None, None, :]
        hidden = self.encoder(input_ids, mask)
        return hidden, torch.tanh(self.pooler(hidden[:, 0]))


class BertForPreTraining(nn.Module):
    """Loss: the loss of the next sentence beside that of the masked words is recognised, or untested."""

    def __init__(self):
        super().__init__()
        self.bert, self.segments = Encoder(), nn.Embedding(2, WIDTH)
        self.mlm, self.nsp = nn.Linear(WIDTH, VOCAB), nn.Linear(WIDTH, 2)

    def forward(self, ids, token_type_ids=None, labels=None, next_sentence=None):
        hidden = self.bert(ids)
        if token_type_ids is not None:
            hidden = hidden + self.segments(token_type_ids)
        scores, sentence = self.mlm(hidden), self.nsp(hidden[:, 0])
        if labels is None:
            return scores, sentence
        loss = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)
        if next_sentence is not None:
            loss = loss + F.cross_entropy(sentence, next_sentence)
        return scores, sentence, loss


class OneTokenType(nn.Module):
    """Token types: a table of one row cannot matter."""

    def __init__(self):
        super().__init__()
        self.roberta, self.types = Encoder(), nn.Embedding(1, WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCAB)

    def mlm(self, x):
        return self.lm_head(x)

    def forward(self, input_ids, token_type_ids=None):
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        return self.mlm(self.roberta(input_ids) + self.types(types))


class TokenClassifier(nn.Module):
    """Kind: labels for every word, fewer than words, make an encoder."""

    def __init__(self, n_tags=5):
        super().__init__()
        self.encoder, self.tagger = Encoder(), nn.Linear(WIDTH, n_tags)

    def forward(self, ids, mask=None):
        return self.tagger(self.encoder(ids, None if mask is None else mask.bool()[:, None, None, :]))


class SentenceEmbedder(nn.Module):
    """Kind: one vector of length one for a sentence, from its real words."""

    def __init__(self):
        super().__init__()
        self.encoder = Encoder()

    def forward(self, input_ids, attention_mask):
        real = attention_mask.bool()
        hidden = self.encoder(input_ids, real[:, None, None, :])
        share = real[..., None].to(hidden.dtype)
        return F.normalize((hidden * share).sum(1) / share.sum(1), dim=-1)


class Retriever(SentenceEmbedder):
    """Gradients: a temperature that only the loss reads is none of forward's."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def contrastive_loss(self, queries, texts):
        first, second = (self(ids, ids.ne(0)) for ids in (queries, texts))
        return F.cross_entropy(first @ second.T * self.temperature.exp(), torch.arange(len(first)))


class MeanByLengths(nn.Module):
    """Padding: lengths in the place of a mask are right."""

    def __init__(self, n_classes=3):
        super().__init__()
        self.encoder, self.head = Encoder(), nn.Linear(WIDTH, n_classes)

    def forward(self, ids, lengths):
        real = torch.arange(ids.shape[1]) < lengths[:, None]
        hidden = self.encoder(ids, real[:, None, None, :]) * real[..., None]
        return self.head(hidden.sum(1) / lengths[:, None])


class FastPath(nn.Module):
    """Padding: torch's encoder takes another way in evaluation, which packs what is not padding."""

    def __init__(self, num_classes=3, pad_idx=0):
        super().__init__()
        self.pad_idx = pad_idx
        self.embedding, self.places = nn.Embedding(VOCAB, WIDTH, padding_idx=pad_idx), nn.Embedding(LONGEST, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.1, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(WIDTH, num_classes)

    def forward(self, ids):
        pad_mask = ids == self.pad_idx
        x = self.embedding(ids) + self.places(torch.arange(ids.shape[1]))
        x = self.encoder(x, src_key_padding_mask=pad_mask)
        real = (~pad_mask)[..., None].to(x.dtype)
        return self.head((x * real).sum(1) / real.sum(1))


class WindowAttention(Attention):
    def forward(self, x, mask=None):
        places = torch.arange(x.shape[1])
        near = (places[:, None] - places).abs() <= 1
        return super().forward(x, near if mask is None else near & mask)


class WindowLayer(Layer):
    mixer = WindowAttention


class WindowEncoder(Encoder):
    layer = WindowLayer


class LongformerMLM(nn.Module):
    """Every word reaches: a window is a note."""

    def __init__(self):
        super().__init__()
        self.encoder, self.mlm_head = WindowEncoder(1), nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        return self.mlm_head(self.encoder(ids))


class StreamingEncoder(nn.Module):
    """Encoders: one that looks back only is a note."""

    def __init__(self, features=7, n_tags=5):
        super().__init__()
        self.proj = nn.Linear(features, WIDTH)
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(2)), nn.Linear(WIDTH, n_tags)

    def forward(self, x):
        x = self.proj(x)
        for layer in self.layers:
            x = layer(x, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril())
        return self.head(x)


class LinformerAttention(nn.Module):
    def __init__(self, length=8, rank=3):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.e, self.f = (nn.Parameter(torch.randn(rank, length) / math.sqrt(length)) for _ in range(2))

    def forward(self, x, mask=None):
        mixed = F.scaled_dot_product_attention(self.q(x), self.e @ self.k(x), self.f @ self.v(x))
        return self.out(mixed)


class LinformerLayer(Layer):
    mixer = LinformerAttention


class LinformerEncoder(Encoder):
    layer = LinformerLayer


class LinformerMLM(nn.Module):
    """Lengths: keys that are projected along the sequence need just one length."""

    def __init__(self):
        super().__init__()
        self.encoder, self.mlm_head = LinformerEncoder(), nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        return self.mlm_head(self.encoder(ids))


class SpatialGate(nn.Module):
    def __init__(self, length=8):
        super().__init__()
        self.norm, self.along = nn.LayerNorm(WIDTH), nn.Linear(length, length)

    def forward(self, x):
        u, v = x.chunk(2, -1)
        return u * self.along(self.norm(v).transpose(1, 2)).transpose(1, 2)


class GMLP(nn.Module):
    """Lengths: gMLP's layer along the sequence needs just one length; it has no attention."""

    def __init__(self):
        super().__init__()
        self.words, self.norm = nn.Embedding(VOCAB, WIDTH), nn.LayerNorm(WIDTH)
        self.widen, self.gate, self.out = nn.Linear(WIDTH, 2 * WIDTH), SpatialGate(), nn.Linear(WIDTH, WIDTH)
        self.mlm_head = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        x = self.words(ids)
        x = x + self.out(self.gate(F.gelu(self.widen(self.norm(x)))))
        return self.mlm_head(x)


class MoCoCopy(nn.Module):
    """Gradient: a copy that follows by averages gets none."""

    def __init__(self):
        super().__init__()
        self.encoder, self.slow = Encoder(), Encoder().requires_grad_(False)
        self.slow.load_state_dict(self.encoder.state_dict())

    def forward(self, ids):
        hidden = self.encoder(ids)
        if not self.training:
            return hidden
        with torch.no_grad():
            for mine, other in zip(self.slow.parameters(), self.encoder.parameters(), strict=True):
                mine.lerp_(other, 0.01)
        return hidden, self.slow(ids)


class FrameClassifier(nn.Module):
    """Numbers in: frames (B, T, features), a convolution with batch norm before the layers, one answer."""

    def __init__(self, n_mels=8, n_classes=4):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(n_mels, WIDTH, 3, padding=1), nn.BatchNorm1d(WIDTH)
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(2)), nn.Linear(WIDTH, n_classes)

    def forward(self, x):
        x = self.norm(self.conv(x.transpose(1, 2))).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


class BlankIsLast(nn.Module):
    """CTC: scores with the time first, the blank as the last letter, lengths of labels before those of frames."""

    def __init__(self, n_mels=8, n_letters=9):
        super().__init__()
        self.blank = n_letters - 1
        self.conv = nn.Conv1d(n_mels, WIDTH, 3, stride=2, padding=1)
        self.places, self.layers = nn.Embedding(256, WIDTH), nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, n_letters)

    def forward(self, mels, mel_lengths):
        x = F.relu(self.conv(mels.transpose(1, 2))).transpose(1, 2)
        kept = (mel_lengths + 1) // 2
        x = x + self.places(torch.arange(x.shape[1]))
        real = torch.arange(x.shape[1]) < kept[:, None]
        for layer in self.layers:
            x = layer(x, real[:, None, None])
        return self.head(x).log_softmax(-1), kept

    def training_step(self, labels, label_lengths, mels, mel_lengths):
        scores, kept = self(mels, mel_lengths)
        return F.ctc_loss(scores.transpose(0, 1), labels, kept, label_lengths, blank=self.blank)

    def decode(self, mels, mel_lengths):
        scores, kept = self(mels, mel_lengths)
        texts = []
        for row, length in zip(scores.argmax(-1).tolist(), kept.tolist(), strict=True):
            text, before = [], self.blank
            for letter in row[:length]:
                if letter not in (before, self.blank):
                    text.append(letter)
                before = letter
            texts.append(text)
        return texts


class Forecaster(nn.Module):
    """Numbers in: a time series (B, T, features), the next steps out."""

    def __init__(self, n_features=3, context_length=16, horizon=4):
        super().__init__()
        self.proj, self.places = nn.Linear(n_features, WIDTH), nn.Parameter(torch.randn(context_length, WIDTH) * 0.1)
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(2)), nn.Linear(context_length * WIDTH, horizon)

    def forward(self, x):
        x = self.proj(x) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(x.flatten(1))


class PatchClassifier(nn.Module):
    """Numbers in: patches cut by reshaping, the mean over them."""

    def __init__(self, image_size=8, patch_size=4, channels=3, num_classes=5):
        super().__init__()
        self.image_size, self.patch_size = image_size, patch_size
        self.embed = nn.Linear(channels * patch_size**2, WIDTH)
        self.places = nn.Parameter(torch.randn((image_size // patch_size) ** 2, WIDTH) * 0.1)
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(2)), nn.Linear(WIDTH, num_classes)

    def forward(self, img):
        p = self.patch_size
        batch, channels, height, width = img.shape
        cut = img.reshape(batch, channels, height // p, p, width // p, p).permute(0, 2, 4, 1, 3, 5)
        x = self.embed(cut.reshape(batch, (height // p) * (width // p), channels * p * p)) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def waves(places, width):
    """(N, width): sines, then cosines, of N numbers."""
    angles = torch.outer(places, 10000.0 ** -(torch.arange(0, width, 2) / width))
    return torch.cat((angles.sin(), angles.cos()), -1)


class GridClassifier(PatchClassifier):
    """Features of positions: one half are waves of the row and one of the column; the class token has its vector."""

    def __init__(self, image_size=16):
        super().__init__(image_size)
        side = image_size // self.patch_size
        row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        table = torch.cat((waves(row.flatten(), WIDTH // 2), waves(column.flatten(), WIDTH // 2)), -1)
        del self.places
        self.register_buffer("pos_embed", torch.cat((torch.zeros(1, WIDTH), table))[None])
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.1)

    def forward(self, img):
        p = self.patch_size
        batch, channels, height, width = img.shape
        cut = img.reshape(batch, channels, height // p, p, width // p, p).permute(0, 2, 4, 1, 3, 5)
        x = self.embed(cut.reshape(batch, (height // p) * (width // p), channels * p * p)) + self.pos_embed[:, 1:]
        x = torch.cat(((self.cls_token + self.pos_embed[:, :1]).expand(batch, -1, -1), x), 1)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


class SymmetricAttention(Attention):
    def __init__(self):
        super().__init__()
        self.distance_bias = nn.Embedding(LONGEST, HEADS)

    def forward(self, x, mask=None):
        places = torch.arange(x.shape[1])
        return super().forward(x, self.distance_bias((places[:, None] - places).abs()).permute(2, 0, 1))


class SymmetricLayer(Layer):
    mixer = SymmetricAttention


class SymmetricEncoder(Encoder):
    """Relative biases: those of a distance without its sign are the same on both sides."""

    layer = SymmetricLayer

    def forward(self, ids):
        return super().forward(ids)


class DiTBlock(nn.Module):
    """Scale, shift and gate come from the condition, and start at zero."""

    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH, elementwise_affine=False), Attention()
        self.modulation = nn.Linear(WIDTH, 3 * WIDTH)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x, condition):
        shift, scale, gate = self.modulation(condition).unsqueeze(1).chunk(3, -1)
        return x + gate * self.attention(self.norm(x) * (1 + scale) + shift)


class DiT(nn.Module):
    """Gradient: modulations and an output that start at zero hide the blocks at the start only."""

    def __init__(self, in_channels=4, seq_len=8):
        super().__init__()
        self.proj, self.places = nn.Linear(in_channels, WIDTH), nn.Parameter(torch.randn(seq_len, WIDTH) * 0.1)
        self.blocks = nn.ModuleList(DiTBlock() for _ in range(2))
        self.to_condition, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, in_channels)
        nn.init.zeros_(self.out.weight)

    def forward(self, x):
        x = self.proj(x) + self.places[: x.shape[1]]
        condition = F.silu(self.to_condition(x.mean(1)))
        for block in self.blocks:
            x = block(x, condition)
        return self.out(x)
