"""Adapters: what turns an `--impl` specification into an implementation (`resolve`).

    minigrad                  this project's engine and models with their kernels; also minigrad:reference,
                              minigrad:compiled, minigrad:cuda
    torch                     torch.nn and torch.nn.functional
    reference                 the formulas of the documents in plain numpy
    path/to/file.py:Class     a class in a file: an nn.Module, or any class with a method build(role, config)
    package.module:Class      the same, importable
    ...:function              a function that makes an nn.Module from sizes (make_model(...))
    ...:Class@role            an nn.Module in a role that its names do not tell (multi_head_attention, ...)

An adapter module is imported only when its implementation is asked for, so that nothing else of this project gets
into the process of a user's code.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

MINIGRAD_MODES = ("kernels", "reference", "compiled", "cuda")
BUILT_IN = ("minigrad", "torch", "reference")


class SpecificationError(Exception):
    """An `--impl` specification names nothing usable. The message is one sentence that says what to do."""


@dataclass(frozen=True)
class Specification:
    """A parsed `--impl`: a built-in `target` with its `name` as mode, or a file or module and a class `name`.

    role: what an nn.Module is to be tested as; empty when it shall be inferred.
    """

    text: str
    target: str
    name: str
    is_file: bool = False
    role: str = ""

    @property
    def is_built_in(self) -> bool:
        return not self.is_file and self.target in BUILT_IN


def parse(text: str) -> Specification:
    """Split a specification without importing anything. Raises SpecificationError."""
    target, _, name = text.rpartition(":") if ":" in text else (text, "", "")
    if target in BUILT_IN:
        modes = MINIGRAD_MODES if target == "minigrad" else ()
        if ":" in text and name not in modes:
            offered = ", ".join([target, *(f"{target}:{mode}" for mode in modes)])
            raise SpecificationError(f"--impl {text}: {target} has no mode {name!r}; choose one of {offered}")
        return Specification(text, target, name)
    if text.endswith(".py"):
        target, name = text, ""
    if target.endswith(".py"):
        path = Path(target).expanduser()
        if not path.is_file():
            raise SpecificationError(f"--impl {text}: there is no file {path}; give path/to/file.py:Class")
        if not name:
            raise SpecificationError(f"--impl {text}: say which class of the file to test, as {text}:Class")
        name, _, role = name.partition("@")
        return Specification(text, str(path.resolve()), name, is_file=True, role=role)
    name, _, role = name.partition("@")
    if not name or not all(part.isidentifier() for part in target.split(".")):
        raise SpecificationError(
            f"--impl {text}: give one of {', '.join(BUILT_IN)}, or path/to/file.py:Class, or package.module:Class"
        )
    return Specification(text, target, name, role=role)


def resolve(text: str, folders: Sequence[str] = ()) -> Any:
    """The implementation that `text` names. Raises SpecificationError with one sentence when there is none.

    A module is looked for in the current folder, in `folders`, and among what is installed.

    It runs the user's module and constructor: call it in a process that may hang or die.
    """
    spec = parse(text)
    if spec.is_built_in:
        return _made(spec, _built_in(spec), f"{spec.target} cannot be used here")
    found = _find(_load(spec, folders), spec)
    is_function = isinstance(found, FunctionType)
    if _is_torch_module(found) or (is_function and "torch.nn" in sys.modules):
        adapter = _adapter(spec, "conformance.adapters.whole.implementation").PointedImplementation
        return _made(spec, partial(adapter, found, spec), "write an adapter class with build(role, config) for it")
    if is_function:
        raise SpecificationError(
            f"--impl {text}: {spec.name} is a function; write a class with build(role, config) around it"
        )
    if not hasattr(found, "build"):
        raise SpecificationError(
            f"--impl {text}: {spec.name} is neither a torch.nn.Module nor a class with a method build(role, config); "
            "see conformance/adapters/examples/numpy_class.py"
        )
    if not isinstance(found, type):
        return found
    return _made(spec, found, "a class with build(role, config) must be constructible without arguments")


def load_class(text: str) -> Any:
    """The class or function that `text` names ("path/to/file.py:Class" or "package.module:Class").

    Raises SpecificationError.
    """
    spec = parse(text)
    return _find(_load(spec, ()), spec)


def _built_in(spec: Specification) -> Callable[[], Any]:
    if spec.target == "reference":
        return _adapter(spec, "conformance.adapters.reference").ReferenceImplementation
    if spec.target == "torch":
        return _adapter(spec, "conformance.adapters.torch").TorchImplementation
    module = _adapter(spec, "conformance.adapters.minigrad")
    return partial(module.MinigradImplementation, spec.name or MINIGRAD_MODES[0])


def _made(spec: Specification, factory: Callable[[], Any], advice: str) -> Any:
    """What `factory()` returns; a SpecificationError with `advice` when it raises."""
    try:
        return factory()
    except SpecificationError as error:
        raise SpecificationError(f"--impl {spec.text}: {error}") from error
    except Exception as error:
        name = spec.name or spec.target
        raise SpecificationError(f"--impl {spec.text}: {name}() raised {_sentence(error)}; {advice}") from error


def _adapter(spec: Specification, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "torch":
            raise SpecificationError(
                f"--impl {spec.text}: PyTorch is not installed; install it with pip install torch"
            ) from error
        raise SpecificationError(
            f"--impl {spec.text}: this installation has no module {error.name}, which {spec.target} needs"
        ) from error


# --- user code ------------------------------------------------------------------------------------


def _load(spec: Specification, folders: Sequence[str]) -> ModuleType:
    try:
        return _load_file(Path(spec.target)) if spec.is_file else _load_module(spec.target, folders)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise SpecificationError(
                f"--impl {spec.text}: it imports PyTorch, which is not installed; pip install torch"
            ) from error
        if isinstance(error, ModuleNotFoundError) and not spec.is_file and spec.target.startswith(str(error.name)):
            raise SpecificationError(
                f"--impl {spec.text}: there is no module {error.name}; run from the folder that holds it, or install it"
            ) from error
        raise SpecificationError(f"--impl {spec.text}: importing it raised {_sentence(error)}") from error


def _load_file(path: Path) -> ModuleType:
    """Import a file as Python would from its own folder; a file inside packages, as the package's module."""
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    with _first_on_path(root, path.parent):  # the root first: models/models.py must not hide its package
        if len(parts) > 1 and parts[0] not in sys.modules:
            return importlib.import_module(".".join(parts))
        name = path.stem if path.stem not in sys.modules and path.stem.isidentifier() else f"subject_{path.stem}"
        module_spec = importlib.util.spec_from_file_location(name, path)
        assert module_spec is not None
        assert module_spec.loader is not None
        module = importlib.util.module_from_spec(module_spec)
        sys.modules[name] = module
        module_spec.loader.exec_module(module)
        return module


def _load_module(name: str, folders: Sequence[str]) -> ModuleType:
    with _first_on_path(Path.cwd(), *map(Path, folders)):
        return importlib.import_module(name)


@contextmanager
def _first_on_path(*folders: Path) -> Iterator[None]:
    """The folders come first while a subject is imported, last afterwards (for its imports inside functions)."""
    names = list(dict.fromkeys(str(folder) for folder in folders))
    sys.path[:0] = names
    try:
        yield
    finally:
        del sys.path[: len(names)]
        sys.path.extend(names)


def _find(module: ModuleType, spec: Specification) -> Any:
    found: Any = module
    for part in spec.name.split("."):
        found = getattr(found, part, None)
    if found is not None:
        return found
    offered = [
        name for name, value in vars(module).items() if inspect.isclass(value) and value.__module__ == module.__name__
    ]
    has = f"it defines {', '.join(offered[:8])}" if offered else "it defines no class"
    raise SpecificationError(f"--impl {spec.text}: there is no {spec.name} in {spec.target}; {has}")


def _is_torch_module(value: Any) -> bool:
    """Whether it is a subclass (or an instance) of torch.nn.Module, without importing torch."""
    nn = sys.modules.get("torch.nn")
    if nn is None:
        return False
    return issubclass(value, nn.Module) if isinstance(value, type) else isinstance(value, nn.Module)


def _sentence(error: BaseException) -> str:
    from conformance.places import innermost_line

    text = " ".join(str(error).split())
    place = innermost_line(error)
    return f"{type(error).__name__}{': ' + text if text else ''}{f' at {place}' if place else ''}"
