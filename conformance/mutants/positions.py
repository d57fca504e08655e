"""Mutants of positional encodings: sinusoidal, learned, rotary."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.positions import LearnedPositions, Rope, SinusoidalPositions
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference import positions as f


@mutant(
    breaks=(
        "sinusoid-formula",
        "sinusoid-pairs-lie-on-the-unit-circle",
        "sinusoid-shift-is-a-rotation",
        "sinusoid-dot-product-depends-on-distance",
    ),
    known_as="P03",
)
class CosineOfNextFrequency(SinusoidalPositions):
    """The cosine of pair i uses the frequency of pair i + 1."""

    def table(self, n: int) -> Array:
        d = self.config["d_model"]
        table = f.sinusoid(np.arange(n), d)
        angles = np.multiply.outer(np.arange(n), 10000.0 ** (-(np.arange(0, d, 2) + 2) / d))
        table[:, 1::2] = np.cos(angles[:, : d // 2])
        return table


@mutant(breaks=("sinusoid-formula", "sinusoid-first-row", "sinusoid-shift-is-a-rotation"), known_as="P04")
class SineAndCosineSwapped(SinusoidalPositions):
    """Even columns hold cosines, odd columns sines."""

    def table(self, n: int) -> Array:
        d = self.config["d_model"]
        return f.sinusoid(np.arange(n), d + d % 2).reshape(n, -1, 2)[..., ::-1].reshape(n, -1)[:, :d]


@mutant(
    breaks=(
        "sinusoid-formula",
        "sinusoid-positions-are-distinct",
        "sinusoid-shift-is-a-rotation",
        "positions-run-along-the-sequence",
    ),
    known_as="P06",
)
class OnePositionForTheSequence(SinusoidalPositions):
    """Every token gets the code of position T (pe[:, T] for pe[:, :T])."""

    def table(self, n: int) -> Array:
        return np.broadcast_to(f.sinusoid(np.array([n]), self.config["d_model"]), (n, self.config["d_model"]))


@mutant(breaks=("sinusoid-formula", "sinusoid-first-row"))
class SinusoidFromPositionOne(SinusoidalPositions):
    """Positions count from 1."""

    def table(self, n: int) -> Array:
        return f.sinusoid(np.arange(1, n + 1), self.config["d_model"])


class _OtherFrequencies(SinusoidalPositions):
    def other(self, d: int) -> Array:
        raise NotImplementedError

    def table(self, n: int) -> Array:
        d = self.config["d_model"]
        angles = np.multiply.outer(np.arange(n), self.other(d))
        table = np.empty((n, d))
        table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles[:, : d // 2])
        return table


@mutant(breaks=("sinusoid-formula", "sinusoid-wavelengths-grow-with-dimension"))
class SinusoidExponentDoubled(_OtherFrequencies):
    """The exponent is 4i/d: the index of the column is doubled twice."""

    def other(self, d: int) -> Array:
        return 10000.0 ** (-2 * np.arange(0, d, 2) / d)


@mutant(breaks=("sinusoid-formula", "sinusoid-dot-product-depends-on-distance"))
class SinusoidBaseThousand(_OtherFrequencies):
    """The base is 1000."""

    def other(self, d: int) -> Array:
        return f.frequencies(d, 1000.0)


@mutant(breaks=("sinusoid-formula", "sinusoid-wavelengths-grow-with-dimension"))
class SinusoidFrequenciesReversed(_OtherFrequencies):
    """The slow pairs come first."""

    def other(self, d: int) -> Array:
        return f.frequencies(d)[::-1]


@mutant(breaks=("sinusoid-formula", "sinusoid-wavelengths-grow-with-dimension"))
class SinusoidExponentOverHalf(_OtherFrequencies):
    """The exponent is i / (d/2 - 1), as in code that spaces the frequencies to the very end."""

    def other(self, d: int) -> Array:
        pairs = (d + 1) // 2
        return 10000.0 ** (-np.arange(pairs) / max(pairs - 1, 1))


@mutant(breaks=("sinusoid-formula", "sinusoid-wavelengths-grow-with-dimension"))
class SinusoidFrequenciesGrow(_OtherFrequencies):
    """The exponent lacks its minus: frequencies grow along the columns, up to the base."""

    def other(self, d: int) -> Array:
        return 1.0 / f.frequencies(d)


@mutant(breaks=("sinusoid-formula", "sinusoid-pairs-lie-on-the-unit-circle", "sinusoid-first-row"))
class SinusoidWithoutCosines(SinusoidalPositions):
    """Every column holds a sine."""

    def table(self, n: int) -> Array:
        angles = np.multiply.outer(np.arange(n), f.frequencies(self.config["d_model"]))
        return np.sin(np.repeat(angles, 2, axis=-1))[:, : self.config["d_model"]]


@mutant(breaks=("odd-width-is-exact-or-refused",))
class OddWidthPadded(SinusoidalPositions):
    """An odd width is rounded up in the frequencies, so that every column of it is a little off."""

    def table(self, n: int) -> Array:
        d = self.config["d_model"]
        return f.sinusoid(np.arange(n), d + d % 2)[:, :d]


@mutant(breaks=("sinusoid-is-defined-at-any-length",))
class SinusoidClamped(SinusoidalPositions):
    """Positions past 1000 repeat the code of position 1000."""

    def table(self, n: int) -> Array:
        return f.sinusoid(np.minimum(np.arange(n), 1000), self.config["d_model"])


@mutant(breaks=("positions-are-served-up-to-max-len",))
class SinusoidRepeatsItsLastRow(SinusoidalPositions):
    """Positions past max_len repeat the last row of the table."""

    def table(self, n: int) -> Array:
        return f.sinusoid(np.minimum(np.arange(n), self.config["max_len"] - 1), self.config["d_model"])


@mutant(breaks=("sinusoid-formula",))
class SinusoidKeepsTheLastTable(SinusoidalPositions):
    """The table is cut for each sequence, and a longer one that follows repeats its last row."""

    kept = 10**6

    def table(self, n: int) -> Array:
        limit, self.kept = self.kept, n
        return f.sinusoid(np.minimum(np.arange(n), limit - 1), self.config["d_model"])


@mutant(breaks=("sinusoid-is-computed-not-learned",))
class SinusoidTrainable(SinusoidalPositions):
    """The table is registered as a parameter."""

    def initialise(self) -> Arrays:
        return {"weight": self.table(self.config["max_len"])}


@mutant(breaks=("position-code-is-added-to-the-embedding",))
class EmbeddingScaledByThePositions(SinusoidalPositions):
    """The module multiplies x by sqrt(d_model) before it adds the code."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward(p, x=inputs["x"] * np.sqrt(self.config["d_model"]))


@mutant(breaks=("positions-run-along-the-sequence", "position-code-is-added-to-the-embedding"))
class PositionsAlongTheBatch(SinusoidalPositions):
    """The table is cut to the first axis: with batch-first input every token of sample b gets the code of b."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        return {"out": x + self.table(len(x))[:, None].astype(x.dtype)}


# --- learned positions ----------------------------------------------------------------------------


@mutant(breaks=("learned-positions-end-with-the-table",))
class LearnedWrapAround(LearnedPositions):
    """Positions past the table start again at its first row."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, table = inputs["x"], p["weight"]
        return {"out": x + table[np.arange(x.shape[1]) % len(table)]}


@mutant(breaks=("learned-position-is-a-table-row", "learned-positions-train-only-the-rows-in-use"))
class LearnedOffByOne(LearnedPositions):
    """Row 0 is kept for padding: token t takes row t + 1, and the last row twice."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, table = inputs["x"], p["weight"]
        if x.shape[1] > len(table):
            raise ValueError("too long")
        return {"out": x + table[np.minimum(np.arange(1, x.shape[1] + 1), len(table) - 1)]}


@mutant(breaks=("learned-position-is-a-table-row", "learned-positions-train-only-the-rows-in-use"))
class LearnedFromTheEnd(LearnedPositions):
    """The last rows of the table are taken, not the first."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, table = inputs["x"], p["weight"]
        if x.shape[1] > len(table):
            raise ValueError("too long")
        return {"out": x + table[len(table) - x.shape[1] :]}


@mutant(breaks=("learned-position-is-a-table-row", "learned-positions-train-only-the-rows-in-use"))
class LearnedTableCentred(LearnedPositions):
    """The table's mean is subtracted, so that every row is trained by every sequence."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({"weight": p["weight"] - p["weight"].mean(0)}, **inputs)


@mutant(breaks=("learned-positions-are-max-len-times-d-parameters",))
class LearnedSpareRow(LearnedPositions):
    """The table has one row more than max_len."""

    def initialise(self) -> Arrays:
        table = super().initialise()["weight"]
        return {"weight": np.concatenate([table, table[:1]])}


# --- rotary positions -----------------------------------------------------------------------------


def _rotate(x: Array, angles: Array, pairing: str) -> Array:
    """Rotate the pairs of x by given angles ``(T, d/2)``."""
    first, second = f.pairs(x.shape[-1], pairing)
    out = np.empty_like(x)
    out[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
    out[..., second] = x[..., first] * np.sin(angles) + x[..., second] * np.cos(angles)
    return out


@mutant(
    breaks=("rope-rotates-pairs-by-position-times-frequency", "rope-scores-depend-on-relative-position"), known_as="R02"
)
class RopeFrequenciesOfTheOtherPairing(Rope):
    """Half-split rotation with frequencies laid out for interleaved pairs (and the reverse)."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, offset = inputs["x"], inputs.get("offset", 0)
        n, d = x.shape[-2:]
        angles = np.multiply.outer(np.arange(offset, offset + n), f.frequencies(d))
        half = self.config["pairing"] == "half"
        columns = np.repeat(angles, 2, axis=-1) if half else np.tile(angles, 2)
        first, second = f.pairs(d, self.config["pairing"])
        turned = np.empty_like(x)
        turned[..., first], turned[..., second] = -x[..., second], x[..., first]
        return {"out": x * np.cos(columns) + turned * np.sin(columns)}


@mutant(breaks=("rope-rotates-pairs-by-position-times-frequency",), known_as="R06")
class RopeExponentHalved(Rope):
    """The frequency exponent is i/d, not 2i/d."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, offset = inputs["x"], inputs.get("offset", 0)
        n, d = x.shape[-2:]
        angles = np.multiply.outer(np.arange(offset, offset + n), self.config["base"] ** (-np.arange(d // 2) / d))
        return {"out": _rotate(x, angles, self.config["pairing"])}


@mutant(breaks=("rope-rotates-pairs-by-position-times-frequency",))
class RopeExponentDoubled(Rope):
    """The frequency exponent is 4i/d, not 2i/d."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, offset = inputs["x"], inputs.get("offset", 0)
        n, d = x.shape[-2:]
        frequencies = self.config["base"] ** (-4 * np.arange(d // 2) / d)
        return {
            "out": _rotate(x, np.multiply.outer(np.arange(offset, offset + n), frequencies), self.config["pairing"])
        }


@mutant(breaks=("rope-rotates-pairs-by-position-times-frequency", "rope-leaves-position-zero"))
class RopeTurnsHalfAPairBackwards(Rope):
    """The second number of a pair becomes a sin - b cos, where it is a sin + b cos."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        second = f.pairs(inputs["x"].shape[-1], self.config["pairing"])[1]
        mirrored = np.array(inputs["x"])
        mirrored[..., second] *= -1
        out = np.array(super().forward(p, **inputs)["out"])
        out[..., second] = super().forward(p, **{**inputs, "x": mirrored})["out"][..., second]
        return {"out": out}


@mutant(breaks=("rope-rotates-pairs-by-position-times-frequency", "rope-leaves-position-zero"))
class RopePairsPutBackElsewhere(Rope):
    """Pairs are put back in the other order: neighbours as halves, or halves as neighbours."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        turned = super().forward(p, **inputs)["out"]
        pairing = self.config["pairing"]
        out = np.empty_like(turned)
        for there, here in zip(
            f.pairs(turned.shape[-1], "half" if pairing == "interleaved" else "interleaved"),
            f.pairs(turned.shape[-1], pairing),
            strict=True,
        ):
            out[..., there] = turned[..., here]
        return {"out": out}


@mutant(breaks=("rope-rotates-pairs-by-position-times-frequency", "rope-leaves-position-zero"), known_as="R08")
class RopeFromPositionOne(Rope):
    """Positions count from 1: invisible in scores."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward(p, x=inputs["x"], offset=inputs.get("offset", 0) + 1)


@mutant(breaks=("rope-takes-the-position-of-the-first-row",), known_as="P08")
class RopeOffsetIgnored(Rope):
    """Every call starts at position 0."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward(p, x=inputs["x"])


@mutant(breaks=("rope-rotates-pairs-by-position-times-frequency",))
class RopeClockwise(Rope):
    """The rotation turns the other way: norms and relativity stay, the values do not."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, offset = inputs["x"], inputs.get("offset", 0)
        n, d = x.shape[-2:]
        angles = -np.multiply.outer(np.arange(offset, offset + n), f.frequencies(d, self.config["base"]))
        return {"out": _rotate(x, angles, self.config["pairing"])}


@mutant(
    breaks=(
        "rope-rotates-pairs-by-position-times-frequency",
        "rope-preserves-norms",
        "rope-scores-depend-on-relative-position",
    )
)
class RopeWithoutTheMinus(Rope):
    """rotate_half forgets the sign: (x2, x1) for (-x2, x1)."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, offset = inputs["x"], inputs.get("offset", 0)
        n, d = x.shape[-2:]
        angles = np.multiply.outer(np.arange(offset, offset + n), f.frequencies(d, self.config["base"]))
        first, second = f.pairs(d, self.config["pairing"])
        out = np.empty_like(x)
        out[..., first] = x[..., first] * np.cos(angles) + x[..., second] * np.sin(angles)
        out[..., second] = x[..., first] * np.sin(angles) + x[..., second] * np.cos(angles)
        return {"out": out}


@mutant(breaks=("rope-scores-depend-on-relative-position", "rope-rotates-pairs-by-position-times-frequency"))
class RopeDoesNothing(Rope):
    """The rotation is skipped."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": inputs["x"]}


@mutant(breaks=("rope-rotates-pairs-by-position-times-frequency",))
class RopeBaseIgnored(Rope):
    """The base is 10000, whatever was asked for."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.rope(inputs["x"], inputs.get("offset", 0), pairing=self.config["pairing"])}


@mutant(breaks=("rope-refuses-an-odd-width",))
class RopeLeavesTheOddFeature(Rope):
    """Of an odd width the last feature is left as it is, silently."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        pairs = x.shape[-1] // 2 * 2
        turned = super().forward(p, **{**inputs, "x": x[..., :pairs]})["out"]
        return {"out": np.concatenate([turned, x[..., pairs:]], axis=-1)}


@mutant(breaks=("rope-has-no-parameters",))
class RopeTrainable(Rope):
    """The frequencies are registered as a parameter."""

    def initialise(self) -> Arrays:
        return {"inv_freq": f.frequencies(8, self.config["base"])}
