"""How wide a text is, without asking a font: so that every machine lays a picture out alike."""

from __future__ import annotations

import unicodedata

# advance widths of Helvetica (and Arial), in thousandths of the font size, for the characters from " " to "~"
_HELVETICA = (
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278,
    556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556,
    1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778,
    667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556,
    333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556,
    556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
)  # fmt: skip
BOLD = 1.08  # how much wider bold text is
MARGIN = 1.04  # other sans-serif fonts run a little wider


def width(text: str, size: float, bold: bool = False) -> float:
    """The width of one line of sans-serif `text` at `size`, in the unit of `size`."""
    total = 0
    for character in text:
        code = ord(character) - 32
        if 0 <= code < len(_HELVETICA):
            total += _HELVETICA[code]
        elif unicodedata.combining(character):
            continue
        else:
            total += 1000 if unicodedata.east_asian_width(character) in "WF" else 620
    return total / 1000 * size * MARGIN * (BOLD if bold else 1.0)
