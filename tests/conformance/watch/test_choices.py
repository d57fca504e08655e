"""What a script chooses, computes, tears apart, loads and keeps: mistakes are told, what is right and near them not."""

import re

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

FAIL, PASS, NOT_SEEN = Verdict.FAIL, Verdict.PASS, Verdict.NOT_SEEN
LOOP = """
import copy, math, random
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
{before}
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
{made}
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
best, best_state, bad = {best}, None, 0
for step in range({steps}):
    {first}
    x, y = torch.randn(5, 4), torch.randint(3, (5,))
    logits = model(x)
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    val_loss, val_acc = loss.item(), (logits.argmax(1) == y).float().mean().item()
    {after}
"""


def results(steps=6, before="", made="", best="9e9", first="pass", loss="F.cross_entropy(logits, y)", after="pass"):
    text = LOOP.format(**locals())
    return results_of(run_of(text, "train.py", steps=200).run), text.splitlines()


def judged(claim, at="", **parts):
    """The verdict of a claim; with `at`, that its line has such a text."""
    found, _ = results(**parts)
    if at and found[claim].verdict is FAIL:
        assert re.search(at, found[claim].place), found[claim].place
    return found[claim].verdict


KEPT = "best_state = copy.deepcopy(model.state_dict())"
CLASS = """
class Keeper:
    def __init__(self):
        self.best, self.state = 9e9, None
    def look(self, value, model):
        if value < self.best:
            {better}
            self.state = copy.deepcopy(model.state_dict())
keeper = Keeper()
"""


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (f"if val_loss < best:\n        {KEPT}", FAIL),
        (f"if val_loss + 1e-4 < best:\n        {KEPT}", FAIL),
        (f"if best > val_loss:\n        {KEPT}", FAIL),
        (f"if best_state is None or val_loss < best:\n        {KEPT}", FAIL),
        (f"if val_loss < best:\n        best = val_loss\n        {KEPT}", PASS),
        (f"if val_loss < best:\n        best, bad = val_loss, 0\n        {KEPT}", PASS),
        (f"if val_loss < best:\n        {KEPT}\n    best = min(best, val_loss)", PASS),
        (f"if val_loss < best:\n        {KEPT}\n    else:\n        best = best + 0.0", PASS),
        ("if val_loss < best:\n        print('better')", NOT_SEEN),
        ("if val_loss > best:\n        model.load_state_dict(begun)", NOT_SEEN),
    ],
)
def test_the_best_measure_is_renewed(after, expected):
    made = "begun = copy.deepcopy(model.state_dict())"
    assert judged("run-best-is-renewed", at=r"if ", made=made, after=after) is expected


@pytest.mark.parametrize(
    ("measure", "to", "expected"),
    [
        ("losses['val']", "min(losses.values())", FAIL),
        ("losses['val']", "losses['train']", FAIL),
        ("val_loss", "train_loss", FAIL),
        ("losses['val']", "losses['val']", PASS),
        ("losses['val']", "min(best, losses['val'])", PASS),
        ("val_loss", "float(val_loss)", PASS),
        ("val_loss", "measured", PASS),
    ],
)
def test_the_best_measure_is_renewed_by_what_was_compared(measure, to, expected):
    made = "train_loss = measured = 0.0\nlosses = {'train': 0.0, 'val': 0.0}"
    after = f"losses['val'] = measured = val_loss\n    if {measure} < best:\n        best = {to}\n        {KEPT}"
    found, lines = results(made=made, after=after)
    assert found["run-best-is-renewed"].verdict is expected
    if expected is FAIL:
        number = int(re.search(r":(\d+):", found["run-best-is-renewed"].place).group(1))
        assert lines[number - 1].strip() == f"best = {to}"


@pytest.mark.parametrize(("better", "expected"), [("pass", FAIL), ("self.best = value", PASS)])
def test_the_best_measure_of_an_object_is_renewed(better, expected):
    parts = {"before": CLASS.format(better=better), "after": "keeper.look(val_loss, model)"}
    assert judged("run-best-is-renewed", at="if value < self.best", **parts) is expected


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (f"if val_acc < best:\n        best = val_acc\n        {KEPT}", FAIL),
        (f"if val_loss > best:\n        best = val_loss\n        {KEPT}", FAIL),
        (f"monitor = val_acc\n    if monitor < best:\n        best = monitor\n        {KEPT}", FAIL),
        (f"m = {{'f1': val_acc}}\n    if m['f1'] <= best:\n        best = m['f1']\n        {KEPT}", FAIL),
        (f"if val_acc > best:\n        bad += 1\n    else:\n        best = val_acc\n        {KEPT}", FAIL),
        (f"if val_acc > best:\n        best = val_acc\n        {KEPT}", PASS),
        (f"if best < val_acc:\n        best = val_acc\n        {KEPT}", PASS),
        (f"if val_loss > best:\n        bad += 1\n    else:\n        best = val_loss\n        {KEPT}", PASS),
        (f"if val_acc < best:\n        bad += 1\n    else:\n        best = val_acc\n        {KEPT}", PASS),
        (f"neg_loss = -val_loss\n    if neg_loss > best:\n        best = neg_loss\n        {KEPT}", PASS),
        (f"score = val_acc - val_loss\n    if score < best:\n        best = score\n        {KEPT}", PASS),
    ],
)
def test_the_best_measure_looks_the_right_way(after, expected):
    assert judged("run-best-looks-the-right-way", after=after) is expected


TEXTS = "texts, labels = [], []\nfor n in range(9):\n    texts.append(n)\n    labels.append(n % 3)\n"


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (TEXTS + "random.shuffle(texts)\nrows = list(zip(texts, labels))", FAIL),
        (TEXTS + "rng = random.Random(0)\nrng.shuffle(texts)\nrows = [r for r in zip(texts, labels)]", FAIL),
        (TEXTS + "rows = list(zip(texts, labels))\nrandom.shuffle(rows)", NOT_SEEN),
        (TEXTS + "random.shuffle(texts)\nlabels = [n % 3 for n in texts]\nrows = list(zip(texts, labels))", NOT_SEEN),
        (
            TEXTS + "order = list(range(9))\nrandom.shuffle(order)\nrows = [(texts[i], labels[i]) for i in order]",
            NOT_SEEN,
        ),
        (TEXTS + "rows = list(zip(texts, labels))\nrandom.shuffle(texts)", NOT_SEEN),
        (TEXTS + "names = list(texts)\nrandom.shuffle(names)\nrows = list(zip(texts, names))", NOT_SEEN),
    ],
)
def test_pairs_stay_together(before, expected):
    assert judged("run-pairs-stay-together", at="shuffle", before=before) is expected


GET_LR = "def get_lr(it):\n    return 0.1 * min(1.0, (it + 1) / 4)\n"
PUT_LR = GET_LR + "def put(o, v):\n    o.param_groups[0]['lr'] = v\n"
READ_LR = "def get_lr(optimizer):\n    return optimizer.param_groups[0]['lr']\n"


@pytest.mark.parametrize(
    ("before", "first", "after", "expected"),
    [
        (GET_LR, "lr = get_lr(step)", "print(step, lr)", FAIL),
        (GET_LR, "lr = get_lr(step)", "print(f'{step} {lr:.2e}')", FAIL),
        (GET_LR, "lr = get_lr(step)\n    for g in optimizer.param_groups: g['lr'] = lr", "print(lr)", NOT_SEEN),
        (PUT_LR, "lr = get_lr(step)\n    put(optimizer, lr)", "print(lr)", NOT_SEEN),
        (READ_LR, "lr = get_lr(optimizer)", "print(lr)", NOT_SEEN),
    ],
)  # fmt: skip
def test_a_rate_that_is_computed_is_used(before, first, after, expected):
    parts = {"before": before, "first": first, "after": after}
    assert judged("run-rate-that-is-computed-is-used", at=r"lr = get_lr", **parts) is expected


COSINE = "def rate(step):\n    share = step / 30\n    return 0.5 * (1.0 + math.cos({0}))\n"
SCHEDULE = "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)"


@pytest.mark.parametrize(
    ("angle", "expected"),
    [("share", FAIL), ("math.pi * share", NOT_SEEN), ("torch.pi * share", NOT_SEEN), ("3.1416 * share", NOT_SEEN)],
)
def test_a_cosine_turns_at_pi(angle, expected):
    parts = {"before": COSINE.format(angle), "after": "rate(step)"}
    assert judged("run-cosine-turns-at-pi", at="cos", **parts) is expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("model.load_state_dict({'encoder.' + k: v for k, v in model.state_dict().items()}, strict=False)", FAIL),
        ("model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()})", PASS),
        ("model.load_state_dict({'0.weight': torch.zeros(8, 4)}, strict=False)", PASS),
        ("pass", NOT_SEEN),
    ],
)
def test_loading_finds_its_weights(made, expected):
    assert judged("run-loading-finds-its-weights", at="load_state_dict", made=made) is expected


TEACHER = (
    "teacher = nn.Sequential(nn.Linear(4, 3)).requires_grad_(False)\n"
    "mean = copy.deepcopy(model).requires_grad_(False)\n"
)
FOLLOW = "for a, b in zip(mean.parameters(), model.parameters()): a.mul_(0.9).add_(b.data, alpha=0.1)\n    "


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("torch.save(teacher.state_dict(), os.devnull)", FAIL),
        ("torch.save({'model': teacher.state_dict(), 'step': step}, os.devnull)", FAIL),
        ("torch.save(model.state_dict(), os.devnull)", PASS),
        ("torch.save({'a': teacher.state_dict(), 'b': model.state_dict()}, os.devnull)", PASS),
        (FOLLOW + "torch.save(mean.state_dict(), os.devnull)", PASS),
    ],
)
def test_a_checkpoint_is_of_what_learns(after, expected):
    claim = "run-checkpoint-is-of-what-learns"
    first = "with torch.no_grad(): teacher(torch.randn(2, 4)), mean(torch.randn(2, 4))"
    assert judged(claim, at="save", before="import os", made=TEACHER, first=first, after=after) is expected


KL = "F.kl_div(F.log_softmax({0}, -1), F.softmax(x[:, :3], -1), reduction='batchmean')"


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (f"F.cross_entropy(logits, y) + {KL.format('logits.detach()')}", FAIL),
        (f"F.cross_entropy(logits, y) + {KL.format('logits')}", PASS),
        (f"F.cross_entropy(logits, y)\n    shown = {KL.format('logits.detach()')}", NOT_SEEN),
        (f"F.cross_entropy(logits, y)\n    soft = {KL.format('logits.data')}\n    loss = loss + 0.5 * soft", FAIL),
        (
            f"F.cross_entropy(logits, y)\n    soft = {KL.format('logits.detach()')}\n"
            "    if steps > 1:\n        total = loss + soft\n    else:\n        total = loss\n    loss = total",
            FAIL,
        ),
    ],
)
def test_losses_of_a_sum_have_gradients(loss, expected):
    parts = {"before": "steps = 6", "loss": loss}
    assert judged("run-losses-that-are-summed-have-gradients", at="kl_div", **parts) is expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("for p in model[0].parameters(): p.require_grad = False", FAIL),
        ("for p in model[0].parameters(): p.requires_grads = False", FAIL),
        ("for p in model[0].parameters(): p.requires_grad_ = False", FAIL),
        ("for p in model[0].parameters(): p.requires_grad = False", NOT_SEEN),
        ("for p in model[0].parameters(): p.no_decay = True", NOT_SEEN),
    ],
)
def test_a_flag_is_spelt_as_pytorch_spells_it(made, expected):
    assert judged("run-frozen-by-its-parameters", at="requir", made=made) is expected


def test_a_part_of_the_loss_does_not_make_its_mean_one_over_all_labels():
    """A mean that leaves labels out and weighs 0.3 in the sum: 5 / (0.3 * 8.33) is 2, and nothing is wrong."""
    loss = "0.3 * F.cross_entropy(logits.repeat(2, 1), torch.cat([y, y.new_full((5,), -100)]), ignore_index=-100)"
    more = "0.25 * F.cross_entropy(logits.repeat(2, 1), torch.cat([y, y.new_full((5,), -100)]), ignore_index=-100)"
    for one in (loss, more, more.replace("0.25", "0.5")):
        found, _ = results(loss=one)
        assert found["run-mean-is-over-the-labels-that-count"].verdict is PASS


MEASURE = """
@torch.no_grad()
def measure(net):
    return F.cross_entropy(net(torch.randn(9, 4)), torch.zeros(9, dtype=torch.long)).item()
"""
KEEPS = "score = measure({0})\n    if score < best:\n        best = score\n        " + KEPT


@pytest.mark.parametrize(("net", "expected"), [("teacher", FAIL), ("model", PASS)])
def test_the_best_is_measured_on_what_learns(net, expected):
    made = "teacher = nn.Linear(4, 3).requires_grad_(False)"
    parts = {"before": MEASURE, "made": made, "after": KEEPS.format(net)}
    assert judged("run-best-is-measured-on-what-learns", at="score = measure", **parts) is expected


@pytest.mark.parametrize(
    ("before", "first", "expected"),
    [
        ("", "draw = torch.Generator().manual_seed(3)", FAIL),
        ("", "draw = torch.Generator().manual_seed(3 + step)", NOT_SEEN),
        ("draw = torch.Generator().manual_seed(3)", "pass", NOT_SEEN),
        ("", "draw = torch.Generator().manual_seed(3); draw = None", PASS),
    ],
)
def test_a_generator_is_seeded_before_the_loop(before, first, expected):
    loss = "F.cross_entropy(model(torch.randn(5, 4, generator=draw)), y)"
    parts = {"before": before, "first": first.replace("; ", "\n    "), "loss": loss}
    text = LOOP.format(made="", best="9e9", steps=6, after="pass", **parts)
    text = text.replace("    logits = model(x)\n", "").replace("(logits.argmax(1) == y)", "(y == y)")
    found = results_of(run_of(text, "train.py", steps=200).run)["run-batches-are-drawn-anew"]
    assert found.verdict is expected
    assert expected is not FAIL or "manual_seed" in found.place


WEIGHED = """
@torch.no_grad()
def evaluate(net):
    total, count = 0.0, 0
    for _ in range(3):
        labels = torch.tensor([0, 1, 2, -100, -100])
        n = {0}
        loss = F.cross_entropy(net(torch.randn(5, 4)), labels, ignore_index=-100)
        total += loss.item() * n
        count += {1}
    return total / count
"""


@pytest.mark.parametrize(
    ("weight", "count", "expected"),
    [
        ("(labels != -100).sum().item()", "n", PASS),
        ("(labels != -100).sum().item()", "labels.numel()", FAIL),
        ("labels.numel()", "(labels != -100).sum().item()", FAIL),
        ("labels.size(0)", "labels.size(0)", PASS),
        ("labels.ne(-100).sum().item()", "(labels != -100).sum().item()", PASS),
    ],
)
def test_means_are_divided_by_what_they_are_weighed_by(weight, count, expected):
    parts = {"before": WEIGHED.format(weight, count), "after": "evaluate(model)"}
    assert judged("run-mean-is-over-what-is-summed", at=r"count \+=", **parts) is expected


def test_what_means_are_divided_by_is_told_before_an_evaluation_came_by():
    parts = {"before": WEIGHED.format("(labels != -100).sum().item()", "labels.numel()")}
    assert judged("run-mean-is-over-what-is-summed", at=r"count \+=", **parts) is FAIL


BATCHES = """
def evaluate(model, loader):
    total = 0.0
    for i, x in enumerate(loader):
        loss = F.cross_entropy(net(x), labels)
        total += {0}
    return total / {1}
"""


@pytest.mark.parametrize(
    ("added", "number", "is_wrong"),
    [
        ("loss.item() * len(x)", "len(loader)", True),
        ("x.size(0) * loss.item()", "len(loader)", True),
        ("loss.item() * len(x)", "len(loader.dataset)", False),
        ("loss.item() * accumulated", "len(loader)", False),
        ("loss.item()", "len(loader)", False),
    ],
)
def test_means_that_are_weighed_by_rows_are_not_divided_by_batches(added, number, is_wrong):
    found = judged("run-mean-is-over-what-is-summed", at="return total", before=BATCHES.format(added, number))
    assert (found is FAIL) is is_wrong


def test_what_makes_batches_of_rows_gives_fewer_batches_than_rows():
    before = BATCHES.format("loss.item() * len(x)", "len(loader)").replace("enumerate(loader)", "batches(loader, 8)")
    assert judged("run-mean-is-over-what-is-summed", at="return total", before=before) is not FAIL


RESUME = """
import os
from pathlib import Path
FILE = Path(__file__).with_name("last.pt")
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
old = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
plan = torch.optim.lr_scheduler.ExponentialLR(old, 0.9)
torch.save({"model": net.state_dict(), "optimizer": old.state_dict(), "scheduler": plan.state_dict(),
            "ema": {"shadow": {"w": torch.zeros(3)}}, "config": {"lr": 0.1}}, str(FILE) + ".first")
Path(str(FILE) + ".first").write_bytes(Path(str(FILE) + ".first").read_bytes())  # as if another run had written it
os.replace(str(FILE) + ".first", FILE)
"""
PLAN = "optimizer.load_state_dict(ck['optimizer'])\n    schedule.load_state_dict(ck['scheduler'])\n    w = ck['ema']"


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (PLAN, PASS),
        (PLAN.replace("optimizer.load_state_dict(ck['optimizer'])\n    ", ""), FAIL),
        (PLAN.replace("schedule.load_state_dict(ck['scheduler'])\n    ", ""), FAIL),
        (PLAN.replace("\n    w = ck['ema']", ""), FAIL),
        ("pass", NOT_SEEN),  # it takes the weights, and begins anew
    ],
)
def test_who_goes_on_from_an_earlier_run_restores_all(read, expected):
    first = (
        "if step == 0:\n        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)\n"
        "        ck = torch.load(FILE)\n        model.load_state_dict(ck['model'])\n        "
        + read.replace("\n    ", "\n        ")
    )
    assert judged("run-resuming-restores-all", at="load", before=RESUME, first=first) is expected


FROZEN = "teacher = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)).requires_grad_(False).eval()"


@pytest.mark.parametrize(("mode", "expected"), [("teacher.train()", FAIL), ("pass", PASS)])
def test_a_teacher_that_drops_later_is_told(mode, expected):
    parts = {"made": FROZEN, "first": f"teacher(torch.randn(2, 4))\n    {mode}"}
    assert judged("run-teachers-rest", **parts) is expected


SIDES = """
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
student, teacher = nn.Embedding(25, 7), nn.Embedding(25, 7).requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for step in range(3):
    ids = 1 + torch.randperm(24).view(4, 6)
    ids[:2, 4:] = 0
    real = ids[:, 1:] != 0
    given, wanted = student(ids), teacher(ids)
    loss = F.kl_div(F.log_softmax(given{0} / 2, -1), F.softmax(wanted{1}, -1), reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("given", "wanted", "places", "temperature"),
    [
        ("[:, :-1][real]", "[:, :-1][real] / 2", PASS, PASS),
        ("[:, :-1][real]", "[:, 1:][real] / 2", FAIL, PASS),
        ("[:, :-1][real]", "[:, :-1][real]", PASS, FAIL),
        ("[:, :-1]", "[:, 1:] / 2", FAIL, PASS),
        ("", " / 2", PASS, PASS),
        ("[:, 1:]", "[:, 1:] / 2", PASS, PASS),
    ],
)
def test_both_sides_of_a_divergence_are_of_the_same_places(given, wanted, places, temperature):
    found = results_of(run_of(SIDES.format(given, wanted), "train.py", steps=200).run)
    assert found["run-divergence-compares-like-places"].verdict is places
    assert found["run-temperature-is-on-both-sides"].verdict is temperature


LEARNS = """
VAL = torch.randn(9, 4), torch.zeros(9, dtype=torch.long)
def measured(net):
    with torch.no_grad():
        return F.cross_entropy(net(VAL[0]), VAL[1]).item()
"""
EPOCH = """for _ in range(2):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    other_val_loss = measured(model)
    """


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (f"if loss.item() < best:\n        best = loss.item()\n        {KEPT}", FAIL),
        (f"if loss < best:\n        best = loss\n        {KEPT}", FAIL),
        (f"if other_val_loss < best:\n        best = other_val_loss\n        {KEPT}", NOT_SEEN),
        (f"loss = torch.tensor(other_val_loss)\n    if loss < best:\n        best = loss\n        {KEPT}", NOT_SEEN),
        (f"if loss < best:\n        best = loss\n        {KEPT}\n    if other_val_loss < 0:\n        break", NOT_SEEN),
        ("if loss < best:\n        best = loss", NOT_SEEN),
        (f"train_loss = loss.item()\n    if train_loss < best:\n        best = train_loss\n        {KEPT}", FAIL),
        (f"train_loss = loss.item()\n    if not best or train_loss < best:\n        {KEPT}", FAIL),
        (f"train_loss = loss.item()\n    if other_val_loss < best:\n        {KEPT}", NOT_SEEN),
    ],
)
def test_the_best_is_chosen_by_what_judges(chosen, expected):
    text = LOOP.format(before=LEARNS, made="", best="9e9", steps=3, first="pass", loss="LOSS", after="pass")
    cut = text.index("    logits = model(x)")
    source = text[:cut] + "    " + EPOCH + chosen + "\n"
    found = results_of(run_of(source, "train.py", steps=200).run)["run-best-is-of-what-judges"]
    assert found.verdict is expected


STATES = "states.append({0})\n    if step == 3: mean(states)"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("model.state_dict()", FAIL),
        ("copy.deepcopy(model.state_dict())", NOT_SEEN),
        ("{k: v.clone() for k, v in model.state_dict().items()}", NOT_SEEN),
        ("nn.Linear(2, 2).state_dict()", NOT_SEEN),
    ],
)
def test_states_in_a_list_are_copies(state, expected):
    before = "states = []\ndef mean(states):\n    return {k: sum(s[k] for s in states) for k in states[0]}\n"
    parts = {"before": before, "after": STATES.format(state)}
    text = LOOP.format(made="", best="9e9", steps=6, first="pass", loss="F.cross_entropy(logits, y)", **parts)
    inside = "def main():\n" + "".join(f"    {line}\n" for line in text.splitlines()) + "main()\n"
    found = results_of(run_of(inside, "train.py", steps=200).run)["run-restored-state-is-a-copy"]
    assert found.verdict is expected


SUMMED = """
@torch.no_grad()
def evaluate(net):
    total, count = 0.0, 0
    for _ in range(3):
        labels = torch.tensor([0, 1, 2, -100, -100])
        total += {0}
        count += {1}
    {2}
    return total / count
"""
CE = "F.cross_entropy(net(torch.randn(5, 4)), labels{}).item()"


@pytest.mark.parametrize(
    ("loss", "count", "rest", "expected"),
    [
        (CE.format(", reduction='sum'"), "labels.numel()", "pass", FAIL),
        (CE.format(", reduction='sum'"), "(labels != -100).sum().item()", "pass", PASS),
        (CE.format(", reduction='sum'"), "len(labels)", "pass", PASS),  # a sum for each text
        (CE.format(", reduction='sum'"), "labels.numel()", "count -= 6", PASS),
        (CE.format(""), "len(labels)", "pass", FAIL),
        (CE.format("") + " * len(labels)", "len(labels)", "pass", PASS),
        (CE.format(""), "1", "pass", PASS),
    ],
)
def test_what_is_added_up_at_once_is_divided_by_its_number(loss, count, rest, expected):
    parts = {"before": SUMMED.format(loss, count, rest), "after": "evaluate(model)"}
    assert judged("run-mean-is-over-what-is-summed", at=r"total \+=", **parts) is expected


TRAINED_BEFORE = """
first = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
plain = torch.optim.SGD(first.parameters(), lr=0.1)
for step in range(3):
    plain.zero_grad()
    first(torch.randn(5, 4)).square().mean().backward()
    plain.step()
"""
FOLLOWS = "[s.lerp_(p.detach(), 0.5) for s, p in zip(slow.parameters(), model.parameters())]"


@pytest.mark.parametrize(
    ("slow", "update", "expected"),
    [
        ("copy.deepcopy(model).eval().requires_grad_(False)", FOLLOWS, NOT_SEEN),
        ("nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)).requires_grad_(False)", "pass", FAIL),
    ],
)
def test_an_average_of_a_model_that_is_trained_second_may_be_measured(slow, update, expected):
    parts = {"before": MEASURE + TRAINED_BEFORE, "made": f"slow = {slow}"}
    after = f"{update}\n    {KEEPS.format('slow')}"
    assert judged("run-best-is-measured-on-what-learns", **parts, after=after) is expected
