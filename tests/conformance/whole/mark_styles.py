"""Correct masks made of marks of real tokens or of two lengths, and filters that are told the share to cut off.

STYLES and MUTANTS as in function_styles.
"""

from __future__ import annotations

STYLES: dict[str, tuple[str, str, str]] = {}

STYLES["masks: of marks, padding and future"] = (
    "make_target_mask",
    "padding_mask causal_mask",
    """
def make_target_mask(target_pad_mask):
    rows, steps = target_pad_mask.shape
    real = target_pad_mask.view(rows, 1, 1, steps) == 1
    past = torch.ones(1, 1, steps, steps).tril() == 1
    return real & past
""",
)
STYLES["padding mask: added, of a tokenizer's marks"] = (
    "extended_mask",
    "padding_mask",
    """
def extended_mask(attention_mask):
    return (1 - attention_mask[:, None, None, :]) * torch.finfo(torch.float32).min
""",
)
STYLES["causal mask: of two lengths"] = (
    "causal_mask",
    "causal_mask",
    """
def causal_mask(i, j, device=None):
    '''True hides.'''
    return torch.ones(i, j, device=device).triu(j - i + 1).bool()
""",
)
STYLES["causal mask: of queries and keys"] = (
    "make_causal_mask",
    "causal_mask",
    """
def make_causal_mask(input_size, key_len, whole=False):
    return (torch.triu(torch.ones(key_len, input_size)) == 1).t()
""",
)
STYLES["top-k: a share that is cut off, rounded down"] = (
    "top_k",
    "sampling_filter",
    """
def top_k(logits, thres=0.9):
    kept = int((1 - thres) * logits.shape[-1])
    values, places = torch.topk(logits, kept)
    return torch.full_like(logits, float("-inf")).scatter_(-1, places, values)
""",
)
STYLES["top-k: a share that is cut off, rounded up"] = (
    "filter_top_k",
    "sampling_filter",
    """
def filter_top_k(logits, filter_thres=0.9):
    kept = math.ceil((1 - filter_thres) * logits.shape[-1])
    values, places = torch.topk(logits, kept)
    return torch.full_like(logits, float("-inf")).scatter_(-1, places, values)
""",
)

MUTANTS: list[tuple[str, str, str]] = [
    ("masks: of marks, padding and future", ".tril() == 1", ".tril(1) == 1"),
    ("causal mask: of two lengths", "triu(j - i + 1)", "triu(j - i)"),
    ("causal mask: of queries and keys", "torch.triu(", "torch.tril("),
    ("top-k: a share that is cut off, rounded down", "torch.topk(logits, kept)", "torch.topk(-logits, kept)"),
    ("top-k: a share that is cut off, rounded up", 'float("-inf")', "0.0"),
]
