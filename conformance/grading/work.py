"""One submission graded, wherever a worker runs: `graded`, which takes and returns plain values.

A worker needs this package installed and nothing else: the submission's files come with the task.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from conformance.grading.archive import Archive
from conformance.grading.hosts import borrowed


def graded(task: Mapping[str, Any], give_way: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """What came of a task: `parts` and `refused` (see `conformance.grading.trial`), `seconds`, `versions` and
    `processor` of the worker. task: as for the trial, with `archive` in place of `folder`.

    Raises LostHost when the process that graded it was killed; it can be tried again.
    """
    with tempfile.TemporaryDirectory(prefix="conformance-grading-") as folder:
        top = Path(folder).resolve() / "submission"
        top.mkdir()
        archive: Archive = task["archive"]
        archive.unpack(top)
        rest = {name: value for name, value in task.items() if name != "archive"}
        with borrowed() as host:
            outcome = host.outcome({**rest, "impl": archive.impl, "folder": str(top)}, give_way)
        return {**_without(outcome, f"{top}/"), "versions": versions(), "processor": processor()}


def _without(value: Any, folder: str) -> Any:
    """The values without the name of the folder: the same files give the same texts wherever they lie."""
    if isinstance(value, str):
        return value.replace(folder, "")
    if isinstance(value, Mapping):
        return {name: _without(item, folder) for name, item in value.items()}
    return [_without(item, folder) for item in value] if isinstance(value, (list, tuple)) else value


@functools.cache
def versions() -> dict[str, str]:
    """What a result depends on beside the submission: the suite's own files, Python, numpy, torch, hypothesis."""
    suite = hashlib.sha256()
    package = Path(__file__).parents[1]
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.toml")]):
        suite.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    found = {"suite": suite.hexdigest(), "python": platform.python_version()}
    for name in ("numpy", "torch", "hypothesis"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


@functools.cache
def processor() -> str:
    """The processor's name: its instructions decide the last digits."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{platform.machine()} {model or platform.processor()}".strip()
