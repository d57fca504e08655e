"""A model and its words by the folder that they are in, whatever its family."""

from __future__ import annotations

from typing import Any

import numpy as np

from transformer import checkpoints
from transformer.data.published import Words


class AutoModel:
    """`AutoModel.from_pretrained(folder)`: the model that config.json names; see `transformer.checkpoints.load`."""

    @staticmethod
    def from_pretrained(folder: checkpoints.Folder, dtype: np.dtype | None = None, weights: str | None = None) -> Any:
        """The model in `folder`, in evaluation mode; weights "int8" or "bfloat16" take fewer bytes. Raises what
        `transformer.checkpoints.load` does."""
        return checkpoints.load(folder, dtype, weights)


class AutoTokenizer:
    """`AutoTokenizer.from_pretrained(folder)`: its tokenizer; see `transformer.data.published.Words`."""

    @staticmethod
    def from_pretrained(folder: checkpoints.Folder) -> Words:
        """The words of `folder`. Raises ValueError where it has none."""
        return Words(folder)
