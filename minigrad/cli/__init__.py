"""The command `minigrad`: one module a subcommand, imported only when it is called.

A subcommand's module has `configure(parser)`, which declares its arguments, and `run(arguments) -> int`, the exit code.
Expected failures (bad arguments, a missing program) raise `Refusal`, whose message is one sentence.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {  # name -> (module, what it does)
    "doctor": ("minigrad.cli.doctor", "say what this machine has and what is missing, with the command that mends it"),
    "explain": ("minigrad.cli.explain", "explain ops: formula, derivation of the derivative, cost, a worked example"),
    "render": ("minigrad.cli.render", "draw the computation graph of an example, a function or a module"),
    "step": ("minigrad.cli.step", "run a program and step through its backward passes"),
    "warmup": ("minigrad.cli.warmup", "compile every CPU kernel now"),
}


class Refusal(Exception):
    """What the user asked for cannot be done; the message says why and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand. Returns its exit code; 2 for a refusal, whose message goes to stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser("minigrad", description="Study computation graphs.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in given if not word.startswith("-")), None)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == chosen:
            found = import_module(module)
            found.configure(command)
            command.set_defaults(run=found.run)
    parsed = parser.parse_args(given)
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        _write_to_nowhere()
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"minigrad {parsed.command}: {error.strerror}", file=sys.stderr)
        _write_to_nowhere()
        return 2
    except Refusal as refusal:
        print(f"minigrad {parsed.command}: {refusal}", file=sys.stderr)
        return 2
    return code


def _write_to_nowhere() -> None:
    """What is left of the standard output: Python would try to write it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
