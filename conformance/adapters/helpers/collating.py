"""Helpers that make a batch of single texts: padded rows, masks, lengths, decoder inputs and labels."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.functions.arguments import PAD
from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, named_parts, shown

TEXTS = [[11, 12, 13, 14, 15], [16, 17], [18, 19, 20]]
_LONG = list(range(11, 91))

BATCHES = (
    r"collat(e|or|ion)|pad_(batch|to|and|seq|sent|text|rows|ids)|make_batch|"
    r"(prepare|build|encode|batch)_(batch|inputs|texts|sentences|sequences|examples)|^pad$|to_batch|batch_encode"
)
"""Names of functions that make a batch."""
WORDS = {
    "max_len": r"max_?(seq_?)?len(gth)?|length|max_tokens|block_size|n_ctx",
    "pad": PAD,
    "texts": (
        r"batch|texts|sent(ence)?s|samples|items|rows|seq(uence)?s|examples|"
        r"features|pairs|data|tokens|ids(_list)?|inputs?|x|instances"
    ),
}


@helper(
    "padded-batches-keep-their-texts",
    BATCHES,
    WORDS,
    ("texts",),
)  # fmt: skip
def padded_batch(collate: Called) -> Iterator[Trouble]:
    """Each text stands in its row, in its order; masks and lengths say where it ends; a longest length is kept."""
    form, made = made_of(collate, TEXTS)
    tables = tables_of(collate, made)
    rows = [(name, table) for name, table in tables if holds_words(table)]
    if not rows:
        raise OtherKind("no text is found in what it gives")
    if all(row.count(text[0]) > 1 for text, row in zip(TEXTS, rows[0][1].tolist(), strict=True)):
        raise OtherKind("it puts the two texts of a pair into one row")
    if re.search(r"\bsort(ed)?\(|argsort", collate.source) and _in_another_order(rows[0][1]):
        raise OtherKind("it puts the longest text first, or last")
    for name, table in rows:
        if trouble := _misplaced(collate, name, table):
            yield trouble
            return
    name, table = rows[0]
    ends = [max(at for at, word in enumerate(row) if word != pad_of(table)) + 1 for row in table.tolist()]
    begins = [min(at for at, word in enumerate(row) if word != pad_of(table)) for row in table.tolist()]
    real = torch.tensor(
        [[begin <= at < end for at in range(table.shape[1])] for begin, end in zip(begins, ends, strict=True)]
    )
    for other, mask in tables:
        if (
            mask.shape == table.shape
            and set(mask.long().unique().tolist()) <= {0, 1}
            and re.search(r"mask|attn|real|valid|keep|pad", other)
        ):
            hides = bool(re.search(r"(^|_)pad", other)) and not re.search(r"non_?pad|not_pad", other)
            if not torch.equal(mask.bool(), ~real if hides else real):
                turned = torch.equal(mask.bool(), real if hides else ~real)
                yield Trouble(
                    f"{collate.name}: the mask {other} " + (("marks padding as words, "
"and words as padding.") if turned else "does not end where the texts end."),
                    shown((~real if hides else real).long()), shown(mask.long()),
                )  # fmt: skip
                return
    for other, numbers in _vectors(made, collate):
        counted = [end - begin for begin, end in zip(begins, ends, strict=True)]
        if re.search(r"len", other) and not _same_lengths(numbers, counted):
            yield Trouble(f"{collate.name}: {other} are not the lengths of the texts.", shown(counted), shown(numbers))
            return
    yield from _shifted(collate, rows)
    if collate.has("max_len"):
        yield from _cut(collate, form)


def _in_another_order(table: Tensor) -> bool:
    """Whether its rows are those of the texts, and other ones stand first."""
    owners = [next((at for at, row in enumerate(table.tolist()) if text[0] in row), -1) for text in TEXTS]
    return sorted(owners) == list(range(len(TEXTS))) != owners


def _same_lengths(numbers: Tensor, counted: list[int]) -> bool:
    """Whether lengths are those of the rows, or of the texts without what was put around them."""
    return numbers.tolist() in (counted, [len(text) for text in TEXTS])


Form = Callable[[list[int]], Any]
FORMS: tuple[Form, ...] = (
    lambda text: text,
    lambda text: torch.tensor(text),
    lambda text: (text, text),
    lambda text: (torch.tensor(text), torch.tensor(text)),
    lambda text: (text, 1),
    lambda text: (torch.tensor(text), 1),
    lambda text: (torch.tensor(text), torch.tensor(1)),
    lambda text: {"input_ids": text, "label": 1, "labels": text},
    lambda text: {"input_ids": torch.tensor(text), "label": torch.tensor(1), "labels": torch.tensor(text)},
    lambda text: {"ids": text, "label": 1},
    lambda text: (text, text, 1),
    lambda text: (torch.ones(len(text), 6) * torch.tensor(text)[:, None], torch.tensor(text)),
    lambda text: torch.ones(len(text), 6) * torch.tensor(text)[:, None],
    lambda text: SimpleNamespace(input_ids=text, ids=text, tokens=text, labels=text, label=1),
)
"""What one text may be handed over as."""


def made_of(collate: Called, texts: list[list[int]]) -> tuple[Form, Any]:
    for form in FORMS:
        with suppress(Exception):
            given = {"texts": [form(text) for text in texts], "pad": 0, "max_len": 64}
            made = collate(**given)
            if tables := tables_of(collate, made):
                again = tables_of(collate, collate.from_seed(1, **given))
                break
    else:
        raise OtherKind("it takes no list of texts")
    if any(not torch.equal(table, other) for (_, table), (_, other) in zip(tables, again, strict=True)):
        raise OtherKind("it replaces words by lot")
    return form, made


def tables_of(collate: Called, made: Any) -> list[tuple[str, Tensor]]:
    """The matrices of whole numbers with a row for each text, under their names; (T, B) turned round."""
    found = []
    for name, part in named_as_returned(collate, made):
        if isinstance(part, list) and part and isinstance(part[0], list):
            with suppress(ValueError, TypeError):
                part = torch.tensor(part)
        if isinstance(part, Tensor) and part.dim() == 2 and not (part.is_floating_point() and bool((part % 1).any())):
            if part.shape[0] != len(TEXTS) and part.shape[1] == len(TEXTS):
                part = part.t()
            if len(part) == len(TEXTS) and part.shape[1] > 1:
                found.append((name, part.long()))
        elif isinstance(part, Tensor) and part.dim() == 3 and len(part) == len(TEXTS) and part.shape[2] == 6:
            found.append((name, part[..., 0].long()))
    return found


def _vectors(made: Any, collate: Called) -> list[tuple[str, Tensor]]:
    found = [(name, torch.as_tensor(part)) for name, part in named_as_returned(collate, made) if _is_vector(part)]
    return [(name, part) for name, part in found if part.dim() == 1 and len(part) == len(TEXTS)]


def _is_vector(part: Any) -> bool:
    return isinstance(part, Tensor) or (isinstance(part, list) and bool(part) and isinstance(part[0], int))


def named_as_returned(collate: Called, made: Any) -> list[tuple[str, Any]]:
    """What it returned, named as in its dict, or as its return statement names the items of a tuple."""
    found = named_parts(made)
    if any(name for name, _ in found):
        return [(name.lower(), part) for name, part in found]
    with suppress(OSError, TypeError, SyntaxError):
        tree = ast.parse(dedent(inspect.getsource(collate.function)))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Return)
                and isinstance(node.value, ast.Tuple)
                and len(node.value.elts) == len(found)
            ):
                names = [ast.unparse(item).lower() for item in node.value.elts]
                return [(name, part) for name, (_, part) in zip(names, found, strict=True)]
    return found


def holds_words(table: Tensor) -> bool:
    """Whether most of the words of the texts stand in it."""
    held = {word for row in table.tolist() for word in row}
    return len(held & {word for text in TEXTS for word in text}) >= 6


def pad_of(table: Tensor) -> int:
    """What fills the row of the shortest text: the number that the longest text does not hold, or 0."""
    short, long = table[1].tolist(), set(table[0].tolist())
    fill = [word for word in short if word not in TEXTS[1] and word not in long]
    return max(set(fill), key=fill.count) if fill else 0


def _misplaced(collate: Called, name: str, table: Tensor) -> Trouble | None:
    """A row that does not hold its text, in order and in one piece; one word may be missing at its ends."""
    for text, row in zip(TEXTS, table.tolist(), strict=True):
        held = [word for word in row if word in text]
        if held not in (text, text[1:], text[:-1]):
            return Trouble(
                f"{collate.name}: {name or 'a row'} does not hold the words of its text in their order.",
                shown(text),
                shown(row),
            )
        first = row.index(held[0]) if held else 0
        if row[first : first + len(held)] != held:
            return Trouble(f"{collate.name}: {name or 'a row'} tears a text apart.", shown(text), shown(row))
    return None


def _shifted(collate: Called, rows: list[tuple[str, Tensor]]) -> Iterator[Trouble]:
    """Of two texts of which one is called input and the other label or output, the second is one place ahead."""
    said = dict(rows)
    inputs = next(
        (t for n, t in said.items() if re.search(r"(tgt|trg|target|dec|decoder|y)\w*_?(in|inp|input)(_ids)?$", n)), None
    )
    labels = next(
        (t for n, t in said.items() if re.search(r"(tgt|trg|target|dec|y)\w*_?(out|output)s?$|labels?$|gold", n)), None
    )
    if inputs is None or labels is None or inputs.shape != labels.shape:
        return
    for given, taught, text in zip(inputs.tolist(), labels.tolist(), TEXTS, strict=True):
        if given == taught:
            yield Trouble(
                f"{collate.name}: the decoder's input holds the very word that it is to predict.",
                "labels one place ahead of the input",
                "the same rows",
            )
            return
        if given[1 : len(text)] != taught[: len(text) - 1]:
            yield Trouble(
                f"{collate.name}: the labels are not the decoder's input one place ahead.",
                shown(given[1:]),
                shown(taught),
            )
            return


def _cut(collate: Called, form: Form) -> Iterator[Trouble]:
    """A text that is too long becomes a row of exactly the longest length."""
    longest = 12
    made = collate(texts=[form(_LONG), *(form(text) for text in TEXTS[1:])], pad=0, max_len=longest)
    lengths = [table.shape[1] for _, table in tables_of(collate, made) if table[0].max() > 20]
    if lengths and min(lengths) > longest:
        yield Trouble(
            f"{collate.name} gives rows of {min(lengths)} words where {longest} is the longest.", longest, min(lengths)
        )
    elif lengths and max(lengths) < longest:
        yield Trouble(
            f"{collate.name} cuts a long text to {max(lengths)} words where {longest} is the longest.",
            longest,
            max(lengths),
        )


@helper(
    "pairs-of-texts-have-types-of-their-own",
    r"(encode|build|make|join|pack)_(pair|inputs?_with|sentence_pair|two)|pair_to|build_inputs",
    {
        "max_len": r"max_?len(gth)?",
        "one": r"a|tokens_a|ids_a|first|sent_?a|text_a|token_ids_0|premise|left|s1",
        "other": r"b|tokens_b|ids_b|second|sent_?b|text_b|token_ids_1|hypothesis|right|s2",
    },
    ("one", "other"),
)
def typed_pair(pair: Called) -> Iterator[Trouble]:
    """The words of the first text have the type 0, those of the second 1, and both stand there in order."""
    made = pair(one=[11, 12, 13], other=[21, 22], max_len=32)
    lists = [part.tolist() if isinstance(part, Tensor) else part for _, part in named_parts(made)]
    lists = [part[0] if part and isinstance(part, list) and isinstance(part[0], list) else part for part in lists]
    ids = next((part for part in lists if isinstance(part, list) and {11, 21} <= set(part)), None)
    if ids is None:
        raise OtherKind("it gives no ids of both texts")
    if [word for word in ids if word in (11, 12, 13, 21, 22)] != [11, 12, 13, 21, 22]:
        yield Trouble(
            f"{pair.name} does not hold the words of both texts in their order.", "11, 12, 13, ..., 21, 22", shown(ids)
        )
        return
    named = [
        (name.lower(), part.tolist() if isinstance(part, Tensor) else part)
        for name, part in named_as_returned(pair, made)
    ]
    types = next((part for name, part in named if re.search(r"type|seg", name)), None)
    if types is None or len(types) != len(ids):
        return
    wrong = [
        word for word, kind in zip(ids, types, strict=True) if word in (11, 12, 13, 21, 22) and kind != int(word > 20)
    ]
    if wrong:
        yield Trouble(
            f"{pair.name}: words have the type of the other text.",
            "0 for the first text, 1 for the second",
            shown(types),
        )
