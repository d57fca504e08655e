"""Correct functions in the styles of the field, as text, and one-line mutants of them: what test_functions runs.

STYLES: style -> (name to point at, the roles that it plays, the file). MUTANTS: (style, line, what is written instead).
"""

from __future__ import annotations

HEAD = "import math\nimport numpy as np\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"

STYLES: dict[str, tuple[str, str, str]] = {}

# --- attention ------------------------------------------------------------------------------------

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

# --- masks ----------------------------------------------------------------------------------------

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

# --- losses ---------------------------------------------------------------------------------------

STYLES["loss: annotated"] = (
    "LabelSmoothing",
    "cross_entropy",
    """
class LabelSmoothing(nn.Module):
    def __init__(self, size, padding_idx, smoothing=0.0):
        super().__init__()
        self.criterion = nn.KLDivLoss(reduction="sum")
        self.padding_idx = padding_idx
        self.confidence = 1.0 - smoothing
        self.smoothing = smoothing
        self.size = size
        self.true_dist = None

    def forward(self, x, target):
        assert x.size(1) == self.size
        true_dist = x.data.clone()
        true_dist.fill_(self.smoothing / (self.size - 2))
        true_dist.scatter_(1, target.data.unsqueeze(1), self.confidence)
        true_dist[:, self.padding_idx] = 0
        mask = torch.nonzero(target.data == self.padding_idx)
        if mask.dim() > 0:
            true_dist.index_fill_(0, mask.squeeze(), 0.0)
        self.true_dist = true_dist
        return self.criterion(x, true_dist.clone().detach())
""",
)
STYLES["loss: V - 1, mean"] = (
    "LabelSmoothingLoss",
    "cross_entropy",
    """
class LabelSmoothingLoss(nn.Module):
    def __init__(self, classes, smoothing=0.1, ignore_index=-100):
        super().__init__()
        self.confidence = 1.0 - smoothing
        self.smoothing = smoothing
        self.cls = classes
        self.ignore_index = ignore_index

    def forward(self, pred, target):
        pred = pred.log_softmax(dim=-1)
        keep = target != self.ignore_index
        with torch.no_grad():
            true_dist = torch.zeros_like(pred)
            true_dist.fill_(self.smoothing / (self.cls - 1))
            true_dist.scatter_(1, target.clamp(min=0).unsqueeze(1), self.confidence)
        loss = torch.sum(-true_dist * pred, dim=-1)
        return (loss * keep).sum() / keep.sum()
""",
)
STYLES["loss: nll and smooth"] = (
    "label_smoothed_nll_loss",
    "cross_entropy",
    """
def label_smoothed_nll_loss(lprobs, target, epsilon, ignore_index=None):
    nll_loss = -lprobs.gather(dim=-1, index=target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    smooth_loss = -lprobs.mean(dim=-1)
    loss = (1.0 - epsilon) * nll_loss + epsilon * smooth_loss
    if ignore_index is not None:
        loss = loss.masked_fill(target.eq(ignore_index), 0.0)
    return loss.sum()
""",
)
STYLES["loss: smoothing as an option"] = (
    "loss_fn",
    "cross_entropy",
    """
def loss_fn(logits, labels, smoothing=0.1, ignore_index=-100):
    return F.cross_entropy(logits, labels, label_smoothing=smoothing, ignore_index=ignore_index)
""",
)
STYLES["loss: a constant pad, three axes"] = (
    "masked_cross_entropy",
    "cross_entropy",
    """
PAD = 0

def masked_cross_entropy(logits, targets):
    "logits (B, T, V), targets (B, T)"
    B, T, V = logits.shape
    loss = F.cross_entropy(logits.reshape(B * T, V), targets.reshape(B * T), reduction="none")
    mask = (targets.reshape(-1) != PAD).float()
    return (loss * mask).sum() / mask.sum()
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
STYLES["loss: smoothed by hand, padding a word"] = (
    "LabelSmoothing",
    "cross_entropy",
    """
class LabelSmoothing(nn.Module):
    def __init__(self, vocab_size, padding_idx=0, smoothing=0.1):
        super().__init__()
        self.padding_idx, self.smoothing = padding_idx, smoothing

    def forward(self, logits, target):
        log_probs = F.log_softmax(logits, dim=-1)
        nll = -log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        loss = (1.0 - self.smoothing) * nll - self.smoothing * log_probs.mean(dim=-1)
        keep = target != self.padding_idx
        return (loss * keep).sum() / keep.sum()
""",
)
STYLES["loss: by hand"] = (
    "cross_entropy",
    "cross_entropy",
    """
def cross_entropy(logits, targets):
    logits = logits - logits.max(dim=-1, keepdim=True).values
    logp = logits - torch.log(torch.exp(logits).sum(-1, keepdim=True))
    return -logp[torch.arange(len(targets)), targets].mean()
""",
)
STYLES["loss: classes on axis 1, sum"] = (
    "seq_loss",
    "cross_entropy",
    """
def seq_loss(output, target, pad_idx):
    "output (B, V, T)"
    B, V, T = output.shape
    crit = nn.CrossEntropyLoss(ignore_index=pad_idx, reduction="sum")
    return crit(output, target)
""",
)
STYLES["loss: a mask handed in"] = (
    "masked_loss",
    "cross_entropy",
    """
def masked_loss(logits, targets, mask):
    losses = F.cross_entropy(logits, targets.clamp(min=0), reduction="none")
    mask = mask.to(losses.dtype)
    return (losses * mask).sum() / mask.sum()
""",
)
STYLES["loss: of the tokens themselves, shifted inside"] = (
    "nll",
    "cross_entropy",
    """
def nll(logits, ids, pad=-1):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=pad)
""",
)

# --- schedules ------------------------------------------------------------------------------------

STYLES["schedule: rate"] = (
    "rate",
    "lr_schedule",
    """
def rate(step, model_size, factor, warmup):
    if step == 0:
        step = 1
    return factor * (model_size ** (-0.5) * min(step ** (-0.5), step * warmup ** (-1.5)))
""",
)
STYLES["schedule: NoamOpt"] = (
    "NoamOpt",
    "lr_schedule",
    """
class NoamOpt:
    def __init__(self, model_size, factor, warmup, optimizer):
        self.optimizer = optimizer
        self._step = 0
        self.warmup = warmup
        self.factor = factor
        self.model_size = model_size
        self._rate = 0

    def step(self):
        self._step += 1
        rate = self.rate()
        for p in self.optimizer.param_groups:
            p["lr"] = rate
        self._rate = rate
        self.optimizer.step()

    def rate(self, step=None):
        if step is None:
            step = self._step
        step = max(step, 1)
        return self.factor * (self.model_size ** (-0.5) * min(step ** (-0.5), step * self.warmup ** (-1.5)))
""",
)
STYLES["schedule: ScheduledOptim"] = (
    "ScheduledOptim",
    "lr_schedule",
    """
class ScheduledOptim:
    def __init__(self, optimizer, lr_mul, d_model, n_warmup_steps):
        self._optimizer = optimizer
        self.lr_mul = lr_mul
        self.d_model = d_model
        self.n_warmup_steps = n_warmup_steps
        self.n_steps = 0

    def step_and_update_lr(self):
        self._update_learning_rate()
        self._optimizer.step()

    def _get_lr_scale(self):
        d_model = self.d_model
        n_steps, n_warmup_steps = max(self.n_steps, 1), self.n_warmup_steps
        return (d_model ** -0.5) * min(n_steps ** (-0.5), n_steps * n_warmup_steps ** (-1.5))

    def _update_learning_rate(self):
        self.n_steps += 1
        lr = self.lr_mul * self._get_lr_scale()
        for param_group in self._optimizer.param_groups:
            param_group['lr'] = lr
""",
)
STYLES["schedule: counted from 0"] = (
    "noam_lambda",
    "lr_schedule",
    """
def noam_lambda(d_model, warmup_steps):
    def lr(step):
        step = step + 1
        return d_model ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)
    return lr
""",
)
STYLES["schedule: LRScheduler"] = (
    "NoamLR",
    "lr_schedule",
    """
class NoamLR(torch.optim.lr_scheduler.LRScheduler):
    def __init__(self, optimizer, d_model, warmup_steps, last_epoch=-1):
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        step = max(1, self.last_epoch)
        scale = self.d_model ** -0.5 * min(step ** -0.5, step * self.warmup_steps ** -1.5)
        return [base_lr * scale for base_lr in self.base_lrs]
""",
)

# --- decoding -------------------------------------------------------------------------------------

STYLES["greedy: annotated"] = (
    "greedy_decode",
    "greedy_decode",
    """
def subsequent_mask(size):
    return torch.tril(torch.ones(1, size, size)).bool()

def greedy_decode(model, src, src_mask, max_len, start_symbol):
    memory = model.encode(src, src_mask)
    ys = torch.zeros(1, 1).fill_(start_symbol).type_as(src.data)
    for i in range(max_len - 1):
        out = model.decode(memory, src_mask, ys, subsequent_mask(ys.size(1)).type_as(src.data))
        prob = model.generator(out[:, -1])
        _, next_word = torch.max(prob, dim=1)
        next_word = next_word.data[0]
        ys = torch.cat([ys, torch.zeros(1, 1).type_as(src.data).fill_(next_word)], dim=1)
    return ys
""",
)
STYLES["greedy: a batch, sequence first"] = (
    "greedy_decode",
    "greedy_decode",
    """
PAD_IDX, BOS_IDX, EOS_IDX = 1, 2, 3

@torch.no_grad()
def greedy_decode(model, src, max_len, start_symbol=BOS_IDX):
    memory = model.encode(src)
    ys = torch.full((1, src.shape[1]), start_symbol, dtype=torch.long)
    done = torch.zeros(src.shape[1], dtype=torch.bool)
    for i in range(max_len - 1):
        out = model.decode(ys, memory)
        next_word = model.generator(out[-1]).argmax(dim=1)
        next_word = next_word.masked_fill(done, PAD_IDX)
        ys = torch.cat([ys, next_word.unsqueeze(0)], dim=0)
        done = done | (next_word == EOS_IDX)
        if done.all():
            break
    return ys
""",
)
STYLES["greedy: generate with a cache"] = (
    "generate",
    "greedy_decode",
    """
@torch.inference_mode()
def generate(model, prompt_tokens, max_gen_len: int, temperature: float = 0.0, eos_id=None, pad_id: int = 0):
    bsz, plen = prompt_tokens.shape
    total_len = min(model.params.max_seq_len, plen + max_gen_len)
    tokens = torch.full((bsz, total_len), pad_id, dtype=torch.long)
    tokens[:, :plen] = prompt_tokens
    finished = torch.zeros(bsz, dtype=torch.bool)
    prev_pos, cur_pos = 0, plen
    while cur_pos < total_len:
        logits = model(tokens[:, prev_pos:cur_pos], prev_pos, use_cache=True)
        if temperature > 0:
            next_token = torch.multinomial(torch.softmax(logits[:, -1] / temperature, dim=-1), 1).squeeze(1)
        else:
            next_token = torch.argmax(logits[:, -1], dim=-1)
        if eos_id is not None:
            next_token = torch.where(finished, torch.full_like(next_token, pad_id), next_token)
            finished |= next_token == eos_id
        tokens[:, cur_pos] = next_token
        prev_pos = cur_pos
        cur_pos += 1
        if finished.all():
            break
    return tokens[:, :cur_pos]
""",
)
STYLES["greedy: sampling of one candidate"] = (
    "generate",
    "greedy_decode",
    """
@torch.no_grad()
def generate(model, idx, max_new_tokens, temperature=1.0, top_k=None):
    for _ in range(max_new_tokens):
        logits, _ = model(idx)
        logits = logits[:, -1, :] / temperature
        if top_k is not None:
            v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
            logits[logits < v[:, [-1]]] = -float("Inf")
        idx_next = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
        idx = torch.cat((idx, idx_next), dim=1)
    return idx
""",
)
STYLES["beam search: one text"] = (
    "beam_search",
    "beam_search",
    """
@torch.no_grad()
def beam_search(model, prompt, beam_size, max_new_tokens, eos_id):
    beams, done = [(0.0, prompt[0].tolist())], []
    for _ in range(max_new_tokens):
        grown = []
        for score, text in beams:
            logp = model(torch.tensor([text]))[0, -1].log_softmax(-1)
            for p, token in zip(*logp.topk(min(beam_size, int((logp > -math.inf).sum())))):
                grown.append((score + p.item(), text + [token.item()]))
        grown.sort(key=lambda item: -item[0])
        beams = []
        for item in grown[:beam_size]:
            (done if item[1][-1] == eos_id else beams).append(item)
        if not beams or (done and max(done)[0] >= beams[0][0]):
            break
    best = max(done or beams)
    return torch.tensor([best[1]])
""",
)
STYLES["sampling: filter of logits"] = (
    "top_k_top_p_filtering",
    "sampling_filter",
    """
def top_k_top_p_filtering(logits, top_k=0, top_p=1.0, filter_value=-float("Inf")):
    if top_k > 0:
        top_k = min(max(top_k, 1), logits.size(-1))
        indices_to_remove = logits < torch.topk(logits, top_k)[0][..., -1, None]
        logits = logits.masked_fill(indices_to_remove, filter_value)
    if top_p < 1.0:
        sorted_logits, sorted_indices = torch.sort(logits, descending=True)
        cumulative_probs = torch.cumsum(F.softmax(sorted_logits, dim=-1), dim=-1)
        sorted_indices_to_remove = cumulative_probs > top_p
        sorted_indices_to_remove[..., 1:] = sorted_indices_to_remove[..., :-1].clone()
        sorted_indices_to_remove[..., 0] = 0
        indices_to_remove = sorted_indices_to_remove.scatter(-1, sorted_indices, sorted_indices_to_remove)
        logits = logits.masked_fill(indices_to_remove, filter_value)
    return logits
""",
)
STYLES["sampling: a draw"] = (
    "sample_next_token",
    "sampling_filter",
    """
def sample_next_token(logits, temperature=1.0, top_k=None):
    logits = logits / temperature
    if top_k is not None:
        values, _ = torch.topk(logits, min(top_k, logits.size(-1)))
        logits = torch.where(logits < values[..., -1:], float("-inf"), logits)
    return torch.multinomial(logits.softmax(-1), 1)
""",
)

STYLES["sampling: a draw of a rank, which is looked up"] = (
    "nucleus",
    "sampling_filter",
    """
def nucleus(logits, top_p):
    assert 0 < top_p <= 1
    s, order = logits.sort(-1, descending=True)
    before = s.softmax(-1).cumsum(-1) - s.softmax(-1)
    s = s.masked_fill(before >= top_p, float("-inf"))
    rank = torch.multinomial(s.softmax(-1), 1)
    return order.gather(-1, rank)
""",
)

# --- small functions ------------------------------------------------------------------------------

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

# --- losses of models -----------------------------------------------------------------------------

STYLES["training loss: translator, sequence first"] = (
    "compute_loss",
    "training_loss",
    """
PAD_IDX = 1

def create_mask(src, tgt):
    n = tgt.shape[0]
    ahead = torch.triu(torch.ones((n, n), dtype=torch.bool), diagonal=1)
    return None, ahead, (src == PAD_IDX).t(), (tgt == PAD_IDX).t()

def compute_loss(model, src, tgt):
    "src: (S, N), tgt: (T, N)"
    tgt_input = tgt[:-1, :]
    src_mask, tgt_mask, src_padding_mask, tgt_padding_mask = create_mask(src, tgt_input)
    logits = model(src, tgt_input, src_mask, tgt_mask, src_padding_mask, tgt_padding_mask, src_padding_mask)
    tgt_out = tgt[1:, :]
    loss_fn = nn.CrossEntropyLoss(ignore_index=PAD_IDX)
    return loss_fn(logits.reshape(-1, logits.shape[-1]), tgt_out.reshape(-1))
""",
)
STYLES["training loss: shifted inside"] = (
    "lm_loss",
    "training_loss",
    """
def lm_loss(model, input_ids, pad_id=0):
    logits = model(input_ids).logits
    shift_logits = logits[..., :-1, :].contiguous()
    shift_labels = input_ids[..., 1:].contiguous()
    return F.cross_entropy(shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1), ignore_index=pad_id)
""",
)
STYLES["training loss: input and labels"] = (
    "loss_fn",
    "training_loss",
    """
PAD = 0

def loss_fn(model, x, y):
    logits, _ = model(x)
    losses = F.cross_entropy(logits.transpose(1, 2), y, reduction="none")
    keep = (y != PAD).float()
    return (losses * keep).sum() / keep.sum()
""",
)
STYLES["training loss: a model of log-probabilities, sequence first"] = (
    "lm_loss",
    "training_loss",
    """
def lm_loss(model, data, target):
    output = model(data)
    return F.nll_loss(output.view(-1, output.size(-1)), target.reshape(-1), ignore_index=0)
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
    ("loss: annotated", "1.0 - smoothing", "1.0"),
    ("loss: annotated", "self.size - 2", "self.size"),
    ("loss: annotated", "true_dist[:, self.padding_idx] = 0", "pass"),
    ("loss: annotated", "index_fill_(0, mask.squeeze(), 0.0)", "clone()"),
    ("loss: V - 1, mean", "1.0 - smoothing", "1.0"),
    ("loss: V - 1, mean", "keep.sum()", "keep.numel()"),
    ("loss: V - 1, mean", "(loss * keep)", "loss"),
    ("loss: V - 1, mean", "log_softmax(dim=-1)", "log_softmax(dim=0)"),
    ("loss: nll and smooth", "(1.0 - epsilon) * nll_loss", "nll_loss"),
    ("loss: nll and smooth", "loss = loss.masked_fill", "ignored = loss.masked_fill"),
    ("loss: smoothing as an option", "label_smoothing=smoothing, ", ""),
    ("loss: smoothing as an option", ", ignore_index=ignore_index)", ")"),
    ("loss: a constant pad, three axes", "/ mask.sum()", "/ mask.numel()"),
    ("loss: by hand", "torch.exp(logits).sum(-1, keepdim=True)", "torch.exp(logits).sum()"),
    ("loss: a mask handed in", "/ mask.sum()", "/ mask.numel()"),
    ("schedule: rate", "step ** (-0.5)", "step ** (-1.0)"),
    ("schedule: rate", "warmup ** (-1.5)", "warmup ** (-0.5)"),
    ("schedule: rate", "min(", "max("),
    ("schedule: rate", "step = 1", "pass"),
    ("schedule: NoamOpt", "self.model_size ** (-0.5)", "self.model_size ** 0.5"),
    ("schedule: NoamOpt", "step = max(step, 1)", "pass"),
    ("schedule: ScheduledOptim", "n_warmup_steps ** (-1.5)", "n_warmup_steps ** (-1.0)"),
    ("schedule: counted from 0", "step * warmup_steps ** -1.5", "step * warmup_steps ** -2"),
    ("schedule: LRScheduler", "min(step ** -0.5,", "min(step ** -0.6,"),
    ("greedy: annotated", "torch.max(prob, dim=1)", "torch.min(prob, dim=1)"),
    ("greedy: annotated", "out[:, -1]", "out[:, 0]"),
    ("greedy: a batch, sequence first", "next_word == EOS_IDX", "next_word == PAD_IDX"),
    ("greedy: a batch, sequence first", "next_word = next_word.masked_fill", "ignored = next_word.masked_fill"),
    ("greedy: generate with a cache", "if finished.all():", "if False:"),
    ("greedy: generate with a cache", "finished |= next_token == eos_id", "pass"),
    ("greedy: generate with a cache", "tokens[:, :plen] = prompt_tokens", "tokens[:, 1:plen] = prompt_tokens[:, 1:]"),
    ("greedy: sampling of one candidate", "range(max_new_tokens)", "range(max_new_tokens - 1)"),
    (
        "greedy: sampling of one candidate",
        "idx = torch.cat((idx, idx_next), dim=1)",
        "idx = torch.cat((idx_next, idx), dim=1)",
    ),
    ("beam search: one text", "score + p.item()", "p.item()"),
    ("beam search: one text", "-item[0]", "item[0]"),
    ("beam search: one text", "max(done or beams)", "min(done or beams)"),
    ("sampling: filter of logits", "[..., -1, None]", "[..., -2, None]"),
    (
        "sampling: filter of logits",
        "sorted_indices_to_remove[..., 1:] = sorted_indices_to_remove[..., :-1].clone()",
        "pass",
    ),
    ("sampling: filter of logits", "cumulative_probs > top_p", "cumulative_probs < top_p"),
    ("sampling: filter of logits", "scatter(-1, sorted_indices, sorted_indices_to_remove)", "clone()"),
    ("sampling: a draw of a rank, which is looked up", "return order.gather(-1, rank)", "return rank"),
    ("sampling: a draw of a rank, which is looked up", "before >= top_p", "before + s.softmax(-1) >= top_p"),
    ("loss: of the tokens themselves, shifted inside", "logits[:, :-1].flatten", "logits[:, 1:].flatten"),
    ("loss: of the tokens themselves, shifted inside", "ignore_index=pad", "ignore_index=2"),
    ("sampling: a draw", "logits / temperature", "logits * temperature"),
    ("sampling: a draw", "min(top_k, logits.size(-1))", "min(top_k + 1, logits.size(-1))"),
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
    ("training loss: translator, sequence first", "tgt[1:, :]", "tgt[:-1, :]"),
    ("training loss: translator, sequence first", "tgt_input = tgt[:-1, :]", "tgt_input = tgt[1:, :]"),
    ("training loss: translator, sequence first", "ignore_index=PAD_IDX", ""),
    ("training loss: shifted inside", "input_ids[..., 1:]", "input_ids[..., :-1]"),
    ("training loss: shifted inside", ", ignore_index=pad_id", ""),
    ("training loss: input and labels", "/ keep.sum()", "/ keep.numel()"),
    ("training loss: input and labels", "logits.transpose(1, 2), y,", "logits.transpose(1, 2)[..., :-1], y[:, 1:],"),
    ("training loss: input and labels", "(losses * keep)", "losses"),
]
