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


MASKED = """
    class Painter(nn.Module):
        def __init__(self, cfg):
            super().__init__()
            e, d = cfg.enc, cfg.dec
            self.ratio, width = cfg.mask_ratio, e.dim
            assert width % 8 == 0
            self.maps = nn.ModuleList(nn.Linear(width, width) for _ in range(e.depth))
            self.down = nn.Linear(width, d.dim)

        def forward(self, x):
            for turn in self.maps:
                x = torch.cat([torch.relu(turn(x))], dim=1)
            return self.down(x)
"""
RUN = """
    from dataclasses import dataclass, field


    @dataclass
    class Part:
        dim: int = 48
        depth: int = 2


    @dataclass
    class Run:
        enc: Part = field(default_factory=Part)
        dec: Part = field(default_factory=lambda: Part(24, 1))
        mask_ratio: float = 0.75
        epochs: int = 400
"""


def test_settings_that_a_model_never_imports_are_found_by_what_is_read_of_them(made):
    module = made("Painter", MASKED, {"settings_of_runs.py": RUN}).fresh()
    assert (module.down.in_features, module.down.out_features) == (48, 24)


def test_the_number_of_an_axis_is_no_width(made):
    assert made("Painter", MASKED).fresh().down.in_features % 8 == 0


def test_a_list_that_is_read_by_numbers_only_is_as_long_as_they_say(made):
    text = """
        class Patches(nn.Module):
            def __init__(self, size, patch):
                super().__init__()
                assert size[0] % patch[0] == 0 and size[1] % patch[1] == 0
                self.cut = nn.Conv2d(3, 8, patch, patch)

            def forward(self, images):
                return self.cut(images).flatten(2).mean(2)
    """
    assert len(made("Patches", text).fresh().cut.kernel_size) == 2
