"""Classes that a classmethod of their own makes, named as the entry or found for the class."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from made_subjects import CONFIG, evidence  # noqa: E402

from conformance.adapters import SpecificationError  # noqa: E402

ASSEMBLED = (
    CONFIG
    + """
class GPT(nn.Module):
    def __init__(self, words, blocks):
        super().__init__()
        self.words, self.blocks = words, nn.ModuleList(blocks)

    @classmethod
    def from_config(cls, cfg: GPTConfig):
        blocks = [nn.Linear(cfg.n_embd, cfg.n_embd) for _ in range(cfg.n_layer)]
        return cls(nn.Embedding(cfg.vocab_size, cfg.n_embd), blocks)

    @classmethod
    def from_pretrained(cls, name):
        raise AssertionError("it was called")

    @classmethod
    def restored(cls, path="gpt.pt"):
        model = cls(nn.Embedding(2, 2), [])
        model.load_state_dict(torch.load(path))
        return model

    @classmethod
    def trained(cls, steps=3):
        return steps
"""
)
LOADED = "def make():\n    return GPT.from_config(GPTConfig(n_layer=5))\n"


def test_a_classmethod_is_an_entry(made):
    found = made("GPT.from_config", ASSEMBLED)
    assert len(found.fresh().blocks) == 3
    assert found.name == "GPT.from_config"
    assert "GPT.from_config(cfg=GPTConfig(...))" in evidence(found)


def test_a_class_whose_parts_nothing_tells_is_made_by_its_classmethod(made):
    assert "GPT.from_config: small sizes by the names" in evidence(made("GPT", ASSEMBLED))


def test_the_user_s_own_call_of_a_classmethod_is_taken(made):
    found = made("GPT", ASSEMBLED + "if __name__ == '__main__':\n    GPT.from_config(GPTConfig(n_layer=4))\n")
    assert len(found.fresh().blocks) == 4


def test_the_call_of_another_class_s_method_of_that_name_is_not_taken(made):
    other = "class Other(GPT):\n    pass\nclass Third:\n    pass\nThird.from_config(GPTConfig(n_layer=7)) if 0 else 0\n"
    assert len(made("GPT", ASSEMBLED + other).fresh().blocks) == 3


def test_a_function_that_returns_what_a_classmethod_makes_is_one_that_makes_modules(made):
    assert len(made("make", ASSEMBLED + LOADED).fresh().blocks) == 5


def test_a_classmethod_that_makes_none_or_reads_a_file_is_never_called_for_a_class(made):
    text = ASSEMBLED.replace("return cls(nn.Embedding(cfg", "return dict(nn.Embedding(cfg")
    with pytest.raises(SpecificationError, match="write its arguments out"):
        made("GPT", text)


def test_a_classmethod_that_says_nothing_of_a_module_is_not_run(made):
    with pytest.raises(SpecificationError) as caught:
        made("GPT.trained", ASSEMBLED)
    assert "GPT.trained is a function, and nothing in it says that it returns an nn.Module" in str(caught.value)
    assert '--impl "model.py:GPT.trained()"' in str(caught.value)
