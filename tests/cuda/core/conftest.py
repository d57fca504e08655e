"""A device without a GPU for the tests of this folder: kernels run in the simulator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minigrad.device import CUDA
from minigrad.kernels.cuda import runtime
from minigrad.kernels.cuda.simulated import SimulatedDriver
from minigrad.random import default_generator

pytest.importorskip("greenlet", reason="the simulator needs greenlet: pip install greenlet")


@pytest.fixture
def cuda() -> Iterator[runtime.Runtime]:
    """The runtime of a simulated device; `cuda.driver` is its driver, whose calls are counted."""
    with runtime.use(SimulatedDriver()) as made:
        yield made
        default_generator.move("cpu")  # later tests draw without this device
        default_generator._homes.pop(CUDA, None)
