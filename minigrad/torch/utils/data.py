"""torch.utils.data: Dataset, TensorDataset, Subset, and a DataLoader that works in this process alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import minigrad
from minigrad.torch._missing import missing as _missing
from minigrad.torch._missing import refuse


class Dataset:
    """Base of what has items by number: write `__getitem__` and `__len__`."""

    def __class_getitem__(cls, item: Any) -> type[Dataset]:
        return cls

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__()")


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


class Subset(Dataset):
    """The items of `dataset` at `indices`."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[int], generator: Any = None) -> list[Subset]:
    """Disjoint random subsets of these sizes. Raises ValueError where they do not add up to the dataset's size."""
    if sum(lengths) != len(dataset):
        raise ValueError(f"random_split: {list(lengths)} do not add up to {len(dataset)} items")
    order = minigrad.randperm(len(dataset), generator=generator).tolist()
    ends = np.cumsum(lengths)
    return [Subset(dataset, order[end - length : end]) for end, length in zip(ends, lengths, strict=True)]


def default_collate(batch: Sequence[Any]) -> Any:
    """Items as one: tensors, arrays and numbers stacked; tuples, lists and mappings field by field; strings a list."""
    first = batch[0]
    if isinstance(first, minigrad.Tensor):
        return minigrad.stack(list(batch))
    if isinstance(first, np.ndarray | np.number):
        return minigrad.tensor(np.stack(batch))
    if isinstance(first, int | float):
        return minigrad.tensor(list(batch), dtype=minigrad.float64 if isinstance(first, float) else None)
    if isinstance(first, str):
        return list(batch)
    if isinstance(first, Mapping):
        return {name: default_collate([item[name] for item in batch]) for name in first}
    if isinstance(first, tuple | list):
        return [default_collate(field) for field in zip(*batch, strict=True)]
    raise TypeError(f"default_collate: cannot put items of type {type(first).__name__} into one batch")


class DataLoader:
    """Batches of a dataset, in order or shuffled anew in every round; collate_fn makes a batch of a list of items.

    num_workers, pin_memory and persistent_workers change only speed, so they are taken and ignored.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        *,
        generator: Any = None,
        persistent_workers: bool = False,
    ) -> None:
        refuse("DataLoader", ("sampler", sampler, None), ("batch_sampler", batch_sampler, None))
        if batch_size < 1:
            raise ValueError(f"DataLoader: batch_size must be at least 1, got {batch_size}")
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.collate_fn = collate_fn or default_collate
        self.generator = generator

    def __iter__(self) -> Iterator[Any]:
        count = len(self.dataset)
        order = minigrad.randperm(count, generator=self.generator).tolist() if self.shuffle else range(count)
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            yield self.collate_fn([self.dataset[i] for i in order[start : start + self.batch_size]])

    def __len__(self) -> int:
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


__getattr__ = _missing(__name__, globals())
