"""Make the parallel corpus of transformer/data from Django's message catalogues: `python -m tools.corpus FOLDER`.

FOLDER is an unpacked Django (the folder that holds `conf/` and `contrib/`). Kept are messages of one line without
plural forms, of 2 to 100 characters, translated into all languages and not marked as uncertain; each English text once.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

LANGUAGES = {"de": "de", "zh": "zh_Hans"}  # column -> name of the catalogue
OUTPUT = Path(__file__).resolve().parent.parent / "transformer" / "data" / "messages.tsv"


def messages(catalogue: Path) -> Iterator[tuple[str, str]]:
    """(message, translation) of a .po file in its order, without plurals, contexts and uncertain entries."""
    for block in catalogue.read_text(encoding="utf-8").split("\n\n"):
        fields: dict[str, str] = {}
        current, uncertain = "", False
        for line in block.splitlines():
            if line.startswith("#"):
                uncertain = uncertain or (line.startswith("#,") and "fuzzy" in line)
                continue
            if not line.startswith('"'):
                current, _, line = line.partition(" ")
            fields[current] = fields.get(current, "") + ast.literal_eval(line)
        if not uncertain and set(fields) == {"msgid", "msgstr"}:
            yield fields["msgid"], fields["msgstr"]


def usable(text: str) -> bool:
    return 2 <= len(text) <= 100 and not any(character in text for character in "\n\t\r") and text == text.strip()


def rows(django: Path) -> list[tuple[str, ...]]:
    """The table's rows: English, then LANGUAGES."""
    found: dict[str, tuple[str, ...]] = {}
    for english in sorted(django.glob("**/locale/en/LC_MESSAGES/*.po")):
        tables = []
        for name in LANGUAGES.values():
            translated = english.parents[2] / name / "LC_MESSAGES" / english.name
            tables.append(dict(messages(translated)) if translated.exists() else {})
        for message, _ in messages(english):
            row = (message, *(table.get(message, "") for table in tables))
            if all(usable(text) for text in row):
                found.setdefault(message, row)
    return sorted(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("django", type=Path, metavar="FOLDER", help="an unpacked Django package")
    table = [("en", *LANGUAGES), *rows(parser.parse_args().django)]
    OUTPUT.write_text("".join("\t".join(row) + "\n" for row in table), encoding="utf-8")
    print(f"{len(table) - 1} messages in {OUTPUT}")


if __name__ == "__main__":
    main()
