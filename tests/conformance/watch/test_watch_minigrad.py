"""Our own trainer and scripts on minigrad, watched like those on torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.verdict import Verdict
from conformance.watch.events import Step
from conformance.watch.launching import Script
from conformance.watch.record import Run
from conformance.watch.script import watched
from conformance.watch.verdicts import results_of

SMALL = "--batch-size 8 --d-model 32 --d-ff 32 --n-layers 1 --steps 5 --save-every 4 --evaluate-every 4"


@pytest.fixture(autouse=True)
def plain_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest reads the modules of an installed plugin by a loader of its own, which cannot run one as a script: nor
    one that another test imported so."""
    plain = [finder for finder in sys.meta_path if type(finder).__name__ != "AssertionRewritingHook"]
    monkeypatch.setattr(sys, "meta_path", plain)
    monkeypatch.delitem(sys.modules, "transformer.__main__", raising=False)


def trained(folder: Path, words: str) -> Run:
    return watched(Script("transformer", ["train", *words.split(), *SMALL.split(), "--out", str(folder)], True))


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("copy --accumulate 3 --label-smoothing 0.1", marks=pytest.mark.slow),
        "reverse --precision bfloat16",
        pytest.param("masked --max-len 32", marks=pytest.mark.slow),
        pytest.param("text --max-len 16", marks=pytest.mark.deep),
        pytest.param("long-copy", marks=pytest.mark.deep),
        pytest.param("mixture --max-len 16", marks=pytest.mark.deep),
    ],
)
def test_our_own_trainer_breaks_nothing(words: str, tmp_path: Path) -> None:
    results = results_of(trained(tmp_path / "run", words))
    told = {s: r.verdict for s, r in results.items() if r.verdict not in (Verdict.PASS, Verdict.NOT_SEEN)}
    assert told == {}
    assert sum(r.verdict is Verdict.PASS for r in results.values()) >= 35


@pytest.mark.slow
def test_its_numbers_are_the_same_bits_without_watching(tmp_path: Path) -> None:
    words = ["train", "reverse", *SMALL.split(), "--no-compile", "--out"]
    subprocess.run([sys.executable, "-m", "transformer", *words, str(tmp_path / "alone")], check=True, cwd=ROOT)
    run = watched(Script("transformer", [*words, str(tmp_path / "watched")], True))
    assert run.ended == "the script ended"
    alone, seen = (_figures(tmp_path / name / "log.jsonl") for name in ("alone", "watched"))
    assert alone == seen
    assert alone[-1]["held_out_loss"] > 0
    weights = [(tmp_path / name / "checkpoint.safetensors").read_bytes() for name in ("alone", "watched")]
    assert weights[0] == weights[1]


ROOT = Path(__file__).parents[3]


def _figures(path: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "tokens_per_s"} for row in rows]


def test_a_compiled_step_is_watched_op_by_op(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "reverse")
    assert [note for note in run.notes if "ran op by op" in note]
    assert len(run.of(Step)) == 5


LOOP = """\
import minigrad as mg
from minigrad import nn
from minigrad.functional import softmax
import minigrad.functional as F
from minigrad.optim import Adam, LambdaLR

mg.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.drop, self.out = nn.Embedding(20, 8), nn.Dropout(0.1), nn.Linear(8, 20)

    def forward(self, ids):
        hidden = self.drop(self.table(ids))
        return self.out(hidden)


model = Model()
optimizer = Adam(model.parameters(), lr=1e-2)
schedule = LambdaLR(optimizer, lambda done: (done + 1) / 10)
model.train()
for step in range(6):
    ids = mg.randint(20, size=(4, 9))
    given, wanted = ids[:, :-1], ids[:, 1:]
    logits = model(given)
    loss = F.cross_entropy(logits.reshape(-1, 20), wanted.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
"""


ON_TORCH = (
    LOOP.replace("import minigrad as mg\nfrom minigrad import nn", "import torch as mg\nfrom torch import nn")
    .replace("minigrad.functional", "torch.nn.functional")
    .replace(
        "minigrad.optim import Adam, LambdaLR",
        "torch.optim import Adam\nfrom torch.optim.lr_scheduler import LambdaLR",
    )
)


def told(text: str, folder: Path) -> dict[str, int]:
    """The claims that a script on minigrad breaks, with the lines of its own that are named."""
    path = folder / "loop.py"
    path.write_text(text)
    results = results_of(watched(Script(str(path))))
    broken = {slug: r.place for slug, r in results.items() if r.verdict in (Verdict.FAIL, Verdict.ERROR)}
    return {slug: int(place.split("loop.py:")[1].split(":")[0]) for slug, place in broken.items()}


def test_a_right_loop_on_minigrad_breaks_nothing(tmp_path: Path) -> None:
    assert told(LOOP, tmp_path) == {}


def test_the_same_loop_on_torch_breaks_nothing(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert told(ON_TORCH, tmp_path) == {}


@pytest.mark.parametrize(
    ("old", "new", "slug", "line"),
    [
        ("    optimizer.zero_grad()\n", "", "run-gradients-are-cleared", None),
        ("wanted = ids[:, :-1], ids[:, 1:]", "wanted = ids, ids", "run-input-does-not-hold-its-answer", None),
        ("wanted = ids[:, :-1], ids[:, 1:]", "wanted = ids[:, :-2], ids[:, 2:]", "run-labels-are-shifted-once", 26),
        ("model.train()", "model.eval()", "run-training-is-in-training-mode", 23),
        ("self.drop(self.table(ids))", "self.drop(self.table(ids).detach())", "run-parameters-get-gradients", 16),
        ("F.cross_entropy(logits", "F.cross_entropy(softmax(logits, -1)", "run-cross-entropy-gets-logits", None),
        ("(done + 1) / 10", "done // 10", "run-rate-is-not-zero", 22),
        (
            "    schedule.step()\n",
            "    schedule.step()\n    schedule.step()\n",
            "run-schedule-advances-once-a-step",
            None,
        ),
    ],
)
def test_a_mistake_on_minigrad_is_told(old: str, new: str, slug: str, line: int | None, tmp_path: Path) -> None:
    assert LOOP.count(old) == 1
    found = told(LOOP.replace(old, new), tmp_path)
    assert [*found][:1] == [slug]
    if line is not None:
        assert found[slug] == line


def test_an_optimizer_of_one_s_own_is_held_to_the_formula(tmp_path: Path) -> None:
    own = """
class Wrong(Adam):
    def update(self, parameter, gradient, state, group):
        if not state:
            state["m"], state["v"] = mg.zeros_like(parameter), mg.zeros_like(parameter)
        one, two = group["betas"]
        state["m"].mul_(one).add_(gradient * (1 - one))
        state["v"].mul_(two).add_(gradient * gradient * (1 - two))
        parameter.sub_(state["m"] / (state["v"].sqrt() + group["eps"]) * group["lr"])


model = Model()
"""
    text = LOOP.replace("\nmodel = Model()\n", own).replace("optimizer = Adam", "optimizer = Wrong")
    assert "run-optimizer-follows-its-formula" in told(text, tmp_path)


def test_a_script_for_torch_is_watched_on_the_stand_in(tmp_path: Path) -> None:
    text = ON_TORCH.replace("    optimizer.zero_grad()\n", "")
    (tmp_path / "loop.py").write_text(text)
    order = [sys.executable, "-m", "conformance", "watch", "-m", "minigrad.torch", "loop.py"]
    done = subprocess.run(
        order, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert "Gradients are not cleared between steps" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1
