"""A copy of a module has the same parts, tied where those of the first are, and shares no tensor with it."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from conformance.adapters.whole.copying import copied  # noqa: E402


class Config(dict):
    __getattr__ = dict.__getitem__


class Block(nn.Module):
    """Its parent is kept in a list, so that it is no part of it."""

    def __init__(self, parent):
        super().__init__()
        self.parents = [parent]
        self.inner = nn.Linear(3, 3)
        self.apply_inner = lambda x: self.inner(x)


class CopiesItself(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.was_asked = nn.Linear(3, 3), False

    def __deepcopy__(self, memo):
        made = CopiesItself()
        made.was_asked = True
        made.layer = copy.deepcopy(self.layer, memo)
        return made


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Config(width=3, more={"depth": [1, 2]})
        self.table = nn.Embedding(5, 3)
        self.blocks = nn.ModuleList(Block(self) for _ in range(2))
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
        self.own = CopiesItself()
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("steps", torch.arange(4), persistent=False)
        self.cache = {"keys": torch.zeros(2), "blocks": [self.blocks[0]]}
        self.calls = 0
        self.head.register_forward_hook(self.count)

    def count(self, *_):
        self.calls += 1

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = x + block.apply_inner(x)
        return self.head(self.own.layer(self.normed(x)))


def test_a_copy_is_whole_and_shares_nothing():
    model = Model().double()
    other = copied(model)
    ids = torch.arange(5)[None]
    assert torch.equal(model(ids), other(ids))
    assert other.head.weight is other.table.weight
    assert all(block.parents[0] is other for block in other.blocks)
    assert other.cache["blocks"][0] is other.blocks[0]
    assert other.config is not model.config
    assert other.config.more == {"depth": [1, 2]}
    assert other.own.was_asked
    assert [type(part) for part in other.modules()] == [type(part) for part in model.modules()]
    assert other.state_dict().keys() == model.state_dict().keys()
    held = [{t.data_ptr() for t in (*one.parameters(), *one.buffers(), one.cache["keys"])} for one in (model, other)]
    assert held[0].isdisjoint(held[1])
    with torch.no_grad():
        for p in other.blocks[0].parameters():
            p.zero_()
    assert not other.blocks[0].apply_inner(torch.ones(3).double()).any()  # functions and hooks of the copy are its own
    assert model.blocks[0].apply_inner(torch.ones(3).double()).all()
    assert (model.calls, other.calls) == (1, 1)


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
