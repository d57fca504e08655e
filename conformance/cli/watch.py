"""Run a training script, watch its first steps, and say what is wrong with the training.

The script runs unmodified, as `python train.py` would, in a process of its own, with your terminal as its own. It is
ended after half a minute, when 20 optimizer steps were made by then, or else as --steps and --seconds say. Then the
claims about training are tested on what happened. Its numbers are what they are without watching.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.report import FORMS, write_reports
from conformance.summary import summary_lines
from conformance.verdict import Result
from conformance.watch.launching import LAUNCHERS
from conformance.watch.libraries import LIBRARIES
from conformance.watch.watcher import PATIENCE

HELP = "run a training script and test the claims about training on it"
EXAMPLES = """  conformance watch train.py                           for half a minute, and 20 optimizer steps at least
  conformance watch --steps 100 train.py --lr 1e-3     more steps; what follows the script is its own
  conformance watch -m package.train                   as python -m runs it
  conformance watch torchrun --nproc-per-node 1 t.py   as torchrun runs it, in one process
  conformance watch --claims-report run.html train.py  also as a page (.json and .sarif: for programs)
"""

LEAST, STEPS, SECONDS = 20, 500, 120.0
"""Optimizer steps that are watched, at least and at most, where --steps says nothing; and when watching ends anyway."""

LINES = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--steps", type=int, metavar="N", help=f"optimizer steps (default: {PATIENCE:g} s, and {LEAST} steps at least)"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help=f"at most (default {SECONDS:g})")
    parser.add_argument("--until", choices=("epoch", "eval"), default="", help="watch until the first one is over")
    parser.add_argument(
        "--resume-check",
        metavar="OPTIONS",
        help="run the script again with these options, which make it go on from its checkpoint, and compare",
    )
    parser.add_argument("--claims-report", type=Path, metavar="FILE", help="write .html, .json or .sarif, too")
    parser.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is a module, as python -m takes it")
    parser.add_argument("script", metavar="SCRIPT", help="the training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the script's own arguments")


def run(arguments: argparse.Namespace) -> int:
    problem = _problem(arguments)
    if problem:
        print(f"conformance watch: {problem}", file=sys.stderr)
        return 2
    seen = _watched(arguments)
    if isinstance(seen, str):
        print(f"conformance watch: {seen}", file=sys.stderr)
        return 2
    from conformance.watch.verdicts import command_of, report_of

    results = {one["claim"]: Result.from_json(one) for one in seen["results"]}
    if arguments.resume_check is not None:
        print(f"--- resume check: {_resumed(arguments, seen, results)}")
    words = ["-m"] * arguments.is_module + [arguments.script, *arguments.arguments]
    report = report_of(arguments.script, command_of(words), results, course=seen["course"])
    print(f"\n--- watched {arguments.script}: {seen['steps']} optimizer steps; {seen['ended']}")
    if not report.tested:
        print("NOT TESTED: nothing was seen that trains: no optimizer of torch or minigrad stepped")
        return 2
    print("\n".join(summary_lines(report, LINES)))
    if arguments.claims_report:
        write_reports([report], arguments.claims_report)
    return 1 if report.broken else 0


def _problem(arguments: argparse.Namespace) -> str:
    """What is wrong with the command line, in a sentence; empty when nothing is."""
    is_file = arguments.is_module or arguments.script in LAUNCHERS or Path(arguments.script).is_file()
    if not is_file:
        return f"there is no file {arguments.script}; give the script that you would run with python"
    if (arguments.steps is not None and arguments.steps < 1) or arguments.seconds <= 0:
        return "--steps and --seconds must be above zero"
    if arguments.claims_report and arguments.claims_report.suffix not in FORMS:
        return f"--claims-report takes a file that ends in {', '.join(FORMS)}, not {arguments.claims_report.name!r}"
    if arguments.claims_report and not arguments.claims_report.absolute().parent.is_dir():
        return f"--claims-report: there is no folder {arguments.claims_report.absolute().parent}"
    if all(importlib.util.find_spec(name) is None for name in LIBRARIES):
        return "it watches torch and minigrad, and none is installed here; install one, as with pip install torch"
    return ""


RESUMED = "run-resumed-equals-not-stopped"
COMPARED = 5
"""So many steps of a run that goes on are compared."""


def _resumed(arguments: argparse.Namespace, seen: Mapping[str, Any], results: dict[str, Result]) -> str:
    """Run the script again, from its last checkpoint, and put the verdict on it into the results. What happened."""
    saved, moments = seen["saved_at"], seen["moments"]
    if saved is None:
        return "not made: no checkpoint was written by torch.save while the script was watched"
    if saved >= len(moments):
        return "not made: no step was watched after the last checkpoint; give more --steps"
    began = time.perf_counter()
    again = _watched(arguments, shlex.split(arguments.resume_check), moments[saved : saved + COMPARED])
    if isinstance(again, str):
        return again
    found = {one["claim"]: Result.from_json(one) for one in again["results"]}
    results[RESUMED] = found[RESUMED]
    seconds = time.perf_counter() - began
    return f"the step after the checkpoint of step {saved} was made again, in {seconds:.1f} s of its own"


def _watched(
    arguments: argparse.Namespace, more: Sequence[str] = (), expected: Sequence[Mapping[str, str]] = ()
) -> dict[str, Any] | str:
    """What the process that runs the script saw; a sentence when it says nothing. more: options that the script gets
    besides. expected: what its first steps should begin from."""
    own = str(Path(__file__).parents[2])
    order = {
        "script": arguments.script,
        "arguments": [*arguments.arguments, *more],
        "is_module": arguments.is_module,
        "steps": len(expected) or arguments.steps or (None if arguments.until else STEPS),
        "least": None if expected or arguments.steps or arguments.until else LEAST,
        "until": arguments.until,
        "keeps_moments": arguments.resume_check is not None,
        "expected": list(expected),
        "seconds": arguments.seconds,
        "hidden": [] if own.endswith("-packages") else [own],
    }
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        start = f"import sys; sys.path.insert(0, {own!r}); from conformance.watch.child import main; main(sys.argv[1:])"
        process = subprocess.Popen([sys.executable, "-c", start, str(answer), json.dumps(order)])
        code = _waited(process, arguments.seconds)
        if answer.is_file():
            values: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
            return values
    if code is None:
        return f"{arguments.script} did not end {GRACE:g} s after its {arguments.seconds:g} s were over, and was killed"
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended its process with exit code {code}"
    return f"{arguments.script} {how}, before anything could be said of it"


GRACE = 60.0
"""How long the process may take to end, and to test the claims, when its time is over."""


def _waited(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit code of the process; None when it had to be killed. Ctrl-C ends the script, not the report on it."""
    while True:
        try:
            return process.wait(seconds + GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None
        except KeyboardInterrupt:
            continue
