"""`--claims-device`: answers are computed there, everything else on the CPU, and what stays behind is named."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from conformance.adapters.stated import StatedError  # noqa: E402
from conformance.adapters.whole.placing import check_device, moved_to, placed  # noqa: E402

PROGRAM = """
import json, sys
import elsewhere, torch
from torch import nn
from conformance.adapters.stated import Stated, StatedError
from conformance.adapters.whole.making import made_of
from conformance.adapters.whole.model import whole_model
from conformance.adapters.specification import parse

class GPT(nn.Module):
    seen = []
    def __init__(self, vocab_size=50, d_model=32, max_len=32):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab_size, d_model), nn.Embedding(max_len, d_model)
        self.block = nn.TransformerEncoderLayer(d_model, 4, 64, 0.1, batch_first=True)
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        self.head.weight = self.tok.weight
        self._mask = None
    def forward(self, idx):
        GPT.seen.append(idx.device.type)
        T = idx.shape[1]
        if self._mask is None or len(self._mask) < T:
            self._mask = torch.ones(T, T, dtype=torch.bool, device=idx.device).triu(1)
        x = self.tok(idx) + self.pos(torch.arange(T, device=idx.device))
        return self.head(self.block(x, src_mask=self._mask[:T, :T]))

class LeftBehind(GPT):
    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        return self.head(self.block(x))

def whole(cls, device=""):
    torch.manual_seed(0)
    return whole_model(made_of(cls, parse("torch")), "language_model", Stated(device=device))

here, there = whole(GPT), whole(GPT, "elsewhere")
inputs = here.example()
GPT.seen.clear()
answers = [there(**inputs)["out"], there(**here.example(length=9))["out"], there(**inputs)["out"]]
devices = list(dict.fromkeys(GPT.seen))
expected = here(**inputs)["out"]
there.inside()  # looks into a run, after runs elsewhere
refused = []
for run in (there, there.in_training):
    try:
        run(**here.example(length=40))  # more than its table of positions has
    except IndexError as error:
        refused.append(str(error))
answers.append(there(**inputs)["out"])
told = ""
try:
    whole(LeftBehind, "elsewhere")
except StatedError as error:
    told = str(error)
print(json.dumps({
    "devices": devices,
    "differ": max(float(abs(answer - expected).max()) for answer in (answers[0], *answers[2:])),
    "refused": refused,
    "afterwards": sorted({p.device.type for p in there.module.parameters()} | {there.module._mask.device.type}),
    "tied": there.module.head.weight is there.module.tok.weight,
    "told": told,
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="in this torch no device can be written in Python",
)
def test_answers_are_computed_there_and_what_stays_behind_is_named(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[3])]
    program = f"import sys; sys.path[:0] = {folders}; import runpy; runpy.run_path('program.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    told = found.pop("told")
    assert found == {
        "devices": ["cpu", "elsewhere"],  # tried here first: what goes wrong there ends the device
        "differ": 0.0, "refused": 2 * ["index out of range in self"], "afterwards": ["cpu"], "tied": True,
    }  # fmt: skip
    assert "LeftBehind runs on the CPU and not there: RuntimeError: Expected all tensors to be on the same" in told


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(StatedError, match="PyTorch finds no CUDA GPU here; leave it out"):
        check_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    check_device("cuda:0")
    with pytest.raises(StatedError, match="has only 1 GPUs, from cuda:0"):
        check_device("cuda:3")


def test_tensors_are_moved_wherever_they_stand():
    @dataclass(frozen=True)
    class Output:
        logits: torch.Tensor
        loss: float

    value = {"a": [torch.zeros(2)], "b": (torch.ones(1), 3, None), "c": Output(torch.ones(2), 0.5)}
    given = value["c"]
    found = moved_to(value, "meta")
    assert {found["a"][0].device.type, found["b"][0].device.type, found["c"].logits.device.type} == {"meta"}
    assert found["b"][1:] == (3, None)
    assert found["c"].loss == 0.5
    assert given.logits.device.type == "cpu"


def test_hooks_are_gone_afterwards_also_when_a_run_fails():
    module = nn.Linear(2, 2)
    with pytest.raises(RuntimeError), placed(module, "meta"):
        raise RuntimeError
    assert not module._forward_hooks
    assert not module._forward_pre_hooks
