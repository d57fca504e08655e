"""A torch that is older than what is tested is one sentence of the summary, and pyproject.toml says the same bound."""

import tomllib
from pathlib import Path

import pytest

import conformance
from conformance import versions

pytest_plugins = ["pytester"]
PROJECT = Path(conformance.__file__).parents[1] / "pyproject.toml"


def test_every_extra_with_torch_has_the_bound_that_is_tested():
    extras = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["optional-dependencies"]
    bounds = [line for lines in extras.values() for line in lines if line.startswith("torch")]
    assert len(bounds) >= 3
    assert {line.partition(">=")[2].partition(",")[0] for line in bounds} == {versions.OLDEST_TORCH}


@pytest.mark.parametrize(
    ("here", "is_old"), [("2.4.1", True), ("1.13.0+cpu", True), ("2.5.0", False), ("2.13.0+cpu", False), ("3.0", False)]
)
def test_an_old_torch_is_one_sentence(monkeypatch, here, is_old):
    monkeypatch.setattr(versions, "version", lambda package: here)
    said = versions.misfit()
    assert bool(said) == is_old
    if is_old:
        assert said == (
            f"torch {here} is older than 2.5, the oldest that this suite is tested with: pip install 'torch>=2.5'"
        )


def test_no_torch_is_no_misfit():
    assert versions.misfit("no_such_package_at_all") == ""


@pytest.mark.parametrize(
    ("impl", "said"), [pytest.param("model.py:Doubled", True, marks=pytest.mark.slow), ("reference", False)]
)
def test_the_summary_says_it_where_torch_is_used(pytester, monkeypatch, impl, said):
    pytester.makepyfile(model="from torch import nn\n\n\nclass Doubled(nn.ReLU):\n    pass\n")
    monkeypatch.setattr(versions, "version", lambda package: "2.4.0")
    result = pytester.runpytest_inprocess("--pyargs", "conformance", "--impl", impl, "--claims", "*relu*")
    assert ("torch 2.4.0 is older" in result.stdout.str()) == said
