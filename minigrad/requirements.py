"""What the engine needs beside numpy: the extra `engine`. The suite of claims does without it.

Importing this file is the check: it raises ModuleNotFoundError, in one sentence, when something is not installed.
"""

import importlib.util

INSTALL = 'pip install "minigrad-conformance[engine]"'
NEEDED = ("ml_dtypes", "numba", "llvmlite", "threadpoolctl")


def require() -> None:
    """Raise ModuleNotFoundError, in one sentence, when one of them is not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"minigrad needs {', '.join(missing)}, not installed here; install the extra engine: {INSTALL}",
            name=missing[0],
        )


require()
