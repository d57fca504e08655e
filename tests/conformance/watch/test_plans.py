"""What a script plans and never comes true is told, and what looks like it and is right is not."""

import re
import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from conformance.mutants.script import FOLDER as SCRIPTS  # noqa: E402
from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

LOOP = """
import copy
import torch
from torch import nn
torch.manual_seed(0)
{before}
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
{made}
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
{planned}
for step in range({steps}):
    x, y = torch.randn(5, 4), torch.randint(3, (5,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    {clipped}
    optimizer.step()
    {after}
{end}
"""


def results(steps=24, before="", made="", planned="", clipped="pass", after="pass", end="", watched=200):
    text = LOOP.format(**{k: v for k, v in locals().items() if k != "watched"})
    return results_of(run_of(text, "train.py", steps=watched).run)


def judged(claim, at="", **parts):
    """The verdict of a claim; with `at`, that its line has such a text."""
    found = results(**parts)
    if at and found[claim].verdict is Verdict.FAIL:
        assert re.search(at, found[claim].place), found[claim].place
    return found[claim].verdict


LINEAR = """
total = {0}
def rate(step):
    return 1 - step / total
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
"""


@pytest.mark.parametrize(("total", "expected"), [(24, Verdict.PASS), (12, Verdict.FAIL)])
def test_a_rate_is_never_below_zero(total, expected):
    parts = {"planned": LINEAR.format(total), "after": "schedule.step()"}
    assert judged("run-rate-is-not-negative", at="total = 12", **parts) is expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("model[0].requires_grad = False", Verdict.FAIL),
        ("for part in (model[0],):\n    part.requires_grad = False", Verdict.FAIL),
        ("model[0].requires_grad_(False)\nmodel[0].requires_grad = True", Verdict.FAIL),
        ("model[0].requires_grad_(False)", Verdict.NOT_SEEN),
        ("for p in model[0].parameters():\n    p.requires_grad = False", Verdict.NOT_SEEN),
        ("for _, p in model[0].named_parameters():\n    p.requires_grad = False", Verdict.NOT_SEEN),
        ("model[0].weight.requires_grad = False", Verdict.PASS),
        ("model[0].requires_grad_(False)\nmodel[0].requires_grad = False", Verdict.PASS),
    ],
)
def test_a_part_is_frozen_by_its_parameters(made, expected):
    assert judged("run-frozen-by-its-parameters", at="requires_grad = ", made=made, steps=3) is expected


@pytest.mark.parametrize(
    ("clipped", "expected"),
    [
        ("nn.utils.clip_grad_norm_(model.parameters(), lr)", Verdict.FAIL),
        ("nn.utils.clip_grad_norm_(model.parameters(), max_norm=settings['lr'])", Verdict.FAIL),
        ("nn.utils.clip_grad_norm_(model.parameters(), 0.1)", Verdict.PASS),
        ("nn.utils.clip_grad_norm_(model.parameters(), limit)", Verdict.PASS),
        ("nn.utils.clip_grad_norm_(model.parameters(), 1e-4)", Verdict.NOTE),
    ],
)
def test_gradients_are_not_clipped_to_the_rate(clipped, expected):
    before = "lr = limit = 0.1\nsettings = {'lr': 0.1}"
    assert judged("run-clipping-limit-is-no-rate", at="clip_grad_norm_", before=before, clipped=clipped) is expected


STOPPER = """
class Stopper:
    def __init__(self, patience=9):
        self.patience, self.best, self.bad = patience, 9e9, 0
    def update(self, value):
        if value < self.best:
            {better}
        else:
            self.bad += 1
        return self.bad >= self.patience
def load(stopper, saved):
    stopper.best, stopper.bad = saved["best"], saved["bad"]
stopper = Stopper()
"""


@pytest.mark.parametrize(
    ("better", "after", "expected"),
    [
        ("self.best = value", "pass", Verdict.FAIL),
        ("self.best, self.bad = value, 0", "pass", Verdict.PASS),
        ("self.best = value\n            self.bad = 0", "pass", Verdict.PASS),
        ("self.best = value", "stopper.bad = 0 if step % 5 else stopper.bad", Verdict.PASS),
    ],
)
def test_patience_begins_anew(better, after, expected):
    parts = {"before": STOPPER.format(better=better), "after": f"{after}\n    if stopper.update(loss.item()): break"}
    assert judged("run-patience-begins-anew", at="self.best = value", **parts) is expected


@pytest.mark.parametrize(
    ("better", "expected"), [("best = loss.item()", Verdict.FAIL), ("best, bad = loss.item(), 0", Verdict.PASS)]
)
def test_patience_of_a_plain_loop_begins_anew(better, expected):
    after = f"if loss.item() < best:\n        {better}\n    else:\n        bad += 1\n    if bad > patience: break"
    parts = {"before": "best, bad, patience = 9e9, 0, 12", "after": after}
    assert judged("run-patience-begins-anew", at="best = ", **parts) is expected


SCHEDULE = "schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("pass", Verdict.FAIL),
        ("print(schedule.get_last_lr())", Verdict.FAIL),
        ("if step == 400: schedule.step()", Verdict.NOT_SEEN),
        ("hooks = [schedule.step]", Verdict.NOT_SEEN),
        ("schedule.step()", Verdict.PASS),
    ],
)
def test_a_schedule_that_no_line_steps_is_told_before_the_script_ends(after, expected):
    parts = {"steps": 60, "watched": 24, "planned": SCHEDULE, "after": after}
    assert judged("run-schedule-is-stepped", **parts) is expected


AVERAGE = """
average = copy.deepcopy(model).requires_grad_(False)
def follow(share=0.9):
    with torch.no_grad():
        for slow, p in zip(average.parameters(), model.parameters()):
            slow.mul_(share).add_(p, alpha=1 - share)
def judge():
    kept = copy.deepcopy(model.state_dict())
    model.load_state_dict(average.state_dict())
    with torch.no_grad():
        model(torch.randn(3, 4))
    {back}
"""
SWITCH = """follow()
    if step % 8 == 7:
        model.load_state_dict(average.state_dict())
        with torch.no_grad(): model(torch.randn(3, 4))"""
AHEAD = "if step % 5 == 4:\n        follow(0.5)\n        model.load_state_dict(average.state_dict())"


@pytest.mark.parametrize(
    ("back", "after", "expected"),
    [
        ("pass", "follow()\n    if step == 15: judge()", Verdict.FAIL),
        ("model.load_state_dict(kept)", "follow()\n    if step == 15: judge()", Verdict.PASS),
        ("pass", "follow()\n    if step == 23: judge()", Verdict.PASS),
        ("pass", AHEAD, Verdict.NOT_SEEN),
        ("pass", SWITCH, Verdict.NOTE),
        ("pass", SWITCH.replace(":\n", ":\n        kept = copy.deepcopy(model.state_dict())\n", 1), Verdict.FAIL),
    ],
    ids=["stays", "put back", "at the end", "looks ahead", "switches on purpose", "kept for nothing"],
)
def test_training_leaves_the_average_of_its_weights(back, after, expected):
    parts = {"made": AVERAGE.format(back=back), "after": after}
    assert judged("run-training-leaves-its-average", at="average.state_dict", **parts) is expected


def test_an_average_may_lie_where_a_tensor_of_others_was():
    there_before = [torch.zeros(1, 1) for _ in range(500)]
    sys.modules["there_before"] = SimpleNamespace(tensors=there_before)
    try:
        made = 'import sys\nsys.modules["there_before"].tensors.clear()\n' + AVERAGE.format(back="pass")
        parts = {"made": made, "after": "follow()\n    if step == 15: judge()"}
        assert judged("run-training-leaves-its-average", **parts) is Verdict.FAIL
    finally:
        del sys.modules["there_before"]


KEPT = "if loss.item() < 1.2:\n        best = {0}"


@pytest.mark.parametrize(
    ("after", "end", "expected"),
    [
        (KEPT.format("model.state_dict()"), "model.load_state_dict(best)", Verdict.FAIL),
        (KEPT.format("copy.deepcopy(model.state_dict())"), "model.load_state_dict(best)", Verdict.NOT_SEEN),
        (KEPT.format("model.state_dict()"), "torch.save(best, 'best.pt')", Verdict.NOT_SEEN),
        ("if step == 3:\n        own = model.state_dict()\n        model.load_state_dict(dict(own))", "", Verdict.FAIL),
    ],
)
def test_a_best_state_is_a_copy_before_it_is_restored(after, end, expected):
    parts = {"after": after, "end": end, "steps": 60, "watched": 40, "before": "best = None"}
    assert judged("run-restored-state-is-a-copy", **parts) is expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("nn.Sequential(*map(copy.deepcopy, model)).load_state_dict(model.state_dict())", Verdict.FAIL),
        ("other = copy.deepcopy(model)\nother.load_state_dict(model.state_dict())", Verdict.PASS),
        ("(lambda: model)().load_state_dict(copy.deepcopy(model.state_dict()))", Verdict.PASS),
        ("class Holder:\n    def get(self):\n        return model\n"
         "Holder().get().load_state_dict(copy.deepcopy(model.state_dict()))", Verdict.PASS),
    ],
)  # fmt: skip
def test_weights_are_loaded_into_what_is_kept(made, expected):
    assert judged("run-loaded-weights-are-kept", made=made, steps=3) is expected


QUEUE = """
class Bank(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.register_buffer("rows", torch.zeros(32, 3))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))
    def forward(self, x):
        y = self.inner(x)
        with torch.no_grad():
            at = int(self.at)
            self.rows[at : at + 5] = y
            {moves}
        return y
model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), Bank())
"""


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ("pass", Verdict.FAIL),
        ("self.at[0] = (at + 5) % 25", Verdict.PASS),
        ("self.at.fill_((at + 5) % 25)", Verdict.PASS),
        ("self.at.data[0] = (at + 5) % 25", Verdict.PASS),
        ("self.at = (self.at + 5) % 25", Verdict.PASS),
        ("torch.fmod(self.at + 5, 25, out=self.at)", Verdict.PASS),
    ],
)
def test_the_place_from_which_a_buffer_is_written_moves_on(moves, expected):
    parts = {"made": QUEUE.format(moves=moves), "steps": 8}
    assert judged("run-pointer-moves-on", at="self.rows", **parts) is expected


@pytest.mark.parametrize(("steps", "expected"), [(4, Verdict.NOT_SEEN), (5, Verdict.FAIL)])
def test_five_steps_tell_whether_a_place_moves_on(steps, expected):
    assert judged("run-pointer-moves-on", made=QUEUE.format(moves="pass"), steps=steps) is expected


JUDGED = """
def judge():
    total, count = 0.0, 0
    for _ in range(3):
        x, y = torch.randn(5, 4), torch.randint(3, (5,))
        {body}
    return total / count
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("loss = nn.functional.cross_entropy(model(x), y); total += loss.item(); count += len(y)", Verdict.FAIL),
        ("n = y.numel(); loss = nn.functional.cross_entropy(model(x), y); total += float(loss); count += n",
         Verdict.FAIL),
        ("loss = nn.functional.cross_entropy(model(x), y); total += loss.item() * 5; count += len(y)", Verdict.PASS),
        ("loss = nn.functional.cross_entropy(model(x), y); total += loss.item(); count += 1", Verdict.PASS),
        ("loss = nn.functional.cross_entropy(model(x), y, reduction='sum'); total += loss.item(); count += len(y)",
         Verdict.PASS),
        ("loss = nn.functional.cross_entropy(model(x), y); right = (model(x).argmax(1) == y).sum(); "
         "total += right.item(); count += len(y)", Verdict.PASS),
    ],
)  # fmt: skip
def test_a_mean_is_over_what_is_summed(body, expected):
    before = JUDGED.format(body=body)
    parts = {"before": before, "after": "with torch.no_grad(): judge()", "steps": 3}
    assert judged("run-mean-is-over-what-is-summed", at=r"total \+= ", **parts) is expected


MASKED = (SCRIPTS / "masked.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("hides", "expected"),
    [
        ("ids[chosen] = MASK", Verdict.PASS),
        ("ids[torch.rand(ids.shape, generator=draw) < 0.8] = MASK", Verdict.FAIL),
        ("ids[chosen | (torch.rand(ids.shape, generator=draw) < 0.5)] = MASK", Verdict.NOTE),
    ],
    ids=["what is asked", "any", "more on purpose"],
)
def test_who_hides_more_than_is_asked_for_on_purpose_is_only_told(hides, expected):
    source = MASKED.replace("ids[chosen] = MASK", hides)
    found = results_of(run_of(source, "train.py", steps=6).run)["run-what-is-masked-is-asked"]
    assert found.verdict is expected


GROUPS = """
first, last = model[0].parameters(), model[2].parameters()
optimizer = torch.optim.SGD([{{"params": first{own}}}, {{"params": last}}], 0.1)
"""


@pytest.mark.parametrize(
    ("own", "after", "expected"),
    [
        ("", "optimizer.param_groups[0]['lr'] = 0.1 / (step + 2)", Verdict.FAIL),
        ("", "for group in optimizer.param_groups: group['lr'] = 0.1 / (step + 2)", Verdict.PASS),
        (
            "",
            "for at, group in enumerate(optimizer.param_groups): group['lr'] = 0.1 / (at * step + 1)",
            Verdict.NOT_SEEN,
        ),
        (", 'lr': 0.2", "optimizer.param_groups[0]['lr'] = 0.1 / (step + 2)", Verdict.NOT_SEEN),  # rates of their own
    ],
)
def test_a_rate_is_set_in_every_group_that_began_with_it(own, after, expected):
    parts = {"planned": GROUPS.format(own=own), "after": after, "steps": 8}
    assert judged("run-rate-is-set-in-every-group", at=r"param_groups", **parts) is expected


STAGES = """
def learn(steps):
    {shared}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for step in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.randn(5, 4)), torch.randint(3, (5,))).backward()
        optimizer.step()
        {steps}
learn(6)
"""


@pytest.mark.parametrize(
    ("own", "shared", "expected"),
    [
        ("schedule.step()", "pass", Verdict.PASS),
        ("pass", "pass", Verdict.FAIL),
        ("str(schedule)", "pass", Verdict.PASS),
        ("pass", "global schedule", Verdict.PASS),
    ],
)
def test_a_schedule_that_nothing_reads_is_told_though_another_one_is_stepped(own, shared, expected):
    planned, after = "first = torch.optim.lr_scheduler.StepLR(optimizer, 20)", "first.step()"
    parts = {
        "planned": planned,
        "after": after,
        "end": STAGES.replace("{steps}", own).replace("{shared}", shared),
        "steps": 4,
    }
    assert judged("run-schedule-is-stepped", at="StepLR", **parts) is expected


def test_a_step_that_a_scaler_leaves_out_ends_what_its_gradients_were_for():
    scaler = "scaler = torch.amp.GradScaler('cpu')"
    clipped = "scaler.unscale_(optimizer)"
    text = LOOP.format(before="", made="", planned=scaler, steps=8, clipped=clipped, after="", end="")
    text = text.replace("loss.backward()", "scaler.scale(loss * (torch.inf if step == 3 else 1.0)).backward()")
    text = text.replace("optimizer.step()", "scaler.step(optimizer)\n    scaler.update()")
    found = results_of(run_of(text, "train.py").run)
    assert {
        found[f"run-{claim}"].verdict for claim in ("gradients-of-all-passes-count", "accumulation-is-divided")
    } == {Verdict.NOT_SEEN}


WARM = """
warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=4)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max={period})
schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [4])
"""
EPOCHS = """
for epoch in range(epochs):
    for _ in range(4):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.randn(5, 4)), torch.randint(3, (5,))).backward()
        optimizer.step()
        schedule.step()
"""


@pytest.mark.parametrize(
    ("period", "expected"), [("epochs - 1", Verdict.FAIL), ("(epochs - 1) * 4", Verdict.PASS), ("14", Verdict.PASS)]
)
def test_a_cosine_behind_a_warm_up_counts_what_it_is_stepped_with(period, expected):
    parts = {"planned": "epochs = 5" + WARM.format(period=period), "steps": 0, "end": EPOCHS}
    assert judged("run-cosine-counts-what-it-is-stepped-with", at="CosineAnnealingLR", **parts) is expected


TEXTS = """
import torch
from torch import nn
torch.manual_seed(0)
class Tokens:
    def __init__(self):
        self.eos_id = 1
        self.pad_id = {pad}
tokens = Tokens()
class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)
    def forward(self, ids):
        return self.head(self.table(ids).cumsum(1))
model = Writer()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    texts = [torch.randint(2, 9, (n,)).tolist() + [tokens.eos_id] for n in (3, 6, 7)]
    rows = torch.tensor([text + [tokens.pad_id] * (8 - len(text)) for text in texts])
    labels = torch.tensor([text + [-100] * (8 - len(text)) for text in texts])
    if {masked}:
        labels[labels == tokens.pad_id] = -100
    optimizer.zero_grad()
    logits = model(rows)[:, :-1].flatten(0, 1)
    nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), ignore_index=-100).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("pad", "masked", "is_wrong"),
    [("self.eos_id", True, True), ("self.eos_id", False, False), ("0", True, False)],
    ids=["all of its id", "padding alone", "an id of its own"],
)
def test_the_end_of_a_text_is_asked_for_though_padding_has_its_id(pad, masked, is_wrong):
    found = results_of(run_of(TEXTS.format(pad=pad, masked=masked), "train.py").run)["run-end-is-no-padding"]
    assert (found.verdict is Verdict.FAIL) is is_wrong
