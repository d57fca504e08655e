"""Models that take lists of texts, and images that are wider than high, are called without a word of the user."""

import pytest

torch = pytest.importorskip("torch")

from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

LISTS = """
import torch
from torch import nn

class Ranker(nn.Module):
    def __init__(self, vocab_size=50, d_model=8, max_len=16):
        super().__init__()
        self.words, self.kinds = nn.Embedding(vocab_size, d_model), nn.Embedding(2, d_model)
        self.places = nn.Embedding(max_len, d_model)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(d_model, 2, 16, batch_first=True)])
        self.scorer = nn.Linear(d_model, 1)

    def forward(self, ids, segments):
        {sizes}
        ids, segments = {fold}
        x = self.words(ids) + self.kinds(segments) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return {answer}
"""
SIZES = "queries, candidates, length = ids.shape"
FOLD = "ids.reshape(-1, length), segments.reshape(-1, length)"
ANSWER = "self.scorer(x[:, 0]).view(queries, candidates)"


@pytest.mark.parametrize(
    ("sizes", "fold", "answer", "verdict"),
    [
        (SIZES, FOLD, ANSWER, "PASS"),
        (
            "lead = ids.shape[:2]",
            "ids.flatten(0, 1), segments.flatten(0, 1)",
            "self.scorer(x[:, 0]).view(lead)",
            "PASS",
        ),
        (
            "count = ids.shape[1]",
            "ids.view(-1, ids.size(-1)), segments.view(-1, segments.size(-1))",
            "self.scorer(x[:, 0]).view(-1, count)",
            "PASS",
        ),
        (SIZES, FOLD, "self.scorer(x[:, 0]).view(candidates, queries).t()", "FAIL"),
    ],
)
def test_lists_of_texts(made, sizes, fold, answer, verdict):
    text = LISTS.replace("{sizes}", sizes).replace("{fold}", fold).replace("{answer}", answer)
    model = whole_model(made("Ranker", text))
    assert model.calling.in_lists
    assert run_check(CHECKS["model-rows-of-a-batch-are-apart"], Whole(model), "quick").verdict.name == verdict


def test_steps_of_several_columns_are_no_lists(made):
    text = LISTS.replace("{sizes}", "batch, time, columns = ids.shape").replace("{fold}", "ids, segments")
    text = text.replace("self.words(ids) + self.kinds(segments)", "(self.words(ids) + self.kinds(segments)).sum(2)")
    with pytest.raises(Unresolved):
        whole_model(made("Ranker", text.replace("{answer}", "self.scorer(x)")))


IMAGES = """
from torch import nn

class Restorer(nn.Module):
    def __init__(self, height=12, width=8, patch=4):
        super().__init__()
        self.rows, self.columns, self.patch = height // patch, width // patch, patch
        self.embed, self.block = nn.Linear(3 * patch**2, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.to_pixels = nn.Linear(8, 3 * patch**2)

    def forward(self, images):
        p = self.patch
        x = images.view(len(images), 3, self.rows, p, self.columns, p).permute(0, 2, 4, 1, 3, 5)
        return self.to_pixels(self.block(self.embed(x.reshape(len(images), self.rows * self.columns, -1))))
"""


def test_images_with_two_sides(made):
    assert whole_model(made("Restorer", IMAGES)).calling.main.shape == (3, 12, 8)
