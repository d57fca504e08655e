"""Functions of positions: those that make sinusoids, make the tables of rotary positions, or rotate by such tables.

What a claim about rotary positions needs beside the function is supplied here: the table for a function that rotates,
the rotation for a function that makes the table.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from conformance.adapters.functions.arguments import Arguments, read
from conformance.adapters.functions.roles import KEY, QUERY, WIDTH
from conformance.adapters.functions.subjects import Served, agrees, noise, source_of
from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.inference.construct import Constructor
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.protocol import NotProvided
from conformance.reference import positions as f

ROTATES = {
    "cos": r"(freqs?_)?cos(ines?)?(_cached|_table|_emb)?",
    "sin": r"(freqs?_)?sin(es?)?(_cached|_table|_emb)?",
    "turns": (
        r"freqs?(_cis|_complex|_ci)?|(pos|freq)_cis|rope(_cache)?|rotary(_pos)?(_emb)?|angles?|theta|pos|"
        r"sinusoid(al)?_pos"
    ),
    "query": rf"{QUERY}|x|t|tensor|inputs?|hidden",
    "key": KEY,
    "start": r"(start|begin|first)_?(pos(ition)?|index|idx|at)?|(pos(ition)?_)?offset|past(_len(gth)?)?|cache_len",
    "base": r"(rope_?)?(base|theta)",
    "size": r"(seq|sequence)_?(len|length)|length",
    "width": r"d_model",
}
TABLES = {
    "base": r"(rope_?)?(base|theta)|max_timescale|max_period",
    "size": (
        r"end|n|t|l|length|pos(ition)?_ids|(max_|seq_|num_|n_)*(seq|sequence|len|length|positions?|context|end|timesteps?)(_len(gth)?)?"
    ),
    "width": rf"{WIDTH}|n_elem|(head|rotary|rope)_?dim|d_head|channels|n_?dim|dim_head",
    "x": r"x|inputs?|tensor",
    "dtype": r"dtype",
}

PAIRINGS = ("interleaved", "half")
_BY_ITSELF = "none: it rotates by itself"

Angles = Callable[[Tensor], Tensor]
WIDTHS: dict[str, Angles] = {
    "a number a pair": lambda a: a,
    "halves": lambda a: torch.cat([a, a], -1),
    "neighbours": lambda a: a.repeat_interleave(2, -1),
}
"""The angles (T, d/2) as a table has them: once a pair, or once a feature."""

LAYOUTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor], tuple[int, ...]]] = {
    "(B, H, T, d)": (lambda x: x, lambda y, x: y, (0, 1)),
    "(B, T, H, d)": (lambda x: x.transpose(1, 2), lambda y, x: y.transpose(1, 2), (0, 2)),
    "(B, T, d)": (lambda x: x.flatten(0, 1), lambda y, x: y.reshape(x.shape), (0,)),
}
"""How the protocol's (B, H, T, d) is handed over, what comes back, and the axes of one that a table may be given."""


def angles(width: int, start: int, n: int, base: float) -> Tensor:
    """(n, d/2), in float64. Raises NotProvided for an odd width: a caller, not the function, makes the table."""
    if width % 2:
        raise NotProvided("its caller makes the table, which has no odd width")
    return torch.tensor(np.multiply.outer(np.arange(start, start + n), f.frequencies(width, base)))


def rope(function: Callable[..., Any]) -> list[Served]:
    """What makes the table of rotary positions takes the width of a head; what rotates by one takes vectors."""
    known = {parameter.lower().strip("_") for parameter in inspect.signature(function).parameters}
    makes = any(re.fullmatch(TABLES["width"], name) for name in known)
    return table(function) if makes else rotation(function)


def of_class(cls: type[nn.Module]) -> list[Served]:
    """A class in whichever of these it is the formula of, its constructor and its call as one function; else [].

    One that takes sines and cosines of its own, and is no form of the formula, is tested as what it runs as.
    """
    ran: list[list[Served]] = []
    with suppress(Exception):  # whatever it raises, it is none of them
        together = as_function(cls)
        for resolver in (sinusoids, table, rotation):
            with suppress(Exception):
                ran.append(resolver(together))
    means = all(re.search(rf"\b{word}(_|\b)", source_of(cls)) for word in ("sin", "cos"))
    return next((served for served in ran if served[0].fits), ran[0] if ran and means else [])


def as_function(cls: type[nn.Module]) -> Callable[..., Any]:
    """A function of the width and of what forward takes: it makes the module, and runs it.

    Where forward takes no length, what the constructor calls the greatest length is one. Raises Unresolved.
    """
    constructor = Constructor(cls)
    taken = [
        p for p in list(inspect.signature(cls.forward).parameters.values())[1:] if p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    given = any(re.fullmatch(TABLES["size"], p.name.lower()) for p in taken)

    def run(d_model: int, max_len: int = 1024, **inputs: Any) -> Any:
        width = {"d_model": d_model, "d_k": d_model, "d_v": d_model, "n_heads": 1}
        module = constructor.make({**width, "dropout": 0.0, "max_len": max_len}).eval()
        return module(**inputs)

    sizes = ["d_model", *(["max_len"] if not given and "max_len" in constructor.known else [])]
    own = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in sizes]
    inputs = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in taken if p.name not in sizes]
    run.__signature__ = inspect.Signature([*own, *inputs])  # type: ignore[attr-defined]
    run.__name__ = cls.__name__
    return run


# --- functions that rotate ------------------------------------------------------------------------


@dataclass(frozen=True)
class Rotation:
    """One way to call a function that rotates: the layout of its input, and the form of its table."""

    function: Callable[..., Any]
    arguments: Arguments
    layout: str
    form: str
    axes: tuple[int, ...]

    def __call__(self, x: Tensor, start: int, base: float) -> Tensor:
        """x (B, H, T, d) rotated. Raises what the function raises, TypeError for another shape, and NotProvided for
        another base than that of a function without a parameter for it."""
        if self.form == _BY_ITSELF and start and not self.arguments.has("start"):
            before = torch.zeros(*x.shape[:2], start, x.shape[3], dtype=x.dtype)
            return self(torch.cat([before, x], 2), 0, base)[:, :, start:]
        into, back, _ = LAYOUTS[self.layout]
        given = into(x)
        named = {"query": given, "key": given}
        a = angles(x.shape[-1], start, x.shape[2], base)
        if self.form == "complex":
            named["turns"] = self._placed(torch.polar(torch.ones_like(a), a).to(torch.complex64))
        elif self.form == "cosines and sines of a pair":
            named["turns"] = self._placed(torch.stack([a.cos(), a.sin()], -1).to(x.dtype), 1)
        elif self.form == _BY_ITSELF:
            if base != 10000.0 and not self.arguments.has("base"):
                raise NotProvided(f"{self.arguments.name} has no option for the base")
            named |= {"start": start, "base": base, "size": x.shape[2], "width": x.shape[-1]}
        elif self.arguments.has("turns"):
            named["turns"] = self._placed(WIDTHS[self.form](a).to(x.dtype))
        elif self.arguments.has("cos"):
            wide = WIDTHS[self.form](a)
            named |= {"cos": self._placed(wide.cos().to(x.dtype)), "sin": self._placed(wide.sin().to(x.dtype))}
        made = next(
            (t for t in tensors_in(self.arguments.call(self.function, **named)) if t.shape == given.shape), None
        )
        if made is None:
            raise TypeError(f"it returns nothing of the shape {tuple(given.shape)} of its input")
        if self.form == "the turned half":
            wide = WIDTHS["neighbours" if self.axes else "halves"](a).to(x.dtype)
            cos, sin = (into(part.expand(x.shape)) for part in (wide.cos(), wide.sin()))
            made = given * cos + made * sin
        return back(made, x)

    def _placed(self, table: Tensor, after: int = 0) -> Tensor:
        for axis in self.axes:
            table = table.unsqueeze(axis)
        return table


def _rotations(function: Callable[..., Any], arguments: Arguments) -> Iterator[Rotation]:
    if arguments.has("cos") and arguments.has("sin"):
        forms = tuple(WIDTHS)
    elif arguments.has("turns"):
        forms = ("complex", "cosines and sines of a pair", *WIDTHS)
    else:
        for twice in ((), (0,)):
            yield Rotation(function, arguments, "(B, H, T, d)", "the turned half", twice)
        for layout in LAYOUTS:
            yield Rotation(function, arguments, layout, _BY_ITSELF, ())
        return
    for layout, form in product(LAYOUTS, forms):
        whole = LAYOUTS[layout][2]
        for axes in dict.fromkeys([(), tuple(whole), whole[:1], whole[1:]]):
            yield Rotation(function, arguments, layout, form, axes)


def rotation(function: Callable[..., Any]) -> list[Served]:
    """A function that rotates queries (and keys) as the role rope. Raises Unresolved when it runs on no table."""
    arguments = read(function, ROTATES, ("query",))
    x = noise(2, 3, 5, 8)
    ran: list[Rotation] = []
    reason = "it returns nothing"
    for call in _rotations(function, arguments):
        try:
            got = call(x, 1, 10000.0)
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            continue
        ran.append(call)
        for pairing in PAIRINGS:
            if agrees(got, torch.tensor(f.rope(x.double().numpy(), 1, 10000.0, pairing)), 1e-4):
                facts = [Fact("pairing", pairing, "it rotates as the formula does")]
                return [_rotating(call, pairing, facts, True)]
    if not ran:
        raise Unresolved(
            f"{arguments.name} rotates by no table of angles, cosines and sines, or unit numbers: {reason}"
        )
    call = max(ran, key=_turns_along_time)
    away = {p: np.abs(call(x, 1, 10000.0).numpy() - f.rope(x.numpy(), 1, 10000.0, p)).mean() for p in PAIRINGS}
    pairing = min(PAIRINGS, key=lambda p: away[p])
    return [_rotating(call, pairing, [Fact("pairing", pairing, "it is no rotation, and nearest to this", True)], False)]


def _turns_along_time(call: Rotation) -> bool:
    """Whether equal vectors come out different along T only, and the first as it was."""
    same = torch.ones(2, 3, 5, 8)
    out = call(same, 0, 10000.0)
    return agrees(out, out[:1, :1].expand_as(out)) and agrees(out[:, :, 0], same[:, :, 0])


def _rotating(call: Rotation, pairing: str, facts: list[Fact], fits: bool) -> Served:
    facts += [Fact("layout of inputs", call.layout, "it runs so"), Fact("table", call.form, "what its caller hands it")]

    def make(config: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
        if config["pairing"] != pairing:
            raise NotProvided(f"{call.arguments.name} rotates {pairing} pairs")
        return lambda training, x, offset=0: {"out": call(x, offset, config["base"])}

    return Served("rope", make, facts, fits)


# --- functions that make tables -------------------------------------------------------------------


def table(function: Callable[..., Any]) -> list[Served]:
    """A function that makes the cosines and sines, or unit numbers, of rotary positions, as the role rope."""
    arguments = read(function, TABLES, ("width", "size"))
    if not arguments.has("width"):
        raise Unresolved(f"{arguments.name} has no parameter for the width of a head")

    sines_first = re.search(r"return \(?\w*sin\w*, ?\w*cos", source_of(function)) is not None

    def made(width: int, n: int, base: float) -> list[Tensor]:
        failure: Exception | None = None
        for size in (n, torch.arange(n), torch.arange(n)[None]):  # how many, or the places themselves
            sizes = {"width": width, "size": size, "x": torch.zeros(1, n, width)}
            try:
                parts = list(tensors_in(arguments.call(function, **sizes, base=base, dtype=torch.float32)))
                parts = [part for part in parts if part.numel() > 1 or n * width == 2]
                return parts[::-1] if sines_first else parts
            except (TypeError, AttributeError, IndexError) as error:
                failure = failure or error
        assert failure is not None
        raise failure

    form = _form(made(8, 5, 10000.0), 8, 5)

    def turns(width: int, n: int, base: float) -> tuple[Tensor, Tensor]:
        """Cosines and sines (n, d/2)."""
        if width % 2:
            made(width, n, base)
            raise NotProvided("its caller rotates, who has no odd width")
        return FORMS[form](made(width, n, base), n, width // 2)

    settable = arguments.has("base")

    def compute(base: float, pairing: str, x: Tensor, offset: int = 0) -> dict[str, Any]:
        cos, sin = (part[offset:].to(x.dtype) for part in turns(x.shape[-1], offset + x.shape[2], base))
        first, second = f.pairs(x.shape[-1], pairing)
        a, b = x[..., first], x[..., second]
        out = torch.empty_like(x)
        out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
        return {"out": out}

    def make(config: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
        if not settable and config["base"] != 10000.0:
            raise NotProvided(f"{arguments.name} has no option for the base")
        return lambda training, x, offset=0: compute(config["base"], config["pairing"], x, offset)

    x = noise(2, 3, 5, 8)
    got = compute(10000.0, "half", x)["out"]
    fits = agrees(got, torch.tensor(f.rope(x.double().numpy(), 0, 10000.0, "half")), 1e-4)
    facts = [Fact("table", form, "rotating by it is the formula" if fits else "it runs so", not fits)]
    return [Served("rope", make, facts, fits)]


Turns = tuple[Tensor, Tensor]


def _of_angles(angle: Tensor) -> Turns:
    return angle.cos(), angle.sin()


FORMS: dict[str, Callable[[list[Tensor], int, int], Turns]] = {
    "unit numbers": lambda made, n, pairs: (made[0].real.reshape(n, pairs), made[0].imag.reshape(n, pairs)),
    "cosines and sines side by side": lambda made, n, pairs: made[0].reshape(n, pairs, 2).unbind(-1),
    "cosines and sines": lambda made, n, pairs: (made[0].reshape(n, pairs), made[1].reshape(n, pairs)),
    "cosines and sines, a half twice": lambda made, n, pairs: (
        made[0].reshape(n, -1)[:, :pairs],
        made[1].reshape(n, -1)[:, :pairs],
    ),
    "cosines and sines, each twice": lambda made, n, pairs: (
        made[0].reshape(n, -1)[:, ::2],
        made[1].reshape(n, -1)[:, ::2],
    ),
    "frequencies": lambda made, n, pairs: _of_angles(torch.outer(torch.arange(n), made[0].reshape(pairs))),
    "angles": lambda made, n, pairs: _of_angles(made[0].reshape(n, pairs)),
    "angles, a half twice": lambda made, n, pairs: _of_angles(made[0].reshape(n, -1)[:, :pairs]),
    "angles, each twice": lambda made, n, pairs: _of_angles(made[0].reshape(n, -1)[:, ::2]),
}
"""What a function that makes a table returns: how cosines and sines (n, d/2) are read from it."""


def _form(made: list[Tensor], width: int, n: int) -> str:
    """The key of FORMS. Raises Unresolved when there is none."""
    pairs = width // 2
    shapes = ", ".join(str(tuple(part.shape)) for part in made) or "no tensor"
    sizes = [part.numel() for part in made]
    if not made or sizes[0] not in (pairs, n * pairs, n * width) or (len(made) > 1 and sizes[1] != sizes[0]):
        raise Unresolved(f"it returns {shapes}, which is no table of {n} positions and {pairs} pairs")
    if made[0].is_complex():
        return "unit numbers"
    if len(made) == 1 and tuple(made[0].shape[-2:]) == (pairs, 2):
        return "cosines and sines side by side"
    name = "cosines and sines" if len(made) > 1 else "angles"
    if sizes[0] == pairs:
        return "frequencies"
    if sizes[0] == n * pairs:
        return name
    wide = made[0].reshape(n, width)
    return f"{name}, a half twice" if agrees(wide[:, :pairs], wide[:, pairs:]) else f"{name}, each twice"


# --- sinusoids ------------------------------------------------------------------------------------


def sinusoids(function: Callable[..., Any]) -> list[Served]:
    """A function that makes sinusoidal codes of a length and a width, or adds them to its input; one that makes unit
    numbers makes rotary positions.

    Raises Unresolved for what is no table of codes, and for waves that are spaced to the very end of the base.
    """
    ways = list(_ways(function))
    reasons: list[str] = []
    ran: list[tuple[Callable[[int, int], Tensor], str]] = []
    for way, how in ways:
        try:
            if way(7, 10).shape == (7, 10):
                ran.append((way, how))
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
    if not ran and re.search(r"\bpolar\b|complex", source_of(function)):
        return table(function)
    if not ran:
        name = getattr(function, "__name__", "it")
        raise Unresolved(
            f"{name} makes no codes of a length and a width: {(reasons or ['it returns another shape'])[0]}"
        )
    wanted = {layout: torch.tensor(f.sinusoid(np.arange(7), 10, layout)) for layout in ("interleaved", "half")}
    fitting = ((way, how, layout) for way, how in ran for layout in wanted if agrees(way(7, 10), wanted[layout], 1e-4))
    way, how, layout = next(fitting, (*ran[0], ""))
    if not layout and _is_spaced_to_the_end(way(7, 10)):
        raise Unresolved(
            f"{function.__name__} spaces its waves to the very end of the base, as tensor2tensor does: another formula "
            "than the documents'"
        )

    def make(config: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
        def compute(training: bool, x: Tensor) -> dict[str, Any]:
            return {"out": x + way(x.shape[1], x.shape[2]).to(x.dtype)}

        return compute

    facts = [Fact("called with", how, "it gives a code for each position so")]
    facts.append(Fact("pairs", layout or "unknown", "the formula" if layout else "no form of the formula", not layout))
    return [Served("sinusoidal_positions", make, facts, bool(layout), {"layout": layout or "interleaved"})]


def _ways(function: Callable[..., Any]) -> Iterator[tuple[Callable[[int, int], Tensor], str]]:
    """How to get codes (T, d) of a function: by a length and a width in either order, or of an input."""
    arguments = read(function, TABLES, ("size", "width"))

    def plain(made: Any, n: int, width: int, given: Tensor | None = None) -> Tensor:
        """given: the input, which may be handed on as it is, beside the codes."""
        parts = list(tensors_in(made if not isinstance(made, np.ndarray) else torch.tensor(made)))
        codes = [one for one in parts if given is None or one.shape != given.shape or not torch.equal(one, given)]
        return (codes or parts)[0].squeeze().reshape(n, width)

    if arguments.has("x"):
        options = {"dtype": torch.float32}

        def added(n: int, width: int) -> Tensor:
            x = torch.ones(1, n, width)
            made = arguments.call(function, x=x.clone(), size=n, width=width, **options)
            if len(parts := list(tensors_in(made))) > 1 and torch.equal(parts[0], x):
                raise TypeError("it hands its input on as it is")
            return plain(made, n, width) - x[0]

        def alone(n: int, width: int) -> Tensor:
            x = torch.zeros(1, n, width)
            return plain(arguments.call(function, x=x, size=n, width=width, **options), n, width, x)

        def of_ids(n: int, width: int) -> Tensor:
            return plain(arguments.call(function, x=torch.ones(1, n).long(), size=n, width=width, **options), n, width)

        def of_positions(n: int, width: int) -> Tensor:
            places = torch.arange(n).float()
            return plain(arguments.call(function, x=places, size=n, width=width, **options), n, width)

        yield added, "an input, to which it adds"
        yield alone, "an input"
        yield of_ids, "token ids"
        yield of_positions, "the positions and a width"
    if arguments.has("size") and arguments.has("width"):
        for first, second in permutations(("size", "width")):

            def made(n: int, width: int, first: str = first, second: str = second) -> Tensor:
                sizes = {first: n, second: width}
                return plain(arguments.call(function, **sizes, dtype=torch.float32), n, width)

            yield made, "a length and a width"

            def of_each(n: int, width: int, first: str = first, second: str = second) -> Tensor:
                sizes = {first: torch.arange(n).float(), second: width}
                return plain(arguments.call(function, **sizes, dtype=torch.float32), n, width)

            yield of_each, "the positions and a width"


def _is_spaced_to_the_end(codes: Tensor) -> bool:
    """Whether its frequencies are base^(-i / (d/2 - 1)), the sines first or side by side with the cosines."""
    n, width = codes.shape
    angle = np.multiply.outer(np.arange(n), 10000.0 ** (-np.arange(width // 2) / max(width // 2 - 1, 1)))
    halves = np.concatenate([np.sin(angle), np.cos(angle)], -1)
    beside = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(n, width)
    return any(agrees(codes, torch.tensor(form), 1e-4) for form in (halves, beside))
