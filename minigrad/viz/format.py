"""How shapes, sizes and names are written in listings and pictures."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np

from minigrad import dtypes

SHORT = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "bool",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "uint32": "u32", "uint64": "u64",
}  # fmt: skip
LONG = {short: name for name, short in SHORT.items()}


def meta(shape: tuple[int, ...], dtype: Any) -> str:
    """f32[2, 3]"""
    name = str(dtype) if not isinstance(dtype, np.dtype) else dtypes.name(dtype)
    return f"{SHORT.get(name, name)}{list(shape)}"


def attribute(value: Any) -> str:
    """An attribute as it is written in a program; numbers briefly."""
    if isinstance(value, np.dtype):
        return SHORT.get(dtypes.name(value), dtypes.name(value))
    return repr(value.item() if isinstance(value, np.generic) else value)


def short(value: Any) -> str:
    """An attribute or literal as a picture shows it: floats with 4 digits, slices as in Python."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple) and value and value[0] == "slice" and len(value) == 4:
        return ":".join("" if part is None else str(part) for part in (value[1:3] if value[3] is None else value[1:]))
    if isinstance(value, tuple | list):
        return "(" + ", ".join(short(part) for part in value) + ("," if len(value) == 1 else "") + ")"
    return attribute(value)


def quantity(number: float, unit: str = "") -> str:
    """1,234 as "1.23 k": three digits and a decimal prefix."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}".rstrip()


def clean(text: str) -> str:
    """`text` on one line without characters that are invisible or change the direction of writing."""
    kept = (" " if c in "\n\r\t\u2028\u2029" else c for c in text)
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn") else c
                   for c in kept)  # fmt: skip


def cut(text: str, limit: int = 40) -> str:
    """`text` cleaned, and shortened in the middle to `limit` characters: its beginning and end tell most."""
    text = clean(text)
    if len(text) <= limit:
        return text
    tail = limit // 3
    return text[: limit - tail - 1] + "…" + text[-tail:]


def ended(text: str, limit: int) -> str:
    """`text` cleaned, and its end cut off after `limit` characters."""
    text = clean(text)
    return text if len(text) <= limit else text[: limit - 1].rstrip(", ") + "…"
