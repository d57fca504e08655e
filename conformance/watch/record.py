"""A training run that was watched: `Run`, its events in order, and what is known of its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from types import CodeType
from typing import Any

from conformance.watch.details import Drawn, Loose, Rows
from conformance.watch.events import Event, Forward, Kind, Save, Skip, Step
from conformance.watch.lines import At


@dataclass
class Parameter:
    """One parameter.

    name: in the module that it was first seen in. layer: the class of its part. used: whether its part ran. in_model:
    whether it is of an outermost module that ran, or of one that is set to train, and module: the number of the last
    such one. is_matrix: whether it has two axes or more. shares: the numbers of others that lie in the same memory;
    equals: that had equal values before the first step and lie elsewhere.
    """

    name: str
    size: int
    layer: str
    needs: bool
    dtype: str
    used: bool = False
    in_model: bool = False
    module: int = -1
    is_matrix: bool = True
    shares: tuple[int, ...] = ()
    equals: tuple[int, ...] = ()


@dataclass
class Group:
    """An optimizer as it was when it first stepped. place, stack: where it was made. cls: its class. groups: the
    parameters of each of its groups."""

    kind: str
    place: str
    groups: tuple[tuple[int, ...], ...]
    settings: tuple[Mapping[str, Any], ...]
    cls: type = object
    stack: tuple[At, ...] = field(default=(), repr=False)

    @property
    def parameters(self) -> tuple[int, ...]:
        return tuple(number for group in self.groups for number in group)


@dataclass
class Copy:
    """A matrix in no optimizer that began with the values of a stepped one. of: the number of that. kept: the share of
    itself that it kept from step to step, where it moved towards the other one: 0.99 of a slow average. likeness: the
    cosine of both at the start."""

    of: int
    kept: list[float] = field(default_factory=list)
    likeness: float = 1.0


Moment = Mapping[str, str]
"""What a step begins from: "model", "optimizer", ... -> a fingerprint."""

WHOLE = "the script ended"


@dataclass
class Run:
    """A training run that was watched. modules: the outermost modules by number, as (class, place of the class). parts:
    the classes of their parts by path, where they have parameters; earlier: those that were replaced. parameters,
    optimizers, loaders, schedulers: by number, the last two as the place where they were made; planned: the frames that
    made schedulers. rate_functions: the code of the functions that schedules were given; descents: after how many steps
    these have come down, where they do; peaks: after how many they are largest, where the run ends before. moments:
    what each step began from, where that is asked for; expected: of a run that was not stopped. unread_rates: what
    rates were written where their optimizer reads none, by its number; given_rates: that of optimizers whose groups
    were all made with one. frozen: the parameters that are frozen at the end. outside: trainable ones that got
    gradients, are in no optimizer, and stayed as they began. loose: what parts of the model hold that PyTorch does not
    know. copies: matrices that follow a stepped one, by number; aliases: those that lie in its memory, with the share
    of itself that each kept from the end of a step to the beginning of the next; kept: the same of one matrix that is
    stepped; asked: copies that are loaded, saved, or stood in the model's place in an evaluation; strangers: those that
    follow one and did not begin as its copy. without_statistics: modules with an average of weights whose norms over
    the batch have those they were made with. still: the buffers and frozen parameters that did not change from the
    first step on, by name. unread: where loaders were made that gave no batch. drawn: loaders that draw by weights.
    rows: which rows loaders draw from. givers: the code that makes items and batches for loaders. files: the user's
    that a script imported. ends: the ids that end a text, by their names. flagged: parts with an attribute
    `requires_grad` that none of their parameters follows, by path. misspelt: attributes of parameters that are nearly
    called so. options: whether the script was given arguments. ended: why watching ended, in words; whole: whether the
    script ended."""

    events: list[Event] = field(default_factory=list)
    modules: dict[int, tuple[str, str]] = field(default_factory=dict)
    parameters: dict[int, Parameter] = field(default_factory=dict)
    optimizers: dict[int, Group] = field(default_factory=dict)
    schedulers: dict[int, str] = field(default_factory=dict)
    planned: dict[int, tuple[At, ...]] = field(default_factory=dict)
    parts: dict[int, dict[str, type]] = field(default_factory=dict)
    earlier: list[dict[str, type]] = field(default_factory=list)
    rate_functions: dict[int, list[CodeType]] = field(default_factory=dict)
    descents: dict[int, int] = field(default_factory=dict)
    peaks: dict[int, int] = field(default_factory=dict)
    loaders: dict[int, str] = field(default_factory=dict)
    drawn: list[Drawn] = field(default_factory=list)
    rows: list[Rows] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    expected: list[Moment] = field(default_factory=list)
    copies: dict[int, Copy] = field(default_factory=dict)
    aliases: dict[int, Copy] = field(default_factory=dict)
    kept: list[float] = field(default_factory=list)
    asked: set[int] = field(default_factory=set)
    strangers: dict[int, Copy] = field(default_factory=dict)
    without_statistics: list[int] = field(default_factory=list)
    unread_rates: dict[int, str] = field(default_factory=dict)
    given_rates: dict[int, float] = field(default_factory=dict)
    frozen: set[int] = field(default_factory=set)
    outside: set[int] = field(default_factory=set)
    loose: list[Loose] = field(default_factory=list)
    still: set[str] = field(default_factory=set)
    unread: list[str] = field(default_factory=list)
    givers: list[CodeType] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)
    flagged: list[str] = field(default_factory=list)
    misspelt: set[str] = field(default_factory=set)
    options: bool = False
    steps: int = 0
    ended: str = WHOLE
    notes: list[str] = field(default_factory=list)
    _last_steps: dict[int, int] = field(default_factory=dict, repr=False)

    def add(self, event: Kind) -> Kind:
        event.step, event.order = self.steps, len(self.events)
        if isinstance(event, Step):
            event.previous = self._last_steps.get(event.optimizer, -1)
        if isinstance(event, Step | Skip):
            self._last_steps[event.optimizer] = event.order
        self.events.append(event)
        return event

    def of(self, kind: type[Kind]) -> list[Kind]:
        """The events of a kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def between(self, first: int, last: int, kind: type[Kind]) -> Iterator[Kind]:
        """The events of a kind after the one with the order `first` and before the one with `last`."""
        return (event for event in self.events[first + 1 : last] if isinstance(event, kind))

    def calls_since_step(self) -> list[Forward]:
        """The calls of modules since the last optimizer step."""
        found = takewhile(lambda event: not isinstance(event, Step), reversed(self.events))
        return [event for event in found if isinstance(event, Forward)]

    @property
    def whole(self) -> bool:
        return self.ended == WHOLE

    def saved_at(self) -> int | None:
        """After how many steps the last checkpoint was written; None where none was."""
        saves = [save.step for save in self.of(Save) if save.holds & {"model", "optimizer"}]
        return saves[-1] if saves else None

    def named(self, numbers: Sequence[int] | frozenset[int], most: int = 3) -> str:
        """Parameters by name, the first few."""
        names = [self.parameters[number].name for number in sorted(numbers)]
        more = f" and {len(names) - most} more" if len(names) > most else ""
        return ", ".join(names[:most]) + more
