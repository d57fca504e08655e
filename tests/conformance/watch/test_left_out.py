"""What learns, comes down, is saved, or is asked for beside what a script means is told; what is near it and right is
not."""

import re

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.lines import Source  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

FAIL = Verdict.FAIL
HEAD = """
import copy, io, math, torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class LoraLinear(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down, self.up = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.zeros(4, 2))
    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))
    def forward(self, x, y):
        return F.cross_entropy(self.scale.exp() * x, y)
body, head, scaled = nn.Linear(4, 4), nn.Linear(4, 3), Scaled()
x, y = torch.randn(48, 4), torch.randint(3, (48,))
def fit(model, optimizer, schedule=None, loss=scaled, x=x, y=y, count=24):
    for step in range(count):
        at = slice(8 * (step % 6), 8 * (step % 6) + 8)
        optimizer.zero_grad()
        loss(model(x[at]), y[at]).backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
def sgd(*parts, lr=0.1):
    return torch.optim.SGD([p for part in parts for p in part.parameters() if p.requires_grad], lr=lr)
model = nn.Sequential(body, head)
"""


def failures(text, steps=60):
    """What a script says wrong, claim by claim, with the line that is named."""
    source = HEAD + text
    results = results_of(run_of(source, "train.py", steps=steps).run)
    failed = {claim: result for claim, result in results.items() if result.verdict is FAIL}
    lines = {claim: re.search(r":(\d+):", one.place) for claim, one in failed.items()}
    return {claim: source.splitlines()[int(at.group(1)) - 1].strip() if at else "" for claim, at in lines.items()}


LEFT_OUT = "run-nothing-that-is-learned-through-is-left-out"
TOWERS = """
class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower, self.scale = model, nn.Parameter(torch.tensor(1.0))
    def loss(self, x, y):
        return F.cross_entropy(self.scale.exp() * x, y)
towers = Towers()
towers.train()
"""
"""A module that is never called itself, with a parameter of its own."""
DOWN, RESTS, WHOLE = "run-schedule-comes-down", "run-adapted-maps-rest", "run-adapters-are-saved-whole"


@pytest.mark.parametrize(
    ("text", "claim", "line"),
    [
        ("fit(model, sgd(model))", LEFT_OUT, None),
        (
            "big = nn.Sequential(nn.Linear(4, 30), nn.Linear(30, 4), head)\nbig.load_state_dict(big.state_dict())\n"
            "big[0].requires_grad_(False)\nfit(big, sgd(head, scaled))",
            LEFT_OUT,
            None,
        ),
        ("optimizer = sgd(body, head, scaled)\nmodel[1] = nn.Linear(4, 3)\nfit(model, optimizer)", LEFT_OUT, None),
        (TOWERS + "fit(towers.tower, sgd(towers.tower), loss=towers.loss)", LEFT_OUT, None),
        ("head.load_state_dict(nn.Linear(4, 3).state_dict())\nfit(model, sgd(body, scaled))", LEFT_OUT, None),
        (
            "head.load_state_dict(strict=False, state_dict=nn.Linear(4, 3).state_dict())\n"
            "fit(model, sgd(body, scaled))",
            LEFT_OUT,
            None,
        ),
        (
            "optimizer = sgd(model, scaled)\n"
            "fit(model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=96))",
            DOWN,
            None,
        ),
        (
            "body = model[0] = LoraLinear(body)\nfit(model, sgd(model, scaled))\n"
            "torch.save({n: p for n, p in model.state_dict().items() if 'down' in n}, io.BytesIO())",
            RESTS,
            None,
        ),
        (
            "model.requires_grad_(False)\nmodel[0] = LoraLinear(body)\nfit(model, sgd(model, scaled))\n"
            "torch.save({n: p for n, p in model.state_dict().items() if 'down' in n}, io.BytesIO())",
            WHOLE,
            "torch.save({n: p for n, p in model.state_dict().items() if 'down' in n}, io.BytesIO())",
        ),
    ],
)
def test_what_is_left_out_is_told(text, claim, line):
    found = failures(text)
    assert claim in found
    assert line is None or found[claim] == line


@pytest.mark.parametrize(
    "text",
    [
        "scaled.requires_grad_(False)\nfit(model, sgd(model))",
        TOWERS + "fit(towers.tower, sgd(towers), loss=towers.loss)",
        "fit(model, sgd(model, scaled))",
        "big = nn.Sequential(nn.Linear(4, 30), nn.Linear(30, 4), head)\n"
        "fit(big, sgd(head, scaled))",  # a head on a part that is left as it is
        "optimizer = sgd(model, scaled)\n"
        "fit(model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=25))",
        "model.requires_grad_(False)\nmodel[0] = LoraLinear(body)\nfit(model, sgd(model, scaled))\n"
        "torch.save({n: p for n, p in model.state_dict().items() if 'base' not in n}, io.BytesIO())",
        "head.load_state_dict(copy.deepcopy(nn.Linear(4, 3).state_dict()))\n"
        "fit(model, sgd(body, scaled))",  # it may have come from a file
        "fit(model, sgd(model, scaled))\n"
        "torch.save(body.state_dict(), io.BytesIO())",  # the head of a pre-training is left
    ],
)
def test_what_rests_or_comes_down_as_it_is_meant_is_not_told(text):
    assert not failures(text).keys() & {LEFT_OUT, DOWN, RESTS, WHOLE}


TEACHER = """
teacher = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
fit(teacher, sgd(teacher, scaled))
{mode}
def distilled(logits, wanted):
    return F.kl_div(logits.log_softmax(-1), wanted.softmax(-1), reduction="batchmean")
optimizer = sgd(model)
for step in range(6):
    with torch.no_grad():
        wanted = teacher(x[:8])
        F.cross_entropy(model(x[8:16]), y[8:16])
    optimizer.zero_grad()
    distilled(model(x[:8]), wanted).backward()
    optimizer.step()
"""


def test_a_teacher_that_learns_no_more_rests():
    assert failures(TEACHER.format(mode="pass")).get("run-teachers-rest") == "pass"  # behind its own training
    told = failures(TEACHER.format(mode="teacher.requires_grad_(False)"))
    assert told["run-teachers-rest"] == "teacher.requires_grad_(False)"
    assert "run-evaluation-is-in-evaluation-mode" not in told  # its answers are no evaluation
    assert "run-teachers-rest" not in failures(TEACHER.format(mode="teacher.eval()"))


def test_classes_one_after_the_other_are_told():
    ordered = "fit(model, sgd(model, scaled), y=torch.arange(48) // 16)"
    assert "run-classes-come-mixed" in failures(ordered)
    assert "run-classes-come-mixed" not in failures("# one task after the other\ntasks = 3\n" + ordered)
    assert "run-classes-come-mixed" not in failures("fit(model, sgd(model, scaled))")


def test_a_number_that_stands_in_its_own_window_is_told():
    held = "fit(nn.Linear(4, 1), sgd(model), loss=lambda p, y: F.mse_loss(p[:, 0], y), y=x[:, {}], count=3)"
    held = "line = nn.Linear(4, 1)\n" + held.replace("nn.Linear(4, 1), sgd(model)", "line, sgd(line)")
    assert "run-input-does-not-hold-its-answer" in failures(held.format("3"))
    assert "run-input-does-not-hold-its-answer" not in failures(held.format("3] + x[:, 0"))


@pytest.mark.parametrize("loss", ["F.mse_loss(p, y)", "(p - y).abs().mean()"])
@pytest.mark.parametrize(("future", "is_told"), [("x[:, 3:4], 2 * x", True), ("2 * x", False), ("x", False)])
def test_a_window_of_several_days_is_told_where_it_holds_the_first(loss, future, is_told):
    asked = "line = nn.Linear(4, 4)\n"
    asked += f"fit(line, sgd(line), loss=lambda p, y: {loss}, y=torch.cat([{future}], 1)[:, :4], count=3)"
    assert ("run-input-does-not-hold-its-answer" in failures(asked)) is is_told


SAMPLED = """
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler
y = torch.tensor([0] * 30 + [1] * 12 + [2] * 6)[torch.randperm(48)]
counts = torch.bincount(y).float()
weights = {}
loader = DataLoader(TensorDataset(x, y), 8, sampler=WeightedRandomSampler(weights, 48))
optimizer = sgd(model)
for rows, labels in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(rows), labels).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("weights", "is_told"), [("counts[y]", True), ("1 / counts[y.flip(0)]", True), ("1 / counts[y]", False)]
)
def test_samples_are_drawn_by_their_own_weights(weights, is_told):
    found = failures(SAMPLED.format(weights))
    assert ("run-sampler-favours-the-rare" in found) is is_told
    assert not is_told or found["run-sampler-favours-the-rare"].startswith("weights =")


def test_samples_in_a_list_have_classes_too():
    listed = SAMPLED.replace("TensorDataset(x, y)", "list(zip(x, y.tolist()))")
    assert "run-sampler-favours-the-rare" in failures(listed.format("counts[y]"))


PARTS = "def f(series, context):\n    n = int(0.8 * len(series))\n    {}\n"


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("train, val = series[:n], series[n // 2:]", True),
        ("train_idx, val_idx = perm[:200], perm[180:]", True),
        ("train, val = Data(series[:n]), Data(series[int(0.7 * len(series)):])", False),  # no builder that is known
        ("train, val = Subset(series, range(200)), Subset(series, range(150, 240))", True),
        ("train, val = series[:n], series[n - context:]", False),  # what the first forecast reads
        ("train, val = series[:n], series[int(0.9 * len(series)):]", False),
        ("train, val = series[:-100], series[-100:]", False),
        ("train, val = series[:context], series[n:]", False),
    ],
)
def test_parts_are_compared_by_their_bounds(text, is_told, monkeypatch):
    import ast

    from conformance.watch import splits

    monkeypatch.setattr(splits, "sources", lambda _: [Source("train.py", ast.parse(PARTS.format(text)))])
    assert bool(splits.overlaps(None)) is is_told


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("train, val = cut(data)\nprint(len(val))\nscore = recall(model, train)", True),
        ("train, val = cut(data)\nwith torch.no_grad():\n    for row in train:\n        model(row)", True),
        ("def go(model, train, val):\n    print(val)\ntrain, val, test = cut(data)\ngo(model, train, test)", True),
        ("train, val = cut(data)\nscore = recall(model, val)\nother = recall(model, train)", False),
        ("train, val = cut(data)\ntrain_score = recall(model, train)", False),
        ("train, val = cut(data)\nfor row in train:\n    step(model, row)", False),
        ("train, val = cut(data)\nfit(model, train, val=val)\nscore = recall(model, train)", False),
    ],
)
def test_data_that_nothing_reads_are_told_where_others_are_measured(text, is_told):
    import ast

    from conformance.watch.unread import unread_parts

    assert bool([*unread_parts(Source("train.py", ast.parse(text)))]) is is_told


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ('torch.save({"ema": model.state_dict()}, f)', True),
        ('torch.save(model.state_dict(), "ema.pt")', True),
        ('torch.save({"ema": ema.state_dict(), "model": model.state_dict()}, f)', False),
        ('ema.copy_to(model)\ntorch.save(model.state_dict(), "ema.pt")', False),
        ('model.load_state_dict(ema.state_dict())\ntorch.save(model.state_dict(), "ema.pt")', False),
    ],
)
def test_the_average_gets_its_name(text, is_told, monkeypatch):
    import ast

    from conformance.watch import averages

    source = Source("train.py", ast.parse("ema = Average(model)\n" + text))
    monkeypatch.setattr(averages, "sources", lambda _: [source])
    assert bool(averages.raw_under_its_name(None)) is is_told


CUT = """
pieces = torch.randn(60).unfold(0, 5, 1)
class Windows:
    def __init__(self):
        self.inputs, self.wanted = pieces[:, 1:].clone(), pieces[:, 4].clone()
windows, line = Windows(), nn.Linear(4, 1)
optimizer = sgd(line)
for step in range(3):
    optimizer.zero_grad()
    F.mse_loss(line(windows.inputs)[:, 0], windows.wanted).backward()
    optimizer.step()
"""
MERGED = """
lora = LoraLinear(body)
nn.init.zeros_(lora.down)
model[0] = lora
fit(model, sgd(lora))
model[0] = nn.Linear(4, 4)
model(x)
"""
TOTAL = """
class Plan:
    def __init__(self, part):
        self.total = 4
        self.optimizer = sgd(part)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.factor)
    def factor(self, step):
        return max(0.0, 1 - step / self.total)
first = Plan(model)
fit(model, first.optimizer, first.schedule, count=3)
second = Plan(model)
second.schedule.load_state_dict({**first.schedule.state_dict(), "last_epoch": 4})
for group in second.optimizer.param_groups:
    group["lr"] = 0.0
fit(model, second.optimizer, second.schedule, count=8)
"""


@pytest.mark.parametrize(
    ("text", "claim", "line"),
    [
        (
            CUT,
            "run-input-does-not-hold-its-answer",
            "self.inputs, self.wanted = pieces[:, 1:].clone(), pieces[:, 4].clone()",
        ),
        (TOTAL, "run-rate-is-not-zero", "self.total = 4"),
        (
            MERGED,
            "run-gradients-are-not-zero",
            "self.down, self.up = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.zeros(4, 2))",
        ),
    ],
)
def test_the_line_is_named_that_is_to_be_mended(text, claim, line):
    assert failures(text).get(claim) == line


BOTH_WAYS = """
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 4, batch_first=True, bidirectional=True), nn.Linear(8, 3)
    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])
model = Reader()
fit(model, sgd(model, scaled), x=torch.randn(48, 5, 4))
"""


def test_a_direction_that_is_read_where_it_begins_has_no_gradient_for_its_state():
    assert "run-gradients-are-not-zero" not in failures(BOTH_WAYS)


TAUGHT = """
def labels(logits, x, y):
    return F.cross_entropy(logits, y)
def taught(logits, x, y):
    return F.kl_div(logits.log_softmax(-1), teacher(x).softmax(-1), reduction="batchmean")
def learn(model, loss):
    optimizer = sgd(model)
    model.train()
    for _ in range(4):
        optimizer.zero_grad()
        loss(model(x), x, y).backward()
        optimizer.step()
teacher = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 3))
learn(teacher, labels)
teacher.eval(){frozen}
learn(nn.Linear(4, 3), taught)
"""


def test_a_frozen_teacher_that_learned_before_is_not_in_training():
    assert "run-training-is-in-training-mode" not in failures(TAUGHT.format(frozen=".requires_grad_(False)"))


HITS = """
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size={rows})
fit(model, sgd(model, scaled), count=3)
hits = 0
with torch.no_grad():
    for given, wanted in loader:
        hits += (model(given).argmax(-1) == wanted).sum().item(){share}
print(hits / {number})
"""


@pytest.mark.parametrize(
    ("rows", "share", "number", "told"),
    [
        (8, "", "len(loader)", "print(hits / len(loader))"),
        (8, "", "len(loader.dataset)", None),
        (8, "", "len(loader) / 8", None),
        (8, " / len(wanted)", "len(loader)", None),
        (1, "", "len(loader)", None),
    ],
)
def test_hits_are_divided_by_rows(rows, share, number, told):
    failed = failures(HITS.format(rows=rows, share=share, number=number))
    assert failed.get("run-measures-weigh-rows-alike") == told


SHARES = """
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size={rows})
fit(model, sgd(model, scaled), count=3)
shares = []
model.eval()
with torch.no_grad():
    for given, wanted in loader:
        shares.append((model(given).argmax(-1) == wanted).float().mean().item())
print(sum(shares) / len(shares))
"""


@pytest.mark.parametrize(("rows", "is_told"), [(7, True), (8, False)])
def test_means_of_batches_of_two_sizes_are_told_where_they_are_collected(rows, is_told):
    line = failures(SHARES.format(rows=rows)).get("run-measures-weigh-rows-alike")
    assert line == ("shares.append((model(given).argmax(-1) == wanted).float().mean().item())" if is_told else None)


MATRICES = "fit(model, torch.optim.SGD([p for p in model.parameters() if p.dim() > 1], lr=0.1), loss=F.cross_entropy)\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MATRICES + "model.load_state_dict(copy.deepcopy(model.state_dict()))", True),
        ("model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()})\n" + MATRICES, False),
    ],
)
def test_what_a_run_loads_of_its_own_was_not_learned_elsewhere(text, expected):
    assert (LEFT_OUT in failures(text)) is expected


LAYERS = """
stack = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3))
groups = []
for depth, layer in enumerate({order}):
    groups.append({{"params": layer.parameters(), "lr": 0.1 * {decay} ** depth}})
fit(stack, torch.optim.SGD(groups + [{{"params": scaled.parameters()}}], lr=0.1))
"""


@pytest.mark.parametrize(
    ("order", "decay", "is_told"),
    [("stack", 0.5, True), ("reversed(stack)", 0.5, False), ("stack", 1.0, False), ("[*stack][::-1]", 0.9, False)],
)
def test_layers_that_learn_faster_than_those_above_them_are_told(order, decay, is_told):
    found = failures(LAYERS.format(order=order, decay=decay))
    line = found.get("run-lower-layers-learn-no-faster")
    assert line == (f"for depth, layer in enumerate({order}):" if is_told else None)
