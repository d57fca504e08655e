"""The model's graph in the report: which results a box reads, and what is left out."""

import inspect

import torch
from torch import nn

from conformance.adapters.whole import graph
from conformance.adapters.whole.graph import graph_of
from conformance.adapters.whole.record import record


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.map = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x):
        return x + self.map(self.norm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(5, 4), nn.Embedding(9, 4)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return x


def boxes_of(model):
    run = record(model, lambda: model(torch.tensor([[1, 2, 3]])))
    return {box.path: box for box in graph_of(run, {"norm": [call for call in run.calls if "norm" in call.path]})}


def test_a_box_reads_the_results_that_its_input_is_made_of():
    boxes = boxes_of(Model())
    words, places, first = (boxes[name].number for name in ("words", "places", "blocks.0"))
    assert boxes["words"].reads == (-1,)
    assert boxes["places"].reads == ()  # its positions are made inside
    assert boxes["blocks.0"].reads == (words, places)
    assert boxes["blocks.1"].reads == (first,)
    assert boxes[""].ends == (boxes["blocks.1"].number,)


def test_a_residual_is_an_end_of_its_own():
    boxes = boxes_of(Model())
    assert boxes["blocks.0.map"].reads == (boxes["blocks.0.norm"].number,)
    assert boxes["blocks.0"].ends == (-1, boxes["blocks.0.map"].number)


def test_what_stands_in_a_block_like_an_earlier_one_is_left_out():
    boxes = boxes_of(Model())
    assert (boxes["blocks.0"].like, boxes["blocks.1"].like) == ("", "blocks.0")
    assert "blocks.1.norm" not in boxes


def test_the_deepest_boxes_of_a_large_graph_are_left_out(monkeypatch):
    monkeypatch.setattr(graph, "MOST", 5)
    assert set(boxes_of(Model())) == {"", "words", "places", "blocks.0", "blocks.1"}


def test_a_box_says_where_its_class_stands_and_what_it_plays():
    box = boxes_of(Model())["blocks.0"].to_json({Block: ["decoder_layer"]})
    assert (box["cls"], box["roles"], box["given"], box["gave"]) == ("Block", ["decoder_layer"], "1x3x4", "1x3x4")
    assert box["file"] == __file__
    assert inspect.getsource(inspect.getmodule(Block)).splitlines()[box["first"] - 1] == "class Block(nn.Module):"
    norm = boxes_of(Model())["blocks.0.norm"]
    assert norm.shows == ("norm",)
    assert norm.to_json({})["file"] == ""  # torch's own
