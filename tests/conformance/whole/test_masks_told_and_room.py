"""What keeps a claim from being asked, and need not: a mask of labels beside that of padding, draws that can be made
again, experts that turn tokens away, masks whose meaning only the user's other files tell."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.masks_told import documented_masks, told_masks  # noqa: E402
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


def verdict(made, claim: str) -> str:
    return run_check(CHECKS[claim], Whole(whole_model(made)), "quick").verdict.name


# --- a mask of labels

TWO_MASKS = """
    class BertForMLM(nn.Module):
        def __init__(self, vocab=23, width=16):
            super().__init__()
            self.words, self.places = nn.Embedding(vocab, width), nn.Embedding(32, width)
            self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
            self.head = nn.Linear(width, vocab)

        def forward(self, ids, padding_mask, mlm_label_mask):
            x = self.words(ids) + self.places(torch.arange(ids.size(1)))
            x = x + self.attention(x, x, x, key_padding_mask=HIDDEN)[0]
            return self.head(x)[mlm_label_mask]
"""


@pytest.mark.parametrize(
    ("hidden", "said"), [("padding_mask == 0", "PASS"), ("(padding_mask == 0).roll(1, 1)", "FAIL")]
)
def test_a_mask_of_labels_hides_no_words(made, hidden, said):
    found = verdict(made("BertForMLM", TWO_MASKS.replace("HIDDEN", hidden)), "encoder-padding-changes-nothing")
    assert found == said


# --- numbers that are drawn in evaluation

DRAWS = """
    import numpy as np

    class MaskedPatches(nn.Module):
        def __init__(self, width=16, classes=5):
            super().__init__()
            self.enter, self.leave = nn.Conv2d(1, width, 4, stride=4), nn.Linear(width, classes)

        def forward(self, image):
            x = self.enter(image).flatten(2).transpose(1, 2)
            kept = [np.random.permutation(x.size(1))[:9] for _ in range(len(x))]
            x = torch.stack([row[torch.as_tensor(places)] for row, places in zip(x, kept)])
            return self.leave((x.tanh()MIXED).mean(1))
"""


@pytest.mark.parametrize(("mixed", "said"), [("", "PASS"), (" - x.mean(0)", "FAIL")])
def test_rows_are_compared_under_the_same_draws(made, mixed, said):
    made = made("MaskedPatches", DRAWS.replace("MIXED", mixed))
    assert verdict(made, "model-rows-of-a-batch-are-apart") == said


def test_draws_that_depend_on_the_other_rows_say_nothing(made):
    drawn = "DRAWN = [np.random.permutation(9) for _ in range(int(x.sum() * 1000) % 7)]\n            kept ="
    text = DRAWS.replace("MIXED", " - x.mean(0)").replace("kept =", drawn.replace("DRAWN", "more"), 1)
    assert verdict(made("MaskedPatches", text), "model-rows-of-a-batch-are-apart") == "NOT_PROVIDED"


# --- experts with a capacity

EXPERTS = """
    class Experts(nn.Module):
        def __init__(self, width, capacity_factor):
            super().__init__()
            self.capacity_factor = capacity_factor
            self.gate = nn.Linear(width, 2, bias=False)
            self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

        def forward(self, x):
            flat = x.flatten(0, 1)
            best = self.gate(flat).argmax(-1)
            room = max(1, int(CAPACITY * len(flat) / 2))
            out = torch.zeros_like(flat)
            for at, expert in enumerate(self.experts):
                places = torch.nonzero(best == at)[:, 0][:room]
                out = out.index_add(0, places, expert(flat[places]).tanh())
            return out.view_as(x)

    class TinyGPT(nn.Module):
        def __init__(self, vocab=23, width=16, capacity_factor=0.5):
            super().__init__()
            self.words = nn.Embedding(vocab, width)
            self.experts, self.head = Experts(width, capacity_factor), nn.Linear(width, vocab)

        def forward(self, ids):
            x = self.words(ids)
            x = x + SEEN
            return self.head(x + self.experts(x))
"""


@pytest.mark.parametrize(
    ("capacity", "seen", "said"),
    [
        ("self.capacity_factor", "x.cumsum(1)", "PASS"),
        ("self.capacity_factor", "x.mean(1, keepdim=True)", "FAIL"),
        ("0.5", "x.mean(1, keepdim=True)", "NOT_PROVIDED"),  # no option leaves room
    ],
)
def test_experts_are_given_room_where_an_option_says_how_much(made, capacity, seen, said):
    made = made("TinyGPT", EXPERTS.replace("CAPACITY", capacity).replace("SEEN", seen))
    assert verdict(made, "language-model-is-causal") == said


# --- masks that other files make

CLASSIFIER = """
    class Classifier(nn.Module):
        def __init__(self, vocab=23, width=16, classes=5):
            super().__init__()
            self.words, self.head = nn.Embedding(vocab, width), nn.Linear(width, classes)

        def forward(self, ids, mask=None):
            x = self.words(ids)
            scores = x @ x.transpose(1, 2)
            if mask is not None:
                scores = scores * mask[:, None] if WRONG else scores.masked_fill(mask[:, None] == 0, -1e9)
            x = scores.softmax(-1) @ x
            return self.head(x[:, 0])
"""
DATA = """
    class Texts:
        def __getitem__(self, i):
            ids = self.ids[i]
            return {"ids": ids, "mask": self.padding_mask(ids, 0)}

        @staticmethod
        def padding_mask(ids, pad):
            return (ids != pad).long()
"""
TRAIN = """
    from model import Classifier

    def train(model, loader):
        for batch in loader:
            mask = batch["mask"].to("cpu")
            model(batch["ids"], HANDED)
"""


@pytest.mark.parametrize(("wrong", "said"), [("False", "PASS"), ("True", "FAIL")])
def test_a_mask_is_filled_as_the_calls_of_the_files_fill_it(made, wrong, said):
    files = {"data.py": DATA, "train.py": TRAIN.replace("HANDED", "mask")}
    made = made("Classifier", CLASSIFIER.replace("WRONG", wrong), files)
    assert verdict(made, "classifier-padding-changes-nothing") == said


@pytest.mark.parametrize(
    ("handed", "data", "told"),
    [
        ("mask", DATA, {"mask": True}),
        ("mask=mask", DATA.replace("!=", "=="), {"mask": False}),
        ("(batch['ids'] != PAD).long()", "", {"mask": True}),
        ("batch['attention_mask']", "", {"mask": True}),
        ("1 - mask", DATA, {}),  # turned round
        ("mask == 0", DATA, {}),
        ("batch['other']", DATA, {}),
        ("mask", DATA.replace("ids != pad", "ids > 0"), {}),
    ],
)
def test_what_files_tell_of_a_mask(made, handed, data, told):
    files = {"data.py": data, "train.py": TRAIN.replace("HANDED", handed)}
    module = made("Classifier", CLASSIFIER.replace("WRONG", "False"), files).fresh()
    assert told_masks(module, ["mask"]) == told


# --- what documentation says of a mask, and a forward that takes all by name

BY_NAME = '''
    class Base(nn.Module):
        def __init__(self, vocab=23, width=16):
            super().__init__()
            self.words, self.places = nn.Embedding(vocab, width), nn.Embedding(32, width)
            self.attention = nn.MultiheadAttention(width, 2, batch_first=True)

        def encoded(self, input_ids, attention_mask=None):
            x = self.words(input_ids) + self.places(torch.arange(input_ids.size(1)))
            return x + self.attention(x, x, x, key_padding_mask=attention_mask)[0]

    class Classifier(Base):
        def __init__(self, vocab=23, width=16):
            super().__init__(vocab, width)
            self.head = nn.Linear(width, 3)

        def forward(self, return_sequence=False, **kw):
            """
            input_ids (LongTensor): (B, N)
            attention_mask (Tensor): Boolean mask ``(B, N)`` where ``True`` marks PAD
                tokens.
            """
            x = self.encoded(**kw)
            real = ~kw["attention_mask"]
            pooled = (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)
            return (self.head(pooled), x) if return_sequence else self.head(pooled)
'''


def test_a_forward_that_hands_its_words_on_takes_what_they_are_handed_to(made):
    found = whole_model(made("Classifier", BY_NAME))
    [mask] = found.calling.masks
    assert [one.parameter for one in found.calling.inputs] == ["input_ids"]
    assert (mask.parameter, mask.encoding) == ("attention_mask", "bool, True = hidden")
    wrong = BY_NAME.replace("key_padding_mask=attention_mask", "key_padding_mask=None")
    assert [verdict(made("Classifier", text), "classifier-padding-changes-nothing") for text in (BY_NAME, wrong)] == [
        "PASS",
        "FAIL",
    ]


@pytest.mark.parametrize(
    ("words", "marks_real"),
    [
        ("mask: (B, T), 1 for tokens that are **not masked**, 0 for tokens that are masked", True),
        ("mask: (B, T) bool, True at padding\n    other: True for real tokens", False),
        ("mask (Tensor): 1 = real token, 0 = pad", True),
        ("mask: (B, T), 1 for real tokens and 0 for padding.", True),
        ("mask: (B, T), 1 for padding and 0 for real tokens.", False),
        ("mask: 1s for words and 0s for padding", True),
        ("mask: ``1`` indicates a real token, ``0`` indicates padding", True),
        ("mask: 1 at real tokens and 0 at padded positions", True),
        ("mask: 1 if the token is padding else 0", False),
        ("mask: ones mark padding and zeros real tokens", False),
        ("mask: (B, T)\n    other: True for real tokens", None),
        ("mask: (B, 1, T, T), added to the scores: 0 for visible keys, -inf for hidden ones", None),
    ],
)
def test_documentation_says_what_a_mask_marks(words, marks_real):
    class Model(nn.Module):
        def forward(self, ids, mask, other):
            return ids

    Model.forward.__doc__ = f"Ids to scores.\n\n    ids: (B, T)\n    {words}\n"
    assert documented_masks(Model(), ["mask"]).get("mask") is marks_real
