"""The site: `python -m tools.site` builds it from docs/ into build/site, by MkDocs with mkdocs.yml.

Links are checked: a page that is missing, a heading that is not there, or a page that the menu leaves out fails the
build. MkDocs calls the hooks below (`on_...`). They add what docs/ does not hold:

- README, CONTRIBUTING and CHANGELOG, under pages/, and the other files that pages link to, under files/;
- the reference: the public names of each package with their docstrings, and every op as `minigrad explain` tells it.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
REFERENCE = {
    "conformance": "conformance",
    "minigrad": "minigrad",
    "nn": "minigrad.nn",
    "optim": "minigrad.optim",
    "transformer": "transformer",
}
"""Page under reference/ -> the package whose public names it has."""


# --- what MkDocs calls ----------------------------------------------------------------------------


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and files from outside of docs/."""
    from mkdocs.structure.files import File

    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, f"pages/{name}", content=_from(text, PurePosixPath(name), f"pages/{name}")))
    files.append(File.generated(config, "reference/ops.md", content=ops_page()))
    for name, package in REFERENCE.items():
        files.append(File.generated(config, f"reference/{name}.md", content=reference_page(package)))
    for path in sorted({linked for page in _sources() for linked in _outside(page)}):
        name = f"files/{path}" if path.suffix != ".py" else f"files/{path}.txt"
        files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links that leave docs/ to where the site has the file."""
    source = page.file.src_uri
    return (
        markdown
        if source.startswith(("pages/", "reference/"))
        else _from(markdown, PurePosixPath("docs", source), source)
    )


# --- links ----------------------------------------------------------------------------------------

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")


def _sources() -> list[Path]:
    """Every page, below the root."""
    return [*map(Path, PAGES), *(path.relative_to(ROOT) for path in sorted(ROOT.glob("docs/**/*.md")))]


def _below_root(page: PurePosixPath, link: str) -> PurePosixPath:
    return PurePosixPath(os.path.normpath(page.parent / link))


def _outside(page: Path) -> Iterator[Path]:
    """The files outside of docs/, and no pages, that a page links to."""
    for link in _LINK.findall((ROOT / page).read_text(encoding="utf-8")):
        path = Path(_below_root(PurePosixPath(page), link))
        if path.parts[0] != "docs" and str(path) not in PAGES and (ROOT / path).is_file():
            yield path


def _from(text: str, page: PurePosixPath, place: str) -> str:
    """The text of `page` (below the root), which stands at `place` in the site, with its links led there."""

    def led(match: re.Match[str]) -> str:
        path = _below_root(page, match[1])
        target = _in_site(path)
        return os.path.relpath(target, PurePosixPath(place).parent) if target else match[1]

    return _LINK.sub(led, text)


def _in_site(path: PurePosixPath) -> str:
    """Where the site has a file of the repository."""
    if path.parts[0] == "docs":
        below = PurePosixPath(*path.parts[1:])
        page = below / ("README.md" if (ROOT / path / "README.md").is_file() else "index.md")
        return str(page if (ROOT / path).is_dir() else below)
    if str(path) in PAGES:
        return f"pages/{path}"
    if (ROOT / path).is_dir():
        return ""
    return f"files/{path}.txt" if path.suffix == ".py" else f"files/{path}"


# --- the reference --------------------------------------------------------------------------------


def reference_page(package: str) -> str:
    """The public names of a package, each with its signature and docstring, in alphabetical order."""
    module = importlib.import_module(package)
    lines = [f"# {package}", "", _said(module), ""]
    for name in sorted(public(module), key=str.lower):
        value = getattr(module, name)
        lines += [f"## {name}", "", *_described(name, value)]
        for method in _methods(value) if inspect.isclass(value) else ():
            lines += [f"### {name}.{method}", "", *_described(method, getattr(value, method))]
    return "\n".join(lines)


def _described(name: str, value: Any) -> list[str]:
    """A function, class or method: its signature and its docstring, which is Markdown."""
    return ["```python", _signed(name, value), "```", "", _said(value), ""]


def _signed(name: str, value: Any) -> str:
    """The call with its parameters; one a line where they need more than a line of 80."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return f"{name}(...)"
    line = f"{name}{signature}"
    if len(line) > 80 and signature.parameters:
        inside = "".join(f"    {parameter},\n" for parameter in signature.parameters.values())
        returns = str(signature.replace(parameters=[])).removeprefix("()")
        line = f"{name}(\n{inside}){returns}"
    line = re.sub(r"(: |-> )'([^']*)'", r"\1\2", line)  # annotations are strings
    return re.sub(r" at 0x[0-9a-f]+", "", line)


def _said(value: Any) -> str:
    return inspect.getdoc(value) or ""


def _methods(kind: type) -> list[str]:
    """The public methods that a class defines itself, and documents."""
    own = {name: value for name, value in vars(kind).items() if not name.startswith("_") and inspect.isfunction(value)}
    return [name for name, value in own.items() if value.__doc__]


def public(module: Any) -> list[str]:
    """The functions and classes of ours that a module offers."""
    names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    ours = ("minigrad", "transformer", "conformance")
    return [
        name
        for name in names
        if (inspect.isclass(value := getattr(module, name)) or inspect.isfunction(value))
        and value.__module__.split(".")[0] in ours
    ]


def ops_page() -> str:
    """Every op, as `minigrad explain` tells it."""
    from minigrad.ops.registry import OPS
    from minigrad.study import explain

    lines = ["# Ops", "", f"The {len(OPS)} ops of minigrad, each as `minigrad explain NAME` tells it.", ""]
    for name in sorted(OPS):
        lines += [f"## {name}", "", "```text", str(explain(name, notation=True)), "```", ""]
    return "\n".join(lines)


def main() -> int:
    """Build the site. Returns MkDocs's exit code, or 2 when it is not installed."""
    if shutil.which("mkdocs") is None:
        print("MkDocs is not installed; install it with: pip install -e '.[site]'", file=sys.stderr)
        return 2
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(["mkdocs", "build", "--quiet"], cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
