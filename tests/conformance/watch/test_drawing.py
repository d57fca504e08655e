"""Orders of epochs, noise that stays, comparisons that end too early, means over what is masked, averages that choose:
a real mistake is told at its line, and what is right beside it is not."""

from __future__ import annotations

import ast

import pytest

torch = pytest.importorskip("torch")

from conformance.watch import asking, averages, drawing, measures  # noqa: E402
from conformance.watch.lines import Source  # noqa: E402

PLACES = {
    drawing.drawn_alike: "place",
    drawing.written_into: "place",
    measures.short_zips: 1,
    measures.means_over_masked: 1,
    measures.mixtures: "place",
    averages.raw_by_choice: "place",
    asking.counted_by_frequency: 1,
}


def told(monkeypatch, rule, text):
    """The lines that a rule tells of a script's text."""
    source = Source("train.py", ast.parse(text))
    monkeypatch.setattr(f"{rule.__module__}.sources", lambda run: [source])
    key = PLACES[rule]
    places = [getattr(one, key) if isinstance(key, str) else one[key] for one in rule(None)]
    return [text.splitlines()[int(place.rpartition(":")[2]) - 1].strip() for place in places]


BATCHES = """
class Batches:
    def __init__(self, rows, seed):
        self.rows, self.seed, self.epoch, self.rng = rows, seed, 0, random.Random(seed)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = list(range(len(self.rows)))
        {line}
        return iter(order)
"""


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("random.Random(0).shuffle(order)", True),
        ("random.Random(self.seed).shuffle(order)", True),
        ("order = torch.randperm(9, generator=torch.Generator().manual_seed(self.seed))", True),
        ("random.Random(self.seed + self.epoch).shuffle(order)", False),
        ("random.Random(time.time()).shuffle(order)", False),
        ("self.rng.shuffle(order)", False),
        ("random.shuffle(order)", False),
    ],
)
def test_each_epoch_draws_its_own_order(monkeypatch, line, is_told):
    assert told(monkeypatch, drawing.drawn_alike, BATCHES.format(line=line)) == [line] * is_told
    judging = BATCHES.format(line=line).replace("class Batches", "class ValidBatches")
    assert told(monkeypatch, drawing.drawn_alike, judging) == []


def test_a_method_that_is_told_the_epoch_asks_for_it(monkeypatch):
    text = "def batches(self, epoch):\n    g = torch.Generator().manual_seed({})\n"
    text += "    return torch.randperm(9, generator=g)\n"
    assert told(monkeypatch, drawing.drawn_alike, text.format("self.seed * 1000")) != []
    assert told(monkeypatch, drawing.drawn_alike, text.format("self.seed * 1000 + epoch")) == []


WINDOWS = """
class Windows:
    def __getitem__(self, i):
        past = {taken}
        {line}
        return past
"""


@pytest.mark.parametrize(
    ("taken", "line", "is_told"),
    [
        ("self.x[i : i + 9]", "past += 0.1 * torch.randn_like(past)", True),
        ("self.x[i : i + 9]", "past.add_(0.1 * torch.randn_like(past))", True),
        ("self.x[i : i + 9, 0]", "past[torch.rand(9) < 0.1] = 0.0", True),
        ("self.x[i : i + 9]", "past = past + 0.1 * torch.randn_like(past)", False),
        ("self.x[i : i + 9].clone()", "past += 0.1 * torch.randn_like(past)", False),
        ("self.x[i]", "past += random.random()", False),  # perhaps a number
        ("make(self.x[i : i + 9])", "past += 0.1 * torch.randn_like(past)", False),
        ("self.x[i : i + 9]", "past -= past.mean()", False),  # no noise
    ],
)
def test_noise_is_added_to_a_copy(monkeypatch, taken, line, is_told):
    assert told(monkeypatch, drawing.written_into, WINDOWS.format(taken=taken, line=line)) == [line] * is_told


CLIPS = """
def blank(spec, width):
    {copied}
    a = random.randint(0, 9)
    spec[a : a + width] = 0.0
    return spec

class Clips:
    def __getitem__(self, i):
        spec = {taken}
        spec = {then}
        return blank(spec, 3)
"""


@pytest.mark.parametrize(
    ("copied", "taken", "then", "is_told"),
    [
        ("pass", "self.specs[i]", "spec[:, 2:]", True),
        ("spec = spec.clone()", "self.specs[i]", "spec[:, 2:]", False),
        ("pass", "self.specs[i].clone()", "spec[:, 2:]", False),
        ("pass", "self.specs[i]", "torch.roll(spec, 2)", False),
        ("pass", "made(self.specs[i])", "spec[:, 2:]", False),
    ],
)
def test_a_picture_that_is_kept_is_not_blanked(monkeypatch, copied, taken, then, is_told):
    text = CLIPS.format(copied=copied, taken=taken, then=then)
    assert told(monkeypatch, drawing.written_into, text) == ["spec[a : a + width] = 0.0"] * is_told


LISTS = """
def drop(ids, p, rng):
    {line}
    return ids

class Loader:
    def __iter__(self):
        part = [self.items[i] for i in range(4)]
        yield [drop({given}, 0.1, self.rng) for x, _ in part]
"""


@pytest.mark.parametrize(
    ("line", "given", "is_told"),
    [
        ("ids[:] = [0 if rng.random() < p else i for i in ids]", "x", True),
        ("ids[:] = [0 if rng.random() < p else i for i in ids]", "list(x)", False),
        ("ids = [0 if rng.random() < p else i for i in ids]", "x", False),
    ],
)
def test_lists_that_are_kept_are_not_written_anew(monkeypatch, line, given, is_told):
    assert told(monkeypatch, drawing.written_into, LISTS.format(line=line, given=given)) == [line] * is_told


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("hit = all(a == b for a, b in zip(answer, label))", True),
        ("hit = len(answer) == len(label) and all(a == b for a, b in zip(answer, label))", False),
        ("hit = all(a == b for a, b in zip(answer, label, strict=True))", False),
        ("hit = answer == label", False),
        ("hit = all(a < b for a, b in zip(answer, label))", False),
        ("same = all(a == b for a, b in zip(first, second))", False),
    ],
)
def test_answers_are_compared_to_their_ends(monkeypatch, line, is_told):
    assert told(monkeypatch, measures.short_zips, line) == [line] * is_told


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("return loss.masked_fill(~keep, 0.0).mean()", True),
        ("return loss.masked_fill(~keep, 0.0).sum() / keep.sum()", False),
        ("return loss.masked_fill(~keep, 0.0).mean(-1)", False),
        ("return loss.masked_fill(~keep, 1.0).mean()", False),
    ],
)
def test_means_leave_out_what_is_masked(monkeypatch, line, is_told):
    text = f"def loss_of(logits, keep):\n    loss = -logits.log_softmax(-1)\n    {line}\n"
    assert told(monkeypatch, measures.means_over_masked, text) == [line] * is_told


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("x.mul_(share).add_(x[order], alpha=1 - share)", True),
        ("x.mul_(share).add_(other[order], alpha=1 - share)", False),
        ("x = share * x + (1 - share) * x[order]", False),
    ],
)
def test_rows_are_read_before_they_are_scaled(monkeypatch, line, is_told):
    text = f"def mix(x, share):\n    order = torch.randperm(len(x))\n    {line}\n    return x\n"
    assert told(monkeypatch, measures.mixtures, text) == [line] * is_told


CHOICE = """
accuracy = evaluate({measured}, valid)
if accuracy > best:
    best = accuracy
    torch.save({{"model": {kept}}}, path)
"""


@pytest.mark.parametrize(
    ("measured", "kept", "is_told"),
    [
        ("ema", "model.state_dict()", True),
        ("ema.module", "model.state_dict()", True),
        ("ema", "ema.state_dict()", False),
        ("model", "model.state_dict()", False),
        ("ema", "optimizer.state_dict()", False),
    ],
)
def test_what_was_measured_is_kept(monkeypatch, measured, kept, is_told):
    text = CHOICE.format(measured=measured, kept=kept)
    answers = f"answers, truth = predict({measured}, valid)\naccuracy = share(answers, truth)"
    assert bool(told(monkeypatch, averages.raw_by_choice, text)) is is_told
    text = text.replace(f"accuracy = evaluate({measured}, valid)", answers)
    assert bool(told(monkeypatch, averages.raw_by_choice, text)) is is_told


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("freq = torch.tensor([n for _, n in count.most_common()])", True),
        ("freq = torch.tensor([count[name] for name in classes])", False),
        ("freq = torch.tensor([index[name] for name, n in count.most_common()])", False),
        ("words = [word for word, _ in count.most_common(100)]", False),
    ],
)
def test_counts_are_in_the_order_of_the_classes(monkeypatch, line, is_told):
    text = f"def class_weights(count, classes):\n    {line}\n    return 1 / freq\n"
    assert told(monkeypatch, asking.counted_by_frequency, text) == [line] * is_told
