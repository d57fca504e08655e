"""torch.nn.utils.parametrize: parameters that modules compute from others each time that they are read.

`register_parametrization(linear, "weight", lora)` makes ``linear.weight`` the value of ``lora(original)``. The original
and the modules are found under ``linear.parametrizations.weight``, as in torch, so state dicts have torch's names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import minigrad
from minigrad.nn import Module as _Module
from minigrad.nn import ModuleDict as _ModuleDict
from minigrad.nn import ModuleList as _ModuleList
from minigrad.nn import Parameter as _Parameter
from minigrad.tensor import Tensor as _Tensor
from minigrad.torch._missing import missing as _missing

_cache: list[dict[tuple[int, str], _Tensor]] = []  # of the blocks `with cached()` that are open


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized tensor once in the block."""
    _cache.append(_cache[-1] if _cache else {})
    try:
        yield
    finally:
        _cache.pop()


class ParametrizationList(_ModuleList):
    """The modules that make a tensor, one after the other, of `original` (or `original0`, `original1`, ...)."""

    def __init__(self, modules: Sequence[_Module], original: _Tensor) -> None:
        super().__init__(modules)
        self.is_tensor = True
        self._learned = isinstance(original, _Parameter)
        self._keep(original)

    def _keep(self, value: _Tensor) -> None:
        """Hold what the modules have to be given for them to return `value`."""
        kept: Any = value
        with minigrad.no_grad():
            for module in reversed(list(self)):
                kept = module.right_inverse(kept) if hasattr(module, "right_inverse") else kept
        self.is_tensor = isinstance(kept, _Tensor)
        for i, part in enumerate([kept] if self.is_tensor else kept):
            name = "original" if self.is_tensor else f"original{i}"
            if hasattr(self, name):
                with minigrad.no_grad():
                    getattr(self, name).copy_(part)
            elif self._learned:
                setattr(self, name, part if isinstance(part, _Parameter) else _Parameter(part))
            else:
                self.register_buffer(name, part)

    def forward(self) -> _Tensor:
        given: list[Any] = [value for name, value in vars(self).items() if name.startswith("original")]
        for module in self:
            given = [module(*given)]
        return given[0]


def _lists(module: Any) -> Any:
    """The ParametrizationList of each tensor of a module, by name."""
    return module.parametrizations


def is_parametrized(module: _Module, tensor_name: str | None = None) -> bool:
    """Does the module have parametrizations, or one of this tensor?"""
    found = getattr(module, "parametrizations", None)
    return found is not None and (tensor_name is None or tensor_name in found)


def register_parametrization(
    module: _Module, tensor_name: str, parametrization: _Module, *, unsafe: bool = False
) -> _Module:
    """Let `parametrization` make the tensor `tensor_name` of a module, behind those that do already; returns it.

    Raises ValueError for a name that the module has no tensor under, and, unless `unsafe`, where the shape changes.
    """
    if not is_parametrized(module, tensor_name):
        original = vars(module).get(tensor_name)
        if not isinstance(original, _Tensor):
            raise ValueError(
                f"register_parametrization: {type(module).__name__} has no parameter or buffer {tensor_name!r}"
            )
        made = ParametrizationList([parametrization], original)
        with minigrad.no_grad():
            _check(made(), tensor_name, original, unsafe)
        if not is_parametrized(module):
            module.__class__ = type(f"Parametrized{type(module).__name__}", (type(module),), {})
            module.parametrizations = _ModuleDict()
        delattr(module, tensor_name)
        module._buffers = {name: kept for name, kept in module._buffers.items() if name != tensor_name}
        setattr(type(module), tensor_name, _property(tensor_name))
        _lists(module)[tensor_name] = made
        return module
    made = _lists(module)[tensor_name]
    with minigrad.no_grad():
        before = made()
        _check(parametrization(before), tensor_name, before, unsafe)
    made.append(parametrization)
    return module


def _check(after: _Tensor, name: str, before: _Tensor, unsafe: bool) -> None:
    if not unsafe and after.shape != before.shape:
        raise ValueError(
            f"register_parametrization: {name!r} has shape {list(before.shape)} and would have {list(after.shape)}: "
            "pass unsafe=True if that is meant"
        )


def _property(name: str) -> property:
    def read(module: _Module) -> _Tensor:
        if not _cache:
            return _lists(module)[name]()
        key = id(module), name
        if key not in _cache[-1]:
            _cache[-1][key] = _lists(module)[name]()
        return _cache[-1][key]

    def write(module: _Module, value: _Tensor) -> None:
        _lists(module)[name]._keep(value)

    return property(read, write)


def remove_parametrizations(module: _Module, tensor_name: str, leave_parametrized: bool = True) -> _Module:
    """Hold the tensor itself again: as it is computed now, or the original. Returns the module.

    Raises ValueError for a tensor without parametrizations, and for several originals that shall stay.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"remove_parametrizations: {type(module).__name__}.{tensor_name} has no parametrization")
    made = _lists(module)[tensor_name]
    if not made.is_tensor and not leave_parametrized:
        raise ValueError("remove_parametrizations: several originals cannot stay; pass leave_parametrized=True")
    kept: Any = made.original if made.is_tensor else None
    if leave_parametrized:
        with minigrad.no_grad():
            value = made()
        if isinstance(kept, _Parameter) and kept.shape == value.shape:
            kept.data = value.detach()
        else:
            kept = _Parameter(value) if made._learned else value
    delattr(type(module), tensor_name)
    del _lists(module)[tensor_name]
    if isinstance(kept, _Parameter):
        module.register_parameter(tensor_name, kept)
    else:
        module.register_buffer(tensor_name, kept)
    if not len(_lists(module)):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


__getattr__ = _missing(__name__, globals())
