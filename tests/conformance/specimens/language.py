"""Language models that are called in unusual ways, or that return more than logits: memories, caches, losses, bytes."""

import math

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, LONGEST = 16, 2, 20


class Attention(nn.Module):
    """Attention under any mask, (B, 1, Tq, Tk) or what broadcasts to it."""

    def __init__(self):
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, memory, mask):
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, HEADS, -1).transpose(1, 2)
        k, v = self.kv(memory).view(batch, memory.shape[1], 2, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x, mask, memory=None):
        h = self.norm1(x)
        x = x + self.attention(h, h if memory is None else torch.cat((self.norm1(memory), h), 1), mask)
        return x + self.mlp(self.norm2(x))


def causal(length, keys=None):
    keys = keys or length
    return torch.ones(length, keys, dtype=torch.bool).tril(keys - length)


class Trunk(nn.Module):
    """From ids to the normed features of the last block."""

    def __init__(self, vocab_size=26, n_layers=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(n_layers))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, ids, mask=None, places=None):
        places = torch.arange(ids.shape[1]) if places is None else places
        x = self.wte(ids) + self.wpe(places)
        mask = causal(ids.shape[1]) if mask is None else mask
        for block in self.h:
            x = block(x, mask)
        return self.ln_f(x)


class WithMemories(nn.Module):
    """Transformer-XL. State between calls: memories that are handed in and out are none."""

    def __init__(self, vocab_size=25, mem_len=4):
        super().__init__()
        self.mem_len = mem_len
        self.wte, self.blocks = nn.Embedding(vocab_size, WIDTH), nn.ModuleList(Block() for _ in range(2))
        self.distances = nn.Embedding(LONGEST, HEADS)
        self.head = nn.Linear(WIDTH, vocab_size)

    def forward(self, ids, mems=None):
        x, kept = self.wte(ids), []
        for i, block in enumerate(self.blocks):
            memory = None if mems is None else mems[i]
            kept.append((x if memory is None else torch.cat((memory, x), 1))[:, -self.mem_len :].detach())
            keys = ids.shape[1] + (0 if memory is None else memory.shape[1])
            far = (torch.arange(keys - ids.shape[1], keys)[:, None] - torch.arange(keys)).clamp(0, LONGEST - 1)
            bias = self.distances(far).permute(2, 0, 1).masked_fill(~causal(ids.shape[1], keys), -math.inf)
            x = block(x, bias[None], memory)
        return self.head(x), kept


class PrefixLM(nn.Module):
    """No later token: the words of a prefix see each other, and only what follows it is causal."""

    def __init__(self, vocab_size=26, prefix_length=3):
        super().__init__()
        self.prefix_length = prefix_length
        self.trunk, self.lm_head = Trunk(vocab_size), nn.Linear(WIDTH, vocab_size)

    def forward(self, ids):
        mask = causal(ids.shape[1])
        mask[:, : self.prefix_length] = True
        return self.lm_head(self.trunk(ids, mask))


class PackedLM(nn.Module):
    """Every earlier token reaches: in a packed row the sign of the end parts documents, and none sees another."""

    def __init__(self, vocab_size=26, eos_id=1):
        super().__init__()
        self.eos_id = eos_id
        self.trunk, self.lm_head = Trunk(vocab_size), nn.Linear(WIDTH, vocab_size)

    def forward(self, ids):
        ends = (ids == self.eos_id).long()
        document = ends.cumsum(1) - ends
        mask = (document[:, :, None] == document[:, None, :])[:, None] & causal(ids.shape[1])
        return self.lm_head(self.trunk(ids, mask))


class LastPosition(nn.Module):
    """nanoGPT. Prefix and loss: one position without targets, all with targets, which its caller has shifted."""

    def __init__(self, vocab_size=27):
        super().__init__()
        self.transformer, self.lm_head = Trunk(vocab_size), nn.Linear(WIDTH, vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        x = self.transformer(idx)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class SeveralTokensLM(nn.Module):
    """Loss: heads for the next tokens but one are recognised, or untested."""

    def __init__(self, vocab_size=26, n_future=3):
        super().__init__()
        self.trunk = Trunk(vocab_size)
        self.heads = nn.ModuleList(nn.Linear(WIDTH, vocab_size) for _ in range(n_future))

    def forward(self, ids, labels=None):
        x = self.trunk(ids)
        logits = [head(x) for head in self.heads]
        if labels is None:
            return logits[0]
        loss = sum(
            F.cross_entropy(each[:, :-ahead].flatten(0, 1), labels[:, ahead:].flatten())
            for ahead, each in enumerate(logits, 1)
        )
        return logits[0], loss, logits[1:]


class ZLossLM(nn.Module):
    """Loss: a z-loss beside the cross-entropy is recognised, or untested."""

    def __init__(self, vocab_size=26):
        super().__init__()
        self.trunk, self.lm_head = Trunk(vocab_size), nn.Linear(WIDTH, vocab_size)

    def forward(self, ids, labels=None):
        logits = self.lm_head(self.trunk(ids))
        if labels is None:
            return {"logits": logits}
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"logits": logits, "loss": loss + 1e-2 * logits.logsumexp(-1).square().mean()}


class SmoothedLM(nn.Module):
    """Loss: label smoothing inside is recognised, or untested."""

    def __init__(self, vocab_size=26):
        super().__init__()
        self.trunk, self.lm_head = Trunk(vocab_size), nn.Linear(WIDTH, vocab_size)

    def forward(self, input_ids, labels=None):
        logits = self.lm_head(self.trunk(input_ids))
        loss = None
        if labels is not None:
            flat = logits[:, :-1].flatten(0, 1)
            loss = F.cross_entropy(flat, labels[:, 1:].flatten(), label_smoothing=0.1)
        return loss, logits


class CountedItemsLM(nn.Module):
    """Loss: a sum that is divided by the number of items of all accumulated batches is recognised, or untested."""

    def __init__(self, vocab_size=26):
        super().__init__()
        self.trunk, self.lm_head = Trunk(vocab_size), nn.Linear(WIDTH, vocab_size)

    def forward(self, ids, labels=None, num_items_in_batch=None):
        logits = self.lm_head(self.trunk(ids))
        if labels is None:
            return logits
        reduction = "mean" if num_items_in_batch is None else "sum"
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction=reduction)
        return loss / (num_items_in_batch or 1), logits


class LogProbabilitiesLM(nn.Module):
    """Logits: a log-softmax at the end is right, as is the negative log-likelihood of it."""

    def __init__(self, vocab_size=26):
        super().__init__()
        self.trunk, self.lm_head = Trunk(vocab_size), nn.Linear(WIDTH, vocab_size)

    def forward(self, ids, labels=None):
        logs = self.lm_head(self.trunk(ids)).log_softmax(-1)
        if labels is None:
            return logs
        return logs, F.nll_loss(logs.flatten(0, 1), labels.flatten(), ignore_index=-100)


class ByteLM(nn.Module):
    """Wrong ids: a model of bytes reads any number by its last byte, which is a note."""

    def __init__(self):
        super().__init__()
        self.trunk, self.lm_head = Trunk(256), nn.Linear(WIDTH, 256)

    def forward(self, ids):
        return self.lm_head(self.trunk(ids & 0xFF))


class PaddedTableLM(nn.Module):
    """Wrong ids: a table that is padded to a multiple of 64 takes ids that are no words, which is a note."""

    def __init__(self, vocab_size=50):
        super().__init__()
        rows = math.ceil(vocab_size / 64) * 64
        self.vocab_size, self.trunk, self.lm_head = vocab_size, Trunk(rows), nn.Linear(WIDTH, rows)

    def forward(self, ids):
        return self.lm_head(self.trunk(ids))[..., : self.vocab_size]


class OwnCacheLM(nn.Module):
    """Meta's LLaMA. State between calls: a cache inside that is told its position is declared."""

    def __init__(self, vocab_size=26, max_batch=4, max_len=LONGEST):
        super().__init__()
        self.tok_embeddings, self.output = nn.Embedding(vocab_size, WIDTH), nn.Linear(WIDTH, vocab_size)
        self.pos_embeddings, self.norm = nn.Embedding(max_len, WIDTH), nn.LayerNorm(WIDTH)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.register_buffer("cache_k", torch.zeros(max_batch, max_len, WIDTH), persistent=False)
        self.register_buffer("cache_v", torch.zeros(max_batch, max_len, WIDTH), persistent=False)

    def forward(self, tokens, start_pos: int = 0):
        batch, length = tokens.shape
        end = start_pos + length
        x = self.tok_embeddings(tokens) + self.pos_embeddings(torch.arange(start_pos, end))
        h = self.norm(x)
        if self.training:
            k, v = self.wk(h), self.wv(h)
        else:
            keys, values = self.cache_k.clone(), self.cache_v.clone()
            keys[:batch, start_pos:end], values[:batch, start_pos:end] = self.wk(h), self.wv(h)
            self.cache_k, self.cache_v = keys.detach(), values.detach()
            k, v = keys[:batch, :end], values[:batch, :end]
        mask = causal(length, k.shape[1])
        mixed = F.scaled_dot_product_attention(self.wq(h), k, v, attn_mask=mask)
        return self.output(x + self.wo(mixed))


class SequenceFirstLM(nn.Module):
    """Layout: (T, B) in and (T, B, V) out, as torch's own tutorial has it, is right."""

    def __init__(self, ntoken=28, ninp=16, nhead=2, nhid=32, nlayers=2, dropout=0.2):
        super().__init__()
        self.encoder, self.positions = nn.Embedding(ntoken, ninp), nn.Parameter(torch.randn(LONGEST, 1, ninp) * 0.1)
        layer = nn.TransformerEncoderLayer(ninp, nhead, nhid, dropout)
        self.transformer_encoder = nn.TransformerEncoder(layer, nlayers)
        self.decoder = nn.Linear(ninp, ntoken)

    def forward(self, src):
        mask = nn.Transformer.generate_square_subsequent_mask(len(src))
        x = self.encoder(src) + self.positions[: len(src)]
        return self.decoder(self.transformer_encoder(x, mask, is_causal=True))


class LeftPaddedLM(nn.Module):
    """Padding: positions that are derived from the mask make left and right padding alike."""

    def __init__(self, vocab_size=26, pad_token_id=0):
        super().__init__()
        self.pad_token_id = pad_token_id
        self.trunk, self.lm_head = Trunk(vocab_size), nn.Linear(WIDTH, vocab_size)

    def forward(self, input_ids, attention_mask=None):
        if attention_mask is None:
            attention_mask = input_ids != self.pad_token_id
        real = attention_mask.bool()
        places = (real.long().cumsum(1) - 1).clamp(min=0)
        mask = causal(input_ids.shape[1]) & real[:, None, None, :]
        mask = mask | torch.eye(input_ids.shape[1], dtype=torch.bool)
        return self.lm_head(self.trunk(input_ids, mask, places))


class FloatNormLM(nn.Module):
    """float64 and differences: a norm that casts to float32 by itself is judged by float32's rounding."""

    def __init__(self, vocab_size=26):
        super().__init__()
        self.trunk, self.lm_head = Trunk(vocab_size), nn.Linear(WIDTH, vocab_size)
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, ids):
        x = self.trunk(ids).float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.lm_head(x.to(self.weight.dtype) * self.weight)


class FlatWithTargets(nn.Module):
    """Causality in training: with targets the logits are (B*T, V), and without them (B, T, V)."""

    def __init__(self, vocab_size=26):
        super().__init__()
        self.trunk, self.lm_head = Trunk(vocab_size), nn.Linear(WIDTH, vocab_size)

    def forward(self, idx, targets=None):
        logits = self.lm_head(self.trunk(idx, causal(idx.shape[1])))
        if targets is None:
            return logits, None
        logits = logits.flatten(0, 1)
        return logits, F.cross_entropy(logits, targets.flatten())
