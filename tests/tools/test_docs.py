"""Pages: every link leads somewhere, every page can be reached from the index, README's commands are where CI looks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from conformance.catalogue import load
from tools.pictures import failure_of_the_tutorial, terminal

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
DOCS = ROOT / "docs"


def _text(page: Path) -> str:
    """The page without what stands between fences."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """The names of the page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _text(page), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def _links(page: Path) -> list[str]:
    """The page's links and pictures that are no addresses."""
    found = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", _text(page))
    return [link for pair in found for link in pair if link and not re.match(r"[a-z]+:", link)]


def _target(page: Path, link: str) -> Path:
    return (page.parent / link.partition("#")[0]).resolve() if not link.startswith("#") else page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for link in _links(page):
        target, anchor = _target(page, link), link.partition("#")[2]
        assert target.exists(), f"{link}: there is no such file"
        if anchor and target.suffix == ".md":
            assert anchor in _anchors(target), f"{link}: the page has no such heading"


def test_every_page_can_be_reached_from_the_index():
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        targets = {_target(page, link) for link in _links(page)}
        targets |= {folder / "README.md" for folder in targets if folder.is_dir()}
        new = {target for target in targets if target.suffix == ".md" and target.is_file()} - reached
        reached |= new
        waiting += new
    assert {page for page in PAGES if DOCS in page.parents} <= reached


def test_readme_begins_with_the_two_commands_that_ci_runs():
    blocks = re.findall(r"^```bash\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert [block.splitlines()[-1] for block in blocks[:2]] == ["pytest conformance/", "pytest -n auto"]


def test_readme_names_the_documents_by_their_titles():
    readme = (ROOT / "README.md").read_text("utf-8")
    for number, document in load().documents.items():
        assert f"| {number} | {document.title} | {document.english} |" in readme


def test_the_picture_of_a_mistake_is_that_of_the_tutorial():
    lines = failure_of_the_tutorial((DOCS / "tutorial.md").read_text("utf-8"))
    assert (DOCS / "pictures" / "mistake.svg").read_text("utf-8") == terminal(lines)


def test_pyproject_names_every_extra_that_the_pages_ask_for():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for page in PAGES:
        for named in re.findall(r"pip install[^\n]*\[([\w,-]+)\]", page.read_text("utf-8")):
            assert set(named.split(",")) <= set(extras), page
