"""Masked autoencoders, and terms of a loss that teach nothing: what is told, and what is left alone."""

import pytest

torch = pytest.importorskip("torch")

from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.mutants.source import MASKED_IMAGES, MIXTURE  # noqa: E402
from conformance.runner import run_check  # noqa: E402

TOLD, UNSEEN, PLACED, VAIN = (
    "masks-tell-which-patches-are-hidden",
    "hidden-patches-are-not-seen",
    "visible-patches-keep-their-places",
    "losses-add-no-terms-without-a-gradient",
)


def verdicts(made, specimen, changes, *claims):
    text = specimen.source
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    subject = Whole(whole_model(made(specimen.name, text)))
    return [run_check(CHECKS[claim], subject, "quick").verdict.name for claim in claims]


COLUMNS = {  # patches and their mask are counted down the columns
    "self.patches(images).flatten(2)": "self.patches(images).transpose(2, 3).flatten(2)",
    "torch.cat((sines(rows, d_model // 2), sines(columns, d_model // 2)), 1)": (
        "torch.cat((sines(columns, d_model // 2), sines(rows, d_model // 2)), 1)"
    ),
}
IN_PLACE = {  # hidden patches are blank in the encoder, which sees all places
    "self.encoder(picked(x + self.pos_embedding, kept))": (
        "self.encoder(torch.where((back >= count)[..., None], self.blank, x) + self.pos_embedding)"
    ),
    "filled = picked(torch.cat((seen, blank), 1), back) + self.pos_embedding": "filled = seen",
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"(back >= count).to(x.dtype)": "back < count", **COLUMNS}, ["PASS", "PASS", "PASS"]),
        (IN_PLACE, ["PASS", "PASS", "NOT_PROVIDED"]),
        ({"picked(x + self.pos_embedding, kept)": "picked(x, kept)"}, ["PASS", "PASS", "PASS"]),  # it has no places
        ({"self.decoder(filled)), mask": "self.decoder(filled))"}, ["NOT_PROVIDED"] * 3),
        ({"(back >= count)": "(order >= count)"}, ["FAIL", "PASS", "PASS"]),
    ],
)
def test_what_is_hidden(made, changes, expected):
    assert verdicts(made, MASKED_IMAGES, changes, TOLD, UNSEEN, PLACED) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "PASS"),
        ({"* scores.softmax(-1)[kept]": "* scores.detach().softmax(-1)[kept]"}, "FAIL"),
        (  # the number is a constant, as of a layer without experts
            {"len(self.experts) * (load * scores.softmax(-1)[kept].mean(0)).sum()": "torch.zeros((), dtype=x.dtype)"},
            "PASS",
        ),
        (  # it scales what is taught, and is none of its terms
            {
                "* scores.softmax(-1)[kept]": "* scores.detach().softmax(-1)[kept]",
                "loss + 0.01 * aux_loss": "loss * aux_loss",
            },
            "PASS",
        ),
    ],
)  # fmt: skip
def test_terms_without_a_gradient(made, changes, expected):
    assert verdicts(made, MIXTURE, changes, VAIN) == [expected]


ADDED, SUM = "losses-for-balance-are-added", "loss + 0.01 * aux_loss"
LOSS_ALONE = {', "logits": logits, "aux_loss": aux_loss}\n\n': ', "logits": logits}\n\n'}


@pytest.mark.parametrize(
    ("total", "expected"),
    [(SUM, "PASS"), ("loss - 0.01 * aux_loss", "FAIL"), ("loss + 0 * aux_loss", "NOT_PROVIDED")],
)
def test_a_term_of_balance_that_only_parts_hand_out(made, total, expected):
    assert verdicts(made, MIXTURE, {**LOSS_ALONE, SUM: total}, ADDED) == [expected]


PICKED = '''
import torch
from torch import nn


class Pretrainer(nn.Module):
    """Reads the patches that a mask leaves, and draws all of them."""

    def __init__(self, side=32, patch=8, width=32):
        super().__init__()
        self.embed = nn.Conv2d(3, width, patch, patch)
        self.register_buffer("places", torch.randn(1, (side // patch) ** 2, width))
        self.blank = nn.Parameter(torch.zeros(1, 1, width))
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 64, batch_first=True), 2)
        self.decoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 64, batch_first=True), 1)
        self.paint = nn.Linear(width, 3 * patch * patch)

    def forward(self, image, mask):
        x = self.embed(image).flatten(2).transpose(1, 2) + self.places
        batch, _, width = x.shape
        seen = self.encoder(x[~mask].reshape(batch, -1, width))
        hidden = self.places.expand(batch, -1, -1)[mask].reshape(batch, -1, width)
        return self.paint(self.decoder(torch.cat([seen, self.blank + hidden], 1))[:, seen.shape[1] :])
'''


def test_a_mask_that_chooses_patches_hides_a_part_of_the_picture(made):
    model = whole_model(made("Pretrainer", PICKED))
    assert any("every other one" in fact.value for fact in model.calling.facts)
    claims = ("classifier-every-part-of-the-input-counts", "model-evaluation-repeats-itself")
    assert [run_check(CHECKS[claim], Whole(model), "quick").verdict.name for claim in claims] == [
        "NOT_PROVIDED",
        "PASS",
    ]
