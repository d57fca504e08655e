"""The groups of parameters that a model's file makes for its optimizer: which decay, and how fast each layer learns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import nn

from conformance.adapters.whole.decaying import DecayProbes
from conformance.adapters.whole.optimizers_made import DECAY, LAYER_DECAY, MadeOptimizer
from conformance.protocol import NotProvided

_NORM = re.compile(r"(?i)norm")
_NAMES_A_NORM = re.compile(r"(?i)norm|(^|[._])ln(_|\d|$|\.)")
_NORMS, _BIASES_OF_NORMS, _BIASES = "weights of norms", "biases of norms", "biases"
_HEAD = re.compile(r"(?i)(^|\.)(lm_head|heads?|classifier|score|fc(_out)?|unembed\w*)\.(weight|bias)$")
_SCALE = re.compile(r"lr_?(scale|mult\w*)")
"""What a group calls the number that its schedule multiplies the rate by."""
_CUTS = re.compile(r"\w\[\s*-?\w*\s*:\s*-?\w*\s*\]|\brange\(|(\blayer\w*|\bi|\])\)?\s*[<>]")
"""Code that counts layers: a model that was made small has fewer than its author knew."""
_SAME = 1e-9


@dataclass(frozen=True)
class KindThatDecays:
    """Vectors of one kind that decay although a function keeps their like from it. names: theirs; kept: the name of
    another one that is kept, "" where the code names the kind and no name of the model fits."""

    made: MadeOptimizer
    kind: str
    names: list[str]
    kept: str


@dataclass(frozen=True)
class LayerRates:
    """The rates of the layers of one list. path: of the list; rates: the lowest and the highest of each layer; head:
    the name of the last layer's parameter and its rate, where it is not tied; alike: whether all parameters of the
    model have one rate."""

    made: MadeOptimizer
    path: str
    rates: list[tuple[float, float]]
    head: tuple[str, float] | None
    alike: bool

    @property
    def falls_at(self) -> int | None:
        """The first layer that learns faster than the one above it; None where none does."""
        pairs = zip(self.rates, self.rates[1:], strict=False)
        return next((at for at, (low, high) in enumerate(pairs) if high[1] < low[0] - _SAME), None)

    @property
    def is_mixed(self) -> bool:
        """Whether a parameter of a lower layer learns faster than one of an upper layer."""
        highest = [high for _, high in self.rates]
        return any(highest[at] > low + _SAME for upper, (low, _) in enumerate(self.rates) for at in range(upper))


class GroupProbes(DecayProbes):
    """The experiments, of a running model."""

    def held_twice(self) -> list[MadeOptimizer]:
        """What its functions make, to see which hold a parameter twice. Raises NotProvided."""
        found = [one for one in self.grouped() if not (one.twice and (_CUTS.search(one.source) or _stands_twice(one)))]
        if not found:
            raise NotProvided("its functions count the layers of a larger model, or take two models")
        return found

    def kinds_that_decay(self) -> list[tuple[MadeOptimizer, KindThatDecays | None]]:
        """Each function that keeps some vectors from decay, and the first kind of vectors that it does so with in part.
        Raises NotProvided."""
        found = [(made, next(_kinds(made), None)) for made in self.made_optimizers() if _keeps_vectors(made)]
        if not found:
            raise NotProvided("it keeps no norms and biases from decay")
        return found

    def layer_rates(self) -> list[LayerRates]:
        """Of each function whose rates differ between layers, or that is told by how much they shall. Raises
        NotProvided."""
        found = [one for made in self.made_optimizers() for one in _layer_rates(made)]
        if not found:
            raise NotProvided("its optimizers let all layers learn alike")
        return found


def _stands_twice(made: MadeOptimizer) -> bool:
    """Whether the model stands for two that a function takes."""
    return sum(given is made.module for given in made.given.values()) > 1


def _keeps_vectors(made: MadeOptimizer) -> bool:
    decays = {group.get("weight_decay", DECAY) for group in made.groups if group["params"]}
    return any(decays) and any(
        p.dim() < 2 for group in made.groups if group.get("weight_decay", DECAY) == 0 for p in group["params"]
    )


def _kinds(made: MadeOptimizer) -> Iterator[KindThatDecays]:
    """The kinds of vectors of one part of the model of which some decay: others are kept, or the code names the kind.
    A part whose vectors all decay is trained in another way on purpose, such as a new head."""
    decays = {id(p): group.get("weight_decay", DECAY) > 0 for group in made.groups for p in group["params"]}
    parts: dict[str, dict[str, dict[bool, list[str]]]] = {}
    for path, module in made.module.named_modules():
        for own, parameter in module.named_parameters(recurse=False):
            kind = _kind(module, own) if parameter.dim() == 1 and id(parameter) in decays else ""
            if kind:
                name = f"{path}.{own}".lstrip(".")
                of_part = parts.setdefault(name.split(".")[0], {})
                of_part.setdefault(kind, {True: [], False: []})[decays[id(parameter)]].append(name)
    for kinds in parts.values():
        keeps = any(names[False] for names in kinds.values())
        for kind, names in kinds.items():
            kept = next(iter(names[False]), "")
            if names[True] and (kept or (keeps and kind == _NORMS and _names_norms(made))):
                yield KindThatDecays(made, kind, names[True], kept)


def _kind(module: nn.Module, own: str) -> str:
    is_norm = _NORM.search(type(module).__name__) is not None
    if own.endswith("bias"):
        return _BIASES_OF_NORMS if is_norm else _BIASES
    return _NORMS if is_norm else ""


def _names_norms(made: MadeOptimizer) -> bool:
    """Whether its code asks for norms by a word that it looks for in names."""
    for node in ast.walk(made.tree):
        words: list[ast.expr] = []
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            words = node.elts
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            words = [node.left]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "with" in node.func.attr:
            words = node.args
        if any(isinstance(one, ast.Constant) and _NAMES_A_NORM.search(str(one.value)) for one in words):
            return True
    return False


def _layer_rates(made: MadeOptimizer) -> Iterator[LayerRates]:
    rates = {id(p): _rate(group) for group in made.groups for p in group["params"]}
    named = dict(made.module.named_parameters(remove_duplicate=False))
    told = any(re.fullmatch(LAYER_DECAY, name.lower()) for name in made.given)
    alike = len(set(rates.values())) == 1
    lists = list(_lists_of_layers(made.module))
    for path, layers in lists:
        of_layers = [[rates[id(p)] for p in layer.parameters() if id(p) in rates] for layer in layers]
        differ = all(of_layers) and len({(min(of), max(of)) for of in of_layers}) > 1
        if not all(of_layers) or not (differ or (alike and told)):
            continue
        ids = [id(p) for p in named.values()]
        heads = [
            (name, rates[id(p)])
            for name, p in named.items()
            if _HEAD.search(name) and id(p) in rates and ids.count(id(p)) == 1 and not name.startswith(f"{path}.")
        ]
        head = heads[-1] if heads and path == lists[-1][0] else None
        yield LayerRates(made, path, [(min(of), max(of)) for of in of_layers], head, alike)


def _rate(group: Mapping[str, object]) -> float:
    """Its learning rate, by which its schedule goes on."""
    scales = [float(v) for k, v in group.items() if _SCALE.fullmatch(k) and isinstance(v, (int, float))]
    rate = group.get("lr", 1.0)
    return float(rate if isinstance(rate, (int, float)) else 1.0) * (scales[0] if scales else 1.0)


def _lists_of_layers(module: nn.Module) -> Iterator[tuple[str, list[nn.Module]]]:
    """The outermost lists of two or more modules of one class that have parameters, by their paths."""
    taken: list[str] = []
    for path, part in module.named_modules():
        if not isinstance(part, (nn.ModuleList, nn.Sequential)) or any(path.startswith(f"{one}.") for one in taken):
            continue
        layers = list(part)
        if (
            len(layers) > 1
            and len({type(one) for one in layers}) == 1
            and next(layers[0].parameters(), None) is not None
        ):
            taken.append(path)
            yield path, layers
