"""torch.utils.data.sampler: the order in which a loader takes items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import minigrad
from minigrad.torch._missing import missing as _missing

_AT_ONCE = 32  # numbers drawn with replacement


class Sampler:
    """Base of what gives the numbers of items: write `__iter__`."""

    def __init__(self, data_source: Any = None) -> None:
        """Nothing to prepare; there so that samplers may call super().__init__()."""

    def __class_getitem__(cls, item: Any) -> type[Sampler]:
        return cls

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__()")


class SequentialSampler(Sampler):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """All numbers in a random order; with replacement `num_samples` drawn ones."""

    def __init__(
        self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: Any = None
    ) -> None:
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self.num_samples = len(data_source) if num_samples is None else num_samples

    def __iter__(self) -> Iterator[int]:
        count = len(self.data_source)
        if self.replacement:
            for start in range(0, self.num_samples, _AT_ONCE):  # a program may ask for more than it ever takes
                size = min(_AT_ONCE, self.num_samples - start)
                yield from minigrad.randint(0, count, (size,), generator=self.generator).tolist()
            return
        left = self.num_samples
        while left > 0:
            order = minigrad.randperm(count, generator=self.generator).tolist()[:left]
            yield from order
            left -= max(len(order), 1)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The given numbers in a random order."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for i in minigrad.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """`num_samples` numbers drawn with these weights."""

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True, generator: Any = None) -> None:
        self.weights = minigrad.as_tensor(weights, dtype=minigrad.float64)
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        drawn = minigrad.multinomial(self.weights, self.num_samples, self.replacement, self.generator)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of `batch_size` numbers of a sampler; the last may be shorter, or is left out if `drop_last`."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        if batch_size < 1:
            raise ValueError(f"BatchSampler: batch_size must be at least 1, got {batch_size}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


__getattr__ = _missing(__name__, globals())
