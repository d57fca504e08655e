"""torch.utils.data.dataloader: batches of a dataset, made in this process alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import minigrad
from minigrad.torch._missing import missing as _missing
from minigrad.torch.utils.data.dataset import IterableDataset
from minigrad.torch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler


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

    sampler gives the order, batch_sampler whole batches of numbers; batch_size None gives items one by one. num_workers
    and the other options of processes change only speed, so they are taken and ignored. Raises ValueError for options
    that exclude each other.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
    ) -> None:
        self.dataset, self.generator = dataset, generator
        self.iterable = isinstance(dataset, IterableDataset)
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"DataLoader: batch_size must be at least 1, got {batch_size}")
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: give sampler or shuffle, not both")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("DataLoader: batch_sampler excludes batch_size, shuffle, sampler and drop_last")
        if batch_size is None and drop_last:
            raise ValueError("DataLoader: without batches, batch_size=None, there is none to drop: leave out drop_last")
        if self.iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("DataLoader: an IterableDataset has its own order: leave out shuffle and samplers")
        self.batch_size, self.drop_last = (None if batch_sampler is not None else batch_size), drop_last
        if sampler is None and not self.iterable:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self.sampler = sampler
        if batch_sampler is None and batch_size is not None and not self.iterable:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_sampler = batch_sampler
        self.collate_fn = collate_fn or (_one if batch_size is None else default_collate)

    def __iter__(self) -> Iterator[Any]:
        if self.batch_sampler is not None:
            for indices in self.batch_sampler:
                yield self.collate_fn([self.dataset[i] for i in indices])
        elif not self.iterable:
            for index in self.sampler:
                yield self.collate_fn(self.dataset[index])
        elif self.batch_size is None:
            yield from map(self.collate_fn, self.dataset)
        else:
            batch: list[Any] = []
            for item in self.dataset:
                batch.append(item)
                if len(batch) == self.batch_size:
                    yield self.collate_fn(batch)
                    batch = []
            if batch and not self.drop_last:
                yield self.collate_fn(batch)

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        if not self.iterable:
            return len(self.sampler)
        size = self.batch_size or 1
        return len(self.dataset) // size if self.drop_last else -(-len(self.dataset) // size)


def _one(item: Any) -> Any:
    """An item that is no batch: arrays and numbers of numpy become tensors."""
    return minigrad.tensor(item) if isinstance(item, np.ndarray | np.number) else item


__getattr__ = _missing(__name__, globals())
