"""Modules: registration, scopes, state dicts, ties, hooks, initialisation, clipping; layers equal to torch's."""

import copy
import subprocess
import sys

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional
from minigrad import nn
from minigrad.node import ancestors
from minigrad.state import state


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(self.linear(x))


class Tied(nn.Module):
    """Embedding, two blocks in a list, a head that shares the embedding's table."""

    def __init__(self, vocab=7, width=4):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width, padding_idx=0)
        self.layers = nn.ModuleList([Block(width) for _ in range(2)])
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("offset", mg.zeros(width))
        self.register_buffer("scratch", mg.zeros(width), persistent=False)

    def forward(self, ids):
        x = self.embedding(ids) + self.offset
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


IDS = mg.tensor([[1, 2, 0], [3, 3, 6]])


def test_parameters_are_found_by_dotted_name_in_order_and_shared_ones_once():
    model = Tied()
    names = [name for name, _ in model.named_parameters()]
    assert names[:3] == ["embedding.weight", "layers.0.linear.weight", "layers.0.linear.bias"]
    assert "head.weight" not in names
    assert "head.weight" in dict(model.named_parameters(remove_duplicate=False))
    assert [name for name, _ in model.named_buffers()] == ["offset", "scratch"]


def test_scopes_name_the_path_and_the_class():
    out = Tied()(IDS)
    scopes = {node.scope for node in ancestors([out.node], lambda node: node.inputs)}
    root = ("", "Tied")
    assert (root, ("layers.1", "Block"), ("norm", "LayerNorm")) in scopes
    assert (root, ("head", "Linear")) in scopes
    assert state.scope == ()


def test_a_list_assigned_after_it_was_filled_names_its_children():
    inner = nn.ModuleList([nn.Linear(2, 2)])
    holder = nn.Module()
    holder.stacks = nn.ModuleList([inner])
    assert inner[0]._name == "stacks.0.0"


def test_an_error_names_the_innermost_module_and_the_scope_is_closed():
    with pytest.raises(IndexError) as caught:
        Tied()(mg.tensor([[9]]))
    assert caught.value.__notes__ == ["in module embedding (Embedding)"]
    assert state.scope == ()


def test_a_parameter_cannot_silently_become_a_tensor():
    linear = nn.Linear(2, 3)
    with pytest.raises(TypeError, match=r"Linear\.weight is a Parameter"):
        linear.weight = mg.zeros(3, 2)


def test_state_dict_round_trip_keeps_identity_and_ties():
    source, target = Tied(), Tied()
    before = {name: id(p) for name, p in target.named_parameters()}
    result = target.load_state_dict(source.state_dict())
    assert result == ([], [])
    assert {name: id(p) for name, p in target.named_parameters()} == before
    assert target.head.weight is target.embedding.weight
    np.testing.assert_array_equal(target(IDS).detach(), source(IDS).detach())
    assert "scratch" not in source.state_dict()


def test_a_tied_parameter_needs_one_name_only_and_not_two_values():
    model = Tied()
    state_dict = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    without = {name: value for name, value in state_dict.items() if name != "head.weight"}
    assert model.load_state_dict(without) == ([], [])
    state_dict["head.weight"] = state_dict["head.weight"] + 1
    with pytest.raises(ValueError, match=r"head\.weight and embedding\.weight are one tensor here|one tensor here"):
        model.load_state_dict(state_dict)


def test_load_state_dict_lists_every_problem_and_changes_nothing():
    model = Tied()
    before = model.embedding.weight.detach().clone()
    wrong = {name: value.numpy() + 1 for name, value in model.state_dict().items() if name != "offset"}
    wrong["layers.0.norm.weight"] = np.zeros(5, np.float32)
    wrong["extra"] = np.zeros(1, np.float32)
    with pytest.raises(ValueError, match="does not fit Tied") as caught:
        model.load_state_dict(wrong)
    for words in ("no value for offset", "called extra", "layers.0.norm.weight has shape [4] here and [5]"):
        assert words in str(caught.value)
    np.testing.assert_array_equal(model.embedding.weight.detach(), before)
    wrong["layers.0.norm.weight"] = np.ones(4, np.float32)
    assert model.load_state_dict(wrong, strict=False) == (["offset"], ["extra"])


def test_deepcopy_is_independent_and_stays_tied():
    model = Tied()
    twin = copy.deepcopy(model)
    assert twin.head.weight is twin.embedding.weight
    assert isinstance(twin.head.weight, nn.Parameter)
    with mg.no_grad():
        twin.embedding.weight.zero_()
    assert np.abs(model.embedding.weight.detach().numpy()).sum() > 0


def test_to_converts_parameters_buffers_and_gradients_but_no_integers():
    model = Tied()
    model.register_buffer("count", mg.tensor([3]))
    model(IDS).sum().backward()
    model.double()
    assert {p.dtype for p in model.parameters()} == {mg.float64}
    assert model.embedding.weight.grad.dtype == mg.float64
    assert model.count.dtype == mg.int64
    model.zero_grad()
    model(IDS).sum().backward()
    assert model.layers[0].linear.weight.grad.dtype == mg.float64


def test_train_and_eval_reach_every_module():
    model = nn.Sequential(nn.Dropout(0.9), nn.Sequential(nn.Dropout(0.9)))
    model.eval()
    x = mg.ones(50)
    assert (model(x) == x).all()
    assert not (model.train()(x) == x).all()


def test_dropout_draws_from_its_own_generator():
    x = mg.ones(100)
    drop = nn.Dropout(0.5, generator=mg.Generator(3))
    mg.manual_seed(0)
    first = mg.rand(3).tolist()
    mg.manual_seed(0)
    masked = drop(x)
    assert mg.rand(3).tolist() == first
    again = nn.Dropout(0.5, generator=mg.Generator(3))(x)
    assert (masked == again).all()
    assert set(np.unique(masked.numpy())) == {0.0, 2.0}


def test_hooks_see_and_replace_and_can_be_removed():
    linear = nn.Linear(2, 2)
    seen = []
    handle = linear.register_forward_hook(lambda module, args, result: seen.append(result.shape) or result * 0.0)
    linear.register_forward_pre_hook(lambda module, args: args[0] * 2.0)
    assert (linear(mg.ones(3, 2)) == 0.0).all()
    handle.remove()
    x = mg.ones(3, 2)
    expected = mg.functional.linear(x * 2.0, linear.weight, linear.bias)
    np.testing.assert_array_equal(linear(x).detach(), expected.detach())
    assert seen == [(3, 2)]


def test_containers():
    layers = nn.ModuleList([nn.ReLU(), nn.Tanh(), nn.SiLU()])
    assert len(layers) == 3
    assert isinstance(layers[-1], nn.SiLU)
    assert [type(m) for m in layers[1:]] == [nn.Tanh, nn.SiLU]
    assert [m._name for m in layers] == ["0", "1", "2"]
    assert nn.Sequential(*layers[:2])(mg.ones(2)).shape == (2,)
    layers[0] = nn.GELU()
    assert isinstance(layers[0], nn.GELU)
    named = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
    assert list(named) == ["a", "b"]
    del named["a"]
    assert "a" not in named
    with pytest.raises(KeyError, match="already has an attribute 'keys'"):
        named["keys"] = nn.ReLU()
    with pytest.raises(TypeError, match="ModuleList holds modules"):
        layers.append(3)


def test_repr_shows_the_tree():
    text = repr(nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU()))
    assert text == "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=False)\n  (1): ReLU()\n)"


def test_embedding_padding_row_is_zero_and_gets_no_gradient():
    embedding = nn.Embedding(5, 3, padding_idx=-5)
    assert embedding.padding_idx == 0
    assert (embedding.weight[0] == 0.0).all()
    embedding(mg.tensor([0, 1, 1])).sum().backward()
    np.testing.assert_array_equal(embedding.weight.grad, [[0] * 3, [2] * 3, [0] * 3, [0] * 3, [0] * 3])


SIZE = (200, 300)


@pytest.mark.parametrize(
    ("function", "arguments", "std", "bound"),
    [
        (nn.init.xavier_uniform_, {}, (2 / 500) ** 0.5, (6 / 500) ** 0.5),
        (nn.init.xavier_normal_, {"gain": 2.0}, 2 * (2 / 500) ** 0.5, None),
        (nn.init.kaiming_uniform_, {"a": 5**0.5}, 1 / 300**0.5 / 3**0.5, 1 / 300**0.5),
        (nn.init.kaiming_normal_, {"mode": "fan_out", "nonlinearity": "relu"}, (2 / 200) ** 0.5, None),
        (nn.init.normal_, {"std": 0.02}, 0.02, None),
        (nn.init.uniform_, {"a": -1.0, "b": 1.0}, 1 / 3**0.5, 1.0),
    ],
)
def test_initialisation_has_the_spread_it_promises(function, arguments, std, bound):
    values = function(mg.zeros(*SIZE), generator=mg.Generator(1), **arguments).numpy()
    assert values.std() == pytest.approx(std, rel=0.02)
    assert values.mean() == pytest.approx(0.0, abs=0.02 * std)
    if bound is not None:
        assert np.abs(values).max() == pytest.approx(bound, rel=0.01)


def test_a_weight_of_one_input_is_spread_as_widely_as_its_gain():
    values = nn.init.kaiming_uniform_(mg.zeros(2000, 1), a=1.0, generator=mg.Generator(1)).numpy()
    assert np.abs(values).max() == pytest.approx(3**0.5, rel=0.01)


def test_initialisation_refuses_what_has_no_fan():
    with pytest.raises(ValueError, match="at least two dimensions"):
        nn.init.xavier_uniform_(mg.zeros(3))


def parameters_with_gradients(*gradients):
    parameters = []
    for gradient in gradients:
        parameter = nn.Parameter(mg.zeros(len(gradient)))
        parameter.grad = mg.tensor(gradient)
        parameters.append(parameter)
    return parameters


def test_clipping_by_the_global_norm_scales_all_gradients_by_one_factor():
    parameters = parameters_with_gradients([3.0, 0.0], [0.0, 4.0])
    assert nn.utils.clip_grad_norm_(parameters, 1.0).item() == pytest.approx(5.0)
    np.testing.assert_allclose(parameters[0].grad, [0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(parameters[1].grad, [0.0, 0.8], rtol=1e-6)
    nn.utils.clip_grad_norm_(parameters, 2.0)
    np.testing.assert_allclose(parameters[1].grad, [0.0, 0.8], rtol=1e-6)


def test_clipping_what_is_not_finite_raises_when_asked():
    parameters = parameters_with_gradients([float("inf"), 1.0])
    with pytest.raises(RuntimeError, match="inf, so it cannot be clipped"):
        nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
    nn.utils.clip_grad_norm_(parameters, 1.0)
    np.testing.assert_array_equal(parameters[0].grad, [np.nan, 0.0])


def test_clipping_by_value():
    parameters = parameters_with_gradients([-3.0, 0.5])
    nn.utils.clip_grad_value_(parameters, 1.0)
    np.testing.assert_array_equal(parameters[0].grad, [-1.0, 0.5])


def torch_pairs():
    torch = pytest.importorskip("torch")
    return torch, [
        (nn.Linear(5, 3), torch.nn.Linear(5, 3)),
        (nn.Linear(5, 3, bias=False), torch.nn.Linear(5, 3, bias=False)),
        (nn.LayerNorm(5), torch.nn.LayerNorm(5)),
        (nn.LayerNorm((4, 5), bias=False), torch.nn.LayerNorm((4, 5), bias=False)),
        (nn.RMSNorm(5), torch.nn.RMSNorm(5)),
        (nn.RMSNorm(5, eps=1e-2, elementwise_affine=False), torch.nn.RMSNorm(5, eps=1e-2, elementwise_affine=False)),
        (nn.ReLU(), torch.nn.ReLU()),
        (nn.GELU(), torch.nn.GELU()),
        (nn.GELU("tanh"), torch.nn.GELU("tanh")),
        (nn.SiLU(), torch.nn.SiLU()),
        (nn.Sigmoid(), torch.nn.Sigmoid()),
        (nn.Tanh(), torch.nn.Tanh()),
    ]


def test_layers_equal_torch_forward_and_backward():
    torch, pairs = torch_pairs()
    rng = np.random.default_rng(0)
    for own, theirs in pairs:
        own.double()
        theirs.double()
        weights = {name: rng.standard_normal(tuple(p.shape)) for name, p in theirs.named_parameters()}
        own.load_state_dict(weights)
        theirs.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
        x, cotangent = rng.standard_normal((2, 4, 5)), None
        a, b = mg.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        y, z = own(a), theirs(b)
        np.testing.assert_allclose(y.detach(), z.detach().numpy(), rtol=1e-12, atol=1e-12)
        cotangent = rng.standard_normal(z.shape)
        y.backward(mg.tensor(cotangent))
        z.backward(torch.tensor(cotangent))
        np.testing.assert_allclose(a.grad, b.grad.numpy(), rtol=1e-10, atol=1e-12, err_msg=repr(own))
        for name, parameter in own.named_parameters():
            expected = dict(theirs.named_parameters())[name].grad.numpy()
            np.testing.assert_allclose(parameter.grad, expected, rtol=1e-10, atol=1e-12, err_msg=f"{own!r} {name}")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_equal_torch(reduction):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    logits, targets = rng.standard_normal((6, 5)), np.array([1, 0, 4, 2, 2, 3])
    own = nn.CrossEntropyLoss(ignore_index=2, reduction=reduction, label_smoothing=0.1)
    theirs = torch.nn.CrossEntropyLoss(ignore_index=2, reduction=reduction, label_smoothing=0.1)
    expected = theirs(torch.tensor(logits), torch.tensor(targets)).numpy()
    np.testing.assert_allclose(own(mg.tensor(logits), mg.tensor(targets)), expected, rtol=1e-12)
    x, y = rng.standard_normal((2, 3, 4))
    expected = torch.nn.MSELoss(reduction=reduction)(torch.tensor(x), torch.tensor(y)).numpy()
    np.testing.assert_allclose(nn.MSELoss(reduction)(mg.tensor(x), mg.tensor(y)), expected, rtol=1e-12)


def test_default_initialisation_spreads_as_torch_does():
    torch = pytest.importorskip("torch")
    for own, theirs in (
        (nn.Linear(300, 200), torch.nn.Linear(300, 200)),
        (nn.Embedding(300, 200), torch.nn.Embedding(300, 200)),
    ):
        for name, parameter in own.named_parameters():
            expected = dict(theirs.named_parameters())[name].detach().numpy()
            assert parameter.detach().numpy().std() == pytest.approx(expected.std(), rel=0.15), name


def test_layers_and_optimizers_are_names_of_the_package():
    """Without an import of their own, and without being loaded before they are used."""
    code = "import sys, minigrad as mg; assert 'minigrad.nn' not in sys.modules; layer = mg.nn.Linear(2, 3); "
    code += "mg.optim.Adam(layer.parameters()); print(layer(mg.ones(1, 2)).shape)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "3" in found.stdout
