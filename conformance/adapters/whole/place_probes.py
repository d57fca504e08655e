"""Where the parts of a model stand in the user's files."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import TYPE_CHECKING

from conformance.adapters.whole.chained import has_forward

if TYPE_CHECKING:
    from conformance.adapters.whole.model import WholeModel


class PlaceProbes:
    """Places, as methods of `WholeModel`."""

    def place(self: WholeModel, path: str = "") -> str:  # type: ignore[misc]
        """file:line of the forward of the part at `path`; empty for torch's own."""
        part = self.module.get_submodule(path) if path else self.module
        with suppress(OSError, TypeError):
            function = inspect.unwrap(type(part).forward if has_forward(part) else part.decode)
            return f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"
        return ""

    def made_at(self: WholeModel, path: str) -> str:  # type: ignore[misc]
        """file:line of the user's where the part, parameter or buffer at `path` is assigned; else of the class that
        holds it."""
        holders = [""]
        for name in path.split("."):
            holders.append(f"{holders[-1]}.{name}".lstrip("."))
        for holder_path in reversed(holders[:-1]):
            try:
                holder = self.module.get_submodule(holder_path)
            except AttributeError:
                continue  # a list that is no nn.ModuleList
            name = path.removeprefix(holder_path).lstrip(".").partition(".")[0]
            if type(holder).__module__.startswith("torch.") or name.isdigit():
                continue
            with suppress(OSError, TypeError):
                lines, start = inspect.getsourcelines(type(holder))
                for number, line in enumerate(lines):
                    if f"self.{name}" in line or f'"{name}"' in line or f"'{name}'" in line:
                        return f"{inspect.getsourcefile(type(holder))}:{start + number}"
                return f"{inspect.getsourcefile(type(holder))}:{start}"
        return self.place()
