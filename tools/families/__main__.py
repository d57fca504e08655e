"""Every published family under the claims: `python -m tools.families --page docs/families-claims.md`.

Our models on minigrad and those of the library `transformers` on torch get the same weights and the same questions, the
claims about whole models. Exits with 1 where a claim is broken, or the two answer differently, or give other numbers.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from tools.bench import page
from tools.families.answers import ask
from tools.families.rows import ROWS
from tools.families.table import table


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.families", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="classes or model types, such as t5 (default: all)")
    parser.add_argument("--page", metavar="FILE", type=Path, help="write the table into this page")
    arguments = parser.parse_args(argv)
    unknown = set(arguments.names) - {name for row in ROWS for name in (row.architecture, row.model_type)}
    if unknown:
        known = ", ".join(dict.fromkeys(row.model_type for row in ROWS))
        parser.error(f"there is no row {', '.join(sorted(unknown))}; choose among {known}, or their classes")
    if arguments.page:
        try:
            page.read(arguments.page)
        except (OSError, ValueError) as error:
            parser.error(str(error))
    try:
        library = importlib.import_module("transformers")
    except ModuleNotFoundError:
        parser.error('transformers is not installed: pip install "minigrad-conformance[reference]" brings it')
    library.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    chosen = [row for row in ROWS if not arguments.names or {row.architecture, row.model_type} & {*arguments.names}]
    console, found = Console(stderr=True), []
    with console.status("asking") as status:
        for number, row in enumerate(chosen, 1):
            status.update(f"{row.architecture} ({number} of {len(chosen)})")
            found.append(ask(row, library))
            if not found[-1].is_one_model:
                console.print(f"{row.architecture}: the two differ by {found[-1].difference:.1g}", markup=False)
            for answer in found[-1].disagreeing:
                console.print(f"{row.architecture}: {answer}", markup=False)
    if arguments.page:
        versions = f"transformers {library.__version__}, torch {torch.__version__.partition('+')[0]}"
        command = f"    python -m tools.families --page {arguments.page}"
        page.write(arguments.page, f"{command}\n\n{versions}. {table(found)}")
    else:
        print(table(found))
    return int(any(one.disagreeing or not one.is_one_model for one in found))


if __name__ == "__main__":
    sys.exit(main())
