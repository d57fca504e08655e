"""A post-norm translator: sinusoidal positions, masks of both paddings from the ids, beam search."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        places = torch.arange(max_len).unsqueeze(1)
        rates = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        table = torch.zeros(max_len, d_model)
        table[:, 0::2] = torch.sin(places * rates)
        table[:, 1::2] = torch.cos(places * rates)
        self.register_buffer("pe", table)

    def forward(self, x):
        x = x + self.pe[: x.shape[1]]
        return self.dropout(x)


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads, dropout):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, memory, mask):
        """query: (B, Tq, d). memory: (B, Tk, d). mask: broadcasts to (B, H, Tq, Tk), True where a query may look."""
        batch, length, width = query.shape

        def heads(x):
            return x.view(batch, -1, self.n_heads, width // self.n_heads).transpose(1, 2)

        q, k, v = heads(self.w_q(query)), heads(self.w_k(memory)), heads(self.w_v(memory))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.n_heads)
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        return self.w_o((self.dropout(weights) @ v).transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout):
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.outer(self.dropout(self.inner(x).relu()))


class EncoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout):
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, n_heads, dropout)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.self_attention(x, x, mask)))
        return self.norm2(x + self.dropout(self.feed_forward(x)))


class DecoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout):
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, n_heads, dropout)
        self.cross_attention = MultiHeadAttention(d_model, n_heads, dropout)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory, src_mask, tgt_mask):
        x = self.norm1(x + self.dropout(self.self_attention(x, x, tgt_mask)))
        x = self.norm2(x + self.dropout(self.cross_attention(x, memory, src_mask)))
        return self.norm3(x + self.dropout(self.feed_forward(x)))


class Transformer(nn.Module):
    def __init__(
        self,
        src_vocab=23,
        tgt_vocab=27,
        src_pad_idx=0,
        tgt_pad_idx=0,
        d_model=16,
        n_heads=2,
        n_encoder_layers=2,
        n_decoder_layers=4,
        d_ff=24,
        max_len=40,
        dropout=0.1,
    ):
        super().__init__()
        self.src_pad_idx, self.tgt_pad_idx, self.d_model = src_pad_idx, tgt_pad_idx, d_model
        self.src_embedding = nn.Embedding(src_vocab, d_model)
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_model)
        self.positions = PositionalEncoding(d_model, max_len, dropout)
        encoder = [EncoderLayer(d_model, n_heads, d_ff, dropout) for _ in range(n_encoder_layers)]
        decoder = [DecoderLayer(d_model, n_heads, d_ff, dropout) for _ in range(n_decoder_layers)]
        self.encoder, self.decoder = nn.ModuleList(encoder), nn.ModuleList(decoder)
        self.generator = nn.Linear(d_model, tgt_vocab)

    def make_src_mask(self, src):
        return (src != self.src_pad_idx)[:, None, None, :]

    def make_tgt_mask(self, tgt):
        length = tgt.shape[1]
        past = torch.ones(length, length, dtype=torch.bool).tril()
        return (tgt != self.tgt_pad_idx)[:, None, None, :] & past

    def encode(self, src, src_mask):
        x = self.positions(self.src_embedding(src) * math.sqrt(self.d_model))
        for layer in self.encoder:
            x = layer(x, src_mask)
        return x

    def decode(self, tgt, memory, src_mask, tgt_mask):
        x = self.positions(self.tgt_embedding(tgt) * math.sqrt(self.d_model))
        for layer in self.decoder:
            x = layer(x, memory, src_mask, tgt_mask)
        return self.generator(x)

    def forward(self, src, tgt):
        """Logits (B, Tt, V) of the token after each target token."""
        src_mask, tgt_mask = self.make_src_mask(src), self.make_tgt_mask(tgt)
        return self.decode(tgt, self.encode(src, src_mask), src_mask, tgt_mask)

    def loss(self, src, tgt):
        """The mean cross-entropy of the target tokens after the first, each from those before it."""
        logits = self(src, tgt[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=self.tgt_pad_idx)

    @torch.no_grad()
    def translate(self, sources, start_id=1, max_len=10):
        """The greedy targets (B, Tt) for sources (B, Ts), of which the short ones are padded."""
        hidden = self.make_src_mask(sources)
        read = self.encode(sources, hidden)
        written = sources.new_full((len(sources), 1), start_id)
        for _ in range(max_len - 1):
            step = self.decode(written, read, hidden, self.make_tgt_mask(written))
            written = torch.cat((written, step[:, -1].argmax(-1, keepdim=True)), 1)
        return written

    @torch.no_grad()
    def beam_search(self, src, start_id=1, end_id=2, beam_size=3, max_len=10):
        """The likeliest target (1, Tt) that beam_size beams find for a source (1, Ts)."""
        src_mask = self.make_src_mask(src)
        memory = self.encode(src, src_mask)
        beams = [(0.0, torch.tensor([[start_id]]))]
        for _ in range(max_len):
            grown = []
            for score, tgt in beams:
                if tgt[0, -1] == end_id:
                    grown.append((score, tgt))
                    continue
                logits = self.decode(tgt, memory, src_mask, self.make_tgt_mask(tgt))
                for value, word in zip(*logits[0, -1].log_softmax(-1).topk(beam_size), strict=True):
                    grown.append((score + value.item(), torch.cat((tgt, word.view(1, 1)), 1)))
            beams = sorted(grown, key=lambda beam: beam[0], reverse=True)[:beam_size]
        return beams[0][1]

    @torch.no_grad()
    def search_beams(self, src, start_id=1, end_id=2, beam_size=3, max_len=10, alpha=0.6):
        """Targets for a source (1, Ts), each with its score, the best first; scores are divided by a length penalty."""
        src_mask = self.make_src_mask(src)
        memory, done = self.encode(src, src_mask), []
        beams, scores = torch.full((1, 1), start_id), torch.zeros(1)
        for length in range(1, max_len + 1):
            mask = self.make_tgt_mask(beams)
            steps = self.decode(beams, memory.expand(len(beams), -1, -1), src_mask, mask)[:, -1].log_softmax(-1)
            total = scores[:, None] + steps
            scores, index = total.flatten().topk(beam_size)
            beam, word = index // steps.shape[-1], index % steps.shape[-1]
            beams = torch.cat((beams[beam], word[:, None]), 1)
            ended = word == end_id
            done += [
                (b[1:].tolist(), s.item() / length**alpha) for b, s in zip(beams[ended], scores[ended], strict=True)
            ]
            beams, scores = beams[~ended], scores[~ended]
            if len(done) >= beam_size:
                break
        done += [(b[1:].tolist(), s.item() / length**alpha) for b, s in zip(beams, scores, strict=True)]
        return sorted(done, key=lambda found: found[1], reverse=True)[:beam_size]

    @torch.no_grad()
    def search_of_texts(self, src, start_id=1, end_id=2, beam_size=3, max_len=10):
        """The likeliest targets (B, Tt) that beam_size beams find for each source (B, Ts)."""
        src_mask, batch = self.make_src_mask(src), len(src)
        memory = self.encode(src, src_mask).repeat_interleave(beam_size, 0)
        src_mask = src_mask.repeat_interleave(beam_size, 0)
        beams, first = torch.full((batch * beam_size, 1), start_id), torch.arange(batch)[:, None] * beam_size
        scores = torch.tensor([0.0] + [-float("inf")] * (beam_size - 1)).repeat(batch, 1)
        for _ in range(max_len):
            ended = (beams[:, 1:] == end_id).any(1)
            if ended.all():
                break
            steps = self.decode(beams, memory, src_mask, self.make_tgt_mask(beams))[:, -1].log_softmax(-1)
            steps[ended] = -float("inf")
            steps[ended, self.tgt_pad_idx] = 0.0
            scores, index = (scores.view(-1, 1) + steps).view(batch, -1).topk(beam_size)
            origin, word = (first + index // steps.shape[-1]).flatten(), (index % steps.shape[-1]).view(-1, 1)
            beams = torch.cat((beams[origin], word), 1)
        return beams[first[:, 0] + scores.argmax(1)]
