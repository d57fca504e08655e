"""An inferred adapter as a file that a person can read, correct and complete (``--claims-adapter-out FILE``).

`source` writes it; `WrittenAdapter` is what its class inherits. Nothing is probed when it runs: it does what it says.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from conformance.adapters import Specification, SpecificationError, load_class, parse
from conformance.adapters.inference.calls import Call
from conformance.adapters.inference.construct import Constructor
from conformance.adapters.inference.parts import PartOf, class_made
from conformance.adapters.inference.resolution import Resolution
from conformance.adapters.inference.roles import MODELS
from conformance.adapters.inference.subjects import Conventions
from conformance.adapters.torch_module import TorchModuleImplementation
from conformance.adapters.torch_subject import TorchSubject
from conformance.protocol import NotProvided


class WrittenPart:
    """A class, or a component of a whole model, in one role: from class attributes instead of inference.

    module_class: the nn.Module, or a function that makes one. component: where it holds what plays the role; empty for
    itself. constructor: option of the protocol -> parameters of its constructor. inputs: input of the protocol ->
    parameter of forward. masks, constants: parameters of forward that take masks, and values for others. conventions:
    fields of `Conventions`. fixed: options of the role that the class has decided. attributes: conventions that
    reports show.
    """

    module_class: ClassVar[Callable[..., nn.Module]]
    component: ClassVar[str] = ""
    role: ClassVar[str]
    constructor: ClassVar[Mapping[str, Sequence[str]]] = {}
    inputs: ClassVar[Mapping[str, str]] = {}
    masks: ClassVar[Sequence[str]] = ()
    constants: ClassVar[Mapping[str, Any]] = {}
    conventions: ClassVar[Mapping[str, Any]] = {}
    fixed: ClassVar[Mapping[str, Any]] = {}
    attributes: ClassVar[Mapping[str, Any]] = {}


class WrittenAdapter:
    """An implementation of the roles of its parts."""

    parts: ClassVar[Sequence[type[WrittenPart]]]

    def __init__(self) -> None:
        self.name = self.parts[0].module_class.__name__
        self._stated = {part.role: _Stated(part) for part in self.parts}

    def build(self, role: str, config: Mapping[str, Any]) -> TorchSubject:
        """Raises NotProvided for other roles, and for options that the class has not."""
        if role not in self._stated:
            raise NotProvided(f"{self.name} plays the role {', '.join(self._stated)}")
        return self._stated[role].build(config)


class _Stated(Resolution):
    """A resolution whose facts are given."""

    def __init__(self, part: type[WrittenPart]) -> None:
        self.role = part.role
        self.facts, self.why = [], {}
        self.fixed = dict(part.fixed)
        self.attributes = dict(part.attributes)
        whole = Constructor(part.module_class)
        whole.names = {option: list(names) for option, names in part.constructor.items()}
        self.constructor = PartOf(whole, part.component) if part.component else whole
        self.cls = class_made(self.constructor)
        call = Call(self.cls, self.role if self.role in MODELS else "")
        call.names, call.masks, call.constants = dict(part.inputs), list(part.masks), dict(part.constants)
        self.conventions = Conventions(call, **part.conventions)


def source(implementation: Any, impl: str, path: Path) -> str:
    """The Python source of the adapter of an inferred class, to be written to `path`. Raises SpecificationError."""
    spec = parse(impl)
    implementation = getattr(implementation, "parts", implementation)
    if not isinstance(implementation, TorchModuleImplementation):
        raise SpecificationError(
            f"--claims-adapter-out: an adapter is written for an nn.Module that was inferred, which {impl} is not"
        )
    writer = _Writer()
    model = _loading(spec, path, writer)
    parts = [_part(resolution, writer) for resolution in implementation.resolutions.values()]
    names = ", ".join(_class_name(resolution.role) for resolution in implementation.resolutions.values())
    base = writer.name(WrittenAdapter)
    facts = "\n".join(f"    {line}".rstrip() for line in implementation.describe().splitlines())
    return f'''"""{implementation.name}: an adapter written from what was inferred, to be corrected and completed.

    pytest --pyargs conformance --impl {path.name}:Adapter

Nothing is inferred when it runs: what stands below counts. It was inferred from

{facts}
"""

{writer.imports()}

MODEL = {model}

{"".join(parts)}
class Adapter({base}):
    parts = ({names},)

    def build(self, role, config):
        # Other roles: return an object for each, called with the role's inputs (conformance.protocol.ROLES).
        return super().build(role, config)
'''


def _class_name(role: str) -> str:
    return "".join(word.capitalize() for word in role.split("_"))


def _part(found: Resolution, writer: _Writer) -> str:
    """The class that states one resolution."""
    call = found.conventions.call
    stated = {
        field.name: getattr(found.conventions, field.name)
        for field in fields(Conventions)
        if field.name != "call" and getattr(found.conventions, field.name) != _default(field)
    }
    layout = stated.pop("layout", {})
    places = "".join(f"            {name!r}: {writer.of(place)},\n" for name, place in layout.items())
    conventions = f"        layout={{\n{places}        }},\n" if layout else ""
    conventions += "".join(f"        {name}={writer.of(value)},\n" for name, value in stated.items())
    component = found.constructor.path if isinstance(found.constructor, PartOf) else ""
    return f"""
class {_class_name(found.role)}({writer.name(WrittenPart)}):
    module_class = MODEL
    component = {component!r}
    role = {found.role!r}
    # option of the role -> parameters of the constructor
    constructor = {writer.of(found.constructor.names)}
    # input of the role -> parameter of forward; parameters that take masks; values of other parameters
    inputs = {writer.of(call.names)}
    masks = {writer.of(call.masks)}
    constants = {writer.of(call.constants)}
    # parameter of the role -> where the class stores it; how it is called; what its masks mean
    conventions = dict(
{conventions}    )
    # options that the class has decided, and conventions that reports show
    fixed = {writer.of(found.fixed)}
    attributes = {writer.of(found.attributes)}

"""


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _loading(spec: Specification, path: Path, writer: _Writer) -> str:
    """The expression that loads the class, from a file by its place relative to the adapter's."""
    load = writer.name(load_class)
    if not spec.is_file:
        return f"{load}({f'{spec.target}:{spec.name}'!r})"
    relative = os.path.relpath(spec.target, path.absolute().parent)
    return f'{load}(f"{{{writer.name(Path)}(__file__).parent / {relative!r}}}:{spec.name}")'


class _Writer:
    """Values as Python source; remembers what the source has to import."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}

    def name(self, value: Any) -> str:
        """The name of a class or function of a module."""
        module = "pathlib" if value is Path else value.__module__
        self.names.setdefault(module, set()).add(value.__name__)
        return str(value.__name__)

    def of(self, value: Any) -> str:
        """Source whose value equals `value`: dataclasses, partials, functions, classes, tensors, and what repr says."""
        if isinstance(value, partial):
            keywords = "".join(f", {key}={self.of(item)}" for key, item in value.keywords.items())
            self.names.setdefault("functools", set()).add("partial")
            return f"partial({', '.join([self.of(value.func), *map(self.of, value.args)])}{keywords})"
        if is_dataclass(value) and not isinstance(value, type):
            given = [(f.name, getattr(value, f.name)) for f in fields(value) if getattr(value, f.name) != _default(f)]
            return f"{self.name(type(value))}({', '.join(f'{key}={self.of(item)}' for key, item in given)})"
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{key!r}: {self.of(item)}" for key, item in value.items()) + "}"
        if isinstance(value, list):
            return f"[{', '.join(map(self.of, value))}]"
        if isinstance(value, tuple):
            return f"({''.join(f'{self.of(item)}, ' for item in value).rstrip()})" if value else "()"
        if isinstance(value, Tensor):  # a mask that hides nothing, or cosines and sines that turn nothing
            self.names.setdefault("torch", set()).add("tensor")
            return f"tensor({value.tolist()!r})"
        if callable(value):
            return self.name(value)
        return repr(value)

    def imports(self) -> str:
        lines = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(self.names.items())]
        ours = [line for line in lines if line.startswith("from conformance")]
        return "\n".join([*(line for line in lines if line not in ours), "", *ours])
