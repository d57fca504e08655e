"""Implementations that hang, crash, lie or break what they stand on, at every moment: each is one sentence, in time.

A case is the source of a class X. Whatever it does, the supervisor gets a verdict that is not PASS, or says why the
implementation cannot be loaded; nothing of it is left, and no message is longer than a screen.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from conformance.adapters import SpecificationError
from conformance.supervisor import Supervisor
from conformance.verdict import Verdict

CLAIM = "softmax-formula"
SECONDS = 1.5
"""Of processor time; four times that by the clock."""

BUILDS = "class X:\n    def build(self, role, config):\n        "
LOADS = "class X:\n    build = None\n    def __init__(self):\n        "
CALLS = "class X:\n    def build(self, role, config):\n        return Y()\n\nclass Y:\n    "
LOOP, SLEEP = "while True: pass", "import time; time.sleep(600)"
TOO_LONG = r"used more than 1.5 s of processor time|took longer than 6 s"
FORWARD = (
    "dtype = 'float32'\n    def params(self): return {}\n    def load(self, values): pass\n"
    "    def __call__(self, **inputs):\n        "
)

HANGS = {
    "loops when imported": LOOP,
    "sleeps when imported": SLEEP,
    "loops when constructed": LOADS + LOOP,
    "sleeps when constructed": LOADS + SLEEP,
    "loops when built": BUILDS + LOOP,
    "sleeps when built": BUILDS + SLEEP,
    "loops when called": CALLS + FORWARD + LOOP,
    "sleeps when called": CALLS + FORWARD + SLEEP,
    "loops when asked for an attribute": CALLS + "def __getattr__(self, name):\n        " + LOOP,
    "loops in its name": "class X:\n    build = None\n    @property\n    def name(self):\n        " + LOOP,
    "loops where an error is shown": "class E(Exception):\n    def __str__(self):\n        "
    + LOOP + "\n\n" + BUILDS + "raise E",
    "loops in a generator": BUILDS + "return list(iter(int, 1))",
    "loops as an array": CALLS + FORWARD
    + "return {'out': A()}\n\nclass A:\n    def __array__(self, *a, **k):\n        " + LOOP,
    "ignores the signal of its time": "import signal\nsignal.signal(signal.SIGPROF, signal.SIG_IGN)\n" + BUILDS + LOOP,
    "blocks the signal of its time": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})\n"
    + BUILDS + LOOP,
    "catches everything for ever": BUILDS + "while True:\n            try:\n                "
    + LOOP + "\n            except BaseException: pass",
}  # fmt: skip

HURTS = {
    "raises 20 MB": (BUILDS + "raise ValueError('x' * 20_000_000)", r"ValueError: x+\.\.\. .20,000,012 characters."),
    "raises 20 MB of lines": (BUILDS + "raise ValueError('x\\n' * 10_000_000)", "ValueError: x"),
    "calls itself": (BUILDS + "return self.build(role, config)", "RecursionError"),
    "calls itself without a limit": (
        "import sys\nsys.setrecursionlimit(10**9)\n" + BUILDS + "return self.build(role, config) + 1",
        f"killed its process|RecursionError|took more than it may|MemoryError|{TOO_LONG}",
    ),
    "shows an error that calls itself": (
        "class E(Exception):\n    def __str__(self):\n        return str(self)\n\n" + BUILDS + "raise E",
        "",
    ),
    "kills the process above it": (BUILDS + "import os, signal; os.kill(os.getppid(), signal.SIGKILL)", ""),
    "ends its process as if all were well": (BUILDS + "import os; os._exit(0)", "ended its process with exit code 0"),
    "exits": (BUILDS + "raise SystemExit(0)", "SystemExit|exit code 0"),
    "is interrupted": (BUILDS + "raise KeyboardInterrupt", "KeyboardInterrupt|SIGINT"),
    "raises what is no Exception": (
        "class E(BaseException): pass\n" + BUILDS + "raise E('not an exception')",
        "E|exit code",
    ),
    "raises a class whose name is long": (
        "E = type('E' * 100_000, (Exception,), {})\n" + BUILDS + "raise E",
        "",
    ),
    "aborts": (BUILDS + "import os; os.abort()", "killed its process .SIGABRT"),
    "reads where there is nothing": (BUILDS + "import ctypes; ctypes.string_at(0)", "killed its process .SIGSEGV"),
    "closes every descriptor": (BUILDS + "import os; os.closerange(0, 1024)", ""),
    "stands in a folder that is gone": (
        "import os, tempfile\nwith tempfile.TemporaryDirectory() as gone:\n    os.chdir(gone)\n"
        + BUILDS + "raise OSError",
        "",
    ),
    "takes the words of Python": (BUILDS + "import builtins; del builtins.len, builtins.isinstance", ""),
    "empties the modules": (BUILDS + "import sys; sys.modules.clear()", ""),
    "takes the stack": (BUILDS + "import sys; sys.setrecursionlimit(60); raise ValueError", ""),
    "makes warnings errors": (
        "import warnings\nwarnings.simplefilter('error')\n" + BUILDS + "warnings.warn('x')",
        "UserWarning",
    ),
    "breaks JSON": ("import json\njson.dumps = None\n" + BUILDS + "raise ValueError", ""),
    "turns time back": (
        "import time\nclock = iter(range(10**9, 0, -1))\ntime.monotonic = time.time = lambda: float(next(clock))\n"
        + BUILDS + "raise ValueError",
        "ValueError",
    ),
    "prints without end, then raises": (BUILDS + "print('x' * 50_000_000); raise ValueError", "ValueError"),
    "leaves threads that never end": (
        "import threading\nthreading.Thread(target=threading.Event().wait).start()\n" + BUILDS + "raise ValueError",
        "ValueError",
    ),
    "does not end when its time has come": (
        "import atexit, time\natexit.register(time.sleep, 600)\n" + BUILDS + "raise ValueError",
        "ValueError",
    ),
    "returns nothing": (CALLS + FORWARD + "return None", ""),
    "returns a text": (CALLS + FORWARD + "return {'out': 'numbers'}", ""),
    "returns another name": (CALLS + FORWARD + "return {'output': inputs['x']}", ""),
    "returns objects": (
        CALLS + FORWARD + "import numpy; return {'out': numpy.array([object()] * 3)}",
        "",
    ),
    "returns a number": (CALLS + FORWARD + "return {'out': 1.0}", ""),
    "returns what is not a number": (CALLS + FORWARD + "return {'out': inputs['x'] * float('nan')}", ""),
    "changes what it is given": (CALLS + FORWARD + "x = inputs['x']; x *= 0; return {'out': x}", ""),
    "returns another shape": (CALLS + FORWARD + "return {'out': inputs['x'][..., :1]}", ""),
    "returns terabytes that are none": (
        CALLS + FORWARD + "import numpy; return {'out': numpy.broadcast_to(numpy.float32(0), (10**4, 10**4, 10**4))}",
        "",
    ),
}  # fmt: skip

SLOW = {"sleeps when built", "loops when imported", "calls itself without a limit"}
IN_CI = {
    "loops when imported", "sleeps when built", "loops where an error is shown", "blocks the signal of its time",
    "raises 20 MB", "calls itself without a limit", "kills the process above it", "exits", "closes every descriptor",
    "takes the words of Python", "breaks JSON", "does not end when its time has come",
    "returns terabytes that are none",
}  # fmt: skip
"""The others are deep: each starts a process of its own."""


def cases(of):
    def marks(name):
        return pytest.mark.slow if name in SLOW else () if name in IN_CI else pytest.mark.deep

    return [pytest.param(case, id=name, marks=marks(name)) for name, case in of.items()]


def outcome(folder: Path, source: str) -> str:
    """What is said of a subject; it is none that passes."""
    (folder / "subject.py").write_text(source)
    began = time.monotonic()
    try:
        with Supervisor(
            f"{folder / 'subject.py'}:X", claim_seconds=SECONDS, load_seconds=SECONDS, children=1
        ) as supervisor:
            result = supervisor.result(CLAIM)
            assert result.verdict in (Verdict.ERROR, Verdict.FAIL, Verdict.NOT_PROVIDED), result
            said = f"{result.verdict}: {result.message}"
    except SpecificationError as error:
        said = str(error)
    assert time.monotonic() - began < 90
    assert len(said) < 4000
    assert "\x1b" not in said
    return said


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("source", cases(HANGS))
def test_what_hangs_is_ended_in_its_time(tmp_path, source):
    assert re.search(TOO_LONG, outcome(tmp_path, source))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("case", cases(HURTS))
def test_what_hurts_is_one_sentence(tmp_path, case):
    source, complaint = case
    assert re.search(complaint, outcome(tmp_path, source))


@pytest.mark.parametrize("name", ["Ünïcödé 変換器", "with space", "-dash", "semi;colon & 'quote'"])
def test_folders_may_have_any_name(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    assert "ValueError" in outcome(folder, BUILDS + "raise ValueError")


def test_every_case_is_known():
    assert set(HANGS) | set(HURTS) >= IN_CI
