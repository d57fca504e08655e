"""What happens in a training run, by kind: the events that a `Run` holds.

Every event has the number of the optimizer step in which it happened (0 before the first one ended), a place in the
order of all events, and the line of the user's code that made it happen. An event holds what a claim needs, worked out
when it happened, and no tensor that would keep a graph alive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from conformance.watch.details import Frames, Pairs, Spread
from conformance.watch.lines import At


@dataclass(kw_only=True)
class Event:
    """step: how many optimizer steps had ended. order: its number among all events. place: "train.py:12". stack: the
    user's frames, innermost first."""

    step: int = 0
    order: int = 0
    place: str = ""
    stack: tuple[At, ...] = field(default=(), repr=False, compare=False)


@dataclass(kw_only=True)
class Forward(Event):
    """A call of an outermost module.

    module: its number in the run. training: its mode. random: the parts that draw random numbers in training
    (dropout), by path, that are in training mode. resting: those that are not. dropping: in evaluation mode, the lines
    of functions that drop all the same. normed: batch norms in training mode. gradients: whether operations were
    recorded. generator, state: fingerprints of the random state, the second one only where moments are kept.
    evaluating: the names of the user's functions on the way that speak of evaluation. samples: a fingerprint of each
    row of its first input with rows; columns: of each column of ids, where a script keeps its samples in them.
    learned: of the batch norms in training mode, those whose own parameters are frozen. frozen: whether all parameters
    are. autocast: whether it was on. windows: fingerprints of some stretches of its ids. taught: the random parts in
    training mode inside a frozen part that is named a teacher. spread: how the numbers of its first input lie.
    """

    module: int
    training: bool
    random: tuple[str, ...] = ()
    resting: tuple[str, ...] = ()
    dropping: tuple[str, ...] = ()
    normed: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()
    frozen: bool = False
    gradients: bool = True
    generator: int = 0
    evaluating: tuple[str, ...] = ()
    state: str = ""
    samples: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()
    windows: frozenset[int] = frozenset()
    autocast: bool = False
    taught: tuple[str, ...] = ()
    spread: Spread | None = None


@dataclass(kw_only=True)
class Targets:
    """What a cross-entropy saw, token by token: which input stood where each answer was given.

    offsets: how far the label is ahead of the input at the same position -> the share of counted labels of which that
    holds, for the input (of several) that fits best. kept: the share of counted labels that are the input at their own
    place. tokens: how many ids that input has, without what fills its rows up. total: how many labels there are;
    counted: how many weigh in the loss. pads: how many labels are padding that follows padding; padding: how many of
    these weigh in the loss; pad: their id.
    over_all: whether the sum is divided by the number of all labels although some do not count. crossed: whether the
    labels are the next tokens once they are flattened along the other axis. masked: whether the input has one id at
    more than half of the places that count. openings: how many labels count that are the one token which opens every
    row and stands nowhere else. ends: how many rows end, before padding, with one token that stands nowhere else;
    ended: how many labels of that token count.
    idle: how many places have the id that stands where most labels count, no padding, and no label that counts; hidden:
    how many labels that count have it at their place. masks: how many labels that count have at their place the id that
    stands there most, where it stands nowhere else; swaps: how many have another one there that is not theirs.
    """

    offsets: Mapping[int, float] = field(default_factory=dict)
    kept: float = 0.0
    tokens: int = 0
    counted: int = 0
    total: int = 0
    padding: int = 0
    pads: int = 0
    pad: int = -1
    over_all: bool = False
    crossed: bool = False
    masked: bool = False
    openings: int = 0
    ends: int = 0
    ended: int = 0
    idle: int = 0
    hidden: int = 0
    masks: int = 0
    swaps: int = 0


@dataclass(kw_only=True)
class Loss(Event):
    """A call of one of torch's loss functions.

    value: its result where that is one number. reduction: as given. gradients: whether it was recorded. input:
    "logits", "log-probabilities" or "probabilities"; "" where it was not looked at. classes: how many. rows: of a
    divergence, the least and the largest sum of a row of its target that is not zero. smoothing: the share that label
    smoothing takes from the label. shapes: of input and target, where these are broadcast. softmax: the line that made
    probabilities of the input. weights: those of the classes that were given; labels: how often each class was asked
    for, where there are weights. asked: which labels are not ignored, bit by bit, in the first steps; unasked: whether
    some are ignored there. learner: of a divergence, which sides are learned: "input", "target" or "both"; softness: by
    what the logits of both sides are multiplied before their softmax, where that was found; apart: how far behind the
    input's rows those of the target stand in the answers of both, None where it was not found. asked_for: the ids that
    labels ask for, in the first steps; span: of labels in one row, the least and the largest one. skips_padding:
    whether the labels that are ignored are those of the padding of an input; padded_with: the class that padding is
    asked for, where other labels are ignored. lead: how many labels at the beginning of a row are ignored, of most
    rows; behind: how far the first label lies behind the sign that ends every prompt, None where there is none;
    is_early: whether labels of classes lie one place before their words. held: whether the number that is asked of each
    row, or the first one of several, stands in it. frames: of a CTC loss. pairs: where all are compared;
    holds_itself: also each with itself, which is never asked for. cut_anew: whether scores of words were given another
    shape where they should be turned.
    """

    name: str
    value: float | None
    reduction: str = "mean"
    gradients: bool = True
    input: str = ""
    classes: int = 0
    rows: tuple[float, float] | None = None
    smoothing: float = 0.0
    shapes: str = ""
    softmax: str = ""
    weights: tuple[float, ...] = ()
    labels: tuple[int, ...] = ()
    targets: Targets | None = None
    asked: bytes = b""
    unasked: bool = False
    learner: str = ""
    softness: tuple[float, ...] = ()
    apart: int | None = None
    asked_for: frozenset[int] = frozenset()
    lead: int = -1
    behind: int | None = None
    is_early: bool = False
    span: tuple[int, int] | None = None
    skips_padding: bool = False
    padded_with: int | None = None
    held: bool = False
    frames: Frames | None = None
    pairs: Pairs | None = None
    holds_itself: bool = False
    cut_anew: bool = False


@dataclass(kw_only=True)
class Written(Event):
    """A cross-entropy that the script writes by hand, known by its gradient, and so in the backward pass. name: the
    function that it is made from. raised: the share of the labels that count whose probability the step raises."""

    name: str
    targets: Targets
    raised: float = 1.0


@dataclass(kw_only=True)
class Difference(Event):
    """Answers minus targets, or the other way round, that a script writes by hand: one number for each row, or targets
    that are held, as those of a loss. shapes: of both, where these are broadcast to all pairs of rows."""

    shapes: str = ""
    held: bool = False


@dataclass(kw_only=True)
class Margin(Event):
    """A `logsigmoid` that is learned from. largest: of the margins it got, by size; spread: how far they differ.
    is_at_start: whether the model that learns and one beside it had the same weights. is_new: whether the one beside it
    has learned nothing of what that model has."""

    largest: float
    spread: float = 0.0
    is_at_start: bool = False
    is_new: bool = False


@dataclass(kw_only=True)
class Backward(Event):
    """value: of the tensor that it began with. scaled: whether by a gradient scaler; factor: by how much. stale: the
    parameters to whose gradient it added although the last step of their optimizer had used that already."""

    value: float
    scaled: bool = False
    factor: float = 1.0
    autocast: bool = False
    stale: tuple[int, ...] = ()


@dataclass(kw_only=True)
class Clear(Event):
    """Gradients were cleared. parameters: their numbers."""

    parameters: frozenset[int]


@dataclass(kw_only=True)
class Clip(Event):
    """limit: the largest norm, or value. by: "norm" or "value". parameters: those that were given, by number. norm: the
    norm before. gradients: how many of them had one."""

    limit: float
    by: str
    parameters: frozenset[int]
    norm: float
    gradients: int


@dataclass(kw_only=True)
class Unscale(Event):
    optimizer: int


@dataclass(kw_only=True)
class Skip(Event):
    """A gradient scaler left a step out, since gradients were not finite."""

    optimizer: int


@dataclass(kw_only=True)
class Step(Event):
    """One optimizer step.

    optimizer: its number. previous: the order of the one before, made or left out; -1 for its first. began: the order
    of the first event inside it, of a closure. rates: of its groups. missing: parameters without a gradient. closely:
    whether it was looked at in detail; else the rest is empty. zero: parameters with a gradient that is zero
    throughout; infinite: with one that is not finite; still: with a gradient above rounding, which did not change.
    norm: of all gradients; norms: of each, by parameter. scaler: whether a gradient scaler made the step; scaled:
    whether the gradients still had its factor. rule: how the change follows from the gradient, as
    `conformance.watch.rules` says.
    """

    optimizer: int
    rates: tuple[float, ...]
    previous: int = -1
    began: int = 0
    closely: bool = False
    missing: frozenset[int] = frozenset()
    zero: frozenset[int] = frozenset()
    infinite: frozenset[int] = frozenset()
    still: frozenset[int] = frozenset()
    norm: float = 0.0
    norms: Mapping[int, float] = field(default_factory=dict)
    scaler: bool = False
    scaled: bool = False
    rule: str = ""


@dataclass(kw_only=True)
class Schedule(Event):
    """A scheduler stepped. scheduler: its number. optimizer: whose rates it sets. rates: those it set. count: how many
    steps it has counted. kind: its class. mode: "min" or "max" where it watches a measure. period: after how many
    steps it turns round, where it has such a number. acting: of one that holds others in a row, the one that acts."""

    scheduler: int
    optimizer: int
    kind: str
    rates: tuple[float, ...]
    count: int
    mode: str = ""
    period: int = 0
    acting: Schedule | None = None


@dataclass(kw_only=True)
class Batch(Event):
    """A loader gave a batch. loader: its number. epoch: how often it was begun. samples: a fingerprint of each row.
    size: how many rows; 0 is an empty one. rows: which rows of a data set its loader draws from, by number in the run;
    -1 where that is not known."""

    loader: int
    epoch: int
    samples: tuple[int, ...]
    size: int
    rows: int = -1


@dataclass(kw_only=True)
class Seed(Event):
    """The random generator was given a seed."""


@dataclass(kw_only=True)
class Mode(Event):
    """A module was set to training or evaluation."""

    module: int
    training: bool


@dataclass(kw_only=True)
class Save(Event):
    """A file was written. holds: which of "model", "optimizer", "scheduler", "scaler" and "random state" are in it.
    numbers: the keys of its whole numbers; keys: all of its keys. factors: one of a trained adapter that is in it, and
    the other one, which is not."""

    holds: frozenset[str]
    numbers: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Load(Event):
    """A checkpoint was read. holds: as of a save. is_own: whether this run wrote it. averages: the keys of state that
    is named after an average or a queue of keys."""

    holds: frozenset[str]
    is_own: bool = True
    averages: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Restore(Event):
    """State was loaded. what: "model", "optimizer" or "scheduler". of: as of a snapshot. is_itself: whether it is the
    module's own memory. is_lost: whether nothing of the module is left when watching ends. matched: how many of its
    parameters got a value; -1 where that is not known."""

    what: str
    of: int = -1
    is_itself: bool = False
    is_lost: bool = False
    matched: int = -1


@dataclass(kw_only=True)
class Snapshot(Event):
    """The user's code asked a module for its state. of: a parameter of the module, by number; -1 where it has none.
    held: all that are known.
    outlived: for how many steps it kept what it was given, which changes with the module. frozen: whether none of its
    parameters learns."""

    of: int = -1
    held: frozenset[int] = frozenset()
    outlived: int = 0
    frozen: bool = False


@dataclass(kw_only=True)
class Averaged(Event):
    """An optimizer is about to go on from the average of its weights. of: the number of a weight."""

    of: int


@dataclass(kw_only=True)
class Probe(Event):
    """A call that was made again. what: the "future", "padding" or a token that is asked for ("own") was changed.
    error: how far answers moved that should not, as a share of the largest. unmasked: the lines that call attention
    without a mask of padding."""

    what: str
    error: float
    unmasked: tuple[str, ...] = ()


Kind = TypeVar("Kind", bound=Event)
