"""The kernels' tests run in the simulator, which takes its time: CI runs them in a step of their own."""

from pathlib import Path

import pytest

pytest.importorskip("greenlet", reason="the simulator needs greenlet: pip install greenlet")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)
