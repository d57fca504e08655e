"""How gradients flow through a model: `print(gradflow(model))` after a backward pass."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import numpy as np

from minigrad.nn.module import Module
from minigrad.viz.format import meta
from minigrad.viz.statistics import describe

WIDTH = 16  # of the bar


@dataclass(frozen=True)
class Row:
    """A parameter: sizes of its values and of its gradient (root mean squares), and what is wrong with it, if anything.

    update   gradient / value: by what part of itself a step of size 1 would change it
    """

    name: str
    shape: str
    value: float
    gradient: float | None
    zero: float
    remark: str

    @property
    def update(self) -> float | None:
        return None if self.gradient is None or not self.value else self.gradient / self.value


class Flow(list[Row]):
    """Rows in the model's order; its text is a table."""

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        sizes = [math.log10(row.gradient) for row in self if row.gradient]
        low, high = min(sizes, default=0.0), max(sizes, default=0.0)
        table = Table("parameter", "shape", box=None, pad_edge=False)
        for title in ("value", "gradient", "ratio", "zeros"):
            table.add_column(title, justify="right")
        table.add_column(f"1e{math.floor(low)} to 1e{math.ceil(high)}")
        table.add_column("")
        for row in self:
            bar = ""
            if row.gradient:
                bar = "█" * max(1, round(WIDTH * (math.log10(row.gradient) - low) / ((high - low) or 1)))
            table.add_row(
                row.name, row.shape, _number(row.value), _number(row.gradient), _number(row.update),
                f"{row.zero:.0%}" if row.gradient is not None else "", bar, row.remark,
            )  # fmt: skip
        out = io.StringIO()
        Console(file=out, width=140, highlight=False, markup=False).print(table)
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines())

    __repr__ = __str__


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"


def gradflow(model: Module) -> Flow:
    """One row a parameter of `model`, from its values and from the gradients that backward() left.

    Raises RuntimeError where no parameter has a gradient.
    """
    rows = Flow()
    for name, parameter in model.named_parameters():
        value = describe(parameter.array)
        remark = "" if value.healthy else "values: NaN or infinite"
        gradient = parameter.grad
        if gradient is None:
            remark = remark or ("frozen" if not parameter.requires_grad else "no gradient reached it")
            rows.append(Row(name, meta(parameter.shape, parameter.dtype), value.rms, None, 0.0, remark))
            continue
        flow = describe(gradient.array)
        if not flow.healthy:
            remark = remark or "gradient: NaN or infinite"
        zero = float(np.mean(gradient.array == 0)) if gradient.array.size else 0.0
        if zero == 1.0:
            remark = remark or "all gradients are 0"
        rows.append(Row(name, meta(parameter.shape, parameter.dtype), value.rms, flow.rms, zero, remark))
    if all(row.gradient is None for row in rows):
        raise RuntimeError("gradflow: no parameter has a gradient: call backward() on a loss of this model first")
    return rows
