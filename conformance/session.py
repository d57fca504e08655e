"""One pytest run of claims: the folder and items that pytest collects, and the state behind them.

`ClaimsSession` reads the options, and has the subjects of the run (`conformance.subject`); `ClaimsFolder`,
`ClaimsOfSubject` and `ClaimItem` are what pytest sees. An item is a claim. Its node id does not depend on where the
package lies: `conformance::<slug>`, and of a whole file `conformance::<file>:<name>::<slug>`.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conformance.adapters import SpecificationError, parse
from conformance.adapters.stated import Stated
from conformance.annotations import github_commands
from conformance.catalogue import Catalogue, CatalogueError, Claim, is_newer, load
from conformance.files import write_text
from conformance.known import KnownFailuresError, is_stale, load_known
from conformance.outcome import exit_code, exit_code_of_all
from conformance.report import FORMS, Report, to_json, write_reports
from conformance.settings import SettingsError, read_settings
from conformance.subject import Subject
from conformance.summary import broken_lines, several_lines, summary_lines
from conformance.supervisor import Supervisor, subjects_of
from conformance.verdict import HELD, Result, Verdict
from conformance.versions import misfit

PACKAGE = Path(__file__).parent
DEFAULT_IMPLEMENTATION = "minigrad"
DEFAULT_BUDGET = "default"


class ClaimsSession:
    """Options and subjects of a run. Raises UsageError, with one sentence, on a wrong option."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        option = config.option
        self.is_worker = hasattr(config, "workerinput")
        self.report_files = [Path(name) for name in option.claims_report]
        for path in self.report_files:
            _check_report_file(path)
        try:
            self.settings = read_settings(config.invocation_params.dir)
            self.impl: str = option.impl or self.settings.impl or DEFAULT_IMPLEMENTATION
            self.budget: str = option.claims_budget or self.settings.budget or DEFAULT_BUDGET
            selection = option.claims or self.settings.claims
            self.catalogue: Catalogue = load()
            self.chosen = self._chosen(selection, option.claims_since or self.settings.since)
            self.selected = [claim for claim in self.chosen if claim.is_tested]
            if not self.selected:
                raise CatalogueError(
                    f"--claims {selection} selects only claims about the documents; see `conformance errata`"
                )
            self.stated = self._stated()
            self.is_whole_file = parse(self.impl).is_whole_file
            self.subjects = [] if self.is_whole_file else [self._subject(self.impl)]
        except (CatalogueError, KnownFailuresError, SettingsError, SpecificationError) as error:
            raise pytest.UsageError(str(error)) from error
        self._open: Subject | None = None
        self._trouble = ""

    def _chosen(self, selection: str | None, since: str | None) -> list[Claim]:
        """The claims that were asked for, without those that came after version `since`. Raises CatalogueError."""
        found = self.catalogue.select(selection) if selection else list(self.catalogue.claims.values())
        if since is None:
            return found
        chosen = [claim for claim in found if not is_newer(claim, since)]
        if not chosen:
            raise CatalogueError(f"--claims-since {since}: every claim of {selection or 'the catalogue'} is newer")
        return chosen

    def _stated(self) -> Stated:
        """What the options say of the implementation, else the settings. Raises StatedError."""
        names = [field.name for field in fields(Stated)]
        options = {name: getattr(self.config.option, f"claims_{name}") for name in names}
        stated = Stated(**{name: options[name] or getattr(self.settings, name) or "" for name in names})
        stated.check()
        return stated

    def _subject(self, impl: str, name: str = "") -> Subject:
        known = self.config.option.claims_known or self.settings.known
        supervise = partial(
            Supervisor,
            impl,
            budget=self.budget,
            seed=self.config.option.claims_explore,
            children=1 if self.is_worker else 2,
            folders=self._folders(),
            stated=self.stated,
            is_shut_in=self.config.option.claims_sandbox,
        )
        return Subject(impl, name, supervise, load_known(Path(known), self.catalogue, impl) if known else {})

    def _folders(self) -> list[Path]:
        return [*([self.settings.folder] if self.settings.folder else []), *self.config.getini("pythonpath")]

    def find(self) -> None:
        """Of a whole file, find the subjects in it. Raises UsageError."""
        if self.subjects:
            return
        if self.config.option.claims_adapter_out:
            raise pytest.UsageError(f"--claims-adapter-out: {self.impl} is a whole file; name one class of it")
        try:
            found = subjects_of(self.impl, self._folders(), self.config.option.claims_sandbox)
            self.subjects = [self._subject(impl, name) for name, impl in found.items()]
        except (KnownFailuresError, SpecificationError) as error:
            raise pytest.UsageError(str(error)) from error

    def listing(self) -> str:
        """The selected claims, a line each."""
        lines = [f"{claim.slug:60} {claim.topic:18} {claim.says}" for claim in self.selected]
        return "\n".join([*lines, f"{len(lines)} claims"])

    def try_loading(self) -> None:
        """Load every subject once, to see which can be. Raises UsageError when none can."""
        for subject in self.subjects:
            self._switch_to(subject)
        self.close()
        self._refuse_if_none_can_be_loaded(self.subjects)

    def _switch_to(self, subject: Subject) -> None:
        """Open a subject, and close the one that was open: memory holds one at a time."""
        self.close()
        self._open = subject
        subject.open()

    def close(self) -> None:
        """End every process."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _refuse_if_none_can_be_loaded(self, subjects: Iterable[Subject]) -> None:
        refusals = [subject.refused for subject in subjects]
        if all(refusals):
            raise pytest.UsageError("\n".join(refusals))

    def _write_adapter(self) -> None:
        """Write the inferred adapter where --claims-adapter-out says. Raises UsageError."""
        path = self.config.option.claims_adapter_out
        if path is None or self.is_worker:
            return
        try:
            write_text(Path(path), self.subjects[0].adapter(Path(path)))
        except SpecificationError as error:
            raise pytest.UsageError(str(error)) from error
        except OSError as error:
            raise pytest.UsageError(f"--claims-adapter-out {path}: it cannot be written: {error.strerror}") from error

    def start(self, items: Iterable[Any]) -> None:
        """Load the first subject of these claim items that can be loaded. Raises UsageError when none can."""
        for item in items:
            item.subject.claims.append(item.claim.slug)
        asked = [subject for subject in self.subjects if subject.claims]
        for subject in asked:
            self._switch_to(subject)
            if not subject.refused:
                break
        self._refuse_if_none_can_be_loaded(asked)
        self._write_adapter()
        self._run_ahead()

    def run(self, subject: Subject, claim: Claim) -> Result:
        """A claim's result. A subject that cannot be loaded provides nothing, and says why."""
        if subject is not self._open and not subject.refused:
            self._switch_to(subject)
            self._run_ahead()
        return subject.run(claim)

    def _run_ahead(self) -> None:
        """Begin with the claims of the open subject, unless a scheduler deals them out."""
        if self._open is not None and not self._open.refused and not self.is_worker:
            self._open.run_ahead()

    def add(self, report: pytest.TestReport) -> None:
        """Take in what pytest reports of an item of ours."""
        if report.when == "call" or not report.passed:  # that set-up and tear-down pass decides nothing
            name, _, claim = report.nodeid.partition("::")[2].rpartition("::")
            subject = next(subject for subject in self.subjects if subject.name == name)
            subject.add(claim, report.outcome, getattr(report, "claim", None))

    def disagreement(self) -> str:
        """One sentence when the results say something else than pytest reports; else nothing."""
        found = (subject.disagreement(self.config.option.runxfail) for subject in self.subjects)
        return next(filter(None, found), "")

    def reports(self) -> list[Report]:
        """A report for each subject that was tested."""
        return [self.report(subject) for subject in self.subjects if subject.results]

    def report(self, subject: Subject) -> Report:
        return Report(
            subject.impl,
            subject.kind,
            self.budget,
            self.config.option.claims_explore,
            subject.results,
            self.catalogue,
            self.chosen,
            partial(self.replay, subject),
        )

    def finish(self, session: pytest.Session) -> None:
        """Write the report files; settle the exit status; keep pytest from repeating what the summary says."""
        if self.disagreement() and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reports = self.reports()
        if not reports:
            return
        for path in self.report_files:
            try:
                write_reports(reports, path)
            except OSError as error:
                self._trouble = f"--claims-report {path}: it cannot be written: {error.strerror}"
                session.exitstatus = pytest.ExitCode.USAGE_ERROR
        option = self.config.option
        if not session.exitstatus:
            codes = [exit_code(report.results, report.untested, option.claims_strict) for report in reports]
            session.exitstatus = exit_code_of_all(codes, option.claims_strict)
        if session.testscollected in (0, sum(len(report.results) for report in reports)):
            option.tbstyle = "no" if option.tbstyle == "auto" else option.tbstyle

    def write_summary(self, terminal: pytest.TerminalReporter) -> None:
        if disagreement := self.disagreement():
            terminal.write_line(disagreement, red=True)
        if self._trouble:
            terminal.write_line(self._trouble, red=True)
        reports = self.reports()
        if not reports:
            return
        if not self.impl.startswith(("minigrad", "reference")) and (sentence := misfit()):
            terminal.write_line(sentence, yellow=True)
        if self.config.option.tbstyle == "no" and self.config.option.reportchars == "fE":
            terminal.reportchars = terminal.reportchars.replace("f", "").replace("E", "")
        terminal.write_sep("=", f"claims: {self.impl}")
        height = max(shutil.get_terminal_size(fallback=(80, 45)).lines - 6, 18)  # pytest's own lines stand around it
        lines = several_lines(reports, height) if self.is_whole_file else summary_lines(reports[0], height)
        for line in lines:
            colour = next((colours for word, colours in _COLOURS.items() if line.startswith(word + " ")), {})
            terminal.write_line(line, **colour)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            for report in reports:
                for line in github_commands(to_json(report)):
                    terminal.write_line(line)

    def replay(self, subject: Subject, claim: str) -> str:
        """The command that runs a claim again in the same way."""
        option = self.config.option
        words = ["pytest", *self._target(), "--impl", subject.impl, *self.stated.options, "--claims", claim]
        if option.claims_sandbox:
            words += ["--claims-sandbox"]
        if self.budget != DEFAULT_BUDGET:
            words += ["--claims-budget", self.budget]
        if option.claims_explore:
            words += ["--claims-explore", str(option.claims_explore)]
        return shlex.join(words)

    def _target(self) -> list[str]:
        path = os.path.relpath(PACKAGE, self.config.invocation_params.dir)
        return ["--pyargs", "conformance"] if self.config.option.pyargs or path.startswith("..") else [f"{path}/"]


_BAD = ("NOT TESTED:", Verdict.FAIL, Verdict.ERROR, Verdict.UNEXPECTED_PASS, Verdict.VACUOUS)
_COLOURS: dict[str, dict[str, bool]] = {
    Verdict.PASS.value: {"green": True},
    Verdict.NOTE.value: {"yellow": True},
    **{word: {"red": True} for word in _BAD},
}
"""How the lines of the summary are coloured that begin with a verdict."""


def _check_report_file(path: Path) -> None:
    if path.suffix not in FORMS:
        raise pytest.UsageError(f"--claims-report {path}: the name must end in {', '.join(FORMS)}")
    if not path.absolute().parent.is_dir():
        raise pytest.UsageError(f"--claims-report {path}: there is no folder {path.absolute().parent}")


class ClaimsFolder(pytest.Directory):
    """This package's folder, collected as its claims: of a whole file, those of each subject by themselves."""

    def __init__(self, *, session_of_claims: ClaimsSession, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.claims = session_of_claims

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        for subject in self.claims.subjects:
            if subject.name:
                yield ClaimsOfSubject.from_parent(self, name=subject.name, claims=self.claims, subject=subject)
            else:
                yield from _items(self, self.claims, subject)


class ClaimsOfSubject(pytest.Collector):
    """The claims of one subject of several."""

    def __init__(self, *, claims: ClaimsSession, subject: Subject, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.claims, self.subject = claims, subject

    def collect(self) -> Iterable[pytest.Item]:
        yield from _items(self, self.claims, self.subject)


def _items(parent: pytest.Collector, claims: ClaimsSession, subject: Subject) -> Iterable[ClaimItem]:
    for claim in claims.selected:
        yield ClaimItem.from_parent(parent, name=claim.slug, claims=claims, subject=subject, claim=claim)


class ClaimBroken(Exception):
    """The claim of an item does not hold."""


class ClaimItem(pytest.Item):
    """One claim about one subject. `claim_result` is its result, once it ran."""

    def __init__(self, *, claims: ClaimsSession, subject: Subject, claim: Claim, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.claims, self.subject, self.claim = claims, subject, claim
        self.claim_result: Result | None = None

    def runtest(self) -> None:
        result = self.claim_result = self.claims.run(self.subject, self.claim)
        known = self.subject.known
        self.user_properties.append(("verdict", result.verdict.value))
        if result.verdict is Verdict.KNOWN_FAILURE:
            pytest.xfail(f"KNOWN FAILURE: {known[self.claim.slug].reason}")
        if result.verdict is Verdict.NOT_PROVIDED and not is_stale(result, known):
            pytest.skip(f"NOT PROVIDED: {result.message}")
        if result.verdict not in HELD:
            raise ClaimBroken

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if not isinstance(excinfo.value, ClaimBroken) or self.claim_result is None:
            return super().repr_failure(excinfo, style)
        return "\n".join(broken_lines(self.claims.report(self.subject), self.claim_result))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return PACKAGE, None, self.name
