"""What stands behind the words of a batch's labels: padding that the loss of the file ignores, and an end sign."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.functions.arguments import PAD
from conformance.adapters.functions.subjects import source_of
from conformance.adapters.helpers.collating import BATCHES, TEXTS, WORDS, holds_words, made_of, pad_of, tables_of
from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, named_parts, shown

_LABELS = re.compile(r"((tgt|trg|target|dec|decoder|y|lm)_?)?(out|outputs?|labels?|ys?|targets?|gold)(_ids)?")
_OF_LABELS = re.compile(r"^(?!attention|attn|input).*mask|weight")
"""Masks that may say which labels count; that of the attention is for the model."""
IGNORED = -100
"""What torch's cross-entropy ignores where nothing else is said."""


@helper("labels-are-padded-with-what-the-loss-ignores", BATCHES, WORDS, ("texts",))
def padded_labels(collate: Called) -> Iterator[Trouble]:
    """Where the losses of the file ignore -100 alone, no label behind the end of a text is a word."""
    if _is_told_a_padding(collate) or not (_says_so(collate) or _only_default_is_ignored(collate)):
        raise OtherKind("nothing shows that its labels are padded with -100")
    _, made = made_of(collate, TEXTS)
    tables = tables_of(collate, made)
    if any(_OF_LABELS.search(name) for name, _ in tables) and not _says_so(collate):
        raise OtherKind("a mask may say which labels count")
    labels = [(name, one) for name, one in tables if _LABELS.fullmatch(name) and holds_words(one)]
    if not labels or len(tables) < 2:
        raise OtherKind("it gives no inputs and labels")
    for name, table in labels:
        behind = table[1].tolist()
        fill, last = pad_of(table), max(at for at, word in enumerate(behind) if word in TEXTS[1])
        padding = [word for word in behind[last + 1 :] if word == fill]
        if len(padding) > 1 and fill >= 0:
            yield Trouble(
                f"{collate.name} pads {name} with the word {fill}, where the loss ignores {IGNORED} alone: "
                "padding is taught.",
                IGNORED,
                shown(table[1]),
                at=(rf"\b{name}\b\s*=[^=].*(pad|full|zeros)", rf"\b{name}\b\s*=[^=]", rf"\b{name}\b.*(pad|full|zeros)"),
                mend=f"pad {name} with {IGNORED}",
            )
            return


def _is_told_a_padding(collate: Called) -> bool:
    """Whether its caller says with what labels are padded; or its class requires a padding, which is made up here."""
    told = [collate.arguments.parameter_of["pad"]] if collate.has("pad") else []
    cls = type(getattr(collate.function, "__self__", None))
    if cls is not type(None):
        required = [n for n, p in inspect.signature(cls).parameters.items() if p.default is p.empty]
        told += [name for name in required if re.search(r"pad|ignore", name.lower())]
    return any(re.search(r"label|ignore|target|tgt|pad_?value", name.lower()) for name in told)


def _says_so(collate: Called) -> bool:
    """Whether its docstring says that padding is -100."""
    said = inspect.getdoc(collate.function) or ""
    return re.search(rf"(?i)\bpad\w*\b[^.;]*{IGNORED}|{IGNORED}[^.;]*\bpad", said) is not None


def _only_default_is_ignored(collate: Called) -> bool:
    """Whether every loss of its file that is told what to ignore, and one is, is told -100, and nothing makes other
    labels -100, or weighs them; but for a list of so many, which stands for a prompt."""
    code = _code(collate.file)
    told = re.findall(r"ignore_index\s*=\s*([^,()\n]+)", code)
    scope = {name: value for name, value in collate.scope.items() if type(value) is int}
    if any(word.strip() != str(IGNORED) and scope.get(word.strip()) != IGNORED for word in told):
        return False
    if re.search(r"reduction\s*=\s*[\"']none|reduce\s*=\s*False|mask\w*\.sum\(|weights?\.sum\(", code):
        return False
    names = "|".join([re.escape(str(IGNORED)), *(name for name, value in scope.items() if value == IGNORED)])
    put = re.sub(
        rf"\[({names})\]\s*\*|ignore_index\s*=\s*({names})|[!=]=\s*({names})\b|^\w+\s*=\s*{IGNORED}",
        "",
        code,
        flags=re.M,
    )
    made_elsewhere = re.search(rf"(?<![\w.])({names})(?!\w)", put.replace(_code(collate.source), ""))
    return made_elsewhere is None and bool(told)


def _code(text: str) -> str:
    """A text without docstrings and comments."""
    return re.sub(r"(?s)(\"\"\"|''').*?\1|#[^\n]*", "", text)


_STARTS, _ENDS = "bos|sos|start|go", "eos|eot|end"
_SIGN = r"(_?(token|id|idx|index|symbol|tok)){0,2}"
_PAIRS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda one, other: (one, other),
    lambda one, other: {"src": one, "tgt": other},
    lambda one, other: {"source": one, "target": other},
    lambda one, other: {"input_ids": one, "labels": other},
)
_AWAY = 50
"""So far from the words of a source are those of its target."""


@helper(
    "targets-of-a-batch-have-their-end",
    BATCHES,
    {
        "start": rf"(tgt_|trg_|target_)?({_STARTS}){_SIGN}",
        "end": rf"(tgt_|trg_|target_)?({_ENDS}){_SIGN}",
        **WORDS,
    },
    ("texts",),
)
def ended_targets(collate: Called) -> Iterator[Trouble]:
    """Where each target begins with the start sign, and the end sign is known, it stands behind the target in some
    part of the batch."""
    if re.search(r"infer|generat|predict|prompt|prefix", collate.says):
        raise OtherKind("its targets are begun, and not ended")
    start, end = _sign(collate, "start", _STARTS), _sign(collate, "end", _ENDS)
    if start is None or end is None or start == end or not {start, end}.isdisjoint(range(11, 90)):
        raise OtherKind("it knows no start or no end")
    for pair in _PAIRS:
        for form in (list[int], torch.tensor):
            tables = _of_pairs(collate, [pair(form(t), form([w + _AWAY for w in t])) for t in TEXTS], start, end)
            targets = [table for table in tables if int((table > _AWAY).sum()) >= 6]
            begun = [table for table in targets if bool((table[:, 0] == start).all())]
            if not begun:
                continue
            if not any(_is_behind(table, end) for table in targets) and not _ends_elsewhere(collate):
                yield Trouble(
                    f"{collate.name} puts the start sign before each target and no end sign behind it: nothing "
                    "teaches the model to stop.",
                    f"{end} behind the last word",
                    shown(begun[0][1]),
                    at=(rf"\[\s*(\w+\.)*\w*({_STARTS})\w*", rf"(?i)\b\w*({_STARTS})\w*"),
                    mend="[start, *words, end]",
                )
            return
    raise OtherKind("it gives no targets that begin with the start sign")


_SOURCES, _TARGETS = [[11, 12, 13], [14, 15]], [[61, 62, 63], [64, 65]]
_LONG = [*range(61, 141)]
_LISTED = r"s?(_?(ids|texts|list))?"


@helper(
    "targets-of-a-batch-have-their-end",
    BATCHES,
    {
        "max_len": WORDS["max_len"],
        "pad": PAD,
        "targets": rf"(tgt|trg|target|headline|summar(y|ie)|output|answer|label|response|translation|y){_LISTED}",
        "sources": rf"(src|source|article|document|doc|input|question|text|prompt|x){_LISTED}",
    },
    ("sources", "targets"),
)
def end_of_cut_targets(collate: Called) -> Iterator[Trouble]:
    """A target that is too long and is cut keeps its end sign, where short ones have one."""

    def rows(targets: list[list[int]]) -> list[list[int]]:
        with suppress(Exception):
            made = collate(sources=[list(s) for s in _SOURCES], targets=[list(t) for t in targets], pad=0, max_len=24)
            found = [part.tolist() for _, part in named_parts(made) if isinstance(part, Tensor) and part.dim() == 2]
            return next((t for t in found if len(t) == 2 and {64, 65} <= {*t[1]}), [])
        return []

    behind = {
        row[row.index(target[-1]) + 1]
        for target, row in zip(_TARGETS, rows(_TARGETS), strict=False)
        if target[-1] in row[:-1]
    }
    cut = rows([_LONG, _TARGETS[1]])
    if len(behind) != 1 or behind <= {0, -100} or not cut or _LONG[-1] in cut[0]:
        raise OtherKind("its targets have no end sign, or are not cut")
    [end] = behind
    if cut[0][-1] != end:
        yield Trouble(
            f"{collate.name} cuts a target that is too long behind its last words, and its end sign {end} with them.",
            f"..., {end}",
            shown(torch.tensor(cut[0][-4:])),
            at=(r"(?i)(eos|end\b|stop).*\[:|\[:.*(eos|end\b|stop)", r"\[:\s*\w*max\w*", r"\[:"),
            mend="cut the words to one less than the length, and put the end sign behind them",
        )


def _sign(collate: Called, meaning: str, names: str) -> int | None:
    """The sign that it is handed, or keeps and names in its text."""
    if collate.has(meaning):
        return {"start": 1, "end": 2}[meaning]
    for name, value in collate.settings.items():
        known = re.fullmatch(rf"(tgt_|trg_|target_)?({names}){_SIGN}", name)
        if known and type(value) is int and re.search(rf"\b{name}\b", collate.source.lower()):
            return value
    return None


def _of_pairs(collate: Called, pairs: list[Any], start: int, end: int) -> list[Tensor]:
    with suppress(Exception):
        made = collate(texts=pairs, pad=0, max_len=64, start=start, end=end)
        return [table for _, table in tables_of(collate, made)]
    return []


def _is_behind(table: Tensor, end: int) -> bool:
    """Whether the sign stands behind the last word of each row."""
    rows = [[word for word in row if word > _AWAY or word == end] for row in table.tolist()]
    return all(row and row[-1] == end for row in rows)


def _ends_elsewhere(collate: Called) -> bool:
    """Whether something else of the file puts an end sign behind words: then targets may have theirs already."""
    owner = getattr(collate.function, "__self__", None)
    rest = collate.file.replace(source_of(type(owner)) if owner is not None else collate.source, "")
    sign = rf"(\w+\.)*\w*\b({_ENDS}){_SIGN}"
    return re.search(rf"(?i)append\({sign}\s*\)|(?<![\w\])])\[([^\[\]\n]*,\s*)?{sign}\s*\]", rest) is not None
