"""SVG as notebooks show it."""

from __future__ import annotations


class Drawing(str):
    """SVG that a notebook shows as a picture, and everybody else has as text."""

    def _repr_html_(self) -> str:
        return str(self)
