"""Diffusion models: how noise is added to data, how a class guides, and which labels are dropped in evaluation."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from conformance.adapters.helpers.trial import seeded
from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.calling import Lookups, default_dtype
from conformance.adapters.whole.configs import settings_of
from conformance.adapters.whole.running import RunningModel
from conformance.adapters.whole.used_functions import line_in
from conformance.adapters.whole.watching import user_line
from conformance.protocol import NotProvided

_ADDS = re.compile(
    r"_?(q_?sample|add_?noise|noise_?(images?|data|inputs?|x0?|it)|(forward_)?diffus\w*|perturb\w*|noising)", re.I
)
_NOISE = re.compile(r"noise|eps(ilon)?|z", re.I)
TIME = re.compile(r"t|ts|k|(time_?)?steps?|times?", re.I)
_SCALE = re.compile(r"((cfg|guidance)_?)?(scale|weight|strength|w)|cfg|guidance|omega", re.I)
_CLASSES = re.compile(r"(n_?|num_?)(class(es)?|labels)", re.I)
_LABELS = re.compile(r"y|c|labels?|class(es)?(_?(labels?|ids?))?", re.I)
_MANY = 64
"""Of so many labels at least one is dropped at a rate of 0.1, but for once in 800 times."""
_STEPS = (1, 2, 4, 7, 12, 20, 35, 60, 90)
_COMPARISONS = {"lt", "gt", "le", "ge", "__lt__", "__gt__", "__le__", "__ge__"}
_CHOICES = {"where", "masked_fill", "masked_fill_", "__setitem__"}


@dataclass(frozen=True)
class Noised:
    """How a method adds noise. shares: at each step, by what the data and the noise are multiplied."""

    name: str
    place: str
    shares: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Guided:
    """How a method guides. shares: for growing scales, how much of the answer with the class is in it, where the rest
    is that without. labels: the integers that it hands to the model and was not given: that of no class."""

    name: str
    place: str
    shares: tuple[float, ...]
    labels: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Dropped:
    """What stands for labels that are dropped in training. label: the integer; place: the line that puts it in; rows:
    of the table that labels are looked up in; classes: how many there are, where one setting says so; guided: what
    guidance hands to the model instead of a class, None where nothing shows it."""

    label: int
    place: str
    rows: int
    classes: int | None
    guided: int | None


class Draws(TorchFunctionMode):
    """Records normal numbers that are drawn, and integers that are replaced where uniform ones are small or large: the
    line, what was there, and what is there now."""

    def __init__(self) -> None:
        super().__init__()
        self.normal: list[Tensor] = []
        self.replaced: list[str] = []
        self.before: list[Tensor] = []
        self.after: list[Tensor] = []
        self.uniform: list[Tensor] = []
        self._masks: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        given = [one for one in [*args, *(kwargs or {}).values()] if isinstance(one, Tensor)]
        if name in ("randn", "randn_like"):
            self.normal.append(result)
        elif name in ("rand", "rand_like"):
            self.uniform.append(result)
        elif name in _COMPARISONS and any(one is drawn for one in given for drawn in self.uniform):
            self._masks.append(result)
        elif name in _CHOICES and any(one is mask for one in given for mask in self._masks):
            whole = [one for one in given if one.dtype is torch.int64 and one.dim() == 1]
            if whole:
                self.replaced.append(user_line())
                self.before += whole
                self.after.append(result if isinstance(result, Tensor) else whole[0])
        return result


class DiffusionProbes(RunningModel):
    """The experiments, of a running model."""

    def labels_replaced(self) -> list[str]:
        """file:line of each place that replaces labels of samples at random in evaluation mode. Raises NotProvided
        where none does so in training mode."""
        found = []
        for training in (True, False):
            draws = Draws()
            with self.mode(training), torch.no_grad(), draws:
                self.run(self.example())
            found.append(draws.replaced)
        if not found[0]:
            raise NotProvided("it replaces no labels at random")
        return found[1]

    def dropped_labels(self) -> Dropped:
        """What stands for labels that are dropped at random in training. Raises NotProvided where it is not one label
        for all, or no table is read by labels."""
        self.labels_replaced()
        twin, draws = self.twin(), Draws()
        known = twin.calling.arguments(twin.tensors(twin.example(_MANY)))
        # A label without a row in the table raises IndexError.
        with twin.mode(True), torch.no_grad(), default_dtype(twin.torch_dtype), suppress(Exception), seeded(3), draws:
            twin.module(**known)
        same = [n for n, given in known.items() if any(given is one for one in draws.before)]
        called = [n for n, given in known.items() if _LABELS.fullmatch(n) and _integers(given)]
        name = next(iter(same or called), "")
        if not name or len(draws.replaced) != 1:
            raise NotProvided("it replaces no labels at random")
        new = {*draws.after[0].tolist()} - {*known[name].tolist()}
        told = (torch.arange(_MANY) % 3 == 0).long()
        lookups = Lookups()
        with twin.mode(False), torch.no_grad(), default_dtype(twin.torch_dtype), suppress(Exception), lookups:
            twin.module(**known | {name: told})
        tables = [len(table) for table, ids in lookups.seen if ids.shape == told.shape and torch.equal(ids, told)]
        if len(new) != 1 or len(tables) != 1:
            raise NotProvided("what stands for dropped labels, or the table of labels, is not known")
        guided: set[int] = set()
        with suppress(NotProvided):
            guided = set().union(*(one.labels for one in self.guided()))
        counts = {
            value
            for part in self.module.modules()
            for holder in settings_of(part)
            for key, value in holder.items()
            if type(value) is int and isinstance(key, str) and _CLASSES.fullmatch(key)
        }
        return Dropped(
            new.pop(),
            draws.replaced[0],
            tables[0],
            counts.pop() if len(counts) == 1 else None,
            guided.pop() if len(guided) == 1 else None,
        )

    def noised(self) -> list[Noised]:
        """How its methods, and those of classes of its file that need nothing, add noise. Raises NotProvided."""
        found = []
        for holder, name, function in self._adding():
            with suppress(Exception):  # it asks for what nothing here shows
                if shares := tuple(self._shares(holder, function)):
                    found.append(Noised(name, line_in(function, r"return .*\*", r"\*", r"def "), shares))
        if not found:
            raise NotProvided("no method that adds noise to data could be run")
        return found

    def _adding(self) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
        own = type(self.module).__module__
        holders: list[Any] = [self.twin().module]
        for one in list(vars(sys.modules.get(own, object())).values()):  # a warning may add to them
            is_own = isinstance(one, type) and one.__module__ == own and one is not type(self.module)
            if is_own and any(_ADDS.fullmatch(name) for name in vars(one)):
                with suppress(Exception):
                    holders.append(one())
        for holder in holders:
            for name, function in inspect.getmembers(type(holder), inspect.isfunction):
                if _ADDS.fullmatch(name) and not function.__module__.startswith("torch"):
                    yield holder, name, function

    def share_at(self, step: int) -> tuple[float, float]:
        """By what the first of its methods that add noise multiplies data and noise at a step. Raises NotProvided."""
        for holder, _, function in self._adding():
            with suppress(Exception):
                for share in self._shares(holder, function, (step,)):
                    return share
        raise NotProvided("no method that adds noise to data could be run")

    def _shares(
        self, holder: Any, function: Callable[..., Any], steps: Sequence[int] = _STEPS
    ) -> Iterator[tuple[float, float]]:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        needed = [one.name for one in parameters if one.default is one.empty]
        noise = next((one.name for one in parameters if _NOISE.fullmatch(one.name)), "")
        time = next((one.name for one in parameters[1:] if TIME.fullmatch(one.name)), "")
        if not time or not {*needed} <= {parameters[0].name, time, noise}:
            return
        x = torch.tensor(self.example(2, seed=98)[self.calling.main.meaning])
        eps = torch.randn(x.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(x.dtype)
        for step in steps:
            with suppress(IndexError), torch.no_grad(), default_dtype(x.dtype), Draws() as draws:
                given = {parameters[0].name: x, time: torch.full((len(x),), step)} | ({noise: eps} if noise else {})
                out = _first(function(holder, **given)).double()
                added = eps if noise else draws.normal[0]
                basis = torch.stack([x.flatten(), added.flatten()], 1).double()
                found = torch.linalg.lstsq(basis, out.flatten()[:, None]).solution
                if bool((basis @ found - out.flatten()[:, None]).abs().max() < 1e-4):
                    yield float(found[0]), float(found[1])

    def guided(self) -> list[Guided]:
        """How its methods mix the answers with a class and without. Raises NotProvided."""
        found = []
        for name, function in inspect.getmembers(type(self.module), inspect.isfunction):
            if function.__module__.startswith("torch") or name in ("forward", "__init__"):
                continue
            with suppress(Exception):  # it asks for what nothing here shows
                if (one := self._guided(name, function)) is not None:
                    found.append(one)
        if not found:
            raise NotProvided("no method that guides by a class could be run")
        return found

    def _guided(self, name: str, function: Callable[..., Any]) -> Guided | None:
        twin = self.twin()
        known = twin.calling.arguments(twin.tensors(twin.example(3, seed=99)))
        parameters = list(inspect.signature(function).parameters.values())[1:]
        scale = next((one.name for one in parameters if _SCALE.fullmatch(one.name) and one.name not in known), "")
        given = {one.name: known[one.name] for one in parameters if one.name in known}
        needed = {one.name for one in parameters if one.default is one.empty}
        if not scale or not needed - {scale} <= given.keys() or len(given) < 2:
            return None
        with twin.mode(False), torch.no_grad(), default_dtype(twin.torch_dtype):
            forward, answers, labels = twin.module.forward, list[Tensor](), set[int]()

            def watched(*args: Any, **kwargs: Any) -> Any:
                labels.update(_integers([args, kwargs]))
                result = forward(*args, **kwargs)
                answers.extend(_first(result).split(3))
                return result

            with_class = _first(forward(**known))
            vars(twin.module)["forward"] = watched
            mixed = [_first(function(twin.module, **given, **{scale: value})) for value in (1.5, 3.0, 6.0)]
        others = [one for one in answers if one.shape == with_class.shape and not _alike(one, with_class)]
        if not others or len(others) == len(answers) or not all(_alike(one, others[0]) for one in others):
            return None
        away = (with_class - others[0]).flatten().double()
        shares = [float((one - others[0]).flatten().double() @ away / (away @ away)) for one in mixed]
        for share, one in zip(shares, mixed, strict=True):
            if float(((one - others[0]).flatten() - share * away).abs().max()) > 1e-4 * float(away.abs().max()):
                return None
        none = frozenset(labels - _integers(known))
        return Guided(name, line_in(function, r"return .*\*", r"\*.*-", r"def "), tuple(shares), none)


def _integers(given: Any) -> set[int]:
    """The integers in the rows of what a model is given."""
    rows = (one for one in tensors_in(given) if one.dim() == 1 and one.dtype is torch.int64)
    return {number for one in rows for number in one.tolist()}


def _alike(one: Tensor, other: Tensor) -> bool:
    """Equal up to what a batch of another size changes in float32."""
    return bool((one - other).abs().max() <= 1e-5 * other.abs().max())


def _first(result: Any) -> Tensor:
    """The first tensor of what a function gave."""
    return next(iter(tensors_in(result)))
