"""Which token is padding, and on which side it stands: what the model and its file say, and what a run does."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.calling import default_dtype, quiet_evaluation
from conformance.adapters.whole.configs import settings_of
from conformance.adapters.whole.length_probes import LengthProbes
from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.adapters.whole.running import RunningModel
from conformance.adapters.whole.watching import Watching

_TO_THE_LONGEST = re.compile(
    r"def \w*(collate|pad|batch)\w*\((?:(?!\ndef )[\s\S]){0,800}?(max\(\[?len\(|max\(map\(len|pad_sequence\()"
)
"""How what makes batches finds their width by their rows."""

_ON_THE_LEFT = re.compile(
    r"left[-_ ]?pad|pad(ded)?_?left|padding_side\W{1,4}left"
    r"|\[(0\] ?\* ?\(?[^\n+]{1,40}-[^\n+]{1,40}|\w*pad\w*\] ?\* ?\(?[^\n+]{1,60})\)? ?\+ ?\w"
    r"|pad\w*\W+(\w+\W+){0,3}(on|from|at|to)\W+(the\W+)?(left|front|start|beginning)\b"
    r"|(newest|latest|most recent|last)\W+(\w+\W+){0,4}(at the end|(the|on|at)\W+(last|right)\w*)|right[- ]align",
    re.I,
)
"""Words by which a file says that what is short is filled up in front."""

_PAD_MASK = re.compile(
    r"(!=|==|\.ne\(|\.eq\()[^\n]{0,40}pad|pad[^\n]{0,40}(!=|==|\.ne\(|\.eq\()|pad\w*_mask|mask_?pad|get_pad", re.I
)


class PadProbes(LengthProbes, PlaceProbes):
    """Padding, of a running model."""

    def counts_from_the_end(self) -> bool:
        """Whether places are counted from the end of the input, and the file says that padding stands in front: the
        last word has one place in inputs of any length, and the first has not."""
        if "from_the_end" not in self.known:
            self.known["from_the_end"] = self.free_length and self.says_left() and _places_end_alike(self)
        return bool(self.known["from_the_end"])

    def says_left(self) -> bool:
        """Whether its file says that what is short is filled up in front."""
        return bool(_ON_THE_LEFT.search(" ".join(_file_text(self).split())))

    def fills_up_to_the_longest(self) -> bool:
        """Whether its file makes batches as wide as their longest row: other rows have padding that is no part of a
        window."""
        return bool(_TO_THE_LONGEST.search(_file_text(self)))

    def masks_losses_only(self) -> bool:
        """Whether the mask of padding changes a loss that forward gives, and nothing of the answer: a causal model
        whose padding stands behind its texts needs no more."""
        if "masks_losses" not in self.known:
            inputs = self.example(2)
            real = np.ones(inputs[self.calling.main.meaning].shape[:2], bool)
            fewer = real.copy()
            fewer[0, -1] = False
            with quiet_evaluation(self.module), default_dtype(self.torch_dtype):
                one, other = (self.run({**inputs, "padding": mask}) for mask in (real, fewer))
            losses = [[t for t in tensors_in(run["result"]) if t.numel() == 1] for run in (one, other)]
            changed = any(not torch.equal(a, b) for a, b in zip(*losses, strict=False))
            self.known["masks_losses"] = changed and torch.equal(one["out"], other["out"])
        return bool(self.known["masks_losses"])

    def padding_of(self, name: str) -> str | None:
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


def _file_text(subject: RunningModel) -> str:
    module = sys.modules.get(type(subject.module).__module__)
    return "".join(linecache.getlines(getattr(module, "__file__", None) or ""))


def _places_end_alike(subject: PadProbes) -> bool:
    """Whether a table that is read by no words is read by the same rows for the last words, whatever the length."""
    longest = subject.longest
    short, long = (longest - 2, longest) if longest is not None and longest < 8 else (5, 7)
    if short < 2:
        return False
    found = [_places(subject, length) for length in (short, long)]
    return any(
        not torch.equal(one, other[: len(one)]) and torch.equal(one, other[-len(one) :]) and len(one.unique()) > 1
        for one, other in zip(*found, strict=False)
    )


def _places(subject: RunningModel, length: int) -> list[torch.Tensor]:
    """By which rows tables are read for one sentence, but those of words, in order: an index, or where a cut begins."""
    data = subject.example(1, length)
    words = torch.tensor(data[subject.calling.main.meaning]).reshape(-1)
    with quiet_evaluation(subject.module), _Read(subject.module) as read:
        subject.run(data)
    return [rows for rows in read.rows if len(rows) == length and not torch.equal(rows, words)]


class _Read(Watching):
    """The rows by which tables of a model are read: looked up, or cut out of them."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        held = [*module.parameters(), *module.buffers()]
        self.tables = {one.untyped_storage()._cdata for one in held if one.ndim > 1}
        self.rows: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        result = func(*args, **(kwargs or {}))
        if func is aten.embedding.default:
            self.rows.append(args[1].reshape(-1))
        elif func is aten.index.Tensor and len(args[1]) == 1 and args[1][0] is not None:
            self.rows.append(args[1][0].reshape(-1))
        elif func is aten.slice.Tensor and args[0].untyped_storage()._cdata in self.tables and result.ndim > 1:
            axis = args[1] if len(args) > 1 else 0
            step = args[0].stride(axis)
            first = (result.storage_offset() - args[0].storage_offset()) // max(step, 1)
            self.rows.append(torch.arange(first, first + result.shape[axis]))
        return result


def pad_of(subject: RunningModel) -> int | None:
    """The token that the model says is padding: an attribute of it or its config, of its table of tokens, a constant of
    its file, or the one number that a run compares its tokens with."""
    vocab = subject.calling.inputs[0].vocab
    said = said_pad(subject.module, vocab)
    return compared_with(subject) if said is None and vocab else said


def said_pad(module: nn.Module, vocab: int) -> int | None:
    """The token of which the code of a model says in words that it is padding."""
    for items in settings_of(module):
        for name, value in items.items():
            is_id = isinstance(value, int) and not isinstance(value, bool)
            if "pad" in str(name).lower() and is_id and 0 <= value < vocab:
                return int(value)
    tables = (part for part in module.modules() if isinstance(part, nn.Embedding) and part.num_embeddings == vocab)
    of_tables = next((int(t.padding_idx) for t in tables if t.padding_idx is not None), None)
    scope = vars(sys.modules.get(type(module).__module__, object())) if of_tables is None else {}
    constants = (v for n, v in scope.items() if re.fullmatch(r"(\w+_)?pad(ding)?(_\w+)?", n.lower()) and type(v) is int)
    return next((v for v in constants if 0 <= v < vocab), of_tables)


class _Compared(Watching):
    """The numbers that these tokens are compared with: ``ids.eq(0)``, ``ids != 0``, ``ids > 0``."""

    def __init__(self, ids: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.ids = [one.reshape(-1) for one in ids]
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        compares = func in (aten.eq.Scalar, aten.ne.Scalar) or (func is aten.gt.Scalar and args[1] == 0)
        if compares and any(torch.equal(args[0].reshape(-1), one) for one in self.ids):
            self.seen.add(int(args[1]))
        return func(*args, **(kwargs or {}))


def compared_with(subject: RunningModel) -> int | None:
    """The one token that a run compares all its tokens with; None where there is none, or several."""
    data = subject.example()
    ids = [torch.tensor(data[one.meaning]) for one in subject.calling.inputs if one.vocab]
    if subject.calling.end is not None:
        ids[-1][:, -1] = subject.calling.end
    ids = [tokens if subject.calling.batch_first else tokens.T for tokens in ids]
    with suppress(Exception), quiet_evaluation(subject.module), _Compared(ids) as compared:
        subject.run(data)
        numbers = compared.seen - {subject.calling.end}
        if len(numbers) == 1:
            return numbers.pop()
    return None
