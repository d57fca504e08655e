"""Files whose author sets elsewhere from where they import: the folder that is missing is found in their repository."""

import sys

import pytest

from conformance.adapters.loading import load_file

MINE = "from {module} import {name}\n\nclass Mine:\n    value = {name}\n"


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """repository({"src/model.py": "..."}) -> its folder. What is imported from it is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(sys.modules)

    def written(files):
        for name, text in {"setup.py": "", **files}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    yield written
    for name in sys.modules.keys() - before.keys():
        del sys.modules[name]


def test_a_module_in_another_folder_of_the_repository(repository):
    folder = repository(
        {
            "lib/text/symbols_of_a_test.py": "IGNORE = -1",
            "bin/decode.py": "raise SystemError",
            "src/nets/model_of_a_test.py": MINE.format(module="symbols_of_a_test", name="IGNORE"),
        }
    )
    assert load_file(folder / "src/nets/model_of_a_test.py").Mine.value == -1


def test_a_package_in_another_folder(repository):
    folder = repository(
        {
            "python/kit_of_a_test/__init__.py": "",
            "python/kit_of_a_test/masks.py": "PAD = 3",
            "nets/model_of_a_test.py": MINE.format(module="kit_of_a_test.masks", name="PAD"),
        }
    )
    assert load_file(folder / "nets/model_of_a_test.py").Mine.value == 3


def test_a_package_that_holds_a_file_of_its_own_name(repository):
    files = {"nets/nets.py": "from nets.masks import PAD", "nets/masks.py": "PAD = 3"}
    folder = repository({**files, "nets/model_of_a_test.py": MINE.format(module="nets.masks", name="PAD")})
    assert load_file(folder / "nets/model_of_a_test.py").Mine.value == 3


def test_a_namesake_that_lacks_the_name_is_not_meant(repository):
    """With PYTHONPATH=src/kit, `from kit import IGNORE` reads src/kit/kit.py; from src it finds an empty package."""
    folder = repository(
        {
            "src/kit_of_a_test/__init__.py": "",
            "src/kit_of_a_test/kit_of_a_test.py": "IGNORE = -1",
            "src/nets/__init__.py": "",
            "src/nets/model_of_a_test.py": MINE.format(module="kit_of_a_test", name="IGNORE"),
        }
    )
    assert load_file(folder / "src/nets/model_of_a_test.py").Mine.value == -1


def test_two_folders_that_have_it_are_no_answer(repository):
    folder = repository(
        {
            "a/symbols_of_a_test.py": "IGNORE = -1",
            "b/symbols_of_a_test.py": "IGNORE = -2",
            "src/model_of_a_test.py": MINE.format(module="symbols_of_a_test", name="IGNORE"),
        }
    )
    with pytest.raises(ModuleNotFoundError, match="symbols_of_a_test"):
        load_file(folder / "src/model_of_a_test.py")


@pytest.mark.parametrize(
    ("module", "name"), [("nothing_of_that_name", "x"), ("os", "no_such_thing"), ("kit_of_a_test.other", "PAD")]
)
def test_what_nobody_has_is_said_as_python_says_it(repository, module, name):
    folder = repository(
        {
            "python/kit_of_a_test/__init__.py": "",
            "nets/model_of_a_test.py": MINE.format(module=module, name=name),
        }
    )
    with pytest.raises(ImportError, match=f"{module.partition('.')[0]}|{name}"):
        load_file(folder / "nets/model_of_a_test.py")
    assert "model_of_a_test" not in sys.modules


def test_a_file_without_a_repository_has_no_other_folders(tmp_path):
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "symbols_of_a_test.py").write_text("IGNORE = -1")
    (tmp_path / "model_of_a_test.py").write_text(MINE.format(module="symbols_of_a_test", name="IGNORE"))
    with pytest.raises(ModuleNotFoundError):
        load_file(tmp_path / "model_of_a_test.py")
