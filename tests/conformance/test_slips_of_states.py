"""Weights that are not loaded, and factors that are merged without their scale, by their text."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import states as slips


@pytest.mark.parametrize(
    ("forward", "merge", "is_told"),
    [
        ("self.scale * (x @ self.lora_a.T @ self.lora_b.T)", "self.lora_b @ self.lora_a", True),
        ("self.scale * (x @ self.lora_a.T @ self.lora_b.T)", "self.scale * (self.lora_b @ self.lora_a)", False),
        ("x @ self.lora_a.T @ self.lora_b.T", "self.lora_b @ self.lora_a", False),  # no scale anywhere
        ("self.scale * (x @ self.w.T @ self.u.T)", "self.u @ self.w", False),  # no factors of an adapter
    ],
)
def test_merged_factors_keep_their_scale(forward, merge, is_told):
    text = f"""
    class Adapted(nn.Module):
        def forward(self, x):
            return self.base(x) + {forward}

        def merge(self):
            self.base.weight += {merge}
    """
    assert bool(told(slips.MERGED, text)) == is_told


@pytest.mark.parametrize(
    ("made", "is_told"),
    [
        ("Model(Config.from_pretrained(folder))", True),
        ("Model.from_pretrained(folder)", False),
        ("Model(Config(vocab))", False),
    ],
)
def test_the_weights_that_were_saved_are_loaded(made, is_told):
    text = (
        f"def learn(model, folder):\n    model.save_pretrained(folder)\n\ndef again(folder, vocab):\n    return {made}"
    )
    assert bool(told(slips.REBUILT, text)) == is_told
    assert not told(slips.REBUILT, text + ".load_state_dict(state)")


RUN = """
def run(model, ema, batches, optimizer, epochs, {given}):
    for epoch in range(epochs):
        for batch in batches:
            model(batch).backward()
            optimizer.step()
            {each_step}
        {each_epoch}
"""


@pytest.mark.parametrize(
    ("given", "each_step", "each_epoch", "is_told"),
    [
        ("decay=0.999", "pass", "ema.update(model, decay)", True),
        ("ema_decay=0.99", "pass", "update_ema(ema, model)", True),
        ("decay=0.9", "pass", "ema.update(model, decay)", False),  # it follows in ten epochs
        ("decay=0.999", "ema.update(model, decay)", "pass", False),
        ("decay=0.999", "ema.update(model, decay)", "ema.update(model, decay)", False),
        ("lr=0.999", "pass", "ema.update(model)", False),
        ("lr_decay=0.999, beta2=0.999, momentum=0.99", "pass", "ema.update(model)", False),
        ("decay=0.999", "pass", "meter.update(model)", False),
    ],
)
def test_a_slow_average_moves_with_each_step(given, each_step, each_epoch, is_told):
    text = RUN.format(given=given, each_step=each_step, each_epoch=each_epoch)
    assert bool(told(slips.AVERAGED, text)) == is_told


def test_an_average_may_be_moved_by_what_an_epoch_asks():
    text = """
def train(model, ema, batches):
    for batch in batches:
        model(batch).backward()
        ema.update(model)
def run(model, ema, batches, decay=0.999):
    for epoch in range(9):
        train(model, ema, batches)
        {more}
"""
    assert not told(slips.AVERAGED, text.format(more="pass"))
    assert told(slips.AVERAGED, text.replace("        ema.update(model)\n", "", 1).format(more="ema.update(model)"))


@pytest.mark.parametrize(
    ("name", "persistent", "method", "is_told"),
    [
        ("mean", "persistent=False", "fit", True),
        ("mean", "False", "fit", True),
        ("mean", "persistent=True", "fit", False),
        ("mean", "persistent=False", "forward", False),
        ("cache", "persistent=False", "fit", False),
    ],
)
def test_statistics_that_are_not_saved_are_told(name, persistent, method, is_told):
    kept = f"    def __init__(self):\n        self.register_buffer('{name}', torch.zeros(3), {persistent})\n"
    text = f"class Scaler:\n{kept}    def {method}(self, rows):\n        self.{name}.copy_(rows.mean(0))\n"
    assert bool(told(slips.UNSAVED, text)) == is_told


SCALE = """
class Scaled(nn.Module):
    def __init__(self, width, value=0.1):
        super().__init__()
        self.{name} = {made}

    def forward(self, x):
        return {used}
"""


@pytest.mark.parametrize(
    ("name", "made", "used", "is_told"),
    [
        ("gamma", "torch.full((width,), value)", "x * self.gamma", True),
        ("layer_scale", "value * torch.ones(width)", "x * self.layer_scale", False),
        ("weight", "torch.ones(width)", "F.layer_norm(x, (4,), self.weight, self.bias)", True),
        ("gamma", "nn.Parameter(torch.full((width,), value))", "x * self.gamma", False),
        ("gamma", "torch.ones(width, requires_grad=True)", "x * self.gamma", False),
        ("gamma", "torch.full((width,), value)", "x", False),
        ("mask", "torch.ones(width)", "x * self.mask", False),
        ("scale", "width ** -0.5", "x * self.scale", False),
    ],
)
def test_a_scale_is_a_parameter(name, made, used, is_told):
    assert bool(told(slips.UNLEARNED, SCALE.format(name=name, made=made, used=used))) == is_told


def test_a_scale_that_is_given_elsewhere_is_no_parameter():
    text = SCALE.format(name="scale", made="torch.ones(width)", used="x * self.scale")
    assert not told(slips.UNLEARNED, f"{text}\n    def fit(self, rows):\n        self.scale = rows.std(0)\n")


ONCE = """
EPOCHS = {epochs}


def train(model, average, rows, decay={decay}):
    for epoch in range(EPOCHS):
        for batch in rows:
            model(batch).backward()
            {inner}
        {outer}
"""


@pytest.mark.parametrize(
    ("epochs", "decay", "inner", "outer", "is_told"),
    [
        (14, 0.93, "pass", "update_average(average, model, decay)", True),
        (100, 0.93, "pass", "update_average(average, model, decay)", False),  # it has followed in the end
        (14, 0.5, "pass", "update_average(average, model, decay)", False),
        (14, 0.93, "update_average(average, model, decay)", "pass", False),
    ],
)
def test_an_average_of_epochs_may_follow_in_time(epochs, decay, inner, outer, is_told):
    text = ONCE.format(epochs=epochs, decay=decay, inner=inner, outer=outer)
    assert bool(told(slips.AVERAGED, text)) == is_told
