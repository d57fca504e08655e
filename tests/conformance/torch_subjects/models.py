"""Whole models from token ids: decoder-only models with caches, an encoder-decoder, an encoder of wrapped sublayers."""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from torch_subjects import merge, split


class RMSNorm(nn.Module):
    eps = 1e-6

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    """Grouped queries and rotated pairs side by side, behind `past` keys and values."""

    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.width = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, n_heads * self.width, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.width, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.width, bias=False)
        self.wo = nn.Linear(n_heads * self.width, dim, bias=False)

    def rotated(self, x, start):
        rates = 10000.0 ** (-torch.arange(0, self.width, 2) / self.width)
        angles = torch.arange(start, start + x.shape[2])[:, None] * rates
        turned = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(torch.ones(()), angles)
        return torch.view_as_real(turned).flatten(-2)

    def forward(self, x, past=None):
        start = 0 if past is None else past[0].shape[2]
        q = self.rotated(split(self.wq(x), self.heads), start)
        k = self.rotated(split(self.wk(x), self.kv_heads), start)
        v = split(self.wv(x), self.kv_heads)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        return self.wo(merge(F.scaled_dot_product_attention(q, k, v, self.visible(q, k), enable_gqa=True))), (k, v)

    def visible(self, q, k):
        return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])


class Gated(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w3 = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads, hidden):
        super().__init__()
        self.attention, self.feed_forward = Attention(dim, n_heads, n_kv_heads), Gated(dim, hidden)
        self.attention_norm, self.ffn_norm = RMSNorm(dim), RMSNorm(dim)

    def forward(self, x, past):
        attended, past = self.attention(self.attention_norm(x), past)
        x = x + attended
        return x + self.feed_forward(self.ffn_norm(x)), past


class LanguageModel(nn.Module):
    """A head of its own; keys and values are handed from call to call."""

    def __init__(self, vocab_size, dim, n_layers, n_heads, n_kv_heads, hidden_dim):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab_size, dim)
        self.layers = nn.ModuleList(Layer(dim, n_heads, n_kv_heads, hidden_dim) for _ in range(n_layers))
        self.norm, self.output = RMSNorm(dim), nn.Linear(dim, vocab_size, bias=False)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, input_ids, past_key_values=None):
        x, kept = self.tok_embeddings(input_ids), []
        for layer, past in zip(self.layers, past_key_values or [None] * len(self.layers), strict=True):
            x, past = layer(x, past)
            kept.append(past)
        return self.output(self.norm(x)), kept


class ForgetfulLanguageModel(LanguageModel):
    """The cache loses its first position at every call."""

    def forward(self, input_ids, past_key_values=None):
        logits, kept = super().forward(input_ids, past_key_values)
        return logits, [(k[:, :, 1:], v[:, :, 1:]) for k, v in kept]


class SteppedLanguageModel(LanguageModel):
    """Keys and values stay inside; each call says where it starts."""

    def forward(self, tokens, start_pos=0):
        logits, self.kept = super().forward(tokens, self.kept if start_pos else None)
        return logits


class LargerEpsLanguageModel(LanguageModel):
    """The norms' eps is 1e-5, as LLaMA's."""

    def __init__(self, vocab_size, dim, n_layers, n_heads, n_kv_heads, hidden_dim):
        super().__init__(vocab_size, dim, n_layers, n_heads, n_kv_heads, hidden_dim)
        for module in self.modules():
            if isinstance(module, RMSNorm):
                module.eps = 1e-5


class RestartedLanguageModel(SteppedLanguageModel):
    """Every call rotates from position 0."""

    def __init__(self, vocab_size, dim, n_layers, n_heads, n_kv_heads, hidden_dim):
        super().__init__(vocab_size, dim, n_layers, n_heads, n_kv_heads, hidden_dim)
        for layer in self.layers:
            layer.attention.rotated = lambda x, start, rotated=layer.attention.rotated: rotated(x, 0)


class MaskedByItsCallerLanguageModel(LanguageModel):
    """Hides the future only with the mask that it is given."""

    def forward(self, tokens, mask=None):
        for layer in self.layers:
            layer.attention.visible = lambda q, k: mask
        return super().forward(tokens)[0]


class MultipliedLanguageModel(LanguageModel):
    """The gated network decides its width: a multiple of 8, as LLaMA's does."""

    def __init__(self, vocab_size, dim, n_layers, n_heads, n_kv_heads):
        super().__init__(vocab_size, dim, n_layers, n_heads, n_kv_heads, 8 * (8 * dim // 24 + 1))


class Translator(nn.Module):
    """The documents' encoder-decoder around torch's stacks; both sides are masked inside."""

    norm_first = False

    def __init__(
        self, src_vocab_size, tgt_vocab_size, d_model, nhead, num_layers, dim_feedforward, dropout=0.1, pad_idx=0
    ):
        super().__init__()
        sizes = {"d_model": d_model, "nhead": nhead, "dim_feedforward": dim_feedforward, "dropout": dropout}
        sizes["norm_first"] = self.norm_first
        self.pad_idx, self.scale = pad_idx, math.sqrt(d_model)
        self.src_embed = nn.Embedding(src_vocab_size, d_model, pad_idx)
        self.tgt_embed = nn.Embedding(tgt_vocab_size, d_model, pad_idx)
        encoder = nn.TransformerEncoderLayer(**sizes, batch_first=True)
        decoder = nn.TransformerDecoderLayer(**sizes, batch_first=True)
        self.encoder = nn.TransformerEncoder(encoder, num_layers, nn.LayerNorm(d_model), enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder, num_layers, nn.LayerNorm(d_model))
        self.drop, self.generator = nn.Dropout(dropout), nn.Linear(d_model, tgt_vocab_size)
        self.initialise()

    def initialise(self):
        for name, parameter in self.named_parameters():
            matrices = parameter.chunk(3) if "in_proj" in name else [parameter]
            for matrix in matrices if parameter.ndim > 1 else []:
                nn.init.xavier_uniform_(matrix.data)
            if "embed" in name:
                parameter.data[self.pad_idx] = 0.0

    def embedded(self, table, ids):
        d = table.embedding_dim
        angles = torch.arange(ids.shape[1])[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
        return self.drop(table(ids) * self.scale + torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :d])

    def forward(self, src, tgt):
        blank, future = src == self.pad_idx, torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).triu(1)
        memory = self.encoder(self.embedded(self.src_embed, src), src_key_padding_mask=blank)
        hidden = self.decoder(
            self.embedded(self.tgt_embed, tgt),
            memory,
            tgt_mask=future,
            tgt_key_padding_mask=tgt == self.pad_idx,
            memory_key_padding_mask=blank,
        )
        return self.generator(hidden)


class PreNormTranslator(Translator):
    norm_first = True


class OverwrittenPadding(Translator):
    """The row of the padding is initialised like any other."""

    def initialise(self):
        super().initialise()
        for table in (self.src_embed, self.tgt_embed):
            nn.init.xavier_uniform_(table.weight)


class MaskedByItsCaller(Translator):
    def forward(self, src, tgt, tgt_mask=None, src_padding_mask=None):
        memory = self.encoder(self.embedded(self.src_embed, src), src_key_padding_mask=src_padding_mask)
        return self.generator(self.decoder(self.embedded(self.tgt_embed, tgt), memory, tgt_mask))


class SequenceFirstTranslator(Translator):
    """Takes and returns (T, B)."""

    def forward(self, src, tgt):
        if src.shape[1] != tgt.shape[1]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        return super().forward(src.T, tgt.T).transpose(0, 1)


class PreNorm(nn.Module):
    """A sublayer behind its norm."""

    def __init__(self, dim, sublayer, dropout):
        super().__init__()
        self.norm, self.sublayer, self.drop = nn.LayerNorm(dim), sublayer, nn.Dropout(dropout)

    def forward(self, x, **keywords):
        return self.drop(self.sublayer(self.norm(x), **keywords))


class WrappedLayer(nn.Module):
    """Takes its sublayers as arguments: only the model can build it."""

    def __init__(self, dim, attention, feed_forward, dropout):
        super().__init__()
        self.attention = PreNorm(dim, attention, dropout)
        self.feed_forward = PreNorm(dim, feed_forward, dropout)

    def forward(self, x, mask=None):
        x = x + self.attention(x, mask=mask)
        return x + self.feed_forward(x)


class DroppingAttention(nn.Module):
    """Mask (B, 1, T), True may attend; a dropout of its own where the model gives it none."""

    def __init__(self, d_model, h, dropout=0.1):
        super().__init__()
        self.heads, self.dropout = h, nn.Dropout(dropout)
        self.query, self.key, self.value, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        q, k, v = (split(project(x), self.heads) for project in (self.query, self.key, self.value))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(1), -1e9)
        return self.out(merge(self.dropout(scores.softmax(-1)) @ v))


class SinusoidalEmbedding(nn.Module):
    """Assigns sines and cosines to every second column, as the listings do: an odd width is refused."""

    def __init__(self, d_model, max_len):
        super().__init__()
        angles = torch.arange(max_len)[:, None] * 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
        codes = torch.zeros(max_len, d_model)
        codes[:, 0::2], codes[:, 1::2] = angles.sin(), angles.cos()
        self.register_buffer("codes", codes)

    def forward(self, x):
        return x + self.codes[: x.shape[1]]


class ClonedAttention(nn.Module):
    """Four copies of one layer: alike until who makes the model initialises them."""

    def __init__(self, h, d_model):
        super().__init__()
        self.heads, self.linears = h, nn.ModuleList(copy.deepcopy(nn.Linear(d_model, d_model)) for _ in range(4))
        for linear in self.linears:
            linear.load_state_dict(self.linears[0].state_dict())

    def forward(self, query, key, value, mask=None):
        q, k, v = (split(f(x), self.heads) for f, x in zip(self.linears, (query, key, value), strict=False))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9)
        return self.linears[-1](merge(scores.softmax(-1) @ v))


class Embedded(nn.Module):
    """Takes its parts as arguments: only a function can make it."""

    def __init__(self, table, positions, attention):
        super().__init__()
        self.table, self.positions, self.attention = table, positions, attention

    def forward(self, ids):
        x = self.positions(self.table(ids))
        return x + self.attention(x, x, x)


def make_embedded(vocab, N=6, d_model=512, h=8):
    """Initialises what it makes, as a function of tutorials does."""
    model = Embedded(nn.Embedding(vocab, d_model), SinusoidalEmbedding(d_model, 64), ClonedAttention(h, d_model))
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter)
    return model


def make_from_options(opt, vocab):
    return make_embedded(vocab, opt.n_layers, opt.d_model, opt.heads)


def make_attention(d_model, heads):
    return CausalAttention(d_model, heads)


def make_pair(d_model, heads):
    return make_attention(d_model, heads), None


def make_nothing(verbose=False):
    raise AssertionError("a function that takes no size of a module is not called")


class PositionCodes(SinusoidalEmbedding):
    """Gives the codes of a table of its own length, for the caller to add."""

    def __init__(self, d_model, max_len=64):
        super().__init__(d_model, max_len)

    def forward(self, x):
        return self.codes[None, : x.shape[1]]


class WrappedEncoder(nn.Module):
    def __init__(self, vocab, d_model, h, n_layers, d_ff, max_len, dropout=0.1):
        super().__init__()
        self.table, self.positions = nn.Embedding(vocab, d_model), SinusoidalEmbedding(d_model, max_len)

        def feed_forward():
            return nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model))

        self.layers = nn.ModuleList(
            WrappedLayer(d_model, DroppingAttention(d_model, h), feed_forward(), dropout) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model)

    def forward(self, ids, mask=None):
        x = self.positions(self.table(ids))
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class CodesAlongTheBatch(WrappedEncoder):
    """The codes run along the first axis, which is the batch's."""

    def __init__(self, vocab, d_model, h, n_layers, d_ff, max_len, dropout=0.1):
        super().__init__(vocab, d_model, h, n_layers, d_ff, max_len, dropout)
        self.positions = SinusoidalEmbeddingAlongTheFirstAxis(d_model, max_len)


class CodesTurnedAround(CodesAlongTheBatch):
    """The sequence is first where the codes are added, and there only."""

    def forward(self, ids, mask=None):
        x = self.positions(self.table(ids).transpose(0, 1)).transpose(0, 1)
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class CodesTurnedAroundBehindMasks(CodesTurnedAround):
    """Needs masks, if only None."""

    def forward(self, ids, mask, ahead_mask):
        return super().forward(ids, mask)


class SinusoidalEmbeddingAlongTheFirstAxis(SinusoidalEmbedding):
    def forward(self, x):
        return x + self.codes[: len(x), None]


class EncoderOfFixedLength(WrappedEncoder):
    """No option says how many positions there are."""

    def __init__(self, vocab, d_model, h, n_layers, d_ff, dropout=0.1):
        super().__init__(vocab, d_model, h, n_layers, d_ff, 64, dropout)
        self.positions = PositionCodes(d_model)

    def forward(self, ids, mask=None):
        x = self.table(ids)
        x = x + self.positions(x)
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class CausalAttention(DroppingAttention):
    """Hides the future by itself."""

    ahead = 0

    def forward(self, x):
        return super().forward(x, torch.ones(1, x.shape[1], x.shape[1], dtype=torch.bool).tril(self.ahead))


class SwitchedAttention(CausalAttention):
    """Causal unless it is told otherwise."""

    def __init__(self, d_model, h, causal=True):
        super().__init__(d_model, h)
        self.ahead = 0 if causal else 99


class MaskOffByOne(CausalAttention):
    """The next position is visible."""

    ahead = 1


class ExchangedDecoderLayer(nn.Module):
    """Cross-attention is given the memory as queries: it runs where both have one length."""

    def __init__(self, d_model, nhead):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.self_attn = nn.MultiheadAttention(d_model, nhead, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d_model, nhead, batch_first=True)
        self.up, self.down = nn.Linear(d_model, 2 * d_model), nn.Linear(2 * d_model, d_model)

    def forward(self, x, memory, tgt_mask=None):
        x = self.norm1(x + self.self_attn(x, x, x, attn_mask=tgt_mask)[0])
        x = self.norm2(x + self.cross_attn(memory, x, x)[0])
        return self.norm3(x + self.down(torch.relu(self.up(x))))


class ExchangedDecoder(nn.Module):
    def __init__(self, vocab_size, d_model, nhead, num_layers):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        self.layers = nn.ModuleList(ExchangedDecoderLayer(d_model, nhead) for _ in range(num_layers))

    def forward(self, ids, memory):
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x, memory)
        return x
