"""What is to be graded: folders, globs and lists, and the files that travel."""

from __future__ import annotations

import zipfile
from io import BytesIO

import pytest

from conformance.grading.archive import Archive, _zipped, packed
from conformance.grading.submissions import GradingError, Submission, found


def names(archive):
    return zipfile.ZipFile(BytesIO(archive.data)).namelist()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "bob.py").write_text("import alice, shared\nopen('words.txt')\n")
    (tmp_path / "alice.py").write_text("import bob\n")
    (tmp_path / "words.txt").write_text("a b")
    (tmp_path / "_notes.py").write_text("")
    (tmp_path / "carol").mkdir()
    (tmp_path / "carol" / "model.py").write_text("from .parts import x\n")
    (tmp_path / "carol" / "parts.py").write_text("x = 1\n")
    return tmp_path


def test_each_file_and_each_folder_of_a_folder_is_one(folder):
    submissions = found(str(folder), name="model.py:GPT")
    assert [(s.id, s.impl) for s in submissions] == [
        ("alice", "alice.py:GPT"),
        ("bob", "bob.py:GPT"),
        ("carol", "model.py:GPT"),
    ]


def test_a_glob_names_files(folder):
    assert [s.id for s in found(str(folder / "*b*.py"))] == ["bob"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.csv", "id,impl,role,group\none,bob.py:A,multi_head_attention,x\n"),
        ("list.jsonl", '{"id": "one", "impl": "bob.py:A", "role": "multi_head_attention", "group": "x"}\n'),
        ("list.toml", '[[submission]]\nid="one"\nimpl="bob.py:A"\nrole="multi_head_attention"\ngroup="x"\n'),
    ],
)
def test_a_list_in_any_form_says_the_same(folder, monkeypatch, name, text):
    (folder / name).write_text(text)
    wanted = [Submission("one", "bob.py:A", "multi_head_attention", "x", folder)]
    assert found(str(folder / name)) == wanted
    monkeypatch.chdir(folder)
    assert found("-", text) == wanted
    assert packed(wanted[0]).impl == "bob.py:A@multi_head_attention"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id,impl,rolle\na,b.py,c\n", "no column 'rolle'"),
        ("id\na\n", "has no impl"),
        ('{"impl": 3}', "impl must be a text, not 3"),
        ('{"impl": ', "no valid list"),
        ("id,impl\na,x.py\na,y.py\n", "two submissions have the id 'a'"),
        ("", "names nothing"),
    ],
)
def test_a_wrong_list_is_told_in_a_sentence(text, says):
    with pytest.raises(GradingError, match=says):
        found("-", text)


def test_a_folder_that_leaves_the_choice_says_so(folder):
    with pytest.raises(GradingError, match=r"2 files of Python; say which is tested, as --file"):
        found(str(folder))
    with pytest.raises(GradingError, match="no file or folder"):
        found(str(folder / "nobody"))


def test_a_file_travels_with_what_it_uses_and_without_its_neighbours(folder):
    (folder / "shared.py").write_text("")
    (folder / "unused.py").write_text("")
    bob = Submission("bob", "bob.py", base=folder)
    assert names(packed(bob, [folder / "alice.py", folder / "bob.py"])) == ["bob.py", "shared.py", "words.txt"]
    assert names(packed(bob)) == ["alice.py", "bob.py", "shared.py", "words.txt"]


def test_a_folder_travels_whole(folder):
    carol = found(str(folder / "carol"), name="model.py")[0]
    assert names(packed(carol)) == ["model.py", "parts.py"]


def test_the_digest_is_of_what_is_used_and_of_nothing_else(folder):
    bob = Submission("bob", "bob.py", base=folder)
    before = packed(bob)
    (folder / "unused.py").write_text("1")
    assert packed(bob) == before
    (folder / "words.txt").write_text("c")
    assert packed(bob).digest != before.digest


def test_an_archive_writes_nothing_outside_of_its_folder(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(GradingError, match="leads out of its folder"):
        Archive("x.py", _zipped({"../x.py": b""}), "").unpack(inside)
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(GradingError, match=r"a: there is no file .*nothing\.py"):
        packed(Submission("a", "nothing.py:A", base=tmp_path))
