"""What a step begins from, as fingerprints: of a run, and of the same run gone on with from its checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim.optimizer import Optimizer

from conformance.watch.events import Forward
from conformance.watch.record import Moment

if TYPE_CHECKING:
    from conformance.watch.watcher import Watcher


def moment(watcher: Watcher, optimizer: Optimizer, rates: tuple[float, ...]) -> Moment:
    """What an optimizer is about to step from. Equal fingerprints mean equal bits."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    last = next((e for e in reversed(watcher.run.events) if isinstance(e, Forward) and e.gradients), None)
    return {
        "model": _fingerprint(parameters),
        "optimizer": _fingerprint(_values([optimizer.state.get(p, {}) for p in parameters])),
        "schedule": repr(rates),
        "scaler": repr(watcher.scale),
        "random state": last.state if last is not None else "",
        "position in the data": repr(last.samples) if last is not None else "",
    }


def _values(value: Any) -> Iterator[Any]:
    """The tensors and numbers in a state, in order."""
    if isinstance(value, dict):
        for name in sorted(value, key=str):
            yield from _values(value[name])
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _values(item)
    elif isinstance(value, (Tensor, int, float)):
        yield value


def _fingerprint(values: Any) -> str:
    found = hashlib.sha256()
    for value in values:
        if isinstance(value, Tensor):
            found.update(str((value.dtype, tuple(value.shape))).encode())
            found.update(bytes(value.detach().cpu().contiguous().reshape(-1).untyped_storage()))
        else:
            found.update(repr(value).encode())
    return found.hexdigest()
