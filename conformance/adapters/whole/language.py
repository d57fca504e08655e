"""What a running model says and shows about tokens: what is padding, which labels are ignored, what is tied, whether it
learns, and which lines of the user's files do it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from textwrap import dedent
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.pads import compared_with
from conformance.protocol import Array, NotProvided

if TYPE_CHECKING:
    from conformance.adapters.whole.model import WholeModel

_PAD_MASK = re.compile(
    r"(!=|==|\.ne\(|\.eq\()[^\n]{0,40}pad|pad[^\n]{0,40}(!=|==|\.ne\(|\.eq\()|pad\w*_mask|mask_?pad|get_pad", re.I
)
_TIES = re.compile(r"(\w[\w.\[\]]*)\.(weight|embedding)\s*=\s*(\w[\w.\[\]]*)\.(weight)\b")
_SHIFTS = re.compile(
    r"(labels?|targets?)\W{1,3}(= |are |is )?(the )?(input_?ids|tokens? themselves|ids themselves|inputs themselves)"
    r"|shift(ed|s)? (here|inside|internally|in the model)",
    re.I,
)
_SHIFTED = re.compile(
    r"(already|pre)[- ]?shifted|shifted by the (loader|caller|data)|aligned (from|by)"
    r"|(labels|targets)\W{1,3}\w* ?next tokens?|next tokens? (of|for|at) (every|each) position",
    re.I,
)
RATES = (0.3, 0.03, 0.003)


@cache
def source_of(cls: type) -> tuple[str, str, int] | None:
    """Source, file and first line of a class of the user's; None for torch's and for one without a file. Kept, since
    `inspect` parses the whole file each time."""
    if cls.__module__.split(".")[0] in ("torch", "builtins"):
        return None
    with suppress(OSError, TypeError):
        lines, start = inspect.getsourcelines(cls)
        return "".join(lines), str(inspect.getsourcefile(cls)), start
    return None


@cache
def read_beside_forward(cls: type, root: str = "forward") -> frozenset[str]:
    """The attributes of `self` that methods read which neither forward nor __init__ calls: a temperature that the loss
    applies, a head that only `generate` asks. root: the method that was run in the place of forward."""
    return frozenset(attribute for method in _beside_forward(cls, root) for attribute in _own_attributes(method))


def keys_read_beside_forward(cls: type, holder: str, root: str = "forward") -> frozenset[str] | None:
    """The keys by which the same methods read a dict of parameters, ``self.params["scale"]``; None where they read it
    by keys that are computed, or hand it on."""
    keys: set[str] = set()
    for method in _beside_forward(cls, root):
        by_key = [
            node
            for node in ast.walk(method)
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and _is_own(node.value, holder)
        ]
        if sum(_is_own(node, holder) for node in ast.walk(method)) != len(by_key):
            return None
        keys |= {str(node.slice.value) for node in by_key if isinstance(node.slice, ast.Constant)}
    return frozenset(keys)


def _is_own(node: ast.AST, name: str) -> bool:
    """Whether it is the attribute of this name of `self`."""
    return isinstance(node, ast.Attribute) and node.attr == name and ast.unparse(node.value) == "self"


def _beside_forward(cls: type, root: str) -> list[ast.FunctionDef]:
    """The methods that neither forward nor __init__ calls."""
    methods = _methods(cls)
    run, stack = set(), [root, "__init__", "__call__"]
    while stack:
        name = stack.pop()
        if name in methods and name not in run:
            run.add(name)
            stack += _own_attributes(methods[name])
    return [method for name, method in methods.items() if name not in run]


@cache
def read_for_some_arguments(cls: type) -> frozenset[str]:
    """The attributes of `self` that methods read only in a branch that a parameter decides: a table of token types
    where there are types, a tower for queries where another one returns before."""
    always, sometimes = set(), set()
    for method in _methods(cls).values():
        branches = list(_branches(method, _parameters(method)))
        inside = {id(n) for branch in branches for n in ast.walk(branch)}
        if method.name != "__init__":
            sometimes |= {name for branch in branches for name in _own_attributes(branch)}
            always |= {n.attr for n in _of_self(method) if id(n) not in inside}
    return frozenset(sometimes - always)


@cache
def chosen_by_arguments(cls: type) -> frozenset[str]:
    """The attributes of `self` of which methods take the part that a parameter names: ``self.towers[side]``."""
    return frozenset(
        node.value.attr
        for method in _methods(cls).values()
        for node in ast.walk(method)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and _parameters(method) & {n.id for n in ast.walk(node.slice) if isinstance(n, ast.Name)}
    )


def _parameters(method: ast.FunctionDef) -> set[str]:
    return {argument.arg for argument in [*method.args.args, *method.args.kwonlyargs]} - {"self"}


def _branches(method: ast.FunctionDef, names: set[str]) -> Iterator[ast.AST]:
    """What runs only for some values of these names: the branches of a condition, and what follows one that returns."""
    for node in ast.walk(method):
        if isinstance(node, (ast.If, ast.IfExp)) and _speaks_of(node.test, names):
            yield from [*node.body, *node.orelse] if isinstance(node, ast.If) else [node.body, node.orelse]
    statements = list(method.body)
    while statements:
        first = statements.pop(0)
        if isinstance(first, ast.If) and _speaks_of(first.test, names) and isinstance(first.body[-1], ast.Return):
            yield from statements
            return


def _speaks_of(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node))


def _methods(cls: type) -> dict[str, ast.FunctionDef]:
    """The methods of a class of the user's and of those that it inherits from, by name; none where there is no
    source."""
    methods: dict[str, ast.FunctionDef] = {}
    for base in reversed(cls.__mro__):
        found = source_of(base)
        body = getattr(ast.parse(dedent(found[0])).body[0], "body", []) if found else []
        methods |= {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    return methods


def run_method(module: nn.Module) -> str:
    """The name of the method that runs when the module is called."""
    return str(getattr(vars(module).get("forward"), "__name__", "forward"))


def modes_kept(cls: type) -> list[tuple[str, int]]:
    """The methods that remember the mode and put it back, and never change it: name and line in the class's source."""
    found = []
    methods = _methods(cls)
    switching = [name for name, method in methods.items() if re.search(r"\.(eval|train)\(", ast.unparse(method))]
    for method in methods.values():
        text = ast.unparse(method)
        if any(re.search(rf"self\.{name}\(", text) for name in switching):
            continue  # another method switches for it
        remembers = re.search(r"(\w+) = self\.training\b", text)
        if remembers and re.search(rf"self\.train\({remembers[1]}\)", text):
            changes = re.search(r"\.eval\(\)|\.train\((mode=)?(False|True)?\)|\.train\(not ", text)
            if not changes:
                at = next(n.lineno for n in ast.walk(method) if isinstance(n, ast.Attribute) and n.attr == "training")
                found.append((method.name, at))
    return found


def _of_self(node: ast.AST) -> Iterator[ast.Attribute]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "self":
            yield inner


def _own_attributes(node: ast.AST) -> set[str]:
    """The names that are read of `self`."""
    return {found.attr for found in _of_self(node)}


class LanguageProbes:
    """The experiments, as methods of `WholeModel`."""

    def sources(self: WholeModel) -> Iterator[tuple[type, str, str, int]]:  # type: ignore[misc]
        """Class, source, file and first line of every class of the user's that the model is made of."""
        for cls in dict.fromkeys(base for part in self.module.modules() for base in type(part).__mro__[:3]):
            if found := source_of(cls):
                yield cls, *found

    def modes_kept(self: WholeModel) -> list[tuple[str, str]]:  # type: ignore[misc]
        """The methods that put back a mode that they never changed, with their lines."""
        return [
            (name, f"{file}:{start + line - 1}")
            for cls, _, file, start in self.sources()
            for name, line in modes_kept(cls)
        ]

    def line_of(self: WholeModel, pattern: str) -> str:  # type: ignore[misc]
        """file:line of the first line of the user's classes that the pattern is found in."""
        for _, source, file, start in self.sources():
            for number, line in enumerate(source.splitlines()):
                if re.search(pattern, line):
                    return f"{file}:{start + number}"
        return ""

    def attention_place(self: WholeModel) -> str:  # type: ignore[misc]
        """file:line where attention takes its softmax: in the recorded run, else the first such line in the source."""
        with suppress(Exception):
            if ran := self.inside().attention:
                return ran
        return self.line_of(r"softmax|scaled_dot_product_attention|MultiheadAttention\(|nn\.Transformer\w*\(")

    def scales_by_length(self: WholeModel) -> str:  # type: ignore[misc]
        """file:line where the code says that scores or rotations depend on the length of the input; "" when nowhere."""
        return self.line_of(r"(?i)\blog_?n\b|\blog\([^()]*(length|seq_len|len\()|ntk|long_?rope|yarn")

    def spreads_places(self: WholeModel) -> str:  # type: ignore[misc]
        """file:line where the code spreads places evenly over the whole length, padding and all; "" when nowhere."""
        return self.line_of(r"\blinspace\(.*\b(n|t|l|s|\w*len\w*|length|\w*shape\[\S+\]|\w+\.size\(\S+\))\s*[,)]")

    def normalises_over_batches(self: WholeModel) -> bool:  # type: ignore[misc]
        return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in self.module.modules())

    def takes_statistics_of_its_batch(self: WholeModel) -> bool:  # type: ignore[misc]
        """Whether it normalises over the batch in evaluation, too: no statistics were kept."""
        parts = (part for part in self.module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm))
        return any(part.running_mean is None for part in parts)

    def ignored_label(self: WholeModel) -> int | None:  # type: ignore[misc]
        """The label that its loss ignores: what its code says, -100 where it says nothing and calls torch's loss."""
        for _, source, _, _ in self.sources():
            found = re.search(r"ignore_index\s*=\s*(-?\d+)", source)
            if found:
                return int(found.group(1))
            if re.search(r"ignore_index\s*=\s*[\w.]*pad", source) and self.pad_id is not None:
                return self.pad_id
        if self.line_of(r"cross_entropy|CrossEntropyLoss|nll_loss|NLLLoss"):
            return -100
        with suppress(NotProvided):  # its loss may stand in another file
            return -100 if any(c.of_classes for run in self.loss_runs() if run.own for c in run.criteria) else None
        return None

    def padding_of(self: WholeModel, name: str) -> str | None:  # type: ignore[misc]
        """How an input's padding is told: by a "mask" of the caller, by "lengths", by the "token" itself, or not at all
        (None)."""
        masks = [mask for mask in self.calling.masks if mask.keys in (name, "")]
        if any(mask.padding and not mask.own for mask in masks):
            return "mask"
        if name in self.calling.lengths.values():
            return "lengths" if not self.calling.grows_together else None
        if self.pad_id is None:
            return None
        if any(mask.own for mask in masks):
            return "token"
        says = any(_PAD_MASK.search(source) for _, source, _, _ in self.sources())
        return "token" if says or compared_with(self) == self.pad_id else None

    def learns(self: WholeModel, length: int) -> tuple[float, float]:  # type: ignore[misc]
        """The cross-entropy of the next token on one batch, before and after 5 steps at the first of three rates that
        lowers it, else at the best."""
        inputs = self.example(4, length, seed=30)
        best, before = float("inf"), float("nan")
        for rate in RATES:
            other = self.twin()
            parameters = [p for p in other.module.parameters() if p.requires_grad]
            given = other.tensors(inputs)
            for step in range(6):
                with other.mode(False), torch.enable_grad():
                    logits = other.run(inputs)["out"]
                    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).double(), given["ids"][:, 1:].flatten())
                if step == 0:
                    before = float(loss.detach())
                if not loss.requires_grad:
                    return float(loss), float(loss)
                gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
                norm = sum(float(g.square().sum()) for g in gradients if g is not None) ** 0.5
                with torch.no_grad():
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        if gradient is not None:
                            parameter.sub_(gradient, alpha=rate / max(norm, 1.0))
            best = min(best, float(loss.detach()))
            if best < before:
                break
        return before, best

    def says_shift(self: WholeModel) -> int | None:  # type: ignore[misc]
        """By how many places the model itself shifts labels, as its author says: 1 where they are the inputs, 0 where
        the caller has shifted them; None where the text says neither, or both."""
        text = " ".join(" ".join(source.split()) for cls, source, _, _ in self.sources() if cls is type(self.module))
        inside, before = bool(_SHIFTS.search(text)), bool(_SHIFTED.search(text))
        return None if inside == before else int(inside)

    def taught(self: WholeModel, inputs: dict[str, Array]) -> Array:  # type: ignore[misc]
        """Which token the loss teaches at each position, ``(B, T)``: the one whose logit it raises, or -1.
        Read from the gradient of the loss, so that smoothing, weights and other losses beside it do not matter."""
        with self.mode(False), torch.enable_grad():
            found = self.run(inputs)
            if "loss" not in found or "out" not in found or found["out"].ndim < 3 or not found["out"].requires_grad:
                raise NotProvided("it returns no loss beside its logits")
            (gradient,) = torch.autograd.grad(found["loss"], found["out"], allow_unused=True)
        if gradient is None:
            raise NotProvided("its loss is not computed from the logits that it returns")
        lowest, token = gradient.min(-1)
        silent = lowest > -1e-3 * gradient.abs().max()
        return to_array(torch.where(silent, -1, token))

    def copied_head(self: WholeModel) -> str | None:  # type: ignore[misc]
        """The parameter that starts as a copy of the table of tokens and is another tensor; None without one."""
        fresh = self.made.fresh(3)
        vocab = self.calling.main.vocab
        tables = [t.weight for t in fresh.modules() if isinstance(t, nn.Embedding) and t.num_embeddings == vocab]
        for name, parameter in fresh.named_parameters():
            for table in tables:
                alike = parameter is not table and parameter.shape == table.shape
                if alike and torch.equal(parameter, table) and bool(table.std() > 0):
                    return name
        return None

    def says_tied(self: WholeModel) -> tuple[str, bool] | None:  # type: ignore[misc]
        """Where the code ties two weights, and whether they are one tensor; None where it does not, or under an option
        that is off."""
        for part in self.module.modules():
            cls: type = type(part)
            source, file, start = source_of(cls) or ("", "", 0)
            for number, line in enumerate(source.splitlines()):
                found = _TIES.search(line.split("#")[0])
                if not found or not found.group(1).startswith("self."):
                    continue
                conditional = len(line) - len(line.lstrip()) > 8
                one, other = (_attribute(part, text) for text in (f"{found[1]}.{found[2]}", f"{found[3]}.{found[4]}"))
                if one is None or other is None or one.shape != other.shape:
                    continue
                if conditional and one is not other:
                    continue  # perhaps an option that is off
                return f"{file}:{start + number}", one is other
        return None


def _attribute(part: nn.Module, text: str) -> torch.Tensor | None:
    """What "self.a.b[0].weight" is on the part; None when it is nothing."""
    value: object = part
    for name in re.findall(r"\w+", text.removeprefix("self")):
        value = value[int(name)] if name.isdigit() else getattr(value, name, None)  # type: ignore[index]
        if value is None:
            return None
    return value if isinstance(value, torch.Tensor) else None
