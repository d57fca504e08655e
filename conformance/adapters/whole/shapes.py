"""Shapes of numbers that a model may take: from its constructor's options, its first layers, its tables of positions.

Nothing is decided here: `searching` tries them in this order.
"""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from itertools import product
from typing import Any

from torch import nn

from conformance.adapters.whole.class_source import source_of
from conformance.adapters.whole.configs import fields_of, is_config

Shape = tuple[int | None, ...]
"""Without the batch; None in the place of a length that is free."""

_CHANNELS = re.compile(r"(in|num|n|img|image|input|color)?_?(c|ch|chans?|channels?|planes)|input_dim|in_dim")
_SIDES = re.compile(r"(img|image|input|max_img|vol(ume)?)?_?(size|shape|dim|res(olution)?|height|width|h|w|side)")
_WIDTHS = re.compile(
    r"(n_?)?(mels?|features?)|(num|n)_(mels?|features?)|(in(put)?|feat(ure)?|d)_?(dim|in(put)?|size|features?)"
)
_FRAMES = re.compile(r"(num|n)_?frames|frames|num_?frame|(temporal|video)_?(size|len(gth)?)")
_LENGTHS = re.compile(r"block_size|max_len|max_seq_len|context_length|seq_len")
_HEIGHTS, _BROADS = (re.compile(rf"(img|image|input)?_?{side}") for side in ("(h|height)", "(w|width)"))
_USUAL_SIDES = (32, 28, 16, 64, 224, 8)
_USUAL_WIDTHS = (80, 40)
"""Of the features of a frame of speech."""
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
OVER_PLACES = (nn.modules.batchnorm._NormBase, nn.GroupNorm)
"""Norms over a batch or over places, of which no claim about norms speaks."""
_SIDE_AXES = re.compile(r"(img_?|image_?)?(h|w|height|width|size|side)")
_FREE_AXES = re.compile(
    r"t|l|s|n|tx|ty|len(gth)?|\w*seq(uence)?(_?len(gth)?)?|\w*_len(gth)?|time(_?steps)?|steps?|frames?|samples?|tokens?|words?|"
    r"n_?(frames|tokens|points|nodes|steps|samples)|num_?(frames|tokens|points|nodes|steps|samples|patches)|points?|nodes?|"
    r"atoms?|context(_len(gth)?)?|ctx|positions?|patches|events?|length|window|history|lookback|[tls]\d?"
)
_PLANES_AXES = re.compile(r"c|ch|channels?|planes|in_channels")
_MOST_TOLD, _MOST_WIDTHS = 12, 6
_MOST = 40
"""So many shapes are tried."""


def number_shapes(module: nn.Module, options: Mapping[str, Any]) -> list[Shape]:
    """Shapes of numbers, the likeliest first. options: the arguments that the model's constructor got."""
    return list(dict.fromkeys(_shapes(module, said_sizes(module, options))))[:_MOST]


def shapes_told(axes: Sequence[int | str], module: nn.Module, options: Mapping[str, Any]) -> list[Shape]:
    """The shapes, without the batch, that the names of their axes allow, the likeliest first."""
    if len(axes) > 2 and not any(axes):  # only their number is told
        return [shape for shape in number_shapes(module, options) if len(shape) == len(axes)]
    said = said_sizes(module, options)
    offered = [_sizes_of(axes, at, module, said) for at in range(len(axes))]
    sides = [at for at in range(len(axes)) if _is_side(axes, at)]
    found = []
    for shape in product(*offered):
        is_square = len({shape[at] for at in sides}) < 2  # pictures have one side here
        free = {str(axes[at]) for at, size in enumerate(shape) if size is None}
        if is_square and len(free) < 2:  # (B, N, N): one length stands twice
            found.append(shape)
    return list(dict.fromkeys(found))[:_MOST_TOLD]


def _is_side(axes: Sequence[int | str], at: int) -> bool:
    """Whether an axis is a side of a picture: by its name, or as one of two of one name behind the channels, as in
    (C, S, S)."""
    names = [str(axis).lower() for axis in axes]
    square = len(names) == 3 and _PLANES_AXES.fullmatch(names[0]) and names[1] == names[2] and not names[1].isdigit()
    return bool(_SIDE_AXES.fullmatch(names[at]) or (square and at > 0))


def _sizes_of(axes: Sequence[int | str], at: int, module: nn.Module, said: Mapping[str, int]) -> list[int | None]:
    """What an axis may be: its own number, the option of its name, else by what such names mean; None for a length."""
    axis = axes[at]
    if isinstance(axis, int):
        return [axis]
    name = axis.lower()
    plain = name.replace("_", "")
    legend = _named_in_full(axis, module)
    of_legend: list[int | None] = [size for key, size in said.items() if key.replace("_", "") in legend]
    own = [*of_legend, *(size for key, size in said.items() if plain and key.replace("_", "") == plain)]
    if _is_side(axes, at):
        return [*own, *image_sizes(module, said)[:3]]
    if _FREE_AXES.fullmatch(name):
        longer = [size for key, size in said.items() if len(name) > 2 and key.startswith(name)]
        return [*own, *longer[:1], None]
    if of_legend or (own and len(name) > 1):
        return of_legend or own
    if _PLANES_AXES.fullmatch(name) and len(axes) == 3 and at == 0:
        first = next((p for p in module.modules() if isinstance(p, CONVOLUTIONS)), None)
        return list(dict.fromkeys([*([first.in_channels] if first else []), 3, 1]))
    counted = [size for key, size in said.items() if plain and re.fullmatch(rf"(n|num)_?{re.escape(plain)}s?", key)]
    told = [size for key, size in said.items() if _WIDTHS.fullmatch(key) or _CHANNELS.fullmatch(key)]
    maps = [part.in_features for part in module.modules() if isinstance(part, nn.Linear)]
    maps += [part.in_channels for part in module.modules() if isinstance(part, CONVOLUTIONS)]
    free: list[int | None] = [None] if not axis or len(name) == 1 else []
    last = at == len(axes) - 1 and len(axes) > 1
    widths = list(dict.fromkeys([*own, *counted, *told, *maps]))[:_MOST_WIDTHS]
    return [*widths, *free] if last or not free else [*free, *widths]


def _named_in_full(axis: str, module: nn.Module) -> list[str]:
    """What the file of a model calls an axis that has one letter, the likeliest first, as the names of options may have
    it: "timefeatures" and "features" for F, of a notation ``T steps, F time features``."""
    cls: type = type(module)
    source = source_of(cls) if len(axis) == 1 else None
    text = "".join(linecache.getlines(source[1])) if source else ""
    named = rf"(?<![\w.]){re.escape(axis)}(?: *[:=]| +is)? +(?:the +|number of +)?([a-z]+)(?:[ _]([a-z]+))?"
    forms: list[str] = []
    for found in re.finditer(named, text):
        words = [word for word in found.groups() if word]
        forms += [form for word in ("".join(words), words[0]) for form in (word, f"n{word}", f"num{word}")]
    return forms


def said_sizes(module: nn.Module, options: Mapping[str, Any]) -> dict[str, int]:
    """The sizes by their names in lower case, of what the constructor got and what the model and its parts keep."""
    return dict(_said(module, options))


def _shapes(module: nn.Module, said: Mapping[str, int]) -> Iterator[Shape]:
    first = next((p for p in module.modules() if isinstance(p, (*CONVOLUTIONS, nn.Linear))), None)
    convolution = next((p for p in module.modules() if isinstance(p, CONVOLUTIONS)), None)
    planes = dict.fromkeys([*(size for name, size in said.items() if _CHANNELS.fullmatch(name) and size < 16), 3, 1])
    high, broad = (
        next((size for name, size in said.items() if named.fullmatch(name)), 0) for named in (_HEIGHTS, _BROADS)
    )
    if high and broad and high != broad:
        own = [convolution.in_channels] if isinstance(convolution, nn.Conv2d) else planes
        yield from ((channels, high, broad) for channels in own)
    if isinstance(convolution, nn.Conv3d):
        yield from ((convolution.in_channels, side, side, side) for side in image_sizes(module, said)[:3])
    if isinstance(convolution, nn.Conv2d):
        yield from ((convolution.in_channels, side, side) for side in image_sizes(module, said))
    if convolution is first and isinstance(convolution, nn.Conv1d):
        yield (None, convolution.in_channels)
        yield (convolution.in_channels, None)
    linears = [part.in_features for part in module.modules() if isinstance(part, nn.Linear)]
    norms = [part.normalized_shape[-1] for part in module.modules() if isinstance(part, nn.LayerNorm)]
    told = [size for name, size in said.items() if _WIDTHS.fullmatch(name)]
    for width in list(dict.fromkeys([*told, *linears, *norms]))[:5]:
        yield (None, width)
    for channels, side in product(planes, image_sizes(module, said)):
        yield (channels, side, side)
    for channels, side in product(planes, image_sizes(module, said)[:2]):
        yield (side, side, channels)
    for frames in dict.fromkeys(size for name, size in said.items() if _FRAMES.fullmatch(name)):
        for channels, side in product(planes, image_sizes(module, said)[:2]):
            yield from ((frames, channels, side, side), (channels, frames, side, side))
    if isinstance(convolution, nn.Conv2d):
        yield from ((None, width) for width in _USUAL_WIDTHS)


def image_sizes(module: nn.Module, said: Mapping[str, int]) -> list[int]:
    """Sides of images: what the model and its constructor say, what its table of positions covers, the usual ones."""
    named = [size for name, size in said.items() if _SIDES.fullmatch(name) and size <= 512]
    return list(dict.fromkeys([*named, *_sides_of_positions(module), *_USUAL_SIDES]))


def _sides_of_positions(module: nn.Module) -> Iterator[int]:
    """The side whose patches fill a table of positions, with or without one more for the class."""
    patches = [part.stride[0] for part in module.modules() if isinstance(part, nn.Conv2d) and part.stride[0] > 1][:1]
    first = next((part.in_features for part in module.modules() if isinstance(part, nn.Linear)), 0)
    patches += [math.isqrt(first // c) for c in (3, 1) if first % c == 0 and math.isqrt(first // c) ** 2 == first // c]
    tables = [p.shape[-2] for p in module.parameters() if p.ndim == 3 and p.shape[0] == 1 and p.shape[-2] > 1]
    for rows, patch in product(tables, patches):
        for count in (rows, rows - 1):
            if patch and math.isqrt(count) ** 2 == count:
                yield math.isqrt(count) * patch


def table_lengths(module: nn.Module) -> list[int]:
    """Lengths that tables of positions and square masks suggest."""
    found = [size for p in (*module.parameters(), *module.buffers()) for size in p.shape if 4 <= size <= 1100]
    said = [value for name, value in vars(module).items() if _LENGTHS.fullmatch(name) and isinstance(value, int)]
    return [*said, *sorted(set(found), key=lambda n: (-found.count(n), n))][:8]


def _said(module: nn.Module, options: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """(name, size) of what the constructor got and what the model and its parts keep; the first of a name last, so that
    it wins in a dict."""
    configs = [value for held in (options, vars(module)) for value in held.values() if is_config(value)]
    defaults = {p.name: p.default for p in signature(type(module).__init__).parameters.values()}
    own = (vars(part) for part in module.modules())
    holders: list[Mapping[str, Any]] = [options, *map(fields_of, configs), *own, defaults]
    for holder in reversed(holders):
        for name, value in holder.items():
            value = value[0] if isinstance(value, (tuple, list)) and value else value
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                yield str(name).lower(), int(value)
