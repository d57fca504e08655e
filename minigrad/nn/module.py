"""Parameter and Module: what holds weights, finds them by name, saves and loads them, and opens a scope when called.

A module's attributes are its registry: every `Parameter` and `Module` among them is found in the order of assignment,
and so are the tensors that `register_buffer` named. Nothing is kept twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from minigrad import dtypes
from minigrad.creation import as_tensor
from minigrad.gradmode import no_grad
from minigrad.ops.arguments import no_tensor
from minigrad.state import SCOPED, silently, state
from minigrad.tensor import Tensor

Self = TypeVar("Self", bound="Module")
StateDict = dict[str, Tensor]


class Parameter(Tensor):
    """A tensor that a module learns. Shares memory with `data`, which must be floating if it requires a gradient."""

    __slots__ = ()

    def __init__(self, data: Tensor | np.ndarray, requires_grad: bool = True) -> None:
        data = as_tensor(data)
        super().__init__(data.array, data.storage)
        self.requires_grad_(requires_grad)

    def __repr__(self) -> str:
        return f"Parameter({super().__repr__()})"


class LoadResult(NamedTuple):
    """What `load_state_dict` found no value for, and what it had no use for (both empty when strict)."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Handle:
    """A registered hook; `remove()` takes it away."""

    def __init__(self, hooks: list[Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


def _in_a_table_of(value: Any, tensor: Tensor) -> bool:
    """Has `value` the tensor in a table (positional codes that are kept for each dtype)?"""
    if isinstance(value, Tensor | Module | type) or not hasattr(value, "__dict__"):
        return False
    tables = [inner for inner in vars(value).values() if isinstance(inner, dict)]
    return any(entry is tensor for table in tables for entry in table.values())


class Module:
    """Base of everything with parameters: assign parameters and modules as attributes and write `forward`.

    Calling a module runs `forward` inside a scope (the name under which its parent holds it, its class), which every
    node made there carries, and which an error raised there names.
    """

    training: bool = True
    _name: str = ""  # under which the parent holds it
    _buffers: Mapping[str, bool] = {}  # name -> whether the state dict holds it
    _forward_hooks: list[Callable[..., Any]] | None = None
    _forward_pre_hooks: list[Callable[..., Any]] | None = None

    def __init__(self) -> None:
        """Nothing to prepare; there so that modules may call super().__init__()."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward(): define it to make the module callable")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outer = state.scope
        state.scope = (*outer, (self._name, self.__class__.__name__))
        try:
            return silently(self._run, args, kwargs)
        except Exception as error:
            problem = no_tensor(self.forward, args, kwargs) if isinstance(error, AttributeError) else None
            shown = error if problem is None else TypeError(problem)
            if not hasattr(shown, "__notes__"):  # the innermost module only
                path = ".".join(name for name, _ in state.scope if name)
                shown.add_note(f"in module {path or 'the outermost one'} ({type(self).__name__})")
            if shown is not error:
                raise shown from None
            raise
        finally:
            state.scope = outer

    def name_held(self, tensor: Tensor, path: Sequence[str]) -> str:
        """What a trace calls a tensor that this module, whose own name is `path`, holds in an attribute; "" if none."""
        found = (name for name, value in vars(self).items() if value is tensor or _in_a_table_of(value, tensor))
        return ".".join([*path, name]) if (name := next(found, "")) else ""

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for before in self._forward_pre_hooks or ():
            replaced = before(self, args)
            if replaced is not None:
                args = replaced if isinstance(replaced, tuple) else (replaced,)
        result = self.forward(*args, **kwargs)
        for after in self._forward_hooks or ():
            replaced = after(self, args, result)
            if replaced is not None:
                result = replaced
        return result

    def register_forward_pre_hook(self, hook: Callable[[Any, Any], Any]) -> Handle:
        """Call `hook(module, args)` before `forward`; what it returns replaces the arguments."""
        self._forward_pre_hooks = self._forward_pre_hooks or []
        self._forward_pre_hooks.append(hook)
        return Handle(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[[Any, Any, Any], Any]) -> Handle:
        """Call `hook(module, args, result)` after `forward`; what it returns replaces the result."""
        self._forward_hooks = self._forward_hooks or []
        self._forward_hooks.append(hook)
        return Handle(self._forward_hooks, hook)

    # --- attributes ---------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Module):
            value._rename(self._scope_name(name))
        elif value is not None and not isinstance(value, Parameter) and isinstance(self.__dict__.get(name), Parameter):
            raise TypeError(
                f"{type(self).__name__}.{name} is a Parameter and cannot become a {type(value).__name__}: "
                "assign a Parameter, or change its values with copy_() under no_grad()"
            )
        object.__setattr__(self, name, value)

    def _scope_name(self, name: str) -> str:
        """How scopes call the child held as `name`."""
        return name

    def _rename(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Hold `parameter` as attribute `name`; None says that it is absent."""
        setattr(self, name, parameter)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Hold a tensor that is not learned as attribute `name`; the state dict has it if `persistent`."""
        self._buffers = {**self._buffers, name: persistent}
        setattr(self, name, tensor)

    def add_module(self, name: str, module: Module) -> None:
        """Hold `module` as attribute `name`. Raises KeyError for a name that is taken or has a dot."""
        if "." in name or not name:
            raise KeyError(f"a module cannot be called {name!r}: names have no dots and are not empty")
        if hasattr(self, name) and not isinstance(getattr(self, name), Module):
            raise KeyError(f"{type(self).__name__} already has an attribute {name!r}: choose another name")
        setattr(self, name, module)

    # --- what it holds ------------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Its own modules by name, in the order of assignment."""
        for name, value in self.__dict__.items():
            if isinstance(value, Module):
                yield name, value

    def children(self) -> Iterator[Module]:
        for _, child in self.named_children():
            yield child

    def named_modules(self, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """This module and all inside it, parents first; each once unless `remove_duplicate` is False."""
        seen: set[int] = set()
        stack = [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if remove_duplicate and id(module) in seen:
                continue
            seen.add(id(module))
            yield path, module
            stack.extend(reversed([(_join(path, name), child) for name, child in module.named_children()]))

    def modules(self) -> Iterator[Module]:
        for _, module in self.named_modules():
            yield module

    def _named_tensors(
        self, own: Callable[[Module], Iterator[tuple[str, Tensor]]], prefix: str, recurse: bool, unique: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for path, module in self.named_modules(prefix, remove_duplicate=unique) if recurse else [(prefix, self)]:
            for name, tensor in own(module):
                if not unique or id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield _join(path, name), tensor

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters by dotted name; a shared one once, under its first name, unless `remove_duplicate` is False."""
        return self._named_tensors(_own_parameters, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers by dotted name."""
        return self._named_tensors(_own_buffers, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    # --- saving and loading -------------------------------------------------------------------------

    def _state(self) -> dict[str, Tensor]:
        """Every parameter and persistent buffer itself, by dotted name; shared ones under each of their names."""
        found: dict[str, Tensor] = {}
        for path, module in self.named_modules(remove_duplicate=False):
            persistent = [(name, tensor) for name, tensor in _own_buffers(module) if module._buffers[name]]
            found.update((_join(path, name), tensor) for name, tensor in [*_own_parameters(module), *persistent])
        return found

    def state_dict(self) -> StateDict:
        """Parameters and persistent buffers by dotted name, as detached tensors that share their memory."""
        return {name: tensor.detach() for name, tensor in self._state().items()}

    def load_state_dict(self, state_dict: Mapping[str, Tensor | np.ndarray], strict: bool = True) -> LoadResult:
        """Copy values into the parameters and buffers, which stay the same objects; values are cast to their dtype.

        A parameter that has several names (a tied weight) needs a value under one of them. Raises ValueError that lists
        every missing or unexpected name (when strict), every shape that differs, and two different values for one
        tied parameter; then nothing has been changed.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"load_state_dict needs tensors by name, got {type(state_dict).__name__}: minigrad.io.load_file(path) "
                "reads them from a file"
            )
        own = self._state()
        given = {name: np.asarray(value.detach() if isinstance(value, Tensor) else value)
                 for name, value in state_dict.items()}  # fmt: skip
        loaded: dict[int, str] = {id(own[name]): name for name in given if name in own}
        missing = [name for name, tensor in own.items() if id(tensor) not in loaded]
        unexpected = [name for name in given if name not in own]
        problems = []
        if strict and missing:
            problems.append(f"no value for {', '.join(missing)}")
        if strict and unexpected:
            problems.append(f"no parameter or buffer called {', '.join(unexpected)}")
        for name, value in given.items():
            if name in own and value.shape != own[name].shape:
                problems.append(
                    f"{name} has shape {list(own[name].shape)} here and {list(value.shape)} in the state dict"
                )
            elif name in own:
                other = loaded[id(own[name])]
                if other != name and not np.array_equal(value, given[other], equal_nan=dtypes.is_floating(value.dtype)):
                    problems.append(f"{name} and {other} are one tensor here and two different ones in the state dict")
        if problems:
            raise ValueError(f"the state dict does not fit {type(self).__name__}: " + "; ".join(problems))
        with no_grad():
            for name, value in given.items():
                if name in own:
                    own[name].copy_(Tensor(value))
        return LoadResult(missing, unexpected)

    # --- changing all of it -------------------------------------------------------------------------

    def train(self: Self, mode: bool = True) -> Self:
        """Training mode (dropout is active) or not, here and inside."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: Self) -> Self:
        return self.train(False)

    def apply(self: Self, function: Callable[[Module], Any]) -> Self:
        """Call `function` on every module inside, then on this one."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget every parameter's gradient, or fill it with zeros."""
        for parameter in self.parameters():
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad.zero_()

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """Floating parameters and buffers in another dtype, others on another device only; see `Tensor.to`."""
        for tensor in [*self.parameters(), *self.buffers()]:
            converted = tensor.detach().to(*args, **kwargs)
            if not tensor.is_floating_point():
                converted = tensor.detach().to(converted.device)
            if (converted.dtype, converted.device) != (tensor.dtype, tensor.device):
                gradient = tensor.grad
                tensor.data = converted
                tensor.grad = None if gradient is None else gradient.to(converted.device, converted.dtype)
        return self

    def cpu(self: Self) -> Self:
        return self.to("cpu")

    def cuda(self: Self) -> Self:
        return self.to("cuda")

    def float(self: Self) -> Self:
        return self.to(dtypes.float32)

    def double(self: Self) -> Self:
        return self.to(dtypes.float64)

    def half(self: Self) -> Self:
        return self.to(dtypes.float16)

    def bfloat16(self: Self) -> Self:
        return self.to(dtypes.bfloat16)

    # --- text ---------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """The settings that `repr` shows."""
        return ""

    def __repr__(self) -> str:
        children = [f"({name}): {child!r}" for name, child in self.named_children()]
        head = type(self).__name__ + "(" + self.extra_repr()
        if not children:
            return head + ")"
        inside = "\n".join(children).replace("\n", "\n  ")
        return f"{head}\n  {inside}\n)"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _own_parameters(module: Module) -> Iterator[tuple[str, Tensor]]:
    for name, value in module.__dict__.items():
        if isinstance(value, Parameter):
            yield name, value


def _own_buffers(module: Module) -> Iterator[tuple[str, Tensor]]:
    for name in module._buffers:
        value = getattr(module, name)
        if value is not None:
            yield name, value


SCOPED.add(Module.__call__.__code__)
