"""Models whose forward compares pairs of samples: what is told of wrong ones, and what is left alone."""

import pytest

torch = pytest.importorskip("torch")

from wholes import pointed, told  # noqa: E402

from conformance.mutants.source import EMBEDDER, TOWERS  # noqa: E402

BOTH, ALONE = "contrasts-ask-in-both-directions", "scores-of-pairs-are-the-same-in-a-larger-batch"
SCORES = "return self.logit_scale.exp() * self.encode_image(images) @ self.encode_text(ids).t()"
LOSS = "def contrastive_loss(logits):"
OF_LOSS = "return contrastive_loss(self(images, ids))"
OWN_LOSS = "scores, own = self(images, ids), torch.arange(len(ids))\n        "
OWN_LOSS += "return F.cross_entropy(scores, own) + F.cross_entropy(scores.t(), own)"
STYLES = {
    "two tables": {
        SCORES: "a, b = self.encode_image(images), self.encode_text(ids)\n        return a @ b.t(), b @ a.t()",
        LOSS: "def contrastive_loss(logits_a, logits_b):",
        "F.cross_entropy(logits, own)": "F.cross_entropy(logits_a, own)",
        "F.cross_entropy(logits.t(), own)": "F.cross_entropy(logits_b, own)",
        "len(logits), device=logits.device": "len(logits_a)",
    },
    "another loss that cannot be run": {LOSS: f"def a_loss(logits):\n    raise ValueError(logits)\n\n\n{LOSS}"},
    "shares of a row": {SCORES: f"{SCORES[:7]}({SCORES[7:]}).softmax(-1)"},
    "a score for each word": {
        SCORES: "x = self.words(ids) @ self.text_head.weight.t()\n"
        "        return torch.einsum('nd,mtd->ntm', self.encode_image(images), x)",
    },
    "a loss that reads both sides itself": {
        OF_LOSS: OWN_LOSS,
        LOSS: "def contrastive_loss(first, second, third):",
    },
    "one direction twice, in such a loss": {
        OF_LOSS: OWN_LOSS.replace("scores.t()", "scores"),
        LOSS: "def contrastive_loss(first, second, third):",
    },
    "one direction twice": {"F.cross_entropy(logits.t(), own)": "F.cross_entropy(logits, own)"},
    "over the batch": {"z.norm(dim=1, keepdim=True)": "z.norm(dim=0, keepdim=True)"},
}


@pytest.mark.parametrize(
    ("style", "both", "alone"),
    [
        ("two tables", "PASS", "PASS"),
        pytest.param("another loss that cannot be run", "PASS", "PASS", marks=pytest.mark.slow),
        pytest.param("shares of a row", "NOT_PROVIDED", "NOT_PROVIDED", marks=pytest.mark.slow),
        ("a score for each word", "NOT_PROVIDED", "NOT_PROVIDED"),
        ("one direction twice", "FAIL", "PASS"),
        pytest.param("a loss that reads both sides itself", "PASS", "PASS", marks=pytest.mark.slow),
        pytest.param("one direction twice, in such a loss", "FAIL", "PASS", marks=pytest.mark.slow),
        ("over the batch", "PASS", "FAIL"),
    ],
)
def test_pairs_are_compared_as_pairs(made, style, both, alone):
    assert [told(made, TOWERS, claim, STYLES[style]) for claim in (BOTH, ALONE)] == [both, alone]


SIDES, SCALED = "losses-of-pairs-teach-both-sides", "contrasts-scale-all-false-partners"
TEMPERATURE = "contrasts-are-divided-by-the-temperature"
CUT = "a, b = self.encode_image(images), self.encode_text(ids).detach()\n        "
CUT += "return contrastive_loss(self.logit_scale.exp() * a @ b.t())"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "PASS"),
        ({OF_LOSS: CUT}, "FAIL"),
        ({OF_LOSS: f"# texts are frozen\n        {CUT}"}, "NOT_PROVIDED"),
        ({OF_LOSS: f"{CUT}\n\n    def loss_of_texts(self, images, ids):\n        {OF_LOSS}"}, "PASS"),
        ({OF_LOSS: CUT, "def loss(self, images, ids):": "def loss(self, images, ids, fancy):"}, "NOT_PROVIDED"),
        ({OF_LOSS: "return self.encode_image(images).square().mean()"}, "PASS"),
    ],
    ids=["both", "one", "frozen", "one each", "cannot be run", "a loss of one side"],
)
def test_a_side_without_a_gradient(made, changes, expected):
    assert told(made, TOWERS, SIDES, changes) == expected


WORSE = "worse / self.temperature"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "PASS"),
        ({WORSE: "worse"}, "FAIL"),
        ({WORSE: "worse / (2 * self.temperature)"}, "NOTE"),
        ({WORSE: "worse / self.temperature + 0.5"}, "NOT_PROVIDED"),
    ],
    ids=["one scale", "none", "another", "a margin"],
)
def test_the_scale_of_further_negatives(made, changes, expected):
    assert told(made, EMBEDDER, SCALED, changes) == expected


EXP, LOG = "self.logit_scale.exp() *", "torch.tensor(math.log(1 / 0.07))"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "PASS"),
        ({EXP: "self.logit_scale *"}, "FAIL"),
        ({EXP: "self.logit_scale *", LOG: "torch.tensor(10.0)"}, "NOT_PROVIDED"),
        ({EXP: "self.log_tau *", "self.logit_scale =": "self.log_tau ="}, "FAIL"),
        ({EXP: "(-self.log_tau).exp() *", "self.logit_scale =": "self.log_tau ="}, "NOT_PROVIDED"),
    ],
    ids=["exp", "forgotten", "a plain scale", "of a temperature", "its exp"],
)
def test_the_logarithm_of_a_scale(made, changes, expected):
    assert told(made, TOWERS, TEMPERATURE, changes) == expected


SIDES_AS_PARTS = """
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(30, 16)
            self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

        def forward(self, ids):
            return self.block(self.words(ids)).mean(1)


    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Linear(1, 1)
            self.reader, self.other = Reader(), Reader()

        def forward(self, ids, texts):
            return self.reader(ids) @ self.other(texts).t()
"""


def test_a_side_that_is_a_part_is_run_where_no_method_encodes(made):
    found = pointed(made("Both", SIDES_AS_PARTS).cls)
    assert found.untested[0].startswith("of Both only reader(...) was run: Both.forward gives a number for each pair")
    assert found.build("model", {})(**found.whole.example())["out"].shape == (2, 16)


HIDDEN = "hidden = ids == PAD_ID"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "PASS"),
        ({HIDDEN: "hidden = ids < PAD_ID"}, "FAIL"),
        ({f"{HIDDEN}  # padding behind the end is not seen": "hidden = ids < PAD_ID"}, "NOT_PROVIDED"),
    ],
    ids=["hidden", "seen", "nothing said"],
)
def test_padding_of_texts_of_pairs(made, changes, expected):
    assert told(made, TOWERS, "texts-of-pairs-end-where-said", changes) == expected


BATCHES = {"scores = self(anchors) @ self(positives)": "scores = self(**anchors) @ self(**positives)"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, "PASS"), ({"F.cross_entropy(scores.t(), own)": "F.cross_entropy(scores, own)"}, "FAIL")],
    ids=["both", "one twice"],
)
def test_a_loss_that_hands_whole_batches_to_its_model(made, changes, expected):
    assert told(made, EMBEDDER, BOTH, BATCHES | changes) == expected


def test_a_loss_that_asks_once_has_no_two_directions(made):
    once = {"F.cross_entropy(logits.t(), own)": "0"}
    assert told(made, TOWERS, BOTH, once) == "NOT_PROVIDED"
