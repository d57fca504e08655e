"""A function that a loader is given as `collate_fn` makes batches, whatever its name."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from made_subjects import ENCODER  # noqa: E402

from conformance.adapters.helpers.beside import functions_beside, objects_beside  # noqa: E402
from conformance.adapters.helpers.examining import examine  # noqa: E402

PADDED = "padded-batches-keep-their-texts"
FILE = (
    ENCODER
    + """
def glue(batch, pad=0):
    longest = max(map(len, batch))
    return torch.tensor([{words} + [pad] * (longest - len(text)) for text in batch])

class Gluing:
    def __call__(self, batch):
        return glue(batch)
"""
)


@pytest.mark.parametrize(
    "loader",
    [
        "DataLoader(texts, batch_size=2, collate_fn=model.glue)",
        "DataLoader(texts, batch_size=2, collate_fn=lambda rows: glue(rows, 1))",
        "DataLoader(texts, collate_fn=functools.partial(glue, pad=1))",
    ],
)
@pytest.mark.parametrize(("words", "claims"), [("text", []), ("text[::-1]", [PADDED])])
def test_what_a_loader_is_given_makes_batches(made, loader, words, claims):
    model = made("Encoder", FILE.replace("{words}", words), {"train.py": loader}).fresh()
    found = examine([one for one in functions_beside(type(model), model, {}) if one.__name__ == "glue"])
    assert list(found.tested) == [PADDED]
    assert [one.claim for one in found.wrong] == claims


def test_an_object_is_given_by_its_class(made):
    text = FILE.replace("{words}", "text")
    model = made("Encoder", text, {"train.py": "DataLoader(texts, collate_fn=Gluing())"}).fresh()
    objects = objects_beside(type(model), model, {})
    assert [one.__name__ for one in objects] == ["gluing"]
    assert list(examine(objects).tested) == [PADDED]


def test_what_no_loader_is_given_is_not_taken_for_one_that_makes_batches(made):
    text = FILE.replace("{words}", "text")
    model = made("Encoder", text, {"train.py": "DataLoader(texts, collate_fn=glue_others)"}).fresh()
    assert objects_beside(type(model), model, {}) == []
    assert examine(functions_beside(type(model), model, {})).tested == {}
