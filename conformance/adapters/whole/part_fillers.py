"""What the parameters of a component's forward are given that are not its data: turnings, counts, masks that hide
nothing; and what a component says of its widths and heads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.masks import ENCODINGS
from conformance.adapters.whole import names
from conformance.adapters.whole.masking import NONE, Mask
from conformance.adapters.whole.sizes import meaning

Maker = Callable[[Mapping[str, Tensor]], Any]
"""From the inputs by meaning to the value of a parameter."""

COS, SIN = re.compile(r"(.*_)?cos(ine)?s?(_.*)?"), re.compile(r"(.*_)?sin(e)?s?(_.*)?")
UNIT = re.compile(r"freqs?_?(cis|complex)|rope(_cache)?")
COUNT = re.compile(r"(seq|max_?seq|src|tgt|q|k)?_?(len(gth)?|size|n|t)|[nthw]|height|width")


def main_of(inputs: Mapping[str, Tensor]) -> Tensor:
    return next(value for value in inputs.values() if isinstance(value, Tensor))


@dataclass(frozen=True)
class Turning:
    """How the numbers that turn queries and keys are handed in. share: their width by that of the input, which is less
    where heads are turned apart; pairs: unit numbers as (cosine, sine); rows: with an axis for the batch; width: of
    cosines and sines where it is known."""

    share: float = 1.0
    pairs: bool = False
    rows: bool = False
    width: int = 0


def pairs_in(forward: str) -> dict[str, tuple[str, str]]:
    """The names that the code of forward unpacks into a cosine and a sine, such as `cos, sin = position_embeddings`."""
    found = re.findall(r"^\s*\(?(\w+), *(\w+)\)? = (\w+)$", forward, re.MULTILINE)
    return {name: (first, second) for first, second, name in found if _turns(first) and _turns(second)}


def _turns(name: str) -> bool:
    lower = name.lower().strip("_")
    return bool(COS.fullmatch(lower) or SIN.fullmatch(lower))


def pair_filler(pair: tuple[str, str], form: Turning) -> Maker:
    """What a parameter gets that forward unpacks into these two names."""
    makers = [filler_of(name, form) for name in pair]
    return lambda inputs: tuple(make(inputs) for make in makers if make is not None)


def filler_of(name: str, form: Turning) -> Maker | None:
    """What a parameter that is no data gets; None where nothing is known."""
    lower = name.lower().strip("_")

    def steps(inputs: Mapping[str, Tensor]) -> int:
        x = main_of(inputs)
        return x.shape[-2] if x.ndim > 2 else x.shape[1]

    def turned(part: Callable[[Tensor], Tensor], share: float) -> Maker:
        def make(inputs: Mapping[str, Tensor]) -> Tensor:
            width = form.width or max(int(main_of(inputs).shape[-1] * share * form.share), 1)
            angles = torch.arange(steps(inputs))[:, None] / 100.0 ** torch.linspace(0, 1, width)
            return part(angles[None] if form.rows else angles)

        return make

    if UNIT.fullmatch(lower):
        if form.pairs:
            return turned(lambda angles: torch.stack([angles.cos(), angles.sin()], -1), 0.5)
        return turned(lambda angles: torch.polar(torch.ones_like(angles), angles), 0.5)
    if COS.fullmatch(lower):
        return turned(torch.cos, 1.0)
    if SIN.fullmatch(lower):
        return turned(torch.sin, 1.0)
    makers: dict[str, Maker] = {
        "types": lambda inputs: torch.zeros(main_of(inputs).shape[:2], dtype=torch.int64),
        "positions": lambda inputs: torch.arange(steps(inputs)),
        "offset": lambda inputs: 0,
        "cache": lambda inputs: None,
        "lengths": lambda inputs: torch.full((len(main_of(inputs)),), steps(inputs)),
        "flag": lambda inputs: False,
    }
    found = makers.get(names.meaning_of(lower))
    if found is not None:
        return found
    return steps if COUNT.fullmatch(lower) else None


def masks_hiding_nothing(parameters: list[str]) -> Iterator[tuple[Mask, ...]]:
    """Masks that hide nothing: none at all, then one in each shape."""
    if not parameters:
        yield ()
        return
    yield tuple(Mask(name, lambda inputs: None, NONE, padding=False) for name in parameters)
    for axes in ("bqk", "b11k", "qk", "b1qk", "bk"):
        yield opened(tuple(Mask(name, lambda inputs: None, axes) for name in parameters), next(iter(ENCODINGS)), axes)


def opened(masks: tuple[Mask, ...], encoding: str, axes: str = "") -> tuple[Mask, ...]:
    """The masks in another encoding, and with other axes if these are given; they hide nothing."""

    def made(mask: Mask) -> Mask:
        axes_ = axes or mask.how.partition("(")[2].partition(")")[0].replace(", ", "")

        def make(inputs: Mapping[str, Tensor]) -> Tensor:
            x = main_of(inputs)
            steps = x.shape[-2] if x.ndim > 2 else x.shape[1]
            sizes = {"b": len(x), "1": 1, "q": steps, "k": steps}
            return ENCODINGS[encoding](torch.ones([sizes[axis] for axis in axes_], dtype=torch.bool))

        how = f"{encoding}, hiding nothing ({', '.join(axes_)})"
        return Mask(mask.parameter, make, how, encoding=encoding, padding=False)

    return tuple(map(made, masks))


def widths_in(module: nn.Module) -> list[int]:
    """The widths of vectors that it may take: what it says of itself, then those of its first maps and tables."""
    found: list[int] = []
    said = [(n, v) for n, v in vars(module).items() if type(v) is int and v > 0]
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            found.append(part.normalized_shape[-1])
        elif isinstance(part, nn.Linear):
            found.append(part.in_features)
    stored = [p.shape for p in (*module.parameters(), *module.buffers()) if p.ndim]
    found += [v for n, v in said if meaning(n) in ("d_model", "d_k", "d_v")]
    found += (
        [shape[-1] for shape in stored] + [shape[0] for shape in stored] + [s for shape in stored for s in shape[1:-1]]
    )
    return [w for w in dict.fromkeys([*found, 32, 8]) if 1 < w <= 4096][:14]


def heads_in(module: nn.Module) -> int:
    """How many heads the module says that it has; 4 when it does not say."""
    return _said_by(module, "n_heads") or 4


def head_width_in(module: nn.Module) -> int:
    """How wide the module says that one of its heads is; 0 when it does not say."""
    return _said_by(module, "d_k")


def _said_by(module: nn.Module, what: str) -> int:
    said = (pair for part in module.modules() for pair in vars(part).items())
    return next((v for name, v in said if type(v) is int and v > 0 and meaning(name) == what), 0)
