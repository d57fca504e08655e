"""The model as pytest-torch wants it: `build` for its checks without code, and its ModelSuite for what trains.

`build` gives `input_ids` and a padded `attention_mask` where the model hides padding: with these it tests padding too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pytest_torch import ModelSuite
from torch import Tensor, nn

from tools.rivals.given import Given, asked_for

NAMES = {"ids": "input_ids", "src": "input_ids", "tgt": "decoder_input_ids", "x": "x"}


def call_of(given: Given) -> Callable[..., Tensor]:
    """A function, which deep copies of the model share, from the module and its inputs by name to the answer."""
    padding, pad = given.padding(given.read), given.subject.pad_id

    def call(module: nn.Module, attention_mask: Tensor | None = None, **inputs: Tensor) -> Tensor:
        data = {one.meaning: inputs[NAMES[one.meaning]] for one in given.subject.calling.inputs}
        if attention_mask is not None:
            real = attention_mask.bool()
            if pad is not None and given.subject.padding_of(given.read) == "token":
                data[given.read] = data[given.read].masked_fill(~real, pad)
            data[padding] = real
        return given.run(module, data)["out"]

    return call


class Wrapped(nn.Module):
    """The model with the names of arguments that pytest-torch knows."""

    def __init__(self, given: Given) -> None:
        super().__init__()
        self.model = given.fresh()
        self.call = call_of(given)

    def forward(self, **inputs: Tensor) -> Tensor:
        return self.call(self.model, **inputs)


def inputs_of(given: Given, batch: int) -> dict[str, Tensor]:
    data = given.example(batch)
    inputs = {NAMES[name]: tensor for name, tensor in data.items()}
    if given.padding(given.read) and given.read != "x" and given.subject.free_length:
        mask = torch.ones(data[given.read].shape, dtype=torch.long)
        for row, lost in enumerate((0, 4, 8)):
            mask[row, mask.shape[1] - min(lost, mask.shape[1] // 2) :] = 0
        inputs["attention_mask"] = mask
    return inputs


def build() -> nn.Module:
    """A model for --torch-model, which asks it for its inputs."""
    given = asked_for()
    model = Wrapped(given)
    model.example_inputs = lambda batch: inputs_of(given, batch)
    return model


class TestTraining(ModelSuite):
    """Its checks of training, with the model's own loss where it has one.

    That one batch is learnt by heart in 200 steps is left out: it depends on the rate, and correct models with dropout
    fail it. For the same reason the loss gets 60 steps to fall, not 20.
    """

    checks = ("training",)
    check_options = {"loss_decreases": {"steps": 60}}
    test_overfits_one_batch = None

    def make_model(self) -> nn.Module:
        given = asked_for()
        return _Losing(given)

    def make_inputs(self, make_tensor: Any) -> dict[str, Tensor]:
        return asked_for().example()

    def loss(self, output: Tensor, inputs: Any) -> Tensor:
        return output


class _Losing(nn.Module):
    """The model whose answer is its loss."""

    def __init__(self, given: Given) -> None:
        super().__init__()
        self.model = given.fresh()
        self.call = lambda module, data: given.loss(module, data)

    def forward(self, **data: Tensor) -> Tensor:
        return self.call(self.model, data)
