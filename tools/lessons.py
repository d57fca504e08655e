"""Run the lessons and write what they print below their blocks: `python -m tools.lessons` (tests hold them to it)."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs" / "lessons"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)


def play(path: Path) -> list[tuple[str, str, str]]:
    """Every block of a lesson: (program, what the lesson says it prints, what it prints), run in one namespace."""
    names: dict[str, Any] = {"__name__": "lesson"}
    played = []
    text = path.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        out = io.StringIO()
        line = text.count("\n", 0, found.start()) + 1
        code = compile("\n" * line + found[1], str(path), "exec")  # errors name the lesson's own lines
        with contextlib.redirect_stdout(out):
            exec(code, names)
        played.append((found[1], found[2] or "", out.getvalue()))
    return played


def main() -> int:
    for path in sorted(FOLDER.glob("[0-9]*.md")):
        printed = iter(out for _, _, out in play(path))

        def block(found: re.Match[str], printed: Any = printed) -> str:
            out = next(printed)
            return f"```python\n{found[1]}```\n" + (f"\n```text\n{out}```\n" if out else "")

        path.write_text(BLOCK.sub(block, path.read_text(encoding="utf-8")), encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
