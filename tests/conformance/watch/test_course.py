"""What shows over many steps of a training run: mistakes are told, and what is right and looks like them is not."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch import stated  # noqa: E402
from conformance.watch.events import Targets  # noqa: E402
from conformance.watch.targets import compare  # noqa: E402
from conformance.watch.tensors import windows  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

LOOP = """
import copy
import torch
from torch import nn
torch.manual_seed(0)
{before}
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
optimizer = torch.optim.{optimizer}
{made}
for step in range({steps}):
    {first}
    x, y = torch.randn(5, 4), torch.randint(3, (5,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {after}
"""


def results(steps=30, optimizer="SGD(model.parameters(), lr=0.1)", before="", made="", first="pass", after="pass"):
    text = LOOP.format(**locals())
    return results_of(run_of(text, "train.py", steps=200).run)


def verdict(claim, **parts):
    return results(**parts)[claim].verdict


def by_rates(rates):
    """A schedule whose factors are these, the last one for all later steps."""
    rate = f"lambda step: factors[min(step, {len(rates) - 1})]"
    made = f"factors = {list(rates)}\nschedule = torch.optim.lr_scheduler.LambdaLR(optimizer, {rate})"
    return {"made": made, "after": "schedule.step()"}


WARM_UP = [(number + 1) / 8 for number in range(8)]


@pytest.mark.parametrize(
    ("rates", "claim", "expected"),
    [
        ([*WARM_UP, *(0.9**n for n in range(30))], "run-rate-stays-above-zero", Verdict.PASS),
        ([0.0, *WARM_UP], "run-rate-stays-above-zero", Verdict.PASS),
        ([1.0] * 29 + [0.0], "run-rate-stays-above-zero", Verdict.PASS),
        ([0.0, 0.0, 0.0, *WARM_UP], "run-rate-stays-above-zero", Verdict.FAIL),
        ([1.0] * 20 + [0.0], "run-rate-stays-above-zero", Verdict.FAIL),
        ([*WARM_UP, *(0.9**n for n in range(30))], "run-rate-falls-after-its-peak", Verdict.PASS),
        ([*WARM_UP, *(n / 30 for n in range(1, 30))], "run-rate-falls-after-its-peak", Verdict.NOTE),
        ([abs(8 - n % 16) / 8 + 0.1 for n in range(8, 40)], "run-rate-falls-after-its-peak", Verdict.PASS),
        ([1.0] * 30, "run-rate-falls-after-its-peak", Verdict.NOT_SEEN),
        ([1 - n / 30 for n in range(30)], "run-rate-does-not-vanish", Verdict.PASS),
        ([0.8**n for n in range(30)], "run-rate-does-not-vanish", Verdict.PASS),
        ([0.3**n for n in range(30)], "run-rate-does-not-vanish", Verdict.NOTE),
        ([1 - n / 30 for n in range(30)], "run-schedule-gives-factors", Verdict.PASS),
        ([0.05 - n / 600 for n in range(30)], "run-schedule-gives-factors", Verdict.FAIL),
    ],
)
def test_the_course_of_a_rate(rates, claim, expected):
    assert verdict(claim, optimizer="SGD(model.parameters(), lr=0.05)", **by_rates(rates)) is expected


@pytest.mark.parametrize(
    ("stated_as", "rates", "expected"),
    [
        ("warmup_steps = 8", WARM_UP, Verdict.PASS),
        ("warmup_steps = 16", [n / 16 for n in range(1, 17)], Verdict.PASS),
        ("warmup_steps = 16", [0.8**n for n in range(30)], Verdict.FAIL),
        ("settings = {'warmup': 16}", [0.8**n for n in range(30)], Verdict.FAIL),
        ("a, warmup = 1, 16", [0.8**n for n in range(30)], Verdict.FAIL),
        ("warmup = 16\nnum_warmup_steps = 4", [0.8**n for n in range(30)], Verdict.NOT_SEEN),
        ("warmup_epochs = 16", [0.8**n for n in range(30)], Verdict.NOT_SEEN),
        ("warmup = 0", [0.8**n for n in range(30)], Verdict.NOT_SEEN),
        ("warmup = 16", [1.0], Verdict.NOT_SEEN),
    ],
)
def test_a_warm_up_that_is_stated_is_made(stated_as, rates, expected):
    assert verdict("run-rate-peaks-after-its-warm-up", before=stated_as, **by_rates(rates)) is expected


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ("AdamW(model.parameters(), betas=(0.9, 0.95))", Verdict.PASS),
        ("Adam(model.parameters(), betas=(0.9, 0.9))", Verdict.PASS),
        ("Adam(model.parameters(), betas=(0.5, 0.999))", Verdict.PASS),
        ("AdamW(model.parameters(), betas=(0.95, 0.9))", Verdict.FAIL),
        ("SGD(model.parameters(), lr=0.1)", Verdict.NOT_SEEN),
    ],
)
def test_the_order_of_adams_betas(optimizer, expected):
    assert verdict("run-betas-are-in-order", steps=4, optimizer=optimizer) is expected


@pytest.mark.parametrize(
    ("told", "expected"), [("loss", Verdict.PASS), ("step", Verdict.FAIL), ("float(step) + loss", Verdict.PASS)]
)
def test_what_a_plateau_is_told(told, expected):
    made = "schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)"
    after = f"schedule.step({told})"
    assert verdict("run-plateau-is-told-a-measure", steps=4, made=made, after=after) is expected


@pytest.mark.parametrize(
    ("measure", "mode", "expected"),
    [
        ("loss", "min", Verdict.PASS),
        ("loss", "max", Verdict.FAIL),
        ("accuracy", "max", Verdict.PASS),
        ("accuracy", "min", Verdict.FAIL),
        ("measure", "max", Verdict.NOT_SEEN),
    ],
)
def test_which_way_a_plateau_looks(measure, mode, expected):
    made = f"schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode={mode!r})"
    after = f"{measure} = float(loss.detach()); schedule.step({measure})"
    assert verdict("run-plateau-looks-the-right-way", steps=4, made=made, after=after) is expected


@pytest.mark.parametrize(("period", "expected"), [(30, Verdict.PASS), (10, Verdict.NOTE)])
def test_a_cosine_that_is_stepped_beyond_its_end(period, expected):
    made = f"schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, {period})"
    assert verdict("run-cosine-does-not-rise-again", made=made, after="schedule.step()") is expected


@pytest.mark.parametrize(
    ("teacher", "mode", "expected"),
    [
        ("nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5))", "train", Verdict.FAIL),
        ("nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5))", "eval", Verdict.PASS),
        ("copy.deepcopy(model)", "train", Verdict.NOT_SEEN),
        ("nn.Linear(4, 8)", "train", Verdict.NOT_SEEN),
    ],
)
def test_a_frozen_teacher_rests_unless_it_is_a_copy(teacher, mode, expected):
    made = f"teacher = {teacher}.{mode}().requires_grad_(False)"
    assert verdict("run-teachers-rest", made=made, first="teacher(torch.randn(2, 4))") is expected


def test_a_generator_that_is_set_back_is_told_and_one_that_is_restored_with_the_model_is_not():
    claim = "run-random-numbers-go-on"
    assert verdict(claim) is Verdict.PASS
    assert verdict(claim, first="torch.manual_seed(step)") is Verdict.PASS
    assert verdict(claim, first="torch.manual_seed(0) if step % 8 == 0 else None") is Verdict.FAIL
    going_on = (
        "(torch.manual_seed(0), model.load_state_dict(copy.deepcopy(model.state_dict()))) if step == 15 else None"
    )
    assert verdict(claim, first="torch.manual_seed(0) if step == 0 else " + going_on) is Verdict.PASS


def test_a_schedule_that_waits_for_its_epoch_is_not_said_to_be_forgotten():
    made = "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)"
    assert verdict("run-schedule-is-stepped", made=made) is Verdict.FAIL
    assert verdict("run-schedule-is-stepped", made=made, steps=10) is Verdict.NOT_SEEN
    late = "schedule.step() if step == 250 else None"
    assert verdict("run-schedule-is-stepped", made=made, steps=300, after=late) is Verdict.NOT_SEEN
    assert (
        verdict("run-schedule-is-stepped", made=made, after="schedule.step() if step == 20 else None") is Verdict.PASS
    )


FOLLOWS = "[slow.mul_({m}).add_(p, alpha=1 - {m}) for slow, p in zip(teacher.parameters(), model.parameters())]"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (FOLLOWS.format(m=0.99), Verdict.PASS),
        (FOLLOWS.format(m=0.01), Verdict.FAIL),
        ("teacher.load_state_dict(model.state_dict()) if step % 5 == 4 else None", Verdict.NOT_SEEN),
        ("teacher.load_state_dict(model.state_dict())", Verdict.PASS),
        ("pass", Verdict.NOT_SEEN),
    ],
)
def test_how_a_copy_follows(after, expected):
    made = "teacher = copy.deepcopy(model).requires_grad_(False)"
    assert verdict("run-copy-changes-slowly", made=made, first="teacher(torch.randn(2, 4))", after=after) is expected


OWN_UPDATES = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)
        self.register_buffer("center", torch.zeros(3))
        self.register_buffer("places", torch.arange(4.0))
    def forward(self, x):
        return self.body(x + 0 * self.places) - self.center
    @torch.no_grad()
    def update_center(self, y):
        self.center.mul_(0.9).add_(y.mean(0), alpha=0.1)
    def init_momentum(self):
        self.places.zero_()
"""


def test_an_update_that_nobody_calls_is_told():
    made = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    own = {"before": OWN_UPDATES, "made": made}
    found = results(**own)["run-state-is-updated"]
    assert found.verdict is Verdict.FAIL
    assert "update_center" in found.diagnosis
    assert verdict("run-state-is-updated", after="model.update_center(torch.ones(2, 3))", **own) is Verdict.PASS


# --- padding --------------------------------------------------------------------------------------


def compared(ids, labels, counts, table=99, pad=None):
    targets = Targets(total=labels.size)
    place = np.concatenate([np.array(ids.shape), np.arange(ids.size)])
    compare(targets, place, [(ids, table, pad)], labels.reshape(-1), counts.reshape(-1))
    return targets.pads, targets.padding


def padded(lengths, draw, width=9):
    ids = draw.integers(3, 50, (len(lengths), width))
    ids[np.arange(width) >= np.array(lengths)[:, None]] = 0
    return ids


def test_tags_of_padding_are_found():
    ids = padded([9, 5, 3, 6, 7], np.random.default_rng(0))
    tags, everything = ids % 4 * (ids > 0), np.ones(ids.shape, bool)
    assert compared(ids, tags, everything, pad=0) == (15, 15)
    assert compared(ids, tags, ids > 0, pad=0) == (15, 0)
    assert compared(ids, tags, everything) == (15, 15)
    own = np.where(ids > 0, ids % 4, 7)  # padding has a tag of its own
    assert compared(ids, own, everything, pad=0) == compared(ids, own, everything) == (15, 15)
    assert compared(ids, own, ids > 0, pad=0) == (15, 0)


def test_padding_is_found_where_one_row_has_none_and_the_last_place_teaches_nothing():
    ids = padded([10, 8, 5, 3, 7], np.random.default_rng(1), 10)
    index = np.arange(ids.size).reshape(ids.shape)[:, :-1].reshape(-1)
    labels, targets = ids[:, 1:].reshape(-1), Targets(total=index.size)
    compare(targets, np.array([*ids.shape, *index]), [(ids, 99, None)], labels, np.ones(labels.shape, bool))
    assert (targets.pads, targets.padding) == (13, 13)


@pytest.mark.parametrize(("sign", "pads"), [(2, 3), (0, 0)])  # without an end sign of its own it may be learned
def test_padding_of_one_place_that_a_table_says_is_found_behind_an_end_sign(sign, pads):
    whole = padded([10, 9, 10, 9, 9, 10], np.random.default_rng(4), 10)
    whole[np.arange(6), (whole > 0).sum(1) - 1] = sign
    ids, labels = whole[:, :-1].copy(), whole[:, 1:].copy()
    assert compared(ids, labels, np.ones(ids.shape, bool), pad=0) == (pads, pads)
    assert compared(ids, labels, labels > 0, pad=0) == (pads, 0)
    assert compared(ids, labels, labels > 0) == (0, 0)


def test_padding_that_only_labels_show_twice_is_found():
    whole = padded([10, 10, 9, 8, 8, 7], np.random.default_rng(2), 10)
    whole[[0, 1, 2, 3, 4, 5], [9, 9, 8, 7, 7, 6]] = 2
    ids, labels = whole[:, :-1], whole[:, 1:]
    assert compared(ids, labels, np.ones(ids.shape, bool))[1] > 0
    assert compared(ids, labels, labels != 0)[1] == 0


def test_a_word_that_ends_rows_by_its_order_is_no_padding():
    """Sorted digits end with the largest one, which stands elsewhere in the input."""
    draw = np.random.default_rng(3)
    digits = draw.integers(0, 4, (8, 6))
    whole = np.concatenate([digits, np.sort(digits)], 1)
    assert compared(whole[:, :-1], whole[:, 1:], np.ones((8, 11), bool))[1] == 0


def test_stretches_are_the_same_ones_wherever_they_stand():
    text = torch.randint(40, (400,), generator=torch.Generator().manual_seed(4))
    first = torch.stack([text[at : at + 64] for at in range(0, 320, 16)])
    second = torch.stack([text[at : at + 64] for at in range(5, 300, 7)])
    other = torch.randint(40, (20, 64), generator=torch.Generator().manual_seed(5))
    assert len(windows([second]) & windows([first])) > 0.9 * len(windows([second])) > 10
    assert not windows([other]) & windows([first])
    assert windows([text[:20][None]]) == frozenset()


def test_numbers_that_a_script_states_are_read():
    run = run_of(
        "import argparse, torch\ndef f(warmup=3): pass\nf()\n"
        + LOOP.format(
            before="", optimizer="SGD(model.parameters(), lr=0.1)", made="", steps=2, first="pass", after="pass"
        ),
        "train.py",
    ).run
    assert stated.warm_up(run) == 3


TWICE = """
import torch
from torch import nn
torch.manual_seed(0)
for part in range(2):  # as a script that is stopped and goes on with a trainer of its own
    model = nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(4):
        loss = nn.functional.cross_entropy(model(torch.randn(5, 4)), torch.randint(3, (5,)))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
"""

BY_TOKENS = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 3)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for step in range(12):
    labels = [torch.randint(3, (8,)) for _ in range(2)]
    for one in labels:
        one[{counted}:] = -100
    number = {number}
    optimizer.zero_grad()
    for one in labels:
        loss = nn.functional.cross_entropy(model(torch.randn(8, 4)), one, ignore_index=-100, reduction="sum") / number
        loss.backward()
    optimizer.step()
"""


def test_passes_of_a_model_that_is_done_are_no_accumulation():
    assert results_of(run_of(TWICE, "train.py").run)["run-accumulation-is-divided"].verdict is Verdict.NOT_SEEN


@pytest.mark.parametrize(
    ("counted", "number", "expected"),
    [
        ("4 if step == 5 else 3", "sum((one != -100).sum() for one in labels)", Verdict.PASS),  # 4 + 4 are all 8 once
        ("4 if step % 2 else 3", "labels[0].numel()", Verdict.FAIL),
    ],
)
def test_a_number_of_labels_that_is_that_of_all_by_chance_is_no_mistake(counted, number, expected):
    found = results_of(run_of(BY_TOKENS.format(counted=counted, number=number), "train.py").run)
    assert found["run-mean-is-over-the-labels-that-count"].verdict is expected


@pytest.mark.parametrize(
    ("planned", "fall", "expected"),
    [
        (900, "max(0.0, (total - step) / (total - warm_up))", Verdict.FAIL),  # 30 steps of 90 that warm up
        (900, "0.5 * (1 + math.cos(math.pi * (step - warm_up) / (total - warm_up)))", Verdict.FAIL),
        (30, "max(0.0, (total - step) / (total - warm_up))", Verdict.PASS),
        (
            30,
            "0.5 * (1 + math.cos(math.pi * (step - warm_up) / (total - warm_up)))",
            Verdict.PASS,
        ),  # it rises again later
        (900, "(warm_up / step) ** 0.5", Verdict.NOT_SEEN),  # it is planned for no number of steps
    ],
)
def test_a_warm_up_ends_within_the_run(planned, fall, expected):
    made = (
        f"import math\ntotal = {planned}\nwarm_up = total // 10\n"
        f"rate = lambda step: (step + 1) / warm_up if step < warm_up else {fall}\n"
        "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)"
    )
    assert verdict("run-schedule-comes-down", made=made, after="schedule.step()") == expected
