"""Published models that go on to learn: what `train --base FOLDER` trains where the folder is a published one.

Such a run keeps its base's settings and tokenizer in a folder of its own, `published`, so that it needs the base no
more. When training ends, the weights are written there too, adapters merged: other libraries read that folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from minigrad import nn
from transformer import checkpoints
from transformer.data.published import Words, copy_words
from transformer.lora import AdaptSettings, LoRALinear, adapt, merge
from transformer.models.base import CausalLM
from transformer.models.text_encoder import TextEncoder
from transformer.quantization import is_quantized
from transformer.tasks import MASKED, TEXT, MaskedTask, ModelSettings, TextTask, Windows, text_of
from transformer.training import checkpoint

FOLDER = "published"


def folder_of(path: Path) -> Path | None:
    """Where the settings and the tokenizer of a published model are: `path`, or the part of a run; None if nowhere."""
    return next((each for each in (path, path / FOLDER) if (each / checkpoints.CONFIG).is_file()), None)


def task_name(model: Any, path: Path) -> str:
    """What a published model can learn. Raises ValueError for one that can learn no text."""
    if isinstance(model, CausalLM):
        return TEXT
    if isinstance(model, TextEncoder) and model.head == "masked-lm":
        return MASKED
    raise ValueError(
        f"{path} is a {model.architecture()}: only models that continue texts or find hidden tokens learn a text here"
    )


def begin(path: Path, settings: ModelSettings, seed: int) -> PublishedTask:
    """The task that trains the model at `path`: a published folder, or a run that began with one.

    Raises ValueError where the model cannot be used, learns no text, or reads fewer than max_len tokens.
    """
    found = checkpoints.load(path) if (path / checkpoints.CONFIG).is_file() else trained(path, None)
    return _task(found, path, settings, seed)


def resume(run: Path, settings: ModelSettings, seed: int) -> PublishedTask:
    """The task of a run that began with a published model, whose weights are to be loaded yet."""
    return _task(checkpoints.without_weights(run / FOLDER), run, settings, seed)


def trained(run: Path, settings: AdaptSettings | None) -> Any:
    """The model of a run that began with a published one, adapters merged; settings: the run's, read unless given."""
    model = checkpoints.without_weights(run / FOLDER)
    adapt_published(model, settings or AdaptSettings(**_adapted(checkpoint.notes(run)["settings"])))
    model.load_state_dict(checkpoint.model_weights(run))
    merge(model)
    return model.eval()


def adapt_published(model: Any, settings: AdaptSettings) -> None:
    """As `transformer.lora.adapt`. Raises ValueError, too, for adapters of a head that is the table of embeddings."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    adapt(model, settings)
    for path, layer in model.named_modules():
        if isinstance(layer, LoRALinear) and id(layer.weight) in tables:
            raise ValueError(
                f"{path} is one matrix with the embeddings, and gets no adapter: name others in lora_layers"
            )


def keep(task: PublishedTask, run: Path) -> None:
    """Write what the run needs of its base: settings and tokenizer."""
    (run / FOLDER).mkdir(exist_ok=True)
    checkpoints.save_settings(task.model, run / FOLDER)
    copy_words(task.tokenizer.words.folder, run / FOLDER)


def finish(run: Path) -> Path:
    """Write the weights beside settings and tokenizer, adapters merged; returns that folder, which is published."""
    checkpoints.save(trained(run, None), run / FOLDER)
    return run / FOLDER


def _adapted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in AdaptSettings.__dataclass_fields__}


class Tokens:
    """A published tokenizer as training uses one: without the tokens that go around a text."""

    def __init__(self, words: Words, vocab: int) -> None:
        self.words, self.vocab = words, vocab

    @property
    def mask_id(self) -> int:
        """The token that stands for a hidden one. Raises ValueError where the tokenizer has none."""
        for text in (self.words.special("mask_token"), "[MASK]", "<mask>"):
            found = None if text is None else self.words.tokenizer.token_to_id(text)
            if found is not None:
                return found
        raise ValueError(f"{self.words.folder}: its tokenizer has no mask token, so that no token can be hidden")

    def encode(self, text: str) -> list[int]:
        """The ids of a text. Raises ValueError for ids that the model does not have."""
        ids = self.words.encode(text, special=False)
        if ids and max(ids) >= self.vocab:
            raise ValueError(
                f"{self.words.folder}: its tokenizer gives the token {max(ids)}, and the model has {self.vocab}: they "
                "do not belong together"
            )
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids."""
        return self.words.decode(ids)

    def to_json(self) -> str:
        """Nothing: its files are in the run's folder."""
        return ""


class _OfModel(Windows):
    """A task whose model there is: `model`, with tokens of its own."""

    tokenizer: Tokens

    def __init__(self, text: str, sizes: ModelSettings, seed: int, tokens: Tokens, model: Any) -> None:
        self.model = model
        super().__init__(text, sizes, seed, tokens)

    def _make_model(self, vocab: int, sizes: ModelSettings) -> Any:
        return self.model


class PublishedText(_OfModel, TextTask):
    """A published decoder learns a text: the next token."""


class PublishedMasked(_OfModel, MaskedTask):
    """A published encoder learns a text: tokens that are hidden."""


PublishedTask = PublishedText | PublishedMasked


def _task(model: Any, path: Path, settings: ModelSettings, seed: int) -> PublishedTask:
    if is_quantized(model):
        raise ValueError(
            f"{path} holds weights in fewer bytes, which are used and not trained: name what it was made of"
        )
    kind = PublishedText if task_name(model, path) == TEXT else PublishedMasked
    if settings.max_len > model.max_len:
        raise ValueError(f"{path} reads {model.max_len} tokens: max_len must not be above, got {settings.max_len}")
    words = Words(folder_of(path) or path)
    return kind(text_of(settings), settings, seed, Tokens(words, model.config.vocab_size), model)
