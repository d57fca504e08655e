"""Interrupts of work under way, as a program: what they break may hang, so tests run it in a process of its own.

    python tests/interrupts.py JOB HOW COUNT [SEED]

interrupts the work of JOB (see `JOBS`) COUNT times and looks each time at what is left. HOW: "points", once at each of
COUNT places where Python runs handlers of signals (0: at all); "moments", by a clock, at random times. Exit code 0:
the work was done or not begun each time, the next one was right, and nothing was left behind.
"""

from __future__ import annotations

import dis
import random
import signal
import sys
import time
import traceback
from dataclasses import replace
from functools import cache

import numpy as np

import minigrad as mg
from minigrad import functional as F
from minigrad import nn, optim
from minigrad.kernels import blas, team, threads
from minigrad.state import state
from tools.bench.models import Size, build_decoder, build_gpt

SIZE = Size(vocab=50, d_model=64, n_heads=4, n_layers=1, d_ff=128, batch=16, length=24)
CLOSE = 1e-5  # a step changes numbers by about 100 times this


def gpt():
    batch = np.random.default_rng(0).integers(0, SIZE.vocab, (2, SIZE.batch, SIZE.length))
    return build_gpt(mg, nn, F, SIZE), [mg.tensor(ids) for ids in batch]


def layers(dtype):
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 8))
    return model.to(dtype), [mg.tensor(np.random.default_rng(0).standard_normal((200, 64)), dtype=dtype)]


class Training:
    """Steps of a model on a batch. Work: one step, or only its update."""

    def __init__(self, made, compiled: bool = False, only_update: bool = False) -> None:
        mg.manual_seed(0)
        self.model, self.batch = made
        self.optimizer = optim.AdamW(self.model.parameters(), lr=1e-2)
        self.only_update = only_update
        self.whole = mg.compile(self.step) if compiled else self.step
        for _ in range(3):
            self.whole(*self.batch)

    def step(self, *batch: mg.Tensor) -> mg.Tensor:
        self.optimizer.zero_grad()
        loss = (self.model(*batch) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def work(self) -> None:
        if self.only_update:
            self.optimizer.step()
        else:
            self.whole(*self.batch)

    def before(self) -> list[np.ndarray]:
        return [tensor.numpy().copy() for tensor in self.tensors()]

    def tensors(self) -> list[mg.Tensor]:
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        return [*(parameter.detach() for parameter in self.model.parameters()), *state]

    def check(self, before: list[np.ndarray]) -> None:
        """All as before the step, or all as after it; and a step from there is right."""
        found = self.before()
        for tensor, value in zip(self.tensors(), before, strict=True):
            tensor.copy_(mg.tensor(value))
        self.work()
        after = self.before()
        done = not all(map(np.array_equal, found, before))
        if done:
            for got, expected in zip(found, after, strict=True):
                np.testing.assert_allclose(got, expected, rtol=CLOSE, atol=CLOSE)


class Decoding:
    """Greedy decoding with a cache. Work: a whole sequence."""

    def __init__(self, compiled: bool) -> None:
        mg.manual_seed(0)
        model = build_decoder(mg, nn, F, replace(SIZE, batch=1, d_model=256, d_ff=1024), compiled)
        self.step = mg.compile(model) if compiled else model
        self.positions = [mg.tensor(i) if compiled else i for i in range(12)]
        self.expected = self.work()
        assert self.work() == self.expected

    @mg.no_grad()
    def work(self) -> list[int]:
        ids, found = mg.zeros(1, 1, dtype=mg.int64), []
        for position in self.positions:
            ids = self.step(ids, position)
            found.append(ids.item())
        return found

    def before(self) -> None:
        return None

    def check(self, _: None) -> None:
        assert self.work() == self.expected


JOBS = {
    "compiled": lambda: Training(gpt(), compiled=True),
    "parts": lambda: Training(layers("float64"), compiled=True),  # a plan of several calls
    "eager": lambda: Training(layers("float32")),
    "update": lambda: Training(layers("float32"), only_update=True),
    "decode": lambda: Decoding(True),
    "decode-eager": lambda: Decoding(False),
}


def settled() -> None:
    """Is nothing in force that the work had set for its duration?"""
    assert mg.is_grad_enabled()
    assert state.scope == ()
    assert not state.quiet
    assert not state.interpreter.tracing
    assert np.geterr()["divide"] == "warn"
    assert not blas._before
    assert blas._depth == 0
    assert team._team is None or team._team._mailboxes[0] == 0
    assert signal.getsignal(signal.SIGINT) is signal.getsignal(signal.SIGALRM) is signal.default_int_handler


@cache
def behind(code) -> set[int]:
    """The instructions behind which Python looks for signals."""
    return {i.offset for i in dis.get_instructions(code) if i.opname.startswith("CALL") or i.opname == "JUMP_BACKWARD"}


@cache
def handlers(code) -> list:
    return dis.Bytecode(code).exception_entries


def same_handler(frame, before: int) -> bool:
    """Does an exception of the next instruction go where one of the instruction before it does?"""

    def target(offset):
        return next((e.target for e in handlers(frame.f_code) if e.start <= offset < e.end), None)

    return target(before) == target(frame.f_lasti)


class Points:
    """Counts the places where Python looks for signals: behind a call, when a function begins, when a loop jumps back.
    At the one with the number `stop`, SIGINT comes."""

    def __init__(self, stop: int = -1) -> None:
        self.stop, self.passed, self.last = stop, 0, {}
        self.where: list[str] = []

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename == __file__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            before = self.last.get(frame)
            self.last[frame] = frame.f_lasti
            looks = before is not None and before in behind(frame.f_code) and same_handler(frame, before)
        else:
            looks = event == "call"
        if looks:
            self.passed += 1
            if self.passed == self.stop:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self

    def run(self, job) -> bool:
        """Do a job's work: was it interrupted?"""
        sys.settrace(self)
        try:
            job.work()
        except KeyboardInterrupt as error:
            self.where = [f"{f.filename[-30:]}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__)]
            return True
        finally:
            sys.settrace(None)
            self.last.clear()
        return False


def at_points(job, count: int, choose: random.Random) -> int:
    """Interrupt at `count` places, or at all; how many were."""
    counted = Points()
    counted.run(job)
    places = range(1, counted.passed + 1)
    interrupted = 0
    for stop in choose.sample(places, count) if count else places:
        before = job.before()
        points = Points(stop)
        interrupted += points.run(job)
        try:
            settled()
            job.check(before)
        except AssertionError as error:
            raise AssertionError(f"interrupted at point {stop}: {points.where[-4:]}") from error
    return interrupted


def at_moments(job, count: int, choose: random.Random) -> int:
    """Interrupt `count` times, at any time from the work's beginning to its end."""
    began = time.perf_counter()
    job.work()
    lasts = time.perf_counter() - began
    interrupted = 0
    while interrupted < count:
        before = job.before()
        try:
            signal.setitimer(signal.ITIMER_REAL, choose.uniform(1e-6, lasts))
            job.work()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupted += 1
        settled()
        job.check(before)
    return interrupted


def main(name: str, how: str, count: str, seed: str = "0") -> None:
    for number in (signal.SIGALRM, signal.SIGINT):  # which a shell's background jobs inherit as ignored
        signal.signal(number, signal.default_int_handler)
    threads.available = lambda: 2
    threads.GRAIN = 1000  # small kernels go to the team, too
    job = JOBS[name]()
    settled()
    interrupted = {"points": at_points, "moments": at_moments}[how](job, int(count), random.Random(int(seed)))
    print(f"{name}: interrupted {interrupted} times")
    assert interrupted


if __name__ == "__main__":
    main(*sys.argv[1:])
