"""torch.utils.data.dataset: what has items, by number or one after the other."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import minigrad
from minigrad.torch._missing import missing as _missing


class Dataset:
    """Base of what has items by number: write `__getitem__` and `__len__`."""

    def __class_getitem__(cls, item: Any) -> type[Dataset]:
        return cls

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__()")

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Base of what gives items one after the other: write `__iter__`."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__()")


class TensorDataset(Dataset):
    """Rows of tensors: item i is (t[i] for t in tensors). Raises ValueError where their first sizes differ."""

    def __init__(self, *tensors: minigrad.Tensor) -> None:
        sizes = [len(t) for t in tensors]
        if len(set(sizes)) > 1:
            raise ValueError(f"TensorDataset: the tensors have different first sizes: {sizes}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[minigrad.Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class ConcatDataset(Dataset):
    """The items of several datasets, one after the other. Raises ValueError for none."""

    def __init__(self, datasets: Any) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: expected at least one dataset")
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"ConcatDataset: item {index} of {len(self)} does not exist")
        part = bisect.bisect_right(self.cumulative_sizes, place)
        return self.datasets[part][place - (self.cumulative_sizes[part - 1] if part else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class Subset(Dataset):
    """The items of `dataset` at `indices`."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[float], generator: Any = None) -> list[Subset]:
    """Disjoint random subsets of these sizes, or of these shares of the whole, which add up to 1.

    Raises ValueError where sizes do not add up to the dataset's.
    """
    total = len(dataset)
    if all(isinstance(n, float) for n in lengths) and abs(sum(lengths) - 1) < 1e-6:
        counts = [int(total * share) for share in lengths]
        for i in range(total - sum(counts)):
            counts[i % len(counts)] += 1
    else:
        counts = [int(n) for n in lengths]
    if sum(counts) != total:
        raise ValueError(f"random_split: {list(lengths)} do not add up to {total} items")
    order = minigrad.randperm(total, generator=generator).tolist()
    ends = np.cumsum(counts)
    return [Subset(dataset, order[end - length : end]) for end, length in zip(ends, counts, strict=True)]


__getattr__ = _missing(__name__, globals())
