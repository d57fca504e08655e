"""What a writer returns, in any of the forms in use: tokens, and of a beam search sentences with what each is worth."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from conformance.protocol import Array, NotProvided


@dataclass(frozen=True)
class Hypothesis:
    """One sentence. tokens: the ids; score: what the search says that it is worth."""

    tokens: list[int]
    score: float


def hypotheses(result: Any) -> list[Hypothesis]:
    """The sentences with their scores, in the order in which they are returned; none where it returns no scores."""
    one = _one(result)
    if one is not None:
        return [one]
    if isinstance(result, Mapping):
        result = tuple(result.values())
    if isinstance(result, list | tuple):
        found = [_one(item) for item in result]
        if found and all(item is not None for item in found):
            return [item for item in found if item is not None]
        rows = next((v for v in map(_rows, result) if v), None)
        scores = next((v for v in map(_scores, result) if v), None)
        if rows and scores and len(rows) == len(scores):
            return [Hypothesis(*pair) for pair in zip(rows, scores, strict=True)]
    return []


def _one(item: Any) -> Hypothesis | None:
    """A sentence and a number in one thing, which has nothing else of these kinds."""
    parts = list(_parts(item))
    tokens = [ids for part in parts if (ids := _ids(part))]
    scores = [value for part in parts if (value := _number(part)) is not None]
    return Hypothesis(tokens[0], scores[0]) if len(tokens) == 1 and len(scores) == 1 else None


def _parts(item: Any) -> Iterator[Any]:
    if isinstance(item, tuple | list):
        yield from item
    elif isinstance(item, Mapping):
        yield from item.values()
    elif is_dataclass(item) and not isinstance(item, type):
        yield from (getattr(item, field.name) for field in fields(item))
    elif hasattr(item, "__dict__") and not isinstance(item, Tensor):
        yield from vars(item).values()


def _ids(part: Any) -> list[int]:
    """The ids of one sentence; none where it is something else."""
    if isinstance(part, Tensor):
        one = part.ndim == 1 or (part.ndim == 2 and len(part) == 1)
        return [int(token) for token in part.reshape(-1)] if one and not part.is_floating_point() else []
    return list(part) if isinstance(part, list | tuple) and part and all(type(token) is int for token in part) else []


def _number(part: Any) -> float | None:
    if isinstance(part, Tensor) and part.numel() == 1 and part.is_floating_point():
        return float(part)
    return part if type(part) is float else None


def _rows(part: Any) -> list[list[int]]:
    """Several sentences: a tensor of them, or a list."""
    if isinstance(part, Tensor) and part.ndim == 2 and not part.is_floating_point():
        return [[int(token) for token in row] for row in part]
    rows = [_ids(row) for row in part] if isinstance(part, list | tuple) else []
    return rows if all(rows) else []


def _scores(part: Any) -> list[float]:
    if isinstance(part, Tensor) and part.ndim == 1 and part.is_floating_point():
        return [float(score) for score in part]
    with suppress(TypeError):
        numbers = [_number(score) for score in part] if not isinstance(part, Tensor) else []
        if numbers and all(number is not None for number in numbers):
            return [number for number in numbers if number is not None]
    return []


def tokens_of(result: Any, rows: int, batch_first: bool) -> Array:
    """(B, N) of int64 of what a writer returns: of several sentences with scores the first. Raises NotProvided when it
    is no tokens."""
    if rows == 1 and (found := hypotheses(result)):
        result, batch_first = found[0].tokens, True
    if isinstance(result, dict):
        result = next((v for k, v in result.items() if re.search(r"id|seq|token|out", k)), None)
    if isinstance(result, tuple):
        result = next((v for v in result if isinstance(v, (Tensor, list))), None)
    if isinstance(result, list) and result and all(isinstance(v, Tensor) for v in result):
        result = torch.stack([v.reshape(-1) for v in result], 1) if result[0].numel() == rows else torch.cat(result, -1)
        batch_first = True
    if isinstance(result, list):
        with suppress(Exception):
            result = torch.tensor(result, dtype=None if result else torch.int64)
    if not isinstance(result, Tensor) or result.is_floating_point() or result.dtype is torch.bool:
        raise NotProvided("what it returns is no tokens")
    if result.ndim == 2 and not batch_first:
        result = result.T
    if result.ndim < 2:
        result = result.reshape(1, -1)
    if result.ndim != 2 or len(result) != rows:
        raise NotProvided("what it returns is not a row of tokens for each prompt")
    return result.to(torch.int64).numpy()
