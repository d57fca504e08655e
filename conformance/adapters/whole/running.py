"""A running model behind the protocol: numpy in and out, at its own sizes, with its own parameters made less special.

Parameters are moved a little at random first: zero-initialised projections, gates and norms would hide what a part
does. It computes in float64 where it can, so that a small leak is not taken for rounding. The experiments stand on it:
each family of them is a class that inherits from it, and `WholeModel` is all of them.
"""

from __future__ import annotations

import copy
import gc
import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.inference.construct import evaluating, set_mode
from conformance.adapters.inference.facts import Fact
from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import Calling, Lookups, T, default_dtype, quiet_evaluation
from conformance.adapters.whole.calling_parts import PartCalling
from conformance.adapters.whole.copying import copied, in_dtype, in_main_dtype, main_dtype
from conformance.adapters.whole.layouts import ONE_ANSWER, STRETCHES
from conformance.adapters.whole.making import Made
from conformance.adapters.whole.placing import placed
from conformance.adapters.whole.renewed import Renewed, renewed_in
from conformance.adapters.whole.results import named_tensors
from conformance.adapters.whole.scaling import parameters_in
from conformance.adapters.whole.shapes import CONVOLUTIONS
from conformance.adapters.whole.sizes import MAX_WIDE_PARAMETERS, meaning
from conformance.adapters.whole.watching import Watching
from conformance.protocol import Array, Arrays, NotProvided
from conformance.seeds import seed_everything, seed_torch

LARGE = 50_000_000
"""Above so many parameters a model gets only the claims that need forward passes."""


def moved(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module with every parameter moved at random by about half of its own spread; tied ones stay tied."""
    generator = torch.Generator().manual_seed(seed)
    kernels = {id(part.weight): part.weight[0].numel() for part in module.modules() if isinstance(part, CONVOLUTIONS)}
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.is_floating_point() or not bool(parameter.isfinite().all()):  # a mask is no weight
                continue
            own = float(parameter.float().std()) if parameter.numel() > 1 else 0.0
            inputs = kernels.get(id(parameter), parameter.shape[-1] if parameter.ndim else 1)
            usual = 0.5 * max(inputs, 1) ** -0.5 if parameter.ndim > 1 else 0.2
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if 0 in parameter.stride():  # expanded: its numbers are stored once, and cannot be written apart
                parameter.data = parameter.data.clone()
            parameter.add_((noise * max(0.5 * own, usual)).to(parameter.dtype))
    return module


@dataclass
class RunningModel:
    """One running model. kind: one of KINDS. pad_id: the token that is padding, None when it has none.

    Inputs are "ids", or "src" and "tgt" (int64, ``(B, T)``), or "x" (numbers); beside them "padding" (or "src_padding",
    "tgt_padding"; bool, True = real), "labels", "types". Outputs are "out" (``(B, T, V)`` or ``(B, C)``) and "loss".
    """

    made: Made
    module: nn.Module
    calling: Calling
    kind: str
    facts: list[Fact]
    pad_id: int | None = None
    known: dict[str, Any] = field(default_factory=dict)
    """What was found out once and holds for every copy."""
    pairs: Calling | None = None
    """How its own forward is called where that compares the samples of a batch."""
    draws_alike: bool = False
    """Whether each call in evaluation mode draws the same numbers."""
    device: str = ""
    """Where its answers are computed: what looks into a run, and gradients, need the CPU."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        return {"kind": self.kind, "pad_id": self.pad_id, "layout": self.calling.layout}

    @property
    def torch_dtype(self) -> torch.dtype:
        return main_dtype(self.module)

    @property
    def dtype(self) -> np.dtype:
        narrow = self.torch_dtype is torch.bfloat16  # numpy has none
        return np.dtype("float32" if narrow else str(self.torch_dtype).removeprefix("torch."))

    @property
    def noise(self) -> float:
        """How far two ways to compute the same may lie apart, relative to the largest output: float32's rounding where
        the model casts to it by itself, whatever its parameters are."""
        if "noise" not in self.known:
            narrow = _Narrow()
            with quiet_evaluation(self.module), narrow:
                self.run(self.example())
            self.known["noise"] = 1e-9 if self.torch_dtype is torch.float64 and not narrow.seen else 5e-5
        return float(self.known["noise"])

    @property
    def positions(self) -> bool:
        """Whether the answer has a row for each position."""
        return self.calling.layout not in (*ONE_ANSWER, *STRETCHES, "(...)")

    @property
    def answers_stretches(self) -> bool:
        """Whether the answer has a row for each stretch of the time, and not for each position."""
        return self.calling.layout in STRETCHES

    @property
    def stretch(self) -> int:
        """How many numbers in a row its convolutions read at most as one: fewer may be left over at the end."""
        return math.prod(max(part.stride) for part in self.module.modules() if isinstance(part, nn.Conv1d))

    def operations(self) -> int:
        """How many operations one run takes."""
        with Lookups() as seen, self.mode(False), torch.no_grad():
            self.run(self.example())
        return seen.operations

    @property
    def is_whole(self) -> bool:
        """Whether it is a model, and no component of one."""
        return not isinstance(self.calling, PartCalling)

    def takes_option(self, option: str) -> bool:
        """Whether its own constructor has a parameter of this meaning, and not one around it."""
        return any(meaning(name) == option for name in inspect.signature(type(self.module)).parameters)

    @property
    def batched(self) -> bool:
        """Whether the answer has a row for each row of the batch."""
        return self.calling.layout != "(...)"

    @property
    def last_only(self) -> bool:
        """Whether a language model answers for the last position only."""
        return self.kind == "language_model" and not self.positions

    def has_a_second_sequence(self) -> bool:
        """Whether it is handed other vectors (B, T, d) that are made as long as its input: a memory, perhaps."""
        inputs = self.tensors(self.example())
        beside = [make(inputs) for make in self.calling.fixed.values()]
        steps = inputs[self.calling.main.meaning].shape[:2]
        return any(
            isinstance(one, torch.Tensor) and one.is_floating_point() and one.ndim == 3 and one.shape[:2] == steps
            for one in beside
        )

    # --- data

    def example(self, batch: int = 2, length: int | None = None, seed: int = 0, **lengths: int) -> Arrays:
        """Data ``(batch, length)`` without padding: tokens or numbers at random. lengths: src=..., tgt=..."""
        rng = np.random.default_rng(seed)
        data: Arrays = {}
        for one in self.calling.inputs:
            steps = one.length or lengths.get(one.meaning) or length or T
            if one.shape:
                shape = [steps if size is None else size for size in one.shape]
                data[one.meaning] = rng.standard_normal((batch, *shape))
            else:
                data[one.meaning] = self.tokens(rng, one.meaning, (batch, steps))
        return data

    def tokens(self, rng: np.random.Generator, meaning: str, shape: tuple[int, ...]) -> Array:
        """Random tokens that are real words: none of the padding, none of the first few, which often are special."""
        vocab = self.calling.input(meaning).vocab
        if self.kind in ("language_model", "masked_language_model"):
            vocab = min(vocab, self.calling.outputs)  # a table may have more rows than there are words
        low = min(4, max(vocab - 8, 0))
        ids = rng.integers(low, vocab, shape)
        return (
            np.where(ids == self.pad_id, (ids + 1 - low) % (vocab - low) + low, ids) if self.pad_id is not None else ids
        )

    # --- running

    def tensors(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {"pad_id": self.pad_id or 0}
        for name, value in inputs.items():
            if isinstance(value, np.ndarray):
                tensor = torch.tensor(value)
                value = tensor.to(self.torch_dtype) if tensor.is_floating_point() else tensor
            out[name] = value
        return out

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The answer and the loss as tensors, in whatever mode the module is in."""
        with default_dtype(self.torch_dtype):
            return self.calling(self.module, self.tensors(inputs))

    def _run_alike(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The same as `run`, on the device asked for; layers that each call makes anew have the same weights in all of
        them."""
        self._tried_here(inputs)
        if self.draws_alike:
            seed_everything()
        elif self.renewed:
            seed_torch(0)
        with placed(self.module, self.device):
            return self.run(inputs)

    def _tried_here(self, inputs: Mapping[str, Any]) -> None:
        """Raises on the CPU what a run on the device asked for would raise there: an id that a table does not have ends
        a GPU for the whole process, and the answers to all later claims with it."""
        if self.device not in ("", "cpu"):
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                self.twin().run(inputs)

    @property
    def renewed(self) -> tuple[Renewed, ...]:
        """The layers that each call makes anew."""
        if "renewed" not in self.known:
            with quiet_evaluation(self.module):
                self.known["renewed"] = renewed_in(lambda: self.run(self.example()))
        found: tuple[Renewed, ...] = self.known["renewed"]
        return found

    def __call__(self, **inputs: Any) -> Arrays:
        """ "out", and "loss" where labels are given; in evaluation mode, without gradients."""
        with quiet_evaluation(self.module):
            found = self._run_alike(inputs)
        if "out" not in found:
            raise NotProvided(f"{self.made.name} gave no answer of the layout {self.calling.layout} for these inputs")
        if not found["out"].numel():
            raise NotProvided(f"{self.made.name} gave an empty answer for these inputs")
        return {name: to_array(found[name].double()) for name in ("out", "loss") if name in found}

    def beside(self, inputs: Mapping[str, Any]) -> Arrays:
        """What forward gives beside the answer with a row for each row of the batch, by name (or number); none where
        the batch is not the first axis."""
        found = self._beside(inputs)
        rows = len(next(iter(inputs.values())))
        if any(value.shape[-1] == rows for value in found.values()):  # pairs of rows, or by chance as many columns
            more = {name: np.concatenate([value, value[:1]]) for name, value in inputs.items()}
            of_more = self._beside(more)
            found = {n: v for n, v in found.items() if n in of_more and of_more[n].shape[-1] == v.shape[-1]}
        return found

    def _beside(self, inputs: Mapping[str, Any]) -> Arrays:
        """The same with what is given for each pair of rows."""
        with quiet_evaluation(self.module):
            found = self._run_alike(inputs)
        rows, answer = len(next(iter(inputs.values()))), found.get("out")
        given = [value for value in self.tensors(inputs).values() if isinstance(value, torch.Tensor)]
        if not self.calling.batch_first or isinstance(found["result"], torch.Tensor):
            return {}
        return {
            name: to_array(value.double())
            for name, value in named_tensors(found["result"])
            if value.is_floating_point() and value.ndim > 1 and len(value) == rows
            if value is not answer and not any(value is one for one in given)
        }

    def in_training(self, seed: int = 0, **inputs: Any) -> Arrays:
        """The same in training mode, with torch's generator seeded. Raises NotProvided as `trained` does."""
        with self.trained(inputs), torch.no_grad():
            self._tried_here(inputs)
            with placed(self.module, self.device):
                seed_torch(seed)
                found = self.run(inputs)
        return {name: to_array(found[name].double()) for name in ("out", "loss") if name in found}

    def pieces_in_training(self, seed: int = 0, **inputs: Any) -> list[Array]:
        """Every piece of numbers of its result in training mode, with torch's generator seeded."""
        with self.trained(inputs), torch.no_grad(), placed(self.module, self.device):
            seed_torch(seed)
            found = tensors_in(self.run(inputs)["result"])
        return [to_array(one.double()) for one in found if one.is_floating_point()]

    @contextmanager
    def trained(self, inputs: Mapping[str, Any]) -> Iterator[None]:
        """Training mode. Raises NotProvided where the model finds None in it for what it was not given."""
        with self.mode(True):
            try:
                yield
            except (TypeError, AttributeError) as error:
                if "NoneType" not in str(error) or not (left_out := self.left_out(inputs)):
                    raise
                names = ", ".join(left_out)
                raise NotProvided(f"in training mode it needs more than in evaluation, perhaps {names}") from error

    def left_out(self, inputs: Mapping[str, Any]) -> list[str]:
        """forward's parameters that are None where nothing is given, and are given nothing."""
        given = self.calling.arguments(self.tensors(inputs))
        parameters = inspect.signature(self.module.forward).parameters.values()
        return [one.name for one in parameters if one.default is None and given.get(one.name) is None]

    @contextmanager
    def mode(self, training: bool) -> Iterator[None]:
        modes = [(part, part.training) for part in self.module.modules()]
        set_mode(self.module, training)
        try:
            yield
        finally:
            for part, was in modes:
                part.training = was

    def parameters(self) -> Arrays:
        """The parameters by name; a tied one has one name."""
        return {name: to_array(p.detach().double()) for name, p in self.module.named_parameters()}

    # --- copies

    def twin(self, dtype: torch.dtype | None = None) -> Self:
        """A copy that shares nothing, in another dtype if one is given."""
        if parameters_in(self.module) > MAX_WIDE_PARAMETERS:
            gc.collect()  # the copies of earlier claims, which may hold themselves
        module = copied(self.module)
        return replace(self, module=in_dtype(module, dtype) if dtype else module)

    def later_twin(self) -> Self:
        """A copy of a model that stays as it is. Its module is copied when it is first looked at: most claims are about
        what is known of all copies, or find out by the rest that they do not apply."""
        original = self.module
        twin = copy.copy(self)
        del vars(twin)["module"]
        vars(twin)["_original"] = original
        return twin

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The module of a later twin, when it is looked at."""
            if name != "module" or "_original" not in vars(self):
                raise AttributeError(name)
            self.module = copied(vars(self)["_original"])
            del vars(self)["_original"]
            return self.module

    def in_precision(self, name: str) -> Self:
        """A copy that computes in "float32", "bfloat16", ... Raises NotProvided where the model is one of half
        precision: in a wider one its code does not run, or not in training."""
        if self.torch_dtype in _HALVES:
            raise NotProvided(
                f"it is made for {str(self.torch_dtype).removeprefix('torch.')}, and for no wider numbers"
            )
        return self.twin(getattr(torch, name))

    def fresh(self, seed: int = 1, **changes: Any) -> Self:
        """Another model made in the same way, from another seed, and moved, so that what starts at zero acts. Raises
        NotProvided where none can be made."""
        try:
            module = evaluating(in_main_dtype(moved(self.made.fresh(seed, **changes), seed), self.torch_dtype))
        except NotProvided:
            raise
        except Exception as error:
            raise NotProvided(f"it cannot be made with {changes}: {type(error).__name__}: {error}") from error
        return replace(self, module=module)


_HALVES = (torch.bfloat16, torch.float16)


class _Narrow(Watching):
    """Whether an operation gave numbers narrower than float64."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in tensors_in(result):
            self.seen = self.seen or (one.is_floating_point() and one.numel() > 1 and one.dtype is not torch.float64)
        return result
