"""Settings of the tests of conformance: torch computes on one thread in each process.

The models are small, and threads that wait for each other between small operations take many times as long when the
tests run in parallel. Processes that the suite starts for an implementation are held to one thread, too.

Where a test's model names a GPU that is not there, the processor stands in for it until the test is over. What fails in
a line of the suite is an ERROR here, and is not passed over as it is for users.
"""

import importlib.util
import sys

import pytest

if importlib.util.find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def a_gpu_is_stood_in_for_in_one_test_only():
    yield
    if (absent := sys.modules.get("conformance.adapters.absent_gpu")) is not None:
        absent.end_standing_in()


@pytest.fixture(autouse=True)
def the_suite_itself_must_not_fail(monkeypatch):
    if (runner := sys.modules.get("conformance.runner")) is not None:
        monkeypatch.setattr(runner, "is_of_the_suite", lambda error: False)
