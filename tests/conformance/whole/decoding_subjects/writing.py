"""Language models that write, in the styles of the field: each is a file, made of shared parts and its own.

`STYLES` maps a name to a source and a class. A mutant is a style with one line of it changed.
"""

from textwrap import dedent

HEAD = """
import math
import torch
from torch import nn
from torch.nn import functional as F

V, D, H, L, BLOCK = 23, 16, 2, 2, 16


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(D))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w


def heads(x):
    return x.view(x.shape[0], x.shape[1], H, D // H).transpose(1, 2)


def merged(x):
    return x.transpose(1, 2).reshape(x.shape[0], -1, D)


def attend(q, k, v, start):
    i = torch.arange(start, start + q.shape[2])[:, None]
    j = torch.arange(k.shape[2])[None]
    scores = q @ k.transpose(-1, -2) / math.sqrt(D // H)
    return merged(scores.masked_fill(j > i, float("-inf")).softmax(-1) @ v)
"""

PLAIN = (
    HEAD
    + """

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.qkv = nn.Linear(D, 3 * D)
        self.out = nn.Linear(D, D)
        self.ff = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))

    def forward(self, x):
        q, k, v = map(heads, self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(attend(q, k, v, 0))
        return x + self.ff(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.block_size = BLOCK
        self.wte, self.wpe = nn.Embedding(V, D), nn.Embedding(BLOCK, D)
        self.blocks = nn.ModuleList([Block() for _ in range(L)])
        self.norm, self.head = Norm(), nn.Linear(D, V, bias=False)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
"""
)

NANO = (
    PLAIN
    + """
    @torch.no_grad()
    def generate(
        self, idx, max_new_tokens, temperature=1.0, do_sample=False, top_k=None, top_p=None, eos_token_id=None
    ):
        was_training = self.training
        self.eval()
        finished = torch.zeros(idx.shape[0], dtype=torch.bool)
        for _ in range(max_new_tokens):
            window = idx[:, -self.block_size:]
            logits = self(window)[:, -1] / temperature
            if top_k is not None:
                values, _ = torch.topk(logits, top_k)
                logits = logits.masked_fill(logits < values[:, -1:], float("-inf"))
            if top_p is not None:
                ranked, order = logits.sort(descending=True)
                mass = ranked.softmax(-1).cumsum(-1)
                remove = mass - ranked.softmax(-1) >= top_p
                logits = logits.masked_fill(remove.scatter(1, order, remove), float("-inf"))
            probs = logits.softmax(-1)
            if do_sample:
                token = torch.multinomial(probs, 1)
            else:
                token = probs.argmax(-1, keepdim=True)
            if eos_token_id is not None:
                token[finished] = 0
                finished |= token[:, 0] == eos_token_id
            idx = torch.cat([idx, token], 1)
            if finished.all():
                break
        self.train(was_training)
        return idx
"""
)

EXPONENTIAL = (
    PLAIN
    + """

def multinomial_without_sync(probs):
    noise = torch.empty_like(probs).exponential_(1)
    return torch.argmax(probs / noise, dim=-1, keepdim=True)


@torch.no_grad()
def generate(model, prompt, max_new_tokens, temperature=1.0, top_k=None):
    tokens = prompt
    for _ in range(max_new_tokens):
        logits = model(tokens.view(1, -1))[0, -1] / max(temperature, 1e-5)
        if top_k is not None:
            pivot = torch.topk(logits, min(top_k, logits.size(-1)))[0][-1]
            logits = torch.where(logits < pivot, -float("inf"), logits)
        token = multinomial_without_sync(F.softmax(logits, -1))
        tokens = torch.cat([tokens, token])
    return tokens
"""
)

SORTED = (
    PLAIN
    + """

def sample_top_p(probs, p):
    ranked, order = torch.sort(probs, dim=-1, descending=True)
    mass = torch.cumsum(ranked, dim=-1)
    ranked[mass - ranked > p] = 0.0
    ranked.div_(ranked.sum(dim=-1, keepdim=True))
    return torch.gather(order, -1, torch.multinomial(ranked, num_samples=1))


@torch.inference_mode()
def complete(model, prompt_tokens, max_len, temperature=0.6, top_p=0.9):
    tokens = list(prompt_tokens)
    while len(tokens) < max_len:
        logits = model(torch.tensor([tokens]))[:, -1]
        if temperature > 0:
            token = sample_top_p(torch.softmax(logits / temperature, dim=-1), top_p)
        else:
            token = torch.argmax(logits, dim=-1)
        tokens.append(int(token))
    return tokens
"""
)

TUPLES = (
    HEAD
    + """

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Norm()
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x, past=None):
        h = self.norm(x)
        q, k, v = heads(self.q(h)), heads(self.k(h)), heads(self.v(h))
        start = 0
        if past is not None:
            start = past[0].shape[2]
            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([past[1], v], dim=2)
        return x + self.out(attend(q, k, v, start)), (k, v)


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, D), nn.Embedding(64, D)
        self.blocks = nn.ModuleList([Block() for _ in range(L)])
        self.norm, self.head = Norm(), nn.Linear(D, V, bias=False)

    def forward(self, input_ids, past_key_values=None, use_cache=False):
        start = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        places = torch.arange(start, start + input_ids.shape[1])
        x = self.tokens(input_ids) + self.positions(places)
        presents = []
        for i, block in enumerate(self.blocks):
            x, present = block(x, None if past_key_values is None else past_key_values[i])
            presents.append(present)
        logits = self.head(self.norm(x))
        return (logits, tuple(presents)) if use_cache else logits
"""
)

HUGGING = (
    TUPLES
    + """
    @torch.no_grad()
    def generate(self, input_ids, max_new_tokens=20, use_cache=True):
        past, fed = None, input_ids
        for _ in range(max_new_tokens):
            logits, past = self(fed, past_key_values=past, use_cache=True)
            fed = logits[:, -1:].argmax(-1)
            input_ids = torch.cat([input_ids, fed], dim=-1)
        return input_ids
"""
)

DICTIONARY = (
    HEAD
    + """

class Attention(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x, cache):
        q, k, v = map(heads, self.qkv(x).chunk(3, -1))
        if cache is not None:
            if self.index in cache:
                old_k, old_v = cache[self.index]
                k, v = torch.cat([old_k, k], 2), torch.cat([old_v, v], 2)
            cache[self.index] = (k, v)
        return self.out(attend(q, k, v, k.shape[2] - q.shape[2]))


class DecoderLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(V, D)
        self.positions = nn.Embedding(48, D)
        self.norms = nn.ModuleList([Norm() for _ in range(L)])
        self.layers = nn.ModuleList([Attention(i) for i in range(L)])
        self.head = nn.Linear(D, V)

    def forward(self, x, cache=None, offset=0):
        h = self.tokens(x) + self.positions(torch.arange(offset, offset + x.shape[1]))
        for norm, layer in zip(self.norms, self.layers):
            h = h + layer(norm(h), cache)
        return self.head(h)


@torch.no_grad()
def sample(model, prompt, steps, temperature=1.0):
    cache = {}
    for t in range(prompt.shape[1]):
        logits = model(prompt[:, t:t + 1], cache=cache, offset=t)
    out = []
    for t in range(prompt.shape[1], prompt.shape[1] + steps):
        probs = torch.softmax(logits[:, -1] / temperature, -1)
        token = torch.distributions.Categorical(probs).sample()
        out.append(token)
        logits = model(token[:, None], cache=cache, offset=t)
    return torch.stack(out, 1)
"""
)

STATIC = (
    HEAD
    + """

class KVCache(nn.Module):
    def __init__(self, rows, room):
        super().__init__()
        self.register_buffer("k", torch.zeros(rows, H, room, D // H))
        self.register_buffer("v", torch.zeros(rows, H, room, D // H))

    def update(self, input_pos, k, v):
        self.k[:, :, input_pos] = k
        self.v[:, :, input_pos] = v
        return self.k, self.v


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.kv_cache = None

    def forward(self, x, mask, input_pos):
        q, k, v = map(heads, self.qkv(x).chunk(3, -1))
        if self.kv_cache is not None and input_pos is not None:
            k, v = self.kv_cache.update(input_pos, k, v)
        return self.out(merged(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Embedding(32, D)
        self.norms = nn.ModuleList([Norm() for _ in range(L)])
        self.layers = nn.ModuleList([Attention() for _ in range(L)])
        self.output = nn.Linear(D, V, bias=False)

    def setup_caches(self, max_batch_size, max_seq_length):
        for layer in self.layers:
            layer.kv_cache = KVCache(max_batch_size, max_seq_length)

    def forward(self, idx, input_pos=None):
        causal = torch.tril(torch.ones(32, 32, dtype=torch.bool))
        if input_pos is None:
            n = idx.shape[1]
            where, mask = torch.arange(n), causal[:n, :n]
        else:
            where, mask = input_pos, causal[input_pos][:, :self.layers[0].kv_cache.k.shape[2]]
        x = self.tok(idx) + self.pos(where)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x), mask, input_pos)
        return self.output(x)


@torch.no_grad()
def generate(model, prompt, max_new_tokens):
    rows, length = prompt.shape
    model.setup_caches(rows, length + max_new_tokens)
    tokens = torch.cat([prompt, prompt.new_zeros(rows, max_new_tokens)], 1)
    input_pos = torch.arange(length)
    token = model(prompt, input_pos)[:, -1].argmax(-1)
    tokens[:, length] = token
    for at in range(length, length + max_new_tokens - 1):
        token = model(token.view(-1, 1), torch.tensor([at]))[:, -1].argmax(-1)
        tokens[:, at + 1] = token
    return tokens
"""
)

STATEFUL = (
    HEAD
    + """

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.cache_k = self.cache_v = None

    def forward(self, x, use_cache):
        q, k, v = map(heads, self.qkv(x).chunk(3, -1))
        if use_cache:
            if self.cache_k is not None:
                k = torch.cat([self.cache_k, k], 2)
                v = torch.cat([self.cache_v, v], 2)
            self.cache_k, self.cache_v = k, v
        return self.out(attend(q, k, v, k.shape[2] - q.shape[2]))

    def reset_cache(self):
        self.cache_k = self.cache_v = None


class GPTModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_emb, self.pos_emb = nn.Embedding(V, D), nn.Embedding(32, D)
        self.norms = nn.ModuleList([Norm() for _ in range(L)])
        self.layers = nn.ModuleList([Attention() for _ in range(L)])
        self.out_head = nn.Linear(D, V, bias=False)
        self.current_pos = 0

    def forward(self, in_idx, use_cache=False):
        start = self.current_pos if use_cache else 0
        x = self.tok_emb(in_idx) + self.pos_emb(torch.arange(start, start + in_idx.shape[1]))
        if use_cache:
            self.current_pos += in_idx.shape[1]
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x), use_cache)
        return self.out_head(x)

    def reset_kv_cache(self):
        for layer in self.layers:
            layer.reset_cache()
        self.current_pos = 0


def generate_text_simple_cached(model, idx, max_new_tokens, use_cache=True):
    model.eval()
    with torch.no_grad():
        model.reset_kv_cache()
        logits = model(idx, use_cache=True)
        for _ in range(max_new_tokens):
            next_idx = logits[:, -1].argmax(dim=-1, keepdim=True)
            idx = torch.cat([idx, next_idx], dim=1)
            logits = model(next_idx, use_cache=True)
    return idx
"""
)

OBJECT = (
    HEAD
    + """

class LayerCache:
    def __init__(self):
        self.k = self.v = None
        self.length = 0

    def extend(self, k, v):
        self.k = k if self.k is None else torch.cat([self.k, k], 2)
        self.v = v if self.v is None else torch.cat([self.v, v], 2)
        self.length += k.shape[2]
        return self.k, self.v


def rotate(x, start):
    half = x.shape[-1] // 2
    angles = torch.arange(start, start + x.shape[2])[:, None] / 10.0 ** torch.arange(half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class RotaryLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, D)
        self.qkvs = nn.ModuleList([nn.Linear(D, 3 * D) for _ in range(L)])
        self.outs = nn.ModuleList([nn.Linear(D, D) for _ in range(L)])
        self.norm, self.lm_head = Norm(), nn.Linear(D, V)

    def forward(self, ids, caches=None):
        x = self.emb(ids)
        for i, (qkv, out) in enumerate(zip(self.qkvs, self.outs)):
            start = caches[i].length if caches is not None else 0
            q, k, v = map(heads, qkv(x).chunk(3, -1))
            q, k = rotate(q, start), rotate(k, start)
            if caches is not None:
                k, v = caches[i].extend(k, v)
            x = x + out(attend(q, k, v, start))
        return self.lm_head(self.norm(x))

    @torch.no_grad()
    def greedy_decode(self, prompt, num_tokens):
        caches = [LayerCache() for _ in self.qkvs]
        logits = self(prompt, caches)
        written = []
        for step in range(num_tokens):
            token = logits[:, -1].argmax(-1, keepdim=True)
            written.append(token)
            if step + 1 < num_tokens:
                logits = self(token, caches)
        return torch.cat([prompt, *written], 1)
"""
)

TRANSLATOR = (
    HEAD
    + """
PAD, BOS, EOS = 0, 1, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x, memory=None, cache=None, causal=False):
        source = x if memory is None else memory
        q, k, v = heads(self.q(x)), heads(self.k(source)), heads(self.v(source))
        if cache is not None:
            if "k" in cache:
                k = torch.cat([cache["k"], k], 2)
                v = torch.cat([cache["v"], v], 2)
            cache["k"], cache["v"] = k, v
        start = k.shape[2] - q.shape[2] if causal else k.shape[2]
        return self.out(attend(q, k, v, start))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.src_emb, self.tgt_emb, self.pos = nn.Embedding(V, D), nn.Embedding(V, D), nn.Embedding(40, D)
        self.enc, self.dec, self.cross = Attention(), Attention(), Attention()
        self.n1, self.n2, self.n3, self.n4 = Norm(), Norm(), Norm(), Norm()
        self.out = nn.Linear(D, V)

    def encode(self, src):
        x = self.src_emb(src) + self.pos(torch.arange(src.shape[1]))
        return x + self.enc(self.n1(x))

    def decode(self, memory, tgt, cache=None, start=0):
        y = self.tgt_emb(tgt) + self.pos(torch.arange(start, start + tgt.shape[1]))
        y = y + self.dec(self.n2(y), cache=cache, causal=True)
        y = y + self.cross(self.n3(y), memory)
        return self.out(self.n4(y))

    def forward(self, src, tgt):
        return self.decode(self.encode(src), tgt)

    @torch.no_grad()
    def translate(self, src, max_len=20, bos_id=BOS, eos_id=EOS):
        memory, cache = self.encode(src), {}
        ys = torch.full((src.shape[0], 1), bos_id, dtype=torch.long)
        done = torch.zeros(src.shape[0], dtype=torch.bool)
        for step in range(max_len):
            logits = self.decode(memory, ys[:, -1:], cache, start=step)
            token = logits[:, -1].argmax(-1)
            token = token.masked_fill(done, PAD)
            ys = torch.cat([ys, token[:, None]], 1)
            done = done | (token == eos_id)
            if done.all():
                break
        return ys

    @torch.no_grad()
    def beam_search(self, src, beam_size=3, max_len=10):
        memory = self.encode(src)
        beams = [(0.0, [BOS])]
        for _ in range(max_len):
            grown = []
            for score, ids in beams:
                if ids[-1] == EOS:
                    grown.append((score, ids))
                    continue
                logp = self.decode(memory, torch.tensor([ids]))[0, -1].log_softmax(-1)
                top = logp.topk(beam_size)
                grown += [(score + float(s), ids + [int(t)]) for s, t in zip(top.values, top.indices)]
            beams = sorted(grown, key=lambda beam: beam[0], reverse=True)[:beam_size]
        return beams[0][1]
"""
)

STYLES = {
    "nano": (NANO, "GPT"),
    "exponential": (EXPONENTIAL, "GPT"),
    "sorted": (SORTED, "GPT"),
    "tuples": (TUPLES, "CausalLM"),
    "hugging": (HUGGING, "CausalLM"),
    "dictionary": (DICTIONARY, "DecoderLM"),
    "static": (STATIC, "Transformer"),
    "stateful": (STATEFUL, "GPTModel"),
    "object": (OBJECT, "RotaryLM"),
    "translator": (TRANSLATOR, "Translator"),
    "plain": (PLAIN, "GPT"),
}


def source(style, old="", new=""):
    """The source of a style, with one line changed; the line must occur once."""
    text = dedent(STYLES[style][0])
    if not old:
        return text
    assert text.count(old) == 1, f"{style} has {text.count(old)} times {old!r}"
    return text.replace(old, new)
