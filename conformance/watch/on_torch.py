"""PyTorch as a library that is watched: its taps, and what is worked out of it when watching ends."""

from __future__ import annotations

import warnings
from collections import defaultdict
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor

from conformance.watch import data, losses, modules, optimization, preferences, written
from conformance.watch.probing import probe
from conformance.watch.watcher import Watcher


class OnTorch:
    def tap(self, watcher: Watcher) -> None:
        # A script that ends at any moment may end between a switch of gradients and what switches them back.
        watcher.on_close(partial(torch.set_grad_enabled, torch.is_grad_enabled()))
        for part in (modules, losses, written, preferences, optimization, data):
            part.tap(watcher)

    def is_tracing(self) -> bool:
        return torch.compiler.is_compiling()

    def quiet(self) -> AbstractContextManager[Any]:
        stack = ExitStack()
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast("cpu", enabled=False))
        return stack

    def finish(self, watcher: Watcher) -> None:
        _sharing(watcher)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            probe(watcher.run, [call for call in watcher.calls.values() if isinstance(call.module, torch.nn.Module)])


LIBRARY = OnTorch()


def _sharing(watcher: Watcher) -> None:
    """Find parameters that share memory."""
    places: dict[int, list[int]] = defaultdict(list)
    for number, parameter in watcher.parameters.items():
        if isinstance(parameter, Tensor) and parameter.numel() > 1:
            places[parameter.data_ptr()].append(number)
    for numbers in places.values():
        for number in numbers:
            others = (n for n in numbers if n != number)
            watcher.run.parameters[number].shares = tuple(
                n for n in others if watcher.parameters[n].shape == watcher.parameters[number].shape
            )
