"""Masked language modelling: how an encoder's input is corrupted, and what it must restore (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence

import minigrad as mg
from minigrad import Tensor
from transformer.ids import check_ids


def mask_tokens(
    ids: Tensor,
    vocab: int,
    mask_id: int,
    rate: float = 0.15,
    mask_share: float = 0.8,
    random_share: float = 0.1,
    special_ids: Sequence[int] = (),
    ignore_index: int = -100,
    generator: mg.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """What the model is given and its labels, both int ``(B, T)``, for ids ``(B, T)``.

    Each token is selected with probability `rate`, but never one of `special_ids` (padding, separators). Of the
    selected, the share `mask_share` becomes `mask_id`, `random_share` a random token, and the rest stays. Labels are
    the selected tokens, and `ignore_index` elsewhere. Raises ValueError for a rate or shares outside [0, 1].
    """
    check_ids(ids)
    if not 0 <= rate <= 1 or min(mask_share, random_share) < 0 or mask_share + random_share > 1:
        raise ValueError(
            f"rate, mask_share, random_share and what they leave must lie in [0, 1], got {rate}, {mask_share}, "
            f"{random_share}"
        )
    selected = mg.rand(ids.shape, generator=generator, device=ids.device) < rate
    for special in special_ids:
        selected = selected & (ids != special)
    # one number a token, so that the shares exclude each other
    fate = mg.rand(ids.shape, generator=generator, device=ids.device)
    given = mg.where(selected & (fate < mask_share), mask_id, ids)
    redrawn = selected & (fate >= mask_share) & (fate < mask_share + random_share)
    drawn = mg.randint(vocab, size=ids.shape, generator=generator, device=ids.device)
    given = mg.where(redrawn, drawn, given)
    return given, mg.where(selected, ids, ignore_index)
