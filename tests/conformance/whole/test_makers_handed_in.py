"""A function that makes a part, handed to a constructor, is what the files of the repository hand in."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

NET = """
class Mixer(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.map = nn.Linear(width, width)

    def forward(self, x, mask=None):
        return self.map(x)


class Net(nn.Module):
    def __init__(self, vocab_size, make_mixer, d_model=16, n_layers=2):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        self.layers = nn.ModuleList(make_mixer(GIVEN) for _ in range(n_layers))

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = x + layer(x, mask=None)
        return x
"""
HANDED_IN = {
    "a lambda": ("", "WIDTH, HEADS = 16, 4\nnet = Net(23, lambda: Mixer(WIDTH, HEADS))"),
    "a lambda of a name": ("", "def build():\n    factory = lambda: Mixer(16, heads=4)\n    return Net(23, factory)"),
    "a lambda that is handed numbers": ("d_model", "net = Net(23, make_mixer=lambda width: Mixer(width, heads=4))"),
    "an inner function": (
        "",
        "def build(heads=4):\n    def make():\n        return Mixer(16, heads)\n    return Net(23, make)",
    ),
    "what another function gives": (
        "",
        "def mixers(heads):\n    width = 16\n    return lambda: Mixer(width, heads)\n\nnet = Net(23, mixers(4))",
    ),
}


@pytest.mark.parametrize("how", HANDED_IN)
def test_a_function_that_makes_a_part_is_handed_in(made, how):
    given, call = HANDED_IN[how]
    found = made("Net", NET.replace("GIVEN", given), {"run.py": f"from model import Mixer, Net\n\n{call}\n"})
    assert found.facts[0].value.startswith("Net(vocab_size=23")
    net = found.fresh()
    assert [layer.heads for layer in net.layers] == [4, 4]
    assert net.layers[0] is not net.layers[1]
    assert net(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3, 16)


def test_the_parts_grow_with_the_model(made):
    files = {"run.py": "from model import Mixer, Net\n\nD = 2048\nnet = Net(23, lambda: Mixer(D), d_model=D)\n"}
    found = made("Net", NET.replace("GIVEN", ""), files).fresh()
    assert found.layers[0].map.in_features == found.table.embedding_dim < 2048


def test_a_function_that_computes_is_not_read_as_one_that_makes(made):
    text = """
        class Net(nn.Module):
            def __init__(self, act):
                super().__init__()
                self.act = act

            def forward(self, x):
                return self.act(x)
    """
    found = made("Net", text, {"run.py": "from model import Net\n\nnet = Net(lambda x: x * 2)\n"})
    assert isinstance(found.fresh().act, nn.Module)
