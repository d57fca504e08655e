"""What a model is meant to be, which keys of its parameters are read beside forward, and configs that are guessed."""

import copy
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import conformance.checks  # noqa: F401
from conformance.adapters import Specification
from conformance.adapters.whole.configs import Guessed
from conformance.adapters.whole.implementation import PointedImplementation
from conformance.adapters.whole.kinds import _CAUSAL, _TWO_WAY, _TWO_WAY_CODE, _built, _names, _shifted
from conformance.check import CHECKS
from conformance.runner import run_check
from conformance.verdict import Verdict


@pytest.mark.parametrize(
    ("name", "says"),
    {"SparMoELM": True, "RWKVLM": True, "CharLM": True, "TinyMLM": False, "Film": False}.items(),
)
def test_a_name_that_ends_with_lm_is_that_of_a_language_model(name, says):
    assert _names(_CAUSAL, name) is says


@pytest.mark.parametrize("name", ["MaskedTokenModel", "MaskedWords", "MaskedAttention", "MaskedEncoder"])
def test_a_name_of_masked_words_is_that_of_a_masked_model(name):
    assert _names(_TWO_WAY, name) is name.startswith(("MaskedT", "MaskedW"))


@pytest.mark.parametrize(
    ("text", "says"),
    [("An encoder for masked-token pre-training.", True), ("The loss leaves masked tokens out.", False)],
)
def test_what_is_trained_on_masked_words_is_told_from_what_leaves_them_out(text, says):
    assert bool(re.search(_TWO_WAY_CODE, text, re.IGNORECASE)) is says


class ShiftsItsLabels(nn.Module):
    def forward(self, ids, labels):
        scores = self.head(ids)
        return F.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


class KeepsItsLabels(nn.Module):
    def forward(self, ids, labels):
        return F.cross_entropy(self.head(ids)[:, :-1].flatten(0, 1), labels[:, :-1].flatten())


@pytest.mark.parametrize(("cls", "says"), [(ShiftsItsLabels, True), (KeepsItsLabels, False)])
def test_a_shifted_loss_says_that_a_model_predicts_what_follows(cls, says):
    assert bool(list(_shifted(cls()))) is says


def test_a_copy_of_a_guessed_config_goes_on_guessing():
    config = copy.deepcopy(Guessed())
    assert (config["vocab_size"], config["ignore_index"], config.aux_weight) == (37, -100, 0.01)
    with pytest.raises(KeyError, match="zorgs"):
        config["zorgs"]


class Stored(nn.Module):
    """A classifier whose parameters stand in one dict. `loss` reads a scale that forward does not."""

    second = "norm2"

    def __init__(self, vocab_size=30, width=16):
        super().__init__()
        self.store = nn.ParameterDict({"table": torch.randn(vocab_size, width), "scale": torch.ones(())})
        self.store |= {f"norm{i}": torch.ones(width) for i in (1, 2)}

    def forward(self, ids):
        x = F.layer_norm(self.store["table"][ids], (16,), self.store["norm1"])
        return F.layer_norm(x.tanh() + x, (16,), self.store[self.second]).mean(1)

    def loss(self, ids, others):
        return F.cross_entropy(self(ids) @ self(others).T * self.store["scale"], torch.arange(len(ids)))


class StoredAndReused(Stored):
    second = "norm1"


class StoredAndHandedOn(StoredAndReused):
    def loss(self, ids, others):
        return contrast(self.store, self(ids), self(others))


def contrast(store, one, other):
    return (one @ other.T * store["norm2"].sum()).mean()


@pytest.mark.parametrize(
    ("cls", "verdict"),
    [(Stored, Verdict.PASS), (StoredAndReused, Verdict.FAIL), (StoredAndHandedOn, Verdict.PASS)],
)
def test_of_a_dict_of_parameters_only_keys_that_are_read_elsewhere_are_excused(cls, verdict):
    pointed = PointedImplementation(cls, Specification("", __name__, cls.__name__))
    result = run_check(CHECKS["model-every-parameter-gets-a-gradient"], pointed)
    assert result.verdict is verdict
    assert verdict is Verdict.PASS or result.got == "none for store.norm2"


def test_a_triangle_is_found_beside_a_sparse_table():
    module = torch.nn.Module()
    module.register_buffer("table", torch.eye(3).to_sparse())
    module.register_buffer("mask", torch.ones(4, 4).tril())
    assert [*_built(module)] == [(2, "the buffer mask is a triangle")]


RESIDUES = """
class LMHead(nn.Module):
    def __init__(self, width, words):
        super().__init__()
        self.out = nn.Linear(width, words)

    def forward(self, x):
        return self.out(x)


class Residues(nn.Module):
    def __init__(self, words=25, width=16):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True)
        self.head = LMHead(width, words)

    def forward(self, tokens):
        return self.head(self.layer(self.embed(tokens)))


def {loss}(logits, labels):
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
"""


@pytest.mark.parametrize(
    ("loss", "kind"),
    [("mlm_loss", "masked_language_model"), ("unmask_tokens", "masked_language_model"), ("loss_of", "")],
)
def test_a_loss_of_hidden_words_beside_a_model_says_what_it_is(made, loss, kind):
    from conformance.adapters.whole.model import whole_model

    assert whole_model(made("Residues", "from torch import nn\n" + RESIDUES.format(loss=loss))).kind == kind
