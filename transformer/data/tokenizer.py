"""Text to token ids and back: bytes, or pairs of bytes merged by frequency (BPE; Sennrich et al. 2016).

Ids 0, 1 and 2 are padding, begin and end; byte b is id 3 + b; merges follow. So every text can be written, and every
model of this package can be given any text.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import minigrad as mg
from minigrad import Tensor

PAD, BEGIN, END = 0, 1, 2
FIRST_BYTE = 3
_PIECES = re.compile(r" ?\w+| ?[^\w\s]+|\s")  # merges stay inside a word with the space before it, or inside signs

Pair = tuple[int, int]


class Tokenizer:
    """Byte-level BPE: the bytes of a text, with `merges` applied in order; without merges, the bytes themselves.

    merges: pairs of ids; the i-th makes the token 259 + i. Raises ValueError for a pair of ids that do not exist yet.
    """

    def __init__(self, merges: Iterable[Pair] = ()) -> None:
        self.merges = [(int(a), int(b)) for a, b in merges]
        self.spelling = {FIRST_BYTE + b: bytes([b]) for b in range(256)}
        self.ranks: dict[Pair, int] = {}
        for new, (a, b) in enumerate(self.merges, FIRST_BYTE + 256):
            if a not in self.spelling or b not in self.spelling:
                raise ValueError(f"merge {new - FIRST_BYTE - 256} joins {a} and {b}, which are not both tokens by then")
            self.spelling[new] = self.spelling[a] + self.spelling[b]
            self.ranks[a, b] = new
        self._known: dict[str, list[int]] = {}

    @property
    def vocab(self) -> int:
        """How many ids there are, the special ones included."""
        return FIRST_BYTE + 256 + len(self.merges)

    @property
    def mask_id(self) -> int:
        """What stands for a hidden token: an id that no text has, behind all others."""
        return self.vocab

    def encode(self, text: str) -> list[int]:
        """The text's ids, without begin and end. Raises ValueError for a text that has no UTF-8 bytes."""
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"the text has no UTF-8 spelling: half a character at place {error.start}") from None
        if not self.merges:
            return [FIRST_BYTE + byte for byte in data]
        ids: list[int] = []
        for piece in _PIECES.findall(text):
            if piece not in self._known:
                self._known[piece] = self._merge([FIRST_BYTE + byte for byte in piece.encode()])
            ids += self._known[piece]
        return ids

    def _merge(self, ids: list[int]) -> list[int]:
        while len(ids) > 1:
            new = min((self.ranks[pair] for pair in itertools.pairwise(ids) if pair in self.ranks), default=None)
            if new is None:
                break
            ids = replace_pair(ids, self.merges[new - FIRST_BYTE - 256], new)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special ids are left out, bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self.spelling.get(int(i), b"") for i in ids).decode(errors="replace")

    def to_json(self) -> str:
        return json.dumps({"merges": self.merges})

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """Raises ValueError for what `to_json` did not write."""
        try:
            return cls(json.loads(text)["merges"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"this is not a tokenizer's JSON, a table with a list of pairs 'merges' ({error})"
            ) from None


def replace_pair(ids: Sequence[int], pair: Pair, new: int) -> list[int]:
    """`ids` with every occurrence of `pair`, from the left, replaced by `new`."""
    result: list[int] = []
    for token in ids:
        if result and (result[-1], token) == pair:
            result[-1] = new
        else:
            result.append(token)
    return result


def train_bpe(texts: Iterable[str], vocab: int) -> Tokenizer:
    """The tokenizer that merges the most frequent pair again and again until it has `vocab` ids.

    A tie goes to the pair of smaller ids; it stops early when no pair occurs twice. Raises ValueError for fewer ids
    than the special ones and the bytes need.
    """
    if vocab < FIRST_BYTE + 256:
        raise ValueError(f"a byte-level vocabulary has at least {FIRST_BYTE + 256} ids, got {vocab}")
    counts = Counter(piece for text in texts for piece in _PIECES.findall(text))
    words = [[FIRST_BYTE + byte for byte in word.encode()] for word in counts]
    weights = list(counts.values())
    pairs: Counter[Pair] = Counter()
    places: defaultdict[Pair, set[int]] = defaultdict(set)  # of the words in which a pair has occurred
    for i, word in enumerate(words):
        for pair in itertools.pairwise(word):
            pairs[pair] += weights[i]
            places[pair].add(i)
    merges: list[Pair] = []
    for new in range(FIRST_BYTE + 256, vocab):
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            break
        merges.append(best)
        for i in places.pop(best):
            for pair in itertools.pairwise(words[i]):
                pairs[pair] -= weights[i]
            words[i] = replace_pair(words[i], best, new)
            for pair in itertools.pairwise(words[i]):
                pairs[pair] += weights[i]
                places[pair].add(i)
        del pairs[best]
    return Tokenizer(merges)


def pad_batch(rows: Sequence[Sequence[int]], left: bool = False, length: int | None = None) -> Tensor:
    """Rows of ids as one int64 tensor ``(B, T)``, padded with PAD on the right or the left to the longest or `length`.

    Raises ValueError for no rows, or a row that is longer than `length`.
    """
    longest = max((len(row) for row in rows), default=-1)
    if longest < 0:
        raise ValueError("a batch needs at least one row")
    length = longest if length is None else length
    if longest > length:
        raise ValueError(f"a row of {longest} tokens does not fit a batch of length {length}")
    fill = [[PAD] * (length - len(row)) for row in rows]
    padded = [[*f, *row] if left else [*row, *f] for row, f in zip(rows, fill, strict=True)]
    return mg.tensor(padded, dtype=mg.int64).reshape(len(rows), length)
