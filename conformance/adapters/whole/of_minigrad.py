"""A model on minigrad as the subject of the claims about whole models: `on_torch(Model)` is an nn.Module.

Its parameters and buffers are torch's under the same names, its parts are modules of their own, and its classes stand
where the model's stand. A call is one operation whose forward and backward passes minigrad computes, on the memory of
torch's tensors. So the claims judge it by the same experiments as any model. Where somebody watches torch's operations
(a record of a run, the losses, what a writer chooses from), each op of minigrad is one of torch's instead (`mirror`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_flatten, tree_unflatten

import minigrad as mg
from conformance.adapters.whole.mirror import Mirror, is_watched
from conformance.protocol import NotProvided

WIDTHS = (torch.float32, torch.float64)
"""The precisions in which minigrad's models compute; narrower ones are for storing."""
HELD = (mg.Tensor, mg.nn.Module)
"""What a minigrad module holds as parameters, buffers and parts; its other attributes are settings."""


class OnTorch(nn.Module):
    """The minigrad module `minigrad`, as a torch module; `on_torch` makes one of the class that stands for its class.

    Its settings are minigrad's. forward takes the same arguments; tensors among them, and among what it gives, may lie
    in tuples, lists and dicts. In training mode minigrad's draws follow torch's generator. Raises NotProvided under
    autocast, and for parameters that are neither float32 nor float64.
    """

    minigrad: mg.nn.Module

    def __init__(self, minigrad: mg.nn.Module, made: dict[int, Any] | None = None) -> None:
        """made: the parameters and parts that there are already, by the id of minigrad's: a tied one stays one."""
        nn.Module.__init__(self)
        settings = {name: value for name, value in vars(minigrad).items() if not isinstance(value, HELD)}
        self.__dict__.update({name: value for name, value in settings.items() if name[0] != "_" and name != "forward"})
        self.minigrad = minigrad
        made = {} if made is None else made
        made[id(minigrad)] = self
        for name, own in minigrad.named_parameters(recurse=False):
            if id(own) not in made:
                made[id(own)] = nn.Parameter(_copied(own), own.requires_grad)
            self.register_parameter(name, made[id(own)])
        for name, own in minigrad.named_buffers(recurse=False):
            self.register_buffer(name, _copied(own), persistent=minigrad._buffers[name])
        for name, part in minigrad.named_children():
            self.add_module(name, made[id(part)] if id(part) in made else _wrapped(part, made))

    def forward(self, *args: Any, **inputs: Any) -> Any:
        return self.called("forward", args, inputs)

    def called(self, method: str, args: Sequence[Any], inputs: Mapping[str, Any]) -> Any:
        """What a method of minigrad's module gives for torch's tensors."""
        turn = self.__dict__.get("_turn")
        if turn is not None and method == "forward":  # inside a run that is watched
            return turn()
        return self._run(lambda: self.minigrad if method == "forward" else getattr(self.minigrad, method), args, inputs)

    def taken_by(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of a minigrad model and tensors, such as generate(model, ids, n), as one of this module and
        torch's tensors."""

        @functools.wraps(function)
        def of_torch(module: OnTorch, *args: Any, **inputs: Any) -> Any:
            return module._run(lambda: functools.partial(function, module.minigrad), args, inputs)

        return of_torch

    def _run(self, function: Callable[[], Callable[..., Any]], args: Sequence[Any], inputs: Mapping[str, Any]) -> Any:
        """What a function gives, by minigrad; by torch's operations where somebody watches these, and where it gives
        several tensors with a history, of which one may be computed from another."""
        if not is_watched():
            leaves, takes = tree_flatten((tuple(args), dict(inputs)))
            call = _Call(self, function(), takes)
            results = _Run.apply(call, torch.is_grad_enabled(), len(leaves), *leaves, *self.parameters())
            if sum(isinstance(one, mg.Tensor) and one.requires_grad for one in call.found) < 2:
                each = [other if tensor is None else tensor for tensor, other in zip(results, call.found, strict=True)]
                return tree_unflatten(each, call.gives)
        with self.mirrored() as mirror:
            given, named = mirror.in_minigrad((tuple(args), dict(inputs)))
            return mirror.in_torch(function()(*given, **named))

    def new_cache(self, max_len: int) -> Any:
        """What its forward takes as `cache`, with room for so many tokens. Raises NotProvided where it makes none."""
        if not hasattr(self.minigrad, "new_cache"):
            raise NotProvided(f"{type(self.minigrad).__name__} has no method new_cache")
        return self.minigrad.new_cache(max_len)

    def filled(self) -> list[tuple[mg.Tensor, torch.Tensor]]:
        """minigrad's parameters and buffers with torch's: they have its numbers, its mode and its seed from now on."""
        if torch.is_autocast_enabled("cpu"):
            raise NotProvided("torch's autocast reaches no operation of minigrad")
        tensors = dict(self.named_parameters()) | dict(self.named_buffers())
        pairs = []
        for name, own in (*self.minigrad.named_parameters(), *self.minigrad.named_buffers()):
            if tensors[name].is_floating_point() and tensors[name].dtype not in WIDTHS:
                raise NotProvided("minigrad computes in float32 and float64; narrower numbers are for storing")
            own.data = mg.from_numpy(tensors[name].detach().numpy())
            pairs.append((own, tensors[name]))
        for part in self.modules():
            if isinstance(part, OnTorch):
                part.minigrad.training = part.training
        if self.training:
            mg.manual_seed(int(torch.randint(2**62, ())))
        return pairs

    @contextmanager
    def mirrored(self) -> Iterator[Mirror]:
        """Inside, minigrad's ops are torch's, and the calls of its parts are calls of the parts here."""
        mirror = Mirror(self.filled())
        parts = [part for part in self.modules() if isinstance(part, OnTorch) and part is not self]
        before = [vars(part.minigrad).get("forward") for part in parts]
        for part in parts:
            vars(part.minigrad)["forward"] = functools.partial(_in_turn, mirror, part, part.minigrad.forward)
        try:
            with mirror.interpreting():
                yield mirror
        finally:
            for part, forward in zip(parts, before, strict=True):
                del vars(part.minigrad)["forward"]
                if forward is not None:
                    vars(part.minigrad)["forward"] = forward


def _in_turn(mirror: Mirror, part: OnTorch, forward: Callable[..., Any], *args: Any, **inputs: Any) -> Any:
    """A part's forward, run by a call of its torch module, so that whoever watches calls sees it."""
    before = part.__dict__.get("_turn")
    part.__dict__["_turn"] = lambda: mirror.in_torch(forward(*args, **inputs))
    given, named = mirror.in_torch((args, inputs))
    try:
        return mirror.in_minigrad(part(*given, **named))
    finally:
        part.__dict__["_turn"] = before


class _Call:
    """One call of a function on minigrad's tensors. takes, gives: how its arguments and results nest; found: these."""

    def __init__(self, module: OnTorch, function: Callable[..., Any], takes: Any) -> None:
        self.module, self.function, self.takes = module, function, takes
        self.found: list[Any] = []
        self.gives: Any = None

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        self.module.filled()
        args, inputs = tree_unflatten(leaves, self.takes)
        self.found, self.gives = tree_flatten(self.function(*args, **inputs))
        return self.found


class _Run(torch.autograd.Function):
    """A minigrad module's forward and backward pass as one operation of torch."""

    @staticmethod
    def forward(ctx: Any, call: _Call, records: bool, count: int, *values: Any) -> tuple[Any, ...]:
        given = [_as_minigrad(value) for value in values[:count]]
        wanted = [needs and records for needs in ctx.needs_input_grad[3:]]
        for value, wants in zip(given, wanted, strict=False):
            if wants:
                value.requires_grad_()
        with mg.enable_grad() if any(wanted) else mg.no_grad():
            found = call(given)
        ctx.out = [one if isinstance(one, mg.Tensor) and one.requires_grad else None for one in found]
        ctx.leaves, ctx.wanted = [*given, *call.module.minigrad.parameters()], wanted
        results = tuple(_copied(one) if isinstance(one, mg.Tensor) else None for one in found)
        ctx.mark_non_differentiable(*(one for one in results if one is not None and not one.is_floating_point()))
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        asked = [leaf for leaf, wants in zip(ctx.leaves, ctx.wanted, strict=True) if wants]
        pairs = zip(ctx.out, gradients, strict=True)
        arrived = [(out, _as_minigrad(g)) for out, g in pairs if out is not None and g is not None]
        found: Iterator[mg.Tensor | None] = iter([None] * len(asked))
        if arrived:
            out, given = zip(*arrived, strict=True)
            found = iter(mg.grad(out, asked, given, allow_unused=True))
        each = (next(found) if wants else None for wants in ctx.wanted)
        return None, None, None, *(None if one is None else _copied(one) for one in each)


# --- the classes ----------------------------------------------------------------------------------

LAYERS = (nn.Linear, nn.Embedding, nn.Dropout, nn.LayerNorm, nn.RMSNorm, nn.ModuleList, nn.ModuleDict, nn.Sequential)
"""Torch's layers that minigrad's of the same names are kinds of."""


def on_torch(found: Any) -> Any:
    """A class or an instance of a minigrad module as torch's: a class is made with the same arguments."""
    return torch_class(found) if isinstance(found, type) else _wrapped(found, {})


def _wrapped(module: mg.nn.Module, made: dict[int, Any]) -> OnTorch:
    kind: Any = type(module)
    cls = torch_class(kind)
    result = cls.__new__(cls)
    OnTorch.__init__(result, module, made)
    return result


@cache
def torch_class(cls: type) -> type[OnTorch]:
    """The class of torch modules that stands for a class of minigrad modules: of the same name, in the same file, with
    the same methods; for a layer of minigrad's own a kind of torch's layer of that name."""
    if cls is mg.nn.Module:
        return OnTorch
    bases = tuple(torch_class(base) for base in cls.__bases__ if issubclass(base, mg.nn.Module))
    namespace: dict[str, Any] = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    own = not cls.__module__.startswith("minigrad.")
    if not own:
        layer = getattr(nn, cls.__name__, nn.Module)
        namespace["__module__"] = layer.__module__
        bases = (*bases, layer) if layer in LAYERS else bases
    if hasattr(cls, "__firstlineno__"):  # where Python looks for its source
        namespace["__firstlineno__"] = cls.__firstlineno__
    namespace["__init__"] = _maker(cls)
    for name, function in vars(cls).items():
        mine = own and name[0] != "_" and name != "new_cache" and not hasattr(nn.Module, name)
        if inspect.isfunction(function) and (mine or name == "forward"):
            namespace[name] = _method(name, function)
    made: type[OnTorch] = type(cls.__name__, bases, namespace)
    return made


def _maker(cls: type) -> Callable[..., Any]:
    @functools.wraps(cls.__init__)  # type: ignore[misc]
    def __init__(self: OnTorch, *args: Any, **kwargs: Any) -> None:
        mg.manual_seed(torch.initial_seed())
        OnTorch.__init__(self, cls(*args, **kwargs))

    return __init__


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def method(self: OnTorch, *args: Any, **kwargs: Any) -> Any:
        return self.called(name, args, kwargs)

    return method


def _as_minigrad(value: Any) -> Any:
    """A torch tensor's memory as minigrad's tensor; anything else as it is."""
    return mg.from_numpy(value.detach().numpy()) if isinstance(value, torch.Tensor) else value


def _copied(tensor: mg.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.array(tensor.detach().numpy()))
