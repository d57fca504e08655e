"""Nested tuples, lists and dicts of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigrad.tensor import Tensor


def flatten(value: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The tensors of nested tuples, lists and dicts in order, and how to build the nest again."""
    if isinstance(value, Tensor):
        return [value], lambda flat: flat[0]
    if isinstance(value, tuple | list | dict):
        items = list(value.values()) if isinstance(value, dict) else list(value)
        parts = [flatten(item) for item in items]
        sizes = [len(leaves) for leaves, _ in parts]

        def rebuild(flat: list[Any]) -> Any:
            built, start = [], 0
            for size, (_, build) in zip(sizes, parts, strict=True):
                built.append(build(flat[start : start + size]))
                start += size
            if isinstance(value, dict):
                return dict(zip(value, built, strict=True))
            return type(value)(*built) if hasattr(value, "_fields") else type(value)(built)  # a named tuple has _fields

        return [leaf for leaves, _ in parts for leaf in leaves], rebuild
    return [], lambda flat: value
