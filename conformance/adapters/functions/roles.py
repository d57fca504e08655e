"""Which role the name of a function and the names of its parameters propose."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from torch import nn

QUERY, KEY, VALUE = r"q|query|queries|xq|query_states", r"k|keys?|xk|key_states", r"v|values?|xv|value_states"
MODEL = r"model|net|network|transformer|lm|decoder|encoder_decoder|gpt|next_logits|logits_fn|predict"
LOGITS = r"logits?|pred(s|icted|ictions?)?|inputs?|x|out(puts?)?|y_?(hat|pred)|scores|log_?probs?|lprobs|hyp"
TARGETS = r"targets?|labels?|gold|truth|y(_true)?|tgt|trg|(target|tgt|label)_?(ids|tokens|out|y)|t|ref"
WARMUP = r"(n_|num_)?warm_?up(_?(steps?|iters?|iterations|n))?|n_warmup_steps"
WIDTH = r"d_?model|model_?(size|dim)|dim(_?(model|embed|embedding))?|d|hidden_size|n_embd|embed_dim|emb_size|hid_dim"
SIZE = (
    r"(chunk_)?size|sz|n|t|l|i|length|((seq|tgt|trg|max|input|q(uery)?)_?|sequence_)(len(gth)?|size)|len(_seq)?|seq|dim|"
    r"max_?seq_?len(gth)?|num_positions"
)


def _names(function: Any) -> list[str]:
    try:
        return [p.lower().strip("_") for p in inspect.signature(function).parameters if p != "self"]
    except (TypeError, ValueError):
        return []


def _any(names: list[str], pattern: str) -> bool:
    return any(re.fullmatch(pattern, name) for name in names)


def proposed(found: Any) -> tuple[str, ...]:
    """The roles that a function or class may play, the most probable first; () when nothing proposes one."""
    name = str(getattr(found, "__name__", "")).lower()
    if isinstance(found, type):
        return _of_class(found, re.sub(r"_", "", name))
    names = _names(found)
    if not names:
        return ()
    takes_model = bool(re.fullmatch(MODEL, names[0]))
    for role, fits in _RULES:
        if fits(name, names, takes_model):
            return role
    return ()


_OTHER_LOSSES = (
    r"compute|lossmodel|withloss|quantile|pinball|huber|mse|mae|l1|l2|dice|iou|triplet|contrast|margin|hinge|ctc|nce|rank|"
    r"cosine|reconstruct|distill|regress"
)
"""Classes of losses that are no cross-entropy, and those that are more than a loss, by a part of their names."""


def _of_class(found: Any, name: str) -> tuple[str, ...]:
    """Losses that are modules, and schedules: other classes are no functions."""
    made = _names(found)
    if issubclass(found, nn.Module):
        told = re.search(r"loss|smooth|criterion|crossentropy", name)
        forward = _names(found.forward)
        data = [n for n in forward if re.fullmatch(LOGITS, n)] and [n for n in forward if re.fullmatch(TARGETS, n)]
        return ("cross_entropy",) if told and data and not re.search(_OTHER_LOSSES, name) else ()
    if _any(made, WARMUP) and (_any(made, WIDTH) or _reads_the_width_of_a_model(found)):
        return ("lr_schedule",)
    return ()


def _reads_the_width_of_a_model(cls: type) -> bool:
    try:
        return bool(re.search(rf"\b(model|net|module)\.({WIDTH})\b", inspect.getsource(cls)))
    except (OSError, TypeError):
        return False


Rule = Callable[[str, list[str], bool], Any]

_RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    (("beam_search",), lambda name, names, model: "beam" in name),
    (("training_loss",), lambda name, names, model: model and re.search(r"loss|criterion|objective", name)),
    (
        ("greedy_decode",),
        lambda name, names, model: (
            model and re.search(r"greedy|generat|decod|translat|sampl|infer|complet|argmax", name)
        ),
    ),
    (("lr_schedule",), lambda name, names, model: _any(names, WARMUP) and _any(names, WIDTH)),
    (("rope",), lambda name, names, model: re.search(r"rope|rotary|rotate_|freqs_?cis", name)),
    (
        ("sinusoidal_positions",),
        lambda name, names, model: (
            re.search(r"sinusoid|sincos|pos(ition)?(al)?_?(enc|emb|table)|timestep_?emb", name)
            and not re.search(r"[23]d|rel(ative)?_|interpolat|resi[sz]e|grid", name)
        ),
    ),
    (
        ("attention",),
        lambda name, names, model: _any(names, QUERY) and _any(names, KEY) and _any(names, VALUE),
    ),
    (
        ("masked_tokens",),
        lambda name, names, model: re.search(r"mask_?(tokens|inputs|words|ids|batch)|mlm|corrupt", name),
    ),
    (
        ("cross_entropy",),
        lambda name, names, model: (
            re.search(r"loss|criterion|cross_?entropy|xent|nll|smooth|^ce$", name)
            and len(names) > 1
            and not re.search(
                r"mse|l1|l2|balanc|contrast|kd|distill|bce|binary|aux|z_loss|router|soft_|ctc|mixup|bpr|ranking|quantile",
                name,
            )
        ),
    ),
    (
        ("causal_mask",),
        lambda name, names, model: (
            re.search(r"mask|subsequent|tril", name)
            and (_any(names[:1], SIZE) and not re.search(r"pad", name))
            and not re.search(r"apply", name)
        ),
    ),
    (
        ("padding_mask", "causal_mask"),
        lambda name, names, model: (
            re.search(r"mask|subsequent", name) and not re.search(r"apply|fill|softmax|loss|mean|pool|token", name)
        ),
    ),
    (("clip_grad_norm",), lambda name, names, model: "clip" in name),
    (
        ("sampling_filter",),
        lambda name, names, model: re.search(r"top_?k|top_?p|nucleus|filter|sampl|temperature", name),
    ),
    (
        ("shift_targets",),
        lambda name, names, model: re.search(r"shift|teacher|(inputs?|decoder).*(targets?|labels?)|split_target", name),
    ),
    (("softmax",), lambda name, names, model: "softmax" in name and "log" not in name),
    (("activation",), lambda name, names, model: re.search(r"gelu|relu|silu|swish|sigmoid|tanh", name)),
)
