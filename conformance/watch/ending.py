"""What is worked out when watching ends: which parameters lie in the same memory, and which are equal."""

from __future__ import annotations

import warnings
from collections import defaultdict

import torch

from conformance.watch.probing import probe
from conformance.watch.watcher import Watcher


def finish(watcher: Watcher) -> None:
    """Complete the record. The taps are gone by then."""
    watcher.is_over = True
    _sharing(watcher)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probe(watcher.run, list(watcher.calls.values()))


def _sharing(watcher: Watcher) -> None:
    """Find parameters that share memory."""
    places: dict[int, list[int]] = defaultdict(list)
    for number, parameter in watcher.parameters.items():
        if parameter.numel() > 1:
            places[parameter.data_ptr()].append(number)
    for numbers in places.values():
        for number in numbers:
            others = (n for n in numbers if n != number)
            watcher.run.parameters[number].shares = tuple(
                n for n in others if watcher.parameters[n].shape == watcher.parameters[number].shape
            )


def equal_values(watcher: Watcher) -> None:
    """Find tables and heads whose values are equal and lie in different memory: before the first step."""
    tables = [
        (number, watcher.parameters[number])
        for number, one in watcher.run.parameters.items()
        if one.layer in ("Embedding", "Linear") and len(watcher.parameters[number].shape) == 2
    ]
    with torch.no_grad():
        for place, (number, first) in enumerate(tables):
            for other, second in tables[place + 1 :]:
                layers = {watcher.run.parameters[n].layer for n in (number, other)}
                apart = first.data_ptr() != second.data_ptr()
                if len(layers) == 2 and apart and first.shape == second.shape and torch.equal(first, second):
                    watcher.run.parameters[number].equals += (other,)
