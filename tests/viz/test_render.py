"""The command `minigrad render`: what it draws, and what it says where it cannot."""

import re
import subprocess
import sys

import pytest

from minigrad.cli import main
from minigrad.viz import layout

needs_graphviz = pytest.mark.skipif(not layout.engines(), reason="needs graphviz")
FILE = """
import minigrad as mg
from minigrad import nn

def double(x):
    return x * 2

def branch(x):
    return x if x.sum() > 0 else -x

class Net(nn.Module):
    def __init__(self, size=3):
        super().__init__()
        self.linear = nn.Linear(size, 2)

    def forward(self, x):
        return self.linear(x)

class Needy(nn.Module):
    def __init__(self, size):
        super().__init__()

notes = "not callable"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "broken.py").write_text("1 / 0")
    return tmp_path


def render(*words):
    return main(["render", *map(str, words)])


def test_a_function_of_a_file(folder):
    assert render(f"{folder}/mine.py:double", "--input", "2x3", "-o", folder / "a.txt") == 0
    assert (folder / "a.txt").read_text().startswith("graph(x: f32[2, 3] requires_grad):\n    %0 = mul(x, 2.0)")


def test_a_module_with_arguments_and_its_gradients(folder):
    target = folder / "a.txt"
    assert render(f"{folder}/mine.py:Net(size=4)", "--input", "2x4", "--backward", "-o", target) == 0
    assert "linear.weight.grad <- " in target.read_text()


@needs_graphviz
@pytest.mark.parametrize("ending", ["svg", "dot", "txt"])
def test_the_ending_chooses_the_format(folder, ending):
    target = folder / f"a.{ending}"
    assert render("--example", "neuron", "-o", target) == 0
    assert target.read_text().startswith({"svg": "<svg", "dot": "digraph", "txt": "graph("}[ending])


def test_a_picture_after_each_pass(folder):
    assert render("--example", "attention", "--passes", "-o", folder / "a.txt") == 0
    written = sorted(path.name for path in folder.glob("a-*.txt"))
    assert written[0] == "a-00-trace.txt"
    assert written[-1].endswith("-drop_dead.txt")  # in the order of the passes, beyond ten of them
    assert any("fuse_elementwise" in name for name in written)
    assert "fused" in (folder / written[-1]).read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--example", "nothing"], "there is no example 'nothing': the examples are neuron"),
        ([], "name one thing to draw"),
        (["{}/mine.py:double", "--example", "mlp"], "name one thing to draw"),
        (["{}/mine.py"], "names nothing to draw"),
        (["{}/none.py:f"], "there is no file"),
        (["{}/broken.py:f"], "could not be imported: ZeroDivisionError"),
        (["{}/mine.py:nothing"], "has no 'nothing'"),
        (["{}/mine.py:notes"], "is a str, which cannot be called"),
        (["{}/mine.py:Needy"], r"Needy could not be made .*give its arguments"),
        (["{}/mine.py:Net(x"], "cannot be read"),
        (["{}/mine.py:Net(size=1 + 1)"], "cannot be read"),
        (["{}/mine.py:Net(x)"], "has no 'x'"),
        (["{}/mine.py:Net(-1)"], r"Net could not be made \(ValueError: "),
        (["{}/mine.py:double", "--input", "2xy"], "--input '2xy' is no shape"),
        (["{}/mine.py:double", "--input", "f99:2"], "is no shape"),
        (["{}/mine.py:double"], "could not be traced: .*missing 1 required positional argument"),
        (["{}/mine.py:branch", "--input", "3"], "could not be traced: .*use where"),
        (["{}/mine.py:double", "--input", "i64:3", "--backward"], "there is no gradient to draw"),
        (["--example", "gpt", "--values"], "needs a model with values"),
        (["--example", "mlp", "-o", "{}/a.gif"], "ends in none of"),
        (["--example", "mlp", "-o", "{}/none/a.svg"], "there is no folder"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(folder, capsys, words, message):
    given = [word.format(folder) for word in words]
    if "-o" not in given:
        given += ["-o", str(folder / "a.txt")]
    assert render(*given) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("minigrad render: ")
    assert "Traceback" not in printed
    assert re.search(message, printed), printed
    assert not list(folder.glob("a*"))


def test_help_imports_no_subcommand_and_the_module_runs():
    code = (
        "import sys; from minigrad.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print('minigrad.viz' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "render" in printed
    assert printed.endswith("False\n")
    assert subprocess.run([sys.executable, "-m", "minigrad", "render", "--help"], capture_output=True).returncode == 0
