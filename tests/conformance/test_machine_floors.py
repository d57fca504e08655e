"""The files of conformance stand on floors: no circle of imports, whenever and for whomever they are imported.

Counted are all imports in the text of a file: at its top, inside functions, those that only a type checker sees, and
the modules that a package imports by itself (`conformance.discovery`). Not counted is what is loaded by a name that is
put together when it is needed: the adapter that `conformance.adapters` is asked for, the library that a watched script
imports. Imports inside functions are listed with the reason for each.
"""

import re
from functools import cache
from pathlib import Path

import pytest
from floors import Package, in_circles, unexplained

import conformance

PACKAGE = Package(Path(conformance.__file__).parent)

# module -> what its functions import when they are called, and why
LATE = {
    "conformance": (
        "conformance.in_process.* conformance.watch.in_process.* conformance.grading.* pathlib sys",
        "importing the package costs nothing; a function imports what it runs",
    ),
    "adapters.inference.fit": ("conformance.mutants", "half a second, needed only where something is wrong"),
    "adapters.whole.absent_weights": ("tokenizers", "it need not be installed"),
    "adapters.whole.placing": ("safetensors", "it need not be installed"),
    "adapters.whole.usage": ("yaml", "it need not be installed"),
    "check": ("conformance.protocol", "it imports numpy, and `import conformance` imports this file"),
    "seeds": ("torch", "an implementation on numpy is seeded without it"),
    "checks.watched_*": (
        "conformance.watch.*",
        "every run imports the checks, and only one that watches a script needs what they look at",
    ),
    "cli.*": ("conformance.* dataclasses", "a command imports only what it runs"),
    "grading.cluster": ("distributed", "it need not be installed"),
    "forking": ("conformance.host", "only the fork is a host"),
    "grading.forked": ("conformance.host", "only the child is a host"),
    "grading.run": ("conformance.mutants", "half a second, needed only where the claims are put in order"),
    "grading.store": ("pyarrow", "it need not be installed"),
    "grading.warm": (
        "conformance.forking conformance.grading.trial",
        "standard output is set aside before anything is imported",
    ),
    "host": (
        "conformance.* hypothesis",
        "the sandbox is entered, and its refusal told, before anything else is imported",
    ),
    "in_process": ("conformance.adapters.whole.implementation pytest", "torch and pytest need not be installed"),
    "keeper": ("conformance.sandbox.system", "it is for Linux only"),
    "kills": ("torch", "it need not be installed"),
    "lookalike": ("conformance.mutants", "half a second, needed only where something is wrong"),
    "mutated": ("conformance.adapters.*", "they import torch, which need not be installed"),
    "plugin": (
        "conformance.items conformance.session",
        "pytest loads the plugin in every run, and few runs test an implementation",
    ),
    "report": ("conformance.evidence conformance.verifications", "they import numpy, and reports of runs need none"),
    "roots": ("conformance.mutants", "they import numpy, and reports of runs need none"),
    "runner": ("hypothesis", "half a second, needed only where examples are explored"),
    "sandbox": ("conformance.sandbox.*", "they are for Linux only"),
    "watch.child": (
        "conformance.watch.course conformance.watch.verdicts",
        "a script runs in a process that has imported little, and is judged afterwards",
    ),
    "watch.launching": ("torch.distributed.run", "it takes its time, and only scripts under torchrun need it"),
}


@cache
def arrows() -> dict[str, set[str]]:
    """Module -> those that it imports, sooner or later."""
    found = PACKAGE.arrows(typed=True)
    for module, path in PACKAGE.files.items():
        if re.search(r"^import_modules\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            found[module] |= {name for name in PACKAGE.files if name.rpartition(".")[0] == module}
    return found


@pytest.mark.slow
def test_packages_that_import_their_modules_are_known() -> None:
    assert "checks.attention" in arrows()["checks"]
    assert "mutants.attention" in arrows()["mutants"]


@pytest.mark.slow
def test_there_is_no_circle() -> None:
    circles = in_circles(arrows())
    assert not circles, f"these import each other: {', '.join(sorted(circles))}"


@pytest.mark.slow
def test_imports_inside_functions_have_a_reason() -> None:
    wrong = unexplained(PACKAGE, LATE)
    assert not wrong, "\n".join(wrong)


def test_a_circle_is_seen() -> None:
    chain = {"top": {"one"}, "one": {"two"}, "two": {"three", "ground"}, "three": {"one"}, "ground": set()}
    assert in_circles(chain) == {"one", "two", "three"}
    assert in_circles({**chain, "three": set()}) == set()
