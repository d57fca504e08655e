"""Functions and classes of files without a model: they are tested with the model that they work with."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest

torch = pytest.importorskip("torch")

from conformance.adapters import SpecificationError, resolve, subjects  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402

MODEL = """
    import torch
    from torch import nn

    class Scribe(nn.Module):
        def __init__(self, vocab_size=29, d_model=16):
            super().__init__()
            self.table, self.places = nn.Embedding(vocab_size, d_model), nn.Embedding(64, d_model)
            self.attn = nn.MultiheadAttention(d_model, 2, batch_first=True)
            self.head = nn.Linear(d_model, vocab_size)

        def read(self, ids):
            n = ids.shape[1]
            x = self.table(ids) + self.places(torch.arange(n))
            mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
            return x + self.attn(x, x, x, attn_mask=mask, need_weights=False)[0]

        def forward(self, ids):
            return self.head(self.read(ids))
"""
WRITER = """
    import torch
    from scribe_of_guests import Scribe

    @torch.no_grad()
    def generate(model: Scribe, ids, max_new_tokens):
        for _ in range(max_new_tokens):
            scores = model.head(model.read(ids[:, -64:])[:, -1])
            ids = torch.cat([ids, scores.argmax(-1, keepdim=True)], 1)
        return ids

    def speed_of_light():
        return 299_792_458
"""
TRAINER = """
    from torch.nn import functional as F

    def train_step(model, batch, optimizer):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.item()
"""
SCRIPT = """
    import torch
    from scribe_of_guests import Scribe
    from steps_of_guests import train_step

    def main():
        model = Scribe()
        train_step(model, torch.zeros(2, 8, dtype=torch.long), torch.optim.SGD(model.parameters(), 0.1))
"""


@pytest.fixture
def folder(tmp_path):
    """folder(file=text) -> the folder with the model and these files. What is imported is forgotten afterwards."""
    modules, path = dict(sys.modules), list(sys.path)

    def written(**files):
        for name, text in {"scribe_of_guests": MODEL, **files}.items():
            (tmp_path / f"{name}.py").write_text(dedent(text))
        (tmp_path / "requirements.txt").write_text("")
        return tmp_path

    yield written
    for added in sys.modules.keys() - modules.keys():
        if str(getattr(sys.modules[added], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[added]
    sys.path[:] = path


@pytest.mark.parametrize(
    ("mistake", "verdict"), [(("argmax", "argmax"), Verdict.PASS), (("argmax", "argmin"), Verdict.FAIL)]
)
def test_a_function_that_writes_is_tested_with_the_model_that_its_file_imports(folder, mistake, verdict):
    place = folder(write_of_guests=WRITER.replace(*mistake))
    impl = resolve(f"{place / 'write_of_guests.py'}:generate")
    assert impl.kind == "language_model"
    assert {fact.subject: fact.value for fact in impl.whole.facts}["tested with it"] == "generate of write_of_guests.py"
    assert run_check(CHECKS["generate-takes-the-best-token"], impl, "quick").verdict is verdict


@pytest.mark.parametrize("kept", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_function_that_trains_is_tested_with_the_model_of_its_caller(folder, kept):
    step = TRAINER if kept else TRAINER.replace("loss.backward()", "loss.backward(); optimizer.zero_grad()")
    place = folder(steps_of_guests=step, run_of_guests=SCRIPT)
    impl = resolve(f"{place / 'steps_of_guests.py'}:train_step")
    told = [one.claim for one in impl.build("helpers", {}).wrong]
    assert bool(told) is not kept


def test_a_file_without_a_model_is_one_subject(folder):
    place = folder(write_of_guests=WRITER)
    path = str(place / "write_of_guests.py")
    assert subjects(path) == {"write_of_guests.py": f"{path}:*"}
    impl = resolve(f"{path}:*")
    assert [writer.name for writer in impl.whole.writers()] == ["generate"]


@pytest.mark.parametrize("name", ["speed_of_light", "*"])
def test_what_works_with_no_model_is_one_sentence(folder, name):
    nothing = "import torch\n\ndef speed_of_light():\n    return 299_792_458\n"
    place = folder(constants_of_guests=nothing)
    with pytest.raises(SpecificationError, match=r"is a function|nothing that can be tested"):
        resolve(f"{place / 'constants_of_guests.py'}:{name}")


@pytest.mark.parametrize("name", ["greedy", "sample"])
def test_a_writer_with_a_helpers_name_is_tested_with_the_model_of_its_callers(folder, name):
    """Its file is called for another function, and a helper of CTC is called greedy, too."""
    writer = WRITER.replace("from scribe_of_guests import Scribe\n", "").replace("model: Scribe", "model")
    both = writer.replace("generate", name) + writer.replace("import torch\n", "").replace("generate", "write")
    script = SCRIPT.replace("steps_of_guests import train_step", "pens_of_guests import write")
    place = folder(pens_of_guests=both, run_of_guests=script.replace("train_step(model,", "write(model,"))
    impl = resolve(f"{place / 'pens_of_guests.py'}:{name}")
    assert impl.kind == "language_model"
    assert run_check(CHECKS["generate-takes-the-best-token"], impl, "quick").verdict is Verdict.PASS
