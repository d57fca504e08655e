"""From what the user pointed at (a class, a function, an expression, an instance) to fresh modules of it.

A class or function is called in the first of these ways that gives an nn.Module:

1. without arguments, where all its parameters have defaults;
2. as the user's own files call it (`usage`), their arguments read as syntax (`evaluate`);
3. of a class, by a classmethod of its own that makes one (`classmethods`);
4. with the settings of a config file next to it;
5. by the names of its parameters, with small sizes (`sizes`), a config or a part for whatever names one.

A model of more than `MAX_PARAMETERS` is made again at smaller sizes, where its options say which those are.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType, ModuleType, NoneType
from typing import Any

import torch
from torch import nn

from conformance.adapters import Specification, as_torch_module, is_expression
from conformance.adapters.inference.construct import CONFIGS
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.adapters.whole import class_paths, needing
from conformance.adapters.whole.absent_weights import absent_weights
from conformance.adapters.whole.asserted import asked_for
from conformance.adapters.whole.chained import as_forward, with_forward, with_scores
from conformance.adapters.whole.classmethods import is_maker, makers_of, name_of, returns_its_class, usages_of
from conformance.adapters.whole.configs import Options, overridden_defaults
from conformance.adapters.whole.constructing import Evaluator
from conformance.adapters.whole.copying import copied
from conformance.adapters.whole.filling import empty_is_nan, fill
from conformance.adapters.whole.lazy import with_sizes
from conformance.adapters.whole.scaling import TooLarge, limited, parameters_in, scaled_down
from conformance.adapters.whole.script_names import set_script_names
from conformance.adapters.whole.shared_settings import is_of_others
from conformance.adapters.whole.sizes import MAX_PARAMETERS, SMALL, Sizing, Unknown, meaning
from conformance.adapters.whole.syntax import Source
from conformance.adapters.whole.usage import Surroundings, Usage, surroundings
from conformance.protocol import NotProvided, Refused
from conformance.seeds import seed_torch

_TRIALS = 24
"""So many combinations of small numbers are tried for parameters whose names say nothing."""
_NETWORK = {"httpx", "httpx2", "huggingface_hub", "requests", "socket", "urllib", "urllib3"}
"""Libraries whose exceptions say that something could not be fetched."""
ONE_SIDE = "run is"
"""The subject of the fact that says which method is run in the place of forward."""
_NUMBERS = (32, 4, 2, 8)
_IDS = ("id", "pad_id", "bos_id", "eos_id")
_SIZES = ("vocab", "classes", "d_model")
"""Sizes that a constructor cannot do without, where it has None for them and its callers hand them over."""


@dataclass(frozen=True)
class Made:
    """A way to have fresh modules of what the user pointed at.

    name: as the user calls it. cls: the class of the modules. facts: how they are constructed, with the evidence.
    even: whether its heads divide its width, as far as its arguments say: other classes' defaults may not fit together.
    options: the arguments that the constructor got, by name; empty where none are known. large: it has more than
    `MAX_PARAMETERS`, and no option makes it smaller. maker: what is called for it: a class, a function, a classmethod.
    """

    name: str
    cls: type[nn.Module]
    facts: list[Fact]
    _make: Callable[[Sizing], nn.Module] = field(repr=False)
    _sizing: Sizing = field(default_factory=Sizing, repr=False)
    even: bool = True
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    large: bool = False
    maker: Any = None

    def fresh(self, seed: int = 0, **changes: Any) -> nn.Module:
        """A new module, its parameters drawn after ``torch.manual_seed(seed)``.

        changes: options by meaning (``dropout=0.0, max_len=16, n_layers=3``). Raises NotProvided where the constructor
        has no such option, Refused where it raises for these values.
        """
        return self._with(seed, changes, {})

    def otherwise(self, options: Mapping[str, str | bool | float]) -> nn.Module:
        """A new module with another text, switch or number for the options of these very names. Raises as `fresh`
        does."""
        return self._with(0, {}, options)

    def _with(self, seed: int, changes: Mapping[str, Any], named: Mapping[str, str | bool | float]) -> nn.Module:
        sizing = self._sizing.with_changes(changes, named)
        changes = {**changes, **named}
        seed_torch(seed)
        try:
            module = with_sizes(self._make(sizing))
        except Exception as error:
            if not changes:
                raise
            shown = ", ".join(f"{name}={value}" for name, value in changes.items())
            raise Refused(f"{self.name} with {shown} raises {type(error).__name__}: {error}") from error
        others = {option for option in changes if is_of_others(option, module, self.options)}
        missing = sorted(changes.keys() - (sizing.changed - others))
        if missing:
            raise NotProvided(f"{self.name}'s constructor has no option for {', '.join(missing)}")
        return module

    def with_number(self, name: str, value: float) -> Made:
        """The same modules with another number for the option of this very name."""
        return replace(self, _sizing=self._sizing.with_changes({}, {name: value}))

    def at_its_own_sizes(self, most: int) -> Made | None:
        """The same modules at the sizes that their author gives them, where they were made smaller; None where they
        were not, or have more than `most` parameters at these."""
        if not self._sizing.scaled:
            return None
        try:
            limited(self._make, Sizing(), most)
        except (Exception, TooLarge):  # it may not be made at these sizes either
            return None
        facts = [fact for fact in self.facts if fact.subject != "sizes"]
        facts.append(Fact("sizes", "as they are", "smaller ones do not fit together"))
        return replace(self, facts=facts, _sizing=Sizing(), large=True)

    def called_by(self, method: str, reason: str) -> Made:
        """The same modules with one of their methods as their forward."""
        fact = Fact(ONE_SIDE, f"{method}(...)", reason.removeprefix("UNRESOLVED: "))
        return replace(self, facts=[*self.facts, fact], _make=lambda sizing: as_forward(self._make(sizing), method))

    def answering_with_scores(self, reason: str) -> Made:
        """The same modules, which give the scores that their loss compares beside it."""
        fact = Fact(
            "answer", "the scores that its loss compares", reason.removeprefix("UNRESOLVED: ").partition(",")[0]
        )
        return replace(self, facts=[*self.facts, fact], _make=lambda sizing: with_scores(self._make(sizing)))

    def part_of(self, cls: type[nn.Module], facts: list[Fact], take: Callable[[nn.Module], nn.Module]) -> Made:
        """A part of these modules, as `take` gives it; it has no options of its own."""
        return Made(cls.__name__, cls, facts, lambda _: take(self._make(self._sizing)), maker=cls)


def _misses_a_network(error: BaseException | None) -> bool:
    """Whether an exception, or one that led to it, says that something could not be fetched."""
    while error is not None:
        if type(error).__module__.partition(".")[0] in _NETWORK or isinstance(error, ConnectionError):
            return True
        error = error.__cause__ or error.__context__
    return False


def made_of(found: Any, spec: Specification) -> Made:
    """How to make modules of `found`: a class, a function, an instance, or what the expression of `spec` gave.

    Raises Unresolved: one sentence that contains the line to write.
    """
    return next(all_made_of(found, spec))


def all_made_of(found: Any, spec: Specification) -> Iterator[Made]:
    """Every way to make modules of `found`, the best first, none twice. Raises Unresolved where there is none."""
    if isinstance(found, nn.Module):
        yield _of_expression(found, spec) if is_expression(spec.name) else _of_instance(found, spec.name)
        return
    if not is_maker(found) and not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise Unresolved(f"{spec.name} is no nn.Module but {_kind(found)}: name a class, a function or a module")
    around = surroundings(sys.modules[found.__module__])
    if is_maker(found) and not makes_module(found):
        raise Unresolved(
            f"{name_of(found)} is a function, and nothing in it says that it returns an nn.Module that it makes, or "
            f"that it does what a claim speaks about, so it is not run: annotate what it returns (-> nn.Module), or "
            f"call it yourself, as in "
            f'--impl "{_line(found, spec)}"'
        )
    failures: list[Exception] = []
    odd: Made | None = None
    given: set[str] = set()
    for way in _ways(found, around, strict_first=True):
        if failures and _misses_a_network(failures[-1]):  # each would wait for it
            break
        try:
            evaluator = partial(Evaluator, around, make=_as_part, strict=way.strict)
            made = _fitted(name_of(found), way, evaluator, around)
        except Exception as error:
            failures.append(error)
            continue
        if made.even and not made.large:
            shown = made.facts[0].value
            if shown not in given:
                yield made
            given.add(shown)
            continue
        odd = odd or made
        if odd.large and not way.strict:  # large as the user calls it is better than small as we guess
            break
    waits = bool(failures) and _misses_a_network(failures[-1])
    others = _by_functions(found, spec) if isinstance(found, type) and not waits else iter(())
    if given:
        yield from others
        return
    if odd is None:
        first = next(others, None)
        if first is None:
            raise Unresolved(_refusal(found, spec, failures))
        odd = first
    yield odd
    yield from others


def _by_functions(cls: type[nn.Module], spec: Specification) -> Iterator[Made]:
    """The class as functions of its file make it, which put its parts together step by step."""
    module = sys.modules[cls.__module__]
    for function in list(vars(module).values()):
        if not isinstance(function, FunctionType) or function.__module__ != cls.__module__:
            continue
        with suppress(Exception):  # it makes something else, or wants what nothing here shows
            if not re.search(rf"\b{cls.__name__}\(", inspect.getsource(function)) or not makes_module(function):
                continue
            for made in all_made_of(function, spec):
                if type(made.fresh()) is cls:
                    yield made


def makes_module(function: FunctionType | MethodType) -> bool:
    """Whether a function says that it returns a module, by its annotation or its syntax: others may do anything."""
    told = function.__annotations__.get("return")
    told = vars(sys.modules[function.__module__]).get(told, told) if isinstance(told, str) else told
    if (isinstance(told, type) and issubclass(told, nn.Module)) or str(told) in (
        "nn.Module",
        "torch.nn.Module",
        "Self",
    ):
        return True
    around = surroundings(sys.modules[function.__module__])
    inside = around.scope_of(function)
    if inside is None:
        return False
    its_own = isinstance(function, MethodType) and returns_its_class(inside)
    return its_own or Evaluator(around, Sizing(), _as_part).makes_module(inside)


def subjects_in(module: ModuleType) -> list[str]:
    """The names of the public nn.Module classes, the functions that make one, and the modules (instances) that a module
    defines, in its order; of a package, also those that it takes from inside."""

    def is_own(value: Any) -> bool:
        where = str(getattr(value, "__module__", ""))
        return where == module.__name__ or (hasattr(module, "__path__") and where.startswith(f"{module.__name__}."))

    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            isinstance(value, nn.Module)
            or (isinstance(value, FunctionType) and is_own(value) and makes_module(value))
            or (isinstance(value, type) and issubclass(value, nn.Module) and is_own(value))
        )
    ]


# --- instances and expressions --------------------------------------------------------------------


def _of_instance(module: nn.Module, name: str) -> Made:
    fact = Fact("constructor", "a copy of it", f"{name} is an instance")
    return Made(name, type(module), [fact], lambda sizing: copied(module))


def _of_expression(found: nn.Module, spec: Specification) -> Made:
    around = surroundings(_module_of(spec, found))
    source = Source(around.path, spec.name, around.module)
    tree = ast.parse(spec.name, mode="eval").body
    name = type(found).__name__

    def make(evaluator: Evaluator) -> Any:
        return evaluator.value(tree, source.top)

    try:
        way = _Way(type(found), "the expression", make)
        return _fitted(name, way, partial(Evaluator, around, make=_as_part, runs=True), around)
    except Unknown:  # more than the evaluator reads: Python evaluates it, without options
        fact = Fact("constructor", spec.name, "the expression, which has no options that can be set")
        return Made(name, type(found), [fact], lambda sizing: eval(spec.name, dict(vars(around.module))))


def _module_of(spec: Specification, found: nn.Module) -> ModuleType:
    """The module that the specification's expression is evaluated in."""
    if not spec.is_file:
        return sys.modules[spec.target]
    files = [m for m in list(sys.modules.values()) if str(getattr(m, "__file__", None)) == spec.target]
    return files[-1] if files else sys.modules[type(found).__module__]


# --- the ladder -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Way:
    """One way to call a class or function. maker: what is called. strict: nothing that syntax does not tell is
    guessed."""

    maker: Any
    evidence: str
    make: Callable[[Evaluator], Any]
    strict: bool = False


def _ways(made_by: Any, around: Surroundings, strict_first: bool = False) -> Iterator[_Way]:
    """The ways to call a class, function or classmethod, the best first."""
    way = partial(_Way, made_by)
    required = _required(made_by)

    def with_words(words: dict[str, Any]) -> Callable[[Evaluator], Any]:
        return lambda evaluator: evaluator.call(made_by, [], words)

    def as_in(usage: Usage) -> Callable[[Evaluator], Any]:
        return lambda evaluator: evaluator.construct(made_by, usage.call, usage.scope)

    def as_described(arguments: dict[str, Any]) -> Callable[[Evaluator], Any]:
        return lambda evaluator: evaluator.call(made_by, [], class_paths.built(evaluator, arguments))

    if not required:
        if isinstance(made_by, type) and (settings := overridden_defaults(made_by)):
            yield way("its keywords are those of a dict of its file", with_words(settings))
        yield way("zero-argument constructor", with_words({}))
    for strict in (True, False) if strict_first else (False,):
        for usage in usages_of(made_by, around):
            yield way(str(usage) if strict else f"{usage}; what it does not tell is small", as_in(usage), strict)
    for method in makers_of(made_by, around) if isinstance(made_by, type) else ():
        for inner in _ways(method, around, strict_first):
            yield replace(inner, evidence=f"{name_of(method)}: {inner.evidence}")
    for file, arguments in class_paths.arguments_in_files(made_by, around):
        yield way(f"the settings in {file}", as_described(arguments))
    accepted = inspect.signature(made_by).parameters
    for file, section in around.settings:
        if required and all(parameter.name in section for parameter in required):
            words = {key: value for key, value in section.items() if key in accepted}
            yield way(f"the settings in {file}", with_words(words))
    if required:
        yield way("small sizes by the names of its parameters", with_words({}))
    configs = [parameter.name for parameter in required if parameter.name.lower() in CONFIGS]
    for file, section in around.settings if configs else ():
        yield way(f"the settings in {file}", with_words({configs[0]: Options(section)}))
    if configs:  # one without a class holds every name
        read = partial(needing.settings, made_by=made_by, name=configs[0])
        yield way("small numbers by trial", lambda found: found.call(made_by, [], {configs[0]: read(found)}))
    for words in _trials(made_by, required, around) if not configs else ():
        yield way("small numbers by trial", with_words(words))
    if ids := {p.name: SMALL["id"] for p in accepted.values() if p.default is None and meaning(p.name) in _IDS}:
        yield way("small sizes by the names of its parameters, and ids in the place of None", with_words(ids))
    sizes = {
        p.name: SMALL[meant] for p in accepted.values() if p.default is None and (meant := meaning(p.name)) in _SIZES
    }
    if sizes and configs:
        yield way(
            "small numbers by trial, and sizes in the place of None",
            lambda found: found.call(made_by, [], {configs[0]: read(found), **sizes}),
        )
    elif sizes:
        yield way("small sizes by the names of its parameters, and in the place of None", with_words(sizes))


def _trials(made_by: Any, required: list[inspect.Parameter], around: Surroundings) -> Iterator[dict[str, Any]]:
    """Small numbers for the parameters whose names say nothing, nor does what the code does with them."""
    unknown = [p.name for p in required if meaning(p.name) is None and p.annotation in (p.empty, int, "int")]
    unknown = [name for name in unknown if not needing.used(around, made_by, name).says_something]
    if 0 < len(unknown) <= 3:
        for numbers in itertools.islice(itertools.product(_NUMBERS, repeat=len(unknown)), _TRIALS):
            yield dict(zip(unknown, numbers, strict=True))


def _required(made_by: Any) -> list[inspect.Parameter]:
    parameters = inspect.signature(made_by).parameters.values()
    return [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _as_part(cls: Any, evaluator: Evaluator) -> Any:
    """An instance of a class that another constructor needs, by the same ladder. Raises Unknown."""
    if issubclass(cls, Enum):
        return next(iter(cls))
    if not issubclass(cls, nn.Module):  # a config: its defaults first
        return evaluator.construct(cls)
    around = surroundings(sys.modules[cls.__module__])
    with evaluator.once(cls):
        for way in _ways(cls, around):
            try:
                return way.make(evaluator.another(around))
            except TooLarge:
                raise
            except Exception:
                continue
    raise Unknown(cls.__name__)


# --- small enough ---------------------------------------------------------------------------------


def _fitted(name: str, way: _Way, evaluator: Callable[..., Evaluator], around: Surroundings) -> Made:
    """The way as a Made, at smaller sizes where the model is too large; raises what the constructor raises."""
    shown, even = "", True
    given: Mapping[str, Any] = {}
    absent: list[str] = []

    def make(sizing: Sizing) -> nn.Module:
        nonlocal shown, even, given, absent
        evaluates = evaluator(sizing=sizing)
        set_script_names(evaluates)
        with empty_is_nan(), absent_weights() as absent:
            try:
                module = _module(name, way.make(evaluates))
            except AssertionError:
                given = evaluates.given
                raise
        fill(module)
        shown, before, given = shown or evaluates.shown, given, evaluates.given
        even = _divides(given)
        sizing.changed -= {option for option in sizing.changes if _is_handed_no(option, way.maker, given, before)}
        return module

    sizing = Sizing()
    try:
        try:
            module, sizes = limited(make, sizing), []
        except AssertionError as error:
            if not (named := asked_for(error, given)):
                raise
            sizing = Sizing(named=named)
            module, sizes = limited(make, sizing), [Fact("sizes", str(named), "its constructor asserts so")]
    except TooLarge as error:
        module, sizing = scaled_down(make, sizing, around.smallest_variants)
        if sizing.scaled:
            scaled = ", ".join(f"{key} {before} -> {after}" for key, (before, after) in sizing.scaled.items())
            sizes = [Fact("sizes", scaled, str(error))]
        else:
            sizes = [Fact("sizes", f"as they are, {parameters_in(module):,} parameters", "no option makes it smaller")]
    large = parameters_in(module) > MAX_PARAMETERS
    drawn = [Fact("weights", "as they are drawn", f"{os.path.basename(absent[0])} is not there")] if absent else []
    facts = [Fact("constructor", shown, way.evidence), *sizes, *drawn]
    return Made(name, type(module), facts, make, sizing, even, given, large, way.maker)


def _is_handed_no(option: str, maker: Any, given: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether a constructor gets single numbers, as before an option was put in, and none that is called so: the option
    is one of settings that its caller reads other numbers from."""
    names = {*given, *inspect.signature(maker).parameters}
    is_plain = all(map(_is_plain, given.values()))
    return bool(given) and is_plain and given == before and all(meaning(name) != option for name in names)


def _is_plain(value: Any) -> bool:
    """Whether it is a number, a text, a device, or several of these, so that equal ones are the same."""
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return isinstance(value, (int, float, str, NoneType, torch.device))


def _divides(given: Mapping[str, Any]) -> bool:
    """Whether the number of heads among the arguments divides the width; also where either is not among them."""
    sizes = {meaning(name): value for name, value in given.items() if type(value) is int and value > 0}
    width, heads = sizes.get("d_model"), sizes.get("n_heads")
    return width is None or heads is None or width % heads == 0


def _module(name: str, made: Any) -> nn.Module:
    """The module that a constructor gave, alone or first in a tuple."""
    if isinstance(made, tuple) and made and isinstance(made[0], nn.Module):
        made = made[0]
    made = as_torch_module(made)
    if not isinstance(made, nn.Module):
        raise TypeError(f"{name} returns {_kind(made)}, which is no nn.Module")
    if (cls := _unhashable(made)) is not None:
        raise TypeError(f"{cls.__name__} defines __eq__ and no __hash__, so torch cannot list its parameters")
    return with_forward(made)


def _unhashable(module: nn.Module) -> type | None:
    """The class of a part that a set cannot hold, as torch must to walk the parts."""
    waiting, seen = [module], set[int]()  # a part may hold itself
    while waiting:
        part = waiting.pop()
        if type(part).__hash__ is None:
            return type(part)
        seen.add(id(part))
        waiting += [inner for inner in part._modules.values() if inner is not None and id(inner) not in seen]
    return None


# --- sentences ------------------------------------------------------------------------------------


def _kind(found: Any) -> str:
    return f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"


_UNBEGUN = re.compile(r"no attribute '_(modules|parameters|buffers)'|before Module\.__init__\(\) call")
"""What torch says of a module whose constructor did not call that of nn.Module."""


def _refusal(found: Any, spec: Specification, failures: list[Exception]) -> str:
    """Why nothing could be made, and the line to write."""
    name = name_of(found)
    told = [error for error in failures if not isinstance(error, Unknown)]
    unknown = [p.name for p in _required(found) if meaning(p.name) is None]
    if told:  # the first: it stands nearest to how the user calls it; no other way helps where a network is missed
        error = next(filter(_misses_a_network, told), told[0])
        if _UNBEGUN.search(str(error)):
            where = _place(error)
            return (
                f"{name} could not be made: a constructor does not call super().__init__() first{where}; add that line"
            )
        reason = f"{name} could not be made: {type(error).__name__}: {' '.join(str(error).split())}"
        reason += _place(error)
    else:
        reason = f"nothing shows what {', '.join(unknown) or 'its arguments'} of {name} should be"
    return f'{reason}; write its arguments out, as in --impl "{_line(found, spec)}"'


def _place(error: Exception) -> str:
    """ " at file:line: source" of the innermost line of the user's own, where there is one."""
    ours = str(Path(__file__).parents[2])
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if f.filename[0] != "<" and not f.filename.startswith(ours)]
    theirs = [f for f in theirs if "site-packages" not in f.filename]
    return f" at {theirs[-1].filename}:{theirs[-1].lineno}: {theirs[-1].line}" if theirs else ""


def _line(found: Any, spec: Specification) -> str:
    """What to write after --impl: a call with every argument that is required."""
    arguments = ", ".join(f"{p.name}=..." for p in _required(found))
    where = Path(spec.target).name if spec.is_file else spec.target
    return f"{where}:{name_of(found)}({arguments})"
