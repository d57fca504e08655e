"""The section [tool.conformance] of a user's pyproject.toml: what the command line need not say every time.

    [tool.conformance]
    impl = "mypkg.model:GPT"            # --impl; a file is found from the folder of pyproject.toml
    claims = "attention,masks"          # --claims
    budget = "quick"                    # --claims-budget
    known = "known-failures.toml"       # --claims-known; found from the folder of pyproject.toml
    since = "0.1.0"                     # --claims-since
    input = "2x16:int"                  # --claims-input
    weights = "trained.safetensors"     # --claims-weights; found from the folder of pyproject.toml
    device = "cuda"                     # --claims-device
    reference = "theirs.py:GPT"         # --claims-reference; a file is found from the folder of pyproject.toml

The nearest pyproject.toml upwards that has the section counts. The command line wins.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

BUDGETS: dict[str, float] = {"quick": 0.3, "default": 1.0, "deep": 10.0}
"""How many times a check's own number of examples each budget explores."""


class SettingsError(ValueError):
    """The section cannot be used."""


@dataclass(frozen=True)
class Settings:
    """The section's values; None where it has none. folder: where its pyproject.toml lies, None without one."""

    impl: str | None = None
    claims: str | None = None
    budget: str | None = None
    known: str | None = None
    since: str | None = None
    input: str | None = None
    weights: str | None = None
    device: str | None = None
    reference: str | None = None
    folder: Path | None = None


_KEYS = [field.name for field in fields(Settings) if field.name != "folder"]


def read_settings(start: Path) -> Settings:
    """The settings for a run from the folder `start`. Raises SettingsError, in one sentence."""
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            section = _section(path)
            if section is not None:
                return _settings(section, path)
    return Settings()


def _section(path: Path) -> object:
    """[tool.conformance]; None where the file has none."""
    try:
        tool = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error
    return tool.get("conformance") if isinstance(tool, dict) else None


def _settings(section: object, path: Path) -> Settings:
    where = f"{path}, [tool.conformance]"
    if not isinstance(section, dict):
        raise SettingsError(f"{where}: it must be a table with {', '.join(_KEYS)}")
    for name, value in section.items():
        if name not in _KEYS:
            raise SettingsError(f"{where}: there is no setting {name!r}; the settings are {', '.join(_KEYS)}")
        if not isinstance(value, str) or not value.strip():
            raise SettingsError(f"{where}: {name} must be a string, not {value!r}")
    budget = section.get("budget")
    if budget is not None and budget not in BUDGETS:
        raise SettingsError(f"{where}: budget is {budget!r}; choose one of {', '.join(BUDGETS)}")
    values = dict(section)
    for name in ("known", "weights"):
        if name in values:
            values[name] = str(path.parent / values[name])
    for name in ("impl", "reference"):
        if file := re.match(r"([^:]*\.py)(?=:|$)", values.get(name, "")):
            values[name] = os.path.relpath(path.parent / file[1]) + values[name][file.end() :]
    return Settings(**values, folder=path.parent)
