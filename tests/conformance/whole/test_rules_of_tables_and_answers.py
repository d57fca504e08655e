"""What rows of tables, captions and losses of answers taught: the input that is judged by, places of a grid, losses
that are put behind their model, scales in the first weights, draws that are meant for training, caches beyond a
window."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from wholes import Whole, pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.helpers.examining import examine  # noqa: E402
from conformance.adapters.whole.attention_scale import starts_scaled  # noqa: E402
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.adapters.whole.searching import calling_of  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


def said(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


# --- rows of a table ------------------------------------------------------------------------------


class Rows(nn.Module):
    """Categories by their numbers, and numbers: what can be drawn are the numbers."""

    def __init__(self, cards=(7, 4, 9), n_numbers=5, width=16):
        super().__init__()
        sizes = torch.tensor(cards) + 1
        self.register_buffer("cards", torch.tensor(cards), persistent=False)
        self.register_buffer("starts", sizes.cumsum(0) - sizes, persistent=False)
        self.table = nn.Embedding(int(sizes.sum()), width)
        self.weight = nn.Parameter(torch.randn(n_numbers, width))
        layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, batch_first=True)
        self.layer, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(width, 3)

    def forward(self, cats, nums):
        known = (cats >= 0) & (cats < self.cards)
        cells = self.table(torch.where(known, cats + 1, 0) + self.starts)
        return self.head(self.layer(torch.cat([cells, nums[..., None] * self.weight], 1)).mean(1))


def test_of_several_inputs_one_whose_data_can_be_drawn_is_judged_by():
    calling = calling_of(Rows())
    assert calling.main.parameter == "nums"
    assert calling.reads_its_data


# --- places of a grid -----------------------------------------------------------------------------


class Grid(nn.Module):
    """Patches with a table of rows and one of columns."""

    def __init__(self, width=16, side=4):
        super().__init__()
        self.side, self.patches = side, nn.Conv2d(3, width, 4, 4)
        self.row, self.col = nn.Embedding(side, width), nn.Embedding(side, width)
        self.layer, self.head = nn.TransformerEncoderLayer(width, 2, 24, 0.0, batch_first=True), nn.Linear(width, 3)

    def column(self, place):
        return place % self.side

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        place = torch.arange(self.side**2)
        x = x + self.row(place // self.side) + self.col(self.column(place))
        return self.head(self.layer(x).mean(1))


class RowsTwice(Grid):
    def column(self, place):
        return place // self.side


@pytest.mark.parametrize(("cls", "verdict"), [(Grid, "PASS"), (RowsTwice, "FAIL")])
def test_each_place_of_a_grid_has_a_sum_of_its_own(cls, verdict):
    assert said(cls, "positions-are-told-apart") == verdict


# --- losses of answers ----------------------------------------------------------------------------

LANGUAGE = """
class LM(nn.Module):
    def __init__(self, vocab_size=60, width=16):
        super().__init__()
        self.words = nn.Embedding(vocab_size, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, batch_first=True)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, tokens):
        future = torch.ones(tokens.shape[1], tokens.shape[1]).triu(1).bool()
        return self.head(self.layer(self.words(tokens), future))


def next_token_loss(logits, tokens, pad_id, weight=1.0):
    logits, labels = logits[:, :-1], tokens[:, 1:]
    return weight * nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
"""
CLASSES = """
class Classes(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed, self.head = nn.Linear(8, width), nn.Linear(width, 5)
        self.layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, batch_first=True)

    def forward(self, frames):
        '''frames: (B, T, 8)'''
        return self.head(self.layer(self.embed(frames)).mean(1))


def clip_loss(logits, labels, smoothing=0.1):
    return nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)


def contrastive_loss(logits, labels):
    return nn.functional.cross_entropy(logits.softmax(-1), labels)
"""


@pytest.mark.parametrize(
    ("text", "name", "old", "new", "claim", "verdict"),
    [
        (LANGUAGE, "LM", "", "", "losses-teach-the-next-word", "NOT_PROVIDED"),  # nothing says what padding is
        (LANGUAGE, "LM", ", pad_id,", ",", "losses-teach-the-next-word", "PASS"),
        (LANGUAGE, "LM", "pad_id, weight=1.0):\n    logits, labels = logits[:, :-1], tokens[:, 1:]",
         "weight=1.0):\n    logits, labels = logits[:, :-1], tokens[:, :-1]", "losses-teach-the-next-word", "FAIL"),
        (CLASSES, "Classes", "", "", "losses-get-what-they-are-made-for", "PASS"),
        (CLASSES, "Classes", ".mean(1))", ".mean(1)).softmax(-1)", "losses-get-what-they-are-made-for", "FAIL"),
    ],
)  # fmt: skip
def test_a_loss_of_an_answer_is_put_behind_its_model(made, text, name, old, new, claim, verdict):
    model = whole_model(made(name, text.replace(old, new) if old else text))
    assert run_check(CHECKS[claim], Whole(model), "quick").verdict.name == verdict


# --- scales in the first weights ------------------------------------------------------------------


def test_maps_that_begin_with_the_scale_in_them():
    class Attend(nn.Module):
        def __init__(self, std):
            super().__init__()
            self.heads, self.q, self.k = 4, nn.Linear(64, 64), nn.Linear(64, 64)
            nn.init.normal_(self.k.weight, std=0.125)
            nn.init.normal_(self.q.weight, std=std)

    torch.manual_seed(0)
    assert starts_scaled(Attend(0.125 / 4))
    assert not starts_scaled(Attend(0.125))
    assert not starts_scaled(nn.Linear(4, 4))


# --- draws that are meant for training ------------------------------------------------------------


def spec_augment(frames):
    """Zeroes random frames."""
    return frames * (torch.rand(frames.shape[:2]) > 0.2).to(frames.dtype)[..., None]


class Sounds(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed, self.head = nn.Linear(8, width), nn.Linear(width, 5)
        self.layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, batch_first=True)

    def varied(self, frames):
        return spec_augment(frames) if self.training else frames

    def forward(self, frames):
        """frames: (B, T, 8)"""
        return self.head(self.layer(self.embed(self.varied(frames))).mean(1))


class SoundsAlwaysVaried(Sounds):
    def varied(self, frames):
        return spec_augment(frames)


@pytest.mark.parametrize(("cls", "verdict"), [(Sounds, "PASS"), (SoundsAlwaysVaried, "FAIL")])
def test_a_function_that_is_meant_for_training_does_not_draw_in_evaluation(cls, verdict):
    assert said(cls, "model-evaluation-repeats-itself") == verdict


# --- caches beyond a window -----------------------------------------------------------------------

WINDOWED = """
class Windowed(nn.Module):
    def __init__(self, vocab_size=60, width=16, window=9):
        super().__init__()
        self.window, self.width = window, width
        self.words, self.qkv = nn.Embedding(vocab_size, width), nn.Linear(width, 3 * width)
        self.places, self.head = nn.Embedding(64, width), nn.Linear(width, vocab_size)

    def forward(self, ids, cache=None):
        start = 0 if cache is None else cache["seen"]
        at = torch.arange(start, start + ids.shape[1])
        q, k, v = self.qkv(self.words(ids) + self.places(at)).chunk(3, -1)
        if cache is not None:
            k, v = torch.cat([cache["k"], k], 1), torch.cat([cache["v"], v], 1)
        behind = torch.arange(start + ids.shape[1] - k.shape[1], start + ids.shape[1])
        hidden = (behind > at[:, None]) | (behind <= at[:, None] - self.window)
        x = (q @ k.transpose(1, 2) / 4).masked_fill(hidden, -1e9).softmax(-1) @ v
        seen = start + ids.shape[1]
        return self.head(x), {"k": k[:, -self.window :], "v": v[:, -self.window :], "seen": seen}

    @torch.no_grad()
    def generate(self, ids, max_new_tokens):
        step, cache = ids, None
        for _ in range(max_new_tokens):
            logits, cache = self(step, cache)
            step = logits[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, step], 1)
        return ids
"""


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [("", "", "PASS"), ("seen = start + ids.shape[1]", "seen = min(start + ids.shape[1], self.window)", "FAIL")],
)
def test_a_cache_is_asked_beyond_the_window(made, old, new, verdict):
    model = whole_model(made("Windowed", WINDOWED.replace(old, new) if old else WINDOWED))
    claim = "cached-steps-give-the-logits-of-one-pass"
    assert run_check(CHECKS[claim], Whole(model), "quick").verdict.name == verdict


# --- measures -------------------------------------------------------------------------------------

EVALUATES = """
    def evaluate(probs, labels):
        k = probs.shape[1]
        pairs = torch.bincount(labels * k + probs.argmax(1), minlength=k * k).view(k, k).double()
        hits, support, said = pairs.diagonal(), pairs.sum(1), pairs.sum(0)
        return {
            "accuracy": (hits.sum() / pairs.sum()).item(),
            "balanced_accuracy": (hits / support).mean().item(),
            "macro_f1": (2 * hits / (support + said)).mean().item(),
            "loss": -probs.gather(1, labels[:, None]).log().mean().item(),
        }
"""
OF_PAIRS = """
    def average_recall(confusion):
        '''Rows of the table are true classes.'''
        return (confusion.diagonal() / confusion.sum(1)).mean()
"""
F1_OF_PREDICTIONS = """
    def f1_score(y_true, y_pred, n_classes):
        scores = []
        for c in range(n_classes):
            hits = ((y_pred == c) & (y_true == c)).sum()
            scores.append(2 * hits / ((y_pred == c).sum() + (y_true == c).sum()))
        return sum(scores) / n_classes
"""
OF_RANKS = """
    def average_precision(scores, labels):
        hits = labels[scores.argsort(descending=True)].cumsum(0)
        return hits[0]
"""
BINARY = """
    def f1_binary(preds, labels):
        hits = ((preds == 1) & (labels == 1)).sum()
        return hits / (preds == 1).sum()
"""


@pytest.mark.parametrize(
    ("text", "old", "new", "wrong"),
    [
        (EVALUATES, "", "", 0),
        (EVALUATES, "(hits / support)", "(hits / said)", 1),
        (EVALUATES, "2 * hits / (support + said)", "hits / (support + said)", 1),
        (OF_PAIRS, "", "", 0),
        (OF_PAIRS, "sum(1)", "sum(0)", 1),
        (OF_PAIRS, "'''Rows of the table are true classes.'''\n        ", "", None),
        (F1_OF_PREDICTIONS, "", "", 0),
        (F1_OF_PREDICTIONS, "/ n_classes", "/ (n_classes - 1)", 1),
        (OF_RANKS, "", "", None),
        (BINARY, "", "", None),
        (EVALUATES, "k = probs.shape[1]", "k, labels = probs.shape[1], labels[labels != 0]", None),
    ],
)
def test_measures_of_classes_are_what_their_names_say(functions, text, old, new, wrong):
    found = examine(functions(text.replace(old, new) if old else text))
    claim = "measures-of-classes-are-their-formulas"
    assert (claim in found.tested) == (wrong is not None)
    assert len([one for one in found.wrong if one.claim == claim]) == (wrong or 0)


NEGATIVES = """
    PAD = 0

    def sample_negatives(seen, shape, n_items, tries=20):
        draw = torch.randint(1, n_items + 1, (seen.size(0), *shape))
        for _ in range(tries):
            clash = (draw[..., None] == seen[:, None]).any(-1)
            draw = torch.where(clash, torch.randint(1, n_items + 1, draw.shape), draw)
        return draw
"""


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("", "", 0),
        ("(1, n_items + 1,", "(0, n_items,", 1),
        ("range(tries)", "range(0)", 1),
        (
            "(seen, shape, n_items, tries=20):",
            "(items, shape, n_items, tries=0):\n        seen = items",
            0,
        ),  # its own only
    ],
)
def test_negatives_of_rows_of_items(functions, old, new, wrong):
    found = examine(functions(NEGATIVES.replace(old, new) if old else NEGATIVES))
    assert "negative-items-were-never-seen" in found.tested
    assert len(found.wrong) == wrong
