"""One observed run of a torch module: which module and which operation got what and gave what, from which line.

    record = record(model, lambda: model(ids))

A `Value` is one tensor as it was at one time: when an operation writes into memory, every tensor that shows this memory
is a new value from then on. So the record is a graph without circles, and any part of it can be run again with other
numbers (`Record.replay`). Operations have torch's names ("bmm"); what torch fuses (attention, a product with a sum) is
run in its parts, so that all ways to write one formula look alike.
"""

from __future__ import annotations

import dataclasses
import inspect
import linecache
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from conformance.adapters.whole.fused import PARTS
from conformance.adapters.whole.watching import is_of_an_engine

_LIKE = ("empty", "zeros", "ones", "full", "rand", "randn", "randint")
SHAPES_ONLY = {f"{name}_like" for name in _LIKE} | {f"new_{name}" for name in _LIKE} | {"new_empty_strided"}
"""Operations that read the shape of a tensor and none of its numbers."""
_HELPERS = {"einops", "opt_einsum", "contextlib", "functools", "minigrad"}  # packages whose lines are nobody's model
_OURS = str(Path(__file__).resolve().parents[2])
_SPECIMENS = str(Path(_OURS) / "mutants")  # models that stand for a user's
_TORCHS = str(Path(torch.__file__).resolve().parent)
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Place:
    """A line of the user's program."""

    file: str
    line: int

    @property
    def text(self) -> str:
        """The line itself, without the spaces around it; empty where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(eq=False, slots=True)
class Value:
    """One tensor as it was at one time.

    data: its numbers, without gradient. op: the number of the operation that made it, -1 for what the run was given.
    kind: "parameter", "buffer", "given" (any other tensor from outside) or "made". name: of a parameter or buffer.
    """

    number: int
    data: Tensor
    op: int = -1
    kind: str = "made"
    name: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)


@dataclass(eq=False, slots=True)
class Op:
    """One operation. args, kwargs: as given, with a `Value` for each tensor. inputs: the values whose numbers it reads.
    place: its line; caller: where that is in a function that forward calls, the line of forward, else None. call: the
    number of the innermost module call around it, -1 outside of all."""

    number: int
    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...] = ()
    place: Place | None = None
    caller: Place | None = None
    call: int = -1

    def again(self, given: Mapping[Value, Tensor]) -> tuple[Tensor, ...]:
        """The results for other numbers: `given` has the inputs that changed."""

        def tensor(value: Value) -> Tensor:
            found = given.get(value, value.data)
            return found.clone() if self.name.endswith("_") else found  # it may be written to

        args, kwargs = tree_map_only(Value, tensor, (self.args, self.kwargs))
        results = tuple(leaf for leaf in tree_leaves(self.function(*args, **kwargs)) if isinstance(leaf, Tensor))
        return results or tuple(leaf for leaf in args if isinstance(leaf, Tensor))[: len(self.outputs)]


@dataclass(eq=False, slots=True)
class Call:
    """One call of a module. args, kwargs, result: lists and dicts with a `Value` for each tensor; a dataclass is the
    dict of its fields. ops: the numbers of the operations inside. parent: the number of the call around, or -1.
    place: where the module's forward begins. caller: the line that called."""

    number: int
    path: str
    module: nn.Module
    parent: int
    training: bool
    args: Any
    kwargs: Any
    place: Place | None
    caller: Place | None
    result: Any = None
    ops: range = range(0)

    @property
    def given(self) -> list[Value]:
        return values_in((self.args, self.kwargs))

    @property
    def gave(self) -> list[Value]:
        return values_in(self.result)


@dataclass(eq=False)
class Record:
    """What happened, in order. result: what `run` returned, with values for tensors. stored: what was computed and left
    on modules as an attribute."""

    module: nn.Module
    ops: list[Op] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    result: Any = None
    stored: list[Value] = field(default_factory=list)
    _readers: dict[int, list[int]] = field(default_factory=dict)
    _computed: set[int] = field(default_factory=set)

    def producer(self, value: Value) -> Op | None:
        """The operation that made `value`; None for what the run was given."""
        return self.ops[value.op] if value.op >= 0 else None

    def consumers(self, value: Value) -> list[Op]:
        """The operations that read `value`, in order."""
        if not self._readers:
            for op in self.ops:
                for number in {given.number for given in op.inputs}:
                    self._readers.setdefault(number, []).append(op.number)
        return [self.ops[number] for number in self._readers.get(value.number, ())]

    def reaches(self, first: Value, last: Value) -> bool:
        """Was `last` computed from `first` (or is it the same)?"""
        return first in self.before([last], first.number)

    def before(self, values: Iterable[Value], oldest: int = 0, beyond: Iterable[Value] = ()) -> set[Value]:
        """The values and all that they were computed from, down to the number `oldest`, and not behind `beyond`."""
        found, end = set(values), set(beyond)
        stack = list(found)
        while stack:
            here = stack.pop()
            op = self.producer(here) if here not in end else None
            for value in op.inputs if op is not None else ():
                if value.number >= oldest and value not in found:
                    found.add(value)
                    stack.append(value)
        return found

    def after(self, values: Iterable[Value]) -> set[Value]:
        """The values and all that was computed from them."""
        found = set(values)
        stack = list(found)
        while stack:
            for op in self.consumers(stack.pop()):
                for value in op.outputs:
                    if value not in found:
                        found.add(value)
                        stack.append(value)
        return found

    def computed(self, value: Value) -> bool:
        """Does `value` depend on what the model was called with? Else it comes from parameters and constants only."""
        if not self._computed:
            outer = [value for call in self.calls if call.parent < 0 for value in call.given]
            roots = [value for value in outer if value.kind in ("given", "made")]
            roots = roots or [value for value in self.values if value.kind == "given"]
            self._computed = {value.number for value in self.after(roots)}
        return value.number in self._computed

    @property
    def results(self) -> set[Value]:
        """What `run` and the outermost calls gave."""
        return set(values_in([self.result, *(call.result for call in self.calls if call.parent < 0)]))

    @property
    def outcomes(self) -> set[Value]:
        """The results, and what modules keep."""
        return self.results | set(self.stored)

    def call_of(self, op: Op) -> Call | None:
        """The innermost module call around an operation."""
        return self.calls[op.call] if op.call >= 0 else None

    def around(self, call: Call | None) -> Iterator[Call]:
        """A call and the calls around it, the innermost first."""
        while call is not None:
            yield call
            call = self.calls[call.parent] if call.parent >= 0 else None

    def replay(self, targets: Sequence[Value], given: Mapping[Value, Tensor]) -> list[Tensor]:
        """What the targets would be if the values `given` had these numbers. Only what lies between runs again."""
        needed = self.before(targets, min((value.number for value in given), default=0), given)
        now = dict(given)
        ops = sorted({value.op for value in needed if value.op >= 0 and value not in given})
        with torch.no_grad():
            for op in (self.ops[number] for number in ops):
                if any(value in now for value in op.inputs):
                    for value, tensor in zip(op.outputs, op.again(now), strict=False):
                        now.setdefault(value, tensor)
        return [now.get(target, target.data) for target in targets]


def values_in(tree: Any) -> list[Value]:
    """The values in nested tuples, lists and dicts, in order."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Value)]


def record(module: nn.Module, run: Callable[[], Any]) -> Record:
    """Call `run()` once and observe all that torch does in it, above all inside `module`.

    Raises what `run` raises; whatever happens, hooks and switches are as they were before.
    """
    recorder = _Recorder(module)
    with _watched(module, recorder), _plain_paths(), recorder:
        result = run()
    recorder.record.result = recorder.tree(result)
    recorder.record.stored = recorder.left()
    return recorder.record


@contextmanager
def _watched(module: nn.Module, recorder: _Recorder) -> Iterator[None]:
    handles = []
    try:
        for inner in module.modules():
            if not isinstance(inner, torch.jit.ScriptModule):
                handles.append(inner.register_forward_pre_hook(recorder.enter, prepend=True, with_kwargs=True))
                handles.append(inner.register_forward_hook(recorder.leave, with_kwargs=True, always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _plain_paths() -> Iterator[None]:
    """torch's fast paths off: they run a whole layer as one operation."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class _Recorder(TorchDispatchMode):
    """Writes the record. A tensor is known by the memory that it shows: torch may hand it back as another object."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.record = Record(module)
        self.paths = {id(inner): path for path, inner in module.named_modules()}
        dense = [(name, held) for name, held in module.named_buffers() if held.layout is torch.strided]
        self.names = {tensor.data_ptr(): ("buffer", name) for name, tensor in dense}
        self.names |= {tensor.data_ptr(): ("parameter", name) for name, tensor in module.named_parameters()}
        self.current: dict[int, dict[Key, Value]] = {}  # memory -> what it shows now
        self.over: dict[int, list[Value]] = {}  # memory -> the values whose numbers lie there
        self.kept: list[Any] = []  # memory must not be used again while its address is a key
        self.stack: list[int] = []
        self.forwards: list[CodeType | None] = []  # of the modules in `stack`
        self.places: dict[tuple[CodeType, int], Place] = {}
        self.idle = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler, which takes a second, to keep it off this class

    # --- modules

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        record, code = self.record, getattr(inspect.unwrap(type(module).forward), "__code__", None)
        place = Place(code.co_filename, code.co_firstlineno) if code is not None else None
        parent = self.stack[-1] if self.stack else -1
        path = self.paths.get(id(module), type(module).__name__)
        given = self.tree(args), self.tree(kwargs)
        call = Call(len(record.calls), path, module, parent, module.training, *given, place, self.place())
        call.ops = range(len(record.ops), len(record.ops))
        record.calls.append(call)
        self.stack.append(call.number)
        self.forwards.append(code)

    def leave(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        while self.stack:
            call = self.record.calls[self.stack.pop()]
            self.forwards.pop()
            call.ops = range(call.ops.start, len(self.record.ops))
            if call.module is module:
                call.result = self.tree(result)
                return

    def tree(self, thing: Any) -> Any:
        """A copy of nested arguments or results with values for tensors."""
        if isinstance(thing, Tensor):
            return self.value(thing)
        if isinstance(thing, Mapping):
            return {key: self.tree(item) for key, item in thing.items()}
        if isinstance(thing, tuple | list):
            return [self.tree(item) for item in thing]
        if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
            return {field.name: self.tree(getattr(thing, field.name)) for field in dataclasses.fields(thing)}
        return thing

    def left(self) -> list[Value]:
        """What operations made and modules hold as plain attributes."""
        held = [vars(inner) for inner in self.record.module.modules()]
        plain = [value for names in held for name, value in names.items() if name not in ("_parameters", "_modules")]
        known = [self.current.get(self.key(leaf)[0], {}).get(self.key(leaf)) for leaf in _tensors(plain)]
        return [value for value in known if value is not None and value.op >= 0]

    # --- values

    @staticmethod
    def key(tensor: Tensor) -> Key:
        if tensor.layout != torch.strided:
            return (id(tensor),)
        memory = tensor.untyped_storage()._cdata
        return (memory, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def value(self, tensor: Tensor) -> Value:
        """The value that a tensor has now; a new one where it comes from outside."""
        key = self.key(tensor)
        found = self.current.get(key[0], {}).get(key)
        if found is not None:
            return found
        kind, name = self.names.get(tensor.data_ptr(), ("given", "")) if tensor.numel() else ("given", "")
        return self.bind(tensor, -1, kind, name)

    def bind(self, tensor: Tensor, op: int, kind: str = "made", name: str = "") -> Value:
        idle, self.idle = self.idle, True
        value = Value(len(self.record.values), tensor.detach(), op, kind, name)
        self.idle = idle
        self.record.values.append(value)
        key = self.key(tensor)
        self.current.setdefault(key[0], {})[key] = value
        self.over.setdefault(key[0], []).append(value)
        self.kept.append(tensor.untyped_storage() if tensor.layout == torch.strided else tensor)
        return value

    # --- operations

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.idle:
            return function(*args, **kwargs)
        if torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), "CompositeImplicitAutograd"):
            with self:  # inference mode hands over "linear" whole
                return function.decompose(*args, **kwargs)
        name = function.overloadpacket.__name__
        if name in PARTS:
            with self:
                return PARTS[name](*args, **kwargs)
        if name in ("detach", "alias"):  # the same numbers in the same memory
            return function(*args, **kwargs)
        known_args, known_kwargs = tree_map_only(Tensor, self.value, (args, kwargs))
        inputs = () if name in SHAPES_ONLY else tuple(values_in((known_args, known_kwargs)))
        changed = written_by(function, args, kwargs)
        for tensor in changed:
            self.keep_numbers(tensor)
        result = function(*args, **kwargs)
        place, call = self.place(), self.stack[-1] if self.stack else -1
        op = Op(len(self.record.ops), name, function, known_args, known_kwargs, inputs, (), place, self.caller(), call)
        self.record.ops.append(op)
        results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)] or changed
        op.outputs = tuple(self.bind(leaf, op.number) for leaf in results)
        for tensor in changed:
            self.written(tensor, op)
        return result

    def keep_numbers(self, tensor: Tensor) -> None:
        """`tensor` will be written to: values whose numbers lie in its memory get their own copy."""
        self.idle = True
        for value in self.over.pop(self.key(tensor)[0], ()):
            value.data = value.data.clone()
        self.idle = False

    def written(self, tensor: Tensor, cause: Op) -> None:
        """What shows some of the memory that was written has its numbers partly from the tensor that was written."""
        mine, new = self.key(tensor), self.value(tensor)
        for key, old in [(key, old) for key, old in self.current[mine[0]].items() if key != mine]:
            where = _shared(mine, key)
            if where is None:
                continue
            self.idle = True
            memory = tensor.as_strided(key[2], key[3], key[1]) if key[4] == tensor.dtype else old.data
            self.idle = False
            op = Op(len(self.record.ops), "written", _Overlay(*where), (old, new), {}, (old, new))
            op.place, op.caller, op.call = cause.place, cause.caller, cause.call
            self.record.ops.append(op)
            op.outputs = (self.bind(memory, op.number),)

    def caller(self) -> Place | None:
        """The line of the forward around, where another function of the user's runs inside it."""
        frame, inner = sys._getframe(2), False
        code = self.forwards[-1] if self.forwards else None
        while frame is not None and code is not None:
            if frame.f_code is code:
                return Place(code.co_filename, frame.f_lineno) if inner else None
            file = frame.f_code.co_filename
            inner = inner or not (file.startswith((_OURS, _TORCHS, "<frozen")) or is_of_an_engine(frame))
            frame = frame.f_back  # type: ignore[assignment]
        return None

    def place(self) -> Place | None:
        """The innermost line outside torch and outside this package."""
        frame = sys._getframe(2)
        while frame is not None:
            spot = (frame.f_code, frame.f_lineno)
            if spot in self.places:
                return self.places[spot]
            file, package = frame.f_code.co_filename, frame.f_globals.get("__name__", "").partition(".")[0]
            ours = file.startswith(_OURS) and not file.startswith(_SPECIMENS)
            if not ours and not file.startswith((_TORCHS, "<frozen")) and package not in _HELPERS:
                return self.places.setdefault(spot, Place(*(file, frame.f_lineno)))
            frame = frame.f_back  # type: ignore[assignment]
        return None


@dataclass(frozen=True)
class _Overlay:
    """The old numbers of one tensor with those that another, written since, shares with it."""

    here: Tensor
    there: Tensor

    def __call__(self, old: Tensor, new: Tensor) -> Tensor:
        result = old.reshape(-1).clone()
        result[self.here] = new.reshape(-1)[self.there].to(result.dtype)
        return result.reshape(old.shape)


def _shared(written: Key, other: Key) -> tuple[Tensor, Tensor] | None:
    """Which elements of `other` (flat) are which of `written`; None where they share none."""

    def cells(key: Key) -> Tensor:
        cell = torch.tensor(key[1])
        for axis, (size, stride) in enumerate(zip(key[2], key[3], strict=True)):
            cell = cell + (torch.arange(size) * stride).reshape([-1] + [1] * (len(key[2]) - axis - 1))
        return cell.reshape(-1)

    if len(written) == 1 or len(other) == 1 or written[4] != other[4]:
        return None
    (mine, order), theirs = cells(written).sort(), cells(other)
    if not len(mine) or not len(theirs):
        return None
    at = torch.searchsorted(mine, theirs).clamp(max=len(mine) - 1)
    here = (mine[at] == theirs).nonzero()[:, 0]
    return (here, order[at[here]]) if len(here) else None


def _tensors(thing: Any) -> Iterator[Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, Mapping):
        yield from _tensors(list(thing.values()))
    elif isinstance(thing, tuple | list):
        for item in thing:
            yield from _tensors(item)


def written_by(function: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors that an operation writes to, by its schema."""
    found = []
    for position, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found += [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
    return found
