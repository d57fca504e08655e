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
