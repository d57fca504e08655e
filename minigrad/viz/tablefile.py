"""Tensors and compiled functions as notebooks show them: a table whose cells are tinted by size, a page of passes."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from minigrad.compiler import Compiled
from minigrad.tensor import Tensor
from minigrad.viz import style
from minigrad.viz.passfile import write_passes
from minigrad.viz.picture import Options

MOST = 16  # rows and columns of a table
_CELL = "padding:1px 6px;text-align:right;border:0;color:#1c2330;background:"


def tensor_html(tensor: Tensor) -> str | None:
    """A tensor of one or two dimensions and at most 16 x 16 numbers as a table, red above zero and blue below it; None
    for another, which is shown as text then."""
    if tensor.storage.abstract or tensor.array.ndim not in (1, 2) or not tensor.array.size:
        return None
    if max(tensor.array.shape) > MOST or tensor.array.dtype.kind not in "fiub":
        return None
    values = np.atleast_2d(tensor.detach().cpu().numpy()).astype(np.float64)
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max()) if finite.size else 0.0
    rows = ["".join(_cell(float(value), largest, tensor.array.dtype.kind) for value in row) for row in values]
    head = f"tensor {list(tensor.array.shape)} {tensor.array.dtype}" + (", requires grad" if tensor.needs_grad else "")
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<table style="font-family:monospace;border-collapse:collapse"><caption>{escape(head)}</caption>{body}</table>'
    )


def _cell(value: float, largest: float, kind: str) -> str:
    text = f"{value:.4g}" if kind == "f" else str(bool(value)) if kind == "b" else f"{value:.0f}"
    colour = style.tint(4 * value / largest) if largest and np.isfinite(value) else style.tint(0.0)
    return f'<td style="{_CELL}{colour if np.isfinite(value) else style.ALARM}">{text}</td>'


def compiled_html(compiled: Compiled) -> str | None:
    """The page of passes of the plan that was used last, in a frame; None where nothing was compiled yet."""
    plans: list[tuple[Any, Any]] = list(compiled.plans.values())
    if not plans or len(plans[-1][1]) < 2:
        return None
    page = escape(write_passes(plans[-1][1], Options()))
    return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'
