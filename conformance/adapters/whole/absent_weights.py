"""Constructors that load weights which are not here: the module keeps the weights that it starts with.

A checkpoint of the author's lies on the author's disk, and pretrained weights in the network. No claim is about them:
each draws its own. So where a constructor asks for a file of weights that is not there, it gets nothing, and a module
that is told to load nothing stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


class Absent(dict[Any, Any]):
    """What a file of weights that is not there holds: under every name nothing. Anything else that is done with it
    fails as the file would have."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def __missing__(self, key: Any) -> Absent:
        return self

    def get(self, key: Any, default: Any = None) -> Any:
        return self

    def pop(self, key: Any, default: Any = None) -> Any:
        return self

    def state_dict(self) -> Absent:
        return self

    def __call__(self, *given: Any, **words: Any) -> Any:
        raise FileNotFoundError(2, "No such file or directory", self.file)


@contextmanager
def absent_weights() -> Iterator[list[str]]:
    """Meanwhile weights that are not there are nothing; gives the list to which the names of their files are added."""
    load, fetch, fill = torch.load, torch.hub.download_url_to_file, nn.Module.load_state_dict
    absent: list[str] = []

    def loaded(file: Any, *given: Any, **words: Any) -> Any:
        if isinstance(file, (str, os.PathLike)) and not os.path.exists(file):
            absent.append(os.fspath(file))
            return Absent(absent[-1])
        return load(file, *given, **words)

    def fetched(url: str, target: str, *given: Any, **words: Any) -> None:
        try:
            fetch(url, target, *given, **words)
        except OSError:  # torch.load is asked for it next
            return

    def filled(module: nn.Module, state: Any, *given: Any, **words: Any) -> Any:
        if absent and not state:
            return nn.modules.module._IncompatibleKeys([], [])
        return fill(module, state, *given, **words)

    torch.load, torch.hub.download_url_to_file = loaded, fetched
    nn.Module.load_state_dict = filled
    try:
        yield absent
    finally:
        torch.load, torch.hub.download_url_to_file = load, fetch
        nn.Module.load_state_dict = fill
