"""Words that are replaced unasked, rows that are compared with themselves, best weights that nothing reads: told, and
nothing that is right and near them."""

import re

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

FAIL, NOT_SEEN = Verdict.FAIL, Verdict.NOT_SEEN
LOOP = """
import copy
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
MASK, IGNORE = 1, -100
model = nn.Linear(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(6, 4)
best, best_state = 9e9, None
for step in range(3):
    z = F.normalize(model(data), dim=-1)
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    val_loss = loss.item()
    {after}
"""
MASKING = """
def mask_words(ids):
    labels = ids.clone()
    chosen = torch.bernoulli(torch.full(ids.shape, 0.15)).bool()
    {ignored}
    hidden = torch.bernoulli(torch.full(ids.shape, 0.8)).bool() & chosen
    ids[hidden] = MASK
    {other}
    return ids, labels
mask_words(torch.ones(2, 5).long())
"""


def judged(claim, text="", line="", loss="z.sum()", after="pass"):
    """The verdict of a claim on a script with this text below its loop; with `line`, that this is named."""
    source = LOOP.format(loss=loss, after=after) + text
    found = results_of(run_of(source, "train.py").run)[claim]
    if found.verdict is FAIL and line:
        number = int(re.search(r":(\d+):", found.place).group(1))
        assert source.splitlines()[number - 1].strip() == line, found.place
    return found.verdict


IGNORED = (
    "labels[~chosen] = -100",
    "labels.masked_fill_(~chosen, IGNORE)",
    "labels = torch.where(chosen, labels, -100)",
)
UNASKED = "drawn = torch.bernoulli(torch.full(ids.shape, 0.5)).bool() & ~hidden"


@pytest.mark.parametrize("ignored", IGNORED)
@pytest.mark.parametrize("write", ["ids[drawn] = 4", "ids = torch.where(drawn, torch.full_like(ids, 4), ids)"])
def test_words_that_are_replaced_unasked_are_told(ignored, write):
    text = MASKING.format(ignored=ignored, other=f"{UNASKED}\n    {write}")
    assert judged("run-words-are-replaced-where-asked", text, UNASKED) is FAIL


@pytest.mark.parametrize(
    "other",
    [
        f"{UNASKED} & chosen\n    ids[drawn] = 4",
        "some = chosen & ~hidden\n    drawn = (torch.rand_like(ids.float()) < 0.5) & some\n    ids[drawn] = 4",
        "short = ids == 0\n    ids[short] = 4",
        f"{UNASKED}\n    other = ids.clone()",
    ],
)
def test_words_that_are_replaced_where_they_are_asked_are_not_told(other):
    text = MASKING.format(ignored=IGNORED[0], other=other)
    assert judged("run-words-are-replaced-where-asked", text) is NOT_SEEN


HALF = "drawn = (torch.rand(ids.shape) < {0}) & {1}\n    ids[drawn] = 4"


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (HALF.format(0.5, "chosen"), FAIL),
        (HALF.format(0.5, "chosen & ~hidden"), NOT_SEEN),
        (HALF.format(0.5, "chosen & (ids != MASK)"), NOT_SEEN),
        (HALF.format(0.1, "chosen"), NOT_SEEN),  # it takes few of the masks
        ("rest = chosen & ~hidden\n    " + HALF.format(0.5, "rest"), NOT_SEEN),
        ("u = torch.rand(ids.shape)\n    drawn = (u > 0.5) & chosen & (u < 0.8)\n    ids[drawn] = 4", NOT_SEEN),
    ],
)
def test_masks_that_random_words_are_written_over_are_told(other, expected):
    text = MASKING.format(ignored=IGNORED[0], other=other)
    line = "drawn = (torch.rand(ids.shape) < 0.5) & chosen"
    assert judged("run-masks-are-not-overwritten", text, line) is expected


@pytest.mark.parametrize(("rest", "expected"), [("", FAIL), (" & ~hidden", NOT_SEEN)])
def test_masks_are_drawn_by_a_function_of_ones_own(rest, expected):
    drawn = f"drawn = _bernoulli(ids.shape, 0.5) & chosen{rest}"
    own = "def _bernoulli(shape, share):\n    return torch.bernoulli(torch.full(shape, share)).bool()\n"
    text = own + MASKING.format(ignored=IGNORED[0], other=f"{drawn}\n    ids[drawn] = 4")
    assert judged("run-masks-are-not-overwritten", text, drawn) is expected


def test_one_draw_for_both_is_no_draw_of_its_own():
    drawn = "share = torch.rand(ids.shape)\n    chosen = share < 0.2\n    labels[~chosen] = -100"
    text = MASKING.format(ignored=drawn, other="drawn = share < 0.1\n    ids[drawn] = 4")
    assert judged("run-words-are-replaced-where-asked", text) is NOT_SEEN


ASKED = "(torch.arange(6) + 3) % 6"


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (f"F.cross_entropy(z @ z.T / 0.1, {ASKED})", FAIL),
        (f"F.cross_entropy((z @ z.T).fill_diagonal_(float('-inf')), {ASKED})", NOT_SEEN),
        (f"F.cross_entropy(z @ z.T / 0.1 - 1e9 * torch.eye(6), {ASKED})", NOT_SEEN),
        ("F.cross_entropy(z @ z.T / 0.1, torch.arange(6))", NOT_SEEN),
        ("F.cross_entropy(z @ z.flip(0).T / 0.1, torch.arange(6))", NOT_SEEN),
        ("F.cross_entropy(model(data)[:, :6], (torch.arange(6) + 1) % 6)", NOT_SEEN),
    ],
)
def test_rows_that_meet_themselves_are_told(loss, expected):
    assert judged("run-rows-meet-others", loss=loss) is expected


KEEP = "if val_loss < best:\n        best, best_state = val_loss, copy.deepcopy(model.state_dict())"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("print(model(data).sum())", FAIL),
        ("model.load_state_dict(best_state)", NOT_SEEN),
        ("torch.save(best_state, __file__ + '.pt')", NOT_SEEN),
        ("print(best_state is None)", NOT_SEEN),
    ],
)
def test_best_weights_that_nothing_reads_are_told(text, expected):
    assert judged("run-best-weights-are-read", text, text, after=KEEP) is expected


KEEPER = """
class Keeper:
    def __init__(self):
        self.best, self.state = 9e9, None
    def look(self, loss, model):
        if loss < self.best:
            self.best = loss
            self.state = copy.deepcopy(model.state_dict())
keeper = Keeper()
keeper.look(1.0, model)
"""


def test_an_attribute_that_is_read_elsewhere_is_read():
    assert judged("run-best-weights-are-read", KEEPER) is FAIL
    assert judged("run-best-weights-are-read", KEEPER + "model.load_state_dict(keeper.state)\n") is NOT_SEEN


SAVES = (
    "if val_loss < best:\n        best = val_loss\n"
    "        torch.save({'model': model.state_dict(), 'step': step}, 'best.pt')"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("state = torch.load('best.pt')\nprint(state['step'])", FAIL),
        ("state = torch.load('best.pt')\nmodel.load_state_dict(state['model'])\nprint(state['step'])", NOT_SEEN),
        ("state = torch.load('best.pt')\nprint(dict(state))", NOT_SEEN),
    ],
)
def test_a_file_of_the_best_that_is_read_for_something_else_is_told(text, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert judged("run-best-weights-are-read", text, text.splitlines()[0], after=SAVES) is expected


GIVEN = """
from torch.utils.data import DataLoader
from {module} import Collate
for ids, labels in DataLoader([torch.ones(5).long()] * 4, batch_size=2, collate_fn=Collate()):
    optimizer.zero_grad()
    model(data).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("rest", "expected"), [("", FAIL), (" & ~hidden", NOT_SEEN)])
def test_the_file_of_what_a_loader_gives_is_read(rest, expected, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    drawn = f"drawn = (torch.rand(ids.shape) < 0.5) & chosen{rest}\n    ids[drawn] = 4"
    masking = MASKING.format(ignored=IGNORED[0], other=drawn)
    module = f"collating_{expected.name.lower()}"
    collate = "class Collate:\n    def __call__(self, rows):\n        return mask_words(torch.stack(rows))\n"
    (tmp_path / f"{module}.py").write_text(f"import torch\nMASK = 1\n{masking}{collate}")
    assert judged("run-masks-are-not-overwritten", GIVEN.format(module=module)) is expected
