"""Run the tutorials of whole models and put what they print into their pages: `python -m tools.tutorials`.

A page of docs/tutorials holds a file as blocks of Python, the command that tests it, what that prints, the mend as a
diff, and the command again. The first run is shown from the claims on, the second one without what it was taken for.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [page for page in sorted((DOCS / "tutorials").glob("*.md")) if page.stem != "too-well"]
"""The pages of models; the one of a training script is held to its text by the tests of `conformance watch`."""
COLUMNS = 120
LINES = 60
"""The size of the terminal: room for a failure in full."""


@dataclass(frozen=True)
class Tutorial:
    """A page's text, and what it holds."""

    text: str

    @property
    def code(self) -> str:
        """The file with the mistake."""
        return "\n\n".join(_blocks(self.text, "python"))

    @property
    def mended(self) -> str:
        """The file without it. Raises ValueError where the lines of the diff are not in it once."""
        (diff,) = _blocks(self.text, "diff")
        wrong, right = (
            "".join(f"{line[1:]}\n" for line in diff.splitlines() if line.startswith(sign)) for sign in ("-", "+")
        )
        if self.code.count(wrong) != 1:
            raise ValueError(f"the lines that the diff takes away are not in the file, or more than once:\n{wrong}")
        return self.code.replace(wrong, right)

    @property
    def command(self) -> list[str]:
        """The words of the first command, from "pytest" on."""
        return shlex.split(re.findall(r"^\$ (pytest .+)$", self.text, re.MULTILINE)[0])

    @property
    def pointed(self) -> tuple[str, str]:
        """The file and the class that --impl names."""
        file, _, name = self.command[self.command.index("--impl") + 1].partition(":")
        return file, name

    @property
    def failure(self) -> str:
        """What the first command prints of the mistake."""
        (failure,) = re.findall(r"^FAIL .*\n(?: {4}.+\n)+", self.text, re.MULTILINE)
        return failure

    @property
    def claim(self) -> str:
        """The claim that fails."""
        (claim,) = re.findall(r"^    claim +([a-z0-9-]+): ", self.failure, re.MULTILINE)
        return claim

    def with_outputs(self, wrong: str, mended: str) -> str:
        """The page with what its two runs print."""
        shown = f"$ {shlex.join(self.command)}\n...\n"
        rest = iter([shown + _from_claims(wrong), shown + _without_facts(_from_claims(mended))])
        block = re.compile(r"^```text\n\$ pytest .+?^```", re.MULTILINE | re.DOTALL)
        return block.sub(lambda _: f"```text\n{next(rest)}```", self.text)


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.+?)^```", text, re.MULTILINE | re.DOTALL)


def _from_claims(printed: str) -> str:
    found = re.search(r"^=+ claims: .*", printed, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"the run tested nothing; it printed:\n{printed}")
    return found[0].rstrip() + "\n"


def _without_facts(printed: str) -> str:
    """The head, failures and notes, and the counts."""
    lines = printed.splitlines()
    end = next(at for at, line in enumerate(lines[1:], 1) if not line.startswith(("FAIL", "NOTE", "ERROR", "    ")))
    return "\n".join([*lines[:end], "...", *lines[-2:]]) + "\n"


def printed(tutorial: Tutorial, code: str) -> str:
    """What the page's command prints of a file, in a folder that holds nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, tutorial.pointed[0]).write_text(code, encoding="utf-8")
        command = [sys.executable, "-m", *tutorial.command, "-p", "no:cacheprovider"]
        terminal = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
        ran = subprocess.run(command, cwd=folder, env=terminal, capture_output=True, text=True, check=False)
        return ran.stdout + ran.stderr


def main() -> None:
    for page in PAGES:
        tutorial = Tutorial(page.read_text(encoding="utf-8"))
        outputs = (printed(tutorial, code) for code in (tutorial.code, tutorial.mended))
        page.write_text(tutorial.with_outputs(*outputs), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()
