"""Classes to grade by the thousand: mutants and copies of sixteen classes, the same ones every time (`write`).

Every second one is a mutant that comes once; the others are copies of the classes and of mutants. A comment in the
first line makes each a file that nobody has graded. Fewer of them begin as more do.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.hand_ins import ANNOTATED, EINSUM, SEPARATE
from tools.mutation.operators import mutations

SPECIMENS = Path(__file__).parents[2] / "conformance" / "mutants" / "specimens"
CLASSES = (
    *(("bert", "BertSelfAttention"), ("gpt", "CausalSelfAttention"), ("relative", "Attention"), ("alibi", "Attention")),
    *(("speech", "SelfAttention"), ("translator", "MultiHeadAttention"), ("llama", "Attention")),
    *(("llama", "RMSNorm"), ("llama", "SwiGLU"), ("translator", "PositionalEncoding"), ("translator", "FeedForward")),
    *(("alibi", "FeedForward"), ("mixture", "Mixture")),
)
"""Classes of the suite's specimens, by file; three more are those of `tools.hand_ins`."""

RIGHT = 0.5
"""The share of copies that are copies of a right class."""


@dataclass(frozen=True)
class Subject:
    """id: its number. kind: the class that it is made of. name: what the class is called in its file."""

    id: str
    kind: str
    name: str
    source: str


def made(count: int) -> Iterator[Subject]:
    """So many subjects."""
    right = [("hand-in", "MultiHeadAttention", source) for source in (SEPARATE, EINSUM, ANNOTATED)]
    right += [(file, name, (SPECIMENS / f"{file}.py").read_text(encoding="utf-8")) for file, name in CLASSES]
    wrong = [(file, name, one.source) for file, name, source in right for one in mutations(source, name)]
    lot = random.Random(0)
    lot.shuffle(wrong)
    fresh = iter(wrong)
    for number in range(count):
        mutant = next(fresh, None) if number % 2 else None
        file, name, source = mutant or lot.choice(right if lot.random() < RIGHT else wrong)
        yield Subject(f"{number:06d}", f"{file} {name}", name, f"# Subject {number}\n{source}")


def write(folder: Path, count: int) -> Path:
    """Write the files and their list; the list's path. Raises OSError when the folder holds something."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise OSError(f"{folder} is not empty: name a new folder")
    path = folder / "list.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("id", "impl", "group"))
        for subject in made(count):
            (folder / f"{subject.id}.py").write_text(subject.source, encoding="utf-8")
            rows.writerow((subject.id, f"{subject.id}.py:{subject.name}", subject.kind))
    return path
