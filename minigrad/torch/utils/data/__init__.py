"""torch.utils.data: datasets, samplers, and a DataLoader that works in this process alone."""

from minigrad.torch._missing import missing as _missing
from minigrad.torch.utils.data import dataloader, dataset, sampler
from minigrad.torch.utils.data.dataloader import DataLoader, default_collate
from minigrad.torch.utils.data.dataset import (
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)
from minigrad.torch.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__getattr__ = _missing(__name__, globals())
