"""Experiments on what a running model draws at random and drops: which dropouts act, at which rate, by whose option."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.undropped import DROPS, NoDropouts
from conformance.adapters.whole.class_source import source_of
from conformance.adapters.whole.flow import base_name, moves
from conformance.adapters.whole.record import Record, record
from conformance.adapters.whole.running import RunningModel
from conformance.adapters.whole.statements import argument_line
from conformance.adapters.whole.used_functions import text_of, used_functions
from conformance.adapters.whole.watching import argument, user_line
from conformance.places import file_of_class, is_users
from conformance.protocol import Arrays, NotProvided
from conformance.seeds import seed_torch

_MONTE_CARLO = re.compile(r"(^|_)mc(_|$)|monte_?carlo|always_drop|drop\w*_(at|in|during)_(inf|eval|test)")

_FOR_TRAINING = re.compile(
    r"(during|in|at|for|while) training|training[- ](only|time)|spec_?(aug|mask)|augment|cut_?out|jitter",
    re.IGNORECASE,
)
_DRAWS = re.compile(r"\brand(n|int|perm|om)?(_like)?\(|\.(bernoulli|uniform|normal|random)_?\(|random\.\w+\(")

_TOLD = re.compile(r"(is_)?train(ing)?(_mode)?|deterministic")
"""Parameters of forward by which its caller says whether something is dropped, whatever the module's mode is."""
_OF_PATHS = re.compile(r"(?i)drop_?path|stochastic_?depth")
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout)


def _called_at(source: str, name: str) -> int | None:
    """Which line of a class calls a function, but those of methods that train."""
    method = ""
    for number, line in enumerate(source.splitlines()):
        method = found[1] if (found := re.match(r"\s*def (\w+)", line)) else method
        if f"{name}(" in line and not re.search(r"train|fit|step", method):
            return number
    return None


@dataclass(frozen=True)
class Dropped:
    """One dropout that acted. rate: its probability, None when unknown; what: in words; place: file:line."""

    rate: float | None
    what: str
    place: str


class _Dropouts(TorchFunctionMode):
    """Records every call of a dropout function that drops something."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Dropped] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        rate: float | None = None
        if name in DROPS:
            rate = argument(args, kwargs, 1, "p", 0.5)
            acts = bool(argument(args, kwargs, 2, "training", True))
        elif name == "scaled_dot_product_attention":
            rate = argument(args, kwargs, 4, "dropout_p", 0.0)
            acts = True
        elif name in ("bernoulli", "bernoulli_"):
            rate, acts = None, not _is_one_a_sample(args[0])
        else:
            return func(*args, **kwargs)
        if acts and (rate is None or rate > 0):
            place = argument_line(user_line(), "dropout_p" if name == "scaled_dot_product_attention" else "training")
            self.seen.append(Dropped(rate, f"{name} of {rate:g}" if rate is not None else name, place))
        return func(*args, **kwargs)


def _is_one_a_sample(mask: torch.Tensor) -> bool:
    """Whether a random mask has one number for each sample: it drops a path, and no single numbers."""
    return mask.dim() > 0 and mask.numel() == mask.shape[0]


def _block_of(module: nn.Module, path: str) -> str:
    """The innermost block of a list that a part stands in; "" for none."""
    while path := path.rpartition(".")[0]:
        holder, _, name = path.rpartition(".")
        if name.isdigit() and isinstance(module.get_submodule(holder), nn.ModuleList):
            return path
    return ""


def _dropped(*given: Any, **words: Any) -> Tensor:
    """What stochastic depth gives where it drops all that it is handed."""
    if len(given) != 1 or words or not isinstance(given[0], Tensor):
        raise NotProvided("a part of it drops what it is handed, and takes more")
    return torch.zeros_like(given[0])


class DropProbes(RunningModel):
    """The experiments, of a running model."""

    def stream_is_dropped(self) -> str:
        """The path of the first block whose stream is dropped together with what it adds, where all is dropped that a
        part of its own drops: what it gives depends on nothing then. "" where the stream goes on. Raises NotProvided
        where no part of a block drops, or one takes more than what it drops."""
        twin = self.twin()
        drops = [path for path, part in twin.module.named_modules() if _OF_PATHS.search(type(part).__name__)]
        blocks = list(dict.fromkeys(filter(None, (_block_of(twin.module, path) for path in drops))))
        given: dict[str, list[Tensor]] = {path: [] for path in blocks}
        for path in drops:
            vars(twin.module.get_submodule(path))["forward"] = _dropped
        for path in blocks:

            def seen(_: nn.Module, __: Any, result: Any, path: str = path) -> None:
                given[path] += [next(tensors_in(result)).detach().clone()]

            twin.module.get_submodule(path).register_forward_hook(seen)
        with suppress(Exception), twin.mode(True), torch.no_grad(), NoDropouts():  # what drops may take more
            for seed in (97, 98) if blocks else ():
                twin.run(twin.example(seed=seed))
        pairs = {path: found for path, found in given.items() if len(found) == 2 and found[0].shape == found[1].shape}
        if not pairs:
            raise NotProvided("no part of its blocks drops what they add")
        return next((path for path, (first, second) in pairs.items() if torch.equal(first, second)), "")

    def in_training_without_drops(self, **inputs: Any) -> Arrays:
        """The answer in training mode where nothing is dropped: which numbers are drawn may depend on other words, as
        where each expert drops of what it gets. Raises NotProvided as `trained` does."""
        with NoDropouts():
            return self.in_training(3, **inputs)

    @property
    def draws_anew(self) -> bool:
        """Whether the same input gets another answer in evaluation mode: other numbers are drawn each time. Draws that
        decide about few tokens change an answer once in a while only."""
        known = f"draws_anew {NoDropouts.active}"
        if known not in self.known:
            inputs, twin = self.example(), self.twin()
            torch.manual_seed(1)
            before, first = torch.get_rng_state(), twin(**inputs)["out"]
            tries = 1 if torch.equal(before, torch.get_rng_state()) else 20  # draws that are not torch's show at once
            others = (self.twin()(**inputs)["out"] for _ in range(tries))  # a twin each: what a call keeps is no draw
            differs = any(float(np.abs(first - other).max(initial=0.0)) > 0 for other in others)
            self.known[known] = differs or bool(self.renewed)
        return bool(self.known[known])

    @property
    def drops_in_evaluation(self) -> bool:
        """Whether its answers are random in evaluation mode by dropouts alone."""
        if not self.draws_anew:
            return False
        with NoDropouts():
            return not self.draws_anew

    def drawing_alike(self, one: Arrays, other: Arrays) -> Self:
        """A copy that draws the same numbers in each call, for inputs of which both let it draw as many; itself where
        it draws none, or more for one of them: then the same seed would give other numbers to what is alike."""
        if not self.draws_anew:
            return self
        twin = replace(self.twin(), draws_alike=True, known={})
        states = []
        for inputs in (one, other):
            twin(**inputs)
            states.append((random.random(), float(np.random.random()), float(torch.rand(()))))
        return twin if states[0] == states[1] and not twin.draws_anew else self

    def drawn_masks(self) -> list[Dropped]:
        """What is dropped in evaluation mode without a dropout of torch's: uniform numbers that are compared, and what
        they let through is multiplied."""
        if "drawn masks" not in self.known:
            with self.mode(False), torch.no_grad():
                run = record(self.module, lambda: self.run(self.example()))
            self.known["drawn masks"] = list(_drawn_masks(run))
        found: list[Dropped] = self.known["drawn masks"]
        return found

    def drawn_though_for_training(self) -> Dropped | None:
        """A part that draws in evaluation as in training, and is meant for training, as its name or its words say; or a
        function that a part calls."""
        for path, part in self.module.named_modules():
            cls: type = type(part)
            found = source_of(cls)
            if found is None:
                continue
            for function in used_functions(cls) if "self.training" not in found[0] else ():
                said = f"{function.__name__} {inspect.getdoc(function) or ''}"
                called = _called_at(found[0], function.__name__)
                if called is not None and _FOR_TRAINING.search(said) and _DRAWS.search(text_of(function)):
                    return Dropped(None, function.__name__, f"{found[1]}:{found[2] + called}")
            if any(True for _ in part.children()):
                continue
            said = f"{cls.__name__} {inspect.getdoc(cls) or ''}"
            if "self.training" in found[0] or not _FOR_TRAINING.search(said):
                continue
            for number, line in enumerate(found[0].splitlines(), found[2]):
                if _DRAWS.search(line):
                    return Dropped(None, path or cls.__name__, f"{found[1]}:{number}")
        return None

    def asks_for_dropout(self) -> str:
        """The option that is on and asks for dropout in evaluation (Monte Carlo dropout); "" when there is none."""
        for part in self.module.modules():
            for name, value in vars(part).items():
                if value is True and _MONTE_CARLO.search(name.lower()):
                    return name
        return ""

    def told_to_drop(self) -> str:
        """The parameter of forward that says whether something is dropped; "" when the mode alone decides."""
        return next((name for name in inspect.signature(self.module.forward).parameters if _TOLD.fullmatch(name)), "")

    def active_dropouts(self, training: bool) -> list[Dropped]:
        """Which dropouts drop something in this mode."""
        inputs = self.example()
        mode = self.trained(inputs) if training else self.mode(False)
        with mode, torch.no_grad(), _Dropouts() as seen:
            self.run(inputs)
        return seen.seen

    def own_dropouts(self, training: bool) -> list[Dropped]:
        """The active ones that its options can be about: a network of a library in it keeps the rates of its own
        configuration."""
        of_library = not is_users(file_of_class(type(self.module)))
        active = self.active_dropouts(training)
        return [one for one in active if of_library or is_users(one.place)]

    def draws(self) -> bool:
        """Whether training mode is random in some way: layers and paths are dropped by numbers of their own."""
        inputs = self.example()
        first, second = (self.in_training(seed, **inputs)["out"] for seed in (1, 2))
        return not np.array_equal(first, second)

    def draws_without_dropout(self) -> bool:
        """The same, with every dropout's rate 0, in modules and as they keep it."""
        twin = self.twin()
        for part in twin.module.modules():
            kept = [name for name, value in vars(part).items() if "drop" in name.lower() and isinstance(value, float)]
            for name in [*kept, *(["p"] if isinstance(part, _DROPOUTS) else [])]:
                setattr(part, name, 0.0)
        return twin.draws()

    def dropout_rates(self) -> list[tuple[str, float]]:
        """The path and rate of every dropout module."""
        return [(path, float(part.p)) for path, part in self.module.named_modules() if isinstance(part, _DROPOUTS)]

    def unscaled_drops(self) -> list[tuple[str, float, str]] | None:
        """Parts of the user's that drop what they get, element by element or row by row: the path of each whose mean
        over many draws in training is not its answer in evaluation, their ratio, and the line that multiplies. None
        where none drops."""
        found, any_drops = [], False
        for path, part in self.twin().module.named_modules():
            own = not type(part).__module__.startswith("torch.") and not any(True for _ in part.parameters())
            rates = [n for n, v in vars(part).items() if re.search("drop|prob|^p$|rate", n) and type(v) in (int, float)]
            if not own or any(True for _ in part.children()) or len(rates) != 1 or _keeps_scale_option(part):
                continue
            setattr(part, rates[0], 0.4)
            x = torch.ones(20_000, 1, 1, dtype=self.torch_dtype)
            with suppress(Exception), torch.no_grad():
                seed_torch(0)
                trained, plain = part.train()(x), part.eval()(x)
                values = trained.unique()
                if trained.shape != x.shape or len(values) != 2 or float(values[0]) != 0 or len(plain.unique()) != 1:
                    continue
                any_drops = True
                ratio = float(trained.mean() / plain.mean())
                if abs(ratio - 1) > 0.1:  # the mean of 20,000 draws lies within 0.03 but once in 1e9
                    found.append((path, ratio, _multiplied_at(part, x)))
        return found if any_drops else None


def _drawn_masks(run: Record) -> Iterator[Dropped]:
    for op in run.ops:
        if base_name(op) not in ("rand", "rand_like", "uniform", "bernoulli") or not op.outputs:
            continue
        stack, seen = [(op.outputs[0], base_name(op) == "bernoulli")], {op.outputs[0]}
        while stack:
            here, is_mask = stack.pop()
            for reader in run.consumers(here):
                name = base_name(reader)
                others = [value for value in reader.inputs if value is not here and run.computed(value)]
                if is_mask and name in ("mul", "div", "where", "masked_fill") and others:
                    yield Dropped(None, "numbers at random", str(op.place or ""))
                    return
                compares = name in ("lt", "le", "gt", "ge", "floor")
                onward = compares or moves(reader) or name in ("add", "mul", "div", "logical_not", "bitwise_not")
                if onward and not others and reader.outputs and reader.outputs[0] not in seen:
                    seen.add(reader.outputs[0])
                    stack.append((reader.outputs[0], is_mask or compares))


def _multiplied_at(part: nn.Module, x: Tensor) -> str:
    """file:line of the last product in training mode; "" without one."""
    run = record(part.train(), lambda: part(x))
    places = [op.place for op in run.ops if base_name(op) in ("mul", "div", "where", "masked_fill") and op.place]
    return str(places[-1]) if places else ""


def _keeps_scale_option(part: nn.Module) -> bool:
    """Whether an option says that what is kept shall not be scaled."""
    return any(re.search("scale", name) and value is False for name, value in vars(part).items())
