"""What the user's files say about a model, line by line, and where its parts stand in them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import suppress

from torch import nn

from conformance.adapters.inference.construct import CONFIGS
from conformance.adapters.whole.chained import has_forward
from conformance.adapters.whole.class_source import heading_of, modes_kept, source_of
from conformance.adapters.whole.kept_modes import Kept, functions_that_remember
from conformance.adapters.whole.running import RunningModel


class PlaceProbes(RunningModel):
    """Places, of a running model."""

    def sources(self) -> Iterator[tuple[type, str, str, int]]:
        """Class, source, file and first line of every class of the user's that the model is made of."""
        for cls in dict.fromkeys(base for part in self.module.modules() for base in type(part).__mro__[:3]):
            if found := source_of(cls):
                yield cls, *found

    def heading(self) -> str:
        """What the file of its class says first."""
        return heading_of(type(self.module))

    def speaks_of_dropping(self) -> bool:
        """Whether its code does, or its constructor takes settings, which may."""
        parameters = inspect.signature(type(self.module)).parameters.values()
        settings = any(p.kind is p.VAR_KEYWORD or p.name.lower() in CONFIGS for p in parameters)
        return settings or bool(self.line_of(r"(?i)drop"))

    def line_of(self, pattern: str) -> str:
        """file:line of the first line of the user's classes that the pattern is found in."""
        for _, source, file, start in self.sources():
            for number, line in enumerate(source.splitlines()):
                if re.search(pattern, line):
                    return f"{file}:{start + number}"
        return ""

    def scales_by_length(self) -> str:
        """file:line where the code says that scores or rotations depend on the length of the input; "" when nowhere."""
        return self.line_of(r"(?i)\blog_?n\b|\blog\([^()]*(length|seq_len|len\()|ntk|long_?rope|yarn")

    def spreads_places(self) -> str:
        """file:line where the code spreads places evenly over the whole length, padding and all; "" when nowhere."""
        return self.line_of(r"\blinspace\(.*\b(n|t|l|s|\w*len\w*|length|\w*shape\[\S+\]|\w+\.size\(\S+\))\s*[,)]")

    def modes_kept(self) -> list[tuple[str, str]]:
        """The methods, and the functions of its file, that put back a mode that they never changed, with their
        lines."""
        methods = [found for cls, _, _, _ in self.sources() for found in modes_kept(cls)]
        return methods + [(one.name, one.place) for one in self._remembering() if not one.changes]

    def remembers_modes(self) -> bool:
        """Whether a method, or a function of its file, remembers the mode of the model."""
        return bool(self.line_of(r"=\s*self\.training\b")) or bool(self._remembering())

    def _remembering(self) -> list[Kept]:
        return list(functions_that_remember(type(self.module)))

    def plain_lists(self) -> list[str]:
        """The paths of lists and tuples of modules that are no nn.ModuleList, and hold modules that nothing else
        holds."""
        known = set(self.module.modules())
        return [
            f"{path}.{name}".lstrip(".")
            for path, part in self.module.named_modules()
            for name, held in vars(part).items()
            if isinstance(held, list | tuple) and any(isinstance(one, nn.Module) and one not in known for one in held)
        ]

    def place(self, path: str = "") -> str:
        """file:line of the forward of the part at `path`; empty for torch's own."""
        part = self.module.get_submodule(path) if path else self.module
        with suppress(OSError, TypeError):
            function = inspect.unwrap(type(part).forward if has_forward(part) else part.decode)
            return f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"
        return ""

    def made_at(self, path: str) -> str:
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
                assigned, named = rf"\b\w+\.{name}\b[^=]*=[^=]", rf"self\.{name}|[\"']{name}[\"']"
                is_set = any(re.search(assigned, line) for line in lines)
                for number, line in enumerate(lines):
                    if re.search(assigned if is_set else named, line):
                        return f"{inspect.getsourcefile(type(holder))}:{start + number}"
                return f"{inspect.getsourcefile(type(holder))}:{start}"
        return self.place()
