"""A device without a GPU for the tests of this folder: kernels run in the simulator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minigrad.kernels.cuda import runtime
from minigrad.kernels.cuda.simulated import SimulatedDriver

pytest.importorskip("greenlet", reason="the simulator needs greenlet: pip install greenlet")


@pytest.fixture
def cuda() -> Iterator[runtime.Runtime]:
    """The runtime of a simulated device; `cuda.driver` is its driver, whose calls are counted."""
    with runtime.use(SimulatedDriver()) as made:
        yield made
