"""Settings that several config files hold together, and files that name the classes that they configure."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("yaml")
from made_subjects import evidence  # noqa: E402

GROUPS = {
    "config/train.yaml": "quanta: 24\ngpu: 0\ndefaults:\n  - model: flat\n",
    "config/model/deep.yaml": "stages: 3\nreach: 5\n",
    "config/model/flat.yaml": "name: flat\n",
    "train.py": "def main(args):\n    args.input_dim = 6 if args.normal else 3\n",
}
GROUPED = """
    class Net(nn.Module):
        def __init__(self, cfg):
            super().__init__()
            quanta, stages, width = cfg.quanta, cfg.model.stages, cfg.input_dim
            self.first = nn.Linear(width, quanta)
            self.stages = nn.ModuleList(nn.Linear(quanta, cfg.model.reach) for _ in range(stages))
"""


def test_settings_of_several_files_make_one_config(made):
    """The group that has what is read of it, and what a script sets: of two that it chooses from the first."""
    net = made("Net", GROUPED, GROUPS).fresh()
    assert (net.first.in_features, net.first.out_features) == (6, 24)
    assert [part.out_features for part in net.stages] == [5, 5, 5]


PARTS = """
    from torch import nn

    class Tower(nn.Module):
        def __init__(self, breadth, rungs):
            super().__init__()
            self.sizes = {"breadth": breadth, "rungs": rungs}
            self.fc = nn.Linear(breadth, rungs)
"""
OF_PARTS = """
    class Net(nn.Module):
        def __init__(self, tower, optimizer):
            super().__init__()
            self.fc = nn.Linear(tower.sizes["rungs"], optimizer["steps"])
            self.tower = tower
"""
LIGHTNING = """
    class_path: model.Net
    init_args:
      tower:
        class_path: towers_of_a_test.Tower
        init_args:
          breadth: 12
          rungs: 7
      optimizer:
        steps: 3
"""
HYDRA = """
    model:
      _target_: model.Net
      tower:
        _target_: towers_of_a_test.Tower
        breadth: 12
        rungs: 7
      optimizer:
        steps: 3
"""


@pytest.mark.parametrize("file", [LIGHTNING, HYDRA])
def test_a_file_that_names_classes_says_how_they_are_made(made, file):
    found = made("Net", OF_PARTS, {"towers_of_a_test.py": PARTS, "net.yaml": file})
    net = found.fresh()
    assert (net.fc.weight.shape, net.tower.fc.weight.shape) == ((3, 7), (7, 12))
    assert "the settings in net.yaml" in evidence(found)


def test_a_file_that_names_a_class_means_the_one_beside_the_model(made, monkeypatch):
    """A process may have imported another module of that name."""
    monkeypatch.setitem(sys.modules, "towers_of_a_test", ModuleType("towers_of_a_test"))
    found = made("Net", OF_PARTS, {"towers_of_a_test.py": PARTS, "net.yaml": HYDRA})
    assert type(found.fresh().tower).__name__ == "Tower"
