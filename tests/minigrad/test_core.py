"""docs/core.md names the files of the core, in an order in which they can be read; they stay few enough to be read."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import minigrad
from minigrad.autograd import propagate

ROOT = Path(minigrad.__file__).parents[1]
PAGE = (ROOT / "docs" / "core.md").read_text(encoding="utf-8")
FILES = re.findall(r"^\| (?:\*\*)?`(minigrad/\S+\.py)`", PAGE, re.MULTILINE)
MECHANISM, SCREEN = 2000, 45  # lines


def lines_of_code(path: Path) -> int:
    """Without blank lines, comments and docstrings."""
    text = path.read_text(encoding="utf-8")
    nothing = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in nothing:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            found -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(found)


def test_the_page_names_what_a_small_network_loads() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    asks = "import sys\nfor module in sys.modules.values():\n    if module.__name__.partition('.')[0] == 'minigrad':\n"
    command = [sys.executable, "-c", f"{program}\nassert w.grad is not None\n{asks}        print(module.__file__)"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    loaded = {str(Path(line).relative_to(ROOT)) for line in printed.splitlines()}
    assert sorted(FILES) == sorted(loaded)


def test_no_file_stands_before_one_that_it_imports() -> None:
    """The package itself, which every import runs, is last."""
    known: set[str] = set()
    for file in FILES:
        known.add(file)
        for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("minigrad"):
                whole = node.module.replace(".", "/")
                for name in node.names:
                    choices = [f"{whole}/{name.name}.py", f"{whole}/{name.name}/__init__.py", f"{whole}.py"]
                    found = next((c for c in choices if (ROOT / c).exists()), f"{whole}/__init__.py")
                    assert found in known, f"{file} imports {found}, which stands below it in docs/core.md"


def test_the_mechanism_is_small() -> None:
    counted = {file: lines_of_code(ROOT / file) for file in FILES if not file.startswith("minigrad/ops/")}
    assert sum(counted.values()) < MECHANISM, counted


def test_the_backward_pass_fits_a_screen() -> None:
    code = propagate.__code__
    tree = ast.parse((ROOT / "minigrad" / "autograd.py").read_text(encoding="utf-8"))
    (found,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == code.co_name)
    assert (found.end_lineno or 0) - found.lineno + 1 <= SCREEN
