"""What the code of a submission does that no solution needs (`suspicions`): it reads the suite, or looks around.

This reads the code without running it, so it finds what is written plainly. The other means against cheating do not
depend on it: forbidden names raise when they are called, examples come from a seed that nobody knows beforehand, and
the sandbox keeps files, network and other processes away (docs/grading.md says what catches what).
"""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterator
from functools import lru_cache

from conformance.grading.archive import Archive

SUITE = ("conformance", "minigrad", "transformer", "hypothesis")
ALLOWED = ("conformance.protocol", "conformance.adapters", "transformers")
"""What an adapter that a user writes imports of the suite; and a package that only sounds like ours."""

LOOKING_AROUND = {
    **dict.fromkeys(("sys._getframe", "sys._current_frames", "inspect.stack", "inspect.currentframe"), "who calls it"),
    **dict.fromkeys(("gc.get_objects", "gc.get_referrers", "gc.get_referents"), "other objects of the process"),
    **dict.fromkeys(("sys.settrace", "sys.setprofile", "threading.settrace", "sys.monitoring"), "what others run"),
    **dict.fromkeys(("ctypes", "sys.modules", "os.ptrace"), "the process around it"),
}
"""Names, and what they look at."""


def suspicions(archive: Archive) -> list[str]:
    """A sentence for each, with file and line; each once."""
    found: list[str] = []
    with zipfile.ZipFile(io.BytesIO(archive.data)) as files:
        for name in files.namelist():
            if name.endswith(".py"):
                try:
                    tree = ast.parse(files.read(name))
                except (SyntaxError, ValueError):
                    continue
                found += [f"{sentence} ({name}:{line})" for line, sentence in _in(tree)]
    return list(dict.fromkeys(found))


def _in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    names: dict[str, str] = {}
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            of = "" if isinstance(node, ast.Import) else f"{'.' * node.level}{node.module or ''}."
            for alias in node.names:
                full = of + alias.name
                names[alias.asname or alias.name.partition(".")[0]] = (
                    full if alias.asname or of else alias.name.partition(".")[0]
                )
                yield from _judged(full, node.lineno)
    for node in nodes:
        if isinstance(node, ast.Attribute) and (full := _dotted(node, names)):
            yield from _judged(full, node.lineno)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = _dotted(node.func, names)
            if called in ("__import__", "importlib.import_module") and isinstance(node.args[0].value, str):
                yield from _judged(node.args[0].value, node.lineno)


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


def _judged(name: str, line: int) -> Iterator[tuple[int, str]]:
    return ((line, sentence) for sentence in _sentences(name))


@lru_cache(maxsize=1 << 14)
def _sentences(name: str) -> tuple[str, ...]:
    """What is said of a name; thousands of submissions have the same ones."""
    found = []
    if _is_of(name, SUITE) and not _is_of(name, ALLOWED):
        found.append(f"it reads the suite: {name.partition('.')[0]}")
    found += [f"it looks at {at}: {looked}" for looked, at in LOOKING_AROUND.items() if _is_of(name, (looked,))]
    return tuple(found)


def _is_of(name: str, modules: tuple[str, ...]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)
