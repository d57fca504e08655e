"""`train --processes N`: the same command N times, started by mpiexec; when one ends, all end, and it is said once."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from transformer.training import parallel

MOST = 64
"""Processes on one machine. Of several machines mpiexec itself is told."""


def check(count: int) -> str:
    """The path of mpiexec. Raises ValueError for another number than 1 to 64, and where MPI is not installed."""
    if not 1 <= count <= MOST:
        raise ValueError(f"--processes must be from 1 to {MOST}, got {count}: more machines are a matter of mpiexec")
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None or importlib.util.find_spec("mpi4py") is None:
        lacking = "mpiexec" if found is None else "mpi4py"
        raise ValueError(
            f"--processes needs MPI, and there is no {lacking}: pip install mpich 'minigrad-conformance[mpi]'"
        )
    return found


def run(mpiexec: str, count: int, arguments: Sequence[str], folder: Path) -> int:
    """Run the command in `count` processes; returns its exit code.

    What the processes say themselves is code 2. Raises ChildProcessError where they ended in another way, and
    KeyboardInterrupt when interrupted: none is left then.
    """
    command = [mpiexec, "-n", str(count), sys.executable, "-m", "transformer", *arguments]
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # by way of `finally`
    with tempfile.TemporaryDirectory() as place:
        words = Path(place) / "words"
        environment = os.environ | {parallel.WORDS: str(words)}
        # mpiexec's own words go to its output, the processes' to the standard error
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment) as started:
            try:
                code = started.wait()
            except KeyboardInterrupt:
                started.send_signal(signal.SIGINT)
                started.wait()
                raise
            finally:
                if started.poll() is None:
                    started.terminate()
                signal.signal(signal.SIGTERM, before)
        if words.exists():
            print(words.read_text(encoding="utf-8"), file=sys.stderr)
    if code not in (0, 2):
        raise ChildProcessError(
            f"one of the {count} processes was killed or broke down, and all have ended with it: continue with "
            f"--resume {folder}"
        )
    return code
