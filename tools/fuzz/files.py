"""`python -m tools.fuzz.files --minutes 120 --processes 2`: broken files for everything that reads files.

A whole file of each kind (weights, their metadata, a report, settings, a graph's listing) is changed in random bytes
and given to its reader. A reader may refuse it by the exception that it documents, and by nothing else, in 30 seconds.
Minutes and seconds are of processor time, so that what else the machine does costs no file. Each minute has a seed of
its own: a run that begins at another seed breaks other files. Prints what broke, and how many files were read and
refused. Exit code 1 if one broke.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

import minigrad as mg
from conformance.catalogue import load
from conformance.report import Report, ReportError, read_reports, to_json
from conformance.settings import SettingsError, read_settings
from conformance.verdict import Result, Verdict
from minigrad.io import FormatError, load_file, load_metadata, save_file
from minigrad.viz.parse import parse

SECONDS = 30
"""A file must be read or refused in this much processor time."""

WORDS = (
    b"null", b"[]", b"{}", b"-1", b"1e999", b"NaN", b"9" * 40, b'"', b"\\ud800", b"\xff\xfe", b"\0", b"[" * 5000,
    b"true", b"\x1b[31m", b'"dtype"', b'"F32"', b'"shape"', b"0.5", b"18446744073709551616", b"=",
    b"[tool.conformance]\n", b"graph(", b"return", b"->", b"f32[", b" <- ",
)  # fmt: skip
"""What readers trip over."""


@dataclass(frozen=True)
class Reader:
    """What reads a file. whole: the bytes of one that is right. refusals: the exceptions that are documented."""

    whole: bytes
    read: Callable[[Path], Any]
    refusals: tuple[type[Exception], ...]
    file: str = "file"


def a_report() -> dict[str, Any]:
    """A whole report of one claim, as it is written."""
    catalogue = load()
    slug = next(claim.slug for claim in catalogue.claims.values() if claim.is_tested)
    results = {slug: Result(slug, Verdict.PASS)}
    return to_json(Report("model.py:X", None, "default", 0, results, catalogue, [], lambda slug: f"pytest {slug}"))


def readers(folder: Path) -> Mapping[str, Reader]:
    """Everything that reads files, by name. Uses `folder` to write what is to be broken."""
    weights = folder / "weights.safetensors"
    shared = np.ones(3, np.float32)
    save_file({"a": shared, "b": shared, "c": np.arange(6).reshape(2, 3)}, weights, {"note": "text"})
    settings = b'[project]\nname = "x"\n\n[tool.conformance]\nimpl = "model.py:X"\nbudget = "quick"\n'
    x = mg.tensor(np.ones((2, 3), np.float32), requires_grad=True)
    listing = str(mg.trace(lambda a: mg.softmax(a @ a.T, dim=-1)[0:1].sum())(x))
    return {
        "weights": Reader(weights.read_bytes(), load_file, (FormatError,)),
        "metadata": Reader(weights.read_bytes(), load_metadata, (FormatError,)),
        "report": Reader(json.dumps(a_report()).encode(), read_reports, (ReportError,)),
        "settings": Reader(settings, lambda path: read_settings(path.parent), (SettingsError,), "pyproject.toml"),
        "listing": Reader(listing.encode(), _listing, (ValueError, KeyError)),
    }


def _listing(path: Path) -> object:
    return parse(path.read_bytes().decode("utf-8", "replace"))


def mutated(whole: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, cut, doubled, moved, or replaced by what readers trip over."""
    data = bytearray(whole)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + chance.choice((0, 1, 1, 2, 8, 64)))
        match chance.randrange(6):
            case 0:
                data[start:end] = chance.randbytes(end - start)
            case 1:
                del data[start:end]
            case 2:
                data[start:start] = data[start:end] * chance.choice((1, 2, 50))
            case 3:
                data[start:end] = chance.choice(WORDS)
            case 4:
                data = data[:start]
            case 5:
                other = chance.randrange(len(data) + 1)
                data[start:end] = data[other : other + end - start]
    return bytes(data)


def refused(reader: Reader, data: bytes, folder: Path) -> bool:
    """Whether the reader refuses a file of these bytes. Any exception that is not documented comes out."""
    path = folder / reader.file
    path.write_bytes(data)
    try:
        reader.read(path)
    except reader.refusals:
        return True
    return False


class _Hangs(BaseException):
    """A reader has used up its time. No Exception, so that no reader takes it for an error of its own."""


def _late(number: int, frame: FrameType | None) -> None:
    raise _Hangs(f"not read in {SECONDS} s")


def _run(job: tuple[int, float]) -> tuple[Counter[str], list[str]]:
    """Break files of a seed until the minutes are over. Returns how many were read and refused, and what broke."""
    seed, minutes = job
    chance = random.Random(f"files {seed}")
    counts: Counter[str] = Counter()
    broken: list[str] = []
    begin = time.process_time()
    signal.signal(signal.SIGPROF, _late)
    with tempfile.TemporaryDirectory() as name:
        all_readers = readers(Path(name))
        while time.process_time() - begin < 60 * minutes and len(broken) < 20:
            for kind, reader in all_readers.items():
                data = mutated(reader.whole, chance)
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                try:
                    counts[f"{kind}: refused" if refused(reader, data, Path(name)) else f"{kind}: read"] += 1
                except (Exception, _Hangs) as error:
                    broken.append(f"{kind}: {type(error).__name__}: {error!s:.200} for {data!r:.2000}")
                signal.setitimer(signal.ITIMER_PROF, 0)
    counts["seconds of processor time"] = round(time.process_time() - begin)
    return counts, broken


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz.files", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="processor time of each process (default 1)")
    parser.add_argument("--processes", type=int, default=1, help="how many at once (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="of the first minute; the others have the next (0)")
    options = parser.parse_args(arguments)
    if options.minutes <= 0 or options.processes < 1:
        parser.error("--minutes must be above 0, and --processes 1 or more: else no file is broken")
    counts: Counter[str] = Counter()
    broken: list[str] = []
    each = min(1.0, options.minutes)
    jobs = [(options.seed + i, each) for i in range(round(options.minutes / each) * options.processes)]
    with (
        multiprocessing.get_context("spawn").Pool(options.processes) as pool,
        Progress(console=Console(stderr=True)) as progress,
    ):
        bar = progress.add_task("breaking files", total=len(jobs))
        for found, wrong in pool.imap_unordered(_run, jobs):
            counts += found
            broken += wrong
            progress.update(bar, advance=1, description=f"{len(broken)} broke")
    for what in broken:
        print(what)
    for kind, count in sorted(counts.items()):
        print(f"{kind} {count}")
    print(f"{len(broken)} broke")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
