"""Helpers that make the mask of a target: they hide its padding and its future."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from conformance.adapters.functions.arguments import PAD
from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, parts, shown

_WORDS = r"(_(ids|seq|tokens?|input(_ids)?|inp|words|in|y))?"
_OF_THE_FUTURE = r"future|subsequent|causal|look.?ahead|std_mask"
_REAL = torch.tensor([[True] * 4 + [False] * 2, [True] * 6])


@helper(
    "masks-of-targets-hide-padding-and-the-future",
    r"mask",
    {
        "target_pad": rf"(tgt|trg|target|dec(oder)?)_({PAD})",
        "source_pad": rf"(src|source|enc(oder)?)_({PAD})",
        "pad": PAD,
        "source": rf"(src|source|enc(oder)?){_WORDS}",
        "target": rf"(tgt|trg|target|dec(oder)?){_WORDS}|ids|input_ids|tokens?|seq|x|y",
    },
    ("target",),
)
def of_targets(mask: Called) -> Iterator[Trouble]:
    """A real word sees the real words up to itself. What hides the future alone is a mask of another kind."""
    if not re.search(rf"{_OF_THE_FUTURE}|tgt|trg|target|decoder", mask.says):
        raise OtherKind("it does not say that it is for a target")
    pad = 0 if mask.has("pad") or mask.has("target_pad") else mask.number(r"(.*_)?pad(_(id|idx|index|token))?", 0)
    target = torch.where(_REAL, torch.arange(12).reshape(2, 6) + 10, pad)
    source = torch.arange(8).reshape(2, 4) + 10
    made = parts(mask(target=target, source=source, pad=pad, target_pad=pad, source_pad=pad))
    squares = [part for part in made if isinstance(part, Tensor) and part.shape[-2:] == (6, 6)]
    if not squares or squares[-1].numel() not in (36, 72):
        raise OtherKind("it makes no mask for each pair of target words")
    square = squares[-1].reshape(-1, 6, 6).expand(2, 6, 6)
    ahead = torch.ones(6, 6).triu(1).bool().expand(2, 6, 6)
    padding = ~_REAL[:, None, :].expand(2, 6, 6)
    asked = _REAL[:, :, None].expand(2, 6, 6)  # what padding sees is nobody's business
    wanted = ~ahead & ~padding
    added = bool((square.to(torch.float64) < -1).any())
    readings = [square > -1] if added else [square.bool(), ~square.bool()]
    for usual in (wanted, ~ahead, *([] if re.search(_OF_THE_FUTURE, mask.says) else [~padding])):
        if any(torch.equal(seen & asked, usual & asked) for seen in readings):
            return
    seen = min(readings, key=lambda one: int(((one ^ wanted) & asked).sum()))
    leaks = [
        word
        for word, hidden in (("the future", ahead & ~padding), ("padding", padding & ~ahead), ("both", ahead & padding))
        if bool((seen & asked & hidden).any())
    ]
    trouble = f"shows {leaks[0]}" if leaks else "hides words that are real and not ahead"
    yield Trouble(f"{mask.name} {trouble}.", shown(wanted[0, 3].long()), shown(seen[0, 3].long()))
