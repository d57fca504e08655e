"""The rule that chooses a repository's entries, by syntax alone: nobody looks whether the suite likes them.

Whole models: classes with a `forward` that no other class of the repository refers to (and functions that assemble at
least two), which reach attention, another class, and an embedding or patches; what reaches the most classes first.
Components: the classes that whole models refer to, in the order of the files; where a repository has no whole model,
all its classes. Functions: those whose name says that they compute what Transformers are made of, in that order.
What is recurrent is left out, and private names. `PLACES` says how many of each.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.zoo.syntax import Checkout, Definition
from tools.zoo.table import Entry

PLACES = {"model": 2, "component": 3, "function": 1}

ATTENTION = re.compile(r"att(entio)?n|transformer|mha$", re.IGNORECASE)
TORCH_LAYERS = re.compile(r"Transformer|MultiheadAttention")
RECURRENT = {"LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"}
INPUTS = re.compile(r"embed(ding|dings|der)?$|patch|conv2d", re.IGNORECASE)
PICTURES = re.compile(r"patch|conv2d|image|img", re.IGNORECASE)
CAUSAL = re.compile(r"tril|triu|causal|subsequent|look_?ahead|^generate$|autoregress", re.IGNORECASE)
CAUSAL_NAME = re.compile(r"gpt|llama|palm|LM$|language_?model", re.IGNORECASE)
MASKED_NAME = re.compile(r"bert|mlm|masked|electra", re.IGNORECASE)
CLASSES = re.compile(r"^n?(um|_)?_?(class(es)?|labels?)$|class(es)?_num", re.IGNORECASE)
HALVES = re.compile("Encoder"), re.compile("Decoder")
PAIR_NAME = re.compile(r"enc.*dec|seq2?seq|translat", re.IGNORECASE)
SOURCE = re.compile(r"^(src|source|enc)", re.IGNORECASE)
TARGET = re.compile(r"^(tgt|trg|target|dec)", re.IGNORECASE)
TAKES = {
    "mask": re.compile(r"mask(?!(ed)?_?(idx|ind(ex|ices)|pos))|pad", re.IGNORECASE),
    "cache": re.compile(r"cache|past|kv|start_pos|mems", re.IGNORECASE),
}

FUNCTION = re.compile(
    r"attention|mask|norm|softmax|[gs]elu|glu|rotary|rope|rotate|position|sinusoid|smooth|entropy|warmup|schedule|noam|"
    r"top_[kp]|greedy|beam"
)
NO_FUNCTION = re.compile(
    r"plot|show|draw|load|save|print|test|train|eval|visual|log_|main|download|read|write|data|image"
)
FACTORY = re.compile(r"^(make|build|create|get)_")


def any_matches(pattern: re.Pattern[str], names: Iterable[str]) -> bool:
    return any(pattern.search(name) for name in names)


def entries(root: Path) -> list[Entry]:
    """What the rule chooses from a checkout."""
    checkout = Checkout(root)
    usable = [
        d
        for d in checkout.modules
        if not d.name.startswith("_")
        and checkout.forward_of(d) is not None
        and not any(RECURRENT & r.mentions for r in checkout.reach(d))
    ]
    models = whole_models(checkout, usable)
    parts = [d for d in usable if any(d in checkout.reach(m)[1:] for m in models)] if models else usable
    functions = [d for d in checkout.definitions if is_function(d)]
    parts = distinct(sorted((d for d in parts if d not in models), key=lambda d: d.place))
    return [
        *(Entry(d.path, d.name, *kind_of(checkout, d)) for d in distinct(models)[: PLACES["model"]]),
        *(Entry(d.path, d.name, "component", takes(checkout.forward_of(d))) for d in parts[: PLACES["component"]]),
        *(Entry(d.path, d.name, "function") for d in distinct(functions)[: PLACES["function"]]),
    ]


def distinct(found: Iterable[Definition]) -> list[Definition]:
    """The first of each name."""
    return list({d.name: d for d in reversed(list(found))}.values())[::-1]


def whole_models(checkout: Checkout, usable: Sequence[Definition]) -> list[Definition]:
    """Largest first; equally large ones in the order of the files."""
    modules = set(checkout.modules)
    inner = {r for d in modules for r in checkout.references[d]}
    assembled = [
        d
        for d in checkout.definitions
        if isinstance(d.node, ast.FunctionDef) and FACTORY.match(d.name) and len(checkout.references[d]) >= 2
    ]
    found = []
    for d in [*(d for d in usable if d not in inner), *assembled]:
        reached = checkout.reach(d)
        names = [name for r in reached for name in r.mentions]
        parts = len(reached) > 1 or any_matches(TORCH_LAYERS, names)
        if parts and any_matches(ATTENTION, names) and any_matches(INPUTS, names) and not RECURRENT & set(names):
            found.append(d)
    return sorted(found, key=lambda d: (-len(checkout.reach(d)), d.place))


def is_function(d: Definition) -> bool:
    if not isinstance(d.node, ast.FunctionDef) or d.name.startswith("_") or not d.parameters():
        return False
    answers = any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(d.node))
    return answers and bool(FUNCTION.search(d.name.lower())) and not NO_FUNCTION.search(d.name.lower())


def takes(parameters: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(what for what, pattern in TAKES.items() if any_matches(pattern, parameters or ()))


def kind_of(checkout: Checkout, model: Definition) -> tuple[str, tuple[str, ...]]:
    """(kind, what it takes) of a whole model, by the names of its parameters and of what it mentions.

    A model without a forward, and a function, are judged by the class in them whose forward takes the most.
    """
    own = checkout.forward_of(model)
    inner = [checkout.forward_of(r) or [] for r in checkout.references[model]]
    calls = max(inner, key=len, default=[]) if own is None else own
    made = model.parameters("__init__") or model.parameters() or []
    names = {name for r in checkout.reach(model) for name in r.mentions}
    called = [model.name] if own is not None else [r.name for r in checkout.references[model]]
    told = takes(calls)
    asked = [*calls, *(made if own is None else [])]
    inputs = [name for name in calls if not any_matches(TAKES["mask"], [name])]
    pairs = any_matches(SOURCE, asked) and any_matches(TARGET, asked)
    halves = any_matches(PAIR_NAME, called) or all(any_matches(half, names) for half in HALVES)
    if pairs or (len(inputs) > 1 and halves):
        kind = "sequence_to_sequence"
    elif any_matches(MASKED_NAME, called):
        kind = "masked_language_model"
    elif any_matches(CLASSES, made):
        kind = "classifier"
    elif any_matches(PICTURES, names) or "Embedding" not in names:
        kind = "encoder"
    elif "cache" in told or any_matches(CAUSAL_NAME, called) or any_matches(CAUSAL, names):
        kind = "language_model"
    else:
        kind = "encoder"
    return kind, told
