"""`python -m tools.bench JOB [SIZE ...]`: see `python -m tools.bench --help`."""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console
from rich.table import Table

from tools.bench.models import SIZES
from tools.bench.timing import Result, machine

JOBS = ("train", "decode", "attention", "ops", "all")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description="Time minigrad side by side with torch, in one run and in turns; compare medians.",
        epilog="examples:\n  python -m tools.bench train tiny small\n  python -m tools.bench attention --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", choices=JOBS, nargs="?", default="all")
    parser.add_argument("sizes", nargs="*", help="of train: a GPT size, documents; of decode: tiny, nano")
    parser.add_argument("--against", default="torch", help="torch, torch.compile, or both with a comma (torch)")
    parser.add_argument("--seconds", type=float, default=10.0, help="time for each comparison (10)")
    parser.add_argument("--json", action="store_true", help="print a list of objects instead of a table")
    options = parser.parse_args(arguments)
    unknown = set(options.sizes) - {*SIZES, "documents"}
    if unknown:
        parser.error(f"no size {', '.join(sorted(unknown))}: choose from {', '.join(SIZES)}, documents")
    options.against = options.against.split(",")
    unknown = set(options.against) - {"torch", "torch.compile"}
    if unknown:
        parser.error(f"--against {', '.join(sorted(unknown))}: choose torch, torch.compile, or both")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        import torch  # noqa: F401
    except ImportError:
        print("the benchmark compares with torch, which is not installed: pip install torch", file=sys.stderr)
        return 2
    from tools.bench import attention, decode, ops, train

    results: list[Result] = []
    if options.job in ("train", "all"):
        results += train.run(options.sizes or [*SIZES, "documents"], options.against, options.seconds)
    if options.job in ("decode", "all"):
        names = options.sizes or ["tiny", "nano"]
        results += decode.run(names, options.against, options.seconds)
    if options.job in ("attention", "all"):
        results += attention.run(options.against, options.seconds)
    if options.job in ("ops", "all"):
        results += ops.run(options.against, options.seconds)
    if options.json:
        print(json.dumps([result.row() for result in results], indent=2))
        return 0
    console = Console()
    console.width = max(console.width, 130)
    console.print("  ".join(f"{key} {value}" for key, value in machine().items()), style="dim")
    table = Table("job", "against", "ratio", "ours ms", "theirs ms", "spread", "verdict", "notes")
    for column in table.columns:
        column.no_wrap = True
    for r in results:
        table.add_row(
            r.job, r.against, f"{r.ratio:.2f}", f"{r.ours_ms:.2f}", f"{r.theirs_ms:.2f}", f"{r.spread:.0%}", r.verdict,
            r.notes,
        )  # fmt: skip
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
