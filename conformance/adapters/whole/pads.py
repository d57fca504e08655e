"""Which token is padding: what the model and its file say, and what a run compares its tokens with."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from conformance.adapters.whole.calling import quiet_evaluation
from conformance.adapters.whole.watching import Watching

if TYPE_CHECKING:
    from conformance.adapters.whole.model import WholeModel


def pad_of(subject: WholeModel) -> int | None:
    """The token that the model says is padding: an attribute of it or its config, of its table of tokens, a constant of
    its file, or the one number that a run compares its tokens with."""
    module = subject.module
    holders = [module, *(getattr(module, name, None) for name in ("config", "cfg", "args", "hparams"))]
    for holder in holders:
        items = holder.items() if isinstance(holder, dict) else getattr(holder, "__dict__", {}).items()
        for name, value in items:
            is_id = isinstance(value, int) and not isinstance(value, bool)
            if "pad" in name.lower() and is_id and 0 <= value < subject.calling.inputs[0].vocab:
                return int(value)
    vocab = subject.calling.inputs[0].vocab
    tables = (part for part in module.modules() if isinstance(part, nn.Embedding) and part.num_embeddings == vocab)
    of_tables = next((int(t.padding_idx) for t in tables if t.padding_idx is not None), None)
    scope = vars(sys.modules.get(type(module).__module__, object())) if of_tables is None else {}
    constants = (v for n, v in scope.items() if re.fullmatch(r"(\w+_)?pad(ding)?(_\w+)?", n.lower()) and type(v) is int)
    said = next((v for v in constants if 0 <= v < vocab), of_tables)
    return compared_with(subject) if said is None and vocab else said


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


def compared_with(subject: WholeModel) -> int | None:
    """The one token that a run compares all its tokens with; None where there is none, or several."""
    data = subject.example()
    ids = [torch.tensor(data[one.meaning]) for one in subject.calling.inputs if one.vocab]
    ids = [tokens if subject.calling.batch_first else tokens.T for tokens in ids]
    with suppress(Exception), quiet_evaluation(subject.module), _Compared(ids) as compared:
        subject.run(data)
        if len(compared.seen) == 1:
            return compared.seen.pop()
    return None
