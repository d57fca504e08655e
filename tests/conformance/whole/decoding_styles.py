"""Correct decoders and samplers in the styles of the field, and one-line mutants: as function_styles."""

from __future__ import annotations

STYLES: dict[str, tuple[str, str, str]] = {}

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

MUTANTS: list[tuple[str, str, str]] = [
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
    ("sampling: a draw", "logits / temperature", "logits * temperature"),
    ("sampling: a draw", "min(top_k, logits.size(-1))", "min(top_k + 1, logits.size(-1))"),
]
