"""Adapters: what turns an `--impl` specification into an implementation (`resolve`).

    minigrad                  this project's engine and models with their kernels; also minigrad:reference,
                              minigrad:compiled, minigrad:cuda
    torch                     torch.nn and torch.nn.functional
    reference                 the formulas of the documents in plain numpy
    path/to/file.py:Class     a class in a file: an nn.Module of torch's or minigrad's, or any class with a method
                              build(role, config)
    package.module:Class      the same, importable
    ...:function              a function that makes an nn.Module from sizes (make_model(...)), or one that plays a role
                              by itself: attention, a mask, a loss, a schedule, a decoder, positions
    ...:Class.from_config     a classmethod that makes one
    ...:Class(Config(n=2))    an expression in the module's names
    ...:model                 an instance that the module holds
    path/to/file.py           all of a file, or of the package in a folder; of a file without a model the functions and
                              classes that work with one of another file (path/to/file.py:* is the same)
    ...:Class@role            an nn.Module in a role that its names do not tell (multi_head_attention, ...)

An adapter module is imported only when its implementation is asked for, so that nothing else of this project gets
into the process of a user's code.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

from conformance import sandbox
from conformance.adapters import programs
from conformance.adapters.loading import load_file, load_module, repository_root
from conformance.adapters.specification import (
    ALL,
    MINIGRAD_MODES,
    Specification,
    SpecificationError,
    is_expression,
    parse,
)
from conformance.adapters.stated import Stated
from conformance.places import innermost_line


def resolve(text: str, folders: Sequence[str] = (), stated: Stated | None = None) -> Any:
    """The implementation that `text` names. Raises SpecificationError with one sentence when there is none.

    A module is looked for in the current folder, in `folders`, and among what is installed. stated: what the user says
    about an nn.Module; of anything else nothing can be said.

    It runs the user's module and constructor: call it in a process that may hang or die.
    """
    spec = parse(text)
    if stated is not None and stated.options and spec.is_built_in:
        raise SpecificationError(f"--impl {text}: {' '.join(stated.options)} speaks of an nn.Module, which this is not")
    if spec.is_built_in:
        return _made(spec, _built_in(spec), f"{spec.target} cannot be used here")
    module = _load(spec, folders)
    if spec.name == ALL:
        own = next(iter(_own(module)), None)
        if own is None or (impl := _alone(own, spec, stated, all_of_it=True)) is None:
            raise _nothing_in(text)
        return impl
    found = _find(module, spec)
    if is_minigrad_module(found):
        _adapter(spec, "torch")  # or the sentence that says what to install
        found = as_torch_module(found)
    is_function = isinstance(found, FunctionType)
    uses_torch = "torch.nn" in sys.modules
    if uses_torch and (is_function or (isinstance(found, type) and not hasattr(found, "build"))):
        functions = _adapter(spec, "conformance.adapters.functions.implementation")
        if functions.plays(found, spec.role):
            try:
                return _made(
                    spec, partial(functions.FunctionImplementation, found, spec), "test another role as name@role"
                )
            except SpecificationError:
                if spec.role or (impl := _alone(found, spec, stated)) is None:
                    raise
                return impl
        helpers = _adapter(spec, "conformance.adapters.helpers.implementation")
        making = _adapter(spec, "conformance.adapters.whole.making")
        if is_function and not spec.role and helpers.is_helper(found) and not making.makes_module(found):
            impl = _made(spec, partial(helpers.HelpersImplementation, [found], spec.name), "")
            return impl if impl.says_something else _alone(found, spec, stated) or impl
        is_module = not is_function and _is_torch_module(found)
        is_maker = is_function and making.makes_module(found)
        if not spec.role and not is_module and not is_maker and (impl := _alone(found, spec, stated)) is not None:
            return impl
    if _is_torch_module(found) or (is_function and uses_torch):
        adapter = _adapter(spec, "conformance.adapters.whole.implementation").PointedImplementation
        reference = None
        if stated is not None and stated.reference:
            theirs = parse(stated.reference)
            reference = as_torch_module(_find(_load(theirs, folders), theirs)), theirs
        factory = partial(adapter, found, spec, stated, reference)
        try:
            return _made(spec, factory, "write an adapter class with build(role, config) for it")
        except SpecificationError:
            if spec.role or not isinstance(found, type) or (impl := _criterion(found, spec)) is None:
                raise
            return impl
    if stated is not None and stated.options:
        raise SpecificationError(f"--impl {text}: {' '.join(stated.options)} speaks of an nn.Module, which this is not")
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


def _criterion(found: type, spec: Specification) -> Any:
    """A module that is a loss and no model, as the helper that it is; None where no claim speaks of it."""
    loss = _adapter(spec, "conformance.adapters.helpers.beside").as_criterion(found)
    if loss is None:
        return None
    impl = _adapter(spec, "conformance.adapters.helpers.implementation").HelpersImplementation([loss], spec.name)
    return impl if impl.says_something else None


def _own(module: ModuleType) -> list[Any]:
    """The functions and classes that a module defines."""
    values = [one for one in vars(module).values() if isinstance(one, FunctionType | type)]
    return [one for one in values if one.__module__ == module.__name__]


def _nothing_in(text: str) -> SpecificationError:
    return SpecificationError(
        f"--impl {text.removesuffix(ALL).removesuffix(':')}: it holds nothing that can be tested: no nn.Module (class "
        "or instance), no function that makes one, no class with a method build(role, config), and no function or "
        "class beside a model (one that trains, writes, collates, schedules) that could be run"
    )


def _alone(found: Any, spec: Specification, stated: Stated | None, all_of_it: bool = False) -> Any:
    """A function or class that is no model, with the user's model for it; None where nothing of it can be tested."""
    guests = _adapter(spec, "conformance.adapters.whole.guests")
    whole = _adapter(spec, "conformance.adapters.whole.alone")
    return whole.alone(guests.Guest(found, all_of_it), spec, stated)


def subjects(text: str, folders: Sequence[str] = ()) -> dict[str, str]:
    """What a whole file or package holds to be tested, in its order: short name -> the specification of each.

    These are its public nn.Module classes and instances (torch's and minigrad's), functions that make one, and classes
    with a method build(role, config); where it has none of these, its functions and classes together. Raises
    SpecificationError when there is none. It runs the user's module, as `resolve` does.
    """
    spec = parse(text)
    module = _load(spec, folders)
    found = {
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and hasattr(value, "build") and name[0] != "_"
    }
    if "torch.nn" in sys.modules:
        found |= set(_adapter(spec, "conformance.adapters.whole.making").subjects_in(module))
    own = {name: value for name, value in vars(module).items() if name[0] != "_" and is_minigrad_module(value)}
    found |= {name for name, value in own.items() if getattr(value, "__module__", "") == module.__name__}
    path = text.removesuffix(":")
    path = path if path.endswith(".py") else f"{path.rstrip('/')}/__init__.py"
    if not found and "torch.nn" in sys.modules and _own(module):
        return {Path(text.removesuffix(":")).name: f"{path}:{ALL}"}
    if not found:
        raise _nothing_in(text)
    return {f"{Path(text.removesuffix(':')).name}:{name}": f"{path}:{name}" for name in vars(module) if name in found}


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
        mend = ': pip install "minigrad-conformance[engine]"' if spec.target.startswith("minigrad") else ""
        raise SpecificationError(
            f"--impl {spec.text}: this installation has no module {error.name}, which {spec.target} needs{mend}"
        ) from error


# --- user code ------------------------------------------------------------------------------------


def _load(spec: Specification, folders: Sequence[str]) -> ModuleType:
    in_parts = spec.is_file and not sandbox.is_entered()  # code that nobody trusts runs whole, or is refused
    try:
        if in_parts and programs.works_when_imported(Path(spec.target)) and (module := _definitions(spec)):
            return _on_processor(module, spec)
        return _on_processor(load_file(Path(spec.target)) if spec.is_file else load_module(spec.target, folders), spec)
    except (Exception, SystemExit) as error:
        if in_parts and not _lacks_torch(error) and (module := _definitions(spec)):
            return _on_processor(module, spec)
        raise _unloaded(spec, error) from error


def _definitions(spec: Specification) -> ModuleType | None:
    """The module of a file without what trains, runs a model or fails when it is imported; None where what is asked for
    is not among the rest."""
    path = Path(spec.target)
    try:
        with programs.only_definitions(path, repository_root(path) or path.resolve().parent):
            module = load_file(path)
        asked = re.match(r"[A-Za-z_]\w*", spec.name)
        if asked and hasattr(module, asked[0]):
            return module
    except (Exception, SystemExit):
        pass
    programs.forget(path)  # the file is not tested so
    return None


def _on_processor(module: ModuleType, spec: Specification) -> ModuleType:
    """The module; where it names a GPU that is not there, the processor stands in for it from now on."""
    if "torch" in sys.modules and (path := getattr(module, "__file__", None)):
        root = repository_root(Path(path)) or Path(path).resolve().parent
        _adapter(spec, "conformance.adapters.absent_gpu").stand_in_for_gpu(module, root)
    return module


def _lacks_torch(error: BaseException) -> bool:
    return isinstance(error, ModuleNotFoundError) and error.name == "torch"


def _unloaded(spec: Specification, error: BaseException) -> SpecificationError:
    """Why a module could not be imported, in a sentence."""
    if _lacks_torch(error):
        return SpecificationError(f"--impl {spec.text}: it imports PyTorch, which is not installed; pip install torch")
    if isinstance(error, ModuleNotFoundError) and not spec.is_file and spec.target.startswith(str(error.name)):
        return SpecificationError(
            f"--impl {spec.text}: there is no module {error.name}; run from the folder that holds it, or install it"
        )
    if isinstance(error, OSError) and error.filename is not None:
        return SpecificationError(
            f"--impl {spec.text}: importing it opens the file {error.filename}, which failed ({error.strerror}) at "
            f"{_place(error)}; put the file there, or move the lines that read it into a function or under "
            "if __name__ == '__main__'"
        )
    return SpecificationError(f"--impl {spec.text}: importing it raised {_sentence(error)}")


def _find(module: ModuleType, spec: Specification) -> Any:
    """What the name of the specification is in the module; what its expression gives there."""
    if not spec.name:
        raise SpecificationError(f"--impl {spec.text}: say which class of the file to test, as {spec.target}:Class")
    if is_expression(spec.name):
        try:
            return eval(spec.name, dict(vars(module)))
        except Exception as error:
            raise SpecificationError(f"--impl {spec.text}: {spec.name} raised {_sentence(error)}") from error
    found: Any = module
    for part in spec.name.split("."):
        found = getattr(found, part, None)
    if found is not None:
        return found
    offered = [one.__name__ for one in sorted(_own(module), key=lambda one: not isinstance(one, type))]
    has = f"it defines {', '.join(offered[:8])}" if offered else "it defines no class and no function"
    raise SpecificationError(f"--impl {spec.text}: there is no {spec.name} in {spec.target}; {has}")


def is_minigrad_module(value: Any) -> bool:
    """Whether it is a subclass or an instance of minigrad's Module, without importing minigrad."""
    nn = sys.modules.get("minigrad.nn")
    if nn is None:
        return False
    return issubclass(value, nn.Module) if isinstance(value, type) else isinstance(value, nn.Module)


def as_torch_module(found: Any) -> Any:
    """A class or an instance of minigrad's modules as torch's; anything else as it is."""
    if not is_minigrad_module(found):
        return found
    return importlib.import_module("conformance.adapters.whole.of_minigrad").on_torch(found)


def _is_torch_module(value: Any) -> bool:
    """Whether it is a subclass, an instance or a classmethod of a torch.nn.Module, without importing torch."""
    nn = sys.modules.get("torch.nn")
    if nn is None:
        return False
    if isinstance(value, MethodType):
        value = value.__self__ if isinstance(value.__self__, type) else None
    return issubclass(value, nn.Module) if isinstance(value, type) else isinstance(value, nn.Module)


def _sentence(error: BaseException) -> str:
    text = " ".join(str(error).split())
    place = _place(error)
    return f"{type(error).__name__}{': ' + text if text else ''}{f' at {place}' if place else ''}"


def _place(error: BaseException) -> str:
    return innermost_line(error)
