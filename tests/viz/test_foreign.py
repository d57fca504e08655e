"""torch modules recorded on torch: the same graph, module scopes, and backward ops beside their forward ops."""

import numpy as np
import pytest

from minigrad.cli import main
from minigrad.viz.picture import Options, picture
from minigrad.viz.view import View

torch = pytest.importorskip("torch")
foreign = pytest.importorskip("minigrad.viz.foreign")


class Model(torch.nn.Module):
    def __init__(self, n_layers=3):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 8)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)
        self.head = torch.nn.Linear(8, 11)

    def forward(self, ids):
        return self.head(self.encoder(self.embedding(ids)))


def ids():
    return torch.ones(2, 5, dtype=torch.int64)


def test_a_transformer_folds_its_layers():
    shown = picture(View(foreign.record(Model(), ids())), Options(depth=2))
    titles = [box.title for box in shown.boxes.values()]
    assert "layers.0–2: TransformerEncoderLayer ×3" in titles
    assert len(titles) <= 15


def test_parameters_inputs_shapes_and_flops_are_torchs():
    model = Model(1)
    graph = foreign.record(model, ids())
    names = graph.names()
    assert names[graph.inputs[0]] == "ids"
    assert set(dict(model.named_parameters())) <= set(names.values())
    output, index = graph.outputs[0]
    assert output.outputs[index] == ((2, 5, 11), np.dtype(np.float32))
    product = [node for node in graph if node.op == "addmm"][-1]
    assert product.attrs["flops"] == 2 * 10 * 8 * 11
    assert product.path == "head"
    assert product.source[0] == __file__


def test_backward_ops_belong_to_forward_ops_and_gradients_reach_every_parameter():
    model = Model(2)
    graph = foreign.record(model, ids(), backward=True)
    assert {graph.names()[leaf] for leaf in graph.gradients} == set(dict(model.named_parameters()))
    assert all(parameter.grad is None for parameter in model.parameters())
    pairs = {(node.backward_of.op, node.op) for node in graph if node.backward_of is not None}
    assert ("addmm", "mm") in pairs
    assert ("native_layer_norm", "native_layer_norm_backward") in pairs
    assert ("embedding", "embedding_dense_backward") in pairs
    titles = [box.title for box in picture(View(graph), Options(depth=2)).boxes.values()]
    assert titles.count("layers.0–1: TransformerEncoderLayer ×2") == 2


def test_in_place_changes_and_views_follow_the_memory():
    def function(x):
        y = x * 2
        y[0].add_(1)
        return y.sum()

    graph = foreign.record(function, torch.ones(2, 3))
    total = graph.outputs[0][0]
    assert total.op == "sum"
    assert [node.op for node in graph] == ["input", "mul", "select", "add_", "sum"]


def test_what_is_written_into_a_part_is_read_from_the_whole():
    def function(x):
        made = torch.zeros(2, 3)
        first, second = made[0], made[1]
        first.copy_(x)
        return made.exp(), first.neg(), second.sin()

    graph = foreign.record(function, torch.ones(3))
    reads = {node.op: node.inputs[0][0].op for node in graph if node.inputs}
    assert [reads[op] for op in ("exp", "neg", "sin")] == ["copy_", "copy_", "select"]


def test_a_listing_names_parameters_without_values():
    assert "weight = parameter f32[3, 3]\n" in str(foreign.record(torch.nn.Linear(3, 3), torch.ones(3)))


def test_the_derivative_of_a_change_in_place_of_a_view_is_its_own():
    linear = torch.nn.Linear(3, 3)

    def function(x):
        y = linear(x)
        y.view(6).add_(1)
        return y.exp()

    graph = foreign.record(function, torch.ones(2, 3), backward=True)
    first = next(i for i, node in enumerate(graph.nodes) if node.backward_of is not None)
    origins = [node.backward_of.op for node in graph.nodes[first:]]
    assert "add_" in origins


def test_large_tensors_are_initialised_with_numbers_that_repeat():
    torch.manual_seed(0)
    with foreign.QuickDraws():
        weight = torch.nn.Linear(300, 300).weight
        window = torch.zeros(600, 600).t().normal_()  # not contiguous: drawn as ever
    values = weight.detach().flatten()
    assert values[: 300 * 300 - (1 << 16)].equal(values[1 << 16 :])
    assert values.abs().max() <= 300**-0.5
    assert len(values.unique()) > 60_000
    assert len(window.unique()) > 300_000


def test_a_torch_file_renders_from_the_command_line(tmp_path, capsys):
    (tmp_path / "theirs.py").write_text("import torch\nclass Net(torch.nn.Linear):\n    pass\n")
    spec = f"{tmp_path}/theirs.py:Net(3, 2)"
    assert main(["render", spec, "--input", "4x3", "--backward", "-o", str(tmp_path / "a.txt")]) == 0
    assert "addmm(" in (tmp_path / "a.txt").read_text()
    for option in ("--values", "--passes"):
        assert main(["render", spec, "--input", "4x3", option, "-o", str(tmp_path / "b.txt")]) == 2
        assert "torch's" in capsys.readouterr().err
    assert main(["render", spec, "--input", "4x5", "-o", str(tmp_path / "b.txt")]) == 2
    assert "could not be traced" in capsys.readouterr().err
