"""Masks that a model's caller makes: by the functions that its own file has for them, else in the field's conventions.

A convention that a name documents is fixed (``key_padding_mask`` marks what is hidden). What no name tells is probed:
the first convention under which the hidden tokens are hidden.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.masks import ENCODINGS, SHAPES
from conformance.adapters.whole import names
from conformance.adapters.whole.masks_told import documented_masks
from conformance.adapters.whole.told import told_by_forward
from conformance.adapters.whole.used_functions import text_of

Inputs = Mapping[str, Any]

_OF_TORCH = r"(?:src|tgt|memory)_(?:key_padding_)?mask|key_padding_mask"
"""The keywords of torch's layers that say what a mask is."""

_OF_TORCHS_ATTENTION = "attn_mask"
"""What torch.nn.MultiheadAttention calls the mask that is True where it hides; other attention means the opposite."""


@dataclass(frozen=True)
class Mask:
    """How one mask parameter is filled from the inputs (data and paddings by meaning). how: in words.

    own: made by a function of the user's file. square: it says for each query which keys it sees. encoding, axes:
    of one that follows a convention. keys: the input whose tokens it hides. padding: whether it can say which are
    real. when_padded: it is left out where no padding is given.
    """

    parameter: str
    make: Callable[[Inputs], Any]
    how: str
    own: bool = False
    square: bool = False
    encoding: str = ""
    axes: int = 0
    keys: str = ""
    padding: bool = True
    when_padded: bool = False


def real_tokens(inputs: Inputs, keys: str) -> Tensor:
    """(B, T) of bool: which tokens of an input are real; all, unless a padding is given."""
    padding = inputs.get("padding" if keys in ("ids", "x") else f"{keys}_padding")
    data = inputs[keys]
    return torch.ones(data.shape[:2], dtype=torch.bool) if padding is None else padding


def visible(inputs: Inputs, keys: str, queries: str, causal: bool) -> Tensor:
    """(B, 1, Tq, Tk) of bool: which keys each query may see."""
    real = real_tokens(inputs, keys)
    length = real.shape[1]
    rows = inputs[queries].shape[1]
    pairs = torch.ones(rows, length).tril().bool() if causal else torch.ones(rows, length, dtype=torch.bool)
    return (pairs & real[:, None, :])[:, None]


def by_convention(
    parameter: str,
    meanings: Sequence[str],
    causal: bool | None = None,
    said: str = "",
    marks_real: bool | None = None,
) -> Iterator[Mask]:
    """The parameter filled in each convention that its name leaves open, the most usual first.

    causal: whether it hides the future too; None where its name shall tell. said: what torch's layers call it.
    marks_real: what its documentation says that True marks; None for nothing.
    """
    lower = (said or parameter).lower()
    side = names.side_of(said or parameter)
    two = len(meanings) == 2
    keys = {"source": "src", "memory": "src", "target": "tgt"}.get(side, "src") if two else meanings[0]
    queries = "tgt" if two and (side == "memory" or keys == "tgt") else keys
    padding_only = bool(names.PADDING_MASK.search(lower))
    if causal is None:
        causal = not padding_only and (keys == "tgt" or (side == "target" and not two))
    encodings = list(ENCODINGS)
    if marks_real is not None:
        encodings = [name for name in ENCODINGS if ("hidden" in name) is not marks_real and name[:8] != "additive"]
    elif names.HIDES_BY_NAME.search(lower) or said == _OF_TORCHS_ATTENTION:
        encodings = ["bool, True = hidden"]
    elif names.KEEPS_BY_NAME.search(lower):
        encodings = [name for name in ENCODINGS if "hidden" not in name]
    flat = [shape for shape, (fixed, _) in SHAPES.items() if 2 in fixed]
    square = [shape for shape, (fixed, _) in SHAPES.items() if 2 not in fixed]
    shapes = flat if padding_only else square if causal else [*flat, *square]
    for shape, encoding in product(shapes, encodings):
        fixed, cut = SHAPES[shape]
        if names.KEEPS_BY_NAME.search(lower) and shape.count(",") == 1 and encoding.startswith("additive"):
            continue  # documented: one number a token, 1 for those that are real
        is_square = 2 not in fixed  # only a mask with a row for each query can hide the future

        def make(
            inputs: Inputs, cut: Any = cut, encoding: str = encoding, future: bool = causal and is_square
        ) -> Tensor:
            return ENCODINGS[encoding](cut(visible(inputs, keys, queries, future)))

        how, axes, per_row = f"{encoding}, {shape}", shape.count(",") + 1, 0 not in fixed
        yield Mask(parameter, make, how, False, is_square, encoding, axes, keys, per_row)


NONE = "None"
"""How a mask is filled that is not there."""


CHOOSES = "bool, True = hidden, (B, patches), every other one"
"""How a mask is filled that chooses which patches are taken, as many of each sample."""

_CHOSEN = re.compile(r"shape of the mask \[\d+, .*\] at index \d+ does not match .* tensor \[\d+, (\d+), \d+\]")
"""What torch says where x[~mask] is asked with a mask of another length than x has."""


SIZES = "sizes"
"""Among the inputs that a user's own function is handed: (rows, steps) of each, by its meaning."""


def none(parameter: str) -> Mask:
    return Mask(parameter, lambda inputs: None, NONE, padding=False)


def choosing(masks: Sequence[Mask], error: Exception) -> tuple[Mask, ...]:
    """The same masks, as one that chooses among the patches that an error counts: it was used as an index, and each
    sample must keep as many. () where the error says nothing of the kind, or such a mask was given."""
    counted = _CHOSEN.search(str(error)) if isinstance(error, IndexError) else None
    if counted is None or len(masks) != 1 or masks[0].how == CHOOSES:
        return ()
    patches = int(counted[1])

    def make(inputs: Inputs) -> Tensor:
        rows = next(value for value in inputs.values() if isinstance(value, Tensor)).shape[0]
        return (torch.arange(patches) % 2 == 1).expand(rows, patches)

    return (Mask(masks[0].parameter, make, CHOOSES, encoding="bool, True = hidden", axes=2, padding=False),)


# --- the user's own functions ---------------------------------------------------------------------


def own_masks(module: nn.Module, parameters: Sequence[str], meanings: Sequence[str]) -> tuple[Mask, ...]:
    """The parameters filled by the functions and methods of the user's file that make masks; () when some is left."""
    found: dict[str, Mask] = {}
    makers = [(name, function, _returned_names(function)) for name, function in _makers(module)]
    for name, function, returned in sorted(makers, key=lambda maker: -len(maker[2])):
        for parameter in parameters:
            if parameter in found:
                continue
            at = _place(parameter, name, returned, parameters, len(meanings) == 2)
            if at is None:
                continue
            call = _caller(function, meanings, names.side_of(parameter) or names.side_of(name))
            if call is None:
                continue

            def make(inputs: Inputs, call: Any = call, at: int = at, many: bool = len(returned) > 1) -> Any:
                made = call(inputs)
                return made[at] if many else made

            found[parameter] = Mask(parameter, make, f"{name}(...)", own=True)
    return tuple(found[p] for p in parameters) if len(found) == len(parameters) else ()


def _makers(module: nn.Module) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Methods of the model, then functions of its file, that speak of masks."""
    scope = vars(sys.modules.get(type(module).__module__, object()))
    methods = [(n, getattr(module, n)) for n, f in inspect.getmembers(type(module), inspect.isfunction)]
    functions = [(n, f) for n, f in scope.items() if inspect.isfunction(f)]
    for name, function in [*methods, *functions]:
        if ("mask" in name.lower() or "subsequent" in name.lower()) and name != "forward" and name[:2] != "__":
            yield name, function


def _returned_names(function: Callable[..., Any]) -> list[str]:
    """The names in its last return statement, [""] when it returns one thing without a name."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return [""]
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None]
    if not values:
        return [""]
    parts = values[-1].elts if isinstance(values[-1], ast.Tuple) else [values[-1]]
    return [part.id if isinstance(part, ast.Name) else "" for part in parts]


def _place(parameter: str, name: str, returned: list[str], parameters: Sequence[str], two: bool) -> int | None:
    """Which result of a function fills the parameter: by its name, by the side and kind that both speak of. two:
    whether the model has two sides; the names of one side mean nothing where there is one."""

    def traits(text: str) -> tuple[str, bool]:
        side = names.side_of(text)
        return ("source" if side == "memory" else side), "pad" in text.lower()

    if len(returned) > 1:
        lower = [part.lower() for part in returned]
        if parameter.lower() in lower:
            return lower.index(parameter.lower())
        alike = [i for i, part in enumerate(returned) if traits(part) == traits(parameter)]
        return alike[0] if alike else None
    (side, padding), (said, _) = traits(parameter), traits(name)
    if padding and re.search(r"causal|subsequent|square|look|future", name.lower()):
        return None
    if side and said and two:
        return 0 if side == said else None
    single = len(parameters) == 1
    return 0 if single or (not side and not said) else None


def _caller(function: Callable[..., Any], meanings: Sequence[str], side: str) -> Callable[[Inputs], Any] | None:
    """How to call a function that makes masks, from the names of its parameters; None when some means nothing, and
    where there are none: what is the same for every input is a test of masks, or a picture of one."""
    main = {"source": "src", "memory": "src"}.get(side, meanings[-1]) if len(meanings) == 2 else meanings[0]
    plan: dict[str, Callable[[Inputs], Any]] = {}
    for parameter in inspect.signature(function).parameters.values():
        lower = parameter.name.lower()
        meaning = names.meaning_of(lower)
        if meaning in ("source", "target") and len(meanings) == 2:
            plan[parameter.name] = itemgetter("src" if meaning == "source" else "tgt")
        elif lower in ("size", "sz", "n", "length", "seq_len", "t", "seq_length", "tgt_len", "max_len", "l"):
            plan[parameter.name] = lambda inputs: _size(inputs, main, 1)
        elif parameter.default is not parameter.empty:
            continue
        elif "pad" in lower:
            plan[parameter.name] = lambda inputs: inputs.get("pad_id", 0)
        elif lower == "device":
            plan[parameter.name] = lambda inputs: torch.device("cpu")
        elif lower in ("batch", "batch_size", "bsz"):
            plan[parameter.name] = lambda inputs: _size(inputs, main, 0)
        elif not plan:
            plan[parameter.name] = lambda inputs: inputs[main]
        else:
            return None
    return (lambda inputs: function(**{name: value(inputs) for name, value in plan.items()})) if plan else None


def _size(inputs: Inputs, meaning: str, axis: int) -> int:
    """How many rows (axis 0) or steps (axis 1) an input has, whichever of them is laid out first."""
    sizes = inputs[SIZES][meaning] if SIZES in inputs else inputs[meaning].shape
    return int(sizes[axis])


def _handed_over(module: nn.Module, parameters: Sequence[str]) -> dict[str, str]:
    """What torch's layers call the masks that forward hands them by name (``tgt_mask=foresee``)."""
    text = text_of(type(module).forward)
    holders = [name for name, part in module.named_children() if isinstance(part, nn.MultiheadAttention)]
    handed = {}
    for one in parameters:
        given = rf"=\s*{re.escape(one)}\s*[,)]"
        if match := re.search(rf"\b({_OF_TORCH})\s*{given}", text):
            handed[one] = match[1]
        elif any(re.search(rf"\bself\.{name}\([^()]*\battn_mask\s*{given}", text) for name in holders):
            handed[one] = _OF_TORCHS_ATTENTION
    return handed


# --- masks that are not read ----------------------------------------------------------------------


class Unread(Tensor):
    """A mask that nothing may ask: whoever does is refused, and `asked` tells. So it shows whether a run came to its
    masks before it failed; where it did not, it fails alike with every other mask."""

    asked = False

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.asked = True
        raise TypeError("the mask is read")


def unread(mask: Mask) -> Mask:
    """The mask as one that nothing may ask."""

    def make(inputs: Inputs) -> Any:
        made = mask.make(inputs)
        return made.as_subclass(Unread) if isinstance(made, Tensor) else made

    return replace(mask, make=make)


# --- choices --------------------------------------------------------------------------------------


def choices(
    module: nn.Module, parameters: Sequence[str], meanings: Sequence[str], causal: bool | None = None
) -> Iterator[tuple[Mask, ...]]:
    """Ways to fill these parameters together: the user's own functions, then one convention for all, those first that
    have as many axes as the code says, then None."""
    if not parameters:
        yield ()
        return
    own = own_masks(module, parameters, meanings)
    if own:
        yield own
    said = _handed_over(module, parameters)
    told = documented_masks(module, parameters)
    offered = {one: list(by_convention(one, meanings, causal, said.get(one, ""), told.get(one))) for one in parameters}
    stated = {one: len(shape.axes) for one, shape in told_by_forward(module, parameters).items() if shape.axes}
    seen: set[tuple[str, ...]] = set()
    one_a_token = all(names.PADDING_MASK.search(said.get(one, one).lower()) for one in parameters)
    orders = product(ENCODINGS, (2, 4, 3) if one_a_token else (4, 3, 2), (False, True))
    for known, (encoding, axes, square) in product((stated, {}) if stated else ({},), [*orders]):
        masks = []
        for one, candidates in offered.items():
            fit = [mask for mask in candidates if mask.encoding == encoding] or candidates
            alike = [mask for mask in fit if mask.axes == known.get(one, axes)] or fit
            masks.append(next((mask for mask in alike if mask.square == square), alike[0]))
        key = tuple(mask.how for mask in masks)
        if key not in seen:
            seen.add(key)
            yield tuple(masks)
    yield tuple(none(parameter) for parameter in parameters)
