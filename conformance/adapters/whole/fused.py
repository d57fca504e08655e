"""What torch fuses into one operation, run in its parts, so that all ways to write one formula are recorded alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _sum_and_product(total: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    product = torch.bmm(left, right)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return product + (total if beta == 1 else total * beta)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: Any = None,
) -> tuple[Tensor, Tensor]:
    result, _ = torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout, causal, scale=scale
    )
    return result, query.new_empty(query.shape[:-1])  # the second is for the backward pass only


PARTS: dict[str, Callable[..., Any]] = {
    "baddbmm": _sum_and_product,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
}
"""The name of a fused operation -> its parts."""
