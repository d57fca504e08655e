"""The pytest layer: items, options, outcomes, summary, reports, replay; and that other suites are left alone."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from slow import slow_but

from conformance.catalogue import load

pytest_plugins = ["pytester"]

MINIATURES = Path(__file__).parent / "miniatures.py"
SCALED = "attention-is-scaled-by-sqrt-d-k"
BLOCKED = next(claim.slug for claim in load().tested() if SCALED in claim.depends and claim.topic == "attention")
SAID = "It looks like this mistake: The scores are not divided by sqrt(d_k)."
KNOWN = f"""
[[known]]
claim = "{SCALED}"
subject = "*miniatures.py:*"
reason = "on purpose"
expires = 9999-01-01
"""
CONFORMANCE = ("-p", "no:cacheprovider", "--pyargs", "conformance")


@pytest.fixture
def claims(pytester):
    """Run pytest on the claims in this process; `impl` is a miniature's name or a specification."""

    def run(impl, *options, of=CONFORMANCE):
        spec = impl if impl == "reference" or "/" in impl or "." in impl else f"{MINIATURES}:{impl}"
        return pytester.runpytest_inprocess(*of, "--impl", spec, *options)

    return run


@pytest.fixture
def change(monkeypatch):
    """Change fields of a claim in the catalogue that the run loads."""

    def change_claim(slug, **fields):
        catalogue = load()
        claims = {**catalogue.claims, slug: replace(catalogue.claims[slug], **fields)}
        monkeypatch.setattr("conformance.asked.load", lambda: replace(catalogue, claims=claims))

    return change_claim


def output(result):
    return "\n".join(result.outlines)


def test_claims_are_items_whose_id_is_their_slug(claims):
    result = claims("reference", "--claims", SCALED, "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [f"conformance::{SCALED} PASSED*", "1 of 1 claims kept: 1 PASS, 0 FAIL, 0 NOT PROVIDED"]
    )


def test_every_claim_about_implementations_is_an_item(claims):
    result = claims("reference", "--collect-only", "-q")
    collected = [line.removeprefix("conformance::") for line in result.outlines if line.startswith("conformance::")]
    assert collected == [claim.slug for claim in load().tested()]


def test_pytest_on_the_folder_collects_the_same(claims):
    folder = str(Path(sys.modules["conformance"].__file__).parent)
    claims("reference", "--claims", SCALED, of=("-p", "no:cacheprovider", folder)).assert_outcomes(passed=1)


def test_k_selects_by_slug(claims):
    claims("reference", "-k", SCALED).assert_outcomes(passed=1, deselected=len(load().tested()) - 1)


def test_a_broken_claim_fails_with_all_that_is_needed_to_mend_it(claims):
    result = claims("Unscaled", "--claims", SCALED)
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            f"FAIL {SAID}",
            "    at        *miniatures.py:* in Unscaled.subject.__call__",
            "    expected  *",
            "    got       * (off by *, bound *, margin *)",
            "    example   *",
            f"    claim     {SCALED}: {load().claims[SCALED].says[:40]}*",
            "    source    Chapter 2: Transformer architecture (document 000), 2.2.3*, line*; and * more",
            f"    replay    pytest * --impl *miniatures.py:Unscaled --claims {SCALED}",
            "0 of 1 claims kept: 0 PASS, 1 FAIL, 0 NOT PROVIDED",
        ]
    )
    assert "Traceback" not in output(result)
    assert "FAILED" not in output(result)


@pytest.mark.slow
def test_the_replay_line_replays_the_same_example(claims, pytester):
    first = output(claims("Unscaled", "--claims", SCALED, "--claims-explore", "7"))
    (line,) = re.findall(r"replay +pytest (.*)", first)
    assert "--claims-explore 7" in line
    second = output(pytester.runpytest_inprocess("-p", "no:cacheprovider", *shlex.split(line)))
    for field in ("expected", "got", "example"):
        (before,), (after,) = (re.findall(rf"^    {field} .*$", text, re.MULTILINE) for text in (first, second))
        assert before == after


def test_failures_fold_to_their_root(claims):
    result = claims("Unscaled", "--claims", f"{SCALED},{BLOCKED}")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines([f"FAIL {SAID}  (explains 1 more)", "0 of 2 claims kept: *1 FAIL*1 BLOCKED*"])
    assert f"FAIL {BLOCKED}" not in output(result)


def test_otherwise_than_a_convention_passes_and_is_noted(claims, change, pytester):
    change(SCALED, verdict="convention")
    result = claims("Unscaled", "--claims", SCALED, "-v", "--claims-report", "report.json")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            f"conformance::{SCALED} NOTE*",
            "NOTE (1, none of them a failure):",
            "    not by the convention: *",
            "0 of 1 claims kept: 0 PASS, 0 FAIL, 1 NOTE, 0 NOT PROVIDED",
        ]
    )
    assert json.loads((pytester.path / "report.json").read_text())["counts"]["NOTE"] == 1


def test_a_note_that_is_listed_as_a_known_failure_is_stale(claims, change, pytester):
    change(SCALED, verdict="convention")
    known = pytester.path / "known.toml"
    known.write_text(KNOWN)
    result = claims("Unscaled", "--claims", SCALED, "--claims-known", str(known))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*and it is NOTE: remove the entry*"])


@pytest.mark.slow
def test_claims_newer_than_a_version_are_left_out(claims, change):
    change(SCALED, since="0.2.0")
    claims("Unscaled", "--claims", f"{SCALED},{BLOCKED}", "--claims-since", "0.1.0", "-v").assert_outcomes(failed=1)
    claims("Unscaled", "--claims", f"{SCALED},{BLOCKED}", "--claims-since", "0.2").assert_outcomes(failed=2)
    for version, sentence in (("0.1", f"every claim of {SCALED} is newer"), ("soon", "'soon' is no version")):
        refused = claims("Unscaled", "--claims", SCALED, "--claims-since", version)
        assert refused.ret == pytest.ExitCode.USAGE_ERROR
        assert sentence in "\n".join(refused.errlines)


def test_what_is_not_provided_is_skipped_counted_and_listed(claims):
    result = claims("Correct", "--claims", "attention,positions")
    assert result.ret == pytest.ExitCode.OK
    total = sum(1 for claim in load().select("attention,positions") if claim.is_tested)
    line = r"^(\d+) of (\d+) claims kept: .*; (\d+) claims speak about components that it does not have$"
    (counts,) = re.findall(line, output(result), re.MULTILINE)
    kept, about, others = map(int, counts)
    assert 0 < kept <= about < about + others == total
    result.stdout.fnmatch_lines(["NOT PROVIDED (* claims):", "* x the attention has no *"])
    assert "sinusoidal_positions" not in output(result)


def test_providing_nothing_is_no_success(claims):
    result = claims("Nothing", "--claims", "attention")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


POSITIONS = next(claim.slug for claim in load().tested() if claim.topic == "positions")


def test_what_could_not_be_tested_is_said_first_and_is_no_success(claims, pytester):
    result = claims("Unfinished", "--claims", SCALED, "--claims-report", "report.json")
    result.assert_outcomes(passed=1)
    assert result.ret == 6
    lines = output(result).splitlines()
    (start,) = (number for number, line in enumerate(lines) if "= claims: " in line)
    sentence = "generate() raised ValueError: no eos_id (model.py:31)"
    assert lines[start + 1] == f"NOT TESTED: {sentence}"
    assert json.loads((pytester.path / "report.json").read_text())["untested"] == [sentence]
    assert claims("Unfinished", "--claims", SCALED, "--no-claims-strict").ret == pytest.ExitCode.OK


@pytest.mark.slow
def test_a_core_that_is_not_provided_is_no_success(claims, change):
    change(POSITIONS, core_of=("language_model",))
    both = ("--claims", f"{SCALED},{POSITIONS}")
    result = claims("CallsItselfAModel", *both)
    assert result.ret == 6
    result.stdout.fnmatch_lines([f"NOT TESTED: 1 of the 1 claims * core of a language model: * ({POSITIONS})"])
    assert claims("CallsItselfAModel", *both, "--no-claims-strict").ret == pytest.ExitCode.OK
    assert claims("Correct", *both).ret == pytest.ExitCode.OK
    assert claims("CallsItselfAModel", "--claims", SCALED).ret == pytest.ExitCode.OK


def test_a_core_that_is_tested_is_a_success(claims, change):
    change(SCALED, core_of=("language_model",))
    assert claims("CallsItselfAModel", "--claims", f"{SCALED},{POSITIONS}").ret == pytest.ExitCode.OK


def test_a_kind_without_a_core_is_no_success(claims):
    result = claims("CallsItselfADiffusionModel", "--claims", SCALED)
    assert result.ret == 6
    result.stdout.fnmatch_lines(["NOT TESTED: it says that it is a diffusion model, and no claim is the core of one"])


def test_a_broken_claim_outweighs_an_untested_core(claims):
    result = claims("UnscaledModel", "--claims", SCALED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["NOT TESTED: *", f"FAIL {SAID}"])


def test_an_error_shows_the_innermost_line(claims):
    result = claims("Raises", "--claims", SCALED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            f"ERROR {SCALED}",
            "    message   RuntimeError: out of <b>luck</b>",
            "    at *miniatures.py:* in build: raise *",
        ]
    )


@pytest.mark.slow
def test_the_summary_of_many_failures_fits_a_screen(claims):
    result = claims("Raises", "-q")
    text = output(result)
    assert len(text[text.index("= claims:") :].splitlines()) <= 45
    assert "more: -rf lists" in text


@pytest.mark.slow
def test_known_failures_are_strict(claims, pytester):
    known = pytester.path / "known.toml"
    known.write_text(KNOWN)
    options = ("--claims", SCALED, "--claims-known", str(known))
    failing = claims("Unscaled", *options)
    failing.assert_outcomes(xfailed=1)
    assert failing.ret == pytest.ExitCode.OK
    failing.stdout.fnmatch_lines(["0 of 1 claims kept: *1 KNOWN FAILURE*"])
    told = claims("Unscaled", *options, "--runxfail")
    told.assert_outcomes(failed=1)
    assert "cannot be trusted" not in output(failing) + output(told)
    passing = claims("Correct", *options)
    passing.assert_outcomes(failed=1)
    passing.stdout.fnmatch_lines([f"UNEXPECTED PASS {SCALED}", "*remove the entry*"])
    claims("Nothing", *options).assert_outcomes(failed=1)


def test_an_expired_entry_excuses_nothing(claims, pytester):
    known = pytester.path / "known.toml"
    known.write_text(KNOWN.replace("9999", "2020"))
    result = claims("Unscaled", "--claims", SCALED, "--claims-known", str(known))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"FAIL {SAID}", "    message *expired on 2020-01-01: mend it, or renew it"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--claims", "no-such-claim"), "there is no claim, topic, document or row 'no-such-claim'"),
        (("--claims", SCALED[:-1]), f"did you mean {SCALED}"),
        (("--claims-known", "/no/such.toml"), "cannot be read: No such file or directory"),
        (("--claims-report", "report.pdf"), "the name must end in .html, .json, .sarif, .md, .svg"),
        (("--claims-report", "/no/such/report.json"), "there is no folder /no/such"),
        (("--claims", "history"), "selects only claims about the documents"),
        (("--impl", "/no/such.py:Class"), "there is no file /no/such.py"),
        (("--impl", f"{MINIATURES}:CannotBeMade"), "CannotBeMade() raised ValueError: no licence"),
        (("--claims-budget", "huge"), "invalid choice: 'huge'"),
    ],
)
def test_wrong_options_are_one_sentence_and_a_usage_error(pytester, options, sentence):
    result = pytester.runpytest_inprocess(*CONFORMANCE, "--impl", "reference", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert sentence in "\n".join([*result.errlines, *result.outlines])


def test_list_shows_the_selection_and_runs_nothing(pytester):
    result = pytester.runpytest_inprocess("--claims-list", "--claims", SCALED)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([f"{SCALED} *attention*", "1 claims"])


def test_the_json_report(claims, pytester):
    claims("Unscaled", "--claims", f"{SCALED},{BLOCKED}", "--claims-report", "report.json")
    report = json.loads((pytester.path / "report.json").read_text(), parse_constant=pytest.fail)
    assert report["schema"] == 2
    assert report["attributes"] == {"attention": {"masked_row": "zero"}}
    assert report["total"] == sum(report["counts"].values()) == 2
    verdicts = {claim["slug"]: (claim["verdict"], claim["root"]) for claim in report["claims"]}
    assert verdicts == {SCALED: ("FAIL", ""), BLOCKED: ("BLOCKED", SCALED)}
    (scaled,) = (claim for claim in report["claims"] if claim["slug"] == SCALED)
    assert scaled["margin"] < 1 < scaled["error"] / scaled["bound"]
    assert scaled["example"]
    assert scaled["where"]


def test_the_html_report_is_one_escaped_page(claims, pytester):
    claims("Raises", "--claims", SCALED, "--claims-report", "report.html")
    page = (pytester.path / "report.html").read_text()
    assert "out of &lt;b&gt;luck&lt;/b&gt;" in page
    assert "<b>" not in page
    assert "http" not in page


@pytest.mark.slow
def test_sarif_and_github_name_the_users_line(claims, pytester, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = claims("Unscaled", "--claims", SCALED, "--claims-report", "report.sarif")
    result.stdout.fnmatch_lines([f"::error file=*miniatures.py,line=*,title={SCALED}::{SAID} *"])
    (run,) = json.loads((pytester.path / "report.sarif").read_text())["runs"]
    (location,) = run["results"][0]["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"].endswith("miniatures.py")
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert "::error" not in output(claims("Unscaled", "--claims", SCALED))


@pytest.mark.slow
def test_junit_holds_the_verdict(claims, pytester):
    claims("Unscaled", "--claims", SCALED, "--junitxml", "junit.xml")
    junit = (pytester.path / "junit.xml").read_text()
    assert '<property name="verdict" value="FAIL"' in junit
    assert "smallest" not in junit
    assert "expected" in junit


@pytest.mark.slow
def test_last_failed_runs_the_broken_claim_again(claims, pytester):
    conformance = ("--pyargs", "conformance")
    passing = next(claim.slug for claim in load().tested() if claim.topic == "positions")
    claims("Unscaled", "--claims", f"{SCALED},{passing}", of=conformance).assert_outcomes(failed=1, skipped=1)
    again = claims("Unscaled", "--claims", f"{SCALED},{passing}", "--lf", of=conformance)
    again.assert_outcomes(failed=1, deselected=1)


def test_x_stops_at_the_first_broken_claim(claims):
    claims("Raises", "-x", "--claims", "attention").assert_outcomes(failed=1)


@pytest.mark.parametrize("miniature", slow_but(["Unscaled", "CannotBeMade"], "CannotBeMade".__eq__))
def test_under_xdist(pytester, miniature):
    pytest.importorskip("xdist")
    options = ("-n", "2", "--impl", f"{MINIATURES}:{miniature}", "--claims", f"{SCALED},{BLOCKED}")
    result = pytester.runpytest_subprocess(*CONFORMANCE, *options, "-p", "no:benchmark")
    if miniature == "CannotBeMade":
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*CannotBeMade() raised ValueError: no licence*"])
        return
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines([f"FAIL {SAID}  (explains 1 more)", "0 of 2 claims kept: *1 FAIL*1 BLOCKED*"])
    assert "cannot be trusted" not in output(result)


LIES = {
    "report.outcome = 'passed'": "0 passed, 1 failed, 0 skipped; the first difference is *: passed, not failed",
    "report.outcome = 'passed'; del report.claim": "0 passed, 0 failed, 0 skipped; *: passed, not a result",
    "report.outcome = 'passed'; report.claim = {'claim': 'x', 'verdict': 'PASS'}": "1 passed, 0 failed, 0 skipped; *: "
    "passed, not a result",
}


TOLD = [*((lie, 0) for lie in LIES), (list(LIES)[-1], 1)]
"""Each lie in a process of its own, and one by a worker."""


@pytest.mark.parametrize(("lie", "processes"), slow_but(TOLD, lambda told: told is TOLD[0]))
def test_a_run_whose_counts_are_not_those_of_pytest_fails_in_a_sentence(pytester, lie, processes):
    liar = f"""
        import pytest

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_makereport(item):
            report = yield
            if report.when == "call":
                {lie}
            return report
        """
    pytester.makepyfile(liar=liar)
    pytester.syspathinsert()
    options = ("-p", "liar", "--impl", f"{MINIATURES}:Unscaled", "--claims", SCALED)
    if processes:
        pytest.importorskip("xdist")
        options += ("-n", str(processes), "-p", "no:benchmark")
    result = (pytester.runpytest_subprocess if processes else pytester.runpytest_inprocess)(*CONFORMANCE, *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    said = f"pytest counts 1 passed, 0 failed, 0 skipped, and the results {LIES[lie]} *"
    result.stdout.fnmatch_lines([f"this run cannot be trusted: {said}"])
    assert output(result).count("cannot be trusted") == 1


def test_other_suites_are_left_alone(pytester):
    pytester.makepyfile("def test_theirs(): assert True", helper="x = 1")
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1)
    assert "claims" not in output(result)


def test_a_broken_suite_of_theirs_keeps_its_own_report(pytester):
    pytester.makepyfile("def test_theirs(): assert 1 == 2")
    result = pytester.runpytest_inprocess()
    result.stdout.fnmatch_lines(["E *assert 1 == 2", "FAILED *test_theirs*"])


def test_the_plugin_imports_nothing_heavy():
    code = (
        "import sys, conformance.plugin; "
        "print([n for n in ('numpy', 'hypothesis', 'torch', 'rich', 'conformance.session') if n in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == "[]"
