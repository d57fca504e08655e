"""The texts that ship with the package (sources and licences: SOURCES.md beside this file)."""

from __future__ import annotations

from importlib.resources import files

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
