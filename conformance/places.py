"""Lines of the user's code: where an error came from, where a component's code stands, what a line says.

A place is text that begins with "path/to/file.py:LINE" and may go on with the function and the line's source. Paths in
the current folder are relative to it.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import traceback
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

_LIBRARIES = ("<", "site-packages", "dist-packages", "lib/python")
_WATCHERS = ("__torch_dispatch__", "__torch_function__")
"""Functions of this package that torch calls inside the user's operations."""
_OWN = str(Path(__file__).parent)
_SUBJECTS = tuple(os.path.join(_OWN, folder, "") for folder in ("mutants", os.path.join("adapters", "examples")))
"""Folders of this package that hold models to be tested."""
_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?!\d)")


def innermost_line(error: BaseException) -> str:
    """ "file:line in function: source" of the innermost frame outside libraries, or of the innermost frame; for a file
    that is no Python, "file:line: source" of the line that cannot be read, which no frame names."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno and is_users(error.filename):
        return f"{short(error.filename)}:{error.lineno}: {(error.text or '').strip()}"
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return ""
    codes = [(frame.f_code, line) for frame, line in frames]
    own = [(c, line) for c, line in codes if is_users(c.co_filename) and c.co_name not in _WATCHERS]
    code, line = (own or codes)[-1]
    source = linecache.getline(code.co_filename, line).strip()
    return f"{short(code.co_filename)}:{line} in {code.co_name}: {source}"


_OF_NUMBERS = re.compile(r"(?i)\b(is_?)?(nan|inf|finite|infinite)s?\b")


def is_of_the_suite(error: BaseException) -> bool:
    """Whether an error comes from a line of this package, and not from one of the user's that it ran."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    lines = [file for file in files if is_users(file) or file.startswith(_OWN)]
    return bool(lines) and lines[-1].startswith(_OWN) and not lines[-1].startswith(_SUBJECTS)


def is_a_refusal(error: BaseException) -> bool:
    """Whether a line of the user's own raises an error on purpose, as one that checks what it was given; not one that
    checks whether numbers are finite, which it made itself."""
    if not isinstance(error, ValueError | AssertionError):
        return False
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    file = frame.f_code.co_filename
    if not is_users(file) or (file.startswith(_OWN) and not file.startswith(_SUBJECTS)):
        return False
    text = linecache.getline(file, line).strip()
    return text.startswith(("raise ", "assert ")) and not _OF_NUMBERS.search(f"{text} {error}")


def code_of(subject: Any) -> str:
    """Where the code of a subject begins: what it says itself as `place`, else its class's __call__ ("file:line in
    Class.__call__"). Empty when that is in a library or in this package."""
    said = getattr(subject, "place", None)
    return said if isinstance(said, str) else line_of(type(subject).__call__)


def line_of(function: Any) -> str:
    """ "file:line in name" of a Python function; empty for one in a library, in this package, or not in Python."""
    if not isinstance(function, FunctionType):
        return ""
    code = function.__code__
    if not is_users(code.co_filename) or code.co_filename.startswith(_OWN):
        return ""
    return f"{short(code.co_filename)}:{code.co_firstlineno} in {code.co_qualname}"


def with_source(place: str) -> str:
    """ "model.py:12" with what that line says: "model.py:12: scores = q @ k.T". Other text unchanged."""
    match = _PLACE.fullmatch(place)
    if match is None:
        return place
    shown = f"{short(match['file'])}:{match['line']}"
    line = linecache.getline(match["file"], int(match["line"])).strip()
    return f"{shown}: {line}" if line else shown


def file_and_line(place: str) -> tuple[str, int] | None:
    """The file and the line that a place begins with; None when it names none."""
    match = _PLACE.match(place)
    return (match["file"], int(match["line"])) if match else None


@cache
def is_users(filename: str) -> bool:
    """Whether a file is no library's. (Files of this package count as the user's.)"""
    return not any(part in filename for part in _LIBRARIES)


def file_of_class(cls: type) -> str:
    """The file that a class lies in; empty where its module has none, as in a notebook."""
    return getattr(sys.modules.get(cls.__module__), "__file__", None) or ""


def short(filename: str) -> str:
    """A path relative to the current folder, if it lies in it."""
    folder = os.getcwd().rstrip(os.sep) + os.sep
    return filename.removeprefix(folder)
