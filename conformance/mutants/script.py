"""Mutants of training scripts: one place of a small, correct script is another.

The scripts are the files of `conformance/mutants/scripts`. A mutant is run and watched by
`conformance.mutated`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from conformance.mutants.base import MUTANTS

FOLDER = Path(__file__).with_name("scripts")
LANGUAGE, TRANSLATION, MASKED, RESUMED = "language.py", "translation.py", "masked.py", "resumed.py"
TRAINER, ANNOTATED, PRETRAINING, EPOCHS = "gpt_trainer.py", "annotated.py", "pretraining.py", "epochs.py"
CONTRAST, TAGGING, SPEECH, PAIRS = "contrast.py", "tagging.py", "speech.py", "pairs.py"
PREFERENCE, ROWS = "preference.py", "rows.py"
GENERATION, REWARDS = "generation.py", "rewards.py"
SCRIPTS = (
    LANGUAGE,
    TRANSLATION,
    MASKED,
    RESUMED,
    TRAINER,
    ANNOTATED,
    PRETRAINING,
    EPOCHS,
    CONTRAST,
    TAGGING,
    SPEECH,
    PAIRS,
    PREFERENCE,
    ROWS,
    GENERATION,
    REWARDS,
)
NOTED = {EPOCHS: {"run-accumulation-weighs-tokens-alike"}, CONTRAST: {"run-loss-starts-near-uniform"}}
"""The notes that are true of a script though it is right: its batches have unequal numbers of labels; two views of one
sentence are alike from the start."""
STEPS, LONG = 8, dict.fromkeys((CONTRAST, TAGGING, SPEECH, PAIRS, PREFERENCE, ROWS, GENERATION), 200)
"""Optimizer steps that are watched; of scripts whose mistakes show late."""


@dataclass(frozen=True)
class ScriptMutant:
    """A script in which each `old` is replaced by its `new`. breaks: the claims that it violates."""

    name: str
    script: str
    changes: tuple[tuple[str, str], ...]
    breaks: tuple[str, ...]
    defect: str
    known_as: str = ""
    topic: ClassVar[str] = "scripts"
    needs: ClassVar[str] = "torch"
    roles: ClassVar[tuple[str, ...]] = ("training_run",)

    def source(self) -> str:
        """The changed script. Raises ValueError unless each `old` stands in it once."""
        source = (FOLDER / self.script).read_text(encoding="utf-8")
        for old, new in self.changes:
            if source.count(old) != 1:
                raise ValueError(f"mutant {self.name}: {old!r} stands {source.count(old)} times in {self.script}")
            source = source.replace(old, new)
        return source

    def lines(self) -> set[int]:
        """The lines of the changed script that are wrong; where lines were left out, the two before and after."""
        old, new = ((FOLDER / self.script).read_text(encoding="utf-8"), self.source())
        found: set[int] = set()
        matcher = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
        for kind, _, _, begin, end in matcher.get_opcodes():
            if kind != "equal":
                found |= {*range(begin + 1, end + 1)} if end > begin else {*range(begin - 1, begin + 3)}
        return found


def script(
    name: str, of: str, *changes: tuple[str, str], breaks: tuple[str, ...], defect: str, known_as: str = ""
) -> None:
    """Register a mutant of a script. known_as: a public report of such a mistake. Raises ValueError when its name is
    taken."""
    if name in MUTANTS:
        raise ValueError(f"two mutants are called {name}")
    MUTANTS[name] = ScriptMutant(name, of, changes, breaks, defect, known_as)
