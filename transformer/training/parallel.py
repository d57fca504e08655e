"""Training by several processes: each takes its rows of every batch, and gradients are added up over all of them.

Every process holds the whole model and makes the same update of it (data parallelism). They talk by MPI, through
mpi4py, an extra. Gradients travel in buckets: while the backward pass is still busy with early layers, those of the
late ones are on their way (Li et al. 2020, PyTorch Distributed, section 3.2).
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import Tensor
from minigrad.autograd import fit
from minigrad.node import Edge, Node, ancestors
from minigrad.random import default_generator
from minigrad.state import state
from minigrad.tensor import edge_of

BUCKET = 25 * 2**20
"""Bytes of a bucket: large enough that a network is busy with bytes and not with waiting."""

_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")  # in which an mpiexec says how many processes it has started
WORDS = "TRANSFORMER_LAST_WORDS"
"""The variable of the environment that names the file for them: what is printed just before all are ended may be lost
on its way through mpiexec."""
_GRACE = 3.0  # seconds by which the first process is ahead in saying what is wrong with all


class Team:
    """The processes that train one model together. mpi: the module `mpi4py.MPI`. This one is `rank` of `size`."""

    def __init__(self, mpi: Any) -> None:
        self.mpi, self.comm = mpi, mpi.COMM_WORLD
        self.rank, self.size = int(self.comm.rank), int(self.comm.size)

    @property
    def first(self) -> bool:
        """Is this the process that evaluates, writes and speaks?"""
        return self.rank == 0

    def rows(self, count: int) -> slice:
        """This process's share of `count` rows. Raises ValueError for fewer rows than processes."""
        if count < self.size:
            raise ValueError(
                f"a batch of {count} rows cannot be shared by {self.size} processes: make batch_size larger, or start "
                "fewer of them"
            )
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def told(self, ask: Callable[[], Any]) -> Any:
        """What `ask` returns in the first process, which alone calls it."""
        return self.comm.bcast(ask() if self.first else None)

    def total(self, value: Tensor) -> Tensor:
        """A scalar added up over all processes."""
        return mg.tensor(self.comm.allreduce(value.item()), dtype=value.dtype)

    def draw_apart(self) -> None:
        """Give each process random numbers (of dropout) of its own; the first keeps its, which checkpoints hold."""
        seed, offset = self.told(lambda: default_generator.get_state().tolist())
        with mg.no_grad():
            default_generator.set_state(mg.tensor([seed ^ self.rank << 40, offset], dtype=mg.int64))

    def check_equal(self, weights: Mapping[str, Tensor]) -> None:
        """Raise ValueError unless all processes have the same weights, to the bit."""
        found = self.comm.allgather([zlib.crc32(tensor.numpy().tobytes()) for tensor in weights.values()])
        others = [rank for rank, sums in enumerate(found) if sums != found[0]]
        if others:
            raise ValueError(
                f"process {others[0]} has come to other weights than process 0: run the same versions of everything on "
                "all machines, and continue from the last checkpoint"
            )


_team: list[Team] = []  # that this process has joined


def join() -> Team | None:
    """The team into which mpiexec has started this process; None for a process by itself.

    Raises ValueError where several were started and mpi4py is missing.
    """
    if not _team and any(os.environ.get(name, "1") != "1" for name in _SIZES):
        try:
            _team.append(Team(importlib.import_module("mpi4py.MPI")))
        except ImportError as error:
            raise ValueError(
                f"mpiexec has started several processes, which cannot talk to each other ({error}): install mpi4py, "
                "pip install 'minigrad-conformance[mpi]'"
            ) from None
    return _team[0] if _team else None


def joined() -> bool:
    """Has this process joined a team?"""
    return bool(_team)


def end_all(code: int, words: str) -> None:
    """Say why this process ends, and end its team with it (a process by itself returns from here).

    What goes wrong in all processes is said once: the first speaks at once and ends the others before they do.
    """
    if _team and not _team[0].first:
        time.sleep(_GRACE)
    if words and WORDS in os.environ:
        Path(os.environ[WORDS]).write_text(words, encoding="utf-8")
    elif words:
        print(words, file=sys.stderr, flush=True)
    if _team:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # MPI has words of its own for what was said
        _team[0].comm.Abort(code)


class Bucket:
    """Gradients of some parameters of one dtype in one array; behind them, for each, how many processes have one."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = parameters
        sizes = [parameter.numel() for parameter in parameters]
        self.array = np.zeros(sum(sizes) + len(sizes), parameters[0].dtype)
        *parts, self.found = np.split(self.array, np.cumsum(sizes))
        self.gradients = [mg.from_numpy(p.reshape(x.shape)) for p, x in zip(parts, parameters, strict=True)]
        self.open = 0  # parameters whose gradients are not final

    def add(self, index: int, gradient: np.ndarray) -> None:
        """Add to the gradient of a parameter."""
        self.gradients[index].array[...] += gradient
        self.found[index] = 1


def _buckets(parameters: Sequence[Tensor], size: int) -> list[Bucket]:
    """The parameters in buckets of about `size` bytes, the last ones first: theirs are the first gradients."""
    groups: list[list[Tensor]] = []
    room = 0
    for parameter in reversed(parameters):
        if not groups or room <= 0 or groups[-1][0].dtype != parameter.dtype:
            groups.append([])
            room = size
        groups[-1].append(parameter)
        room -= parameter.numel() * parameter.dtype.itemsize
    return [Bucket(group) for group in groups]


class Reduction:
    """Adds up the gradients of `parameters` over a team while the backward pass goes on.

    During the block of `running` it sees every step of backward passes, as `state.backward_watch`. A parameter's
    gradient is final when all ops that read the parameter have been passed; a bucket leaves when all of its are, and
    all buckets before it have left, so that the processes agree on the order. `sent` counts the bytes that were handed
    over, `early` the buckets that left before the last pass had ended.
    """

    def __init__(self, team: Team, parameters: Sequence[Tensor], size: int = BUCKET) -> None:
        self.team, self.buckets = team, _buckets(parameters, size)
        self.sent = self.early = 0

    @contextmanager
    def running(self, passes: int) -> Iterator[None]:
        """Let so many backward passes add up to a gradient; afterwards each `.grad` is that of all processes."""
        self.places: dict[Edge, tuple[Bucket, int]] = {}
        for bucket in self.buckets:
            bucket.array[...] = 0
            self.places.update((edge_of(p), (bucket, i)) for i, p in enumerate(bucket.parameters))
        self.passes, self.awaited, self.requests = passes, Counter[Edge](), list[Any]()
        before, state.backward_watch = state.backward_watch, self
        try:
            yield
        finally:
            state.backward_watch = before
        self.early += len(self.requests)
        while len(self.requests) < len(self.buckets):
            self._send()
        for request in self.requests:
            request.Wait()
        for bucket in self.buckets:
            for parameter, gradient, found in zip(bucket.parameters, bucket.gradients, bucket.found, strict=True):
                parameter.grad = gradient if found else None

    def begin(self, seeds: Sequence[tuple[Edge, Tensor]]) -> None:
        """A backward pass starts. In the last one, count the ops that each parameter's gradient is waiting for."""
        self.passes -= 1
        if self.passes:
            return
        graph = ancestors((edge[0] for edge, _ in seeds), lambda node: node.edges)
        self.awaited.update(edge for node in graph for edge in node.edges if edge in self.places)
        for bucket in self.buckets:
            bucket.open = 0
        for edge in self.awaited:
            self.places[edge][0].open += 1

    def visit(self, node: Node, arrived: Sequence[Tensor | None], results: Sequence[Tensor | None]) -> None:
        """An op was passed: keep what it gives to parameters, and send what is final with it."""
        for edge, gradient in zip(node.edges, results, strict=False):  # a leaf has no results
            place = self.places.get(edge) if edge is not None else None
            if edge is None or place is None:
                continue
            bucket, index = place
            if gradient is not None:
                bucket.add(index, fit(gradient, *edge[0].outputs[edge[1]]).array)
            if self.passes:
                continue
            self.awaited[edge] -= 1
            if self.awaited[edge] == 0:
                bucket.open -= 1
                for request in self.requests:
                    request.Test()  # which is when many an MPI moves bytes
                while len(self.requests) < len(self.buckets) and not self.buckets[len(self.requests)].open:
                    self._send()

    def _send(self) -> None:
        array = self.buckets[len(self.requests)].array
        self.requests.append(self.team.comm.Iallreduce(self.team.mpi.IN_PLACE, array, op=self.team.mpi.SUM))
        self.sent += array.nbytes
