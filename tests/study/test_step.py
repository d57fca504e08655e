"""Stepping through backward passes, finding the first NaN, gradients per layer."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.cli import main
from minigrad.study import NotFinite, find_nan, gradflow, watching


def program():
    x = mg.tensor([[1.0, -2.0, 0.5]], dtype=mg.float64, requires_grad=True)
    w = mg.tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)
    b = mg.tensor([0.1, -0.2], dtype=mg.float64, requires_grad=True)
    h = (x @ w + b).tanh()
    return (h * h + h).sum(), (x, w, b)


def test_steps_arrive_at_what_backward_leaves():
    loss, leaves = program()
    steps = []
    with watching(steps.append):
        loss.backward()
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    last = {step.name: step for step in steps}
    for name, leaf in zip(("x", "w", "b"), leaves, strict=True):
        found = next(step for label, step in last.items() if step.node is leaf.node)
        np.testing.assert_array_equal(found.arrived[0], leaf.grad.numpy())
        assert str(found).endswith("kept in .grad"), name
    assert steps[-1].waiting == []


def test_contributions_add_up_and_broadcasting_is_told():
    loss, _ = program()
    steps = []
    with watching(steps.append):
        loss.backward()
    for step in steps:
        received = [c for earlier in steps for c in earlier.contributions if c.edge[0] is step.node]
        if received:
            np.testing.assert_allclose(sum(c.value for c in received), step.arrived[0])
            assert received[-1].count == len(received)
    tanh = next(step for step in steps if step.node.op == "tanh")
    assert "∂L/∂x = g · (1 − y²)" in str(tanh)
    assert any("3 contributions" in str(step) for step in steps)
    x = mg.ones(2, 3, requires_grad=True)
    b = mg.ones(3, requires_grad=True)
    seen = []
    with watching(lambda step: seen.append(str(step))):
        (x * b).sum().backward()
    assert "summed from [2, 3] over what was broadcast" in "\n".join(seen)


def test_a_step_tells_the_settings_that_its_rule_names():
    x = mg.tensor(np.ones((2, 3)), requires_grad=True)
    steps = []
    with watching(steps.append):
        x.sum(dim=1).sum().backward()
    assert any("with dims=(1,), keepdim=False" in str(step) for step in steps)


def test_watching_changes_nothing_and_ends():
    loss, leaves = program()
    loss.backward()
    expected = [leaf.grad.numpy() for leaf in leaves]
    loss, leaves = program()
    steps = []
    with watching(steps.append):
        loss.backward()
    count = len(steps)
    for got, want in zip(leaves, expected, strict=True):
        np.testing.assert_array_equal(got.grad.numpy(), want)
    program()[0].backward()
    assert len(steps) == count


def test_a_pass_inside_a_rule_is_part_of_that_rule():
    @mg.composite
    def cube_for_step(x):
        return x * x * x

    x = mg.tensor([2.0], requires_grad=True)
    steps = []
    with watching(steps.append):
        cube_for_step(x).sum().backward()
    assert [step.node.op for step in steps] == ["sum", "cube_for_step", "leaf"]


def test_command(tmp_path, capsys):
    file = tmp_path / "train.py"
    file.write_text(
        "import minigrad as mg\nw = mg.ones(2, requires_grad=True)\nloss = (w * w).sum()\nloss.backward()\n"
    )
    assert main(["step", str(file), "--all"]) == 0
    out = capsys.readouterr().out
    assert "step 1: sum (loss)" in out
    assert "train.py:3" in out
    assert "w has 2 contributions; their sum: [2. 2.]" in out
    assert main(["step", str(tmp_path / "none.py")]) == 2
    file.write_text("import minigrad\n")
    assert main(["step", str(file)]) == 1
    assert "ran no backward pass" in capsys.readouterr().out


def test_it_waits_where_somebody_can_answer(tmp_path, capsys, monkeypatch):
    file = tmp_path / "train.py"
    file.write_text("import minigrad as mg\nw = mg.ones(2, requires_grad=True)\n(w * w).sum().backward()\n")
    answers = []

    def ask(prompt):
        answers.append(prompt)
        return "q" if len(answers) == 2 else ""

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", ask)
    assert main(["step", str(file)]) == 0
    out = capsys.readouterr().out
    assert "step 2" in out
    assert "step 3" not in out


# --- NaN ------------------------------------------------------------------------------------------------


def test_the_first_nan_of_a_forward_pass():
    def model(x):
        shifted = x - 3.0
        return (mg.log(shifted) * 2.0).sum()

    found = find_nan(model, mg.tensor([1.0, 5.0]))
    assert (found.op, found.forward) == ("log", True)
    np.testing.assert_array_equal(found.inputs[0], [-2.0, 2.0])
    assert "test_step.py" in str(found)
    assert "log made the first NaN" in str(found)


def test_the_first_infinity_of_a_backward_pass():
    x = mg.tensor([0.0, 4.0], requires_grad=True)
    found = find_nan(lambda x: mg.sqrt(x).sum(), x)
    assert not found.forward
    assert "in the backward pass of sqrt" in str(found)
    assert "infinity" in str(found)


def test_the_module_is_named():
    class Bad(nn.Module):
        def forward(self, x):
            return (x - x) / (x - x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Bad()

        def forward(self, x):
            return self.inner(x)

    with pytest.raises(NotFinite, match=r"div made the first NaN .*in inner"), find_nan():
        Model()(mg.ones(2))


def test_compiled_functions_are_looked_into():
    step = mg.compile(lambda x: (mg.log(x) * 2.0).sum())
    x = mg.tensor([-1.0, 2.0])
    assert np.isnan(step(x).item())
    assert find_nan(step, x).op == "log"
    steps = []
    gradient = mg.compile(lambda x: mg.grad((x * x).sum(), x))
    with watching(steps.append):
        gradient(mg.ones(2, requires_grad=True))
    assert [step.node.op for step in steps] == ["sum", "mul", "leaf"]


def test_masks_and_finite_programs_are_no_findings():
    x = mg.randn(3, 3, requires_grad=True)
    hidden = mg.tensor(np.triu(np.ones((3, 3), bool), 1))
    assert find_nan(lambda x: x.masked_fill(hidden, float("-inf")).softmax(-1).sum(), x) is None
    assert find_nan(lambda x: mg.exp(x * 1e4).sum(), mg.ones(2), infinity=False) is None
    assert find_nan(lambda x: mg.exp(x * 1e4).sum(), mg.ones(2)).op == "exp"


# --- gradients per layer --------------------------------------------------------------------------------


def test_gradflow():
    mg.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with pytest.raises(RuntimeError, match=r"call backward\(\)"):
        gradflow(model)
    model[0].weight.requires_grad_(False)
    model(mg.randn(5, 4)).sum().backward()
    model[2].bias.grad.fill_(float("nan"))
    rows = {row.name: row for row in gradflow(model)}
    assert rows["0.weight"].remark == "frozen"
    assert rows["2.bias"].remark == "gradient: NaN or infinite"
    weight = model[2].weight
    assert rows["2.weight"].gradient == pytest.approx(np.sqrt(np.mean(weight.grad.numpy() ** 2)), rel=1e-6)
    text = str(gradflow(model))
    assert all(name in text for name in rows)
    assert "█" in text
