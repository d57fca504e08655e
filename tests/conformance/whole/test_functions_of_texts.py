"""Functions beside a model that give a number or a vector for each text: padding of its neighbours changes nothing."""

from zlib import crc32

import pytest

torch = pytest.importorskip("torch")

from conformance.adapters.helpers.neighbours import CLAIM  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.mutants.source import FOLDER, TRAINED  # noqa: E402
from conformance.mutated import pointed_at  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402

VECTORS = """
@torch.no_grad()
def embed_sentences(model, sentences{more}):
    ids = torch.tensor([[*one, *[0] * (max(map(len, sentences)) - len(one))] for one in sentences])
    real = (ids != 0).float()[..., None]
    return {made}
"""
SCORES = """
@torch.no_grad()
def score_candidates(model, prompt, candidates):
    scores = []
    for one in candidates:
        logits = model(torch.tensor([prompt + one]))[0].log_softmax(-1)
        scores.append(sum(logits[len(prompt) + i - 1, word].item() for i, word in enumerate(one)))
    return {scores}
"""


def vectors(made, more=""):
    return VECTORS.format(made=made, more=more)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (vectors("(model(ids) * real).sum(1) / real.sum(1)"), "PASS"),
        (vectors("(model(ids).sum(1) / real.sum(1))"), "FAIL"),
        (vectors("model(ids)[:, -1].tolist()"), "FAIL"),
        (vectors("(model(ids) * real).sum(1).softmax(0)"), "NOT_PROVIDED"),  # each depends on all others
        (vectors("model(ids).mean()"), "NOT_PROVIDED"),
        (vectors("model(ids).argmax(-1)"), "NOT_PROVIDED"),
        (vectors("(model(ids) * real).sum(1)", more=", tokenizer"), "NOT_PROVIDED"),
        (SCORES.format(scores="scores"), "PASS"),
        (SCORES.format(scores="[one / max(map(len, candidates)) for one in scores]"), "FAIL"),
    ],
)
def test_a_text_has_the_same_numbers_beside_a_longer_one(text, verdict):
    source = (FOLDER / "trained.py").read_text(encoding="utf-8").split("class EMA")[0] + text
    result = run_check(CHECKS[CLAIM], pointed_at(TRAINED, source, f"texts_{crc32(text.encode())}.py"), "quick")
    assert result.verdict is Verdict[verdict]
    if verdict == "FAIL":
        assert "padding counts" in result.diagnosis
