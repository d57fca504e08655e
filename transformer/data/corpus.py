"""The texts that ship with the package (sources and licences: SOURCES.md beside this file), and one's own."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

LANGUAGES = ("en", "de", "zh")


def shakespeare() -> str:
    """A quarter of a million characters of Shakespeare's plays."""
    return (files("transformer.data") / "shakespeare.txt").read_text(encoding="utf-8")


def parallel(source: str = "en", target: str = "de") -> list[tuple[str, str]]:
    """647 pairs of sentences or terms in two of the LANGUAGES. Raises ValueError for another language."""
    for language in (source, target):
        if language not in LANGUAGES:
            raise ValueError(f"there is no language {language!r} in the corpus: it has {', '.join(LANGUAGES)}")
    lines = (files("transformer.data") / "messages.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [dict(zip(LANGUAGES, line.split("\t"), strict=True)) for line in lines]
    return [(row[source], row[target]) for row in rows]


def own_text(path: Path) -> str:
    """The text of a file, or of all .txt files in a folder and the folders in it, by name, a line break between two.

    Raises FileNotFoundError where there is nothing, ValueError for a folder without such files, and for what is not
    UTF-8.
    """
    if path.is_dir():
        parts = sorted(part for part in path.rglob("*.txt") if part.is_file())
        if not parts:
            raise ValueError(f"{path} holds no text: a folder of data has files that end with .txt")
    elif path.exists():
        parts = [path]
    else:
        raise FileNotFoundError(f"there is no file or folder {path}")
    return "\n".join(map(_utf8, parts))


def _utf8(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: byte {error.start} begins no character") from None
