"""Correct attentions, masks and small functions in the styles of the field, as text, and one-line mutants of them.

STYLES: style -> (name to point at, the roles that it plays, the file). MUTANTS: (style, line, what is written instead).
"""

from __future__ import annotations

HEAD = "import math\nimport numpy as np\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"

STYLES: dict[str, tuple[str, str, str]] = {}

STYLES["attention: annotated"] = (
    "attention",
    "attention",
    """
def subsequent_mask(size):
    return torch.triu(torch.ones(1, size, size), diagonal=1).type(torch.uint8) == 0

def attention(query, key, value, mask=None, dropout=None):
    "Compute 'Scaled Dot Product Attention'"
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn
""",
)
STYLES["attention: additive mask, three axes"] = (
    "scaled_dot_product_attention",
    "attention",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = torch.bmm(q, k.transpose(1, 2)) / q.size(-1) ** 0.5
    if mask is not None:
        scores = scores + mask
    weights = F.softmax(scores, dim=-1)
    return torch.bmm(weights, v)
""",
)
STYLES["attention: heads last, einsum"] = (
    "dot_product_attention",
    "attention",
    """
def dot_product_attention(queries, keys, values, mask=None):
    '''(batch, time, heads, width); mask is True where a key is hidden.'''
    scores = torch.einsum("bqhd,bkhd->bhqk", queries, keys) * queries.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    weights = scores.softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, values)
""",
)
STYLES["attention: torch's own"] = (
    "sdpa",
    "attention",
    """
def sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False):
    return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal)
""",
)
STYLES["attention: torch's written out"] = (
    "sdpa",
    "attention",
    """
def sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, training=False):
    L, S = query.size(-2), key.size(-2)
    scale_factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    attn_bias = torch.zeros(L, S, dtype=query.dtype)
    if is_causal:
        attn_bias = attn_bias.masked_fill(~torch.ones(L, S, dtype=torch.bool).tril(), float("-inf"))
    if attn_mask is not None:
        attn_bias = attn_bias + torch.zeros(attn_mask.shape).masked_fill(~attn_mask, float("-inf"))
    weight = torch.softmax(query @ key.transpose(-2, -1) * scale_factor + attn_bias, dim=-1)
    weight = F.dropout(weight, dropout_p, training)
    return weight @ value
""",
)
STYLES["attention: a rate called dropout"] = (
    "scaled_dot_product_attention",
    "attention",
    """
def scaled_dot_product_attention(q, k, v, mask=None, dropout: float = 0.0, training: bool = False):
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    if mask is not None:
        # mask = True/1 where we want to BLOCK attention
        scores = scores.masked_fill(mask == 1, float("-inf"))
    weights = F.softmax(scores, dim=-1)
    if dropout > 0.0 and training:
        weights = F.dropout(weights, p=dropout)
    return torch.matmul(weights, v)
""",
)
STYLES["attention: causal by itself"] = (
    "causal_attention",
    "attention",
    """
def causal_attention(q, k, v):
    T = q.size(-2)
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(torch.tril(torch.ones(T, T)) == 0, float("-inf"))
    return F.softmax(att, dim=-1) @ v
""",
)
STYLES["attention: scale handed in"] = (
    "attend",
    "attention",
    """
def attend(q, k, v, scale, mask=None):
    dots = (q @ k.mT) * scale
    if mask is not None:
        dots = torch.where(mask, dots, torch.finfo(dots.dtype).min)
    attn = torch.exp(dots - dots.amax(-1, keepdim=True))
    attn = attn / attn.sum(-1, keepdim=True)
    return attn @ v, attn
""",
)
STYLES["causal mask: annotated"] = (
    "subsequent_mask",
    "causal_mask",
    """
def subsequent_mask(size):
    "Mask out subsequent positions."
    attn_shape = (1, size, size)
    mask = torch.triu(torch.ones(attn_shape), diagonal=1).type(torch.uint8)
    return mask == 0
""",
)
STYLES["causal mask: additive"] = (
    "generate_square_subsequent_mask",
    "causal_mask",
    """
def generate_square_subsequent_mask(sz):
    mask = (torch.triu(torch.ones(sz, sz)) == 1).transpose(0, 1)
    return mask.float().masked_fill(mask == 0, float("-inf")).masked_fill(mask == 1, float(0.0))
""",
)
STYLES["causal mask: hidden, told by its words"] = (
    "make_causal_mask",
    "causal_mask",
    """
def make_causal_mask(seq_len, device="cpu"):
    '''True marks positions that may not be attended.'''
    return torch.triu(torch.ones((seq_len, seq_len), device=device, dtype=torch.bool), diagonal=1)
""",
)
STYLES["causal mask: of a tensor"] = (
    "get_subsequent_mask",
    "causal_mask",
    """
def get_subsequent_mask(seq):
    sz_b, len_s = seq.size()
    return (1 - torch.triu(torch.ones((1, len_s, len_s), device=seq.device), diagonal=1)).bool()
""",
)
STYLES["causal mask: arange"] = (
    "look_ahead_mask",
    "causal_mask",
    """
def look_ahead_mask(n):
    i = torch.arange(n)
    return i[:, None] >= i[None, :]
""",
)
STYLES["padding mask: visible, with a pad parameter"] = (
    "get_pad_mask",
    "padding_mask",
    """
def get_pad_mask(seq, pad_idx):
    return (seq != pad_idx).unsqueeze(-2)

def attention(q, k, v, mask):
    attn = torch.matmul(q, k.transpose(2, 3)).masked_fill(mask == 0, -1e9)
    return attn.softmax(-1) @ v
""",
)
STYLES["padding mask: hidden, a constant pad"] = (
    "create_padding_mask",
    "padding_mask",
    """
PAD_IDX = 1

def create_padding_mask(tokens):
    return (tokens == PAD_IDX)[:, None, None, :]

def attend(scores, padding_mask):
    return scores.masked_fill(padding_mask, float("-inf"))
""",
)
STYLES["padding mask: four axes"] = (
    "make_src_mask",
    "padding_mask",
    """
def make_src_mask(src, src_pad_idx=0):
    "1 for real tokens"
    return (src != src_pad_idx).unsqueeze(1).unsqueeze(2).long()
""",
)
STYLES["masks: a target's both"] = (
    "make_std_mask",
    "padding_mask causal_mask",
    """
def subsequent_mask(size):
    return torch.tril(torch.ones(1, size, size)).bool()

def make_std_mask(tgt, pad):
    tgt_mask = (tgt != pad).unsqueeze(-2)
    tgt_mask = tgt_mask & subsequent_mask(tgt.size(-1)).type_as(tgt_mask)
    return tgt_mask

def attention(scores, mask):
    return scores.masked_fill(mask == 0, -1e9)
""",
)
STYLES["masks: create_masks"] = (
    "create_masks",
    "padding_mask causal_mask",
    """
def create_masks(src, tgt, pad=0):
    src_mask = (src != pad).unsqueeze(1).unsqueeze(2)
    tgt_pad = (tgt != pad).unsqueeze(1).unsqueeze(2)
    n = tgt.size(1)
    nopeak = torch.tril(torch.ones(n, n)).bool()
    return src_mask, tgt_pad & nopeak

def attention(scores, mask):
    return scores.masked_fill(mask == 0, -1e9)
""",
)
STYLES["masks: sequence first"] = (
    "create_mask",
    "padding_mask causal_mask",
    """
PAD_IDX = 1

def generate_square_subsequent_mask(sz):
    return torch.triu(torch.ones((sz, sz), dtype=torch.bool), diagonal=1)

def create_mask(src, tgt):
    "True is hidden"
    src_mask = torch.zeros((src.shape[0], src.shape[0])).type(torch.bool)
    tgt_mask = generate_square_subsequent_mask(tgt.shape[0])
    src_padding_mask = (src == PAD_IDX).transpose(0, 1)
    tgt_padding_mask = (tgt == PAD_IDX).transpose(0, 1)
    return src_mask, tgt_mask, src_padding_mask, tgt_padding_mask
""",
)
STYLES["padding mask: tokens called t"] = (
    "create_pad_mask",
    "padding_mask",
    """
def create_pad_mask(t, pad):
    mask = (t == pad).unsqueeze(-2)
    return mask
""",
)
STYLES["causal mask: of a window"] = (
    "generate_local_mask",
    "causal_mask",
    """
def generate_local_mask(chunk_size, attention_size, mask_future=False):
    i, j = torch.arange(chunk_size)[:, None], torch.arange(chunk_size)
    if mask_future:
        return (i - j > attention_size) | (j - i > 0)
    return (i - j).abs() > attention_size
""",
)
STYLES["shift"] = (
    "shift_targets",
    "shift_targets",
    """
def shift_targets(tokens):
    return tokens[:, :-1], tokens[:, 1:]
""",
)
STYLES["clipping: by hand, in place"] = (
    "clip_gradients",
    "clip_grad_norm",
    """
def clip_gradients(parameters, max_norm):
    total = torch.sqrt(sum((p.grad ** 2).sum() for p in parameters))
    if total > max_norm:
        for p in parameters:
            p.grad.mul_(max_norm / (total + 1e-6))
    return total
""",
)
STYLES["activation: gelu"] = (
    "new_gelu",
    "activation",
    """
def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
""",
)
STYLES["activation: swish"] = ("swish", "activation", "\ndef swish(x):\n    return x * torch.sigmoid(x)\n")
STYLES["softmax: stable"] = (
    "stable_softmax",
    "softmax",
    """
def stable_softmax(x, dim=-1):
    e = torch.exp(x - x.max(dim=dim, keepdim=True).values)
    return e / e.sum(dim=dim, keepdim=True)
""",
)
STYLES["masked tokens"] = (
    "mask_tokens",
    "masked_tokens",
    """
def mask_tokens(inputs, mask_token_id, vocab_size, mlm_probability=0.15, special_ids=()):
    labels = inputs.clone()
    probability = torch.full(labels.shape, mlm_probability)
    for special in special_ids:
        probability.masked_fill_(inputs == special, 0.0)
    masked = torch.bernoulli(probability).bool()
    labels[~masked] = -100
    replaced = torch.bernoulli(torch.full(labels.shape, 0.8)).bool() & masked
    inputs[replaced] = mask_token_id
    randomised = torch.bernoulli(torch.full(labels.shape, 0.5)).bool() & masked & ~replaced
    inputs[randomised] = torch.randint(vocab_size, labels.shape)[randomised]
    return inputs, labels
""",
)

MUTANTS: list[tuple[str, str, str]] = [
    ("attention: annotated", "/ math.sqrt(d_k)", ""),
    ("attention: annotated", "/ math.sqrt(d_k)", "/ d_k"),
    ("attention: annotated", "softmax(dim=-1)", "softmax(dim=-2)"),
    ("attention: annotated", "mask == 0, -1e9", "mask == 1, -1e9"),
    ("attention: annotated", "-1e9", "-1e-9"),
    ("attention: annotated", "dropout(p_attn)", "F.dropout(p_attn, dropout.p)"),
    ("attention: annotated", "matmul(p_attn, value)", "matmul(p_attn, key)"),
    ("attention: annotated", "if mask is not None:\n        scores =", "if mask is not None:\n        ignored ="),
    ("attention: additive mask, three axes", "q.size(-1) ** 0.5", "q.size(1) ** 0.5"),
    ("attention: additive mask, three axes", "dim=-1)", "dim=1)"),
    ("attention: heads last, einsum", "masked_fill(mask,", "masked_fill(~mask,"),
    ("attention: heads last, einsum", "softmax(-1)", "softmax(1)"),
    ("attention: torch's own", "attn_mask, dropout_p, is_causal", "None, dropout_p, is_causal"),
    ("attention: torch's written out", "dropout_p, training", "dropout_p, True"),
    ("attention: torch's written out", ".tril()", ".tril(-1)"),
    ("attention: a rate called dropout", "dropout > 0.0 and training", "dropout >= 0.0"),
    ("attention: causal by itself", "math.sqrt(k.size(-1))", "math.sqrt(T)"),
    ("attention: scale handed in", "attn.sum(-1, keepdim=True)", "attn.sum(-2, keepdim=True)"),
    ("causal mask: annotated", "diagonal=1", "diagonal=0"),
    ("causal mask: annotated", "triu", "tril"),
    ("causal mask: annotated", "diagonal=1", "diagonal=2"),
    ("causal mask: additive", ".transpose(0, 1)", ""),
    ("causal mask: hidden, told by its words", "diagonal=1", "diagonal=0"),
    ("causal mask: hidden, told by its words", "torch.triu", "~torch.triu"),
    ("causal mask: of a tensor", "diagonal=1", "diagonal=0"),
    ("causal mask: arange", ">=", ">"),
    ("causal mask: arange", ">=", "<="),
    ("padding mask: visible, with a pad parameter", "seq != pad_idx", "seq == pad_idx"),
    ("padding mask: hidden, a constant pad", "tokens == PAD_IDX", "tokens != PAD_IDX"),
    ("padding mask: four axes", "src != src_pad_idx", "src == src_pad_idx"),
    ("masks: a target's both", "tgt_mask & subsequent_mask", "tgt_mask | subsequent_mask"),
    ("masks: a target's both", "torch.tril(torch.ones(1, size, size))", "torch.triu(torch.ones(1, size, size))"),
    ("masks: create_masks", "tgt_pad & nopeak", "tgt_pad"),
    ("masks: create_masks", "torch.tril(torch.ones(n, n))", "torch.tril(torch.ones(n, n), -1)"),
    ("masks: sequence first", "src == PAD_IDX", "src != PAD_IDX"),
    ("shift", "tokens[:, 1:]", "tokens[:, :-1]"),
    ("shift", "tokens[:, :-1], tokens[:, 1:]", "tokens[:, :-2], tokens[:, 2:]"),
    ("clipping: by hand, in place", "(p.grad ** 2).sum()", "p.grad.abs().sum()"),
    ("clipping: by hand, in place", "total > max_norm", "total < max_norm"),
    ("activation: gelu", "0.044715", "0.44715"),
    ("activation: swish", "x * torch.sigmoid(x)", "torch.sigmoid(x)"),
    ("softmax: stable", "x - x.max(dim=dim, keepdim=True).values", "x"),
    ("softmax: stable", "e.sum(dim=dim, keepdim=True)", "e.sum()"),
    ("masked tokens", "labels[~masked] = -100", "labels[masked] = -100"),
    ("masked tokens", "inputs == special, 0.0", "inputs == special, 1.0"),
]
