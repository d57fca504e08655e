"""What does more than compute, and is not called: it reads files, asks the network, or writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.adapters.functions.subjects import source_of

_ACTS = (
    "open(",
    "subprocess",
    "urlopen",
    "requests.",
    "load_dataset",
    "torch.save",
    "torch.load",
    "input(",
    "argparse",
    "mkdir(",
    "makedirs(",
    "rmtree(",
    "unlink(",
    "os.remove(",
    "write_text(",
    "SummaryWriter(",
)
"""What a function that does more than compute says; it is not called."""

SAVES = ("torch.save", "mkdir(", "makedirs(")
"""What keeps weights in files, and makes folders for them: whoever runs such code puts stand-ins in their place."""


def acts(code: Callable[..., Any] | type, *but: str) -> bool:
    """Whether a function or class does more than compute, but for some things that it may do."""
    source = source_of(code)
    return any(word in source for word in _ACTS if word not in but)
