"""torch's own op samples on torch and on minigrad: a share of them here, all behind -m deep; and what the tool sees."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tools.opinfo.__main__ import examine, main, told, verdict  # noqa: E402
from tools.opinfo.runs import DIFFERENT, EQUAL, REFUSED, UNCLEAR, Call, run  # noqa: E402
from tools.opinfo.samples import database, namesake, title  # noqa: E402

SHARE = (
    "var", "norm", "sort", "topk", "diagonal", "__getitem__", "scatter", "gather", "where", "softmax",
    "nn.functional.cross_entropy", "nn.functional.pad.reflect", "diff", "arange",
)  # fmt: skip


@cache
def known() -> dict[str, Any]:
    return {title(entry): entry for entry in database() if namesake(entry) is not None}


@pytest.mark.slow
def test_so_many_entries_have_a_namesake() -> None:
    assert len(known()) >= 291


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARE)
def test_a_share_of_the_samples_gives_what_torch_gives(name: str) -> None:
    outcomes = examine(known()[name], share=1)
    assert verdict(outcomes) in (EQUAL, REFUSED), told(name, outcomes)
    assert sum(outcome.verdict == EQUAL for outcome in outcomes) > 5


@pytest.mark.deep
def test_every_sample_gives_what_torch_gives() -> None:
    wrong = []
    for name, entry in known().items():
        outcomes = examine(entry, reference=True)
        if verdict(outcomes) in (DIFFERENT, UNCLEAR):
            wrong.append(told(name, outcomes))
    assert not wrong, "\n".join(wrong)


def outcomes_of(mine, mode: str = "values", theirs=torch.sum, *args, **kwargs) -> list[tuple[str, str]]:
    x = torch.arange(6.0, dtype=torch.float64).reshape(2, 3).requires_grad_(mode == "gradients")
    sample = SimpleNamespace(input=x, args=args, kwargs=kwargs)
    return [(outcome.verdict, outcome.what) for outcome in run(Call(theirs, mine, sample, "float64"), mode)]


def raises(error: Exception):
    def call(x):
        raise error

    return call


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        (lambda x: x.sum() + 1e-3, torch.sum, "15 in torch, 15.001 here"),
        (lambda x: x.sum().float(), torch.sum, "dtype float64 in torch, float32 here"),
        (lambda x: x.sum(0, keepdim=True), lambda x: x.sum(0), r"shape [3] in torch, [1, 3] here"),
        (lambda x: x.flip(0).flip(0), lambda x: x[:], "a view in torch, a copy here"),
        (lambda x: x[:], torch.clone, "a copy in torch, a view here"),
        (lambda x: (x.sum(), x), torch.sum, "1 results in torch, 2 here"),
        (lambda x: list(x.unbind()), torch.unbind, "a tuple in torch, a list here"),
        (lambda x: tuple(x.max(0)), lambda x: x.max(0), "a tuple values indices in torch, a tuple here"),
        (lambda x: x.mul_(2.0).sum() / 2, torch.sum, "an argument was changed"),
    ],
    ids=["value", "dtype", "shape", "copy", "view", "number", "list", "names", "argument"],
)
def test_silent_differences_are_seen(mine, theirs, expected: str) -> None:
    ((kind, what),) = outcomes_of(mine, "values", theirs)
    assert kind == DIFFERENT
    assert expected in what


def test_wrong_gradients_and_second_gradients_are_seen() -> None:
    def square(x):
        return (x * x).sum()

    def first_only(x):  # half of the gradient of x^2 passes, and of its derivative
        return (x * x.detach() * 2 - x.detach() * x.detach()).sum()

    assert outcomes_of(square, "gradients", square) == [(EQUAL, ""), (EQUAL, "")]
    assert outcomes_of(lambda x: square(x.detach()) + square(x) * 0, "gradients", square)[0][0] == DIFFERENT
    assert [kind for kind, _ in outcomes_of(first_only, "gradients", square)] == [EQUAL, DIFFERENT]


def test_refusals_are_told_from_accidents() -> None:
    import minigrad as mg

    assert outcomes_of(lambda x: mg.narrow(x, 0, 5, 1))[0][0] == REFUSED
    assert outcomes_of(lambda x: mg.sum(x, nonsense=1))[0][0] == REFUSED
    assert outcomes_of(raises(KeyError("x")))[0][0] == UNCLEAR
    assert outcomes_of(lambda x: x.no_such_name)[0][0] == UNCLEAR


@pytest.mark.slow
def test_the_command_fails_where_something_differs(monkeypatch, capsys) -> None:
    import minigrad.torch as standin

    assert main(["trunc", "--share", "1"]) == 0
    monkeypatch.setattr(standin, "trunc", lambda x: x.floor())
    assert main(["trunc", "--share", "1"]) == 1
    printed = capsys.readouterr().out
    assert "different  trunc" in printed
    assert "in torch" in printed
    with pytest.raises(SystemExit):
        main(["no_such_entry"])
