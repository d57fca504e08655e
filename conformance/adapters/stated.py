"""What the user states of an nn.Module because nobody could guess it: inputs, weights, device, reference (`Stated`).

The texts are those of the options --claims-input, --claims-weights, --claims-device and --claims-reference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

from conformance.adapters.specification import SpecificationError, parse

DTYPES = ("float", "int", "bool")


class StatedError(SpecificationError):
    """What the user states cannot be so. The message is one sentence that says what to do."""


@dataclass(frozen=True)
class Shape:
    """One input of forward. name: of the parameter, empty for the next one. sizes: the batch first, then the positions.
    dtype: one of DTYPES; "int" are token ids."""

    name: str
    sizes: tuple[int, ...]
    dtype: str

    @property
    def text(self) -> str:
        """As it is written behind the name: "2x16:int"."""
        return "x".join(map(str, self.sizes)) + (f":{self.dtype}" if self.dtype != "float" else "")


@dataclass(frozen=True)
class Stated:
    """input: shapes, such as "2x16:int" or "idx=2x16:int,mask=2x16". weights: the file of a state dict. device: "cpu",
    "cuda" or "cuda:1". reference: the specification of a second model. Each is empty where nothing is stated."""

    input: str = ""
    weights: str = ""
    device: str = ""
    reference: str = ""

    @property
    def options(self) -> list[str]:
        """The command line that states the same."""
        given = [(f"--claims-{field.name}", getattr(self, field.name)) for field in fields(self)]
        return [word for option, value in given if value for word in (option, value)]

    def check(self) -> None:
        """What can be told without the model. Raises StatedError."""
        shapes_of(self.input)
        if self.weights and not Path(self.weights).expanduser().is_file():
            raise StatedError(
                f"--claims-weights {self.weights}: there is no such file; give one that holds a state dict"
            )
        if self.device and not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise StatedError(f"--claims-device {self.device}: give cpu, cuda, or one of several as cuda:1")
        if self.reference and (parse(self.reference).is_built_in or parse(self.reference).is_whole_file):
            raise StatedError(f"--claims-reference {self.reference}: name one nn.Module, as in theirs.py:GPT")


def shapes_of(text: str) -> list[Shape]:
    """The inputs that a text states. Raises StatedError."""
    shapes = []
    for part in filter(None, map(str.strip, text.split(","))):
        form = re.fullmatch(r"(?:(?P<name>[^\W\d]\w*)=)?(?P<sizes>[1-9]\d*(?:x[1-9]\d*)*)(?::(?P<dtype>\w+))?", part)
        if form is None or (form["dtype"] or "float") not in DTYPES:
            raise StatedError(
                f"--claims-input {text}: {part} is no shape; write sizes, and the dtype if it is not float, as in "
                f"2x16:int or idx=2x16:int,mask=2x16 (dtypes: {', '.join(DTYPES)})"
            )
        shapes.append(Shape(form["name"] or "", tuple(map(int, form["sizes"].split("x"))), form["dtype"] or "float"))
    names = [shape.name for shape in shapes if shape.name]
    if len(set(names)) < len(names):
        raise StatedError(f"--claims-input {text}: it states one input twice")
    return shapes
