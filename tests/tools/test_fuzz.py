"""Random programs give what torch gives, eager, traced and compiled; the tool sees and shrinks what does not."""

from __future__ import annotations

import json

import pytest
from slow import slow_but

torch = pytest.importorskip("torch")

import minigrad as mg  # noqa: E402
import minigrad.torch as standin  # noqa: E402
from tools.fuzz.__main__ import main  # noqa: E402
from tools.fuzz.compare import Difference, Refusal, check  # noqa: E402
from tools.fuzz.programs import Line, Program, drawn, values  # noqa: E402
from tools.fuzz.steps import STEPS, Unfit  # noqa: E402


@pytest.mark.parametrize("first", slow_but(range(0, 200, 40), (0).__eq__))
def test_two_hundred_programs_give_what_torch_gives(first: int) -> None:
    for seed in range(first, first + 40):
        found = check(drawn(seed, longest=20))
        assert not isinstance(found, Difference), f"{found.way}: {found.what}\n{found.program}"
        assert not isinstance(found, Refusal), f"{found.way}: {found.sentence}\n{drawn(seed, longest=20)}"


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, 50_000, 1000))
def test_fifty_thousand_programs_give_what_torch_gives(first: int) -> None:
    for seed in range(first, first + 1000):
        found = check(drawn(seed))
        assert not isinstance(found, Difference), f"seed {seed}: {found.way}: {found.what}\n{found.program}"


def test_a_seed_gives_one_program_and_its_lines_work() -> None:
    assert drawn(7) == drawn(7) != drawn(8)
    assert 5 <= len(drawn(7).lines) <= 60
    assert {line.step for seed in range(150) for line in drawn(seed, longest=30).lines} == set(STEPS)


PROGRAM = Program(
    ((2, 3), (3,)),
    (),
    (Line("exp", (0,), (5, 5, 5, 5)), Line("tanh", (2,), (0,) * 4), Line("add", (3, 1), (0,) * 4)),
    (3, 4),
    0,
)


@pytest.mark.parametrize(
    ("wrong", "way"),
    [
        (lambda x: mg.sub(0.0, mg.sub(0.0, mg.tanh(x))) + 1e-4, "eager"),
        (lambda x: mg.tanh(x.detach()), "eager"),
        (lambda x: mg.tanh(x) if not x.storage.abstract else mg.tanh(x) * 1.001, "traced"),
    ],
    ids=["value", "gradient", "trace"],
)
def test_what_differs_is_found_and_shrunk(monkeypatch, wrong, way: str) -> None:
    monkeypatch.setattr(mg.Tensor, "tanh", wrong)
    found = check(PROGRAM)
    assert isinstance(found, Difference)
    assert found.way == way
    assert [line.step for line in found.program.lines] == ["tanh"]
    assert "v0 = tanh(input0" in str(found.program)


@pytest.mark.parametrize(
    "lines",
    [
        (Line("unfold", (1,), (0, 2, 0, 0)), Line("tanh_", (2,), (0,) * 4)),
        (Line("chunk", (0,), (1, 0, 0, 0)), Line("exp", (0,), (0,) * 4), Line("mul_", (0, 2), (0,) * 4)),
    ],
    ids=["windows that overlap", "a part of itself"],
)
def test_a_change_whose_result_is_the_order_of_loops_is_no_program(lines: tuple[Line, ...]) -> None:
    inputs = [torch.ones(2, 3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)]
    program = Program(((2, 3), (3,)), (), lines, (2,), 0)
    with pytest.raises(Unfit):
        values(program, torch, inputs)


def test_what_is_refused_is_told_from_what_differs(monkeypatch) -> None:
    def refuse(x):
        raise RuntimeError("tanh is on holiday")

    monkeypatch.setattr(mg.Tensor, "tanh", refuse)
    found = check(PROGRAM)
    assert isinstance(found, Refusal)
    assert (found.way, found.sentence) == ("eager", "tanh is on holiday")


@pytest.mark.slow
def test_the_command_counts_and_fails_where_something_differs(monkeypatch, capsys) -> None:
    assert main(["--programs", "2"]) == 0
    assert "2 programs from seed 0 on: 0 different, 0 refused" in capsys.readouterr().out
    monkeypatch.setattr(standin.nn.functional, "gelu", lambda x: x)
    assert main(["--programs", "6"]) == 1


def test_the_command_goes_on_where_its_file_says(tmp_path, capsys) -> None:
    progress = tmp_path / "progress.json"
    assert main(["--programs", "1", "--progress", str(progress)]) == 0
    progress.write_text(
        progress.read_text().replace('"done": 1', '"done": 3').replace('"different": 0', '"different": 2')
    )
    assert main(["--programs", "4", "--progress", str(progress)]) == 1
    assert "4 programs from seed 0 on: 2 different" in capsys.readouterr().out
    assert json.loads(progress.read_text())["done"] == 4


@pytest.mark.parametrize("text", ["{", "[]", '{"seed": 0}', '{"seed": 9, "done": 1, "different": 0, "refused": {}}'])
def test_a_file_of_something_else_is_no_progress(text: str, tmp_path, capsys) -> None:
    progress = tmp_path / "progress.json"
    progress.write_text(text)
    with pytest.raises(SystemExit):
        main(["--programs", "1", "--progress", str(progress)])
    assert "--progress" in capsys.readouterr().err
    assert progress.read_text() == text


def test_a_branch_on_values_is_refused_in_a_trace() -> None:
    def step(x):
        return x * 2.0 if x.sum() > 0 else x

    with pytest.raises(RuntimeError, match=r"bool\(\) needs the values .* use where\(\)"):
        mg.compile(step)(mg.ones(3))
