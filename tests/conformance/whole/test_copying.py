"""Copies of modules: configs that answer every question for an attribute with a KeyError are copied, too."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from conformance.adapters.whole.copying import copied  # noqa: E402


class Config(dict):
    __getattr__ = dict.__getitem__


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Config(width=4, inner=Config(depth=[1, 2]))
        self.lin = nn.Linear(self.config.width, 2)


def test_a_dict_with_attributes_is_copied_with_what_it_holds():
    first = Net()
    second = copied(first)
    assert isinstance(second.config, Config)
    assert second.config == first.config
    assert second.config.width == 4
    second.config.inner.depth.append(3)
    second.config["width"] = 8
    assert first.config == Config(width=4, inner=Config(depth=[1, 2]))
    assert torch.equal(second.lin.weight, first.lin.weight)
    assert second.lin.weight is not first.lin.weight
