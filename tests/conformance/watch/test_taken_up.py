"""What a checkpoint keeps is taken up by a run that resumes: told where it is left, and nothing near it."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import pytest

from conformance.watch import taken_up
from conformance.watch.lines import Source

TEXT = """
def train(args, model, optimizer):
    best, step, {more} = float("inf"), 0, None
    if args.resume:
        state = torch.load(args.file)
        model.load_state_dict(state["model"])
        {resumes}
    for x, y in batches:
        loss = evaluate(model)
        step += 1
        if loss < best:
            best = loss
            torch.save({kept}, args.file)
"""
OPTIMIZER = 'optimizer.load_state_dict(state["optimizer"])'
KEPT = '{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "best": best, "step": step}'


@pytest.mark.parametrize(
    ("resumes", "kept", "left"),
    [
        (f'{OPTIMIZER}; best, step = state["best"], state["step"]', KEPT, []),
        (f'{OPTIMIZER}; step = state.get("step", 0)', KEPT, ["best"]),
        (OPTIMIZER, KEPT, ["best", "step"]),
        ("pass", KEPT, []),  # it only reads the weights
        (OPTIMIZER, KEPT.replace('"best": best', '"loss": loss'), ["step"]),  # a loss is kept to be read by people
        (OPTIMIZER, "dict(model=model.state_dict(), optimizer=optimizer.state_dict(), best=best)", ["best"]),
        (OPTIMIZER, '{"model": model.state_dict(), "best": best}', []),  # it is another file: the best weights alone
    ],
)
def test_what_a_checkpoint_keeps_is_taken_up(monkeypatch, resumes, kept, left):
    text = TEXT.replace("{resumes}", resumes).replace("{kept}", kept).replace("{more}", "other")
    monkeypatch.setattr(taken_up, "sources", lambda run: [Source("train.py", ast.parse(text))])
    assert [name for name, _ in taken_up.not_taken_up(SimpleNamespace())] == left
