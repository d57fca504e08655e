"""A plan's calls as machine code: kernels that follow each other become one function, their arguments constants.

Calling a numba kernel from Python costs 0.5 to 2 us, most of it spent on looking at its arguments. A plan's arguments
never change, so a `Segment` is a small LLVM function that calls the compiled kernels one after another at about the
cost of a C call (it is built in milliseconds: kernels are called, not compiled again). Calls that only Python can make
(numpy, BLAS) stay calls between segments.

Where a segment has enough work, all threads of the team (see `minigrad.kernels.team`) run it together: each takes its
range of rows of a kernel that is cut over rows, the first one alone takes the others, and they meet at a barrier where
one kernel reads what another wrote. A meeting costs 0.2 us, a hand-over to a sleeping Python thread 10 to 40.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core.registry import CPUDispatcher

from minigrad.kernels import team, threads
from minigrad.kernels.compiler import compile_all
from minigrad.kernels.numba.twins import TWINS

SHARED = 2_000  # work (about ns) from which a call is cut over the team's threads: ten barriers
TOGETHER = 40_000  # work in a segment from which it wakes the team: a wake-up costs 10 to 40 us
_RETURNED_NONE = -2  # numba's status of a function without a result, as is 0; everything else is an error


class Call(NamedTuple):
    """A kernel with the types of its arguments and their values in LLVM's language, and which call of the plan it is.
    rows 0: the first thread does it all."""

    kernel: Any
    types: tuple[Any, ...]
    arguments: str
    rows: int
    work: float
    number: int

    @property
    def address(self) -> int:
        """Where its machine code begins."""
        compiled = self.kernel.overloads[self.types]
        address: int = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
        return address


def _argument(value: Any) -> str | None:
    """A value as numba's calling convention passes it, in LLVM's language; None for types that are not passed here."""
    if isinstance(value, np.ndarray):
        numbers = [value.size, value.itemsize]
        start = value.__array_interface__["data"][0]
        rest = [*value.shape, *value.strides]
        head = ", ".join(f"i64 {n}" for n in numbers)
        tail = "".join(f", i64 {n}" for n in rest)
        return f"ptr null, ptr null, {head}, ptr inttoptr (i64 {start} to ptr){tail}"
    if isinstance(value, tuple) and value:
        texts = [_argument(item) for item in value]
        return None if None in texts else ", ".join(map(str, texts))
    if isinstance(value, bool | np.bool_):
        return f"i8 {int(value)}"
    if isinstance(value, int | np.int64):
        return f"i64 {int(value)}"
    if isinstance(value, np.float32):
        return f"float {_bits(float(value))}"
    if isinstance(value, float):
        return f"double {_bits(value)}"
    return None


def _bits(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def lower(function: Callable[..., Any], arguments: Sequence[Any], number: int) -> Call | None:
    """A call as one that machine code can make, or None."""
    rows, work = 0, 0.0
    if function is threads.over_rows:
        kernel, count, work, *rest = arguments
        if count >= 2 and work >= SHARED:
            rows = count
        arguments = (0, count, *rest)
        function = kernel
    twin = TWINS.get(function)
    if twin is not None:
        function = twin
    if not isinstance(function, CPUDispatcher):
        return None
    texts = [_argument(value) for value in (arguments[2:] if rows else arguments)]
    if any(text is None for text in texts):
        return None
    types = tuple(numba.typeof(value) for value in arguments)
    return Call(function, types, ", ".join(map(str, texts)), rows, work, number)


def _text(name: str, calls: Sequence[Call]) -> str:
    """The segment as an LLVM function (thread, threads, state) -> 0, or 1 + the index of the call that failed."""
    lines: list[str] = []
    barriers, shared_before = 0, False
    for number, call in enumerate(calls):
        if number and (call.rows or shared_before):
            barriers += 1
            lines += [
                f"  %met{number} = call i1 @barrier(ptr %state, i64 %threads, i64 {barriers})",
                f"  br i1 %met{number}, label %go{number}, label %left",
                f"go{number}:",
            ]
        shared_before = bool(call.rows)
        if call.rows:
            lines += [
                f"  %low{number} = mul i64 {call.rows}, %thread",
                f"  %start{number} = udiv i64 %low{number}, %threads",
                f"  %high{number} = mul i64 {call.rows}, %next",
                f"  %stop{number} = udiv i64 %high{number}, %threads",
                f"  br label %do{number}",
            ]
            arguments = f"i64 %start{number}, i64 %stop{number}, {call.arguments}"
        else:
            lines.append(f"  br i1 %first, label %do{number}, label %done{number}")
            arguments = call.arguments
        lines += [
            f"do{number}:",
            f"  %status{number} = call i32 inttoptr (i64 {call.address} to ptr)(ptr %ret, ptr %exc, {arguments})",
            f"  %ok{number} = icmp eq i32 %status{number}, 0",
            f"  %none{number} = icmp eq i32 %status{number}, {_RETURNED_NONE}",
            f"  %fine{number} = or i1 %ok{number}, %none{number}",
            f"  br i1 %fine{number}, label %done{number}, label %failed{number}",
            f"failed{number}:",
            f"  store atomic i64 {call.number + 1}, ptr %flag release, align 8",
            f"  ret i64 {call.number + 1}",
            f"done{number}:",
        ]
    return "\n".join(
        [
            f"define i64 @{name}(i64 %thread, i64 %threads, ptr %state) {{",
            "  %ret = alloca ptr",
            "  %exc = alloca ptr",
            "  %first = icmp eq i64 %thread, 0",
            "  %next = add i64 %thread, 1",
            f"  %flag = getelementptr i64, ptr %state, i64 {team.FAILED}",
            *lines,
            "  ret i64 0",
            "left:",
            "  ret i64 0",
            "}",
        ]
    )


class Segment:
    """Calls that machine code makes, on one thread or on the whole team. Calling it runs them.

    A call that fails is made again from Python, whose exception says what is wrong.
    """

    def __init__(self, calls: Sequence[Call], plan: Sequence[Any]) -> None:
        self.calls = list(calls)
        self._plan = plan
        self._together = sum(call.work for call in calls if call.rows) >= TOGETHER

    def load(self, engine: Any, name: str) -> None:
        """Take the compiled function `name`; the engine lives as long as the segment."""
        self._engine = engine
        address = engine.get_function_address(name)
        self._alone = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(address)
        self._task = team.Task(address)

    def __call__(self) -> None:
        failed = team.run(self._task) if self._together else None
        if failed is None:
            failed = self._alone(0, 1, self._task.state_address)
        if failed:
            function, arguments = self._plan[failed - 1]
            function(*arguments)
            raise RuntimeError(f"a kernel of the plan ({getattr(function, '__name__', function)}) failed once")


def assemble(calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[tuple[Callable[..., Any], Any]]:
    """The calls of a plan with runs of kernels joined into segments: (function, arguments) to be called in order."""
    made: list[tuple[Callable[..., Any], Any]] = []
    segments: list[Segment] = []
    lowered = [lower(function, arguments, number) for number, (function, arguments) in enumerate(calls)]
    compile_all([(call.kernel, call.types) for call in lowered if call])
    for native, run in groupby(range(len(calls)), lambda number: lowered[number] is not None):
        if native:
            segments.append(Segment([call for call in (lowered[number] for number in run) if call], calls))
            made.append((segments[-1], ()))
        else:
            made += [calls[number] for number in run]
    if segments:  # one module for all: making an engine takes longer than compiling a segment
        texts = [_text(f"segment{i}", segment.calls) for i, segment in enumerate(segments)]
        engine = team.load("\n".join([team.DECLARATIONS, *texts]))
        for i, segment in enumerate(segments):
            segment.load(engine, f"segment{i}")
    return made
