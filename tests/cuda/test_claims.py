"""Every claim of the suite, kept by minigrad on the device: its pinned example, through the simulated kernels.

Hours of simulation on one core, so only `pytest tests/cuda/test_claims.py -m deep` runs it (`-k attention` a part); a
claim whose own sizes take longer than LIMIT is skipped, visibly.
"""

from __future__ import annotations

import signal

import pytest

import conformance.checks  # noqa: F401  (registers them)
from conformance.adapters import resolve
from conformance.check import CHECKS
from conformance.protocol import NotProvided
from conformance.runner import evidence_of
from minigrad.kernels.cuda import runtime
from minigrad.kernels.cuda.simulated import SimulatedDriver

pytest.importorskip("greenlet", reason="the simulator needs greenlet: pip install greenlet")

LIMIT = 300  # seconds


class TooLongError(BaseException):
    """Not an Exception: nothing that is tested may catch it."""


def _stop(*_):
    raise TooLongError


@pytest.fixture
def limited():
    before = signal.signal(signal.SIGALRM, _stop)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.deep
@pytest.mark.parametrize("claim", sorted(CHECKS))
def test_the_claim_is_kept(claim, limited):
    with runtime.use(SimulatedDriver()):
        try:
            evidence, _ = evidence_of(CHECKS[claim], resolve("minigrad:cuda"), examples=0)
        except NotProvided as missing:
            pytest.skip(str(missing))
        except TooLongError:
            pytest.skip(f"more than {LIMIT} s in the simulator")
    assert evidence.ok, f"{evidence.what}: expected {evidence.expected}, got {evidence.got}"
