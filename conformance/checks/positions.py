"""Checks of positional encodings (sinusoidal, learned, rotary) and of what they are for: visible order."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.subjects import gradient_bound, loaded, offered
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, refused, same, tolerance, true
from conformance.protocol import Array, Subject
from conformance.reference import positions as f

FAR = 40
"""Positions that most checks look at: enough for the fast pairs to turn, few enough for float32 angles."""


def codes(impl: Any, d: int, n: int = FAR) -> tuple[Subject, Array]:
    """A sinusoidal subject and its codes of positions 0 .. n-1, ``(n, d)``, read off a zero input."""
    subject = impl.build("sinusoidal_positions", {"d_model": d, "max_len": n})
    return subject, subject(x=np.zeros((1, n, d)))["out"][0]


def layout_of(subject: Subject) -> str:
    return subject.attributes.get("layout", "interleaved")


def pairs_of(subject: Subject, table: Array) -> tuple[Array, Array]:
    """The sine and the cosine columns of a table of codes, in the subject's layout."""
    sines, cosines = f.pairs(table.shape[-1], layout_of(subject))
    return table[:, sines], table[:, cosines]


def angle_bound(subject: Subject, n: int = FAR) -> float:
    """An angle as large as the position is rounded before its sine is taken."""
    return tolerance(subject.dtype, scale=float(n))


def even(draw: Draw, low: int = 1, high: int = 8, pin: int = 4) -> int:
    """An even width."""
    return 2 * draw.int("pairs", low, high, pin)


@check("sinusoid-formula", roles=("sinusoidal_positions",))
def sinusoid_formula(impl: Any, draw: Draw) -> Evidence:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)) and PE(pos, 2i+1) = cos of the same angle, pos from 0."""
    d, n = even(draw), draw.int("T", 1, FAR, 9)
    subject, _ = codes(impl, d, n)
    subject(x=np.zeros((1, 1, d)))  # a table cut for a short sequence must not stay
    got = subject(x=np.zeros((1, n, d)))["out"][0]
    return close("the table of codes", got, f.sinusoid(np.arange(n), d, layout_of(subject)), angle_bound(subject, n))


@check("sinusoid-first-row", roles=("sinusoidal_positions",))
def sinusoid_first_row(impl: Any, draw: Draw) -> Evidence:
    """Position 0 has code 0 in every sine column and 1 in every cosine column."""
    subject, table = codes(impl, even(draw), 2)
    sines, cosines = pairs_of(subject, table)
    return all_of(
        close("sines at position 0", sines[0], np.zeros_like(sines[0]), tolerance(subject.dtype)),
        close("cosines at position 0", cosines[0], np.ones_like(cosines[0]), tolerance(subject.dtype)),
    )


@check("sinusoid-pairs-lie-on-the-unit-circle", roles=("sinusoidal_positions",))
def sinusoid_unit_circle(impl: Any, draw: Draw) -> Evidence:
    """The two columns of a pair are sine and cosine of one angle: squares sum to 1, a row has norm sqrt(d/2)."""
    d = even(draw)
    subject, table = codes(impl, d)
    sines, cosines = pairs_of(subject, table)
    return all_of(
        close("sin^2 + cos^2", sines**2 + cosines**2, np.ones_like(sines), tolerance(subject.dtype)),
        close(
            "norm of a row", np.linalg.norm(table, axis=-1), np.full(FAR, (d / 2) ** 0.5), tolerance(subject.dtype, d)
        ),
        true("every value within [-1, 1]", np.abs(table).max() <= 1.0, got=float(np.abs(table).max())),
    )


@check("sinusoid-shift-is-a-rotation", roles=("sinusoidal_positions",))
def sinusoid_rotation(impl: Any, draw: Draw) -> Evidence:
    """PE(pos + k) = R_k PE(pos) with one rotation matrix R_k for every pos."""
    d, k = even(draw), draw.int("k", 1, 20, 5)
    subject, table = codes(impl, d)
    sines, cosines = pairs_of(subject, table)
    angle = k * f.frequencies(d)
    turned_sines = sines[:-k] * np.cos(angle) + cosines[:-k] * np.sin(angle)
    turned_cosines = cosines[:-k] * np.cos(angle) - sines[:-k] * np.sin(angle)
    return all_of(
        close("sines k positions later", sines[k:], turned_sines, angle_bound(subject)),
        close("cosines k positions later", cosines[k:], turned_cosines, angle_bound(subject)),
    )


@check("sinusoid-dot-product-depends-on-distance", roles=("sinusoidal_positions",))
def sinusoid_dot_product(impl: Any, draw: Draw) -> Evidence:
    """PE(p) . PE(q) = sum_i cos((p - q) w_i): a function of the distance alone."""
    d = even(draw)
    subject, table = codes(impl, d)
    distance = np.subtract.outer(np.arange(FAR), np.arange(FAR))
    expected = np.cos(np.multiply.outer(distance, f.frequencies(d))).sum(-1)
    return close("dot products of codes", table @ table.T, expected, angle_bound(subject) * d)


@check("sinusoid-wavelengths-grow-with-dimension", roles=("sinusoidal_positions",))
def sinusoid_wavelengths(impl: Any, draw: Draw) -> Evidence:
    """Pair i turns by the same chord 2 sin(w_i / 2) at every step, and later pairs turn more slowly."""
    d = even(draw, low=2)
    subject, table = codes(impl, d)
    sines, cosines = pairs_of(subject, table)
    chord = np.hypot(np.diff(sines, axis=0), np.diff(cosines, axis=0))
    expected = np.broadcast_to(2 * np.sin(f.frequencies(d) / 2), chord.shape)
    return all_of(
        close("chord per step", chord, expected, angle_bound(subject)),
        true("chords shrink from pair to pair", np.all(np.diff(chord, axis=1) < 0), got=chord[0].tolist()),
    )


@check("sinusoid-positions-are-distinct", roles=("sinusoidal_positions",))
def sinusoid_distinct(impl: Any, draw: Draw) -> Evidence:
    """Any two positions have different codes."""
    subject, table = codes(impl, even(draw, low=4))
    distance = np.linalg.norm(table[:, None] - table[None], axis=-1) + 10.0 * np.eye(FAR)
    least = 2 * angle_bound(subject)
    return true(f"smallest distance of two codes > {least:.1g}", distance.min() > least, got=float(distance.min()))


@check("sinusoid-is-computed-not-learned", roles=("sinusoidal_positions",))
def sinusoid_is_fixed(impl: Any, draw: Draw) -> Evidence:
    """The table is a constant: no parameter, and the same codes at every call, in training too."""
    d = even(draw)
    subject, first = codes(impl, d)
    subject.train(True)
    again = subject(x=np.zeros((1, FAR, d)))["out"][0]
    return all_of(same("parameters", sorted(subject.params()), []), same("the codes of a second call", again, first))


@check("sinusoid-is-defined-at-any-length", roles=("sinusoidal_positions",), examples=2)
def sinusoid_any_length(impl: Any, draw: Draw) -> Evidence:
    """A table of thousands of positions begins with the codes of a short one and keeps turning to its end."""
    d, n = even(draw), draw.int("T", 3000, 5000, 5000)
    subject, table = codes(impl, d, n)
    _, short = codes(impl, d, FAR)
    expected = f.sinusoid(np.arange(n - 2, n), d, layout_of(subject))
    return all_of(
        close("the first rows", table[:FAR], short, angle_bound(subject)),
        close("the last rows", table[-2:], expected, angle_bound(subject, n)),
    )


@check("positions-are-served-up-to-max-len", roles=("sinusoidal_positions",))
def served_to_the_limit(impl: Any, draw: Draw) -> Evidence:
    """max_len positions get their codes; a longer sequence is refused, or gets its codes as well.

    From two positions on: a table of one row broadcasts, in any framework.
    """
    d, limit = even(draw), draw.int("max_len", 2, 12, 7)
    subject, got = codes(impl, d, limit)
    table = f.sinusoid(np.arange(limit + 1), d, layout_of(subject))
    at_the_limit = close("codes up to max_len", got, table[:limit], angle_bound(subject, limit))
    try:
        beyond = subject(x=np.zeros((1, limit + 1, d)))["out"][0]
    except Exception:
        return at_the_limit
    return all_of(at_the_limit, close("codes past max_len", beyond, table, angle_bound(subject, limit)))


@check("odd-width-is-exact-or-refused", roles=("sinusoidal_positions",))
def odd_width(impl: Any, draw: Draw) -> Evidence:
    """An odd d_model either raises, or its columns follow the formula (the last one a sine without cosine)."""
    d = 2 * draw.int("pairs", 1, 5, 2) + 1
    codes(impl, d + 1)  # the even width is accepted
    found: list[Any] = []
    refusal = refused(f"width {d}", lambda: found.extend(codes(impl, d)))
    if refusal.ok:
        return refusal
    subject, got = found
    expected = f.sinusoid(np.arange(FAR), d, layout_of(subject))
    return close("the table at an odd width", got, expected, angle_bound(subject))


@check("position-code-is-added-to-the-embedding", roles=("sinusoidal_positions",))
def code_is_added(impl: Any, draw: Draw) -> Evidence:
    """out = x + PE[:T]: x itself is not scaled, and the code does not depend on x."""
    b, t, d = draw.int("B", 1, 3, 2), draw.int("T", 1, 7, 5), even(draw)
    subject = impl.build("sinusoidal_positions", {"d_model": d, "max_len": FAR})
    x = draw.normal("x", (b, t, d), 3.0)
    added = subject(x=x)["out"] - x
    code = subject(x=np.zeros((1, t, d)))["out"]
    bound = tolerance(subject.dtype, scale=float(np.abs(x).max()))
    return close("out - x", added, np.broadcast_to(code, x.shape), bound)


@check("positions-run-along-the-sequence", roles=("sinusoidal_positions",))
def positions_along_sequence(impl: Any, draw: Draw) -> Evidence:
    """out[b, t] - x[b, t] is the same for every b and another for every t: positions count along the sequence."""
    b, d = draw.int("B", 2, 4, 2), even(draw)
    t = b + draw.int("T - B", 1, 5, 3)
    subject = impl.build("sinusoidal_positions", {"d_model": d, "max_len": FAR})
    got = subject(x=np.zeros((b, t, d)))["out"]
    steps = np.abs(np.diff(got[0], axis=0)).max(-1)
    return all_of(
        same("the codes of each sample, [b, t]", got, np.broadcast_to(got[:1], got.shape)),
        true("neighbouring positions have different codes", steps.min() > 2 * angle_bound(subject), got=steps.tolist()),
    )


# --- learned positions ----------------------------------------------------------------------------


def learned(impl: Any, draw: Draw) -> tuple[Subject, Array]:
    """A learned table of random rows, longer than the sequences of the check."""
    config = {"d_model": draw.int("d_model", 1, 6, 3), "max_len": draw.int("max_len", 6, 9, 7)}
    subject, params = loaded(impl, draw, "learned_positions", **config)
    return subject, params["weight"]


@check("learned-position-is-a-table-row", roles=("learned_positions",))
def learned_row(impl: Any, draw: Draw) -> Evidence:
    """out[b, t] = x[b, t] + table[t] for t = 0, 1, ..., up to the last row of the table."""
    subject, table = learned(impl, draw)
    n, d = table.shape
    b, t = draw.int("B", 1, 3, 2), draw.choice("T", (1, 4, n), pin=n)
    x = draw.normal("x", (b, t, d))
    return close("x + table[:T]", subject(x=x)["out"], x + table[:t], tolerance(subject.dtype, scale=4.0))


@check("learned-positions-end-with-the-table", roles=("learned_positions",))
def learned_limit(impl: Any, draw: Draw) -> Evidence:
    """A sequence longer than the table is refused: no wrap-around, no repetition of the last row."""
    subject, table = learned(impl, draw)
    t = len(table) + draw.int("excess", 1, 3, 1)
    return refused(f"{t} positions in a table of {len(table)}", lambda: subject(x=np.zeros((1, t, table.shape[1]))))


@check("learned-positions-are-max-len-times-d-parameters", roles=("learned_positions",))
def learned_parameters(impl: Any, draw: Draw) -> Evidence:
    """The only parameter is the table of max_len rows of d_model numbers."""
    d, n = draw.int("d_model", 1, 9, 6), draw.int("max_len", 1, 9, 5)
    subject = impl.build("learned_positions", {"d_model": d, "max_len": n})
    return same("parameter sizes", sorted(a.size for a in subject.params().values()), [n * d])


@check("learned-positions-train-only-the-rows-in-use", roles=("learned_positions",), needs=("learned_positions.vjp",))
def learned_gradient(impl: Any, draw: Draw) -> Evidence:
    """Row t of the table receives the batch's summed gradient at t; rows past the sequence receive exactly none."""
    subject, table = learned(impl, draw)
    b, t = draw.int("B", 1, 3, 2), draw.int("T", 1, 5, 4)
    cotangent = draw.normal("cotangent", (b, t, table.shape[1]))
    _, gradients = subject.vjp({"x": draw.normal("x", cotangent.shape)}, cotangent)
    got = gradients["weight"]
    return all_of(
        close("rows in use", got[:t], cotangent.sum(0), gradient_bound(subject, b)),
        same("rows past the sequence", got[t:], np.zeros_like(got[t:])),
    )


# --- rotary positions -----------------------------------------------------------------------------


def pairings(draw: Draw) -> tuple[str, str]:
    """The two pairings of RoPE, a drawn one first: what an implementation that has only one is asked for next."""
    first = draw.choice("pairing", ("interleaved", "half"), pin="interleaved")
    return (first, "half" if first == "interleaved" else "interleaved")


def build_rope(impl: Any, draw: Draw, **config: Any) -> tuple[Subject, str]:
    config = offered(impl, "rope", config, pairing=pairings(draw))
    return impl.build("rope", config), config["pairing"]


def rope_input(draw: Draw) -> Array:
    shape = (draw.int("B", 1, 2, 2), draw.int("H", 1, 3, 3), draw.int("T", 2, 8, 5), even(draw, pin=3))
    return draw.normal("x", shape)


@check("rope-rotates-pairs-by-position-times-frequency", roles=("rope",))
def rope_formula(impl: Any, draw: Draw) -> Evidence:
    """Pair i of the row at position m turns by m * base^(-2i/d)."""
    base = draw.choice("base", (10000.0, 500.0), pin=10000.0)
    subject, pairing = build_rope(impl, draw, base=base)
    x = rope_input(draw)
    return close("rope(x)", subject(x=x)["out"], f.rope(x, 0, base, pairing), angle_bound(subject, 8) * 4)


@check("rope-leaves-position-zero", roles=("rope",))
def rope_first(impl: Any, draw: Draw) -> Evidence:
    """Positions count from 0: the first row is not rotated."""
    subject, _ = build_rope(impl, draw)
    x = rope_input(draw)
    return close("row 0", subject(x=x)["out"][:, :, 0], x[:, :, 0], tolerance(subject.dtype, scale=4.0))


@check("rope-preserves-norms", roles=("rope",))
def rope_norms(impl: Any, draw: Draw) -> Evidence:
    """A rotation keeps the length of every vector."""
    subject, _ = build_rope(impl, draw)
    x = rope_input(draw)
    bound = tolerance(subject.dtype, x.shape[-1], 4.0)
    return close("norms", np.linalg.norm(subject(x=x)["out"], axis=-1), np.linalg.norm(x, axis=-1), bound)


@check("rope-scores-depend-on-relative-position", roles=("rope",))
def rope_relative(impl: Any, draw: Draw) -> Evidence:
    """The score of one query vector at m and one key vector at n is a function of m - n alone, and not a constant."""
    subject, _ = build_rope(impl, draw)
    d, n = even(draw, low=2, pin=3), 24
    query, key = draw.normal("query", (d,)), draw.normal("key", (d,))
    rows = [subject(x=np.broadcast_to(v, (1, 1, n, d)).copy())["out"][0, 0] for v in (query, key)]
    scores = rows[0] @ rows[1].T
    bound = angle_bound(subject, n) * float(np.linalg.norm(query) * np.linalg.norm(key))
    return all_of(
        close("scores one position later", scores[1:, 1:], scores[:-1, :-1], bound),
        true("scores vary with the distance", np.ptp(scores[0]) > 1e-3, got=float(np.ptp(scores[0]))),
    )


@check("rope-takes-the-position-of-the-first-row", roles=("rope",))
def rope_offset(impl: Any, draw: Draw) -> Evidence:
    """Rows rotated with an offset equal the same rows within the whole sequence: what cached decoding needs."""
    subject, _ = build_rope(impl, draw)
    x = rope_input(draw)
    start = draw.int("offset", 1, x.shape[2] - 1, x.shape[2] - 1) if x.shape[2] > 2 else 1
    whole, tail = subject(x=x)["out"], subject(x=x[:, :, start:], offset=start)["out"]
    return close("rows from the offset on", tail, whole[:, :, start:], angle_bound(subject, 8) * 4)


@check("rope-refuses-an-odd-width", roles=("rope",), examples=2)
def rope_odd_width(impl: Any, draw: Draw) -> Evidence:
    """RoPE turns pairs of features: a head of an odd number of them is refused."""
    subject, _ = build_rope(impl, draw)
    x = draw.normal("x", (1, 2, 3, 2 * draw.int("pairs", 1, 3, 2) + 1))
    return refused(f"heads of {x.shape[-1]} features", lambda: subject(x=x))


@check("rope-has-no-parameters", roles=("rope",), examples=0)
def rope_parameters(impl: Any, draw: Draw) -> Evidence:
    """RoPE is computed: nothing in it is trained."""
    subject, _ = build_rope(impl, draw)
    return same("parameters", sorted(subject.params()), [])
