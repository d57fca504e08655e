"""The child process that hosts the implementation under test and its checks: `python -P -m conformance.host`.

It reads one JSON object a line from its standard input and answers one a line on its standard output: first
`{"impl", "folders"}`, answered by `{"ready": name, "kind"}` or `{"refused": sentence}`; then, for each claim,
`{"claim", "budget", "seed"}`, answered by its `Result`. `{"adapter": path}` asks for the source of an inferred adapter:
`{"source"}` or `{"refused": sentence}`. What the implementation prints goes to standard error.

Each request carries its limits, too: `seconds` of processor time, which a busy machine does not use up, and of the
`clock`, for a step that sleeps. One that takes longer writes where it stands to standard error and ends the process.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

MEMORY = 4 * 2**30
"""Bytes that an implementation may allocate beyond what its import took, where the system can limit it."""


def main() -> None:
    requests, answers = _take_standard_streams()
    faulthandler.register(signal.SIGPROF, chain=True)  # writes where every thread stands; then the signal ends us
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    first = json.loads(requests.readline())
    implementation = _load(first, answers)
    if implementation is None:
        return
    from conformance.check import CHECKS
    from conformance.runner import run_check
    from conformance.verdict import Result, Verdict

    told: set[str] = set()

    def news(of: str) -> list[str]:
        """What the implementation says for the first time in its list `of` sentences."""
        new = [line for line in map(str, getattr(implementation, of, ())) if line not in told]
        told.update(new)
        return new

    for line in requests:
        request = json.loads(line)
        if "adapter" in request:
            _answer(answers, _adapter(implementation, first["impl"], request["adapter"]))
            continue
        claim = request["claim"]
        with _limited_time(request):
            if claim in CHECKS:
                result = run_check(CHECKS[claim], implementation, request["budget"], request["seed"])
            else:
                result = Result(claim, Verdict.ERROR, message="the catalogue has this claim, but no check tests it")
        _answer(answers, {**result.to_json(), "notes": news("notes"), "untested": news("untested")})


def _adapter(implementation: Any, impl: str, path: str) -> dict[str, str]:
    """The source of an inferred adapter, or why there is none."""
    from conformance.adapters import SpecificationError, parse

    try:
        if parse(impl).is_built_in or "torch" not in sys.modules:
            raise SpecificationError(f"--claims-adapter-out: {impl} is no nn.Module, and needs no adapter")
        from conformance.adapters.inference.written import source

        return {"source": source(implementation, impl, Path(path))}
    except SpecificationError as error:
        return {"refused": str(error)}


@contextmanager
def _limited_time(request: dict[str, Any]) -> Iterator[None]:
    """End this process when the block takes longer than the request allows."""
    faulthandler.dump_traceback_later(request["clock"], exit=True)
    signal.setitimer(signal.ITIMER_PROF, request["seconds"])
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        faulthandler.cancel_dump_traceback_later()


def _take_standard_streams() -> tuple[IO[str], IO[str]]:
    """Keep the pipes for ourselves; the implementation sees an empty input and prints to standard error."""
    requests, answers = os.fdopen(os.dup(0), "r", encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    return requests, answers


def _load(request: dict[str, Any], answers: IO[str]) -> Any:
    """The implementation; None when it cannot be loaded. Either is answered."""
    # Ours first: a subject's folder may hold modules with the names of ours, or of what ours import.
    import hypothesis  # noqa: F401

    import conformance.checks  # noqa: F401
    from conformance.adapters import SpecificationError, parse, resolve

    impl: str = request["impl"]
    if not parse(impl).is_built_in:
        _forget_own_folder()
    try:
        with _limited_time(request):
            implementation = resolve(impl, request["folders"])
    except SpecificationError as error:
        _answer(answers, {"refused": str(error)})
        return None
    _limit_memory(impl)
    kind = getattr(implementation, "kind", None)
    _answer(answers, {"ready": str(getattr(implementation, "name", impl)), "kind": None if kind is None else str(kind)})
    return implementation


def _forget_own_folder() -> None:
    """Take the folder that holds this package off the path: next to it lie `minigrad` and `transformer`, which a
    subject's own modules may be called, too. What is already imported stays."""
    import conformance

    own = os.path.dirname(os.path.dirname(os.path.abspath(conformance.__file__)))
    if not own.endswith("-packages"):
        sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != own]


def _limit_memory(impl: str) -> None:
    """Let a runaway allocation raise MemoryError. CUDA reserves address space without bound, so not there."""
    torch = sys.modules.get("torch")
    if impl == "minigrad:cuda" or getattr(getattr(torch, "version", None), "cuda", None):
        return
    try:
        import resource

        with open("/proc/self/statm") as statm:
            mapped = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (ImportError, OSError, ValueError):  # no such limit on this system: the time limit remains
        return


def _answer(answers: IO[str], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message, default=str) + "\n")
    answers.flush()


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
