"""Helpers of positions: tables that are resized for another grid of patches, and the slopes of ALiBi."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, shown, tensor

_OLD, _NEW, _WIDTH = 3, 5, 6
_MARKS = 2
"""The first features of a place tell its row and its column, the others are alike in all places."""


@helper(
    "resized-positions-keep-their-features",
    r"(resi[sz]e|interpolat|resampl|adapt|rescal)\w*?_?(abs_?)?pos|pos\w*_(resi[sz]e|interpolat|resampl)",
    {
        "prefix": r"(num_?|n_?)?(prefix|extra|special|cls|class)_?(tokens?)?",
        "old": r"(old|src|orig(inal)?|source|from|pretrained)_?(grid|size|hw|shape|side)(_?size|_shape)?|(old|src)",
        "grid": r"((new|target|tgt|dst|to)_?)?(grid|size|hw|shape|side)(_?size|_shape)?|new|target",
        "positions": r"(old_?|abs_?)?(pos(ition)?(al)?s?)(_?(emb\w*|enc\w*|table|weights?))?|pe|table|x",
    },
    ("positions", "grid"),
)
def resized(resize: Called) -> Iterator[Trouble]:
    """Features that are alike in all places stay so; what tells the row tells no column afterwards."""
    made = _resized(resize)
    places = made.reshape(-1, _WIDTH)
    constant = places[places.abs().sum(-1) > 0][:, _MARKS:]  # a table that was filled up has places of zeros
    rows, columns = made[..., 0], made[..., 1]
    if _differ(constant, 0):
        yield Trouble(
            f"{resize.name} mixes the features of a place: numbers that were alike in all places differ.",
            shown(constant[0]),
            shown(constant[-1]),
        )
    elif len(constant) < len(places):
        return
    elif _differ(rows, 1) or _differ(columns, 0):
        yield Trouble(
            f"{resize.name} exchanges rows and columns: what told the row of a place tells its column.",
            shown(rows.transpose(0, 1)[0]),
            shown(rows[0]),
        )


def _table() -> Tensor:
    """(places, features)."""
    table = torch.arange(1.0, _WIDTH + 1).repeat(_OLD * _OLD, 1)
    table[:, 0] = torch.arange(_OLD).repeat_interleave(_OLD)
    table[:, 1] = torch.arange(_OLD).repeat(_OLD)
    return table


def _resized(resize: Called) -> Tensor:
    """(rows, columns, features) of the new grid, from the first form in which it takes a table: with the vectors of a
    class token and of one more in front or without, with an axis for the batch or without. Raises OtherKind."""
    for extra in (1, 0, 2):
        front = torch.zeros(extra, _WIDTH)
        whole = torch.cat([front, _table()])
        for table in (whole[None], whole):
            for grid in (_NEW, (_NEW, _NEW)):
                old = _OLD if isinstance(grid, int) else (_OLD, _OLD)
                with suppress(Exception):
                    made = tensor(resize(positions=table, grid=grid, old=old, prefix=extra))
                    if made.numel() == (_NEW * _NEW + extra) * _WIDTH and made.shape[-1] == _WIDTH:
                        return made.reshape(-1, _WIDTH)[extra:].reshape(_NEW, _NEW, _WIDTH)
    raise OtherKind("it gives no table of the new size")


def _differ(numbers: Tensor, axis: int) -> bool:
    return bool((numbers - numbers.narrow(axis, 0, 1)).abs().max() > 1e-4)


@helper(
    "slopes-of-alibi-are-powers-of-one-number",
    r"alibi|slopes",
    {
        "heads": r"(n_?|num_?|attention_?)*heads?|h|n",
        "keys": r"(max_?|seq_?|k(ey)?_?|kv_?|ctx_?|context_?|target_?)*(len(gth)?|size)|t|l|tk|n_key(s)?|n_ctx",
        "queries": r"(q(uery)?_?|source_?)*(len(gth)?|size)|tq|n_quer(y|ies)",
    },
    ("heads",),
)
def alibi_slopes(slopes: Called) -> Iterator[Trouble]:
    """Of H heads, a power of 2, the slopes are 2^(-8/H), its square, and so on; a bias falls by the slope with each
    place."""
    places = 5
    for heads in (8, 4):
        made = tensor(slopes(heads=heads, keys=places, queries=places))
        if slopes.has("keys"):
            rows = made.reshape(heads, -1, places)[:, -1] if made.numel() % (heads * places) == 0 else made[:0]
            made = rows.diff(dim=-1)[:, :1].abs() if len(rows) else rows
        if made.numel() != heads or not bool(made.isfinite().all()):
            raise OtherKind("it gives no number for each head")
        got = made.reshape(-1).abs()
        expected = 2.0 ** (-8 / heads * torch.arange(1, heads + 1))
        if not torch.allclose(got, expected.double(), rtol=1e-4):
            yield Trouble(
                f"{slopes.name} gives {heads} heads other slopes than ALiBi's 2^(-8h/{heads}).",
                shown(expected),
                shown(got),
            )
            return
