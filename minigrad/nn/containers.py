"""Modules that hold modules: ModuleList, ModuleDict, Sequential."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from minigrad.nn.module import Module


class _Holder(Module):
    """Is never called itself, so its children's scopes carry its name: "layers.0"."""

    def _scope_name(self, name: str) -> str:
        return f"{self._name}.{name}" if self._name else name

    def _rename(self, name: str) -> None:
        super()._rename(name)
        for own, child in self.named_children():
            child._rename(self._scope_name(own))


class _Numbered(Module):
    """Children named "0", "1", ..."""

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    def __getitem__(self, index: int | slice) -> Any:
        """The child at an index, or a new container of the children in a slice."""
        found = list(self.children())[index]
        if not isinstance(found, list):
            return found
        part = type(self)()
        part.__dict__.update((str(i), child) for i, child in enumerate(found))  # a slice gives nobody a new name
        return part

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, [name for name, _ in self.named_children()][index], module)

    def append(self, module: Module) -> Any:
        if not isinstance(module, Module):
            raise TypeError(f"{type(self).__name__} holds modules, got {type(module).__name__}")
        self.add_module(str(len(self)), module)
        return self


class ModuleList(_Numbered, _Holder):
    """A list of modules; has no forward."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        for module in modules:
            self.append(module)
        return self


class ModuleDict(_Holder):
    """Modules by name; has no forward."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        for name, module in modules.items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __getitem__(self, name: str) -> Module:
        return dict(self.named_children())[name]

    def __delitem__(self, name: str) -> None:
        delattr(self, name)

    def __contains__(self, name: str) -> bool:
        return name in dict(self.named_children())

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self.named_children()))

    def keys(self) -> Iterable[str]:
        return dict(self.named_children()).keys()

    def values(self) -> Iterable[Module]:
        return dict(self.named_children()).values()

    def items(self) -> Iterable[tuple[str, Module]]:
        return dict(self.named_children()).items()


class Sequential(_Numbered):
    """Modules applied one after the other: `Sequential(a, b)(x)` is b(a(x)). Also from one mapping name -> module."""

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            for module in modules:
                self.append(module)

    def forward(self, x: Any) -> Any:
        for module in self.children():
            x = module(x)
        return x
