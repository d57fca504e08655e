"""The command `conformance`: list, coverage, errata, mutants, compare, watch, grade. One module a subcommand.

A subcommand module has `HELP`, `EXAMPLES`, `add_arguments(parser)` and `run(arguments) -> exit code`.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence

from conformance.catalogue import CatalogueError
from conformance.report import ReportError

COMMANDS = ("list", "coverage", "errata", "mutants", "compare", "watch", "grade")

EXIT_CODES = """exit codes:
  0  done, and what the command checks holds
  1  it does not hold: a witness fails, a mutant survives, the catalogue is inconsistent, a claim got worse, a training
     run or a submission breaks a claim
  2  the command line cannot be used, or nothing was seen of a training run
pytest conformance/ ends with 0 when no claim is broken, 1 when one is, 4 when an option or the implementation cannot be
used, 5 when nothing was tested, and 6 when the core of the implementation was not (--no-claims-strict: 0).
"""

_DESCRIPTION = "The claims of five Transformer tutorials, and how well the suite covers them. " + (
    "The claims themselves run under pytest: pytest conformance/ --impl SPEC."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; see EXIT_CODES for what is returned."""
    parser = argparse.ArgumentParser(
        "conformance",
        description=_DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = importlib.import_module(f"conformance.cli.{name}")
        subparser = subparsers.add_parser(
            name,
            help=module.HELP,
            description=(module.__doc__ or "").strip(),
            epilog=f"examples:\n{module.EXAMPLES}\n{EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    parsed = parser.parse_args(arguments)
    try:
        code = int(parsed.run(parsed))
        sys.stdout.flush()
        return code
    except (CatalogueError, ReportError) as error:
        print(f"conformance {parsed.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"conformance {parsed.command}: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try to write it again
        return 2
