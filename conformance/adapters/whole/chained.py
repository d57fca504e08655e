"""A forward for models that have none, or none that answers: their `encode`, their `decode`, and what projects its
result; an encoder of one side, a method or a part, where forward compares samples. Which models have two sides."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from textwrap import dedent
from types import MethodType
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from conformance.adapters.whole import names
from conformance.adapters.whole.calling import loss_in, quiet_evaluation

_MEMORY = re.compile(r"memory|enc(oder|oded)?(_?(out(put)?s?|states?|hidden|h|x))?|context|latents?|e_out")
_PROJECTIONS = ("project", "generator", "projection", "projection_layer", "output_layer", "head", "fc_out", "linear")

_ENCODES = re.compile(r"(encode|embed|represent)(_\w+)?|get_\w*(features|embeddings?)|\w+_(embedding|features)")


def with_forward(module: nn.Module) -> nn.Module:
    """The module, with decode(encode(source), target) as its forward where its class defines none; and with what it
    takes by name, where it takes all of it as ``**words`` that it hands on."""
    if not has_forward(module):
        if all(inspect.ismethod(getattr(module, name, None)) for name in ("encode", "decode")):
            module.forward = MethodType(_chain(module), module)
    elif (taken := _taken_as_words(module)) is not None:
        module.forward = MethodType(taken, module)
    return module


def _taken_as_words(module: nn.Module) -> Callable[..., Any] | None:
    """The forward of a class that requires nothing and hands ``**words`` or ``*words`` on to a method or a part, with
    the parameters of that one in their place; None for any other. A word that it reads itself, ``words["mask"]``, is
    required."""
    own = inspect.unwrap(type(module).forward)
    parameters = list(inspect.signature(own).parameters.values())[1:]
    words = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), "")
    in_a_row = "" if words else next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")
    words = words or in_a_row
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not words or any(p.default is p.empty for p in named) or (in_a_row and named):
        return None
    try:
        tree = ast.parse(dedent(inspect.getsource(own)))
    except (OSError, TypeError, SyntaxError):
        return None
    to = next((call for call in ast.walk(tree) if isinstance(call, ast.Call) and _hands_on(call, words)), None)
    function = _called(module, to.func) if to is not None else None
    if to is None or function is None:
        return None
    read = {
        node.slice.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == words
        if isinstance(node.slice, ast.Constant)
    }
    given = {p.name for p in named} | {word.arg for word in to.keywords}
    before = [one for one in to.args if not isinstance(one, ast.Starred)]
    theirs = list(inspect.signature(function).parameters.values())[len(before) :]
    theirs = [p for p in theirs if p.name not in given and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    theirs = [p.replace(default=p.empty) if p.name in read else p for p in theirs]

    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    taken = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*theirs, *named)]
    signature = inspect.Signature([first, *taken])

    @wraps(own)
    def forward(self: Any, *given: Any, **named: Any) -> Any:
        if in_a_row:
            bound = signature.bind(self, **named)
            bound.apply_defaults()
            given = (*given, *(bound.arguments[p.name] for p in theirs))
            named = {name: value for name, value in named.items() if name not in {p.name for p in theirs}}
        return own(self, *given, **named)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    return forward


def _hands_on(call: ast.Call, words: str) -> bool:
    given = [word.value for word in call.keywords if word.arg is None]
    given += [one.value for one in call.args if isinstance(one, ast.Starred)]
    return any(isinstance(one, ast.Name) and one.id == words for one in given)


def _called(module: nn.Module, function: ast.expr) -> Callable[..., Any] | None:
    """The method of a module, or of its parent class, or the forward of its part, that a call means: bound."""
    if not isinstance(function, ast.Attribute):
        return None
    if isinstance(function.value, ast.Call):  # super().forward(**words)
        of_parent = getattr(super(type(module), module), function.attr, None)
        return of_parent if callable(of_parent) else None
    if function.attr == "forward" and isinstance(function.value, ast.Attribute):  # self.model.forward(*words)
        function = function.value
    held = getattr(module, function.attr, None) if ast.unparse(function.value) == "self" else None
    return held.forward if isinstance(held, nn.Module) else held if inspect.ismethod(held) else None


def has_forward(module: nn.Module) -> bool:
    return type(module).forward is not nn.Module.forward


def encoders_of(module: nn.Module) -> Iterator[str]:
    """The methods that answer for one side of a model whose forward compares samples (``encode_query``), as far as
    their names say so."""
    for name, value in inspect.getmembers(type(module), inspect.isfunction):
        if not value.__module__.startswith("torch.") and _ENCODES.fullmatch(name.lower()):
            yield name


def sides_of(module: nn.Module, given: Mapping[str, Any]) -> list[str]:
    """The parts that a forward, called with `given`, hands what it is given itself: the encoders of its sides."""
    handed: list[str] = []
    hooks = [
        part.register_forward_pre_hook(
            lambda _, args, kwargs, name=name: (
                handed.append(name) if any(x is y for x in [*args, *kwargs.values()] for y in given.values()) else None
            ),
            with_kwargs=True,
        )
        for name, part in module.named_children()
        if next(part.children(), None) is not None
    ]
    try:
        with quiet_evaluation(module), suppress(Exception):
            module(**given)
    finally:
        for hook in hooks:
            hook.remove()
    return list(dict.fromkeys(handed))


def as_forward(module: nn.Module, name: str) -> nn.Module:
    """The module, with one of its methods, or of its parts, as its forward."""
    own = getattr(type(module), name, None) or _forward_of(module, name)
    module.forward = MethodType(own, module)
    return module


def with_scores(module: nn.Module) -> nn.Module:
    """The module, whose forward gives its loss and the scores that this compares with words, where it gives a loss
    only."""
    own = module.forward.__func__

    @wraps(own)
    def forward(self: Any, *given: Any, **named: Any) -> Any:
        with _Scores() as scores:
            result = own(self, *given, **named)
        return {"loss": loss_in(result), "logits": scores.seen} if scores.seen is not None else result

    module.forward = MethodType(forward, module)
    return module


class _Scores(TorchFunctionMode):
    """seen: the scores of classes, on the last axis, that a cross-entropy of a run is given; where there is none, those
    of which a logarithm of the softmax is taken. Of several the first with the most rows: of words, not of texts."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Tensor | None = None
        self.is_certain = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        given = args[0] if args else kwargs.get("input")
        if isinstance(given, Tensor) and given.dim() > 1:
            if name == "cross_entropy":
                self._see(given.movedim(1, -1), True)
            elif name == "log_softmax":
                self._see(given, False)
        return func(*args, **kwargs)

    def _see(self, scores: Tensor, is_certain: bool) -> None:
        better = self.seen is None or scores.shape[:-1].numel() > self.seen.shape[:-1].numel()
        if (is_certain, better) > (self.is_certain, False):
            self.seen, self.is_certain = scores, is_certain


def _forward_of(module: nn.Module, name: str) -> Callable[..., Any]:
    """A method that calls a part of the module, with the parameters of the part's own forward."""

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        return getattr(self, name)(*given, **named)

    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    of_part = inspect.signature(getattr(module, name).forward).parameters.values()
    forward.__signature__ = inspect.Signature([first, *of_part])  # type: ignore[attr-defined]
    return forward


def _chain(module: nn.Module) -> Callable[..., Any]:
    """decode(encode(...), ...) as one function, whose parameters are those of both without the memory."""
    encode, decode = (
        list(inspect.signature(getattr(module, name)).parameters.values()) for name in ("encode", "decode")
    )
    data = [p for p in decode if names.meaning_of(p.name) not in ("mask", "target")]
    memory = next((p.name for p in data if _MEMORY.fullmatch(p.name.lower())), data[0].name if data else "")
    inside = {p.name: p for p in [*encode, *decode] if p.name != memory}
    after = next((name for name in _PROJECTIONS if callable(getattr(module, name, None))), "")

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        values = dict(zip(inside, given, strict=False)) | named
        encoded = self.encode(**{p.name: values[p.name] for p in encode if p.name in values})
        decoded = self.decode(**{memory: encoded}, **{p.name: values[p.name] for p in decode if p.name in values})
        return getattr(self, after)(decoded) if after else decoded

    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    ordered = [p.replace(kind=p.KEYWORD_ONLY) for p in inside.values()]
    forward.__signature__ = inspect.Signature([first, *ordered])  # type: ignore[attr-defined]
    return forward


def has_two_stacks(module: nn.Module) -> bool:
    """Whether it holds an encoder and a decoder that are made of layers: tables, maps and heads are called so, too."""
    held = {path.rpartition(".")[2] for path, part in module.named_modules() if _is_stack(part)}
    return all(any(re.search(rf"(^|_){word}(_|s?$)", name) for name in held) for word in ("enc(oder)?", "dec(oder)?"))


def _is_stack(part: nn.Module) -> bool:
    """Whether its parts have parts, as layers have, or whether it is recurrent."""
    return any(isinstance(child, nn.RNNBase) or any(True for _ in child.children()) for child in part.children())
