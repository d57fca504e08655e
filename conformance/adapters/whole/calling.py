"""How a model's forward is called, and which of its results is the answer.

`Calling` turns data by meaning into forward's arguments, and its result into the answer in the protocol's layout;
`searching` finds the one of a model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.inference.construct import set_mode
from conformance.adapters.inference.facts import Fact
from conformance.adapters.stated import Shape
from conformance.adapters.whole.configs import Options
from conformance.adapters.whole.layouts import OF_PLACES, laid_out, without_barred
from conformance.adapters.whole.masking import CHOOSES, SIZES, Mask, real_tokens
from conformance.adapters.whole.results import named_tensors
from conformance.adapters.whole.watching import Watching

B, T, TS = 2, 6, 7
"""Sizes of the first call: the batch, the length, and that of a source."""

CANDIDATES = 3
"""So many texts stand in each list of a model that takes lists of texts."""

FIRST = 4
"""The first word that is used: those before it often are padding, start, end, or unknown."""

LENGTHS = (T, 8, 16, 32, 4)
"""Lengths that are tried, before those that the model's own tables suggest."""


@dataclass(frozen=True)
class Input:
    """One input that is data. meaning: "ids", "src", "tgt" (token ids) or "x" (numbers).

    parameter: its name in forward. vocab: how many tokens its table has, 0 for numbers. shape: of numbers, without the
    batch; None in the place of a length that is free. length: the one length that it takes, None when free.
    channels_first: forward takes numbers (B, C, T), as convolutions do. The data are (B, T, C) all the same.
    """

    meaning: str
    parameter: str
    vocab: int = 0
    shape: tuple[int | None, ...] = ()
    length: int | None = None
    channels_first: bool = False

    def laid(self, x: Tensor) -> Tensor:
        """The data as forward takes them."""
        return x.transpose(1, 2).contiguous() if self.channels_first else x


@dataclass(frozen=True)
class Calling:
    """How one model is called. `arguments` turns inputs by meaning into forward's, `answer` the result into tensors.

    inputs: the data, the main one first. fixed: parameter -> maker (inputs by meaning -> value) of what else it needs.
    masks: those that its caller makes. labels, cache, types, positions, offset: the parameters of these meanings;
    lengths: of the numbers of real tokens, each with the input that it counts; optional_lengths: those left out so far;
    shares: those of them that want a share of the longest, 1.0 for all.

    packed: the one parameter of forward that holds all of these under their names; in_order: the names, where it is a
    tuple of them. beside: the shapes of all inputs, where these were found one by one.
    in_lists: it takes lists of texts (B, candidates, T), as re-rankers and multiple choice do, or documents of
    sentences: a text stands in every place, and the answer is that of the second place, or of the whole document.
    drops_last: forward leaves the last word out, which it has no label for: it is given one more than is asked about.
    starts: the target are labels, before which forward puts a sign of the start: it is given one word more than is
    asked about, which it leaves out, and answers for the start, too.
    led: forward puts a sign of the start before the words, all of which it reads, and answers for the start, too.
    end, filler: the number with which each text ends, and the one that stands where it has padding, where forward finds
    by it the place that it answers for.
    batch_first: False for (T, B). layout: of the answer, one of layouts.LAYOUTS; outputs: how many numbers its last
    axis has.
    """

    inputs: tuple[Input, ...]
    fixed: Mapping[str, Callable[[Mapping[str, Tensor]], Any]] = field(default_factory=dict)
    masks: tuple[Mask, ...] = ()
    optional_masks: tuple[str, ...] = ()
    lengths: Mapping[str, str] = field(default_factory=dict)
    optional_lengths: Mapping[str, str] = field(default_factory=dict)
    shares: frozenset[str] = frozenset()
    labels: str = ""
    cache: str = ""
    types: str = ""
    positions: str = ""
    offset: str = ""
    batch_first: bool = True
    layout: str = ""
    outputs: int = 0
    answer_at: int = 0
    packed: str = ""
    in_order: tuple[str, ...] = ()
    beside: Mapping[str, Shape] = field(default_factory=dict)
    in_lists: bool = False
    drops_last: bool = False
    starts: bool = False
    led: bool = False
    end: int | None = None
    filler: int | None = None
    facts: tuple[Fact, ...] = ()

    @property
    def two_sided(self) -> bool:
        return len(self.inputs) == 2

    @property
    def main(self) -> Input:
        """The input along whose positions the answer runs: the target of two."""
        return self.inputs[-1]

    @property
    def scores_its_words(self) -> bool:
        """Whether its answer has, at each place of its main input, a score for each word of the table that reads it."""
        return self.layout in OF_PLACES and self.outputs == self.main.vocab > 0

    @property
    def answers_for_start(self) -> bool:
        """Whether its answer has one row more, the first one, than there are words."""
        return self.starts or self.led

    @property
    def reads_its_data(self) -> bool:
        """Whether a table reads its main input, or that is numbers: whole numbers that no table reads, such as the
        places of what is gathered, are no words, and no others can be drawn."""
        return bool(self.main.vocab or self.main.shape)

    @property
    def hides_patches(self) -> bool:
        """Whether a mask chooses which patches are taken: the others change nothing."""
        return any(mask.how == CHOOSES for mask in self.masks)

    @property
    def takes_several_kinds(self) -> bool:
        """Whether its inputs are of different kinds: vectors of different widths, numbers, ids."""
        return len({(shape.dtype, shape.sizes[2:]) for shape in self.beside.values()}) > 1

    @property
    def grows_together(self) -> bool:
        """Whether something else grows with the length of the main input: words beside regions, whose padding is told
        apart from theirs."""
        own = self.beside.get(self.main.parameter)
        rest = [shape for name, shape in self.beside.items() if name not in (self.main.parameter, *self.lengths)]
        return own is not None and any(shape.sizes[1:2] == own.sizes[1:2] for shape in rest)

    def input(self, meaning: str) -> Input:
        return next(given for given in self.inputs if given.meaning == meaning)

    def arguments(self, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        """forward's keyword arguments for data ``(B, T)``, and for "padding", "labels", "types", if given."""
        inputs = self.with_one_more(inputs) if self.drops_last or self.starts else inputs
        inputs = self._marked(inputs) if self.end is not None or self.filler is not None else inputs
        turned = {m: self.turned(x) if x.ndim > 1 else x for m, x in inputs.items() if isinstance(x, Tensor)}
        laid_first = {m: tuple(x.shape[:2]) for m, x in inputs.items() if isinstance(x, Tensor)}
        turned_inputs: dict[str, Any] = {**inputs, **turned, SIZES: laid_first}
        given = {one.parameter: one.laid(turned[one.meaning]) for one in self.inputs}
        for parameter, make in self.fixed.items():
            given[parameter] = make(inputs)
        for parameter, meaning in self.lengths.items():
            real = real_tokens(inputs, meaning)
            if turned[meaning].ndim > 3:  # of a picture of sound, whose time is an axis behind the channels
                real = torch.ones(len(real), max(turned[meaning].shape[2:]), dtype=torch.bool)
            shares = parameter in self.shares
            given[parameter] = real.to(torch.get_default_dtype()).mean(1) if shares else real.sum(1)
        padded = any("padding" in name for name in inputs)
        for mask in self.masks:
            if mask.when_padded and not padded:
                continue
            given[mask.parameter] = mask.make(inputs if not mask.own else turned_inputs)
        for meaning in ("labels", "types", "positions"):
            parameter = getattr(self, meaning)
            if parameter and meaning in turned:
                given[parameter] = turned[meaning]
        if self.in_lists:
            given = {name: _listed(value) if isinstance(value, Tensor) else value for name, value in given.items()}
        if not self.packed:
            return given
        return {self.packed: tuple(given[name] for name in self.in_order) if self.in_order else Options(given)}

    def with_one_more(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs with the last word of the main one twice."""
        along = {self.main.meaning, "padding", f"{self.main.meaning}_padding", "labels", "types", "positions"}
        return {name: torch.cat([x, x[:, -1:]], 1) if name in along else x for name, x in inputs.items()}

    def _marked(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs with the end in the place of the last real word of each text, and the filler where it has
        padding."""
        ids, real = inputs[self.main.meaning], real_tokens(inputs, self.main.meaning)
        if self.end is not None:
            ids = ids.scatter(1, (real * torch.arange(1, real.shape[1] + 1)).argmax(1)[:, None], self.end)
        if self.filler is not None:
            ids = ids.where(real, self.filler)
        return {**inputs, self.main.meaning: ids}

    def turned(self, x: Tensor) -> Tensor:
        """Between (B, T, ...) and the model's order."""
        return x if self.batch_first else x.transpose(0, 1)

    def __call__(self, module: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        """The answer ("out", (B, T, V) or (B, C)), the loss if there is one, and everything ("result")."""
        result = module(**self.arguments(inputs))
        found = {"result": result}
        out = self.answer(result, inputs)
        loss = loss_in(result)
        return found | ({} if out is None else {"out": out}) | ({} if loss is None else {"loss": loss})

    def unlisted(self, result: Any, batch: int) -> Any:
        """The result for the second place of each list; as it is where the model takes no lists."""
        if not self.in_lists:
            return result
        found = list(tensors_in(result))
        if self._is_of_one_document(found, batch):
            return [t for t in found if t.shape[:2] != (batch, CANDIDATES)]
        return [t[:, 1] if t.shape[:2] == (batch, CANDIDATES) else t for t in found]

    def _is_of_one_document(self, found: list[Tensor], batch: int) -> bool:
        """Whether the answer, the first numbers of a result, is one for the whole of what would be a list."""
        answer = next((t for t in found if t.is_floating_point()), None)
        return answer is not None and answer.shape[:1] == (batch,) and answer.shape[1:2] != (CANDIDATES,)

    def treats_places_alike(self, result: Any, batch: int) -> bool:
        """Whether the places of a list, which hold one text, have one answer: steps of time and columns have not. A
        document has one for all of them, and may say more of each."""
        found = list(tensors_in(result))
        if not self.in_lists or self._is_of_one_document(found, batch):
            return True
        lists = [t for t in found if t.shape[:2] == (batch, CANDIDATES) and t.is_floating_point()]
        return all(torch.allclose(t, t[:, :1].expand_as(t), atol=1e-5) for t in lists)

    def answer(self, result: Any, inputs: Mapping[str, Tensor]) -> Tensor | None:
        """The answer in the protocol's layout; None when the result has none of that shape."""
        laid = self.with_start(result, inputs)
        return laid[:, 1:] if laid is not None and self.answers_for_start else laid

    def with_start(self, result: Any, inputs: Mapping[str, Tensor]) -> Tensor | None:
        """The same with the row for the start before it, where forward answers for that."""
        main = inputs[self.main.meaning]
        batch, length = main.shape[0], main.shape[1] if main.ndim > 1 else 1
        floating = [t for t in tensors_in(self.unlisted(result, batch)) if t.is_floating_point()]
        for tensor in floating[self.answer_at : self.answer_at + 1] + floating:
            laid = laid_out(tensor, self.layout, batch, length + self.answers_for_start, self.outputs)
            if laid is not None:
                return without_barred(laid)
        return None


def _listed(value: Tensor) -> Tensor:
    """A list of the same candidates for each sample."""
    return value.unsqueeze(1).repeat(1, CANDIDATES, *[1] * (value.ndim - 1)) if value.ndim else value


def loss_in(result: Any) -> Tensor | None:
    """The number that is called the loss, else the first one: a floating tensor with no axes, or of one number."""
    called_so = (one for name, one in named_tensors(result) if name in ("loss", "total_loss"))
    numbers = (t for t in (*called_so, *tensors_in(result)) if t.is_floating_point() and t.numel() == 1 and t.ndim < 2)
    return next(numbers, None)


# --- running it -----------------------------------------------------------------------------------


_LOOKS = 256
"""After so many operations the time is asked for."""


class RunTooLong(TypeError):
    """A run that is given up: no other length would make it shorter."""


class Lookups(Watching):
    """Which tables were read by which indices. until: the processor time at which a run is given up, as one that loops
    over every number of a picture; it raises RunTooLong then."""

    def __init__(self, until: float = math.inf) -> None:
        super().__init__()
        self.seen: list[tuple[Tensor, Tensor]] = []
        self.operations, self.until = 0, until

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        if self.operations % _LOOKS == 0 and time.process_time() > self.until:
            raise RunTooLong(f"it ran longer than the search for its inputs may, with {self.operations} operations")
        if func is torch.ops.aten.embedding.default:
            self.seen.append((args[0], args[1]))
        elif func is torch.ops.aten.index.Tensor and args[0].ndim == 2 and len(args[1]) == 1 and args[1][0] is not None:
            self.seen.append((args[0], args[1][0]))
        return func(*args, **(kwargs or {}))

    def vocab_of(self, ids: Tensor) -> int:
        """The rows of the table that was read by these ids, or by a cut of them that has all their words; 0 when none
        was."""
        for table, indices in self.seen:
            if indices.numel() == ids.numel() and torch.equal(indices.reshape(-1).sort()[0], ids.reshape(-1).sort()[0]):
                return len(table)
        words = [ids.unique(), ids[:, :-1].unique()] if ids.ndim == 2 else [ids.unique()]
        cut = (len(t) for some in words for t, indices in self.seen if torch.equal(indices.unique(), some))
        moved = (len(table) for table, indices in self.seen if _is_shifted(indices, ids) or _is_padded(indices, ids))
        return next(cut, next(moved, 0))

    def read_behind_a_start(self, ids: Tensor) -> list[Tensor]:
        """The tables that were read by these ids, (B, T), with one word before them."""
        return [table for table, way in self._with_one_more(ids) if torch.equal(way[:, 1:], ids)]

    def read_before_one_more(self, ids: Tensor) -> list[Tensor]:
        """The tables that were read by these ids, (B, T), with one word behind them: by labels as they are."""
        return [table for table, way in self._with_one_more(ids) if torch.equal(way[:, :-1], ids)]

    def read_shifted(self, ids: Tensor) -> bool:
        """Whether a table was read by these ids, (B, T), but the last, behind a sign of the start, and none by all."""
        if any(seen.shape == ids.shape and torch.equal(seen, ids) for _, seen in self.seen):
            return False
        return bool(self.read_behind_a_start(ids[:, :-1]))

    def _with_one_more(self, ids: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The tables, and the ids by which they were read, (B, T + 1)."""
        rows, length = ids.shape
        ways = ((table, way) for table, seen in self.seen if seen.ndim == 2 for way in (seen, seen.T))
        return ((table, way) for table, way in ways if way.shape == (rows, length + 1))


def _is_shifted(indices: Tensor, ids: Tensor) -> bool:
    """Whether they are the ids behind a sign of the start, (B, T) or (T, B)."""
    ways = [(indices, ids), (indices.T, ids.T)] if indices.shape == ids.shape and ids.ndim == 2 else []
    return any(torch.equal(one[:, 1:], other[:, :-1]) for one, other in ways)


def _is_padded(indices: Tensor, ids: Tensor) -> bool:
    """Whether they are the ids with more before or behind them in each row: filled up to whole patches or windows."""
    if ids.ndim != 2 or indices.ndim < 2 or len(indices) != len(ids) or indices.numel() < ids.numel():
        return False
    rows, length = indices.reshape(len(ids), -1), ids.shape[1]
    return torch.equal(rows[:, :length], ids) or torch.equal(rows[:, -length:], ids)


@contextmanager
def quiet_evaluation(module: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients; the mode of every part is put back."""
    modes = [(part, part.training) for part in module.modules()]
    set_mode(module, False)
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """torch makes new float tensors in `dtype`: masks and codes that forward makes must fit the parameters. In float64
    its fused attention is off: on a CPU it takes a mask in float32 for one in float64, and says nothing."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    exact = sdpa_kernel(SDPBackend.MATH) if dtype is torch.float64 else nullcontext()
    try:
        with exact:
            yield
    finally:
        torch.set_default_dtype(before)


def other_words(ids: Tensor) -> Tensor:
    """Other words in the place of those that `first_data` gives."""
    return (ids - FIRST + 1) % 2 + FIRST


def hides(module: nn.Module, calling: Calling) -> bool:
    """Whether the masks hide what they should: the future of a target, and tokens that are padding. Those that hide
    every key give no numbers, or an answer that no input changes."""
    length = calling.main.length or T
    data = first_data(calling, length)
    main = calling.main.meaning
    plain = dict(data)
    changed = {**data, main: data[main].clone()}
    changed[main][:, -1] = other_words(changed[main][:, -1])
    keys = "padding" if not calling.two_sided else f"{main}_padding"
    if not any(mask.square for mask in calling.masks):
        if any(mask.own for mask in calling.masks):
            return True
        padding = real_tokens(data, main).clone()
        padding[:, -1] = False
        data[keys] = changed[keys] = padding
    try:
        whole, before, after = (calling(module, x)["out"] for x in (plain, data, changed))
    except Exception:
        return False
    if bool(whole.isnan().any()):
        return False
    if before.ndim < 3 or before.shape[1] != length:  # no answer for each position shows what is hidden
        other = {**plain, main: other_words(plain[main])}
        return not torch.equal(whole, calling(module, other)["out"])
    hidden = float((before - after)[:, :-1].abs().max()) <= 1e-5 * float(before.abs().max() + 1e-9)
    return hidden and all(_reaches(module, calling, data, one.meaning) for one in calling.inputs)


def _reaches(module: nn.Module, calling: Calling, data: dict[str, Tensor], meaning: str) -> bool:
    """Whether the first thing of an input changes the last answer: a mask that hides all hides the wrong things."""
    changed = {**data, meaning: data[meaning].clone()}
    changed[meaning][:, 0] = other_words(changed[meaning][:, 0])
    before, after = (calling(module, x)["out"][:, -1] for x in (data, changed))
    return not torch.equal(before, after)


def first_data(calling: Calling, length: int) -> dict[str, Tensor]:
    """The first data that a model is given: small ids, all different from 0 where they can be, or noise."""
    data: dict[str, Tensor] = {}
    for one in calling.inputs:
        if one.meaning == "x":
            shape = tuple(length if size is None else size for size in one.shape)
            data["x"] = _noise((B, *shape), torch.get_default_dtype()).clone()
        else:
            steps = TS if one.meaning == "src" and length == T else length
            kinds = 2 if one.meaning == "tgt" else 3  # so that each input is told by its tokens
            data[one.meaning] = torch.arange(B * steps).reshape(B, steps) % kinds + FIRST
    return data


@lru_cache(maxsize=32)
def _noise(sizes: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The same noise whenever it is asked for: a model is run hundreds of times on it."""
    return torch.randn(sizes, generator=torch.Generator().manual_seed(3), dtype=dtype)
