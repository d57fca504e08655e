"""Which torch the suite is tested with: pyproject.toml has the same bound, and a test holds that."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

OLDEST_TORCH = "2.5"


def misfit(package: str = "torch", oldest: str = OLDEST_TORCH) -> str:
    """A sentence where the installed version is older than what is tested; "" where it fits or is not there."""
    try:
        here = version(package)
    except PackageNotFoundError:
        return ""
    if _parts(here) >= _parts(oldest):
        return ""
    mend = f"pip install '{package}>={oldest}'"
    return f"{package} {here} is older than {oldest}, the oldest that this suite is tested with: {mend}"


def _parts(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)[:2]]
