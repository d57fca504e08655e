"""What nothing can be made of, and how a specification finds what it names."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
from made_subjects import NET  # noqa: E402

from conformance.adapters import SpecificationError, _load, parse  # noqa: E402
from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.whole.making import Made, subjects_in  # noqa: E402

# --- what is refused ------------------------------------------------------------------------------


def refusal(made: Callable[..., Made], name: str, text: str, files: dict[str, str] | None = None) -> str:
    with pytest.raises(SpecificationError) as caught:
        made(name, text, files)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_nothing_tells_is_asked_for_by_the_line_to_write(made):
    text = "class Odd(nn.Module):\n    def __init__(self, widget: str, qux: list):\n        super().__init__()\n"
    sentence = refusal(made, "Odd", text)
    assert "nothing shows what widget, qux of Odd should be" in sentence
    assert '--impl "model.py:Odd(widget=..., qux=...)"' in sentence


def test_a_constructor_that_raises_is_quoted_with_its_line(made):
    text = "class Odd(nn.Module):\n    def __init__(self, d_model):\n        raise ValueError('no licence')\n"
    sentence = refusal(made, "Odd", text)
    assert "ValueError: no licence" in sentence
    assert "model.py:7" in sentence
    assert '"model.py:Odd(d_model=...)"' in sentence


def test_a_size_that_is_called_like_its_own_class_is_a_number(made):
    text = "class FFN(nn.Sequential):\n    def __init__(self, dim, ffn):\n"
    text += "        super().__init__(nn.Linear(dim, ffn), nn.Linear(ffn, dim))\n"
    text += "class Layer(nn.Module):\n    def __init__(self, cfg):\n        self.ffn = FFN(cfg.dim, cfg.ffn)\n"
    assert made("FFN", text).fresh(0)[0].out_features > 1


def test_the_user_s_line_is_told_where_a_guess_fails_in_it(made):
    text = "class Odd(nn.Module):\n    def __init__(self, cfg):\n        self.x = {}[cfg['qux']]\n"
    sentence = refusal(made, "Odd", text)
    assert "KeyError: 4" in sentence
    assert "model.py:7: self.x = {}[cfg['qux']]" in sentence


def test_what_is_no_module_is_refused(made):
    assert "is no nn.Module but the class Plain" in refusal(made, "Plain", "class Plain:\n    pass\n")
    assert "is no nn.Module but a int" in refusal(made, "sum([1])", "")
    assert "returns a int" in refusal(made, "f", "def f(n=1) -> nn.Module:\n    return n\n")


def test_an_expression_that_raises_or_cannot_be_read_is_refused(made):
    assert "GPT(3) raised NameError" in refusal(made, "GPT(3)", "")
    assert "is no name and no expression" in refusal(made, "GPT(3", "")


def test_a_file_that_reads_data_when_it_is_imported_is_told_so(made):
    text = "text = open('no_such_input.csv').read()\n" + NET + "        self.words = sorted(set(text))\n"
    sentence = refusal(made, "Net", text)
    assert "importing it opens the file no_such_input.csv" in sentence
    assert "model.py:5" in sentence
    assert "if __name__ == '__main__'" in sentence


# --- finding --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{file}:GPT(GPTConfig(n_layer=2))", ("GPT(GPTConfig(n_layer=2))", "")),
        ("{file}:make('a:b')", ("make('a:b')", "")),
        ("{file}:GPT@decoder_lm", ("GPT", "decoder_lm")),
        ("{file}:f(a @ b)", ("f(a @ b)", "")),
        ("{file}", ("", "")),
        ("package.module:f(x={{1: 2}})", ("f(x={1: 2})", "")),
    ],
)
def test_expressions_parse_after_the_colon(tmp_path, text, parts):
    file = tmp_path / "model.py"
    file.write_text("raise SystemError")
    spec = parse(text.format(file=file))
    assert (spec.name, spec.role) == parts


def test_a_package_is_pointed_at_by_its_folder(tmp_path, made):
    made("Net", NET + "def run():\n    Net(6, 12)", {"__init__.py": "from .model import Net\n"})
    spec = parse(str(tmp_path))
    module = _load(spec, ())
    assert subjects_in(module) == ["Net"]


def test_the_root_of_the_repository_is_on_the_path_behind_the_file_s_folder(made):
    files = {
        "requirements.txt": "",
        "shared_sizes.py": "WIDTH = 6",
        "sizes.py": "WIDTH = 7",
        "src/nets/sizes.py": "WIDTH = 6",
    }
    text = "import shared_sizes\nimport sizes\n" + NET + "def run():\n    Net(sizes.WIDTH, 2 * shared_sizes.WIDTH)"
    net = made("Net", text, files, file="src/nets/model.py")
    assert net.fresh().fc.weight.shape == (12, 6)


def test_the_subjects_of_a_file_are_its_public_classes_functions_and_instances_in_order(made):
    text = """
    from torch.nn import Linear
    class Second(nn.Module): pass
    class First(nn.Module): pass
    class _Hidden(nn.Module): pass
    class Config: pass
    def make() -> nn.Module: return First()
    model = Second()
    number = 3
    """
    made("First", text)
    assert subjects_in(sys.modules["model"]) == ["Second", "First", "make", "model"]


# --- how a file is imported -----------------------------------------------------------------------


def test_a_folder_from_which_it_imports_with_dots_is_a_package_without_an_init(made):
    net = "from .sizes_of_it import WIDTH\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    files = {"nets_apart/sizes_of_it.py": "WIDTH = 8\n"}
    module = made("Net", net + "        self.fc = nn.Linear(WIDTH, WIDTH)\n", files, "nets_apart/model.py").fresh()
    assert module.fc.in_features == 8


def test_imports_are_found_from_the_folders_between_a_file_and_its_repository(made):
    net = "from gpt_apart.sizes import WIDTH\n"
    net += "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    files = {"setup.py": "", "src/gpt_apart/sizes.py": "WIDTH = 8\n", "src/gpt_apart/parts/__init__.py": ""}
    net += "        self.fc = nn.Linear(WIDTH, WIDTH)\n"
    assert made("Net", net, files, "src/gpt_apart/parts/model.py").fresh().fc.in_features == 8


def test_a_file_that_parses_options_when_it_is_imported_gets_its_defaults(made, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pytest", "--impl", "model.py:Net"])
    text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--width', type=int, default=8)\n"
    text += "args = parser.parse_args()\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    assert made("Net", text + "        self.fc = nn.Linear(args.width, 2)\n").fresh().fc.in_features == 8
    assert sys.argv[1] == "--impl"


def test_a_missing_network_is_the_reason_that_is_told(made):
    text = """
        import urllib.error

        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                if len(config["towers"]) != 2:
                    raise ValueError(config)
                raise urllib.error.URLError("Name or service not known")
    """
    assert "URLError" in refusal(made, "Net", text, {"net.json": '{"towers": 1}', "other.json": '{"towers": [3, 4]}'})


def test_a_part_that_torch_cannot_list_is_named(made):
    text = """
        class Scale(nn.Module):
            def __eq__(self, other):
                return True

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.scales = nn.ModuleList([Scale()])
    """
    assert "Scale defines __eq__ and no __hash__" in refusal(made, "Net", text)


def test_what_waits_for_a_network_is_made_once_only(made, monkeypatch):
    import socket

    asked = []

    def fetch(*address):
        asked.append(address)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", fetch)
    text = """
        import socket

        class Net(nn.Module):
            def __init__(self, width=8, depth=2):
                super().__init__()
                try:
                    socket.create_connection(("somewhere", 443))
                except OSError as error:
                    raise OSError("it cannot be fetched") from error

        def run():
            return Net(12), Net(6, depth=1)
    """
    with pytest.raises(Unresolved, match="it cannot be fetched"):
        made("Net", text)
    assert len(asked) == 1


@pytest.mark.parametrize("line", ["self.width = width", "self.map = nn.Linear(width, width)"])
def test_a_constructor_without_that_of_the_module_is_told_the_line_that_it_lacks(made, line):
    text = f"""
        class Net(nn.Module):
            def __init__(self, width=8):
                {line}

            def forward(self, x):
                return x
    """
    with pytest.raises(Unresolved, match=r"does not call super\(\).__init__\(\) first.*add that line"):
        made("Net", text)
