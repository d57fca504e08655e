"""The results as a picture: one bar for each comparison, on a logarithmic axis of ratios, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tools.bench.timing import Result

_ROW, _LEFT, _WIDTH, _TOP = 24, 330, 560, 40
_COLOURS = {"faster": "#2f7d4f", "noise": "#9a9a9a", "slower": "#b4482f", "less": "#2f7d4f", "more": "#b4482f"}


def svg(results: Sequence[Result], caption: str = "") -> str:
    """Bars from 1 (equal) to each ratio; green where we are faster, grey where the difference is noise."""
    ratios = [r.ratio for r in results]
    low = min([0.5, *ratios])
    high = max([2.0, *ratios]) * 1.15

    def x(ratio: float) -> float:
        return _LEFT + _WIDTH * math.log(ratio / low) / math.log(high / low)

    height = _TOP + _ROW * len(results) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 60}" height="{height}" '
        f'font-family="sans-serif" font-size="12">',
        f'<text x="8" y="20" font-size="14">Their time over ours (right of 1 ours is less). {escape(caption)}</text>',
    ]
    for mark in (0.25, 0.5, 1, 2, 4, 8, 16, 32):
        if low <= mark <= high:
            colour = "#333" if mark == 1 else "#ddd"
            parts.append(
                f'<line x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{_TOP}" y2="{height - 30}" stroke="{colour}"/>'
            )
            parts.append(f'<text x="{x(mark):.1f}" y="{height - 14}" text-anchor="middle">{mark:g}</text>')
    for row, r in enumerate(results):
        y = _TOP + _ROW * row
        start, end = sorted((x(1), x(r.ratio)))
        parts += [
            f'<text x="{_LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(r.job)} / {escape(r.against)}</text>',
            f'<rect x="{start:.1f}" y="{y + 4}" width="{max(end - start, 1):.1f}" height="{_ROW - 8}" '
            f'fill="{_COLOURS[r.verdict]}"/>',
            f'<text x="{max(end, x(1)) + 5:.1f}" y="{y + 16}">{r.ratio:.2f}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])
