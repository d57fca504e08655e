"""What a check returns: `Evidence`, and the few ways to make it (`close`, `same`, `true`, `refused`, `all_of`, `note`).

A check that knows more than two numbers says it: `close(...).saying(diagnosis="the mask is turned round", place=...)`.

A bound always has a reason: `tolerance` derives it from the dtype, the length of the reduction and the
size of the numbers; a check that needs another bound says why in words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from conformance.protocol import NotProvided, Refused


@dataclass(frozen=True)
class Evidence:
    """The outcome of one example. error/bound: `margin` = bound / error (inf when exact).

    is_note: a fact to show, neither kept nor broken. diagnosis: what is wrong, in one sentence. place: the line of the
    user's code, "path/to/file.py:LINE"; also: other lines that took part. mend: the change that would mend it, in
    words. pictures: small matrices by
    name, as `picture` makes them.
    """

    ok: bool
    what: str
    expected: Any = None
    got: Any = None
    error: float = 0.0
    bound: float = 0.0
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    is_note: bool = False
    diagnosis: str = ""
    place: str = ""
    mend: str = ""
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    also: Sequence[str] = ()

    def saying(
        self,
        *,
        diagnosis: str = "",
        place: str = "",
        mend: str = "",
        pictures: Mapping[str, Any] | None = None,
        also: Sequence[str] = (),
    ) -> Evidence:
        """The same evidence, with what the check knows beyond numbers; what is left out stays as it was.

        Raises ValueError when one of the pictures is not a 2-d array.
        """
        return replace(
            self,
            diagnosis=diagnosis or self.diagnosis,
            place=place or self.place,
            mend=mend or self.mend,
            also=also or self.also,
            pictures={name: picture(value) for name, value in pictures.items()} if pictures else self.pictures,
        )

    def pictured(self) -> Mapping[str, Picture]:
        """The pictures given; else, of two arrays that `close` compared, the matrices that differ most, if small."""
        sides = np.shape(self.expected)[-2:]
        if self.pictures or "at" not in self.details or len(sides) < 2 or max(sides) > SIDE:
            return self.pictures
        matrix = self.details["at"][:-2]
        return {"expected": picture(self.expected[matrix]), "got": picture(self.got[matrix])}

    @property
    def margin(self) -> float:
        return float("inf") if self.error == 0 else self.bound / self.error

    def sides(self) -> tuple[str, str]:
        """Expected and got as text, with digits enough to tell them apart: of large arrays, the worst element and where
        it stands."""
        if "at" not in self.details or np.size(self.expected) <= FEW:
            return _told_apart(self.expected, self.got)
        expected, got = _told_apart(self.details["expected_there"], self.details["got_there"])
        return f"{expected} at {list(self.details['at'])} of shape {np.shape(self.expected)}", got


Picture = list[list[float]]
"""A small matrix, row by row, rounded to four digits."""

FEW, SIDE = 12, 32
"""Arrays of up to FEW elements are shown whole; a picture has at most SIDE rows and columns."""


def picture(matrix: Any) -> Picture:
    """The first 32 rows and columns of a 2-d array of numbers. Raises ValueError on any other array."""
    array = np.asarray(matrix)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ValueError(f"a picture is a 2-d array of numbers, not {array.dtype} of shape {array.shape}")
    return [[float(f"{float(value):.4g}") for value in row] for row in array[:SIDE, :SIDE]]


def _told_apart(first: Any, second: Any) -> tuple[str, str]:
    """Both values as text, with the fewest digits that show that they differ, if they do."""
    texts = [(shown(first, digits), shown(second, digits)) for digits in (6, 9, 12, 17)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[0])


def shown(value: Any, digits: int = 6) -> str:
    """A value as one short line: numbers with six digits or more, large arrays by their shape and range."""
    if isinstance(value, str):
        return value
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.{digits}g}"
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        if value.size <= FEW:
            return " ".join(np.array2string(value, precision=digits, separator=", ", max_line_width=10_000).split())
        if value.dtype.kind == "b":
            return f"bool array of shape {value.shape}, {int(value.sum())} True"
        return f"{value.dtype} array of shape {value.shape}, {value.min():.{digits}g} to {value.max():.{digits}g}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:197]}..."


def tolerance(dtype: Any, length: int = 1, scale: float = 1.0, safety: float = 16.0) -> float:
    """Absolute bound on the rounding error of a sum of `length` products of size `scale` in `dtype`.

    safety * eps(dtype) * sqrt(length) * scale: errors of a pairwise or blocked sum grow like a random
    walk; 16 covers the handful of roundings around it (exp, division, a second product).
    """
    return float(safety * np.finfo(dtype).eps * max(length, 1) ** 0.5 * scale)


def close(what: str, got: Any, expected: Any, bound: float, reason: str = "rounding") -> Evidence:
    """|got - expected| <= bound everywhere. Shapes must agree; a NaN where none is expected fails, and so does a bound
    that is not finite: it would accept anything."""
    got_array, want = np.asarray(got), np.asarray(expected)
    if got_array.shape != want.shape:
        return Evidence(
            False, f"{what}: shape", f"shape {want.shape}", f"shape {got_array.shape}", float("inf"), 0.0, "exact"
        )
    if want.size == 0:
        return Evidence(True, what, want, got_array, 0.0, bound, reason)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.asarray(np.abs(got_array.astype(np.float64) - want.astype(np.float64)))
    difference[(got_array == want) | (np.isnan(got_array) & np.isnan(want))] = 0.0
    difference[np.isnan(difference)] = np.inf
    worst = np.unravel_index(int(np.argmax(difference)), difference.shape)
    error = float(difference[worst])
    place = {"at": tuple(int(i) for i in worst), "expected_there": want[worst], "got_there": got_array[worst]}
    return Evidence(bool(error <= bound < np.inf), what, want, got_array, error, bound, reason, place)


def same(what: str, got: Any, expected: Any) -> Evidence:
    """Equal exactly (shapes, integers, masks, bit-equal arrays)."""
    ok = bool(np.array_equal(np.asarray(got), np.asarray(expected)))
    return Evidence(ok, what, expected, got, 0.0 if ok else float("inf"), 0.0, "exact")


def true(what: str, condition: Any, *, got: Any = None, expected: Any = None) -> Evidence:
    """A condition that must hold; give what was seen so that a failure can be read."""
    ok = bool(condition)
    return Evidence(
        ok,
        what,
        expected if expected is not None else True,
        got if got is not None else ok,
        0.0 if ok else float("inf"),
        0.0,
        "exact",
    )


def refused(what: str, action: Callable[[], Any]) -> Evidence:
    """`action` must raise, whatever the exception's class; `NotProvided` passes through unless it is `Refused`."""
    try:
        action()
    except Exception as error:
        if isinstance(error, NotProvided) and not isinstance(error, Refused):
            raise
        return true(what, True, got=f"{type(error).__name__}: {error}", expected="an error")
    return true(what, False, got="accepted", expected="an error")


def note(what: str, got: Any) -> Evidence:
    """A fact about the implementation that is worth showing and neither right nor wrong: ("attention window", 4)."""
    return Evidence(True, what, got=got, reason="exact", is_note=True)


def all_of(*parts: Evidence) -> Evidence:
    """The first failure, else the part with the smallest margin."""
    if not parts:
        raise ValueError("all_of needs at least one piece of evidence")
    for part in parts:
        if not part.ok:
            return part
    return min(parts, key=lambda part: part.margin)
