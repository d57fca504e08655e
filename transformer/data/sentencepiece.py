"""Sentencepiece models (spiece.model, tokenizer.model) as tokenizers of the library `tokenizers`.

The file is a protocol buffer, of which a few fields are read here: pieces, the kind of model, the normalisation
(https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # stands for a space in pieces
UNIGRAM, BPE = 1, 2
_UNKNOWN, _CONTROL, _USER, _BYTE = 2, 3, 4, 6  # types of pieces


def read(path: Path) -> Any:
    """The tokenizer of a file. Raises ValueError for one that is no sentencepiece model of a known kind."""
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    try:
        pieces, kind, fallback, charsmap, prefix, squeeze = _model(path.read_bytes())
    except (ValueError, IndexError, struct.error) as error:
        raise ValueError(f"{path} is not a sentencepiece model ({error})") from None
    unknown = next((i for i, (_, _, form) in enumerate(pieces) if form == _UNKNOWN), None)
    if unknown is None or kind not in (UNIGRAM, BPE):
        raise ValueError(f"{path} is not a sentencepiece model of pieces with an unknown one (unigram or BPE)")
    model: models.Model
    if kind == UNIGRAM:
        model = models.Unigram([(text, score) for text, score, _ in pieces], unknown, fallback)
    else:
        ids = {text: i for i, (text, _, _) in enumerate(pieces)}
        normal = {text: score for text, score, form in pieces if form not in (_UNKNOWN, _CONTROL, _BYTE)}
        model = models.BPE(ids, _merges(normal, ids), unk_token=pieces[unknown][0], fuse_unk=True,
                           byte_fallback=fallback)  # fmt: skip
    found = tokenizers.Tokenizer(model)
    steps: list[Any] = [normalizers.Precompiled(charsmap)] if charsmap else []
    if squeeze:
        steps += [normalizers.Strip(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]
    if prefix and squeeze:
        found.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "first", False)
    elif prefix:  # a space that stands there already does not count
        steps.append(normalizers.Prepend(SPACE))
    found.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    spaces = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    found.decoder = decoders.Sequence([*spaces, decoders.Strip(" ", 1, 0)] if prefix else spaces)
    added = [tokenizers.AddedToken(text, normalized=False, special=form == _CONTROL)
             for text, _, form in pieces if form in (_CONTROL, _USER)]  # fmt: skip
    found.add_tokens([token for token in added if not token.special])
    found.add_special_tokens([token for token in added if token.special])
    return found


def _merges(scores: dict[str, float], ids: dict[str, int]) -> list[tuple[str, str]]:
    """The merges of a BPE whose pieces say only how good they are, best first."""
    found = []
    for text, score in scores.items():
        halves = ((text[:i], text[i:]) for i in range(1, len(text)))
        own = sorted((pair for pair in halves if pair[0] in scores and pair[1] in scores),
                     key=lambda pair: (ids[pair[0]], ids[pair[1]]))  # fmt: skip
        found += [(-score, i, pair) for i, pair in enumerate(own)]
    return [pair for _, _, pair in sorted(found, key=lambda entry: entry[0])]


def _model(data: bytes) -> tuple[list[tuple[str, float, int]], int, bool, bytes, bool, bool]:
    """(pieces with score and type, kind, byte fallback, normalisation, is a space put first, are spaces joined)."""
    pieces, trainer, normaliser = [], {}, {}
    for number, value in _fields(data):
        if number == 1:
            piece = dict(_fields(value))
            score = struct.unpack("<f", piece.get(2, bytes(4)))[0]
            pieces.append((piece[1].decode(), score, piece.get(3, 1)))
        elif number == 2:
            trainer = dict(_fields(value))
        elif number == 3:
            normaliser = dict(_fields(value))
    if not pieces:
        raise ValueError("it has no pieces")
    flags = bool(normaliser.get(3, 1)), bool(normaliser.get(4, 1))
    return pieces, trainer.get(3, UNIGRAM), bool(trainer.get(35, 0)), normaliser.get(2, b""), *flags


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers of variable length as int, all else as bytes."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("a number in it is too long")

    while place < len(data):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
            continue
        size = {1: 8, 5: 4}.get(wire) if wire != 2 else varint()
        if size is None or place + size > len(data):
            raise ValueError(f"its field {number} is broken")
        yield number, data[place : place + size]
        place += size
