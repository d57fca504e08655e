"""The GPU: whether it can be used, waiting for it, and the memory that it holds (`import minigrad.cuda`).

A GPU is started by the first tensor that is made on it or moved to it, never by an import.
"""

from __future__ import annotations

from minigrad.kernels.cuda.driver import CudaError, OutOfMemory
from minigrad.kernels.cuda.memory import Statistics
from minigrad.kernels.cuda.runtime import runtime

__all__ = [
    "CudaError", "OutOfMemory", "device_name", "empty_cache", "host_ops", "is_available", "max_memory_allocated",
    "memory_allocated", "memory_reserved", "reset_peak_memory_stats", "synchronize", "why_not",
]  # fmt: skip


def why_not() -> str:
    """One sentence that says why CUDA cannot be used, "" where it can."""
    try:
        runtime()
    except CudaError as error:
        return str(error)
    return ""


def is_available() -> bool:
    """Can tensors be moved to "cuda"?"""
    return not why_not()


def device_name() -> str:
    return runtime().driver.name


def synchronize() -> None:
    """Wait until the GPU has done all that it was given. Raises what the CPU would have raised if an op since the last
    wait was given values that it refuses: IndexError for ids past their table (ValueError for one_hot and the targets
    of a cross-entropy), ZeroDivisionError for integers, ValueError for powers of integers and for probabilities."""
    runtime().synchronize()


def _statistics() -> Statistics:
    return runtime().allocator.statistics


def memory_allocated() -> int:
    """Bytes that tensors occupy now."""
    return _statistics().in_use


def max_memory_allocated() -> int:
    """The most bytes that tensors occupied since the start, or since `reset_peak_memory_stats`."""
    return _statistics().peak


def memory_reserved() -> int:
    """Bytes taken from the driver, kept ones included."""
    return _statistics().held


def reset_peak_memory_stats() -> None:
    runtime().allocator.reset_peak()


def empty_cache() -> None:
    """Give memory that no tensor uses back to the driver, for other programs."""
    runtime().allocator.empty_cache()


def host_ops() -> dict[str, int]:
    """How often each op was computed on the host for want of a kernel; each time waits for the GPU."""
    return dict(runtime().host_ops)
