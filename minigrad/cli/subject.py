"""What the command line names, as something to trace: examples, functions and modules of files and packages.

--example NAME                  one of EXAMPLES
file.py:function                a function of minigrad tensors
file.py:Class                   a module (minigrad's or torch's) whose class needs no arguments
package.module:Class(64, n=4)   or with arguments: literals, and calls of other names, as in Model(Config(n=4))
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from minigrad import dtypes, nn, ones, tensor
from minigrad.autograd import backward
from minigrad.cli import Refusal
from minigrad.graph import Graph
from minigrad.tracing import trace
from minigrad.tracing.nests import flatten
from minigrad.viz.format import LONG

EXAMPLES = (  # functions of transformer.examples that return a function and its arguments
    "neuron", "mlp", "softmax", "attention", "multi-head-attention", "encoder-layer", "encoder-decoder", "llama", "gpt",
    "gpt-train-step",
)  # fmt: skip
BLANK = ("llama", "gpt", "gpt-train-step")  # too big to initialise: nothing to run

_MOST = 2**27  # numbers that an input may have


@dataclass
class Subject:
    """A function (or module) and its arguments; `foreign` where it is torch's."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    foreign: bool = False

    def graph(self, backward: bool) -> Graph:
        """Its trace, with the gradients of its summed outputs where `backward`."""
        try:
            if self.foreign:
                from minigrad.viz.foreign import record

                return record(self.function, *self.arguments, backward=backward)
            return trace(_with_backward(self.function) if backward else self.function)(*self.arguments)
        except Refusal:
            raise
        except Exception as error:
            notes = "; ".join([str(error).strip() or type(error).__name__, *getattr(error, "__notes__", ())])
            raise Refusal(f"it could not be traced: {notes}") from error


def _with_backward(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function.forward if isinstance(function, nn.Module) else function)
    def forward_and_backward(*arguments: Any) -> Any:
        result = function(*arguments)
        roots = [output for output in flatten(result)[0] if output.requires_grad]
        if not roots:
            raise Refusal("there is no gradient to draw: nothing among its parameters and inputs requires one")
        backward(roots, [ones(*root.shape, dtype=root.dtype) for root in roots])
        return result

    return forward_and_backward


def example(name: str) -> Subject:
    """Raises Refusal for an unknown name."""
    if name not in EXAMPLES:
        raise Refusal(f"there is no example {name!r}: the examples are {', '.join(EXAMPLES)}")
    return Subject(*getattr(importlib.import_module("transformer.examples"), name.replace("-", "_"))())


def subject(spec: str, shapes: Sequence[str]) -> Subject:
    """What `spec` names, with zeros or random numbers of `shapes` as arguments. Raises Refusal."""
    where, _, name = spec.rpartition(":")
    if not where or not name:
        raise Refusal(f"{spec!r} names nothing to draw: write file.py:name or package.module:name, or --example NAME")
    module = _load(where)
    with _quick_draws():
        found = _evaluate(module, where, name)
    if not callable(found):
        raise Refusal(f"{spec} is a {type(found).__name__}, which cannot be called: name a function or a module")
    torch = sys.modules.get("torch")
    foreign = torch is not None and isinstance(found, torch.nn.Module)
    arrays = [_array(shape, position) for position, shape in enumerate(shapes)]
    if foreign:
        assert torch is not None
        return Subject(found, tuple(torch.from_numpy(array) for array in arrays), True)
    return Subject(found, tuple(tensor(a, requires_grad=bool(a.dtype.kind == "f")) for a in arrays))


def _quick_draws() -> AbstractContextManager[Any]:
    if "torch" not in sys.modules:
        return nullcontext()
    from minigrad.viz.foreign import QuickDraws

    return QuickDraws()


def _evaluate(module: Any, where: str, text: str) -> Any:
    """What `text` names in `module`: a name, or a call whose arguments are literals and calls again. A class that is
    only named is called without arguments. Raises Refusal."""
    try:
        tree = ast.parse(text, mode="eval").body
        found = _value(tree, module, where)
    except (SyntaxError, ValueError):
        raise Refusal(f"{text!r} cannot be read: write a name, or a call, as in Model(64, n=4)") from None
    return _call(found, ast.unparse(tree), (), {}) if isinstance(found, type) else found


def _value(tree: ast.expr, module: Any, where: str) -> Any:
    if isinstance(tree, ast.Call):
        function = _value(tree.func, module, where)
        positional = [_value(argument, module, where) for argument in tree.args]
        keywords = {str(word.arg): _value(word.value, module, where) for word in tree.keywords}
        return _call(function, ast.unparse(tree.func), positional, keywords)
    if isinstance(tree, ast.Name | ast.Attribute):
        holder, name = (
            (module, tree.id) if isinstance(tree, ast.Name) else (_value(tree.value, module, where), tree.attr)
        )
        try:
            return getattr(holder, name)
        except AttributeError:
            raise Refusal(
                f"{where} has no {ast.unparse(tree)!r}: name a function or a module that it defines"
            ) from None
    return ast.literal_eval(tree)


def _call(function: Any, name: str, positional: Sequence[Any], keywords: dict[str, Any]) -> Any:
    try:
        return function(*positional, **keywords)
    except Exception as error:
        hint = f": give its arguments, as in {name}(64, n=4)" if isinstance(error, TypeError) else ""
        raise Refusal(f"{name} could not be made ({type(error).__name__}: {error}){hint}") from error


def _load(where: str) -> Any:
    path = Path(where)
    try:
        if where.endswith(".py"):
            if not path.is_file():
                raise Refusal(f"there is no file {where}")
            sys.path.insert(0, str(path.resolve().parent))
            found = importlib.util.spec_from_file_location(path.stem, path)
            assert found is not None
            assert found.loader is not None
            module = importlib.util.module_from_spec(found)
            sys.modules.setdefault(path.stem, module)
            found.loader.exec_module(module)
            return module
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(where)
    except Refusal:
        raise
    except Exception as error:
        raise Refusal(f"{where} could not be imported: {type(error).__name__}: {error}") from error


def _array(text: str, position: int) -> np.ndarray:
    """ "2x3" float32, "i64:4" another dtype, "i64:" or "f32:" a scalar: small random numbers, integers 0 and 1."""
    written, _, shape = text.rpartition(":")
    name = LONG.get(written or "f32", written)
    try:
        dtype = np.dtype(getattr(dtypes, name)) if hasattr(dtypes, name) else np.dtype(name)
        sizes = tuple(int(n) for n in shape.split("x")) if shape else ()
        if min(sizes, default=0) < 0:
            raise ValueError
    except (TypeError, ValueError):
        raise Refusal(f"--input {text!r} is no shape: write 2x3, or i64:2x3 for another dtype") from None
    if math.prod(sizes) > _MOST:
        raise Refusal(f"--input {text!r} has {math.prod(sizes):,} numbers, and may have {_MOST:,}: draw a smaller one")
    rng = np.random.default_rng(position)
    if dtype.kind in "iub":
        return rng.integers(0, 2, sizes).astype(dtype)
    return np.asarray(rng.standard_normal(sizes)).astype(dtype)
