"""What a run of claims is asked for: pytest's options, and the settings of the user's project where those are silent
(`Asked`)."""

from __future__ import annotations

import os
import shlex
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest

from conformance.adapters import SpecificationError, parse
from conformance.adapters.stated import Stated
from conformance.catalogue import Catalogue, CatalogueError, Claim, is_newer, load
from conformance.known import KnownFailuresError, load_known
from conformance.report import FORMS
from conformance.settings import SettingsError, read_settings
from conformance.subject import Subject
from conformance.supervisor import Supervisor

PACKAGE = Path(__file__).parent
DEFAULT_IMPLEMENTATION = "minigrad"
DEFAULT_BUDGET = "default"


class Asked:
    """chosen: the claims that were asked for; selected: those of them that are tests. Raises UsageError, with one
    sentence, on a wrong option."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        option = config.option
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
        except (CatalogueError, SettingsError, SpecificationError) as error:
            raise pytest.UsageError(str(error)) from error

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

    def subject(self, impl: str, name: str = "") -> Subject:
        """A subject of the run, with the failures that are known of it. Raises UsageError."""
        known = self.config.option.claims_known or self.settings.known
        supervise = partial(
            Supervisor,
            impl,
            budget=self.budget,
            seed=self.config.option.claims_explore,
            children=1 if hasattr(self.config, "workerinput") else 2,
            folders=self.folders(),
            stated=self.stated,
            is_shut_in=self.config.option.claims_sandbox,
        )
        try:
            failures = load_known(Path(known), self.catalogue, impl) if known else {}
        except KnownFailuresError as error:
            raise pytest.UsageError(str(error)) from error
        return Subject(impl, name, supervise, failures)

    def folders(self) -> list[Path]:
        """Where the subject's imports are sought, besides its own folder."""
        return [*([self.settings.folder] if self.settings.folder else []), *self.config.getini("pythonpath")]

    def listing(self) -> str:
        """The selected claims, a line each."""
        lines = [f"{claim.slug:60} {claim.topic:18} {claim.says}" for claim in self.selected]
        return "\n".join([*lines, f"{len(lines)} claims"])

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


def _check_report_file(path: Path) -> None:
    if path.suffix not in FORMS:
        raise pytest.UsageError(f"--claims-report {path}: the name must end in {', '.join(FORMS)}")
    if not path.absolute().parent.is_dir():
        raise pytest.UsageError(f"--claims-report {path}: there is no folder {path.absolute().parent}")
