"""In other people's projects: their pyproject.toml, their own tests and options, and an installed wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import conformance
from conformance.settings import Settings, SettingsError, read_settings

pytest_plugins = ["pytester"]

ROOT = Path(conformance.__file__).parents[1]
MINIATURES = Path(__file__).parent / "miniatures.py"
SCALED = "attention-is-scaled-by-sqrt-d-k"
CLAIMS = ("-p", "no:cacheprovider", "--pyargs", "conformance")

MODEL = """
from conformance.adapters.examples.numpy_class import NumpyTransformer

class GPT(NumpyTransformer):
    name = "their GPT"
"""


@pytest.fixture
def project(pytester):
    """A project with sources under src/, found through pytest's own `pythonpath`, tests, and settings."""
    pytester.makepyfile(**{"src/mypkg/__init__": "", "src/mypkg/model": MODEL})
    pytester.makepyfile(**{"tests/test_theirs": "def test_theirs():\n    assert True"})

    def settings(**values):
        lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
        pytester.path.joinpath("pyproject.toml").write_text(
            "\n".join(['[tool.pytest.ini_options]\npythonpath = ["src"]', "[tool.conformance]", *lines])
        )
        return pytester

    return settings


# --- settings -------------------------------------------------------------------------------------


def test_no_section_means_no_settings(tmp_path):
    assert read_settings(tmp_path) == Settings()
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert read_settings(tmp_path) == Settings()


def test_the_nearest_section_counts_and_files_are_found_from_its_folder(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.conformance]\nimpl = "model.py:GPT"\nknown = "known.toml"\n')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    monkeypatch.chdir(inner)
    settings = read_settings(inner)
    assert settings == Settings("../../model.py:GPT", known=str(tmp_path / "known.toml"), folder=tmp_path)


def test_what_is_stated_of_a_model_is_read_and_its_files_are_found_from_the_folder(tmp_path, monkeypatch):
    values = 'impl = "a.py"\ninput = "2x16:int"\nweights = "w.pt"\ndevice = "cpu"\nreference = "b.py:GPT(n=2)"\n'
    (tmp_path / "pyproject.toml").write_text(f"[tool.conformance]\n{values}")
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    settings = read_settings(tmp_path / "inner")
    assert (settings.impl, settings.reference) == ("../a.py", "../b.py:GPT(n=2)")
    assert (settings.input, settings.weights, settings.device) == ("2x16:int", str(tmp_path / "w.pt"), "cpu")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[tool.conformance]\nimplementation = 'x'", "there is no setting 'implementation'; the settings are impl,"),
        ("[tool.conformance]\nimpl = 3", "impl must be a string, not 3"),
        ("[tool.conformance]\nimpl = ' '", "impl must be a string, not ' '"),
        ("[tool.conformance]\nbudget = 'huge'", "budget is 'huge'; choose one of quick, default, deep"),
        ("[tool]\nconformance = 3", "must be a table with impl, claims, budget, known"),
        ("[tool.conformance", "is not valid TOML"),
    ],
)
def test_a_bad_section_is_one_sentence(tmp_path, text, sentence):
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(SettingsError) as raised:
        read_settings(tmp_path)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_bad_section_is_a_usage_error(project):
    result = project(budget="huge").runpytest_inprocess(*CLAIMS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*budget is 'huge'*"])


def test_a_bad_section_does_not_disturb_their_own_tests(project):
    project(budget="huge").runpytest_inprocess("tests").assert_outcomes(passed=1)


def test_the_section_says_what_the_command_line_need_not(project):
    result = project(impl="mypkg.model:GPT", claims=SCALED, budget="quick").runpytest_inprocess(
        *CLAIMS, "--claims-report", "report.json"
    )
    result.assert_outcomes(passed=1)
    report = json.loads(Path("report.json").read_text())
    assert (report["implementation"], report["budget"], report["total"]) == ("mypkg.model:GPT", "quick", 1)


def test_the_command_line_wins(project):
    pytester = project(impl="no.such:Thing", claims="masks", budget="deep")
    result = pytester.runpytest_inprocess(
        *CLAIMS, "--impl", f"{MINIATURES}:Unscaled", "--claims", SCALED, "--claims-budget", "quick"
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"    replay *--impl *miniatures.py:Unscaled --claims {SCALED} --claims-budget quick"])


# --- together with their tests --------------------------------------------------------------------


def test_claims_run_beside_their_own_tests(project):
    pytester = project(impl="mypkg.model:GPT", claims=SCALED)
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "tests", "--pyargs", "conformance").assert_outcomes(passed=2)
    pytester.runpytest_inprocess("tests").assert_outcomes(passed=1)


def test_a_broken_test_of_theirs_is_shown_beside_broken_claims(project):
    pytester = project(impl=f"{MINIATURES}:Unscaled", claims=SCALED)
    pytester.makepyfile(**{"tests/test_broken": "def test_broken():\n    assert 1 == 2"})
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "tests", "--pyargs", "conformance")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["E *assert 1 == 2", "FAIL It looks like this mistake: *", "FAILED *test_broken*"])


def test_junit_counts_claims_as_cases(project):
    pytester = project(impl=f"{MINIATURES}:Unscaled", claims=f"{SCALED},positions")
    pytester.runpytest_inprocess(*CLAIMS, "tests", "--junitxml", "junit.xml")
    (suite,) = ElementTree.parse("junit.xml").getroot().iter("testsuite")
    cases = list(suite.iter("testcase"))
    assert int(suite.get("failures")) == 1
    assert int(suite.get("skipped")) == len(cases) - 2
    (failed,) = (case for case in cases if case.find("failure") is not None)
    assert failed.get("name") == SCALED
    assert "expected" in failed.find("failure").text


# --- an installed wheel ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that holds the wheel, installed; built from a copy of the sources."""
    pytest.importorskip("setuptools", minversion="77")
    base = tmp_path_factory.mktemp("wheel")
    ignore = shutil.ignore_patterns(".*", "*.egg-info", "build", "__pycache__")
    shutil.copytree(ROOT, base / "sources", ignore=ignore)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(base), str(base / "sources")]
    subprocess.run(build, check=True, timeout=300)
    (wheel,) = base.glob("*.whl")
    target = base / "site-packages"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), str(wheel)], check=True, timeout=300)
    return target


@pytest.mark.deep
def test_the_sdist_holds_every_file_of_the_packages(tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    sources = tmp_path / "sources"
    shutil.copytree(ROOT, sources, ignore=shutil.ignore_patterns(".*", "*.egg-info", "build", "__pycache__", "docs"))
    made = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", made, str(tmp_path)], cwd=sources, check=True, timeout=300, capture_output=True
    )
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    packages = ("minigrad", "transformer", "conformance")
    files = {
        str(path.relative_to(sources)) for name in packages for path in (sources / name).rglob("*") if path.is_file()
    }
    assert files <= inside


@pytest.mark.deep
@pytest.mark.parametrize("options", [(), ("-n", "2"), ("-x",), ("-k", "theirs or scaled-by")])
def test_the_wheel_works_in_any_folder(project, installed, options):
    if "-n" in options:
        pytest.importorskip("xdist")
    pytester = project(impl="mypkg.model:GPT", claims="attention")
    code = "import conformance, sys; assert sys.argv[1] in conformance.__file__, conformance.__file__"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    subprocess.run([sys.executable, "-c", code, str(installed)], check=True, env=environment, timeout=60)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "conformance", "tests"]
    report = ["--claims-report", "report.html"]
    done = subprocess.run(
        [*command, *report, *options], cwd=pytester.path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "claims: mypkg.model:GPT" in done.stdout
    page = (pytester.path / "report.html").read_text()
    assert "Claims kept by mypkg.model:GPT" in page
    assert "prefers-color-scheme" in page
