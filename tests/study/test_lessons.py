"""The lessons run, and print what they say that they print."""

import pytest

from tools.lessons import BLOCK, FOLDER, play

LESSONS = sorted(FOLDER.glob("[0-9]*.md"))


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_prints_what_it_says(path):
    played = play(path)
    assert played
    for program, said, printed in played:
        assert printed == said, f"{path.name}: the block\n{program}\nprints\n{printed}: run python -m tools.lessons"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_ends_with_something_to_change(path):
    text = path.read_text(encoding="utf-8")
    assert text.rstrip().rsplit("\n\n", 1)[1].startswith("**Change it.**")
    assert len(BLOCK.findall(text)) == text.count("```python")
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"({path.name})" in index
    assert text.startswith(f"# {path.name.split('-')[0]}. ")
