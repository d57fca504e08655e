"""Where rows end and where their places begin, by the text of a file: what is told, and what is right."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import ends as slips

CHAIN = """
class Chain(nn.Module):
    def score(self, emit, tags, {given}):
        last = lengths_of({given}) - 1
        return emit.sum() + self.{end}[{column}]
"""


@pytest.mark.parametrize(
    ("given", "end", "column", "is_told"),
    [
        ("mask", "end", "tags[:, -1]", True),
        ("lengths", "end_transitions", "tags[-1]", True),
        ("mask", "end", "tags.gather(1, last[:, None])[:, 0]", False),
        ("mask", "start", "tags[:, -1]", False),
        ("scale", "end", "tags[:, -1]", False),  # all rows are whole
    ],
)
def test_the_score_of_a_path_ends_with_its_row(given, end, column, is_told):
    assert bool(told(slips.PATHS_END_IN_PADDING, CHAIN.format(given=given, end=end, column=column))) == is_told


READER = """
class Config:
    vocab_size: int = {vocab}
    eot_id: int = {end}

class Reader(nn.Module):
    def forward(self, {name}):
        return self.table({name})[torch.arange(len({name})), {found}]
"""


@pytest.mark.parametrize(
    ("vocab", "end", "name", "found", "is_told"),
    [
        (300, 2, "ids", "ids.argmax(dim=-1)", True),
        (300, 2, "input_ids", "input_ids.argmax(-1)", True),
        (300, 299, "ids", "ids.argmax(dim=-1)", False),  # no word has a larger one
        (300, 2, "ids", "(ids == 2).int().argmax(-1)", False),
        (300, 2, "logits", "logits.argmax(-1)", False),
    ],
)
def test_the_end_of_a_text_is_looked_for_by_its_id(vocab, end, name, found, is_told):
    text = READER.format(vocab=vocab, end=end, name=name, found=found)
    assert bool(told(slips.LARGEST_FOR_END, text)) == is_told
    assert not told(slips.LARGEST_FOR_END, f"{text}\n\ndef pooled(x, ids, eos_id, by='argmax'):\n    return x\n")


PLACES = """
class Places(nn.Module):
    def __init__(self, width, pad_id={pad}):
        self.{table} = nn.Embedding(64, width, padding_idx={row})

    def forward(self, mask):
        places = {places}
        return self.{table}(places)
"""


@pytest.mark.parametrize(
    ("pad", "table", "row", "places", "is_told"),
    [
        (1, "positions", "pad_id", "torch.cumsum(mask, 1) * mask", True),
        (1, "pos", "2", "mask.cumsum(1)", True),
        (1, "positions", "pad_id", "torch.cumsum(mask, 1) * mask + pad_id", False),
        (0, "positions", "pad_id", "torch.cumsum(mask, 1) * mask", False),
        (1, "segments", "pad_id", "torch.cumsum(mask, 1) * mask", False),
        (1, "positions", "pad_id", "torch.arange(64)", False),
    ],
)
def test_places_begin_behind_the_row_of_padding(pad, table, row, places, is_told):
    text = PLACES.format(pad=pad, table=table, row=row, places=places)
    assert bool(told(slips.PLACES_OF_PADDING, text)) == is_told


FILLED = """
def left_pad(texts):
    width = max(len(text) for text in texts)
    ids = torch.zeros(len(texts), width)
    for row, text in enumerate(texts):
        ids[row, {side}] = torch.tensor(text)
    mask = (ids != 0).long()
    {name} = {places}
    return ids, {name}
"""


@pytest.mark.parametrize(
    ("side", "name", "places", "is_told"),
    [
        ("width - len(text):", "pos", "torch.arange(width).expand(len(texts), -1)", True),
        ("-len(text):", "position_ids", "torch.arange(width)", True),
        ("width - len(text):", "pos", "(mask.cumsum(1) - 1).clamp(min=0)", False),
        (": len(text)", "pos", "torch.arange(width).expand(len(texts), -1)", False),
        ("width - len(text):", "columns", "torch.arange(width)", False),
    ],
)
def test_places_begin_with_the_text(side, name, places, is_told):
    text = FILLED.format(side=side, name=name, places=places)
    assert bool(told(slips.PLACES_FROM_THE_EDGE, text)) == is_told


WRITTEN = """
def pad_batch(rows, value, {default}):
    return filled(rows, value)

def written(model, prompts):
    ids = pad_batch(prompts, 0{side})
    return model.{method}(input_ids=ids, max_new_tokens=9)
"""


@pytest.mark.parametrize(
    ("default", "side", "method", "is_told"),
    [
        ('side="right"', "", "generate", True),
        ("left=False", "", "generate", True),
        ('side="right"', ', "left"', "generate", False),
        ("left=False", ", left=True", "generate", False),
        ('side="left"', "", "generate", False),
        ('side="right"', "", "score", False),
    ],
)
def test_texts_are_written_on_behind_words(default, side, method, is_told):
    text = WRITTEN.format(default=default, side=side, method=method)
    assert bool(told(slips.PADDED_BEHIND, text)) == is_told
    assert not told(slips.PADDED_BEHIND, f"from transformers import T5Config\n{text}")
