"""One pytest run of claims: the folder and items that pytest collects, and the state behind them.

`ClaimsSession` reads the options, owns the supervisor and gathers the results; `ClaimsFolder` and `ClaimItem` are what
pytest sees: one item a claim, whose node id `conformance::<slug>` does not depend on where the package lies.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from conformance.adapters import SpecificationError
from conformance.annotations import github_commands
from conformance.catalogue import Catalogue, CatalogueError, Claim, is_newer, load
from conformance.known import KnownFailuresError, expect, is_stale, load_known
from conformance.outcome import exit_code
from conformance.report import FORMS, Report, to_json, write_report
from conformance.settings import SettingsError, read_settings
from conformance.summary import broken_lines, summary_lines
from conformance.supervisor import Supervisor
from conformance.verdict import HELD, Result, Verdict, judged

PACKAGE = Path(__file__).parent
DEFAULT_IMPLEMENTATION = "minigrad"
DEFAULT_BUDGET = "default"


class ClaimsSession:
    """Options, supervisor and results of a run. Raises UsageError, with one sentence, on a wrong option."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        option = config.option
        self.is_worker = hasattr(config, "workerinput")
        self.report_file = Path(option.claims_report) if option.claims_report else None
        if self.report_file is not None:
            _check_report_file(self.report_file)
        try:
            settings = read_settings(config.invocation_params.dir)
            self.impl: str = option.impl or settings.impl or DEFAULT_IMPLEMENTATION
            self.budget: str = option.claims_budget or settings.budget or DEFAULT_BUDGET
            selection = option.claims or settings.claims
            self.catalogue: Catalogue = load()
            self.chosen = self._chosen(selection, option.claims_since or settings.since)
            self.selected = [claim for claim in self.chosen if claim.is_tested]
            if not self.selected:
                raise CatalogueError(
                    f"--claims {selection} selects only claims about the documents; see `conformance errata`"
                )
            known = option.claims_known or settings.known
            self.known = load_known(Path(known), self.catalogue, self.impl) if known else {}
            self.supervisor = Supervisor(
                self.impl,
                budget=self.budget,
                seed=option.claims_explore,
                children=1 if self.is_worker else 2,
                folders=[*([settings.folder] if settings.folder else []), *config.getini("pythonpath")],
            )
        except (CatalogueError, KnownFailuresError, SettingsError, SpecificationError) as error:
            raise pytest.UsageError(str(error)) from error
        self.results: dict[str, Result] = {}
        self.outcomes: dict[str, str] = {}
        """What pytest reports of each claim, by slug: passed, failed or skipped."""

    def _chosen(self, selection: str | None, since: str | None) -> list[Claim]:
        """The claims that were asked for, without those that came after version `since`. Raises CatalogueError."""
        found = self.catalogue.select(selection) if selection else list(self.catalogue.claims.values())
        if since is None:
            return found
        chosen = [claim for claim in found if not is_newer(claim, since)]
        if not chosen:
            raise CatalogueError(f"--claims-since {since}: every claim of {selection or 'the catalogue'} is newer")
        return chosen

    def listing(self) -> str:
        """The selected claims, a line each."""
        lines = [f"{claim.slug:60} {claim.topic:18} {claim.says}" for claim in self.selected]
        return "\n".join([*lines, f"{len(lines)} claims"])

    def try_loading(self) -> None:
        """Load the implementation, to see that it can be. Raises UsageError."""
        self._load()
        self.supervisor.close()

    def _load(self) -> None:
        try:
            self.supervisor.start()
        except SpecificationError as error:
            raise pytest.UsageError(str(error)) from error
        self._write_adapter()

    def _write_adapter(self) -> None:
        """Write the inferred adapter where --claims-adapter-out says. Raises UsageError."""
        path = self.config.option.claims_adapter_out
        if path is None or self.is_worker:
            return
        try:
            Path(path).write_text(self.supervisor.adapter(Path(path)), encoding="utf-8")
        except SpecificationError as error:
            raise pytest.UsageError(str(error)) from error
        except OSError as error:
            raise pytest.UsageError(f"--claims-adapter-out {path}: it cannot be written: {error.strerror}") from error

    def start(self, claims: Iterable[str]) -> None:
        """Load the implementation, and run ahead through `claims` unless a scheduler deals them out."""
        self._load()
        if not self.is_worker:
            self.supervisor.submit(claims)

    def run(self, claim: str) -> Result:
        """A claim's result in the light of what the claim is, and of the known failures."""
        return expect(judged(self.supervisor.result(claim), self.catalogue.claims[claim]), self.known)

    def add(self, report: pytest.TestReport) -> None:
        """Take in what pytest reports of an item of ours, and the result that comes with it."""
        if report.when == "call" or not report.passed:  # that set-up and tear-down pass decides nothing
            self.outcomes[report.nodeid.rpartition("::")[2]] = report.outcome
        values: Mapping[str, Any] | None = getattr(report, "claim", None)
        if values is not None:
            result = Result.from_json(values)
            self.results[result.claim] = result

    def disagreement(self) -> str:
        """One sentence when the results say something else than pytest reports; else nothing."""
        ours = {claim: self._outcome(result) for claim, result in self.results.items()}
        differing = [claim for claim in {**self.outcomes, **ours} if self.outcomes.get(claim) != ours.get(claim)]
        if not differing:
            return ""
        first = differing[0]
        return (
            f"this run cannot be trusted: pytest counts {_counted(self.outcomes)}, and the results {_counted(ours)}; "
            f"the first difference is {first}: {self.outcomes.get(first, 'no report')}, not "
            f"{ours.get(first, 'a result')} (does another plugin change outcomes? -p no:NAME leaves one out)"
        )

    def _outcome(self, result: Result) -> str:
        """What pytest must report of a result."""
        if result.verdict is Verdict.PASS:
            return "passed"
        if result.verdict is Verdict.KNOWN_FAILURE:
            return "failed" if self.config.option.runxfail else "skipped"
        missing = result.verdict is Verdict.NOT_PROVIDED and not is_stale(result, self.known)
        return "skipped" if missing else "failed"

    def report(self) -> Report:
        return Report(
            self.impl,
            self.supervisor.kind,
            self.budget,
            self.config.option.claims_explore,
            self.results,
            self.catalogue,
            self.chosen,
            self.replay,
        )

    def finish(self, session: pytest.Session) -> None:
        """Write the report file; settle the exit status; keep pytest from repeating what the summary says."""
        if self.disagreement() and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if not self.results:
            return
        report = self.report()
        if self.report_file is not None:
            write_report(report, self.report_file)
        if not session.exitstatus:
            session.exitstatus = exit_code(self.results, report.untested, self.config.option.claims_strict)
        if session.testscollected in (0, len(self.results)):
            option = self.config.option
            option.tbstyle = "no" if option.tbstyle == "auto" else option.tbstyle

    def write_summary(self, terminal: pytest.TerminalReporter) -> None:
        if disagreement := self.disagreement():
            terminal.write_line(disagreement, red=True)
        if not self.results:
            return
        if self.config.option.tbstyle == "no" and self.config.option.reportchars == "fE":
            terminal.reportchars = terminal.reportchars.replace("f", "").replace("E", "")
        terminal.write_sep("=", f"claims: {self.impl}")
        bad = ("NOT TESTED:", Verdict.FAIL, Verdict.ERROR, Verdict.UNEXPECTED_PASS, Verdict.VACUOUS)
        colours = {Verdict.PASS.value: "green", Verdict.NOTE.value: "yellow", **dict.fromkeys(bad, "red")}
        height = max(shutil.get_terminal_size(fallback=(80, 45)).lines - 6, 18)  # pytest's own lines stand around it
        report = self.report()
        for line in summary_lines(report, height):
            colour = next((colours[word] for word in colours if line.startswith(word + " ")), None)
            terminal.write_line(line, **({colour: True} if colour else {}))
        if os.environ.get("GITHUB_ACTIONS") == "true":
            for line in github_commands(to_json(report)):
                terminal.write_line(line)

    def replay(self, claim: str) -> str:
        """The command that runs a claim again in the same way."""
        option = self.config.option
        words = ["pytest", *self._target(), "--impl", self.impl, "--claims", claim]
        if self.budget != DEFAULT_BUDGET:
            words += ["--claims-budget", self.budget]
        if option.claims_explore:
            words += ["--claims-explore", str(option.claims_explore)]
        return shlex.join(words)

    def _target(self) -> list[str]:
        path = os.path.relpath(PACKAGE, self.config.invocation_params.dir)
        return ["--pyargs", "conformance"] if self.config.option.pyargs or path.startswith("..") else [f"{path}/"]


def _counted(outcomes: Mapping[str, str]) -> str:
    """How many claims had each outcome: "3 passed, 1 failed"."""
    numbers = Counter(outcomes.values())
    return ", ".join(f"{numbers[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))


def _check_report_file(path: Path) -> None:
    if path.suffix not in FORMS:
        raise pytest.UsageError(f"--claims-report {path}: the name must end in {', '.join(FORMS)}")
    if not path.absolute().parent.is_dir():
        raise pytest.UsageError(f"--claims-report {path}: there is no folder {path.absolute().parent}")


class ClaimsFolder(pytest.Directory):
    """This package's folder, collected as its claims."""

    def __init__(self, *, session_of_claims: ClaimsSession, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.claims = session_of_claims

    def collect(self) -> Iterable[pytest.Item]:
        for claim in self.claims.selected:
            yield ClaimItem.from_parent(self, name=claim.slug, claim=claim)


class ClaimBroken(Exception):
    """The claim of an item does not hold."""


class ClaimItem(pytest.Item):
    """One claim. `claim_result` is its result, once it ran."""

    parent: ClaimsFolder

    def __init__(self, *, claim: Claim, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.claim = claim
        self.claim_result: Result | None = None

    def runtest(self) -> None:
        session = self.parent.claims
        result = self.claim_result = session.run(self.claim.slug)
        self.user_properties.append(("verdict", result.verdict.value))
        if result.verdict is Verdict.KNOWN_FAILURE:
            pytest.xfail(f"KNOWN FAILURE: {session.known[self.claim.slug].reason}")
        if result.verdict is Verdict.NOT_PROVIDED and not is_stale(result, session.known):
            pytest.skip(f"NOT PROVIDED: {result.message}")
        if result.verdict not in HELD:
            raise ClaimBroken

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if not isinstance(excinfo.value, ClaimBroken) or self.claim_result is None:
            return super().repr_failure(excinfo, style)
        return "\n".join(broken_lines(self.parent.claims.report(), self.claim_result))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return PACKAGE, None, self.name
