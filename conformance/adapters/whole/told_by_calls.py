"""What the user's own calls of a model show of its inputs: ``model(torch.randn(4, 48, 3), torch.arange(48))``.

The calls are read as syntax and never run: a tensor is known by what makes it. Its sizes are given the names of the
options that have the same values in the call of the constructor, so that they hold for other values of these, too.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch import nn

from conformance.adapters.whole.constructing import Evaluator
from conformance.adapters.whole.sizes import Sizing, Unknown
from conformance.adapters.whole.syntax import Binding, Scope
from conformance.adapters.whole.told import Axis, Told, method_of
from conformance.adapters.whole.usage import Surroundings

_MAKERS = (
    "randn",
    "rand",
    "zeros",
    "ones",
    "empty",
    "full",
    "randint",
    "normal",
    "FloatTensor",
    "LongTensor",
    "Tensor",
)
_LIKE = ("randn_like", "rand_like", "zeros_like", "ones_like", "full_like", "randint_like", "empty_like", "from_numpy")
_KEEP = (
    "to",
    "cuda",
    "cpu",
    "clone",
    "detach",
    "contiguous",
    "requires_grad_",
    "cumsum",
    "clamp",
    "abs",
    "sigmoid",
    "tanh",
)
_DTYPES = {"long": "int", "int": "int", "bool": "bool", "float": "float", "double": "float", "half": "float"}
_NO_LENGTH = 1
"""A literal size of a middle axis that is no length."""
_DEPTH = 12


@dataclass(frozen=True)
class _Tensor:
    sizes: tuple[int, ...]
    dtype: str


def told_by_calls(module: nn.Module, around: Surroundings, parameters: Sequence[str]) -> dict[str, Told]:
    """What the first call that shows any shape says of these parameters of forward."""
    name = type(module).__name__
    for source in around.sources if parameters else ():
        if name not in source.text:
            continue
        for call, scope in source.calls:
            reader = _Reader(around)
            if (made := _constructor(call.func, scope, name)) is not None:
                shown = reader.arguments(call, scope, parameters)
            elif _last(call.func) == "summary" and (made := _constructor(_argument(call, 0, "model"), scope, name)):
                shown = reader.summarised(call, scope, parameters[0], has_batch="torchsummary" not in source.text)
            else:
                continue
            if shown:
                values = _values(made, scope, around, type(module))
                return {key: Told(tuple(_axes(one, values)), one.dtype) for key, one in shown.items()}
    return {}


def _argument(call: ast.Call, at: int, name: str) -> ast.expr | None:
    return next((word.value for word in call.keywords if word.arg == name), (call.args + [None] * (at + 1))[at])


def _constructor(node: ast.expr | None, scope: Scope, name: str) -> ast.Call | None:
    """The call of the class that made what is called here: ``model``, ``self.model``, ``Model()`` itself."""
    if isinstance(node, ast.Call):
        return node if _last(node.func) == name else _constructor(node.func, scope, name) if _stays(node) else None
    if isinstance(node, ast.Attribute) and node.attr == "forward":
        return _constructor(node.value, scope, name)
    if not isinstance(node, ast.Name):
        return None
    binding = _binding(node, scope)
    if binding is None or binding.kind != "value" or not isinstance(binding.node, ast.Call):
        return None
    made: ast.expr = binding.node
    while isinstance(made, ast.Call) and _stays(made) and isinstance(made.func, ast.Attribute):
        made = made.func.value
    return made if isinstance(made, ast.Call) and _last(made.func) == name else None


def _stays(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in (*_KEEP, "eval", "train", "float", "double")


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _binding(node: ast.Name, scope: Scope) -> Binding | None:
    at: Scope | None = scope
    while at is not None:
        binding = at.binding(node.id, node.lineno if at is scope else None)
        if binding is not None:
            return binding
        at = at.parent
    return None


class _Reader:
    """Tensors by the expressions that make them."""

    def __init__(self, around: Surroundings) -> None:
        self.evaluator = Evaluator(around, Sizing(), _no_part, strict=True)
        self.depth = 0

    def arguments(self, call: ast.Call, scope: Scope, parameters: Sequence[str]) -> dict[str, _Tensor]:
        given = dict(zip(parameters, call.args, strict=False))
        given |= {word.arg: word.value for word in call.keywords if word.arg and word.arg in parameters}
        found = {name: self.tensor(node, scope) for name, node in given.items()}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def summarised(self, call: ast.Call, scope: Scope, parameter: str, has_batch: bool) -> dict[str, _Tensor]:
        """The first input of a model whose layers are printed: ``summary(model, (1, 3, 224, 224))`` of torchinfo,
        without the batch of torchsummary; or its data."""
        given = _argument(call, 2, "input_data") or _argument(call, 1, "input_size")
        if isinstance(given, (ast.Tuple, ast.List)):
            sizes = self._whole(given.elts, scope)
            return {parameter: _Tensor(sizes if has_batch else (1, *sizes), "")} if sizes else {}
        tensor = self.tensor(given, scope) if given is not None else None
        return {parameter: tensor} if tensor is not None else {}

    def tensor(self, node: ast.expr, scope: Scope) -> _Tensor | None:
        """The sizes and the dtype of what an expression makes; None where syntax does not tell them."""
        self.depth += 1
        try:
            return self._tensor(node, scope) if self.depth < _DEPTH else None
        finally:
            self.depth -= 1

    def _tensor(self, node: ast.expr, scope: Scope) -> _Tensor | None:
        if isinstance(node, ast.Name):
            return self._named(node, scope)
        if isinstance(node, ast.BinOp):
            return self.tensor(node.left, scope) or self.tensor(node.right, scope)
        if isinstance(node, ast.UnaryOp):
            return self.tensor(node.operand, scope)
        if isinstance(node, ast.Compare):
            compared = self.tensor(node.left, scope)
            return compared and _Tensor(compared.sizes, "bool")
        return self._called(node, scope) if isinstance(node, ast.Call) else None

    def _named(self, node: ast.Name, scope: Scope) -> _Tensor | None:
        binding = _binding(node, scope)
        if binding is None:
            return None
        if binding.kind == "value":
            return self.tensor(binding.node, scope)
        if binding.kind == "unpack" and isinstance(binding.node, ast.Tuple):
            return self.tensor(binding.node.elts[binding.index], scope)
        return None

    def _called(self, node: ast.Call, scope: Scope) -> _Tensor | None:
        name = _last(node.func)
        words = {word.arg: word.value for word in node.keywords}
        stated = _DTYPES.get(_last(words["dtype"]).rstrip("0123456789"), "") if "dtype" in words else ""
        if name in _LIKE and node.args:
            like = self.tensor(node.args[0], scope)
            return like and _Tensor(like.sizes, stated or like.dtype)
        if name in _MAKERS:
            sizes = self._sizes(name, node.args, words, scope)
            dtype = "int" if name in ("randint", "LongTensor") else "float"
            return _Tensor(sizes, stated or dtype) if sizes else None
        if name == "arange":
            counts = self._whole(node.args[:1], scope)
            return _Tensor(counts, stated or "int") if counts and len(node.args) == 1 else None
        return self._method(node.func.value, name, node.args, scope) if isinstance(node.func, ast.Attribute) else None

    def _method(self, held: ast.expr, name: str, args: list[ast.expr], scope: Scope) -> _Tensor | None:
        """What a method of a tensor gives: another dtype, one axis more or less, other sizes."""
        tensor = self.tensor(held, scope)
        if tensor is None:
            return None
        if name in _DTYPES:
            return _Tensor(tensor.sizes, _DTYPES[name])
        if name in _KEEP:
            return tensor
        numbers = self._whole(args, scope)
        if name == "unsqueeze" and numbers is not None and len(numbers) == 1:
            sizes = list(tensor.sizes)
            sizes.insert(numbers[0] if numbers[0] >= 0 else len(sizes) + 1 + numbers[0], 1)
            return _Tensor(tuple(sizes), tensor.dtype)
        if name in ("expand", "repeat", "view", "reshape") and numbers and len(numbers) >= len(tensor.sizes):
            old = (1,) * (len(numbers) - len(tensor.sizes)) + tensor.sizes
            if name == "repeat":
                return _Tensor(tuple(a * b for a, b in zip(old, numbers, strict=True)), tensor.dtype)
            return _Tensor(tuple(o if n == -1 else n for o, n in zip(old, numbers, strict=True)), tensor.dtype)
        return None

    def _sizes(
        self, name: str, args: list[ast.expr], words: Mapping[str | None, ast.expr], scope: Scope
    ) -> tuple[int, ...] | None:
        """The sizes that a maker of tensors is given, as numbers or as one tuple."""
        if "size" in words:
            args = [words["size"]]
        elif name == "randint":
            args = [arg for arg in args if isinstance(arg, (ast.Tuple, ast.List))]
        elif name == "full":
            args = args[:1]
        if len(args) == 1 and isinstance(args[0], (ast.Tuple, ast.List)):
            if name.endswith("Tensor") and isinstance(args[0], ast.List):
                return None  # these are its numbers
            args = args[0].elts
        return self._whole(args, scope)

    def _whole(self, args: Sequence[ast.expr], scope: Scope) -> tuple[int, ...] | None:
        """The whole numbers that expressions are; a size of another tensor that is known, too."""
        found = []
        for arg in args:
            size = self._size_of(arg, scope)
            if size is None:
                with suppress(Unknown, Exception):
                    size = self.evaluator.value(arg, scope)
            if not isinstance(size, int):
                return None
            found.append(int(size))
        return tuple(found)

    def _size_of(self, node: ast.expr, scope: Scope) -> int | None:
        """``x.size(1)``, ``x.shape[1]``."""
        held = at = None
        if isinstance(node, ast.Call) and node.args and (called := method_of(node, "size")) is not None:
            held, at = called, node.args[0]
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            held, at = node.value.value, node.slice
        if held is None or at is None or (tensor := self.tensor(held, scope)) is None:
            return None
        with suppress(ValueError, TypeError, IndexError):
            return tensor.sizes[ast.literal_eval(at)]
        return None


def _no_part(cls: Any, evaluator: Any) -> Any:
    raise Unknown(str(cls))


def _values(made: ast.Call, scope: Scope, around: Surroundings, cls: type) -> dict[int, str]:
    """Sizes -> names of options that have them, in a call of a constructor and in configs that it is given."""
    evaluator = Evaluator(around, Sizing(), _no_part, strict=True)
    found: dict[int, str] = {}
    for name, node, inner in _arguments(made, scope, list(inspect.signature(cls).parameters)):
        with suppress(Unknown, Exception):
            value = evaluator.value(node, inner)
            if isinstance(value, int) and not isinstance(value, bool):
                found.setdefault(int(value), name)
    return found


def _arguments(
    call: ast.Call, scope: Scope, parameters: Sequence[str], depth: int = 0
) -> Iterator[tuple[str, ast.expr, Scope]]:
    """(name, expression) of the arguments of a call, and of the calls that make these."""
    given = [*zip(parameters, call.args, strict=False), *((word.arg, word.value) for word in call.keywords if word.arg)]
    for name, node in given:
        yield name, node, scope
        inner: ast.expr | None = node
        if isinstance(node, ast.Name) and (binding := _binding(node, scope)) is not None and binding.kind == "value":
            inner = binding.node
        if isinstance(inner, ast.Call) and depth < 3:
            yield from _arguments(inner, scope, (), depth + 1)


def _axes(tensor: _Tensor, values: Mapping[int, str]) -> Iterator[Axis]:
    """The axes of a tensor: the batch first, sizes of options by their names, a middle one that is none a length."""
    for at, size in enumerate(tensor.sizes):
        if at == 0:
            yield "batch"
        elif size > _NO_LENGTH and size in values:
            yield values[size]
        else:
            yield "length" if at == 1 and size > _NO_LENGTH and len(tensor.sizes) < 4 else size
