"""A training loop of this process, watched: `Watching` is what `conformance.watching()` gives."""

from __future__ import annotations

from conformance.catalogue import load
from conformance.in_process import Checked
from conformance.watch.course import course_of
from conformance.watch.ending import finish
from conformance.watch.libraries import tap_all
from conformance.watch.verdicts import results_of
from conformance.watch.watcher import Watcher


class Watching:
    """A context that watches torch. `report` says what was seen, when the context is left or before."""

    def __init__(self) -> None:
        self._watcher = Watcher()

    def __enter__(self) -> Watching:
        tap_all(self._watcher.__enter__())
        return self

    def __exit__(self, *_: object) -> None:
        finish(self._watcher)
        self._watcher.close()

    def report(self) -> Checked:
        """The verdicts on what happened until now; `failures` are those that do not hold."""
        catalogue = load()
        results = results_of(self._watcher.run)
        about = ("training loop", None, "quick", 0, results, catalogue, catalogue.watched())
        return Checked(*about, lambda _: "watch.report()", course_of(self._watcher.run))
