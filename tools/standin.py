"""Hold the stand-in for torch to torch: `python -m tools.standin PATH... [--repositories SOURCES] [--markdown FILE]`.

PATH is a folder of the documents as text, whose Python listings are cut out, or a Python program. SOURCES holds a git
checkout of every repository of `tools/standin.toml`, as `tools.zoo` has them. Each program runs twice, in processes of
their own, on torch and on minigrad.torch. What would make numbers differ for no reason is made the same: weights (the
state dict of a module when it is first called is written to a file by the first run and loaded, by name, by the
second), random data and dropout (drawn by numpy), the clock, and the order of sets. Compared are the numbers that the
program prints, the outputs of every module that it calls, and, for listings that only define, the outputs and gradients
of their classes and functions on small inputs. Nothing of the documents is kept.
"""

from __future__ import annotations

import argparse
import ast
import os
import pickle
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tools.listings import cut, definitions, number_of
from tools.zoo.table import commit_of, folder_name
from tools.zoo.trial import PACKAGES, importable

ROOT = Path(__file__).resolve().parent.parent
TABLE, PROGRAMS = ROOT / "tools" / "standin.toml", ROOT / "tools" / "programs"
RELATIVE = 1e-4  # of an output's largest value: float32 sums in another order, through a few layers and updates
LEAST = 1e-2  # an output that is zero but for rounding (the gradient of a key's bias) has no scale of its own
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*\.?\d*(?:e[-+]?\d+)?|inf|nan)", re.IGNORECASE)


@dataclass(frozen=True)
class Program:
    """A listing or a file. driven: definitions of its own to call, since nothing in it runs them."""

    name: str
    place: str
    source: str
    driven: tuple[str, ...] = ()
    path: tuple[Path, ...] = ()  # folders that it imports from


@dataclass(frozen=True)
class Row:
    """What came of a program: how much was compared, the largest difference relative to what it is part of."""

    program: Program
    verdict: str
    outputs: int = 0
    numbers: int = 0
    difference: float = 0.0


def programs(path: Path) -> Iterator[Program]:
    """The program that `path` is, or the listings of the documents in it that use torch."""
    if path.suffix == ".py":
        yield Program(path.stem, "-", path.read_text(encoding="utf-8"))
        return
    for document in sorted(p for p in path.iterdir() if p.suffix in (".txt", ".md")):
        for line, before, body in cut(document):
            source = "\n\n".join(ast.unparse(node) for node in [*before, *body])
            kept = definitions(body)
            used = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name)}
            if used & {"torch", "nn", "F"}:
                names = [node.name for node in kept if isinstance(node, ast.ClassDef | ast.FunctionDef)]
                runs = len(kept) < len(body) and any(isinstance(node, ast.If) for node in body)
                yield Program(number_of(document), str(line), source, () if runs else tuple(names))


@dataclass(frozen=True)
class Stranger:
    """An entry of tools/standin.toml, which says what the fields are."""

    program: str
    repository: str
    commit: str
    files: tuple[str, ...]
    folders: tuple[str, ...] = (".",)
    needs: tuple[str, ...] = ()
    why: str = ""

    def missing(self, sources: Path) -> list[str]:
        """The packages that are neither installed nor in the packages of SOURCES."""
        return [name for name in self.needs if not importable(name, sources)]

    def found(self, sources: Path) -> Program:
        """What to run. Raises ValueError where the checkout is missing, at another commit, or changed."""
        folder = sources / folder_name(self.repository)
        if commit_of(folder) != self.commit:
            raise ValueError(f"{folder} does not stand at {self.commit}; check it out")
        command = ["git", "-C", str(folder), "status", "--porcelain", "--", *self.files]
        told = subprocess.run(command, capture_output=True, check=False)
        if told.returncode or told.stdout:
            raise ValueError(f"{folder} has changes in {', '.join(self.files)}; the files must be as published")
        file = folder / self.program if self.program in self.files else PROGRAMS / self.program
        path = [sources / PACKAGES, *[folder / part for part in self.folders]]
        name = f"{self.repository}: {', '.join(self.files)}"
        return Program(name, self.commit[:7], file.read_text(encoding="utf-8"), path=tuple(p.resolve() for p in path))


def strangers() -> list[Stranger]:
    """The entries of tools/standin.toml."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["program"]
    return [Stranger(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}) for row in rows]


def run(program: Program, folder: Path, path: Sequence[Path], limit: float) -> Row:
    """Run a program on both and compare."""
    file = folder / "program.py"
    file.write_text(program.source, encoding="utf-8")
    found = []
    for side in ("torch", "minigrad.torch"):
        result = folder / f"{side}.pickle"
        result.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tools.standin_run", side, str(file), str(folder), str(result)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *program.path, *path])),
            "PYTHONHASHSEED": "0",  # the order of sets
            "MPLBACKEND": "agg",  # pictures that a program shows open no window
        }
        try:
            subprocess.run(
                [*command, *program.driven], env=environment, cwd=folder, timeout=limit, check=True, capture_output=True
            )
        except subprocess.TimeoutExpired:
            return Row(program, f"{side}: not done after {limit:g} s")
        except subprocess.CalledProcessError as error:
            return Row(program, f"{side}: " + error.stderr.decode(errors="replace").strip().splitlines()[-1][:300])
        with result.open("rb") as stream:
            found.append(pickle.load(stream))
    return compare(program, *found)


def compare(program: Program, reference: dict[str, Any], ours: dict[str, Any]) -> Row:
    """The verdict on what two runs recorded: {"text": printed, "outputs": [(name, array)], "errors": [why]}."""
    errors, other = ("; ".join(side["errors"]) for side in (reference, ours))
    if errors and not reference["outputs"] and not reference["text"]:
        return Row(program, f"does not run on torch ({errors})")
    if errors != other:
        return Row(program, f"torch: {errors or 'runs'}; minigrad.torch: {other or 'runs'}")
    names = [[name for name, _ in side["outputs"]] for side in (reference, ours)]
    if names[0] != names[1]:
        return Row(program, f"other outputs: {names[0]} and {names[1]}")
    worst = 0.0
    for (name, expected), (_, got) in zip(reference["outputs"], ours["outputs"], strict=True):
        if expected.shape != got.shape:
            return Row(program, f"{name}: shape {expected.shape} on torch, {got.shape} here")
        worst = max(worst, difference(expected, got))
    printed = [numbers(side["text"]) for side in (reference, ours)]
    if len(printed[0]) != len(printed[1]):
        return Row(program, f"prints {len(printed[0])} numbers on torch, {len(printed[1])} here")
    for expected, got in zip(*printed, strict=True):
        if not np.isclose(expected, got, rtol=1e-3, atol=2e-4, equal_nan=True):  # printed with four digits
            return Row(program, f"prints {expected} on torch, {got} here")
    verdict = "equal" if worst <= RELATIVE else "differs"
    if not reference["outputs"] and not printed[0]:
        verdict = "runs; nothing to compare"
    elif errors:
        verdict += f" (a part runs on neither: {errors})"
    return Row(program, verdict, len(reference["outputs"]), len(printed[0]), worst)


def difference(expected: np.ndarray, got: np.ndarray) -> float:
    """The largest difference over the largest finite value; infinite where NaN or infinities stand elsewhere."""
    finite = np.isfinite(expected)
    if not np.array_equal(np.where(finite, 0, expected), np.where(np.isfinite(got), 0, got), equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    expected, got = expected[finite].astype(np.float64), got[finite].astype(np.float64)
    return float(np.abs(expected - got).max() / max(np.abs(expected).max(), LEAST))


def numbers(text: str) -> list[float]:
    """The numbers of a text, in order."""
    return [float(found.replace(",", "") or "nan") for found in _NUMBER.findall(text.replace(", ", " "))]


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| program | listing at line | outputs | printed numbers | largest difference | verdict |",
        "|---" * 6 + "|",
    ]
    for row in rows:
        much = f"{row.difference:.1e}" if row.outputs else "-"
        verdict = row.verdict.replace("|", "/")
        lines.append(
            f"| {row.program.name} | {row.program.place} | {row.outputs} | {row.numbers} | {much} | {verdict} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when everything that runs on torch gives the same on the stand-in, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tools.standin", description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="folder of the documents, or program.py")
    parser.add_argument("--repositories", type=Path, help="folder of checkouts: run all of tools/standin.toml, too")
    parser.add_argument("--path", action="append", default=[], type=Path, help="folder that the programs import from")
    parser.add_argument("--markdown", type=Path, help="write the table to this file, too")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one run of a program (default 600)")
    options = parser.parse_args(arguments)
    for path in options.paths:
        if not path.exists():
            parser.error(f"there is no {path}")
    if not options.paths and not options.repositories:
        parser.error("give a PATH, or --repositories")
    found = [program for path in options.paths for program in programs(path)]
    try:
        found += [s.found(options.repositories) for s in strangers() if options.repositories]
    except ValueError as error:
        parser.error(str(error))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for program in found:
            rows.append(run(program, Path(folder), [p.resolve() for p in options.path], options.limit))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    if options.markdown:
        options.markdown.write_text(_page(table(rows)), encoding="utf-8")
    return int(not all(row.verdict.startswith(("equal", "runs;", "does not run on torch")) for row in rows))


HEAD = f"""# Run a PyTorch file on minigrad

minigrad has a stand-in for torch: a package with torch's names. It runs files that are written for PyTorch,
unchanged. This page is for everybody who wants to see how minigrad computes a program that they know from torch.

Run a script:

```text
python -m minigrad.torch script.py
```

In your own code, write this line in place of `import torch`:

```python
import minigrad.torch as torch
```

If a file uses a name or an option that the stand-in does not have, it raises an error that names it. Three things
differ from torch. Shapes are tuples and dtypes are numpy's, so both print in another way. The random numbers are
minigrad's own, so the same seed gives other numbers. And if a bool mask hides all keys of a row, the row is not NaN.

## Results: the same programs on torch and on the stand-in

Each program below ran unchanged on torch and on `minigrad.torch`, from the same weights, data and dropout masks. The
programs are the listings of the documents that use torch, and files of public repositories (`tools/standin.toml`
names them).

- The second column is the line of the listing, or the first 7 digits of the repository's commit.
- An output is what a module or a function returns, or a gradient.
- A difference is divided by the largest value of the output (at least {LEAST:g}). It may be {RELATIVE:g} at most.

`tests/minigrad/test_torch_standin_transformer.py` also compares `nn.MultiheadAttention` and `nn.Transformer` with
torch's. They agree to 1e-9 in float64, with every kind of mask.
"""
TAIL = """
To make this table again:

```text
python -m tools.standin FOLDER --repositories SOURCES --markdown docs/standin.md
```

FOLDER holds the documents as text. SOURCES holds a checkout of each repository, at its commit, in the folder
`owner+name`.
"""


def _page(rows: str) -> str:
    return f"{HEAD}\n{rows}\n{TAIL}"


if __name__ == "__main__":
    sys.exit(main())
