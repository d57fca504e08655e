"""What is read of a class's methods: what only methods beside forward read, and what only some arguments need."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from conformance.adapters.helpers.beside import classes_beside  # noqa: E402
from conformance.adapters.whole.class_source import read_beside_forward, read_for_some_arguments  # noqa: E402
from conformance.adapters.whole.decoding import taking_a_model  # noqa: E402


class Contrastive(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(7, 4), nn.LayerNorm(4)
        self.types, self.unused = nn.Embedding(2, 4), nn.Linear(4, 4)
        self.temperature = nn.Parameter(torch.tensor(1.0))

    def embedded(self, ids):
        return self.norm(self.table(ids))

    def forward(self, ids, types=None):
        x = self.embedded(ids)
        if types is not None:
            x = x + self.types(types)
        return x.mean(1)

    def loss(self, one, other):
        return (self(one) @ self(other).T * self.temperature).logsumexp(-1)


def test_what_only_a_loss_reads_is_beside_forward():
    assert "temperature" in read_beside_forward(Contrastive)
    assert not {"table", "norm", "types", "unused"} & read_beside_forward(Contrastive)


def test_what_a_branch_of_a_parameter_reads_is_for_some_arguments():
    assert read_for_some_arguments(Contrastive) == {"types"}


class Levels(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("levels", torch.arange(4.0))

    def forward(self, x, labels=None):
        bins = x[..., : len(self.levels)]
        return bins if labels is None else ((bins - self.levels) ** 2).mean()


def test_to_ask_for_a_size_may_count_as_reading():
    assert read_for_some_arguments(Levels) == frozenset()
    assert read_for_some_arguments(Levels, sizes_count=False) == {"levels"}


def test_a_module_whose_file_is_not_loaded_has_nothing_beside_it():
    alone = type("Alone", (nn.Module,), {"__module__": "no_such_module"})
    assert [*taking_a_model(alone())] == classes_beside(alone) == []


def test_a_class_without_source_reads_nothing():
    made = type("Made", (nn.Module,), {"forward": lambda self, x: x})
    assert read_beside_forward(made) == read_for_some_arguments(made) == frozenset()
