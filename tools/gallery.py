"""The gallery of mistakes: `python -m tools.gallery` runs each and writes docs/gallery.md.

A mistake is one edit of a model of docs/tutorials (tools/gallery.toml). The suite is run on the file as on any other:
nothing tells it what was changed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import track

from conformance.heatmap import heat_maps
from tools.tutorials import DOCS, Tutorial

LIST = Path(__file__).with_suffix(".toml")
PAGE = DOCS / "gallery.md"

HEAD = """# A gallery of mistakes

This page shows what the suite says about typical mistakes in Transformers. It is for everybody who wants to know what
the suite can find.

Each mistake is one wrong line in a model that still runs and trains. Each part of the page shows the line, why Python
and torch accept it, and the first thing that the suite says. The right models are those of the tutorials: {models}.

The suite gets each file as it is:

```text
pytest --pyargs conformance --impl FILE:CLASS
```

It fails {found} of the {all} mistakes. The others can be intended, as their parts explain. For {lines} of the {found}
the suite names the wrong line itself. For the others it names a line near it: a call, or the first line of the
component.

`python -m tools.gallery` runs all of them and writes this page.
"""


@dataclass(frozen=True)
class Mistake:
    """One edit of a tutorial's model. `wrong` takes the place of `right`, which the mended file has once."""

    model: str
    title: str
    right: str
    wrong: str
    why: str

    @property
    def tutorial(self) -> Tutorial:
        return Tutorial((DOCS / "tutorials" / f"{self.model}.md").read_text(encoding="utf-8"))

    @property
    def code(self) -> str:
        """The file with the mistake. Raises ValueError where the right line is not in it once."""
        mended = self.tutorial.mended
        if mended.count(self.right) != 1:
            raise ValueError(
                f"{self.title!r}: the line is {mended.count(self.right)} times in {self.model}: {self.right}"
            )
        return mended.replace(self.right, self.wrong)

    @property
    def line(self) -> int:
        """The number of the edited line, from 1."""
        return self.tutorial.mended.partition(self.right)[0].count("\n") + 1


def mistakes() -> list[Mistake]:
    """Those of gallery.toml, in its order."""
    return [Mistake(**values) for values in tomllib.loads(LIST.read_text(encoding="utf-8"))["mistake"]]


def run_suite(mistake: Mistake, claims: Sequence[str] = ()) -> dict[str, Any]:
    """The suite's report as JSON on the file with the mistake; of some claims only, where they are named."""
    file, name = mistake.tutorial.pointed
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, file).write_text(mistake.code, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "--pyargs", "conformance", "-q", "-p", "no:cacheprovider"]
        command += ["--impl", f"{file}:{name}", "--claims-report", "report.json"]
        command += ["--claims", ",".join(claims)] if claims else []
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        report = Path(folder, "report.json")
        if not report.is_file():
            raise ValueError(f"{mistake.title!r}: the run tested nothing:\n{ran.stdout}{ran.stderr}")
        return json.loads(report.read_text(encoding="utf-8"))


def first_failure(report: dict[str, Any]) -> dict[str, Any] | None:
    """What the suite says first; None where it finds nothing."""
    return next((claim for claim in report["claims"] if claim["verdict"] == "FAIL"), None)


def says(claim: dict[str, Any]) -> str:
    """What is wrong, as the terminal's headline has it."""
    return claim["diagnosis"] or claim["message"] or claim["says"].strip()


def names_the_line(mistake: Mistake, claim: dict[str, Any]) -> bool:
    return claim["place"].startswith(f"{mistake.tutorial.pointed[0]}:{mistake.line}:") or claim["place"].startswith(
        f"{mistake.tutorial.pointed[0]}:{mistake.line} "
    )


def section(mistake: Mistake, claim: dict[str, Any] | None) -> str:
    """The mistake's part of the page."""
    file = mistake.tutorial.pointed[0]
    lines = [f"## {mistake.title}", "", f"`{file}`, line {mistake.line}:", "", "```diff"]
    lines += [f"-{line.strip()}" for line in mistake.right.splitlines()]
    lines += [f"+{line.strip()}" for line in mistake.wrong.splitlines()]
    lines += ["```", "", mistake.why, ""]
    if claim is None:
        return "\n".join([*lines, "**The suite does not fail it.**", ""])
    told = [f"FAIL {says(claim)}"]
    fields = [("at", claim["place"]), ("mend", claim["mend"])]
    if claim["what"]:
        fields += [("expected", f"{claim['what']}: {claim['expected']}"), ("got", claim["got"])]
    told += [f"    {name:8}  {text}" for name, text in fields if text]
    told += [f"              {line}" for line in heat_maps(claim["pictures"])]
    told += [f"    claim     {claim['slug']}"]
    return "\n".join([*lines, "```text", *told, "```", ""])


def page(found: Sequence[tuple[Mistake, dict[str, Any] | None]]) -> str:
    """The page, of every mistake with what the suite says of it first."""
    models = dict.fromkeys(mistake.model for mistake, _ in found)
    head = HEAD.format(
        models=", ".join(f"[{model}](tutorials/{model}.md)" for model in models),
        found=sum(claim is not None for _, claim in found),
        all=len(found),
        lines=sum(claim is not None and names_the_line(mistake, claim) for mistake, claim in found),
    )
    return "\n".join([head, *(section(mistake, claim) for mistake, claim in found)])


def main() -> None:
    found = [(mistake, first_failure(run_suite(mistake))) for mistake in track(mistakes(), "mistakes")]
    PAGE.write_text(page(found), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
