"""What a simulated launch can find wrong. Every message names the kernel, block, thread and line."""

from __future__ import annotations


class SimulationError(RuntimeError):
    """A kernel did what a GPU would not survive, or would answer with silence."""


class DeadlockError(SimulationError):
    """Threads wait for others that will never come."""


class DivergenceError(SimulationError):
    """Threads that must act together (a barrier, a warp operation) stand at different places."""


class OutOfBoundsError(SimulationError):
    """An index outside of its memory, negative ones included: no wrapping around."""


class RaceError(SimulationError):
    """Two threads touch one element, one of them writing, and no barrier lies between."""
