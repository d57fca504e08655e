"""What the user states of a model: its inputs, weights and device; and a second model beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from conformance.adapters import Specification, SpecificationError, resolve  # noqa: E402
from conformance.adapters.stated import Shape, Stated, StatedError, shapes_of  # noqa: E402
from conformance.adapters.whole.implementation import PointedImplementation  # noqa: E402
from conformance.adapters.whole.placing import load_weights  # noqa: E402
from conformance.adapters.whole.searching import calling_of  # noqa: E402


class Attention(nn.Module):
    scaled = True

    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.mT / 8**0.5 if self.scaled else q @ k.mT
        hidden = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return self.proj(scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v)


class GPT(nn.Module):
    def __init__(self, blocks=2):
        super().__init__()
        self.tokens = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList(Attention() for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 20)

    def forward(self, idx):
        x = self.tokens(idx)
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.norm(x))


class Guessed(nn.Module):
    """What it takes cannot be guessed: no name says that two inputs are numbers, and one a grid of a fixed size."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Bilinear(5, 3, 7)

    def forward(self, left, right, grid):
        return self.fc(left, right) + grid.sum()


def pointed(model, stated=None, reference=None):
    spec = Specification(type(model).__name__, __name__, type(model).__name__)
    other = None if reference is None else (reference, Specification("Theirs", __name__, "Theirs"))
    return PointedImplementation(model, spec, stated, other)


# --- inputs ---------------------------------------------------------------------------------------


def test_shapes_are_read():
    assert shapes_of("2x16:int") == [Shape("", (2, 16), "int")]
    assert shapes_of("idx=2x16:int, mask=2x16") == [Shape("idx", (2, 16), "int"), Shape("mask", (2, 16), "float")]
    assert shapes_of("") == []


@pytest.mark.parametrize(
    "text", ["2x", "x", "0x3", "2x16:float64", "=2x3", "a=b=2", "2x16;3", "1e3", "-2x3", "2 x 16", "a-b=2x3"]
)
def test_what_is_no_shape_is_refused_in_one_sentence(text):
    with pytest.raises(StatedError, match="is no shape; write sizes") as raised:
        shapes_of(text)
    assert "\n" not in str(raised.value)


def test_one_input_twice_is_refused():
    with pytest.raises(StatedError, match="it states one input twice"):
        shapes_of("a=2x3,a=2x4")


def test_inputs_that_cannot_be_guessed_are_taken_as_stated():
    with pytest.raises(SpecificationError):
        calling_of(Guessed())
    calling = calling_of(Guessed(), shapes_of("2x16x5,2x16x3,grid=4x4"))
    assert (calling.main.parameter, calling.main.shape, calling.layout, calling.outputs) == (
        "left",
        (None, 5),
        "(B, T, V)",
        7,
    )
    arguments = calling.arguments({"x": torch.zeros(3, 9, 5)})
    assert {name: tuple(value.shape) for name, value in arguments.items()} == {
        "left": (3, 9, 5), "right": (3, 9, 3), "grid": (3, 4),
    }  # fmt: skip


def test_token_ids_are_stated_by_name():
    calling = calling_of(GPT(), shapes_of("idx=2x16:int"))
    assert (calling.main.meaning, calling.main.vocab, calling.main.length) == ("ids", 20, None)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("words=2x16:int", "forward of GPT has no parameter words; it takes idx"),
        ("2x16:int,2x16", "forward of GPT has no place for 2 inputs; it takes idx"),
        ("2x16x4", "GPT cannot be called with the inputs that --claims-input states: "),
    ],
)
def test_inputs_that_the_model_does_not_take_are_refused(text, sentence):
    with pytest.raises(SpecificationError, match=sentence):
        pointed(GPT(), Stated(input=text))


# --- weights --------------------------------------------------------------------------------------


@pytest.fixture
def trained():
    torch.manual_seed(7)
    return GPT()


@pytest.mark.parametrize(
    "wrapped", [lambda d: d, lambda d: {"model": {f"module.{n}": v for n, v in d.items()}, "step": 3}]
)
def test_weights_are_loaded_and_not_moved(trained, wrapped, tmp_path):
    path = tmp_path / "weights.pt"
    torch.save(wrapped(trained.state_dict()), path)
    whole = pointed(GPT(), Stated(weights=str(path))).whole
    for name, value in trained.state_dict().items():
        assert torch.equal(whole.module.state_dict()[name], value.to(whole.torch_dtype))


def test_without_weights_parameters_are_moved(trained):
    whole = pointed(trained).whole
    assert not torch.equal(whole.module.head.weight.float(), trained.head.weight)


def test_safetensors_are_read(trained, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file(trained.state_dict(), tmp_path / "weights.safetensors")
    model = GPT()
    load_weights(model, str(tmp_path / "weights.safetensors"))
    assert torch.equal(model.head.weight, trained.head.weight)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "cannot be read as safetensors or by torch.load"),
        (b"PK\x03\x04 nonsense", "cannot be read as safetensors or by torch.load"),
        ([1, 2], r"holds no state dict \(a dict of names and tensors\)"),
        ({"epoch": 3}, "holds no state dict"),
        ({"head.weight": torch.zeros(20, 8)}, r"does not fit GPT: it has no tokens.weight \(and 11 more\)"),
        (GPT(3).state_dict(), r"does not fit GPT: the model has no blocks.2.qkv.weight \(and 3 more\)"),
        (
            {**GPT().state_dict(), "head.bias": torch.zeros(3)},
            r"head.bias is \(3,\) in the file and \(20,\) in the model",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused_in_one_sentence(content, sentence, tmp_path):
    path = tmp_path / "weights.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(StatedError, match=sentence) as raised:
        pointed(GPT(), Stated(weights=str(path)))
    assert "\n" not in str(raised.value)


def test_a_pickle_that_runs_code_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "written"), "w"))

    torch.save({"head.weight": Evil()}, tmp_path / "weights.pt")
    with pytest.raises(StatedError, match="cannot be read"):
        load_weights(GPT(), str(tmp_path / "weights.pt"))
    assert not (tmp_path / "written").exists()


# --- device (without a GPU: test_placing.py) -------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
def test_a_model_on_the_gpu_answers_as_on_the_cpu(trained):
    here, there = (pointed(trained, Stated(device=device)).whole for device in ("cpu", "cuda"))
    inputs, devices = here.example(), []
    there.module.register_forward_hook(lambda module, *_: devices.append(next(module.parameters()).device.type))
    assert abs(here(**inputs)["out"] - there(**inputs)["out"]).max() < 1e-9
    assert devices == ["cuda"]


# --- a reference ----------------------------------------------------------------------------------


def test_the_first_module_that_gives_something_else_is_named(trained):
    reference = GPT()
    reference.blocks[1].scaled = False
    found = pointed(trained, reference=reference).difference
    assert found.path == "blocks.1"
    assert Path(found.line.partition(":")[0]).name == Path(__file__).name
    assert "def forward(self, x):" in found.line
    assert found.error > 1e-6
    assert found.expected != found.got
    assert f"! {found}" in pointed(trained, reference=reference).notes


def test_a_part_of_torch_is_named_by_the_line_that_makes_it(trained):
    reference = GPT()
    reference.norm.eps = 0.1
    found = pointed(trained, reference=reference).difference
    assert found.path == "norm"
    assert "self.norm, self.head = " in found.line


def test_models_that_agree_say_so(trained):
    implementation = pointed(trained, reference=GPT())
    assert implementation.difference is None
    assert "every module gives what it gives in the reference Theirs" in implementation.notes


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        (GPT(3), "do not have the same parameters: "),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), "take other inputs"),
    ],
)
def test_models_that_cannot_be_compared_are_refused(trained, reference, sentence):
    with pytest.raises(StatedError, match=sentence):
        pointed(trained, reference=reference)


# --- the options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "sentence"),
    [
        ({"input": "2x"}, "--claims-input 2x: 2x is no shape"),
        ({"weights": "no/such.pt"}, "--claims-weights no/such.pt: there is no such file"),
        ({"device": "tpu"}, "--claims-device tpu: give cpu, cuda, or one of several as cuda:1"),
        ({"reference": "torch"}, "--claims-reference torch: name one nn.Module"),
        ({"reference": __file__}, "name one nn.Module, as in theirs.py:GPT"),
        ({"reference": "nothing"}, "give one of minigrad"),
    ],
)
def test_options_are_refused_before_anything_runs(stated, sentence):
    with pytest.raises(SpecificationError, match=sentence):
        Stated(**stated).check()


def test_of_what_is_no_module_nothing_can_be_stated():
    for spec in ("reference", "conformance.adapters.examples.numpy_class:NumpyTransformer"):
        with pytest.raises(SpecificationError, match=r"--claims-device cpu speaks of an nn\.Module, which this is not"):
            resolve(spec, stated=Stated(device="cpu"))


def test_the_options_are_repeated_by_the_replay_line():
    assert Stated("2x3", device="cuda").options == ["--claims-input", "2x3", "--claims-device", "cuda"]
