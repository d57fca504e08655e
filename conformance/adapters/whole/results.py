"""What forward gives, taken apart by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def named_tensors(result: Any) -> list[tuple[str, Tensor]]:
    """The tensors of a result, by their names or numbers; of lists inside it none."""
    if isinstance(result, Mapping):
        items = list(result.items())
    elif hasattr(result, "_asdict"):
        items = list(result._asdict().items())
    elif isinstance(result, list | tuple):
        items = list(enumerate(result))
    else:
        items = list(getattr(result, "__dict__", {}).items())
    return [(str(name), value) for name, value in items if isinstance(value, Tensor)]
