"""What `--impl` may name, and the sentence for each thing that it may not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.adapters import SpecificationError, load_class, parse, resolve

MINIATURES = Path(__file__).parent / "miniatures.py"
EXAMPLE = "conformance.adapters.examples.numpy_class:NumpyTransformer"


def resolved_elsewhere(spec, cwd, then=""):
    """Resolve in a fresh process, as the host does: without this project's folder on the path."""
    code = (
        "import sys\n"
        "import conformance.checks, hypothesis\n"
        "from conformance import host\n"
        "from conformance.adapters import resolve\n"
        "host._forget_own_folder()\n"
        f"impl = resolve({spec!r})\n"
        f"subject = impl.build('attention', {{}})\n{then}\n"
        "print('result', subject())\n"
    )
    root = Path(__file__).parents[2]
    start = f"import sys; sys.path.insert(0, {str(root)!r})\n"
    return subprocess.run(
        [sys.executable, "-P", "-c", start + code], cwd=cwd, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("target", ["subject.py", "package.subject"])
def test_a_file_that_is_written_anew_at_once_is_read_anew(tmp_path, monkeypatch, target):
    """Python believes a compiled file of the same second and size."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "subject.py" if target.endswith(".py") else tmp_path / "package" / "subject.py"
    path.parent.mkdir(exist_ok=True)
    for number in (1, 2):
        path.write_text(f"class Subject:\n    number = {number}\n")
        os.utime(path, (10**9, 10**9))
        assert load_class(f"{target}:Subject").number == number
        for name in [name for name in sys.modules if name.partition(".")[0] in ("subject", "package")]:
            monkeypatch.delitem(sys.modules, name)
    assert not sys.dont_write_bytecode


@pytest.mark.parametrize("spec", ["reference", EXAMPLE, f"{MINIATURES}:Correct"])
def test_an_implementation_is_resolved(spec):
    assert hasattr(resolve(spec), "build")


def test_the_reference_is_the_numpy_reference():
    assert resolve("reference").name == "reference"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("nothing", "give one of minigrad, torch, reference, or path/to/file.py:Class, or package.module:Class"),
        ("", "give one of"),
        ("a b:C", "give one of"),
        ("torch:fast", "torch has no mode 'fast'; choose one of torch"),
        ("minigrad:fast", "choose one of minigrad, minigrad:kernels, minigrad:reference"),
        ("/no/such/file.py:Class", "there is no file /no/such/file.py; give path/to/file.py:Class"),
        ("/no/such/file.py", "there is no file"),
        (str(MINIATURES), "say which class of the file to test"),
        (f"{MINIATURES}:", "say which class of the file to test"),
        (f"{MINIATURES}:Wrong", r"there is no Wrong in .*miniatures.py; it defines Correct, Unscaled"),
        (f"{MINIATURES}:NoImplementation", "neither a torch.nn.Module nor a class with a method build"),
        ("conformance.adapters:load_class", "load_class is a function"),
        (f"{MINIATURES}:CannotBeMade", r"CannotBeMade\(\) raised ValueError: no licence at .*miniatures.py"),
        (f"{MINIATURES}:NeedsArguments", r"NeedsArguments\(\) raised TypeError.*constructible without arguments"),
        ("no_such_package.models:Class", "there is no module no_such_package"),
        ("json:Class", "there is no Class in json"),
    ],
)
def test_what_cannot_be_resolved_is_one_sentence(spec, sentence):
    with pytest.raises(SpecificationError, match=sentence) as caught:
        resolve(spec)
    assert "\n" not in str(caught.value)


def test_parsing_imports_nothing(tmp_path):
    path = tmp_path / "loud.py"
    path.write_text("raise SystemError")
    assert parse(f"{path}:Class").name == "Class"


SUBJECT = """
from {sibling} import answer
class Mine:
    def build(self, role, config):
        return self
    def __call__(self):
        import {lazy}
        return answer(), {lazy}.NAME
"""


@pytest.mark.parametrize("name", ["transformer", "models", "utils", "minigrad", "numpy_like", "attention"])
def test_a_subject_may_have_any_name_and_siblings_of_any_name(tmp_path, name):
    """transformer.py next to utils.py and a package models/: none is mistaken for a module of this project."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text("NAME = 'their models'")
    (tmp_path / "transformer.py").write_text("def answer(): return 'their transformer'")
    (tmp_path / "utils.py").write_text("def answer(): return 'their utils'\nNAME = 'their utils'")
    sibling = "utils" if name != "utils" else "transformer"
    folder = tmp_path if name != "models" else tmp_path / "models"
    lazy = "models" if name != "models" else "utils"
    (folder / f"{name}.py").write_text(SUBJECT.format(sibling=sibling, lazy=lazy))
    if folder != tmp_path:
        (folder / f"{sibling}.py").write_text((tmp_path / f"{sibling}.py").read_text())
    done = resolved_elsewhere(f"{folder / name}.py:Mine", tmp_path.parent)
    assert done.stdout.strip() == f"result ('their {sibling}', 'their {lazy}')", done.stderr


def test_a_folder_is_a_package_where_a_file_of_it_imports_relatively(tmp_path):
    (tmp_path / "layouts").mkdir()
    (tmp_path / "layouts" / "names.py").write_text("NAME = 'beside it'")
    text = "from .names import NAME\nclass Subject:\n    name = NAME\n    def build(self, role, config): ..."
    (tmp_path / "layouts" / "subject.py").write_text(text)
    assert resolve(f"{tmp_path / 'layouts' / 'subject.py'}:Subject").name == "beside it"


def test_a_file_with_the_name_of_its_package_does_not_hide_it(tmp_path):
    inner = tmp_path / "former" / "models"
    inner.mkdir(parents=True)
    (tmp_path / "setup.py").touch()
    (inner / "base.py").write_text("NAME = 'the package'")
    text = "from former.models.base import NAME\nclass Mine:\n    def build(self, role, config): return self\n"
    (inner / "former.py").write_text(text + "    def __call__(self): return NAME")
    done = resolved_elsewhere(f"{inner / 'former.py'}:Mine", tmp_path.parent)
    assert done.stdout.strip() == "result the package", done.stderr


def test_a_file_in_a_package_may_import_relatively(tmp_path):
    package = tmp_path / "models" / "inner"
    package.mkdir(parents=True)
    (tmp_path / "models" / "__init__.py").write_text("NAME = 'outer'")
    (package / "__init__.py").touch()
    (package / "layers.py").write_text("def answer(): return 'layers'")
    (package / "net.py").write_text(SUBJECT.format(sibling=".layers", lazy="models"))
    done = resolved_elsewhere(f"{package / 'net.py'}:Mine", tmp_path.parent)
    assert done.stdout.strip() == "result ('layers', 'outer')", done.stderr


def test_a_module_is_found_in_the_working_folder(tmp_path):
    (tmp_path / "transformer.py").write_text("def answer(): return 'mine'\nNAME = 'me'")
    (tmp_path / "net.py").write_text(SUBJECT.format(sibling="transformer", lazy="transformer"))
    done = resolved_elsewhere("net:Mine", tmp_path)
    assert done.stdout.strip() == "result ('mine', 'me')", done.stderr


@pytest.mark.parametrize("spec", ["torch", "user.py:Net"])
def test_without_torch_one_sentence_says_what_to_install(tmp_path, monkeypatch, spec):
    (tmp_path / "user.py").write_text("import torch\nclass Net(torch.nn.Module): pass")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from conformance.adapters import resolve, SpecificationError\n"
        f"try: resolve({spec!r})\n"
        "except SpecificationError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "not installed" in done.stdout
    assert "pip install torch" in done.stdout
