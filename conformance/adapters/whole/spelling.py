"""A tokenizer of the suite's own, for what writes behind a text: it is handed in where a vocabulary is asked for.

Token 7 is the word `w7`, or in letters the eighth of a block of letters, so that texts and tokens are the same thing
in both directions. It answers to what is read of tokenizers, of vocabularies and of tables of words in use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

_FIRST_LETTER = 0x4E00
"""Letters from here on are one character each, have no upper case, and are no space."""
_HANDED = re.compile(
    r"((src|tgt|trg|source|target|en|de|fr|text|char|sub)_?)?(tok|tokeni[sz]e[rd]?|vocab(ulary)?|codec|sp|spm|bpe|stoi|itos"
    r"|(word|char|token|tok|c|w|ch)s?_?(2|to)_?(i|id|ids|idx|ix|index)|(i|id|idx|ix|index)_?(2|to)_?(word|char|token|c|w)s?"
    r"|encode|decode|lang(uage)?|itow|wtoi)(_?(src|tgt|trg|source|target))?",
    re.IGNORECASE,
)
TEXT = re.compile(
    r"(input_|src_|source_|start_|seed_|initial_)?(text|prompt|sentence|string|phrase|question|context|src|source|seed|query|start|prefix"
    r"|input)(_?(text|str|string|sentence))?",
    re.IGNORECASE,
)
"""Names of the parameter that a text is handed in by."""
_SIGNS = (
    ("end", re.compile(r"eos|end|eot|stop|</s>|<\|endoftext\|>|\[sep\]|sep", re.IGNORECASE)),
    ("start", re.compile(r"bos|sos|start|begin|<s>|\[cls\]|cls", re.IGNORECASE)),
    ("pad", re.compile(r"pad", re.IGNORECASE)),
    ("unknown", re.compile(r"unk", re.IGNORECASE)),
)


def is_handed(name: str) -> bool:
    """Whether a parameter's name asks for a tokenizer, a vocabulary, or one of their two functions."""
    return _HANDED.fullmatch(name) is not None


class TornApart(KeyError):
    """A text was cut elsewhere than its tokens end: it has to be spelt in the other way."""


class Encoded(dict[str, Any]):
    """What a tokenizer makes of a text, by names: as a mapping, and as attributes."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)

    def to(self, device: Any) -> Encoded:
        return self


class _Ids(list[int]):
    """Token ids. ids: themselves, as tokenizers of the `tokenizers` library give them."""

    @property
    def ids(self) -> list[int]:
        return list(self)


class Spelling:
    """words: how many tokens there are. in_letters: a token is a letter, else a word with a space behind it. end,
    start, pad: the ids of these signs."""

    def __init__(self, words: int, in_letters: bool, end: int = -1, start: int = 1, pad: int = 0) -> None:
        self.words, self.in_letters = words, in_letters
        self.signs = {"end": end, "start": start, "pad": pad, "unknown": 0}

    # --- texts and tokens -------------------------------------------------------------------------

    def text(self, tokens: Iterable[int]) -> str:
        spelt = (chr(_FIRST_LETTER + int(one)) if self.in_letters else f"w{int(one)}" for one in tokens)
        return ("" if self.in_letters else " ").join(spelt)

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text, or of one that stands in other words, such as a line that is printed."""
        if self.in_letters:
            return [ord(one) - _FIRST_LETTER for one in text if 0 <= ord(one) - _FIRST_LETTER < self.words]
        return [int(one) for one in re.findall(r"\bw(\d+)\b", text)]

    def as_handed(self, name: str) -> Any:
        """What a parameter of this name gets: one of the two functions, or the tokenizer."""
        lower = name.lower()
        return self.encode if lower == "encode" else self.decode if lower == "decode" else self

    # --- as a tokenizer ---------------------------------------------------------------------------

    def encode(self, text: str | Iterable[str], *_: Any, return_tensors: str | None = None, **__: Any) -> Any:
        ids = _Ids(self.tokens(text if isinstance(text, str) else " ".join(text)))
        return torch.tensor([ids]) if return_tensors else ids

    def decode(self, ids: Any, *_: Any, **__: Any) -> str:
        found = ids.reshape(-1).tolist() if isinstance(ids, Tensor) else [ids] if isinstance(ids, int) else list(ids)
        return self.text(int(one) for one in found if int(one) not in (self.signs["end"], -1))

    def batch_decode(self, rows: Any, *_: Any, **__: Any) -> list[str]:
        return [self.decode(row) for row in rows]

    def tokenize(self, text: str, *_: Any, **__: Any) -> list[str]:
        return list(text) if self.in_letters else text.split()

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        return self[tokens] if isinstance(tokens, str) else [self[one] for one in tokens]

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        return self[ids] if isinstance(ids, int) else [self[int(one)] for one in ids]

    token_to_id = piece_to_id = PieceToId = convert_tokens_to_ids
    id_to_token = id_to_piece = IdToPiece = convert_ids_to_tokens
    lookup_tokens = convert_ids_to_tokens
    encode_as_ids = EncodeAsIds = numericalize = encode
    decode_ids = DecodeIds = decode

    def __call__(self, text: Any, *_: Any, return_tensors: str | None = None, **__: Any) -> Any:
        if isinstance(text, list) and text and all(isinstance(one, str) for one in text) and return_tensors is None:
            return [self[one] for one in text]  # a vocabulary of torchtext
        ids = self.tokens(text if isinstance(text, str) else " ".join(text))
        real = [1] * len(ids)
        if return_tensors:
            return Encoded(input_ids=torch.tensor([ids]), attention_mask=torch.tensor([real]))
        return Encoded(input_ids=ids, attention_mask=real)

    # --- as a vocabulary, and as a table ----------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self.text([int(key)])
        known = self.tokens(key)
        if len(known) == 1 and self.text(known) == key:
            return known[0]
        if re.fullmatch(r"[w\d ]+", key) or known:
            raise TornApart(f"{key!r} is a piece of a word, or several words, and no token")
        for meaning, names in _SIGNS:
            if names.search(key):
                return self.signs[meaning]
        raise KeyError(key)

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except TornApart:
            raise
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        return self.words

    def __iter__(self) -> Iterator[str]:
        return (self.text([one]) for one in range(self.words))

    def items(self) -> list[tuple[str, int]]:
        return [(self.text([one]), one) for one in range(self.words)]

    def get_vocab(self) -> dict[str, int]:
        return dict(self.items())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if re.fullmatch(r"vocab_size|n_vocab|size|n_words|n_tokens|num_tokens", name):
            return self.words
        if re.fullmatch(r"stoi|itos|vocab|word2i(d|dx|ndex)|i(d|dx|ndex)2word|token2i\w+|i\w+2token|w2i|i2w", name):
            return self
        if re.search(r"token$", name):  # the word of a sign, and not its number
            return name
        for meaning, names in _SIGNS:
            if names.match(name):
                return self.signs[meaning]
        raise AttributeError(f"the tokenizer that the suite hands in has no {name}")
