"""Run `conformance watch` on public training scripts that are right: `python -m tools.right_scripts SOURCES`.

SOURCES holds a git repository of each name in `tools/right_scripts.toml`, as `owner+name` or `owner+name/repo`. Each
script is taken out at its commit and gets small data that are made here. It runs with its own options, in its own
process. Every FAIL is a false word. The scripts of the sealed part show only how many there were.

The packages that the scripts import must be installed in the Python that runs this.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LIST = Path(__file__).with_suffix(".toml")
ROOT = str(Path(__file__).parents[1])
TEXT = (".py", ".yaml", ".yml", ".txt", ".json", ".cfg")
SECONDS = 100
WORDS = (
    "the",
    "small",
    "old",
    "red",
    "house",
    "tree",
    "river",
    "bird",
    "sees",
    "finds",
    "likes",
    "near",
    "and",
    "then",
)


@dataclass(frozen=True)
class Entry:
    """A script at a commit of a repository. folder: where it runs. module: what `-m` gets, in place of the path.
    seen: somebody has read why it failed, so that it is sealed no more."""

    repository: str
    path: str
    commit: str
    arguments: str = ""
    folder: str = ""
    python_path: str = ""
    module: str = ""
    data: tuple[str, ...] = ()
    seen: bool = False

    @property
    def name(self) -> str:
        kind = self.arguments.partition("--model ")[2] or self.arguments.partition("--type ")[2]
        return f"{self.repository} {self.path}{' ' + kind.split()[0] if kind else ''}"

    @property
    def is_sealed(self) -> bool:
        return not self.seen and hashlib.sha256(self.name.encode()).digest()[0] % 2 == 0


def entries() -> list[Entry]:
    table = tomllib.loads(LIST.read_text(encoding="utf-8"))
    rows = ({**row, "data": tuple(row.get("data", ()))} for row in table["script"])
    return [Entry(commit=table["commits"][row["repository"]], **row) for row in rows]


def take_out(entry: Entry, sources: Path, folder: Path) -> str:
    """Write the small text files of a repository at the entry's commit; what is missing, in a sentence, or nothing."""
    at = sources / entry.repository.replace("/", "+", 1)
    git = ["git", "-C", str(at / "repo" if (at / "repo").is_dir() else at)]
    listed = subprocess.run([*git, "ls-tree", "-r", "-l", entry.commit], capture_output=True, text=True)
    if listed.returncode:
        return f"{at} has no commit {entry.commit}"
    for line in listed.stdout.splitlines():
        fields, _, name = line.partition("\t")
        size = fields.split()[3]
        if name.endswith(TEXT) and size.isdigit() and int(size) < 400_000:
            found = subprocess.run([*git, "show", f"{entry.commit}:{name}"], capture_output=True)
            if found.returncode == 0:
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(found.stdout)
    return ""


def make(order: str, folder: Path) -> None:
    """Make the data of an order such as "text input.txt". Raises ValueError for an unknown kind."""
    kind, *names = order.split()
    draw = np.random.default_rng(0)
    path = folder / names[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "text":
        path.write_text("\n".join(_sentences(draw, 800)), encoding="utf-8")
    elif kind == "pairs":
        rows = _sentences(draw, 400)
        path.write_text("\n".join(f"{a}\t{b}" for a, b in zip(rows[::2], rows[1::2], strict=True)), encoding="utf-8")
    elif kind == "names":
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
        rows = ["".join(draw.choice(letters, draw.integers(3, 12))) for _ in range(1500)]
        path.write_text("\n".join(rows), encoding="utf-8")
    elif kind == "corpus":
        path.mkdir(exist_ok=True)
        for part, count in (("train", 200), ("valid", 40), ("test", 40)):
            (path / f"{part}.txt").write_text("\n".join(_sentences(draw, count)) + "\n", encoding="utf-8")
    elif kind == "characters":
        path.mkdir(exist_ok=True)
        text = "\n".join(_sentences(draw, 800))
        letters = sorted(set(text))
        ids = np.array([letters.index(letter) for letter in text], dtype=np.uint16)
        ids[: len(ids) * 9 // 10].tofile(path / "train.bin")
        ids[len(ids) * 9 // 10 :].tofile(path / "val.bin")
        (path / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": len(letters)}))
    elif kind == "digits":
        _digits(path / "MNIST" / "raw", draw)
    elif kind == "sines":
        import torch

        starts = draw.integers(-80, 80, 20)[:, None]
        torch.save(np.sin((np.arange(200)[None] + starts) / 20.0), path)
    elif kind == "vocabulary":
        code = "from bert_pytorch.dataset.vocab import build; build()"
        order_ = [sys.executable, "-c", code, "-c", names[0], "-o", names[1]]
        subprocess.run(order_, cwd=folder, check=True, capture_output=True)
    else:
        raise ValueError(f"{LIST.name}: there is no data of the kind {kind!r}")


def _sentences(draw: np.random.Generator, count: int) -> list[str]:
    return [" ".join(draw.choice(WORDS, draw.integers(4, 12))) for _ in range(count)]


def _digits(folder: Path, draw: np.random.Generator) -> None:
    """Images of noise with labels, in MNIST's own format."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 400), ("t10k", 80)):
        labels = draw.integers(0, 10, count, dtype=np.uint8)
        images = draw.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        head = np.array([0x801, count], dtype=">i4").tobytes()
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())
        head = np.array([0x803, count, 28, 28], dtype=">i4").tobytes()
        (folder / f"{part}-images-idx3-ubyte").write_bytes(head + images.tobytes())


@dataclass(frozen=True)
class Outcome:
    """What watching a script said. steps: how many were seen; 0 where it did not run. wrong: claims and lines."""

    entry: Entry
    steps: int
    passed: int
    wrong: tuple[tuple[str, str], ...]
    message: str


def watch(entry: Entry, sources: Path) -> Outcome:
    """Run one script, and read the report. What keeps it from running is the outcome's message."""
    with tempfile.TemporaryDirectory() as name:
        folder, report = Path(name) / "checkout", Path(name) / "report.json"
        missing = take_out(entry, sources, folder)
        if missing:
            return Outcome(entry, 0, 0, (), missing)
        for order in entry.data:
            make(order, folder)
        at = folder / entry.folder
        script = ["-m", entry.module] if entry.module else [str((folder / entry.path).relative_to(at))]
        path = os.pathsep.join([ROOT, *([str(folder / entry.python_path)] if entry.python_path else [])])
        environment = {**os.environ, "PYTHONPATH": path, "MPLBACKEND": "Agg", "CUDA_VISIBLE_DEVICES": ""}
        limits = ["--seconds", str(SECONDS), "--claims-report", str(report)]
        order = [sys.executable, "-m", "conformance", "watch", *limits, *script, *shlex.split(entry.arguments)]
        done = subprocess.run(order, cwd=at, env=environment, capture_output=True, text=True)
        said = next((line for line in done.stdout.splitlines() if line.startswith("--- watched")), "")
        if not report.is_file():
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            return Outcome(entry, 0, 0, (), " ".join(last))
        claims = json.loads(report.read_text(encoding="utf-8"))["claims"]
        wrong = tuple((c["slug"], c["place"]) for c in claims if c["verdict"] in ("FAIL", "ERROR"))
        passed = sum(c["verdict"] == "PASS" for c in claims)
        steps = int(said.rpartition(" optimizer")[0].rpartition(" ")[2] or 0)
        return Outcome(entry, steps, passed, wrong, said.rpartition("; ")[2])


def lines_of(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for one in outcomes:
        part = "sealed" if one.entry.is_sealed else "tuning"
        yield f"{part}  {one.steps:3} steps  {one.passed:3} PASS  {len(one.wrong)} FAIL  {one.entry.name}" + (
            f": {one.message}" if not one.steps else ""
        )
        if not one.entry.is_sealed:
            yield from (f"        {slug} at {place}" for slug, place in one.wrong)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.right_scripts", description=__doc__.splitlines()[0])
    parser.add_argument("sources", type=Path, metavar="SOURCES", help="the folder with the repositories")
    parser.add_argument("--only", default="", metavar="TEXT", help="scripts whose name holds TEXT")
    options = parser.parse_args()
    outcomes = []
    for entry in entries():
        if options.only in entry.name:
            outcomes.append(watch(entry, options.sources))
            print("\n".join(lines_of(outcomes[-1:])), flush=True)
    counts = Counter((one.entry.is_sealed, bool(one.steps)) for one in outcomes)
    wrong = sum(len(one.wrong) for one in outcomes)
    ran = counts[True, True] + counts[False, True]
    print(f"{ran} of {len(outcomes)} scripts ran ({counts[True, True]} of them sealed), {wrong} false FAILs")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
