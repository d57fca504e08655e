"""Pieces of a linear map's result that nobody reads: of a map that gives shift, scale and gate, or keys and values, at
once, one piece is left out where its code reads another one twice.

A piece is seen by the gradients of the map's weights: those of its rows are zero, and those of another piece are not.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import Counter
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.gradient_probes import go_back
from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.adapters.whole.running import RunningModel
from conformance.adapters.whole.watching import Watching

_PIECES = (2, 3, 4, 6, 9)
"""Into so many equal pieces results are cut: gates, keys and values, modulations."""
_FEWEST_ROWS = 4


class UnreadProbes(PlaceProbes):
    """What is computed and not read, of a running model."""

    def unread_pieces(self) -> tuple[int, list[str]]:
        """How many linear maps have a gradient, and the paths of those of whose result one of some equal pieces reaches
        nothing that forward gives, while the others do. Left out are maps of which a sibling in a list is read as a
        whole: the last block of some stacks needs less."""
        gradients = _gradients(self)
        siblings = {path: (_without_numbers(path), gradient.shape) for path, gradient in gradients.items()}
        found = [path for path, gradient in gradients.items() if _has_unread_piece(gradient)]
        alike, unread = Counter(siblings.values()), Counter(siblings[path] for path in found)
        return len(gradients), [path for path in found if unread[siblings[path]] == alike[siblings[path]]]

    def attends_to_one(self) -> bool:
        """Whether a softmax runs over one number: what it is made of changes nothing."""
        seen = _SoftmaxOfOne()
        with self.mode(False), torch.no_grad(), seen:
            self.run(self.example(batch=4))
        return seen.seen

    def read_twice_at(self, path: str) -> str:
        """file:line that reads another piece of the map's result a second time; else where the result is taken, else
        where the map is made."""
        holder, _, name = path.rpartition(".")
        while holder and type(self.module.get_submodule(holder)).__module__.startswith("torch."):
            holder, _, name = holder.rpartition(".")
        owner = type(self.module.get_submodule(holder))
        with suppress(OSError, TypeError, SyntaxError):
            lines, start = inspect.getsourcelines(owner)
            found = _read_twice(ast.parse(textwrap.dedent("".join(lines))), name)
            if found:
                return f"{inspect.getsourcefile(owner)}:{start + found - 1}"
        return self.made_at(path)


class _SoftmaxOfOne(Watching):
    """Whether a softmax over one number, or attention to one key, was computed."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        if "attention" in name and len(args) > 1 and isinstance(args[1], Tensor):
            self.seen = self.seen or args[1].shape[-2] == 1
        elif name.removeprefix("aten::") in ("_softmax", "softmax.int"):
            self.seen = self.seen or args[0].shape[args[1]] == 1
        return func(*args, **(kwargs or {}))


def _gradients(subject: RunningModel) -> dict[str, Tensor]:
    """The gradients of the weights of linear maps, by path, from everything that forward gives."""
    module, inputs = subject.module, subject.example(batch=4)
    module.zero_grad(set_to_none=True)
    with subject.mode(False), torch.enable_grad():
        generator = torch.Generator().manual_seed(11)
        sums = [
            (one * torch.randn(one.shape, generator=generator, dtype=torch.float64).to(one.dtype)).sum()
            for one in tensors_in(subject.run(inputs)["result"])
            if one.is_floating_point() and one.requires_grad
        ]
        if sums:  # what has no parameters gives nothing to go backward from
            go_back(torch.stack([one.double() for one in sums]).sum())
    maps = [(path, part) for path, part in module.named_modules() if isinstance(part, nn.Linear)]
    own = {path: part.weight for path, part in maps if part.weight.is_leaf and part.weight.grad is not None}
    found = {path: weight.grad.detach().clone() for path, weight in own.items() if weight.grad is not None}
    module.zero_grad(set_to_none=True)
    return found


def _has_unread_piece(gradient: Tensor) -> bool:
    rows = gradient.abs().amax(1)
    largest = float(rows.max())
    for pieces in _PIECES:
        if len(rows) % pieces or len(rows) // pieces < _FEWEST_ROWS or not largest:
            continue
        sizes = rows.reshape(pieces, -1).amax(1)
        if (sizes == 0).sum() == 1:
            return True
    return False


def _without_numbers(path: str) -> str:
    return ".".join(name for name in path.split(".") if not name.isdigit())


def _read_twice(tree: ast.AST, name: str) -> int:
    """The line of the class's source that reads a piece of the result of self.name more often than the other pieces,
    where one of them is not read at all; else that which takes the result; 0 for none."""
    first = 0
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign) or f"self.{name}(" not in ast.unparse(node.value):
                continue
            first = first or node.lineno
            if not isinstance(node.targets[0], ast.Tuple):
                continue
            pieces = [one.id for one in node.targets[0].elts if isinstance(one, ast.Name)]
            reads = [n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
            read = {piece: [n.lineno for n in reads if n.id == piece and n.lineno > node.lineno] for piece in pieces}
            twice = [lines for lines in read.values() if len(lines) > 1]
            if any(not lines for lines in read.values()):
                return max(max(lines) for lines in twice) if twice else node.lineno
    return first
