"""What was worked out of one event: what a CTC loss or a comparison of pairs got, and what a model holds loosely."""

from __future__ import annotations

from dataclasses import dataclass, field

from conformance.watch.lines import At


@dataclass(frozen=True)
class Frames:
    """What a CTC loss got.

    rows: how many texts. blanks: how many labels are the blank. padded: how many rows are filled up with frames of
    zeros and are said to be as long as the longest one. short: how many have fewer frames than labels.
    """

    rows: int
    blanks: int = 0
    padded: int = 0
    short: int = 0


@dataclass(frozen=True)
class Pairs:
    """The logits of a cross-entropy whose labels are 0, 1, 2, ...: each row is asked for its own column.

    digests: fingerprints of the logits, and of the transposed ones. spreads: how far the lengths of the vectors differ
    whose products the logits are, for each side: the largest by the smallest; empty where they were not found. own:
    what stands on the diagonal.
    """

    digests: tuple[int, int]
    spreads: tuple[float, ...] = ()
    own: tuple[float, ...] = ()


@dataclass(frozen=True)
class Loose:
    """What a part of the model holds and PyTorch does not know: a tensor, or a list of parts. owner: the class of the
    part. attribute: its name there. learns: whether it asks for gradients. is_list: whether it is a list of parts."""

    owner: type
    attribute: str
    learns: bool
    is_list: bool = False


@dataclass(frozen=True)
class Drawn:
    """A loader that draws by weights. place: where it was made. is_mixed: whether samples of one class have different
    weights although there are no more weights than classes; grows: whether the weight of a class grows with how often
    it occurs."""

    place: str
    is_mixed: bool
    grows: bool


@dataclass(frozen=True)
class Rows:
    """The rows that a loader draws from. place, stack: where it was made. of: a fingerprint of the data set. numbers:
    of the rows in it."""

    place: str
    of: int
    numbers: frozenset[int]
    stack: tuple[At, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class Spread:
    """How the numbers of an input lie. rows: how many it has; count: numbers of each feature; axes: of the input;
    means, squares: of each feature, and of its squares."""

    rows: int
    count: int
    axes: int
    means: tuple[float, ...]
    squares: tuple[float, ...]
