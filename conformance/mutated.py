"""Mutants and the correct specimens that they are made from, as implementations that the suite judges.

A model is pointed at as `--impl file.py:Class` would, a script is run and watched as `conformance watch` would. These
stand here, and not with the mutants: reports and adapters below name mutants, and run none.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.adapters.specification import parse
from conformance.mutants.base import AnyMutant, Mutant
from conformance.mutants.script import FOLDER as SCRIPTS
from conformance.mutants.script import LONG, RESUMED, STEPS, ScriptMutant
from conformance.mutants.source import FOLDER as SPECIMENS
from conformance.mutants.source import HELPERS, SCORES, SourceMutant, Specimen
from conformance.watch.launching import Script
from conformance.watch.lines import source_of
from conformance.watch.script import watched
from conformance.watch.verdicts import Watched


def implementation_of(mutant: AnyMutant) -> Any:
    """The mutant as an implementation. One of a model or a script needs torch, and raises ValueError unless each text
    that it changes stands once in its file."""
    if isinstance(mutant, Mutant):
        return mutant.implementation()
    if isinstance(mutant, SourceMutant):
        return pointed_at(mutant.specimen, mutant.source(), f"{SPECIMENS / mutant.name}.py")
    assert isinstance(mutant, ScriptMutant)
    steps = LONG.get(mutant.script, STEPS)
    return run_of(mutant.source(), f"{mutant.name}.py", mutant.script == RESUMED, steps)


def specimen_as_it_is(specimen: Specimen) -> Any:
    """What `--impl` would give for the file as it is."""
    return pointed_at(specimen, specimen.source, str(SPECIMENS / specimen.file))


def pointed_at(specimen: Specimen, source: str, file: str) -> Any:
    """The implementation of a source that is a module of its own; `inspect` finds its lines under `file`."""
    from conformance.adapters.helpers.beside import functions_of
    from conformance.adapters.helpers.implementation import HelpersImplementation
    from conformance.adapters.whole.implementation import PointedImplementation

    module = ModuleType(f"conformance_specimen_{Path(file).stem}")
    module.__file__ = file
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules[module.__name__] = module
    exec(compile(source, file, "exec"), vars(module))
    if specimen in (HELPERS, SCORES):
        classes = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
        return HelpersImplementation([*functions_of(module), *classes], specimen.name)
    return PointedImplementation(getattr(module, specimen.name), parse(f"{module.__name__}:{specimen.name}"))


def script_run(name: str) -> Any:
    """The run of a script as it is."""
    return run_of((SCRIPTS / name).read_text(encoding="utf-8"), name, name == RESUMED, LONG.get(name, STEPS))


def run_of(source: str, name: str, goes_on: bool = False, steps: int = STEPS) -> Any:
    """The run of a script of this text, as an implementation; what it prints is swallowed. goes_on: it is run twice,
    and the second run is given, which goes on from the checkpoint of the first. steps: that are watched."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(source, encoding="utf-8")
        source_of(str(path))  # read while it is there
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = watched(Script(str(path)), steps, keeps_moments=goes_on)
            if goes_on:
                expected = run.moments[run.saved_at() :]
                run = watched(Script(str(path)), steps, keeps_moments=True)
                run.expected = expected
            return Watched(run, name)
