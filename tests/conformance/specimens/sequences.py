"""Sequence-to-sequence models of unusual design: shared vocabularies, decoders that see all, windows, torch's own."""

from collections import namedtuple

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, LONGEST = 16, 2, 24


def causal(length):
    return torch.ones(length, length, dtype=torch.bool).tril()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, memory, mask=None):
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, HEADS, -1).transpose(1, 2)
        k, v = self.kv(memory).view(batch, memory.shape[1], 2, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Layer(nn.Module):
    def __init__(self, crosses=False):
        super().__init__()
        self.self_attention, self.norm1, self.norm2 = Attention(), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, WIDTH))
        self.cross_attention, self.norm3 = (Attention(), nn.LayerNorm(WIDTH)) if crosses else (None, None)

    def forward(self, x, mask=None, memory=None, memory_mask=None):
        h = self.norm1(x)
        x = x + self.self_attention(h, h, mask)
        if memory is not None:
            x = x + self.cross_attention(self.norm3(x), memory, memory_mask)
        return x + self.mlp(self.norm2(x))


class Translator(nn.Module):
    """Two vocabularies, pre-norm layers, no masks of padding: what the others change."""

    def __init__(self, src_vocab_size=22, tgt_vocab_size=25, n_layers=2):
        super().__init__()
        self.src_words, self.tgt_words = nn.Embedding(src_vocab_size, WIDTH), nn.Embedding(tgt_vocab_size, WIDTH)
        self.src_places, self.tgt_places = nn.Embedding(LONGEST, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.encoder = nn.ModuleList(Layer() for _ in range(n_layers))
        self.decoder = nn.ModuleList(Layer(crosses=True) for _ in range(n_layers))
        self.head = nn.Linear(WIDTH, tgt_vocab_size)

    def source_mask(self, length):
        return None

    def target_mask(self, length):
        return causal(length)

    def encode(self, src):
        x = self.src_words(src) + self.src_places(torch.arange(src.shape[1]))
        for layer in self.encoder:
            x = layer(x, self.source_mask(src.shape[1]))
        return x

    def forward(self, src, tgt):
        memory, x = self.encode(src), self.tgt_words(tgt) + self.tgt_places(torch.arange(tgt.shape[1]))
        for layer in self.decoder:
            x = layer(x, self.target_mask(tgt.shape[1]), memory)
        return self.head(x)


class SharedVocabulary(Translator):
    """Shared vocabularies: one table for source, target and head is right."""

    def __init__(self, vocab_size=26):
        super().__init__(vocab_size, vocab_size)
        self.tgt_words = self.src_words
        self.head = nn.Linear(WIDTH, vocab_size, bias=False)
        self.head.weight = self.src_words.weight


class NonAutoregressive(Translator):
    """Non-autoregressive decoders: a target that sees all of itself is a note."""

    def target_mask(self, length):
        return None


class LayerWise(Translator):
    """Composition: each decoder layer looks at the encoder layer of its own height."""

    def forward(self, src, tgt):
        memory = self.src_words(src) + self.src_places(torch.arange(src.shape[1]))
        x = self.tgt_words(tgt) + self.tgt_places(torch.arange(tgt.shape[1]))
        for reader, writer in zip(self.encoder, self.decoder, strict=True):
            memory = reader(memory)
            x = writer(x, self.target_mask(tgt.shape[1]), memory)
        return self.head(x)


class WindowedTarget(Translator):
    """Windows in sequence-to-sequence models: a band of the target is a note."""

    def __init__(self):
        super().__init__(n_layers=1)

    def target_mask(self, length):
        return causal(length) & ~torch.ones(length, length, dtype=torch.bool).tril(-2)


class ShiftsRight(Translator):
    """Labels in, T5's way: the decoder's input is made from the target inside."""

    def forward(self, input_ids, decoder_target_ids):
        start = torch.zeros_like(decoder_target_ids[:, :1])
        return super().forward(input_ids, torch.cat((start, decoder_target_ids[:, :-1]), 1))


class TorchTransformer(nn.Module):
    """Layout and masks: nn.Transformer, sequence first, its masks made by the caller."""

    def __init__(self, src_vocab=21, tgt_vocab=24, dropout=0.1):
        super().__init__()
        self.src_embedding, self.tgt_embedding = nn.Embedding(src_vocab, WIDTH), nn.Embedding(tgt_vocab, WIDTH)
        self.positions = nn.Parameter(torch.randn(LONGEST, 1, WIDTH) * 0.1)
        self.transformer = nn.Transformer(WIDTH, HEADS, 1, 1, 24, dropout)
        self.generator = nn.Linear(WIDTH, tgt_vocab)

    def forward(self, src, tgt, src_mask, tgt_mask, src_padding_mask, tgt_padding_mask, memory_key_padding_mask):
        src_x = self.src_embedding(src) + self.positions[: len(src)]
        tgt_x = self.tgt_embedding(tgt) + self.positions[: len(tgt)]
        x = self.transformer(
            src_x,
            tgt_x,
            src_mask,
            tgt_mask,
            None,
            src_padding_mask,
            tgt_padding_mask,
            memory_key_padding_mask,
        )
        return self.generator(x)


class RowByRow(Translator):
    """Ends: a writer that works on one row after the other cuts each at its own end."""

    @torch.no_grad()
    def generate(self, src, max_length=12, bos_id=0, eos_id=1):
        rows = [self.row(one[None], max_length, bos_id, eos_id) for one in src]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True)

    def row(self, src, max_length, bos_id, eos_id):
        ids = torch.tensor([[bos_id]])
        while ids.shape[1] < max_length:
            best = self(src, ids)[0, -1].argmax()
            if best == eos_id:
                break
            ids = torch.cat([ids, best.view(1, 1)], 1)
        return ids[0, 1:]


class RowsAlive(Translator):
    """Ends: a writer may go on with the rows alone that have not ended."""

    @torch.no_grad()
    def generate(self, src, max_length=12, decoder_start_token_id=0, eos_token_id=1):
        ids = torch.full((len(src), 1), decoder_start_token_id)
        alive = torch.ones(len(src), dtype=torch.bool)
        while alive.any() and ids.shape[1] < max_length:
            best = torch.zeros(len(src), dtype=torch.long)
            best[alive] = self(src[alive], ids[alive])[:, -1].argmax(-1)
            ids = torch.cat([ids, best[:, None]], 1)
            alive = alive & (best != eos_token_id)
        return ids


Marks = namedtuple("Marks", ["bos", "eos"])


class TwoWordsABeam(Translator):
    """Beams: a search that looks at two words for each beam takes fewer beams, and bars signs before the softmax."""

    def __init__(self, src_vocab_size=22, tgt_vocab_size=25):
        super().__init__(src_vocab_size, tgt_vocab_size)
        self.marks = Marks(0, 1)

    @torch.no_grad()
    def beam_search(self, src, beam=4, max_len=12):
        alive, done = [([self.marks.bos], 0.0)], []
        for _ in range(max_len):
            ids = torch.tensor([words for words, _ in alive])
            logits = self(src.expand(len(ids), -1), ids)[:, -1]
            logits[:, self.marks.bos] = float("-inf")
            total = logits.log_softmax(-1) + torch.tensor([score for _, score in alive])[:, None]
            values, places = total.flatten().topk(2 * beam)
            grown = []
            for value, place in zip(values.tolist(), places.tolist(), strict=True):
                row, word = divmod(place, logits.size(-1))
                (done if word == self.marks.eos else grown).append(([*alive[row][0], word], value))
            alive = grown[:beam]
            if len(done) >= beam:
                break
        words, _ = max(done or alive, key=lambda found: found[1] / len(found[0]))
        return [word for word in words if word not in self.marks]
