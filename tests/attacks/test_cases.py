"""Every case of docs/reliability.md has its test: the page names it, and it is there."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = re.findall(r"\| ([\w/]+\.py)::(test_\w+) \|", PAGE)


def test_every_named_test_is_there():
    assert len(NAMED) > 40
    for file, name in NAMED:
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"
