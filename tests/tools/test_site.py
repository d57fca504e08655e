"""The site's own pages: links that leave docs/ are led to where the site has the file; the reference has every name."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest

import conformance
import minigrad
from minigrad.ops.registry import OPS
from tools.site import REFERENCE, ROOT, _from, ops_page, public, reference_page


@pytest.mark.parametrize(
    ("page", "place", "link", "led"),
    [
        ("docs/index.md", "index.md", "../README.md", "pages/README.md"),
        ("docs/tutorials/gpt.md", "tutorials/gpt.md", "../../CONTRIBUTING.md", "../pages/CONTRIBUTING.md"),
        ("docs/reports.md", "reports.md", "../conformance/protocol.py", "files/conformance/protocol.py.txt"),
        ("docs/projects.md", "projects.md", "../action.yml", "files/action.yml"),
        ("docs/index.md", "index.md", "lessons/", "lessons/README.md"),
        ("docs/index.md", "index.md", "tutorial.md#mending-it", "tutorial.md#mending-it"),
        ("README.md", "pages/README.md", "docs/pictures/mistake.svg", "../pictures/mistake.svg"),
        ("README.md", "pages/README.md", "CHANGELOG.md", "CHANGELOG.md"),
        ("README.md", "pages/README.md", "https://pre-commit.com", "https://pre-commit.com"),
        ("README.md", "pages/README.md", "#more", "#more"),
    ],
)
def test_links_are_led_to_where_the_site_has_the_file(page, place, link, led):
    assert _from(f"[there]({link})", PurePosixPath(page), place) == f"[there]({led})"


@pytest.mark.parametrize("package", sorted(REFERENCE.values()))
def test_the_reference_has_a_heading_for_every_public_name(package):
    text = reference_page(package)
    headings = re.findall(r"^## (\w+)$", text, re.MULTILINE)
    assert headings
    assert headings == sorted(headings, key=str.lower)
    assert " at 0x" not in text


def test_public_names_are_those_of_ours():
    assert set(public(conformance)) == set(conformance.__all__)
    assert "softmax" in public(minigrad.functional)
    assert "Any" not in public(minigrad)


def test_long_signatures_have_a_parameter_a_line():
    assert "check(\n    model: Any,\n    inputs: str | None = None,\n" in reference_page("conformance")


def test_every_op_is_told():
    assert re.findall(r"^## (\w+)$", ops_page(), re.MULTILINE) == sorted(OPS)


def test_the_menu_names_every_page():
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    for page in ROOT.glob("docs/**/*.md"):
        assert str(page.relative_to(ROOT / "docs")) in menu
