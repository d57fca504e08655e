"""Second names of the model that learns are told where they say another one; copies and new models are not."""

import ast
from unittest.mock import patch

import pytest

from conformance.watch import aliases
from conformance.watch.lines import Source

MADE = "model = Net()\noptimizer = torch.optim.Adam(model.parameters())\n"


@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        ("reference = model", True),
        ("best_model = None\nfor epoch in range(3):\n    if loss < best:\n        best_model = model", True),
        ("reference = copy.deepcopy(model)", False),
        ("reference = other", False),
        ("target = model\ntarget = copy.deepcopy(model)", False),
        ("teacher = model\nmodel = Student()", False),
        ("best_model = model", False),
        ("for rate in rates:\n    model = Net()\n    if loss < best:\n        best_model = model", False),
    ],
)
def test_second_names(text, is_wrong):
    source = Source("train.py", ast.parse(MADE + text))
    with patch.object(aliases, "sources", lambda run: [source]):
        assert bool(aliases.aliases(None)) is is_wrong
