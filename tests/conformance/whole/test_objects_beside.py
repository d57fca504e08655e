"""Collators and other plain classes beside a model: made of what the model and its file say, judged as functions."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("torch")

from made_subjects import ENCODER

from conformance.adapters.helpers.beside import functions_beside, objects_beside
from conformance.adapters.helpers.configured import Configured
from conformance.adapters.helpers.examining import examine

FILE = """
    from dataclasses import dataclass

    MASK_ID = 4

    @dataclass
    class Config:
        vocab_size: int = 60
        pad_id: int = 0

    class Encoder(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config, self.embedding = config, nn.Embedding(config.vocab_size, 8)

        def forward(self, ids):
            return self.embedding(ids)

    class MaskingCollator:
        def __init__(self, config: Config, mask_id, mlm_probability=0.15):
            self.config, self.mask_id, self.mlm_probability = config, mask_id, mlm_probability

        def __call__(self, batch):
            longest = max(len(text) for text in batch)
            input_ids = torch.full((len(batch), longest), self.config.pad_id)
            attention_mask = torch.zeros_like(input_ids)
            for row, text in enumerate(batch):
                input_ids[row, : len(text)] = torch.as_tensor(text)
                attention_mask[row, : {end}] = 1
            return dict(input_ids=input_ids, attention_mask=attention_mask)

    class Trainer:
        def __init__(self, model, optimizer):
            raise AssertionError("nothing here has such names")

        def get_batch(self, batch_size):
            raise AssertionError
"""
MASKING = """
    MASK_ID = 4

    class Encoder(nn.Module):
        def __init__(self, vocab_size=60, pad_id=0):
            super().__init__()
            self.vocab_size, self.pad_id = vocab_size, pad_id
            self.embedding = nn.Embedding(vocab_size, 8)

        def forward(self, ids):
            return self.embedding(ids)

    class DataCollatorForMLM:
        def __init__(self, vocab_size, pad_id, mask_id=MASK_ID, probability=0.15):
            self.vocab_size, self.pad_id, self.mask_id, self.probability = vocab_size, pad_id, mask_id, probability

        def __call__(self, examples):
            ids = nn.utils.rnn.pad_sequence([torch.tensor(e["input_ids"]) for e in examples], True, self.pad_id)
            labels = ids.clone()
            chosen = (torch.rand(ids.shape) < self.probability) & (ids != self.pad_id)
            labels[{left}] = -100
            draw = torch.rand(ids.shape)
            words = ids.masked_fill(chosen & (draw < 0.8), self.mask_id)
            other = chosen & (draw >= 0.8) & (draw < 0.9)
            words[other] = torch.randint(5, self.vocab_size, ids.shape)[other]
            return {"input_ids": words, "attention_mask": (ids != self.pad_id).long(), "labels": labels}
"""
PADDED = "padded-batches-keep-their-texts"


@pytest.mark.parametrize(("end", "claims"), [("len(text)", []), ("longest", [PADDED])])
def test_a_collator_is_made_of_the_models_settings_and_the_files_constants(made, end, claims):
    model = made("Encoder", FILE.replace("{end}", end)).fresh()
    objects = objects_beside(type(model), model, {})
    assert [one.__name__ for one in objects] == ["masking_collator"]
    assert (objects[0].__self__.mask_id, objects[0].__self__.config) == (4, model.config)
    found = examine(objects)
    assert PADDED in found.tested
    assert [one.claim for one in found.wrong] == claims
    assert all("model.py:" in one.place for one in found.wrong)


def test_what_a_collator_requires_is_an_option_of_the_model_or_a_small_size(made):
    kept = "self.config, self.mask_id, self.mlm_probability = config, mask_id, mlm_probability"
    text = FILE.replace("{end}", "len(text)").replace(
        kept, "self.config, self.dim, self.longest = config, dim, max_length"
    )
    text = text.replace("mask_id, mlm_probability=0.15", "dim, max_length")
    model = made("Encoder", text).fresh()
    (collate,) = objects_beside(type(model), model, {"dim": 9})
    assert (collate.__self__.dim, type(collate.__self__.longest)) == (9, int)


def test_a_class_that_wants_what_nothing_has_is_left_alone(made):
    model = made("Encoder", FILE.replace("mask_id", "lexicon")).fresh()
    assert "Trainer" in vars(sys.modules[type(model).__module__])
    assert objects_beside(type(model), model, {}) == []


MASKED = "masked-words-are-what-is-taught"


@pytest.mark.parametrize(("left", "claims"), [("~chosen", []), ("chosen", [MASKED])])
def test_a_collator_that_masks_words(made, left, claims):
    model = made("Encoder", MASKING.replace("{left}", left)).fresh()
    found = examine(objects_beside(type(model), model, {}))
    assert MASKED in found.tested
    assert [one.claim for one in found.wrong] == claims


CONFIGURED = """
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Config:
        vocab_size: int
        mask_id: int = 3
        rate: float = 0.15
        special_ids: tuple = (0, 1, 2, 3)

    class Encoder(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.{kept} = config
            self.embedding = nn.Embedding(config.vocab_size, 8)

        def forward(self, ids):
            return self.embedding(ids)

    def mask_tokens(ids, config: Config):
        labels, corrupted = ids.clone(), ids.clone()
        chance = torch.full(ids.shape, config.rate)
        chance[torch.isin(ids, torch.tensor(config.special_ids))] = 0.0
        chosen = torch.bernoulli(chance).bool()
        labels[{left}] = -100
        draw = torch.rand(ids.shape)
        corrupted[chosen & (draw < 0.8)] = config.mask_id
        drawn = chosen & (draw > 0.9)
        corrupted[drawn] = torch.randint(4, config.vocab_size, ids.shape)[drawn]
        return corrupted, labels

    def describe(config: Config = None):
        return str(config)

    class Kept:
        detach = staticmethod(torch.Tensor.detach)
"""


@pytest.mark.parametrize(
    "kept", ["config", "unnamed"]
)  # as it is told by the model, or by what the model was made with
@pytest.mark.parametrize(
    ("left", "claims", "mend"), [("~chosen", [], ""), ("chosen", [MASKED], "labels[~chosen] = -100")]
)
def test_a_function_that_takes_its_settings_in_a_config_gets_the_models(made, kept, left, claims, mend):
    text = CONFIGURED.replace("{left}", left).replace(
        "self.{kept} = config", "self.config = config" * (kept == "config")
    )
    source = made("Encoder", text)
    functions = functions_beside(source.fresh().__class__, source.fresh(), source.options)
    mask, describe, detach = functions
    assert detach.__qualname__ == "TensorBase.detach"  # torch tells nobody what it takes
    assert isinstance(mask, Configured)
    assert not isinstance(describe, Configured)
    found = examine([mask])
    assert MASKED in found.tested
    assert [one.claim for one in found.wrong] == claims
    assert [one.edit.text for one in found.wrong] == [mend] * len(claims)


ANNOTATED = (
    ENCODER
    + """
@dataclass
class DataConfig:
    pad_id: int = 3

def pad_batch(texts, told: DataConfig):
    longest = max(map(len, texts))
    return torch.tensor([text + [told.pad_id] * (longest - len(text)) for text in texts])

class Collator:
    def __init__(self, told: DataConfig):
        self.told = told

    def __call__(self, batch):
        return pad_batch(batch, self.told)
"""
)


def test_a_config_is_told_by_its_annotation_whatever_the_name_of_its_parameter(made):
    model = made("Encoder", ANNOTATED).fresh()
    (collate,) = objects_beside(type(model), model, {})
    (pad,) = (one for one in functions_beside(type(model), model, {}) if one.__name__ == "pad_batch")
    assert collate.__self__.told.pad_id == 3
    assert pad([[1, 2], [4]]).tolist() == [[1, 2], [4, 3]]
    assert list(examine([pad, collate]).tested) == [PADDED]
