"""Tokenizers beside a model: what turns texts into ids. A text that is too long has its end, as short ones have.

Whether a tokenizer puts an end sign behind texts is found by running it: the last id of several short texts is the
same, and stands nowhere else in them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import FunctionType
from typing import Any

import numpy as np
from torch import Tensor

from conformance.adapters.helpers.acting import acts
from conformance.adapters.helpers.trial import Found, OtherKind, Trouble, named_parts, seeded, shown
from conformance.adapters.whole.sizes import small
from conformance.places import line_of, short

CLAIM = "long-texts-keep-their-end"
LONGEST = 24
"""What is handed to it as the greatest length."""

_SHORT = ("a cat", "red dog", "my blue sky", "one sun", "old tin box")
"""Texts of different lengths, with different beginnings and ends, that are short enough as letters, too."""
_WORDS = sorted({word for text in _SHORT for word in text.split()})
_LONG = tuple(" ".join(_WORDS[at % len(_WORDS)] for at in range(words)) for words in (60, 83))
_SIGNS = [
    *("<pad>", "<unk>", "<bos>", "<sos>", "<s>", "<eos>", "</s>", "<cls>", "<sep>", "<mask>", "<start>", "<end>"),
    *("[PAD]", "[UNK]", "[BOS]", "[EOS]", "[CLS]", "[SEP]", "[MASK]", "<|startoftext|>", "<|endoftext|>"),
]
_TABLE = {sign: at for at, sign in enumerate([*_SIGNS, *_WORDS, *"abcdefghijklmnopqrstuvwxyz "])}

_TOKENIZER = re.compile(r"tokeni[sz]|vocab|lexicon|codec|bpe|words?|chars?|bytes?", re.IGNORECASE)
_ENCODES = re.compile(
    r"__call__|(batch_)?(encode|tokeni[sz]e|numericali[sz]e)(_(batch|texts?|sentences?|captions?|many|all|plus))?|"
    r"(texts?|sentences?|captions?)_?to_?(ids|tokens|indices|rows|tensor)"
)
_TEXT = re.compile(r"(text|sentence|caption|string|prompt|line|query|s)(?!s)|raw(_text)?|txt")
_TEXTS = re.compile(r"(batch_?(of_)?)?(texts|sentences|captions|strings|prompts|lines|queries)")
_LONGEST = re.compile(
    r"(max|context|ctx|seq|text)_?((seq|text|context|sequence|token|word)_?)?(len(gth)?|size|tokens|words|ids)|"
    r"context|ctx|n_ctx|block_size|maxlen|max_?length|length"
)
_ASKED = re.compile(r"(add|use|with|append|put)_?(special(_tokens)?|eos|eot|end|sep|bos|sos)(_?token)?|trunc\w*")
_LEXICONS = re.compile(
    r"(vocab(ulary)?|words|tokens|lexicon|stoi|itos|(word|token|char)s?_?(to|2)_?(id|idx|ix|index)s?)"
)
_CORPORA = re.compile(r"(train_?)?(texts|sentences|corpus|captions|docs|documents|lines|data|text)")
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

Rows = Callable[[str], list[int]]


def is_tokenizer(one: Any) -> bool:
    """Whether a class or function turns texts into something, by its names, and is told a greatest length."""
    with suppress(ValueError, TypeError):
        if isinstance(one, type):
            told = [*inspect.signature(one).parameters] if one.__bases__ == (object,) else []
            methods = list(_methods(one)) if told and _TOKENIZER.search(one.__name__) else []
            told += [name for method in methods for name in inspect.signature(method).parameters]
            return bool(methods) and any(map(_LONGEST.fullmatch, map(str.lower, told))) and not acts(one)
        if isinstance(one, FunctionType) and _ENCODES.fullmatch(one.__name__.lower()) and _first(one) is not None:
            return any(_LONGEST.fullmatch(name.lower()) for name in inspect.signature(one).parameters) and not acts(one)
    return False


def _methods(cls: type) -> Iterator[FunctionType]:
    """The methods that turn texts into something; that which takes one text first."""
    own = [one for name, one in vars(cls).items() if isinstance(one, FunctionType) and _ENCODES.fullmatch(name)]
    yield from sorted(filter(_first, own), key=lambda one: bool(_TEXTS.fullmatch(_first(one) or "")))


def _first(function: FunctionType) -> str | None:
    """The name of the first parameter, where it is that of texts."""
    names = [name for name in inspect.signature(function).parameters if name != "self"][:1]
    return next((name for name in names if _TEXT.fullmatch(name.lower()) or _TEXTS.fullmatch(name.lower())), None)


def ended(tokenizers: Sequence[Any], kind: str | None) -> Iterator[Found]:
    """What the claim says of tokenizers: nothing of those that cannot be made, or put nothing behind texts.

    kind: of the model beside them, "" where it is open. A language model may read a piece of a text that goes on: then
    it is a note."""
    for one in tokenizers:
        for rows, function in _encoders(one):
            with suppress(Exception):
                with seeded():
                    trouble = _ends(one.__name__, rows, certain=kind not in ("language_model", ""))
                place = _line(function) if trouble else ""
                yield Found(CLAIM, one.__name__, trouble, place, _MEND if trouble else "")
                break


_MEND = "cut the words before the end sign is put behind them"


def _ends(name: str, rows: Rows, certain: bool) -> Trouble | None:
    """Raises OtherKind where short texts have no end, or long ones are not cut."""
    texts = [_without_padding(rows(text)) for text in _SHORT]
    ends = {text[-1] for text in texts if len(text) > 1}
    if len(ends) != 1 or any(text.count(*ends) != 1 for text in texts) or len({*map(tuple, texts)}) < len(texts):
        raise OtherKind("short texts have no common end")
    (end,) = ends
    long, longer = (_without_padding(rows(text)) for text in _LONG)
    if len(long) != len(longer) or not max(map(len, texts)) < len(long) < len(_LONG[0].split()):
        raise OtherKind("it cuts no text")
    if end == long[-1] == longer[-1]:
        return None
    if end in long or end in longer:
        raise OtherKind("the end stands elsewhere")
    return Trouble(
        f"{name}: a long text loses its end. Each short text ends with the id {end}, and one that is cut does not.",
        f"{end} in the last place",
        f"... {shown(long[-4:])}; a short text is {shown(texts[0])}",
        certain=certain,
    )


def _without_padding(text: list[int]) -> list[int]:
    """Without what stands more than once at its end, or at its beginning."""
    for _ in range(2):
        same = next((at for at, one in enumerate(reversed(text)) if one != text[-1]), 0)
        text = (text[: len(text) - same] if same > 1 else text)[::-1]
    return text


def _encoders(one: Any) -> Iterator[tuple[Rows, Any]]:
    """Ways in which it turns a text into a row of ids, each with the function."""
    if not isinstance(one, type):
        for choice in range(2):
            yield _rows_of(one, one, choice), one
        return
    for choice in range(2):
        for method in _methods(one):
            for learns in (False, True):
                with suppress(Exception):
                    made = one(**_given(one, choice))
                    if learns:
                        _learn(made)
                    yield _rows_of(getattr(made, method.__name__), method, choice), method


def _learn(made: Any) -> None:
    """Let it see texts first. Raises AttributeError where it has no such method."""
    names = ("fit", "build_vocab", "build", "fit_on_texts", "train")
    next(getattr(made, name) for name in names if hasattr(made, name))([*_SHORT, *_LONG])


def _rows_of(call: Callable[..., Any], function: FunctionType, choice: int) -> Rows:
    first = _first(function) or ""
    many = _TEXTS.fullmatch(first.lower()) is not None

    def rows(text: str) -> list[int]:
        return _ids(call([text] if many else text, **_given(function, choice, first)))

    return rows


def _ids(made: Any) -> list[int]:
    """One row of ids: that of ids in a dict, or the first part of a tuple. Raises OtherKind."""
    if not isinstance(made, (Tensor, np.ndarray, list)):
        named = named_parts(made)
        made = next((part for name, part in named if re.fullmatch(r"(input_)?(ids|tokens)", name)), named[0][1])
    made = made.tolist() if isinstance(made, (Tensor, np.ndarray)) else made
    if isinstance(made, list) and len(made) == 1 and isinstance(made[0], (list, Tensor, np.ndarray)):
        return _ids(made[0])
    if not isinstance(made, list) or not made or not all(type(one) is int for one in made):
        raise OtherKind("it gives no row of ids")
    return made


def _given(code: Any, choice: int, *but: str) -> dict[str, Any]:
    """What a class or function is handed by the names of its parameters. choice: of two forms of what it knows of
    words. Raises Unknown where a name means nothing."""
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(code).parameters.items():
        lower, required = name.lower().strip("_"), parameter.default is parameter.empty
        if name in ("self", *but) or parameter.kind in _MANY:
            continue
        if _LONGEST.fullmatch(lower):
            given[name] = LONGEST
        elif _ASKED.fullmatch(lower):
            given |= {name: True} if required or parameter.default is False else {}
        elif required and _LEXICONS.fullmatch(lower):
            given[name] = dict(_TABLE) if choice == ("words" in lower or "tokens" in lower) else [*_TABLE]
        elif required and _CORPORA.fullmatch(lower):
            texts = [*_SHORT, *_LONG]
            given[name] = " ".join(texts) if choice != (lower in ("text", "corpus")) else texts
        elif required:
            given[name] = small(name, parameter.annotation)
    return given


def _line(function: Any) -> str:
    """The line that cuts, by its text."""
    with suppress(OSError, TypeError):
        lines, start = inspect.getsourcelines(function)
        cuts = [at for at, line in enumerate(lines) if re.search(r"\[[^\[\]]*:[^\[\]]*\]", line.partition("#")[0])]
        cuts = [at for at in cuts if re.search(r"max|context|len|ctx|block|size|length|trunc", lines[at])] or cuts
        if cuts:
            return f"{short(inspect.getsourcefile(function) or '')}:{start + cuts[0]}"
    return line_of(function)
