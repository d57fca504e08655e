"""One row as two subjects of the claims about whole models, with the same weights: ours on minigrad, theirs on torch.

Both are called with what is told here, and nothing is inferred: which parameter of forward gets the ids, and which
says what is padding. The weights are ours, moved at random, and go to the library through the files that we save.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

import minigrad as mg
from conformance.adapters.whole.calling import Calling, Input, T, first_data, quiet_evaluation
from conformance.adapters.whole.layout_search import layout_of
from conformance.adapters.whole.making import Made
from conformance.adapters.whole.masking import Mask, real_tokens
from conformance.adapters.whole.model import WholeModel, in_double, moved
from conformance.adapters.whole.of_minigrad import OnTorch, on_torch
from conformance.adapters.whole.sizes import Sized, Sizing
from conformance.protocol import NotProvided
from tools.families.ours import OfImages, OfPairs, OfSound, OfText, Taught
from tools.families.rows import Row
from tools.families.theirs import beside
from transformer.checkpoints import save


@dataclass(frozen=True)
class Words:
    """What forward's parameters are called: of one sequence, of what says which of its tokens are real and of which of
    two texts they are, of a cache, of labels; of two sequences, of images, of frames. "" where the token itself tells
    padding."""

    ids: str
    real: str
    types: str
    cache: str
    labels: str
    source: str
    target: str
    real_source: str
    images: str
    frames: str


OURS = Words("ids", "real", "types", "cache", "labels", "src", "tgt", "", "images", "src")
THEIRS = Words(
    "input_ids", "attention_mask", "token_type_ids", "past_key_values", "labels", "input_ids", "decoder_input_ids",
    "attention_mask", "pixel_values", "input_features",
)  # fmt: skip


@dataclass(frozen=True)
class Side:
    """An implementation that is one whole model."""

    name: str
    whole: WholeModel

    @property
    def kind(self) -> str:
        return self.whole.kind

    def build(self, role: str, config: Mapping[str, Any]) -> WholeModel:
        """A copy of it. Raises NotProvided for a role that is not its own."""
        if role not in ("module", "model", self.kind):
            raise NotProvided(f"{self.name} is no {role.replace('_', ' ')}")
        return self.whole.twin()


def ours(row: Row) -> Side:
    """The row on minigrad, its weights moved at random."""
    made = _made(row, OnTorch, lambda settings: on_torch(_family(row, settings)))
    return _side("minigrad", row, made, moved(made.fresh()), OURS)


def theirs(row: Row, weights: Side, folder: Path, library: ModuleType) -> Side:
    """The row in the library `transformers`, with the weights of our side, which go through files in `folder`."""
    published = getattr(library, row.architecture)
    cls = beside(published)
    made = _made(row, cls, lambda settings: cls(cls.config_class(**settings)))
    given = weights.whole.twin(torch.float32)
    given(**given.example())  # now minigrad has torch's numbers
    own = given.module.minigrad
    save(own.model if isinstance(own, Taught) else own, folder)
    module = made.fresh()
    module.load_state_dict(
        published.from_pretrained(folder).state_dict()
    )  # itself, it would train what its class has frozen
    return _side(library.__name__, row, made, module, THEIRS)


def _family(row: Row, settings: Mapping[str, Any]) -> mg.nn.Module:
    mg.manual_seed(torch.initial_seed())
    plain = {name: int(value) if isinstance(value, Sized) else value for name, value in settings.items()}
    config = row.family.config_class.from_dict(plain)
    model: mg.nn.Module = row.family(config, **row.family.architectures[row.architecture])
    if not row.has_loss:
        return model
    if row.hears:
        return OfSound(model)
    taught = OfImages if row.sees else OfPairs if row.kind == "sequence_to_sequence" else OfText
    return taught(model, shifts=row.kind == "language_model")


def _made(row: Row, cls: type[nn.Module], build: Callable[[dict[str, Any]], nn.Module]) -> Made:
    def make(sizing: Sizing) -> nn.Module:
        return build({name: sizing.of(name, value) for name, value in row.settings.items()})

    return Made(row.architecture, cls, [], make)


def _side(name: str, row: Row, made: Made, module: nn.Module, words: Words) -> Side:
    calling = _calling(row, words)
    data = first_data(calling, T)
    with quiet_evaluation(module):
        found = layout_of(calling, data, module(**calling.arguments(data)))
    if found is None:
        raise ValueError(f"{row.architecture} on {name} gives no answer of a layout that is known")
    pad = None if row.hears else row.given.get("pad_token_id")  # of what it writes nothing is hidden
    return Side(name, in_double(WholeModel(made, module.eval(), found, row.kind, [], pad)))


def _calling(row: Row, words: Words) -> Calling:
    given, labels = row.given, words.labels if row.has_loss else ""
    if row.sees:
        shape = (given["num_channels"], given["image_size"], given["image_size"])
        return Calling((Input("x", words.images, shape=shape),), labels=labels)
    vocab = given["vocab_size"]
    if row.kind == "sequence_to_sequence":
        inputs = Input("src", words.source, vocab), Input("tgt", words.target, vocab)
        pad = given["pad_token_id"]
        told = Mask(words.real_source, lambda inputs: inputs["src"] != pad, "True = no pad_token_id", own=True)
        return Calling(inputs, masks=(told,) if words.real_source else (), labels=labels)
    if row.hears:
        frames = partial(_frames, (given["num_mel_bins"], 2 * given["max_source_positions"]))
        return Calling((Input("ids", words.target, vocab),), fixed={words.frames: frames}, labels=labels)
    real = Mask(words.real, lambda inputs: real_tokens(inputs, "ids"), "True = real", keys="ids", when_padded=True)
    cache = words.cache if row.kind == "language_model" else ""
    types = words.types if row.takes_types else ""
    return Calling((Input("ids", words.ids, vocab),), masks=(real,), types=types, cache=cache, labels=labels)


def _frames(shape: tuple[int, int], inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """What is heard beside the words of every row."""
    heard = torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return heard.to(torch.get_default_dtype()).expand(len(inputs["ids"]), *shape)
