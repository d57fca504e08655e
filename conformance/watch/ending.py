"""The end of watching, and what is looked at once before the first step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.watch.watcher import Watcher


def finish(watcher: Watcher) -> None:
    """Complete the record. The taps are blind by then."""
    watcher.is_over = True
    for action in watcher.endings:
        action()
    for library in watcher.libraries:
        library.finish(watcher)


def equal_values(watcher: Watcher, are_equal: Callable[[Any, Any], bool]) -> None:
    """Find tables and heads whose values are equal and lie in different memory: before the first step."""
    tables = [
        (number, watcher.parameters[number])
        for number, one in watcher.run.parameters.items()
        if one.layer in ("Embedding", "Linear") and len(watcher.parameters[number].shape) == 2
    ]
    for place, (number, first) in enumerate(tables):
        for other, second in tables[place + 1 :]:
            layers = {watcher.run.parameters[n].layer for n in (number, other)}
            if len(layers) == 2 and tuple(first.shape) == tuple(second.shape) and are_equal(first, second):
                watcher.run.parameters[number].equals += (other,)
