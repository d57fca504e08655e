"""Functions that make masks: of a length, of token ids, or of a source and a target together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from itertools import product
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.functions.arguments import PAD, Arguments, read
from conformance.adapters.functions.roles import SIZE
from conformance.adapters.functions.subjects import Served, constants, source_of
from conformance.adapters.functions.visibility import HIDES, KEEPS, marks_of
from conformance.adapters.inference.facts import Fact, Unresolved

WORDS = {
    "source_pad": rf"(src|source|enc(oder)?)_({PAD})",
    "target_pad": rf"(tgt|trg|target|dec(oder)?)_({PAD})",
    "pad": PAD,
    "source": r"(src|source|enc(oder)?)(_(ids|seq|tokens?|input(_ids)?|inp|words))?|seq_q|question",
    "target": r"(tgt|trg|target|dec(oder)?)(_(ids|seq|tokens?|input(_ids)?|inp|words|in|y))?",
    "ids": r"ids|input_ids|tokens?|token_ids|seq|sequences?|x|inputs?|words|batch|seq_k|inp|idx",
    "marks": r"(.*_)?(pad(ding)?|attention|attn|valid|token)_?mask|mask",
    "lengths": r"(\w+_)?(lengths|lens|valid_lens?)",
    "size": SIZE,
    "key_size": r"(k|kv|keys?)_?(seq_?)?(len(gth)?|size)|dim_k|j",
    "batch": r"(n_|num_)?(batch|batch_size|bsz|bs|b)",
    "heads": r"(n_|num_)?heads?|h|n_?heads?",
    "window": r"(local_|left_|look_?back_?)?(window|attention)(_?(size|len(gth)?))?|look_?back|span",
    "future": r"mask_future|(is_)?causal|hide_future",
}
TEXTS = ("source", "target", "ids")
ADDED = "added to the scores"
SPECIAL = 10
"""The padding of a function that does not take it is looked for among so many first ids, and -1."""


@dataclass(frozen=True)
class Reader:
    """One result of a function as visible pairs (B, Tq, Tk). marks: what True means in it: KEEPS, HIDES or ADDED."""

    at: int
    marks: str

    def __call__(self, made: Any, batch: int) -> Tensor:
        """Raises TypeError when the result is no mask."""
        part = made[self.at] if isinstance(made, (tuple, list)) else made
        if not isinstance(part, Tensor):
            raise TypeError(f"it returns a {type(part).__name__} where a mask was expected")
        shown = part > -1 if self.marks == ADDED else part.bool() == (self.marks == KEEPS)
        while shown.ndim > 3 or (shown.ndim == 3 and shown.shape[0] == 1 and batch > 1):
            axis = next((i for i in range(shown.ndim) if shown.shape[i] == 1), None)
            if axis is None:
                raise TypeError(f"its mask has the shape {tuple(part.shape)}")
            shown = shown.squeeze(axis)
        return shown


def _is_added(made: Any, at: int) -> bool:
    """Whether a result is added to the scores: large and negative where it hides."""
    part = made[at] if isinstance(made, (tuple, list)) else made
    return isinstance(part, Tensor) and part.is_floating_point() and bool((part < -1).any())


def resolve(function: Callable[..., Any]) -> list[Served]:
    """The function as causal_mask, padding_mask, or both. Raises Unresolved when it makes neither."""
    arguments = read(function, WORDS, ("ids",))
    if arguments.has("pad") and not any(arguments.has(name) for name in TEXTS):  # what may be padded is no length
        arguments = read(function, {name: words for name, words in WORDS.items() if name != "size"}, ("ids",))
    text = [name for name in TEXTS if arguments.has(name)]
    if not text and arguments.has("lengths"):
        return _of_marks(*_counting(function, arguments), is_told=marks_of(function)[0] is not None)
    if not text and arguments.has("marks"):
        return _of_marks(function, arguments)
    if not text:
        if not arguments.has("size"):
            raise Unresolved(f"{arguments.name} takes neither token ids nor a length")
        return [_causal_of_length(function, arguments)]
    makers = Makers(function, arguments, tuple(text))
    served = [*makers.paddings(), *makers.causal()]
    if not served:
        raise Unresolved(f"{arguments.name} makes no mask of padding or of the future: {makers.reason}")
    return served


# --- of a length ----------------------------------------------------------------------------------


def _causal_of_length(function: Callable[..., Any], arguments: Arguments) -> Served:
    size = 5

    def made(n: int) -> Any:
        """Of a window that is as wide as the sequence, which leaves the future alone to be hidden."""
        return arguments.call(function, size=n, key_size=n, batch=1, heads=1, window=n, future=True)

    reader, facts, fits = _read_causal(function, made(size), size)

    def compute(training: bool, n: int) -> dict[str, Any]:
        return {"out": _square(reader(made(n), 1), n)}

    return Served("causal_mask", lambda config: compute, facts, fits)


def _shown(marks: str) -> str:
    return marks if marks == ADDED else f"True = {marks}"


def _square(mask: Tensor, n: int) -> Tensor:
    """(n, n) of a mask with leading axes of one. Raises TypeError for another shape."""
    shown = mask.reshape(mask.shape[-2:]) if mask.numel() == n * n and mask.ndim > 2 else mask
    return shown[0] if shown.ndim == 3 else shown


def _read_causal(function: Any, made: Any, n: int, at: int = 0) -> tuple[Reader, list[Fact], bool]:
    """How a causal mask is read: as its words or its file say; else as the one of which it is the lower triangle."""
    wanted = torch.ones(n, n).tril().bool()
    readings = (ADDED,) if _is_added(made, at) else (KEEPS, HIDES)
    equal = [m for m in readings if torch.equal(_square(Reader(at, m)(made, 1), n), wanted)]
    told, why = marks_of(function) if ADDED not in readings else (ADDED, "large and negative where it hides")
    marks = told or (equal or [KEEPS])[0]
    how = why or ("it is the lower triangle so" if equal else "nothing tells")
    return Reader(at, marks), [Fact("mask", _shown(marks), how, not why and not equal)], marks in equal


# --- of marks of the real tokens -------------------------------------------------------------------


@dataclass(frozen=True)
class Marks:
    """What a function takes in the place of token ids: which tokens are real, or which are padding."""

    real: bool
    dtype: torch.dtype

    def of(self, real: Tensor) -> Tensor:
        return (real == self.real).to(self.dtype)


def _of_marks(function: Callable[..., Any], arguments: Arguments, is_told: bool = False) -> list[Served]:
    """The function in the first form of marks of which it makes a mask of padding or of the future, in a known reading.
    is_told: words say which tokens it marks, so that it is judged in any case.

    Raises Unresolved where there is none: what else is done with a mask is nothing that is known here.
    """
    for real, dtype in product((True, False), (torch.bool, torch.int64)):
        makers = Makers(function, arguments, ("marks",), Marks(real, dtype))
        served = [*makers.paddings(), *makers.causal()]
        if any(one.fits for one in served) or (is_told and served):
            return served
    raise Unresolved(f"{arguments.name} makes no mask of padding or of the future out of marks: {makers.reason}")


def _counting(function: Callable[..., Any], arguments: Arguments) -> tuple[Callable[..., Any], Arguments]:
    """A function of the numbers of real tokens as one of marks: the real ones of each row stand in front for it, and
    what it makes is put back into their order."""

    @wraps(function)
    def of_marks(marks: Tensor) -> Any:
        real = marks.bool()
        order = (~real).int().argsort(dim=1, stable=True).argsort(dim=1)
        lengths = torch.cat([real.sum(1), torch.tensor(real.shape[1:])])  # one row more is full: some count no further
        made = arguments.call(function, lengths=lengths, size=real.shape[1], batch=len(lengths), heads=1)[:-1]
        if not isinstance(made, Tensor) or made.shape[:1] + made.shape[-1:] != real.shape:
            raise TypeError(f"its mask is no tensor (B, ..., T) for {tuple(real.shape)} tokens")
        index = order.reshape(len(real), *[1] * (made.ndim - 2), -1).expand(made.shape)
        return made.gather(-1, index)

    return of_marks, Arguments(arguments.name, {"marks": "marks"}, ("marks",))


# --- of token ids ---------------------------------------------------------------------------------


class Makers:
    """A function of token ids, and what of its results is a mask of padding or of the future.

    facts and readings are found with rows of real tokens, of which one is exchanged for the padding.
    """

    def __init__(
        self, function: Callable[..., Any], arguments: Arguments, text: tuple[str, ...], marks: Marks | None = None
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.text = text
        self.marks = marks
        self.reason = "nothing that it returns depends on the padding or the place"
        self.told, self.why = marks_of(function)
        self.takes_pad = bool(marks) or any(arguments.has(name) for name in ("pad", "source_pad", "target_pad"))
        self.sequence_first = False

    def call(self, ids: Tensor, pad: int, only: str = "") -> Any:
        """The function on (B, T) ids. only: the one of source and target that has them; the other is of real tokens."""
        other = torch.where(ids == pad, pad + 1, ids)
        texts = {name: ids if name == (only or name) else other for name in self.text}
        if self.marks is not None:
            texts = {name: self.marks.of(text != pad) for name, text in texts.items()}
        if self.sequence_first:
            texts = {name: text.t() for name, text in texts.items()}
        pads = dict.fromkeys(("pad", "source_pad", "target_pad"), pad)
        extra = {"size": ids.shape[1], "batch": ids.shape[0], "heads": 1}
        return self.arguments.call(self.function, **texts, **pads, **extra)

    def parts(self, made: Any) -> range:
        return range(len(made) if isinstance(made, (tuple, list)) else 1)

    def own_pad(self) -> int | None:
        """The padding that the function looks for by itself: the one id that changes what it makes."""
        if self.takes_pad:
            return 0
        named = list(constants(self.function, r"(.*_)?pad(_.*)?").values())
        base = torch.full((2, 4), SPECIAL + 3)
        before = self._flat(base)
        for pad in [*named, *range(SPECIAL), -1]:
            ids = base.clone()
            ids[0, 2] = pad
            after = self._flat(ids)
            if (
                before is not None
                and after is not None
                and any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
            ):
                return pad
        return None

    def _flat(self, ids: Tensor) -> list[Tensor] | None:
        try:
            made = self.call(ids, -100)
        except Exception as error:
            self.reason = f"it raises {type(error).__name__}: {' '.join(str(error).split())}"
            return None
        return [part for part in (made if isinstance(made, (tuple, list)) else (made,)) if isinstance(part, Tensor)]

    def paddings(self) -> Iterator[Served]:
        """One padding mask: of the source where there are two."""
        pad = self.own_pad()
        if pad is None:
            return
        ids = torch.full((2, 4), SPECIAL + 3)
        ids[0, 2], ids[1, 3] = pad, pad
        for certain, first, text in product((True, False), (False, True), self.text):
            self.sequence_first = first
            try:
                made = self.call(ids, pad, text)
            except Exception as error:
                self.reason = f"it raises {type(error).__name__}: {' '.join(str(error).split())}"
                continue
            for at in self.parts(made):
                served = self._padding(made, at, ids, pad, text, certain)
                if served is not None:
                    yield served
                    self.sequence_first = False
                    return
        self.sequence_first = False

    def _padding(self, made: Any, at: int, ids: Tensor, pad: int, text: str, certain: bool) -> Served | None:
        """The result at a place as a padding mask; certain: only when it marks just the padding."""
        real = ids != pad
        readings = (ADDED,) if _is_added(made, at) else (self.told,) if self.told else (KEEPS, HIDES)
        fits = False
        for marks in readings:
            reader = Reader(at, marks)
            try:
                shown = _row(reader(made, len(ids)), *ids.shape)
            except (TypeError, IndexError, RuntimeError):
                return None
            fits = torch.equal(shown, real)
            if fits or (self.told and torch.equal(shown, ~real)):
                break
        else:
            if certain or not self.takes_pad:
                return None
            reader, marks = Reader(at, readings[0]), readings[0]
        part = made[at] if isinstance(made, (tuple, list)) else made
        shape = f"{tuple(part.shape)} of (B, T) = {tuple(ids.shape)}"
        how = self.why or ("it shows the real tokens so" if fits else "it shows the real tokens in no reading")
        facts = [Fact("mask", _shown(marks), how, not fits), Fact("shape", shape, "as returned")]
        if not self.takes_pad:
            facts.append(Fact("padding", pad, "the token that changes the mask"))
        if isinstance(made, (tuple, list)):
            facts.append(Fact("result", at, f"it marks the padding of the {text}"))
        sequence_first = self.sequence_first

        def make(config: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
            def compute(training: bool, ids: Tensor) -> dict[str, Any]:
                own = config["pad_id"] if self.takes_pad else pad
                renamed = exchanged(ids, config["pad_id"], own)
                self.sequence_first = sequence_first
                return {"out": _row(reader(self.call(renamed, own, text), len(ids)), *ids.shape)}

            return compute

        return Served("padding_mask", make, facts, fits)

    def causal(self) -> Iterator[Served]:
        """The causal mask among the results, of the target where there are two."""
        n, pad = 5, 0
        ids = torch.full((1, n), SPECIAL + 3)
        means_it = bool(re.search(r"tril|triu|subsequent|causal|no_?peak|look_?ahead", source_of(self.function)))
        for certain, first, text in product((True, False), (False, True), reversed(self.text)):
            self.sequence_first = first
            try:
                made = self.call(ids, pad, text)
            except Exception as error:
                self.reason = f"it raises {type(error).__name__}: {' '.join(str(error).split())}"
                continue
            for at in reversed(self.parts(made)):
                part = made[at] if isinstance(made, (tuple, list)) else made
                if not isinstance(part, Tensor) or part.shape[-1] != n:
                    continue
                square = part.numel() == n * n and len(set(part.flatten().tolist())) > 1
                if not (square if certain else means_it):
                    continue
                yield self._causal(made, at, text, first, square)
                return

    def _causal(self, made: Any, at: int, text: str, first: bool, square: bool) -> Served:
        """The result at a place as the causal mask; not square: it hides nothing of the future, though it should."""
        n, pad = 5, 0
        if square:
            reader, facts, fits = _read_causal(self.function, made, n, at)
        else:
            reader, fits = Reader(at, self.told or KEEPS), False
            facts = [Fact("mask", _shown(reader.marks), "its words speak of the future, which nothing hides", True)]

        def compute(training: bool, n: int) -> dict[str, Any]:
            self.sequence_first = first
            shown = reader(self.call(torch.full((1, n), SPECIAL + 3), pad, text), 1)
            return {"out": _square(shown, n) if square else shown.reshape(-1, n)[-1:].broadcast_to(n, n)}

        return Served("causal_mask", lambda config: compute, facts, fits)


def _row(shown: Tensor, batch: int, length: int) -> Tensor:
    """(B, T) of which keys are visible: of pairs, those that the last query sees."""
    if shown.ndim == 3:
        shown = shown[:, -1]
    if shown.ndim == 1 and batch == 1:
        shown = shown[None]
    if tuple(shown.shape) != (batch, length):
        raise TypeError(f"its mask has the shape {tuple(shown.shape)} for ids of {(batch, length)}")
    return shown


def exchanged(ids: Tensor, one: int, other: int) -> Tensor:
    """Ids with two tokens' names exchanged: the padding that a claim asks for and the function's own."""
    if one == other:
        return ids
    return torch.where(ids == one, other, torch.where(ids == other, one, ids))
