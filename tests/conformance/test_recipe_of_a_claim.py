"""The recipe for a claim in CONTRIBUTING.md is followed to the letter, in a copy of the package."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## A claim\n")[1].split("\n## ")[0]
(COMMANDS,) = re.findall(r"```bash\n(.*?)```", RECIPE, re.DOTALL)
PARTS = re.findall(r"[Aa]t the end of `(conformance/\S+)`.*?```\w+\n(.*?)```", RECIPE, re.DOTALL)
SLUG = "softmax-of-equal-scores-is-uniform"


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """A folder with a copy of the packages, in which the recipe's three blocks stand where it says."""
    folder = tmp_path_factory.mktemp("recipe")
    for package in ("conformance", "minigrad"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, block in PARTS:
        with open(folder / file, "a", encoding="utf-8") as opened:
            opened.write("\n\n" + block)
    return folder


def run(folder, line):
    """What a command line of the recipe gives."""
    program, *words = shlex.split(line)
    command = [sys.executable, "-m", program, *words]
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "160"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_the_recipe_is_three_files_and_three_commands():
    assert [Path(file).parent.name for file, _ in PARTS] == ["claims", "checks", "mutants"]
    assert len(COMMANDS.splitlines()) == 3


def test_the_claim_is_tested_and_its_mutant_is_caught(followed):
    tested, caught, counted = (run(followed, line) for line in COMMANDS.splitlines())
    assert tested.returncode == 0, tested.stdout
    assert "1 of 1 claims kept: 1 PASS" in tested.stdout
    assert caught.returncode == 0, caught.stdout + caught.stderr
    assert SLUG in caught.stdout
    assert counted.returncode == 0, counted.stdout
    assert "0 checks have none that they must kill" in counted.stdout


def test_without_its_mutant_the_coverage_fails(followed, tmp_path):
    shutil.copytree(followed, tmp_path / "half")
    (mutants,) = [file for file, _ in PARTS if "/mutants/" in file]
    shutil.copy(ROOT / mutants, tmp_path / "half" / mutants)
    counted = run(tmp_path / "half", COMMANDS.splitlines()[2])
    assert counted.returncode == 1
    assert f"{SLUG}: its check has no mutant" in counted.stderr
