"""`minigrad step FILE.py`: run a program and go through its backward passes node by node."""

from __future__ import annotations

import argparse
from pathlib import Path

from minigrad.cli import Refusal
from minigrad.study.step import step_file


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.py", help="a program that calls backward()")
    parser.add_argument("--all", action="store_true", help="do not wait for Enter after each step")


def run(arguments: argparse.Namespace) -> int:
    if not Path(arguments.file).is_file():
        raise Refusal(f"there is no file {arguments.file}")
    try:
        compile(Path(arguments.file).read_bytes(), arguments.file, "exec")
    except (SyntaxError, ValueError) as error:
        raise Refusal(f"{arguments.file} is no program of Python: {error}") from None
    return 0 if step_file(arguments.file, arguments.all) else 1
