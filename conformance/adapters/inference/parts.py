"""A whole model taken apart: the components that it builds, each constructed through the model's own constructor."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from conformance.adapters.inference.construct import Constructor, evaluating
from conformance.adapters.inference.facts import Fact
from conformance.adapters.inference.probes import SIZES

LAYERS, VOCABULARY = SIZES["n_layers"], SIZES["vocab"]
"""How many layers and tokens a whole model is built with."""

_PLAIN = (nn.Linear, nn.Dropout, nn.Identity, nn.ModuleList, nn.ModuleDict, nn.Sequential)
"""Parts of torch's that play no role of their own."""

_POSITIONS = re.compile(r"[Pp]osit|[Ss]inusoid|[Rr]otary|^R[oO]PE|PE$")
"""Names of components that may play a role without parameters."""


class PartOf:
    """The constructor of a component of a whole model: the model is built, the component at `path` is taken.

    Serves where a `Constructor` does.
    """

    def __init__(self, whole: Constructor, path: str) -> None:
        self.whole = whole
        self.path = path
        self.names = whole.names
        self.config_parameter = whole.config_parameter
        self.config_constructor = whole.config_constructor

    is_shared = True

    @property
    def known(self) -> set[str]:
        return self.whole.known

    def make(self, values: Mapping[str, Any]) -> nn.Module:
        """The component for option values; the model's other sizes are small."""
        width = values.get("d_model", 8)
        small = {"d_model": width, "n_heads": 1, "n_kv_heads": values.get("n_heads", 1), "d_ff": 2 * width}
        model = whole_model(self.whole, {**small, **values})
        return model.get_submodule(self.path)

    def fact(self) -> Fact:
        return Fact("constructor", f"{self.whole.cls.__name__}(...).{self.path}", "a component of the whole model")


def whole_model(constructor: Constructor, values: Mapping[str, Any]) -> nn.Module:
    """The model, with few layers and tokens unless `values` says otherwise."""
    vocab = values.get("vocab", VOCABULARY)
    tables = {"vocab": vocab, "src_vocab": vocab, "tgt_vocab": vocab}
    model: nn.Module = constructor.make(
        {"n_layers": LAYERS, **tables, "max_len": SIZES["max_len"], "dropout": 0.0, **values}
    )
    return model


def class_made(constructor: Constructor | PartOf) -> type[nn.Module]:
    """The class of what it makes: its own, or that of the module that a function or a model makes in small sizes."""
    if isinstance(constructor, Constructor) and isinstance(constructor.cls, type):
        return constructor.cls
    return type(constructor.make({**SIZES, "dropout": 0.0}))


def handed_axes(part: PartOf, other: PartOf) -> tuple[tuple[int, ...], ...] | None:
    """The leading axes of what the model hands two of its components, when it reads tokens ``(2, 5)`` and no masks.

    None where it cannot be run so.
    """
    width = {"d_model": SIZES["d_model"], "d_ff": SIZES["d_ff"]}
    model = evaluating(whole_model(part.whole, {**width, "n_heads": 1, "n_kv_heads": 1}))
    axes: dict[str, tuple[int, ...]] = {}

    def note(path: str, given: Iterable[Any]) -> None:
        shapes = (tuple(x.shape[:-1]) for x in given if isinstance(x, torch.Tensor) and x.is_floating_point())
        axes.setdefault(path, next(shapes, ()))

    for path in (part.path, other.path):
        model.get_submodule(path).register_forward_pre_hook(
            lambda _, args, keywords, path=path: note(path, [*args, *keywords.values()]), with_kwargs=True
        )
    ids = torch.ones(2, 5, dtype=torch.int64)
    given = inspect.signature(type(model).forward).parameters.values()
    rest = len([p for p in given if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]) - 1
    for inputs in ((ids,), (ids, ids)):
        with suppress(Exception), torch.no_grad():
            model(*inputs, *[None] * (rest - len(inputs)))
        if len(axes) == 2:
            return axes[part.path], axes[other.path]
    return None


def is_whole(constructor: Constructor, model: nn.Module) -> bool:
    """Whether it is a model rather than a component: it says how many tokens or layers, and embeds tokens."""
    embeds = any(isinstance(part, nn.Embedding) for part in model.modules())
    return embeds and bool({"vocab", "src_vocab", "n_layers"} & constructor.known)


def components(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The first component of each class inside, by path, inner ones before those that hold them."""
    seen: set[type[nn.Module]] = set()
    found = []
    for path, part in model.named_modules():
        empty = not any(True for _ in part.parameters()) and not _POSITIONS.search(type(part).__name__)
        plain = isinstance(part, _PLAIN) or empty
        if path and not plain and type(part) not in seen:
            seen.add(type(part))
            found.append((path, part))
    yield from sorted(found, key=lambda item: -item[0].count("."))
