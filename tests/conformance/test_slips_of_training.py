"""Training loops that are wrong by their text are told, and right ones in many forms are not."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest
from rules_of_text import told

from conformance.slips import training as slips


def loop(body, before="", behind="", epochs=False):
    inner = "for step, batch in enumerate(loader):\n" + indent(dedent(body), "    ")
    whole = "for epoch in range(epochs):\n" + indent(inner, "    ") if epochs else inner
    return "def train(model, loader, epochs):\n" + indent(f"{dedent(before)}\n{whole}\n{dedent(behind)}\n", "    ")


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("opt.zero_grad()\nloss(batch).backward()\nopt.step()", False),
        ("loss(batch).backward()\nopt.step()\nopt.zero_grad()", False),
        ("opt.zero_grad(), loss(batch).backward(), opt.step()", False),
        ("loss(batch).backward()\nopt.zero_grad()\nopt.step()", True),
        ("with amp():\n    value = loss(batch)\nvalue.backward()\nmodel.zero_grad()\nopt.step()", True),
        ("opt.zero_grad()\nloss(batch).backward()\nif (step + 1) % n == 0:\n    opt.step()", True),
        ("opt.zero_grad()\nscaler.scale(loss(batch)).backward()\nif step % n == 0:\n    scaler.step(opt)", True),
        ("loss(batch).backward()\nif (step + 1) % n == 0:\n    opt.step()\n    opt.zero_grad()", False),
        (
            "if step % n == 0:\n    opt.zero_grad()\nloss(batch).backward()\nif step % n == n - 1:\n    opt.step()",
            False,
        ),
        ("opt.zero_grad()\nloss(batch).backward()\nif clip:\n    clip_(model)\nopt.step()", False),
        ("opt.zero_grad()\nloss(batch).backward()\nif scaler:\n    scaler.step(opt)\nelse:\n    opt.step()", False),
        ("for part in batch:\n    loss(part).backward()\nopt.step()\nopt.zero_grad()", False),
        ("fake.backward()\nd_opt.step()\ng_opt.zero_grad()\nloss(batch).backward()\ng_opt.step()", False),
    ],
)
def test_gradients_are_used_before_they_are_cleared(body, is_told):
    assert bool(told(slips.GRADIENTS, loop(body))) == is_told


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("loss(batch).backward()\noptimizer.step()", True),
        ("loss(batch).backward()\nself.opt.step()", True),
        ("loss(batch).backward()\noptimizer.step()\noptimizer.zero_grad()", False),
        ("loss(batch).backward()\noptimizer.step()\nfor p in model.parameters():\n    p.grad = None", False),
        ("loss(batch).backward()\nengine.step()", False),
        ("loss(batch).backward()\nscheduler.step()", False),
    ],
)
def test_gradients_are_cleared_somewhere(body, is_told):
    assert bool(told(slips.OLD_GRADIENTS, loop(body))) == is_told


CLIP = "clip_grad_norm_(model.parameters(), 1.0)"


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        (f"opt.zero_grad()\nloss(batch).backward()\n{CLIP}\nopt.step()", False),
        (f"opt.zero_grad()\nloss(batch).backward()\nopt.step()\ntorch.nn.utils.{CLIP}", True),
        (f"loss(batch).backward()\nopt.step()\nother(batch).backward()\n{CLIP}\nopt.step()", False),
        (f"scaler.scale(loss(batch)).backward()\nscaler.step(opt)\n{CLIP}\nscaler.update()", True),
        (f"{CLIP}\nopt.step()", False),
    ],
)
def test_gradients_are_clipped_before_the_step(body, is_told):
    assert bool(told(slips.CLIPPING, loop(body))) == is_told


STEPS = "loss(batch).backward()\nopt.step()\n"


@pytest.mark.parametrize(
    ("kept", "behind", "is_told"),
    [
        ("model.state_dict()", "model.load_state_dict(best)", True),
        ("copy.copy(model.state_dict())", "model.load_state_dict(best)", True),
        ("{k: v.detach() for k, v in model.state_dict().items()}", "model.load_state_dict(best)", True),
        ("{k: v.detach().clone() for k, v in model.state_dict().items()}", "model.load_state_dict(best)", False),
        (
            "{k: v.cpu() for k, v in model.state_dict().items()}",
            "model.load_state_dict(best)",
            False,
        ),  # copied on a GPU
        ("copy.deepcopy(model.state_dict())", "model.load_state_dict(best)", False),
        ("model.state_dict()", "torch.save(best, path)", True),
        ("model.state_dict()", "model.load_state_dict(other)", False),
    ],
)
def test_a_state_that_is_kept_is_a_copy(kept, behind, is_told):
    assert bool(told(slips.KEPT, loop(f"{STEPS}if better:\n    best = {kept}", behind=behind))) == is_told


def test_a_state_that_nothing_changes_may_be_kept_as_it_is():
    text = "def merge(models):\n    for model in models:\n        best = model.state_dict()\n"
    text += "    model.load_state_dict(best)"
    assert not told(slips.KEPT, text)


@pytest.mark.parametrize(
    ("begins", "test", "is_told"),
    [
        ("float('inf')", "val_loss < best", False),
        ("float('inf')", "best > val_loss", False),
        ("float('inf')", "val_loss > best", True),
        ("math.inf", "best < val['loss']", True),
        ("0.0", "accuracy > best", False),
        ("-1", "accuracy < best", True),
        ("0", "f1 < best", True),
        ("float('inf')", "accuracy < best", True),  # the least share of hits is kept
        ("0.0", "val_loss > best", True),
        ("-float('inf')", "-val_loss > best", False),
        ("float('inf')", "distance < best", False),
        ("start", "val_loss > best", False),
        ("None", "val_loss > best", False),
    ],
)
def test_the_better_one_is_kept(begins, test, is_told):
    new = test.replace("best", "").strip(" <>")
    text = loop(f"{STEPS}if {test}:\n    best = {new}", before=f"best = {begins}", epochs=True)
    assert bool(told(slips.BEST, text)) == is_told


def test_the_largest_loss_and_the_least_margin_may_be_asked_for():
    text = loop(f"{STEPS}if loss > largest:\n    largest = loss", before="largest = 0.0", epochs=True)
    assert not told(slips.BEST, text)
    text = loop(f"{STEPS}if margin < best:\n    best = margin", before="best = -1", epochs=True)
    assert not told(slips.BEST, text)  # it may be less than -1


@pytest.mark.parametrize(
    ("made", "with_batch", "an_epoch", "is_told"),
    [
        ("OneCycleLR(opt, 1e-3, total_steps=epochs * len(loader))", True, False, False),
        ("OneCycleLR(opt, 1e-3, total_steps=epochs * len(loader))", False, True, True),
        ("warm_up(opt, 10, len(loader) * epochs)", False, True, True),
        ("CosineAnnealingLR(opt, epochs)", False, True, False),
        ("CosineAnnealingLR(opt, T_max=epochs)", True, False, True),
        ("CosineAnnealingLR(opt, T_max=epochs * len(loader))", True, False, False),
        ("StepLR(opt, 10)", True, False, False),
        ("LambdaLR(opt, rate)", False, True, False),
    ],
)
def test_a_schedule_makes_as_many_steps_as_it_is_made_for(made, with_batch, an_epoch, is_told):
    body = STEPS + ("scheduler.step()" if with_batch else "pass")
    text = loop(body, before=f"scheduler = {made}", epochs=True)
    text += "        scheduler.step()\n" if an_epoch else ""
    assert bool(told(slips.SCHEDULES, text)) == is_told


def test_batches_of_small_batches_are_no_epochs():
    text = """
    def train(model, loader, epochs):
        scheduler = warm_up(opt, 10, epochs * len(loader))
        for epoch in range(epochs):
            for batch in loader:
                for part in batch:
                    loss(part).backward()
                opt.step()
                opt.zero_grad()
                scheduler.step()
    """
    assert not told(slips.SCHEDULES, text)


@pytest.mark.parametrize(
    ("batches", "is_told"),
    [
        ("train_batches(rows, random.Random(7))", True),
        ("make_batches(rows, rng=np.random.default_rng(config.seed))", True),
        ("shuffled(rows, torch.Generator().manual_seed(0))", True),
        ("train_batches(rows, random.Random(7 + epoch))", False),
        ("train_batches(rows, rng)", False),
        ("val_batches(rows, random.Random(7))", False),  # the same ones each time, so that epochs compare
        ("sample(model, random.Random(7))", False),
    ],
)
def test_epochs_draw_from_seeds_of_their_own(batches, is_told):
    text = (
        f"def learn(rows, epochs):\n    for epoch in range(epochs):\n        for batch in {batches}:\n            pass"
    )
    assert bool(told(slips.EPOCHS, text)) == is_told


@pytest.mark.parametrize(
    ("kept", "behind", "is_told"),
    [
        ("if better:\n            best = model.state_dict()", "torch.save(best, 'best.pt')", True),
        ("if better:\n            best = model.state_dict()", "torch.save({'model': best}, 'best.pt')", True),
        ("if better:\n            best = copy.deepcopy(model.state_dict())", "torch.save(best, 'best.pt')", False),
        ("best = model.state_dict()", "torch.save(best, 'last.pt')", False),  # it is the last one, and is saved as such
        ("if better:\n            best = model.state_dict()", "print('over')", False),
    ],
)
def test_a_state_that_is_saved_behind_the_loop_is_a_copy(kept, behind, is_told):
    begin = "def learn(model, epochs):\n    for epoch in range(epochs):\n        train(model)\n"
    assert bool(told(slips.KEPT, f"{begin}        {kept}\n    {behind}")) == is_told


@pytest.mark.parametrize(
    ("total", "is_told"),
    [
        ("epochs * len(loader)", True),
        ("epochs * math.ceil(len(loader) / accum)", False),
        ("epochs * (len(loader) // accum)", False),
        ("epochs * updates", False),
    ],
)
def test_a_schedule_of_groups_of_batches_counts_groups(total, is_told):
    text = f"""
    def train(model, loader, epochs, accum, updates):
        scheduler = warm_up(opt, 10, {total})
        for epoch in range(epochs):
            for i, batch in enumerate(loader):
                (loss(batch) / accum).backward()
                if (i + 1) % accum == 0:
                    opt.step()
                    scheduler.step()
                    opt.zero_grad()
    """
    assert bool(told(slips.SCHEDULES, text)) == is_told


@pytest.mark.parametrize(
    ("factor", "is_told"),
    [
        ("(step + 1) // warmup", True),
        ("step // self.warmup_steps", True),
        ("(step + 1) / warmup", False),
        ("total // warmup_share", False),
        ("step // period", False),
    ],
)
def test_a_warm_up_rises_by_shares(factor, is_told):
    assert bool(told(slips.WHOLE, f"def factor(self, step, warmup, total, period):\n    return {factor}")) == is_told


def test_a_loop_over_epochs_does_not_shuffle_by_one_seed():
    text = """
    for epoch in range(1, epochs + 1):
        rng = np.random.default_rng({seed})
        for i in rng.permutation(len(rows)):
            loss(rows[i]).backward()
    """
    assert told(slips.EPOCHS, text.format(seed="7"))
    assert not told(slips.EPOCHS, text.format(seed="[7, epoch]"))


def test_a_function_of_an_epoch_learns_too():
    text = """
    def learn(model, loader, opt):
        for batch in loader:
            loss(batch).backward()
            opt.step()
            opt.zero_grad()

    def main(model, loader, opt, epochs):
        sched = warm_up(opt, 10, epochs * len(loader))
        for epoch in range(epochs):
            learn(model, loader, opt)
            sched.step()
    """
    assert told(slips.SCHEDULES, text)
    assert not told(slips.SCHEDULES, text.replace("epochs * len(loader)", "epochs"))


GROUPS = """
def run(model, batches, opt, accum, epochs):
    total, step = epochs * len(batches) {planned}, 0
    for start in range(0, len(batches), accum):
        for group in opt.param_groups:
            group["lr"] = rate(step, total)
        for batch in batches[start : start + accum]:
            loss(model, batch).backward()
            {inner}
        opt.step()
        {outer}
"""


@pytest.mark.parametrize(
    ("planned", "inner", "outer", "is_told"),
    [
        ("// accum", "step += 1", "pass", True),
        ("// accum", "pass", "step += 1", False),
        ("", "step += 1", "pass", False),  # the plan counts passes, too
        ("// accum", "seen += 1", "step += 1", False),
    ],
)
def test_a_planned_rate_is_asked_for_by_the_steps_it_counts(planned, inner, outer, is_told):
    assert bool(told(slips.PASSES, GROUPS.format(planned=planned, inner=inner, outer=outer))) == is_told
