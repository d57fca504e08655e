"""The optimizers and schedules that a model's file makes for it: the groups of parameters, and the rates of the steps.

Methods of the model and functions of its file whose names say so are called, with small values by the names of their
parameters. A function that gives groups alone counts, too: they are what an optimizer would be given.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from conformance.adapters.helpers.scheduling import OTHER_SHAPES, Rates, rates_of, troubles_of
from conformance.adapters.helpers.trial import Trouble
from conformance.adapters.whole.configs import settings_of
from conformance.adapters.whole.decoding import MODELS
from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.adapters.whole.used_functions import functions_called_by, text_of
from conformance.protocol import NotProvided

DECAY = 0.37
LAYER_DECAY = r"(layer_?(wise_?)?(lr_?)?|lr_layer_?|llrd_?)decay(_rate|_factor)?|llrd(_rate|_factor)?"
"""Names of the number by which the rates of two layers, one above the other, differ."""
_MAKES = re.compile(
    r"_?(configure|config|make|build|create|get|set_?up|init(ialize)?|prepare|new|default|split|group|collect)?"
    r"(_\w+)?_?(optim(i[sz]ers?)?|opt|adamw?|(grouped_)?param(eter)?_groups|params_for_\w+|grouped_param(eter)?s"
    r"|llrd|layer_?(wise_?)?(lr_?)?decay)(_\w+)?"
)
_VALUES: tuple[tuple[str, Any], ...] = (
    (r"weight_?decay|wd|decay|l2", DECAY),
    (r"((base|max|peak|init(ial)?|head|backbone|encoder|decoder)_)?(lr|learning_rate)", 1e-3),
    (r"betas", (0.9, 0.95)),
    (r"device(_type)?", "cpu"),
    (LAYER_DECAY, 0.8),
    (r"lr_decay(_rate|_factor)?|decay_rate", 0.8),
    (r"(n_|num_)?warm_?up(_?(steps?|iters?|iterations|epochs|n))?", 10),
    (r"(n_|num_|max_|total_|training_|train_)*(steps?|iters?|iterations|epochs)|t_max|total", 100),
    (r"steps_per_epoch", 1),
)
_WARM = r"(n_|num_)?warm_?up(_?(steps?|iters?|iterations|n|epochs|ratio|fraction|pct))?"
_TOTAL = r"(n_|num_|max_|total_|decay_|lr_decay_|training_|train_)*(steps?|iters?|iterations|epochs)|t_max|total"
_MOST_STEPS = 20_000
_BY_A_ROOT = re.compile(r"\*\*\s*\(?-\s*0?\.5\b|rsqrt")
"""How a schedule says that it falls with the root of the step."""
_ALL = re.compile(r"(?<![\w.])\w+\.(named_)?(parameters|modules)\(\)")
_FILLS = ("append", "add", "extend")
_PEAK = r"((base|max|peak|init(ial)?)_)?(lr|learning_rate)"
_FLOOR = r"(min|final|end|floor)_(lr|learning_rate)|lr_min|eta_min"
_GIVES = re.compile(r"(^|_)(lr|learning_rate|schedule|rate)(_|$)")
_CONFIGS = re.compile(r"(train(ing)?_)?(config|cfg|conf|args|hparams|params|opts?)")
_PARTLY = re.compile(
    r"freez|frozen|fine.?tun|\blora|adapter|prob(e|ing)\b|bitfit|prompt|head.only|only.*(head|last)", re.I
)
"""Words of code that trains a part of its model."""


@dataclass(frozen=True)
class MadeOptimizer:
    """What one function makes. name, function: of it. groups: of parameters, of all its optimizers. schedules: those
    that move their rates. module: the model that it was made for. given: what the function was given, by name. twice:
    the parameters that one optimizer holds more than once. refused: torch makes no optimizer of these groups.
    by_optimizer: the groups of each; of a function that gives groups alone, all of them."""

    name: str
    function: Callable[..., Any]
    groups: list[Mapping[str, Any]]
    schedules: list[LRScheduler]
    module: nn.Module
    given: Mapping[str, Any]
    twice: Sequence[str] = ()
    refused: bool = False
    by_optimizer: Sequence[Sequence[Mapping[str, Any]]] = ()

    @property
    def source(self) -> str:
        """Its text, and that of what it calls."""
        plain = inspect.unwrap(self.function)
        return "\n".join([text_of(plain), *map(text_of, functions_called_by(plain))])

    @property
    def left_out(self) -> list[str]:
        """The names of the parameters that can be trained and are in no group."""
        held = {id(one) for group in self.groups for one in group["params"]}
        return [n for n, p in self.module.named_parameters() if p.requires_grad and id(p) not in held]

    @property
    def sorts_all(self) -> bool:
        """Whether its code goes over all parameters of the model and sorts them into groups, so that none is meant to
        be left out: what is skipped is what needs no gradient."""
        if _PARTLY.search(self.source):
            return False
        loops = [node for node in ast.walk(self.tree) if isinstance(node, (ast.For, ast.ListComp, ast.GeneratorExp))]
        over = [loop for loop in loops if _goes_over_all(loop, self._all_by_name)]
        skips = any(_skips(loop) for loop in over if isinstance(loop, ast.For))
        return bool(over) and not skips and self._lists_made(over) > 1

    @property
    def unread_list(self) -> str:
        """A list that its code fills with parameters and never reads; "" without one."""
        names = [node for node in ast.walk(self.tree) if isinstance(node, ast.Name)]
        read = [node.id for node in names if isinstance(node.ctx, ast.Load)]
        nodes = list(ast.walk(self.tree))
        filled = [name for node in nodes for name in _filled(node, self._all_by_name)]
        calls = [name for node in nodes if isinstance(node, ast.Call) for name in _filled(node)]
        return next((name for name in filled if read.count(name) == calls.count(name)), "")  # a call reads its list

    @property
    def _all_by_name(self) -> list[str]:
        """The names that its code gives to all parameters of the model."""
        kept = [node for node in ast.walk(self.tree) if isinstance(node, ast.Assign)]
        named = [
            node for node in kept if _ALL.search(ast.unparse(node.value)) and not isinstance(node.value, ast.ListComp)
        ]
        return [target.id for node in named for target in node.targets if isinstance(target, ast.Name)]

    @property
    def tree(self) -> ast.AST:
        """Its own code."""
        try:
            return ast.parse(dedent(text_of(inspect.unwrap(self.function))))
        except SyntaxError:
            return ast.Module([], [])

    def _lists_made(self, over: Sequence[ast.AST]) -> int:
        """How many lists of parameters it makes: those that a loop fills, those that are comprehensions."""
        filled = {name for loop in over for node in ast.walk(loop) for name in _filled(node)}
        kept = {ast.unparse(held) for loop in over for node in ast.walk(loop) if (held := _held_in(node)) is not None}
        by_key = any(
            not text.endswith(('"]', "']")) for text in kept
        )  # groups[key].append(p): as many as there are keys
        return len(filled) + len(kept) + by_key + sum(not isinstance(loop, ast.For) for loop in over)

    def line_of(self, *patterns: str) -> str:
        """file:line of its last line that the first pattern is found in, or the next; else of its first."""
        plain = inspect.unwrap(self.function)
        start, lines = plain.__code__.co_firstlineno, text_of(plain).splitlines()
        for pattern in patterns:
            for number, line in reversed(list(enumerate(lines))):
                if re.search(pattern, line.partition("#")[0]):
                    return f"{plain.__code__.co_filename}:{start + number}"
        return f"{plain.__code__.co_filename}:{start}"


def _goes_over_all(loop: ast.AST, names: Sequence[str] = ()) -> bool:
    """Whether a loop goes over the parameters of the whole model: over `self.named_parameters()`, not over a part's, or
    over what has one of these names."""
    iters = [loop.iter] if isinstance(loop, ast.For) else [one.iter for one in loop.generators]  # type: ignore[attr-defined]
    held = "".join(rf"|^(\w+\()?{re.escape(name)}\b" for name in names)
    return any(re.search(_ALL.pattern + held, ast.unparse(one)) for one in iters)


def _skips(loop: ast.For) -> bool:
    """Whether it passes over some parameters for another reason than that they need no gradient, or are seen twice."""
    for node in ast.walk(loop):
        passes = isinstance(node, ast.If) and any(isinstance(one, ast.Continue) for one in node.body)
        if passes and not re.search(r"requires_grad|seen|visited|\bid\(", ast.unparse(node.test)):  # type: ignore[attr-defined]
            return True
    return False


def _filled(node: ast.AST, names: Sequence[str] = ()) -> list[str]:
    """The lists that are filled by append, add or extend, or by a comprehension over all parameters."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.ListComp) and isinstance(node.targets[0], ast.Name):
        return [node.targets[0].id] if _goes_over_all(node.value, names) else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLS:
        held = node.func.value
        ends = [held.body, held.orelse] if isinstance(held, ast.IfExp) else [held]
        return [one.id for one in ends if isinstance(one, ast.Name)]
    return []


def _held_in(node: ast.AST) -> ast.expr | None:
    """The list in a dict, or of an object, that a call fills: `groups[key]`; None for none."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLS:
        return node.func.value if isinstance(node.func.value, (ast.Subscript, ast.Call, ast.Attribute)) else None
    return None


class MadeOptimizerProbes(PlaceProbes):
    """What the file of a running model makes to train it."""

    def made_optimizers(self) -> list[MadeOptimizer]:
        """One for each function that could be called. Raises NotProvided where there is none."""
        found = [one for one in self.grouped() if not one.refused]
        if not found:
            raise NotProvided("it makes no optimizer")
        return found

    def grouped(self) -> list[MadeOptimizer]:
        """The same, and those whose groups torch refuses. Raises NotProvided."""
        if "made optimizers" not in self.known:
            self.known["made optimizers"] = list(_found(self))
        found: list[MadeOptimizer] = self.known["made optimizers"]
        if not found:
            raise NotProvided("it makes no optimizer")
        return found

    def schedule_troubles(self) -> list[tuple[MadeOptimizer, Trouble | None]]:
        """What is wrong with the schedules that come with its optimizers; None for nothing. Raises NotProvided where
        none has a warm-up of a known length."""
        found = [
            (made, next(troubles_of(rates), None))
            for made in _found(self)
            for schedule in made.schedules
            if (rates := _rates(made, schedule)) is not None
        ]
        found += [(made, next(troubles_of(rates), None)) for made, rates in _rate_methods(self.twin().module)]
        if not found:
            raise NotProvided("no schedule with a warm-up of a known length comes with its optimizer")
        return found


def _rates(made: MadeOptimizer, schedule: LRScheduler) -> Rates | None:
    """Its rates; None where its code names no warm-up, or it has another shape."""
    lambdas = getattr(schedule, "lr_lambdas", ())
    source = text_of(lambdas[0]) if lambdas and inspect.isfunction(lambdas[0]) else type(schedule).__name__
    falls_by_a_root = _BY_A_ROOT.search(source) is not None
    if OTHER_SHAPES.search(re.sub("d_model|model_size", "", source) if falls_by_a_root else source):
        return None
    total, warm = _count(made, _TOTAL), _count(made, _WARM)
    if isinstance(warm, float):
        warm = int(warm * total) if total and 0 < warm < 1 else None
    if warm and total is None and falls_by_a_root:
        total = 4 * warm  # it falls without an end
    if not warm or not isinstance(total, int) or not warm < total <= _MOST_STEPS:
        return None
    return Rates(
        f"the schedule of {made.name}", source, rates_of(schedule, 2 * total if lambdas else total + 1), warm, total
    )


def _rate_methods(module: nn.Module) -> Iterator[tuple[MadeOptimizer, Rates]]:
    """Methods that give the rate of a step by numbers that the model keeps: its warm-up and its steps in all."""
    for name, function in inspect.getmembers(type(module), inspect.isfunction):
        names = list(inspect.signature(function).parameters)[1:]
        if function.__module__.startswith("torch") or not _GIVES.search(name.lower()) or len(names) != 1:
            continue
        made = MadeOptimizer(name, function, [], [], module, {})
        total, warm, peak, floor = (_count(made, words) for words in (_TOTAL, _WARM, _PEAK, _FLOOR))
        whole = type(total) is int and type(warm) is int and warm < total <= _MOST_STEPS
        if not whole or OTHER_SHAPES.search(made.source):
            continue
        with suppress(Exception):  # it takes another thing than a step
            rates = [float(function(module, step)) for step in range(2 * total)]
            yield made, Rates(name, made.source, rates, warm, total, peak, floor)


def _count(made: MadeOptimizer, words: str) -> Any:
    """A number of steps that a function was told by a parameter, or that its model keeps and it reads; None."""
    told = [given for name, given in made.given.items() if re.fullmatch(words, name.lower())]
    read = [name for name in re.findall(r"\.(\w+)", made.source) if re.fullmatch(words, name.lower())]
    kept = [items[name] for name in read for items in settings_of(made.module) if name in items]
    return next((one for one in [*told, *kept] if type(one) in (int, float)), None)


def _found(subject: PlaceProbes) -> Iterator[MadeOptimizer]:
    module = subject.twin().module
    for name, function, method in _candidates(module):
        try:
            given = _arguments(function, module)
        except NotProvided:  # it needs what nothing here shows
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's, of a group that holds a parameter twice
                made = function(module, **given) if method else function(**given)
        except Exception as error:
            refused = _refused(error)
            if refused and (twice := _twice(module, refused)):
                yield MadeOptimizer(name, function, refused, [], module, given, twice, True)
            continue
        leaves = list(_leaves(made))
        optimizers = [one for one in leaves if isinstance(one, torch.optim.Optimizer)]
        groups = [group for one in optimizers for group in one.param_groups]
        alone = [one for one in leaves if isinstance(one, dict)] if isinstance(made, (list, tuple)) else []
        twice = [
            name for held in ([one.param_groups for one in optimizers] or [alone]) for name in _twice(module, held)
        ]
        groups = groups or [one for one in leaves if isinstance(one, dict)]
        if groups and all(
            any(isinstance(p, nn.Parameter) for p in group["params"]) for group in groups if group["params"]
        ):
            schedules = [one for one in leaves if isinstance(one, LRScheduler)]
            apart = [one.param_groups for one in optimizers] or [groups]
            yield MadeOptimizer(name, function, groups, schedules, module, given, twice, by_optimizer=apart)


def _refused(error: Exception) -> list[Mapping[str, Any]]:
    """The groups of an optimizer that torch did not make: those that it had taken, and the one that it refused."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    if step is None or step.tb_frame.f_code is not inspect.unwrap(torch.optim.Optimizer.add_param_group).__code__:
        return []
    seen = step.tb_frame.f_locals
    return [*seen["self"].param_groups, seen["param_group"]]


def _twice(module: nn.Module, groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the parameters that groups hold more than once."""
    count = Counter(id(one) for group in groups for one in group["params"])
    return [name for name, parameter in module.named_parameters() if count[id(parameter)] > 1]


def _candidates(module: nn.Module) -> Iterator[tuple[str, Callable[..., Any], bool]]:
    for name, function in inspect.getmembers(type(module), inspect.isfunction):
        if not function.__module__.startswith("torch") and _MAKES.fullmatch(name.lower()):
            yield name, function, True
    for name, function in vars(sys.modules.get(type(module).__module__, object())).items():
        own = inspect.isfunction(function) and function.__module__ == type(module).__module__
        if own and (_MAKES.fullmatch(name.lower()) or _gives_groups(function)):
            yield name, function, False


def _gives_groups(function: Callable[..., Any]) -> bool:
    """Whether a function takes a model and returns groups of parameters: ``return [{"params": ...}, ...]``."""
    with suppress(OSError, TypeError, SyntaxError):
        tree = ast.parse(dedent(inspect.getsource(function)))
        returns = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
        lists = [value.elts for value in returns if isinstance(value, (ast.List, ast.Tuple))]
        groups = [one for elements in lists for one in elements if isinstance(one, ast.Dict)]
        keys = {key.value for group in groups for key in group.keys if isinstance(key, ast.Constant)}
        return "params" in keys and any(map(MODELS.fullmatch, map(str.lower, inspect.signature(function).parameters)))
    return False


def _arguments(function: Callable[..., Any], module: nn.Module) -> dict[str, Any]:
    """Its arguments by their names; options that mean nothing here keep their defaults. Raises NotProvided."""
    given: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values()):
        lower = parameter.name.lower()
        if parameter.name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = next((value for words, value in _VALUES if re.fullmatch(words, lower)), None)
        if re.fullmatch(LAYER_DECAY, lower) and type(parameter.default) is float and parameter.default != 1:
            value = parameter.default  # by some a rate is multiplied, by others divided
        if MODELS.fullmatch(lower):
            value = module
        elif lower == "named_parameters":
            value = list(module.named_parameters())
        elif value is None and _CONFIGS.fullmatch(lower):
            value = next((c for n in ("config", "cfg", "args") if (c := getattr(module, n, None)) is not None), None)
        if value is not None:
            given[parameter.name] = value
        elif parameter.default is parameter.empty:
            raise NotProvided(f"{function.__name__} asks for {parameter.name}, whose meaning is not known")
    return given


def _leaves(made: Any) -> Iterator[Any]:
    """Optimizers, schedules and groups of parameters in what was returned, however nested."""
    if isinstance(made, (torch.optim.Optimizer, LRScheduler)) or (
        isinstance(made, dict) and isinstance(made.get("params"), (list, tuple))
    ):
        yield made
    elif isinstance(made, (dict, list, tuple)):
        for one in made.values() if isinstance(made, dict) else made:
            yield from _leaves(one)
