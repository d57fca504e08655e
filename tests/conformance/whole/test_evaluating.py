"""Functions that evaluate: means that are means in many forms, and means that are divided by a number again."""

import pytest

pytest.importorskip("torch")

from conformance.adapters.helpers.beside import functions_beside
from conformance.adapters.helpers.evaluating import CLAIM, evaluated, is_evaluator
from conformance.adapters.whole.model import whole_model

MODEL = """
    import math
    import torch.nn.functional as F

    V = 11

    class GPT(nn.Module):
        def __init__(self, vocab_size=V, d_model=8):
            super().__init__()
            self.tokens, self.head = nn.Embedding(vocab_size, d_model), nn.Linear(d_model, vocab_size)

        def forward(self, ids):
            return self.head(self.tokens(ids).cumsum(1))

    @torch.no_grad()
    def evaluate(model, loader):
        model.eval()
        total, count = 0.0, 0
        for ids, mask in loader:
            logits = model(ids)[:, :-1]
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            n = int(mask[:, 1:].sum())
            total += loss.item() * n
            count += n
        return total / count
"""
GIVES = "return total / count"
ADDS = "total += loss.item() * n"
SUM = "total += loss.item()"
FORMS = {
    "weighed": ((), True),
    "added up and divided by the labels": (((ADDS, SUM),), False),
    "divided by the rows": (((ADDS, SUM), ("count += n", "count += len(ids)")), False),
    "divided by the batches": (((ADDS, SUM), ("count += n", "count += 1")), True),
    "divided by the rows of a loader": (((ADDS, SUM), (GIVES, "return total / len(loader.dataset)")), False),
    "a loss that is handed over": ((("(model, loader)", "(model, loader, criterion)"), (ADDS, SUM),
                                    ("F.cross_entropy(", "criterion(")), "note"),
    "sums": (((ADDS, SUM), ("1:].flatten())", "1:].flatten(), reduction='sum')")), True),
    "a perplexity": (((GIVES, "return {'ppl': math.exp(total / count)}"),), True),
    "a perplexity of too little": (((GIVES, "return 0.5, math.exp(total / count)"), (ADDS, SUM)), False),
    "an accuracy": ((("loss.item() * n", "(logits.argmax(-1) == ids[:, 1:]).sum().item()"),), None),
    "a sum": (((GIVES, "return total"),), None),
    "something that learns": ((("model.eval()", "model.step()"),), None),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_mean_of_an_evaluation(made, form):
    edits, expected = FORMS[form]
    text = MODEL
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    subject = whole_model(made("GPT", text))
    functions = [one for one in functions_beside(type(subject.module), subject.module, {}) if is_evaluator(one)]
    found = [one for one in evaluated(functions, subject) if one.claim == CLAIM]
    said = [one.trouble is None or ("note" if not one.trouble.certain else False) for one in found]
    assert said == ([] if expected is None else [expected])
    assert all("total +=" in _line(one.place) and one.mend for one in found if one.trouble)


def _line(place):
    import linecache

    file, _, number = place.rpartition(":")
    return linecache.getline(file, int(number))
