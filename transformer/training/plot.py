"""Curves as SVG, written by hand: no plotting library is needed to look at a loss."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from html import escape

COLOURS = ("#2563eb", "#dc2626", "#059669", "#9333ea", "#d97706")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 64, 16, 36, 44
Points = Sequence[tuple[float, float]]


def curves(
    series: Mapping[str, Points],
    title: str,
    x_label: str = "step",
    y_label: str = "loss",
    pale: Collection[str] = (),
) -> str:
    """An SVG picture of several curves with axes, ticks and a legend; y is logarithmic where it spans two decades.

    x begins at 0. The curves named in `pale` are thin and light. Points that are not finite are left out. Raises
    ValueError when no point is left.
    """
    finite = {
        name: [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)] for name, points in series.items()
    }
    xs = [x for points in finite.values() for x, _ in points]
    ys = [y for points in finite.values() for _, y in points]
    if not xs:
        raise ValueError("there is nothing to plot: no finite point")
    logarithmic = min(ys) > 0 and max(ys) / min(ys) > 100
    height = math.log10 if logarithmic else float
    x_low = min(0, *xs)
    x_high = max(*xs, x_low + 1)
    y_low, y_high = height(min(ys)), height(max(ys))
    if y_high - y_low < 1e-9:
        y_low, y_high = y_low - 0.5, y_high + 0.5

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        return round(across, 1), round(
            HEIGHT - BOTTOM - (height(y) - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM), 1
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>',
        f'<text x="14" y="{(TOP + HEIGHT - BOTTOM) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(TOP + HEIGHT - BOTTOM) / 2})">{escape(y_label)}</text>',
    ]
    for y in _logarithmic_ticks(y_low, y_high) if logarithmic else _ticks(y_low, y_high):
        _, v = place(x_low, y)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{v}" y2="{v}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{v + 4}" text-anchor="end">{y:.6g}</text>')
    for x in _ticks(x_low, x_high):
        h, _ = place(x, min(ys))
        parts.append(f'<line x1="{h}" x2="{h}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}" stroke="#6b7280"/>')
        parts.append(f'<text x="{h}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{x:.6g}</text>')
    for i, (name, points) in enumerate(finite.items()):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{h},{v}" for h, v in (place(*point) for point in points))
        line = 'stroke-width="1" stroke-opacity="0.35"' if name in pale else 'stroke-width="1.5"'
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" {line}/>')
        place_of_name = f'x="{WIDTH - RIGHT}" y="{TOP + 14 * (i + 1)}" text-anchor="end"'
        parts.append(f'<text {place_of_name} fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def smoothed(points: Points, share: float = 0.05) -> list[tuple[float, float]]:
    """Each point with the mean of its neighbours on both sides, the nearer the heavier: about a `share` of all counts.

    Of positive numbers it is the geometric mean, which a steep fall does not bend. Points that are not finite are left
    out.
    """
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    positive = all(y > 0 for _, y in finite)
    ys = [math.log(y) if positive else y for _, y in finite]
    memory = math.exp(-2 / max(1.0, share * len(ys)))
    before, after = _remembered(ys, memory), _remembered(ys[::-1], memory)[::-1]
    means = [
        (old + new - y) / (weight + other - 1) for y, (old, weight), (new, other) in zip(ys, before, after, strict=True)
    ]
    return [(x, math.exp(mean) if positive else mean) for (x, _), mean in zip(finite, means, strict=True)]


def _remembered(values: Sequence[float], memory: float) -> list[tuple[float, float]]:
    """For each value the sum of those up to it, each `memory` times as heavy as the next, and that of the weights."""
    total, weight, found = 0.0, 0.0, []
    for value in values:
        total, weight = memory * total + value, memory * weight + 1
        found.append((total, weight))
    return found


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers in [low, high]."""
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _logarithmic_ticks(low: float, high: float) -> list[float]:
    """The powers of ten between the logarithms `low` and `high`."""
    return [10.0**power for power in range(math.ceil(low), math.floor(high) + 1)]
