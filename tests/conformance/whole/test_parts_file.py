"""A file of parts, pointed at without code: what is right fails nothing, and one-line mistakes are found and named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import conformance.checks  # noqa: E402, F401
from conformance.adapters import resolve  # noqa: E402
from conformance.catalogue import load  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict, judged  # noqa: E402

FOLDER = Path(__file__).parent / "parts_file"
sys.path.append(str(FOLDER))
from defects import DEFECTS, MISSED  # noqa: E402

TEXT = (FOLDER / "everyday_parts.py").read_text()
PARTS = tuple(dict.fromkeys(part for part, _, _ in DEFECTS))
CATALOGUE = load().claims
EVERY_DAY = [DEFECTS[i] for i in (3, 19, 47, 51)]
"""Of the defects those that are tried in the everyday run; the others are deep."""


def failures(path: Path, text: str, part: str) -> list:
    """Every result of `--impl path:part` that is FAIL or ERROR."""
    path.write_text(text)
    before = set(sys.modules)
    try:
        impl = resolve(f"{path}:{part}")
        roles = set(impl.roles)
        checks = [check for check in CHECKS.values() if roles.issuperset(check.roles)]
        results = [judged(run_check(check, impl, "quick"), CATALOGUE[check.claim]) for check in checks]
    finally:
        for name in set(sys.modules) - before:
            if getattr(sys.modules[name], "__file__", None) == str(path):
                del sys.modules[name]
    assert impl.untested == [] or text != TEXT
    return [result for result in results if result.verdict in (Verdict.FAIL, Verdict.ERROR)]


def with_defect(part: str, line: str, instead: str) -> str:
    """The file, changed at the first such line of the part."""
    start = min(at for at in (TEXT.find(f"class {part}("), TEXT.find(f"def {part}(")) if at >= 0)
    assert line in TEXT[start:]
    return TEXT[:start] + TEXT[start:].replace(line, instead, 1)


def named(failed: list) -> bool:
    return any(result.verdict is Verdict.FAIL and result.diagnosis for result in failed)


def ids(defect: tuple[str, str, str]) -> str:
    return f"{defect[0]}: {defect[2]}"


@pytest.mark.parametrize("part", ["make_pad_mask", "noam_lr", "LabelSmoothing", "apply_rotary"])
def test_a_correct_part_fails_nothing(part, tmp_path):
    assert failures(tmp_path / "parts.py", TEXT, part) == []


@pytest.mark.deep
@pytest.mark.parametrize("part", PARTS)
def test_every_correct_part_fails_nothing(part, tmp_path):
    assert failures(tmp_path / "parts.py", TEXT, part) == []


@pytest.mark.parametrize("defect", EVERY_DAY, ids=ids)
def test_a_mistake_is_found_and_named(defect, tmp_path):
    assert named(failures(tmp_path / "parts.py", with_defect(*defect), defect[0]))


@pytest.mark.deep
@pytest.mark.parametrize("defect", [defect for defect in DEFECTS if defect not in MISSED], ids=ids)
def test_every_mistake_but_the_missed_is_found_and_named(defect, tmp_path):
    assert named(failures(tmp_path / "parts.py", with_defect(*defect), defect[0]))


def test_most_mistakes_are_no_missed_ones():
    assert set(MISSED) <= set(DEFECTS)
    assert len(MISSED) <= 0.15 * len(DEFECTS)
