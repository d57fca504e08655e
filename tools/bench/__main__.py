"""`python -m tools.bench JOB [NAME ...]`: see `python -m tools.bench --help`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import warnings
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tools.bench import gpu, llama, page, plot
from tools.bench.timing import Result, machine, use_threads

LLAMA = "llama.cpp"  # decodes the LLaMA, as torch does the others
AGAINST = ("torch", "torch.compile", LLAMA)
JOBS = ("train", "decode", "attention", "memory", "ops", "startup", "all")
NAMES = {
    "train": ("tiny", "small", "nano", "mid", "documents"),
    "decode": ("tiny", "nano", "gpt2", "llama"),
    "gpu": tuple(gpu.ROWS),
}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description="Time minigrad side by side with torch, in one run and in turns; compare medians.",
        epilog="examples:\n  python -m tools.bench train tiny small\n  python -m tools.bench attention --json\n"
        "  python -m tools.bench train nano --breakdown\n"
        "  python -m tools.bench decode llama --against llama.cpp",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "job", choices=(*JOBS, "gpu"), nargs="?", default="all", help="gpu needs one; all leaves it out"
    )
    parser.add_argument(
        "names", nargs="*", help="; ".join(f"of {job}: {', '.join(names)}" for job, names in NAMES.items())
    )
    parser.add_argument(
        "--against", default="torch", help=f"some of {', '.join(AGAINST)}, with commas (torch); llama.cpp: decode llama"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="time for each comparison (10)")
    parser.add_argument("--threads", type=int, default=2, help="threads for both sides (2)")
    parser.add_argument("--json", action="store_true", help="print a list of objects instead of a table")
    parser.add_argument("--breakdown", action="store_true", help="of train or decode: our time by kind of op, no torch")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the ratios as an SVG")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write the results into a page (docs/speed.md; gpu: docs/cuda.md)"
    )
    options = parser.parse_args(arguments)
    known = NAMES.get(options.job, ())
    unknown = set(options.names) - set(known)
    if unknown:
        parser.error(f"{options.job} has no {', '.join(sorted(unknown))}: choose from {', '.join(known) or 'nothing'}")
    if options.breakdown and options.job not in ("train", "decode"):
        parser.error("--breakdown needs the job train or decode")
    options.against = options.against.split(",")
    unknown = set(options.against) - set(AGAINST)
    if unknown:
        parser.error(f"--against {', '.join(sorted(unknown))}: choose from {', '.join(AGAINST)}")
    if LLAMA in options.against and options.job != "decode":
        parser.error(f"--against {LLAMA}: it only decodes, so choose the job decode")
    if options.breakdown or LLAMA not in options.against:
        if "llama" in options.names:
            parser.error(f"decode llama is timed beside {LLAMA}: give --against {LLAMA}, without --breakdown")
        known = tuple(name for name in known if name != "llama")
    options.names = options.names or list(known)
    return options


def measure(options: argparse.Namespace) -> list[Result]:
    """The comparisons of a job, or of all."""
    from tools.bench import attention, decode, memory, ops, startup, train

    wanted = JOBS[:-1] if options.job == "all" else (options.job,)
    results: list[Result] = []
    for job in wanted:
        names = options.names or NAMES.get(job, ())
        if job == "train":
            results += train.run(names, options.against, options.seconds)
        elif job == "decode":
            if set(options.against) != {LLAMA}:
                results += decode.run([n for n in names if n != "llama"], options.against, options.seconds)
            if LLAMA in options.against and "llama" in names:
                results += llama.run(options.seconds)
        else:
            module = {"attention": attention, "memory": memory, "ops": ops, "startup": startup}[job]
            results += module.run(options.against, options.seconds)
    return results


def show_breakdown(options: argparse.Namespace, console: Console) -> None:
    """Our time by kind of op, for every name of the job."""
    from tools.bench import decode, train
    from tools.bench.breakdown import by_op

    module: Any = {"train": train, "decode": decode}[options.job]
    for name in options.names:
        rows = by_op(module.plan(name))
        whole = sum(ms for _, _, ms in rows)
        table = Table(
            "op", "calls", "ms", "share", title=f"{options.job} {name}: {whole:.3f} ms, calls timed one by one"
        )
        for op, calls, ms in rows:
            table.add_row(op, str(calls), f"{ms:.3f}", f"{ms / whole:.0%}")
        console.print(table)


def show(results: list[Result], described: dict[str, Any], console: Console) -> None:
    """The machine in one line and a table of results."""
    console.print("  ".join(f"{key} {value}" for key, value in described.items()), style="dim")
    heads = ("job", "against", "ratio", "ours ms", "theirs ms", "spread", "verdict", "of sgemm", "of copy", "notes")
    table = Table(*heads)
    for column in table.columns:
        column.no_wrap = True
    for r in results:
        shares = ("" if share is None else f"{share:.0%}" for share in (r.flops_share, r.bandwidth_share))
        table.add_row(
            r.job, r.against, f"{r.ratio:.2f}", f"{r.ours_ms:.2f}", f"{r.theirs_ms:.2f}", f"{r.spread:.0%}", r.verdict,
            *shares, r.notes,
        )  # fmt: skip
    console.print(table)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        import torch  # noqa: F401
    except ImportError:
        print("the benchmark compares with torch, which is not installed: pip install torch", file=sys.stderr)
        return 2
    if LLAMA in options.against and not llama.there():
        print(llama.MISSING, file=sys.stderr)
        return 2
    if options.job == "gpu":
        return gpu.main(options.names, options.seconds, options.json, options.page)
    warnings.filterwarnings("ignore", module="torch")
    use_threads(options.threads)
    console = Console()
    console.width = max(console.width, 220)
    if options.breakdown:
        show_breakdown(options, console)
        return 0
    results = measure(options)
    described = machine()
    if options.json:
        print(json.dumps([result.row() for result in results], indent=2))
    else:
        show(results, described, console)
    if options.plot:
        options.plot.write_text(
            plot.svg(results, f"{described['processor']}, {options.threads} threads"), encoding="utf-8"
        )
    if options.page:
        command = "python -m tools.bench " + shlex.join(sys.argv[1:] if arguments is None else arguments)
        page.write(options.page, page.section(results, described, command))
    return 0


if __name__ == "__main__":
    sys.exit(main())
