"""Masked language modelling: what `mask_tokens` selects, writes and asks for."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
from transformer.training import mask_tokens

IDS = mg.tensor(np.random.default_rng(0).integers(3, 50, (40, 50)))


def masked(seed=0, **settings):
    given, labels = mask_tokens(IDS, 50, 1, generator=mg.Generator(seed), **settings)
    return given.numpy(), labels.numpy()


def test_only_selected_tokens_change_and_have_labels():
    given, labels = masked(rate=0.4)
    selected = labels != -100
    assert 0.35 < selected.mean() < 0.45
    np.testing.assert_array_equal(labels[selected], IDS.numpy()[selected])
    np.testing.assert_array_equal(given[~selected], IDS.numpy()[~selected])
    assert 0.75 < (given[selected] == 1).mean() < 0.85


def test_shares_decide_what_becomes_of_the_selected():
    given, labels = masked(rate=1.0, mask_share=0.0, random_share=1.0)
    assert (labels == IDS.numpy()).all()
    assert given.min() >= 0
    assert given.max() < 50
    assert (given != IDS.numpy()).mean() > 0.9
    assert (masked(rate=1.0, mask_share=1.0, random_share=0.0)[0] == 1).all()


def test_special_tokens_are_never_selected():
    special = (3, 4, 5)
    given, labels = masked(rate=1.0, mask_share=1.0, random_share=0.0, special_ids=special, ignore_index=-1)
    np.testing.assert_array_equal(labels == -1, np.isin(IDS.numpy(), special))
    np.testing.assert_array_equal(given == 1, ~np.isin(IDS.numpy(), special))


def test_the_generator_decides():
    np.testing.assert_array_equal(masked(seed=3), masked(seed=3))
    assert (masked(seed=3)[1] != masked(seed=4)[1]).any()


@pytest.mark.parametrize("settings", [{"rate": 1.5}, {"mask_share": 0.8, "random_share": 0.3}, {"random_share": -0.1}])
def test_what_is_no_probability_is_refused(settings):
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        masked(**settings)
