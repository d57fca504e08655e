"""Constructors that load weights which are not here: the module keeps the weights that it starts with.

A checkpoint of the author's lies on the author's disk, and pretrained weights in the network. No claim is about them:
each draws its own. So where a constructor asks for a file of weights that is not there, it gets nothing, and a module
that is told to load nothing stays as it is. A pretrained network of transformers is made from its configuration, with
few layers, its tokenizer knows few words, and a network of timm is made without its weights; what lies in the cache of
the user is taken from there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest.mock import patch

import torch
from torch import nn


class Absent(dict[Any, Any]):
    """What a file of weights that is not there holds: under every name nothing. Anything else that is done with it
    fails as the file would have."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def __missing__(self, key: Any) -> Absent:
        return self

    def get(self, key: Any, default: Any = None) -> Any:
        return self

    def pop(self, key: Any, default: Any = None) -> Any:
        return self

    def state_dict(self) -> Absent:
        return self

    def __call__(self, *given: Any, **words: Any) -> Any:
        raise FileNotFoundError(2, "No such file or directory", self.file)


@contextmanager
def absent_weights() -> Iterator[list[str]]:
    """Meanwhile weights that are not there are nothing; gives the list to which the names of their files are added."""
    load, fetch, fill = torch.load, torch.hub.download_url_to_file, nn.Module.load_state_dict
    absent: list[str] = []

    def loaded(file: Any, *given: Any, **words: Any) -> Any:
        if isinstance(file, (str, os.PathLike)) and not os.path.exists(file):
            absent.append(os.fspath(file))
            return Absent(absent[-1])
        return load(file, *given, **words)

    def fetched(url: str, target: str, *given: Any, **words: Any) -> None:
        try:
            fetch(url, target, *given, **words)
        except OSError:  # torch.load is asked for it next
            return

    def filled(module: nn.Module, state: Any, *given: Any, **words: Any) -> Any:
        if absent and not state:
            return nn.modules.module._IncompatibleKeys([], [])
        return fill(module, state, *given, **words)

    torch.load, torch.hub.download_url_to_file = loaded, fetched
    nn.Module.load_state_dict = filled
    try:
        with ExitStack() as stack:
            _stand_in_for_pretrained(stack, absent)
            yield absent
    finally:
        torch.load, torch.hub.download_url_to_file = load, fetch
        nn.Module.load_state_dict = fill


LAYERS, WORDS = 2, 1000
"""So many layers and words has a pretrained network that is not here. What reads its answer reads its width."""
_LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
)


def _stand_in_for_pretrained(stack: ExitStack, absent: list[str]) -> None:
    """Until the stack is closed, a pretrained network that is not here is made with weights of its own."""
    if (hub := sys.modules.get("huggingface_hub.constants")) is not None:
        stack.enter_context(patch.object(hub, "HF_HUB_OFFLINE", True))  # asks nobody, and waits for nobody
    if (transformers := sys.modules.get("transformers")) is not None:
        automatic: Any = sys.modules.get("transformers.models.auto.auto_factory")
        owners = [transformers.PreTrainedModel, *([automatic._BaseAutoModelClass] if automatic else [])]
        for owner in owners:
            stack.enter_context(patch.object(owner, "from_pretrained", _made_anew(owner, transformers, absent)))
        for owner in (transformers.PretrainedConfig, transformers.AutoConfig):
            stack.enter_context(patch.object(owner, "from_pretrained", _configured_anew(owner, transformers)))
        for owner in (transformers.PreTrainedTokenizerBase, transformers.AutoTokenizer):
            stack.enter_context(patch.object(owner, "from_pretrained", _numbered_anew(owner, transformers)))
    if (builder := sys.modules.get("timm.models._builder")) is not None:
        stack.enter_context(
            patch.object(builder, "load_pretrained", lambda *given, **words: absent.append("pretrained"))
        )


def _made_anew(owner: Any, transformers: Any, absent: list[str]) -> Any:
    """`from_pretrained` of a class: from the cache of the user, else from a configuration of its kind."""
    load: Callable[..., Any] = owner.from_pretrained.__func__

    def from_pretrained(cls: Any, name: Any, *given: Any, **words: Any) -> Any:
        try:
            return load(cls, name, *given, **{**words, "local_files_only": True})
        except OSError as error:
            settings = {key: value for key, value in words.items() if key.startswith("output_")}
            config = words.get("config") or _config_of(getattr(cls, "config_class", None), name, transformers, error)
            config.update({**_fewer(config), **settings})
            absent.append(str(name))
            return cls.from_config(config) if hasattr(cls, "from_config") else cls(config)

    return classmethod(from_pretrained)


_OF_FILES = re.compile(r"^_|cache_dir|force_|local_files|proxies|revision|subfolder|token$|trust_|user_agent|_kwargs$")
"""Options that say where and how files are fetched."""


def _configured_anew(owner: Any, transformers: Any) -> Any:
    """`from_pretrained` of a configuration: from the cache of the user, else one of its kind."""
    load: Callable[..., Any] = owner.from_pretrained.__func__

    def from_pretrained(cls: Any, name: Any, *given: Any, **words: Any) -> Any:
        try:
            return load(cls, name, *given, **{**words, "local_files_only": True})
        except OSError as error:
            config = _config_of(None if cls is transformers.AutoConfig else cls, name, transformers, error)
            known = {key: value for key, value in words.items() if hasattr(config, key)}
            config.update({**_fewer(config), **known})
            unused = {key: value for key, value in words.items() if key not in known and not _OF_FILES.search(key)}
            return (config, unused) if words.get("return_unused_kwargs") else config

    return classmethod(from_pretrained)


_SIGNS = {0: "pad", 100: "unk", 101: "cls", 102: "sep", 103: "mask", 104: "bos", 105: "eos"}
"""The special words of a tokenizer that is not here, by their numbers, which are BERT's where BERT has them."""


def _numbered_anew(owner: Any, transformers: Any) -> Any:
    """`from_pretrained` of a tokenizer: from the cache of the user, else one that numbers WORDS words."""
    load: Callable[..., Any] = owner.from_pretrained.__func__

    def from_pretrained(cls: Any, name: Any, *given: Any, **words: Any) -> Any:
        with suppress(OSError, ValueError):
            found = load(cls, name, *given, **{**words, "local_files_only": True})
            if len(found) > len(found.all_special_tokens):  # it may be made without any file, and knows no word then
                return found
        return tokenizer_of_numbers(transformers)

    return classmethod(from_pretrained)


def tokenizer_of_numbers(transformers: Any) -> Any:
    """A tokenizer that numbers WORDS words, with the special words of BERT and of those that write."""
    import tokenizers  # transformers needs it, too

    signs = {number: f"[{sign.upper()}]" for number, sign in _SIGNS.items()}
    known = {signs.get(number, f"word{number}"): number for number in range(WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token=signs[100]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = {f"{sign}_token": signs[number] for number, sign in _SIGNS.items()}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special)


def _config_of(kind: Any, name: Any, transformers: Any, error: OSError) -> Any:
    """A configuration of a kind; where any kind may be meant, of the longest that stands in the network's name. Raises
    OSError where none does."""
    if kind is not None:
        return kind()
    kinds = [one for one in transformers.CONFIG_MAPPING if one in str(name).lower().replace("_", "-")]
    if not kinds:
        raise OSError(f"{name} is not here, and its name does not say what kind of network it is") from error
    return transformers.CONFIG_MAPPING[max(kinds, key=len)]()


def _fewer(config: Any) -> dict[str, int]:
    """The sizes of a configuration that no claim is about, where they are large."""
    fewer = {key: LAYERS for key in _LAYERS if (getattr(config, key, 0) or 0) > LAYERS}
    signs = [value for key, value in config.to_dict().items() if key.endswith("_token_id") and value]
    if (getattr(config, "vocab_size", 0) or 0) > WORDS > max(signs, default=0):
        fewer["vocab_size"] = WORDS
    return fewer
