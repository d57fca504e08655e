"""ModernBERT: how far a window reaches, what its pooling leaves out, and where it drops."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_families import small

import minigrad as mg
from transformer.finetuning import task_name
from transformer.models.modernbert import ModernBert

IDS = mg.tensor(np.random.default_rng(0).integers(1, 19, (2, 9)))


def changed(head, **settings):
    """The small model with other settings and this head, in evaluation mode."""
    mg.manual_seed(0)
    return ModernBert(replace(small("modernbert").config, initializer_range=0.5, **settings), head).double().eval()


@pytest.mark.parametrize(("width", "reach"), [(1, 0), (4, 2), (5, 2)])
def test_a_window_reaches_half_its_width_to_each_side(width, reach):
    model = changed(None, local_attention=width, layer_types=["sliding_attention"], num_hidden_layers=1)
    other = IDS.clone()
    other[:, 4] = mg.where(IDS[:, 4] == 3, 5, 3)
    apart = np.abs((model(other) - model(IDS)).detach().numpy()).max((0, 2)) > 0
    np.testing.assert_array_equal(apart, np.abs(np.arange(9) - 4) <= reach)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_padded_text_has_the_class_of_the_text_alone(pooling):
    model = changed("classification", classifier_pooling=pooling)
    padded = mg.cat([IDS, mg.zeros(2, 3, dtype=IDS.dtype)], 1)
    np.testing.assert_allclose(model(padded).detach(), model(IDS).detach(), rtol=1e-10)
    unpadded = changed("classification", classifier_pooling=pooling, pad_token_id=None)
    np.testing.assert_allclose(unpadded(IDS).detach(), unpadded(IDS, real=IDS > 0).detach(), rtol=1e-10)


@pytest.mark.parametrize("rate", ["embedding_dropout", "attention_dropout", "mlp_dropout", "classifier_dropout"])
def test_each_of_its_rates_drops_in_training_only(rate):
    model = changed("tagging", **{rate: 0.5})
    np.testing.assert_array_equal(model(IDS).detach(), model(IDS).detach())
    model.train()
    assert not np.array_equal(model(IDS).detach(), model(IDS).detach())


def test_a_published_modernbert_learns_to_find_hidden_tokens():
    assert task_name(changed("masked-lm"), Path("folder")) == "masked"
    with pytest.raises(ValueError, match="is a ModernBertForTokenClassification: only models that"):
        task_name(changed("tagging"), Path("folder"))


def test_more_tokens_than_it_was_trained_on_are_refused():
    with pytest.raises(ValueError, match="do not fit max_len 24"):
        changed(None)(mg.ones(1, 25, dtype=mg.int64))
