"""Without the extra `engine`: one sentence from minigrad, and the suite works beside torch."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from minigrad import requirements

ROOT = Path(requirements.__file__).parents[2 - 1]
HIDE = (
    "import sys; sys.modules.update(dict.fromkeys(('ml_dtypes', 'numba', 'llvmlite', 'threadpoolctl', 'graphviz')))\n"
)


def test_a_missing_package_is_one_sentence(monkeypatch):
    monkeypatch.setattr(requirements, "NEEDED", ("numpy", "no_such_package", "nor_this"))
    with pytest.raises(ModuleNotFoundError) as raised:
        requirements.require()
    assert str(raised.value) == (
        "minigrad needs no_such_package, nor_this, not installed here; install the extra engine: "
        'pip install "minigrad-conformance[engine]"'
    )
    assert raised.value.name == "no_such_package"


def test_pyproject_declares_them_in_the_extra_and_nowhere_else():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = [line.partition(">")[0] for line in project["optional-dependencies"]["engine"]]
    assert set(requirements.NEEDED) <= set(names)
    assert not set(requirements.NEEDED) & {line.partition(">")[0] for line in project["dependencies"]}


def test_pyproject_has_the_bounds_that_are_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    bounds = {line.partition(">")[0]: line.partition(">=")[2] for line in project["optional-dependencies"]["engine"]}
    assert {name: bounds[name] for name in requirements.TESTED} == {
        name: f"{oldest},<{beyond}" for name, (oldest, beyond) in requirements.TESTED.items()
    }


def test_an_old_numpy_is_one_sentence(monkeypatch):
    monkeypatch.setattr("numpy.__version__", "1.26.4")
    with pytest.raises(ImportError) as raised:
        requirements.require()
    assert str(raised.value) == (
        'minigrad needs numpy 2.1 or later, and this is 1.26.4: pip install "minigrad-conformance[engine]"'
    )


@pytest.mark.parametrize(
    ("here", "word"),
    [
        ("0.61.2", "older"),
        ("0.62.0rc1", ""),
        ("0.68.9", ""),
        ("0.69.0", "newer"),
        ("0.69.0dev0", "newer"),
        ("1.0", "newer"),
    ],
)
def test_a_version_that_is_not_tested_is_one_sentence(monkeypatch, here, word):
    monkeypatch.setattr(
        requirements, "_version", lambda name: {"numba": here}.get(name) or requirements.TESTED[name][0]
    )
    said = requirements.misfits()
    assert set(said) == ({"numba"} if word else set())
    assert said.get("numba", "") == (
        f"numba {here} is {word} than what minigrad is tested with, from 0.62 to below 0.69" if word else ""
    )


def test_what_is_installed_here_is_tested():
    assert requirements.misfits() == {}


@pytest.mark.slow
def test_the_suite_does_without_them(tmp_path):
    program = (
        f"{HIDE}import pytest\n"
        "sys.exit(pytest.main(['--pyargs', 'conformance', '--impl', 'reference', '--claims', 'softmax-formula',"
        " '-p', 'no:cacheprovider', '-q']))"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 of 1 claims kept" in ended.stdout
