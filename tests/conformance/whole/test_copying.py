"""A copy of a module has the same parts, tied where those of the first are, and shares no tensor with it."""

import copy
import threading

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from conformance.adapters import Specification  # noqa: E402
from conformance.adapters.whole.copying import copied  # noqa: E402
from conformance.adapters.whole.implementation import PointedImplementation  # noqa: E402


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


class Master:
    def __init__(self):
        self.lock, self.sums = threading.Lock(), {"mean": torch.zeros(2)}


class HoldsALock(nn.Module):
    def __init__(self):
        super().__init__()
        self.lock, self.master = threading.Lock(), Master()
        self.register_buffer("places", torch.ones(3, requires_grad=True) * 2)


def test_what_nobody_can_copy_is_shared_and_a_buffer_with_a_graph_is_copied_without():
    first = HoldsALock()
    second = copied(first)
    assert second.lock is first.lock
    assert second.master.lock is first.master.lock
    assert second.master is not first.master
    second.master.sums["mean"] += 1
    assert not first.master.sums["mean"].any()
    assert torch.equal(second.places, first.places)
    assert second.places.grad_fn is None
    assert second.places is not first.places


class HoldsSets(nn.Module):
    """To copy a set makes a list of the moment."""

    def __init__(self):
        super().__init__()
        for i in range(100):
            setattr(self, f"sizes{i}", {(i, i + 1)})
            setattr(self, f"config{i}", Config(width=i))


def test_no_object_of_the_moment_is_taken_for_one_that_is_gone():
    second = copied(HoldsSets())
    assert all(getattr(second, f"sizes{i}") == {(i, i + 1)} for i in range(100))


class FrozenStages(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def train(self, mode=True):
        super().train(mode)

    def forward(self, x):
        return self.lin(x)


def test_a_train_that_returns_nothing_is_no_obstacle():
    found = PointedImplementation(FrozenStages, Specification("model.py", "model.py", "FrozenStages"))
    assert not found.running.module.training
