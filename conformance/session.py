"""One pytest run of claims: its subjects one after the other, and what is made of their results (`ClaimsSession`).

What the run is asked for stands in `conformance.asked`; what pytest sees of it, in `conformance.items`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conformance.adapters import SpecificationError
from conformance.annotations import github_commands
from conformance.asked import Asked
from conformance.catalogue import Claim
from conformance.files import write_text
from conformance.outcome import exit_code, exit_code_of_all
from conformance.report import Report, to_json, write_reports
from conformance.subject import Subject
from conformance.summary import several_lines, summary_lines
from conformance.supervisor import subjects_of
from conformance.verdict import Result, Verdict
from conformance.versions import misfit


class ClaimsSession:
    """Subjects of a run, of which one is open at a time. Raises UsageError, with one sentence, on a wrong option."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.is_worker = hasattr(config, "workerinput")
        self.asked = Asked(config)
        self.subjects = [] if self.asked.is_whole_file else [self.asked.subject(self.asked.impl)]
        self._open: Subject | None = None
        self._trouble = ""

    def find(self) -> None:
        """Of a whole file, find the subjects in it. Raises UsageError."""
        if self.subjects:
            return
        if self.config.option.claims_adapter_out:
            raise pytest.UsageError(f"--claims-adapter-out: {self.asked.impl} is a whole file; name one class of it")
        try:
            found = subjects_of(self.asked.impl, self.asked.folders(), self.config.option.claims_sandbox)
            self.subjects = [self.asked.subject(impl, name) for name, impl in found.items()]
        except SpecificationError as error:
            raise pytest.UsageError(str(error)) from error

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
            self.asked.budget,
            self.config.option.claims_explore,
            subject.results,
            self.asked.catalogue,
            self.asked.chosen,
            partial(self.asked.replay, subject),
        )

    def finish(self, session: pytest.Session) -> None:
        """Write the report files; settle the exit status; keep pytest from repeating what the summary says."""
        if self.disagreement() and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reports = self.reports()
        if not reports:
            return
        for path in self.asked.report_files:
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
        if not self.asked.impl.startswith(("minigrad", "reference")) and (sentence := misfit()):
            terminal.write_line(sentence, yellow=True)
        if self.config.option.tbstyle == "no" and self.config.option.reportchars == "fE":
            terminal.reportchars = terminal.reportchars.replace("f", "").replace("E", "")
        terminal.write_sep("=", f"claims: {self.asked.impl}")
        height = max(shutil.get_terminal_size(fallback=(80, 45)).lines - 6, 18)  # pytest's own lines stand around it
        lines = several_lines(reports, height) if self.asked.is_whole_file else summary_lines(reports[0], height)
        for line in lines:
            colour = next((colours for word, colours in _COLOURS.items() if line.startswith(word + " ")), {})
            terminal.write_line(line, **colour)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            for report in reports:
                for line in github_commands(to_json(report)):
                    terminal.write_line(line)


_BAD = ("NOT TESTED:", Verdict.FAIL, Verdict.ERROR, Verdict.UNEXPECTED_PASS, Verdict.VACUOUS)
_COLOURS: dict[str, dict[str, bool]] = {
    Verdict.PASS.value: {"green": True},
    Verdict.NOTE.value: {"yellow": True},
    **{word: {"red": True} for word in _BAD},
}
"""How the lines of the summary are coloured that begin with a verdict."""
