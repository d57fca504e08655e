"""Workers on other machines: an executor of Dask (`dask_executor`), from the extra [scale].

A worker needs this package at the same version, and torch. Dask gives the task of a lost worker to another one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from conformance.grading.submissions import GradingError


@contextmanager
def dask_executor(address: str, workers: int | None = None) -> Iterator[Executor]:
    """An executor on the scheduler at an address such as tcp://host:8786; "local" starts workers on this machine.

    Raises GradingError when Dask is not installed or the scheduler does not answer.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise GradingError("--dask needs Dask: pip install 'minigrad-conformance[scale]'") from error
    with contextlib.ExitStack() as stack:
        try:
            where = address
            if address == "local":
                where = stack.enter_context(LocalCluster(workers, threads_per_worker=1, dashboard_address=None))
            client = stack.enter_context(Client(where, timeout=20, set_as_default=False))
        except (OSError, ValueError) as error:
            raise GradingError(f"--dask {address}: no scheduler of Dask answers there: {error}") from error
        yield client.get_executor(retries=2, pure=False)
