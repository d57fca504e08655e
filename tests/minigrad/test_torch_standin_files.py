"""Files of public repositories, unchanged, on torch and on the stand-in: those that tools/standin.toml names.

The checkouts are read from the folder STANDIN_REPOSITORIES, and skipped where it is not set.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tools.standin import PROGRAMS, Stranger, main, run, strangers

ENTRIES = strangers()


@pytest.mark.skipif("STANDIN_REPOSITORIES" not in os.environ, reason="STANDIN_REPOSITORIES names no folder")
@pytest.mark.parametrize("entry", ENTRIES, ids=[f"{e.repository}@{e.commit[:7]}:{','.join(e.files)}" for e in ENTRIES])
def test_a_file_of_a_public_repository_gives_torchs_numbers(entry: Stranger, tmp_path: Path) -> None:
    sources = Path(os.environ["STANDIN_REPOSITORIES"])
    if missing := entry.missing(sources):
        pytest.skip(f"it imports {', '.join(missing)}")
    row = run(entry.found(sources), tmp_path, (), 280)
    assert row.verdict == "equal", row.verdict
    assert row.outputs + row.numbers > 10


def test_every_entry_names_a_commit_its_files_and_a_program() -> None:
    for entry in ENTRIES:
        assert re.fullmatch("[0-9a-f]{40}", entry.commit)
        assert entry.files
        assert entry.program in entry.files or (PROGRAMS / entry.program).is_file()
    used = {entry.program for entry in ENTRIES}
    assert {file.name for file in PROGRAMS.glob("*.py")} <= used
    reasons = " ".join(entry.why for entry in ENTRIES)
    for name in ("nn.LSTM", "nn.GRU", "nn.RNN", "utils.data", "binary_cross_entropy", "empty(size=)", "parametrize"):
        assert name in reasons


def test_a_checkout_that_is_missing_or_changed_is_refused(tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["--repositories", str(tmp_path)])
    assert "is no git checkout" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([])
    assert "give a PATH, or --repositories" in capsys.readouterr().err
