"""What the engine needs: the extra `engine`. The suite of claims does without it.

Importing this file is the check: it raises ImportError, in one sentence, when something is not installed or too old.
"""

import importlib.util
import re

import numpy

INSTALL = 'pip install "minigrad-conformance[engine]"'
NEEDED = ("ml_dtypes", "numba", "llvmlite", "threadpoolctl")
TESTED = {
    "numpy": ("2.1", "3"),
    "numba": ("0.62", "0.69"),
    "llvmlite": ("0.45", "0.51"),
    "ml_dtypes": ("0.5", "1"),
    "threadpoolctl": ("3.1", "4"),
}
"""Package -> the oldest version that is tested, and the first that is not. Of numba and llvmlite private parts are
used, which may change with each version. pyproject.toml has the same bounds; a test holds that."""


def require() -> None:
    """Raise ImportError, in one sentence, when one of them is not installed, or numpy is too old."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"minigrad needs {', '.join(missing)}, not installed here; install the extra engine: {INSTALL}",
            name=missing[0],
        )
    oldest = TESTED["numpy"][0]
    if _parts(numpy.__version__) < _parts(oldest):
        raise ImportError(f"minigrad needs numpy {oldest} or later, and this is {numpy.__version__}: {INSTALL}")


def misfits() -> dict[str, str]:
    """Package -> a sentence, for each whose version is older or newer than what is tested."""
    found = {}
    for name, (oldest, beyond) in TESTED.items():
        here = _version(name)
        if not _parts(oldest) <= _parts(here) < _parts(beyond):
            word = "older" if _parts(here) < _parts(oldest) else "newer"
            found[name] = f"{name} {here} is {word} than what minigrad is tested with, from {oldest} to below {beyond}"
    return found


def _version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


def _parts(text: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


require()
