"""Run the suite on public Transformers that nobody wrote for it: `python -m tools.zoo SOURCES --part tuning`.

SOURCES holds a git checkout of every repository of `tools/zoo.toml`, at its commit, in the folder `owner+name`. Each
entry runs as a user would run it, with zero code. Each result is a JSON line of `--results`; printed is a table.

    python -m tools.zoo SOURCES --install           install what the repositories import, into .packages of SOURCES
    python -m tools.zoo SOURCES --part trial        one part
    python -m tools.zoo SOURCES --only owner/name   one repository of that part
    python -m tools.zoo SOURCES --list              the table that the rule of selection makes, to be put into zoo.toml

The parts are `tuning`, to be read and learned from; `trial`, to be run as often as one likes and not read; `sealed`, of
which only verdicts are read, and whose first results count: they are never overwritten.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tools.zoo import figures, listing, table, trial
from tools.zoo.table import Entry, Repository


def listed(sources: Path) -> str:
    """The rows of all checkouts in a folder; what the table says of a repository already (seen, defects) is kept."""
    known = {repository.name: repository for repository in (table.load()[0] if table.TABLE.is_file() else [])}
    rows = []
    for folder in sorted((f for f in sources.iterdir() if (f / ".git").exists()), key=lambda f: f.name.lower()):
        name = folder.name.replace("+", "/", 1)
        before = known.get(name)
        defects = {(e.path, e.entry): e.defects for e in before.entries} if before else {}
        entries = [
            Entry(e.path, e.entry, e.kind, e.takes, defects.get((e.path, e.entry), {})) for e in listing.entries(folder)
        ]
        if entries:
            rows.append(Repository(name, table.commit_of(folder), tuple(entries), before.seen if before else False))
    return "\n\n".join(map(table.text, rows))


def install(sources: Path, packages: Sequence[str]) -> int:
    """Install the packages, without what they depend on, so that torch stays; pip's exit code."""
    target = sources / trial.PACKAGES
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(target)]
    return subprocess.run([*command, *packages], check=False).returncode


def mismatches(repositories: Sequence[Repository], sources: Path) -> list[str]:
    """What is wrong with the checkouts, a sentence each."""
    found = []
    for repository in repositories:
        try:
            commit = table.commit_of(repository.folder(sources))
        except ValueError as error:
            found.append(str(error))
            continue
        if commit != repository.commit:
            found.append(f"{repository.folder(sources)} stands at {commit}; check {repository.commit} out")
    return found


def run_all(
    repositories: Sequence[Repository], options: argparse.Namespace, results: Path, done: set[tuple[str, str]]
) -> None:
    """Run what is not done, several at a time, and append a line for each. In random order: the first are a sample."""
    core = trial.core_claims()
    waiting = [(r, e) for r in repositories for e in r.entries if (r.name, e.impl) not in done]
    waiting = sorted(waiting, key=lambda pair: table.digest(f"{pair[0].name} {pair[1].impl}"))[: options.limit]
    console = Console(stderr=True)
    with (
        results.open("a", encoding="utf-8") as file,
        ThreadPoolExecutor(options.processes) as pool,
        Progress(console=console) as progress,
    ):
        task = progress.add_task(options.part, total=len(waiting))
        runs = [
            pool.submit(trial.run, entry, repository, options.sources, core, options.budget, options.seconds)
            for repository, entry in waiting
        ]
        try:
            for future in as_completed(runs):
                outcome = future.result()
                print(outcome.line(), file=file, flush=True)
                progress.update(task, advance=1, description=outcome.repository)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when the part ran, 2 when it cannot be run as asked."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.zoo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", type=Path, metavar="SOURCES", help="the folder with the checkouts")
    parser.add_argument("--part", choices=table.PARTS, default="tuning")
    parser.add_argument("--only", metavar="OWNER/NAME", help="only this repository of the part")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N entries")
    parser.add_argument("--resume", action="store_true", help="keep the results that are there and run the rest")
    parser.add_argument("--results", type=Path, metavar="FILE", help="the JSON lines (default: SOURCES/PART.jsonl)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table to this file, too")
    parser.add_argument("--budget", default="quick", choices=("quick", "default", "deep"))
    parser.add_argument("--seconds", type=float, default=180, metavar="S", help="the time limit of an entry")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="entries that run at a time")
    parser.add_argument("--list", action="store_true", help="print the table that the rule of selection makes")
    parser.add_argument("--install", action="store_true", help="install what the repositories import")
    options = parser.parse_args(arguments)
    options.sources = options.sources.resolve()
    if not options.sources.is_dir():
        parser.error(f"there is no folder {options.sources}; name the folder that holds the checkouts")
    if options.list:
        print(listed(options.sources))
        return 0
    repositories, packages = table.load()
    if options.install:
        return install(options.sources, packages)
    chosen = [r for r in repositories if r.part == options.part and options.only in (None, r.name)]
    if not chosen:
        parser.error(f"no repository {options.only} is in the part {options.part}; see {table.TABLE.name}")
    if wrong := mismatches(chosen, options.sources):
        parser.error("\n".join(wrong))
    results = options.results or options.sources / f"{options.part}.jsonl"
    if results.exists() and not options.resume:
        if options.part == "sealed":
            parser.error(f"{results} exists, and the first results of the sealed part count; finish it with --resume")
        results.unlink()
    run_all(chosen, options, results, {(o.repository, o.impl) for o in figures.read(results, chosen)})
    outcomes = figures.read(results, chosen)
    text = figures.page(options.part, outcomes)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
