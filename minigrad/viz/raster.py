"""SVG to PNG, by whatever this machine has: the package resvg-py or cairosvg, or librsvg's program rsvg-convert."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

ZOOM = 2.0
MISSING = (
    'PNG pictures need a rasteriser, and none was found: pip install "minigrad-conformance[draw]" (it has resvg-py), '
    "or write .svg, which needs none"
)


class RasterError(RuntimeError):
    """Nothing on this machine makes PNGs, or it failed. The message is one sentence that says what to do."""


def _resvg(svg: str) -> bytes:
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=int(ZOOM)))


def _cairo(svg: str) -> bytes:
    import cairosvg

    return cairosvg.svg2png(bytestring=svg.encode(), scale=ZOOM)


def _rsvg(svg: str) -> bytes:
    command = ["rsvg-convert", "--zoom", str(ZOOM), "--unlimited"]
    return subprocess.run(command, input=svg.encode(), capture_output=True, check=True).stdout


WAYS: tuple[Callable[[str], bytes], ...] = (_resvg, _cairo, _rsvg)


def png(svg: str) -> bytes:
    """The picture at twice its size. Raises RasterError."""
    reasons = []
    for way in WAYS:
        if way is _rsvg and not shutil.which("rsvg-convert"):
            continue
        try:
            made = way(svg)
        except (ImportError, OSError):  # not installed, or without the libraries that it needs
            continue
        except Exception as error:
            reasons.append(str(error) or type(error).__name__)
            continue
        if made.startswith(b"\x89PNG"):
            return made
        reasons.append("it returned no PNG")
    if reasons:
        raise RasterError(f"the picture could not be made a PNG ({' '.join(reasons[0].split())[:200]}): write .svg")
    raise RasterError(MISSING)
