"""Weights by which a loader draws its samples, beside the classes of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset, WeightedRandomSampler

from conformance.watch.details import Drawn

FEWEST = 20


def drawn(sampler: Any, dataset: Any, place: str) -> Drawn | None:
    """How a loader draws; None where it does not draw by weights, or the classes of its samples are unknown."""
    labels = _labels(dataset) if isinstance(sampler, WeightedRandomSampler) else None
    if labels is None or len(labels) != len(sampler.weights) or len(labels) < FEWEST:
        return None
    weights = sampler.weights.double()
    classes = labels.unique()
    if len(classes) < 2 or len(weights.unique()) < 2:
        return None
    own = [weights[labels == one] for one in classes]
    is_mixed = len(weights.unique()) <= len(classes) and any(len(one.unique()) > 1 for one in own)
    counts = torch.tensor([float(len(one)) for one in own])
    means = torch.stack([one.mean() for one in own])
    least, most = int(counts.argmin()), int(counts.argmax())
    grows = not is_mixed and counts[most] >= 1.5 * counts[least] and means[most] > 1.1 * means[least]
    return Drawn(place, is_mixed, bool(grows))


def _labels(dataset: Any) -> Tensor | None:
    """The class of each sample; None where a data set does not hold it in a tensor or a list."""
    if isinstance(dataset, Subset):
        whole = _labels(dataset.dataset)
        return None if whole is None else whole[torch.as_tensor(list(dataset.indices))]
    if isinstance(dataset, TensorDataset):
        found = [one for one in map(_whole, dataset.tensors) if one is not None]
        return found[0] if len(found) == 1 else None
    held = {"rows": dataset} if type(dataset) is list else getattr(dataset, "__dict__", {})
    named = [held[name] for name in ("labels", "targets", "y", "ys", "classes") if name in held]
    pairs = [one for one in held.values() if type(one) is list and one and type(one[0]) in (tuple, list)]
    named += [[row[-1] for row in rows] for rows in pairs]
    found = [one for one in map(_whole, named) if one is not None and len(one) == _size(dataset)]
    return found[0] if len(found) == 1 else None


def _whole(value: Any) -> Tensor | None:
    """A row of whole numbers, as a tensor."""
    if isinstance(value, Tensor):
        return value if value.dim() == 1 and not value.is_floating_point() else None
    is_row = isinstance(value, Sequence) and bool(value) and all(type(one) is int for one in value)
    return torch.tensor(value) if is_row else None


def _size(dataset: Any) -> int:
    return len(dataset) if hasattr(dataset, "__len__") else -1
