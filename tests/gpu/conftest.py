"""Tests that need a CUDA GPU (marker `gpu`); skipped, visibly, where there is none. Run them with `-n0`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = f"{Path(__file__).parent}{os.sep}"


def pytest_collection_modifyitems(items):
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def gpu():
    """The real device's runtime."""
    from minigrad import cuda
    from minigrad.kernels.cuda.runtime import runtime

    if os.environ.get("MINIGRAD_CUDA") == "simulate":
        pytest.skip("needs a GPU: MINIGRAD_CUDA=simulate is set")
    reason = cuda.why_not()
    if reason:
        pytest.skip(f"needs a GPU: {reason}")
    return runtime()
