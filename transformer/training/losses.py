"""What is minimised: cross-entropy by teacher forcing, with the documents' two ways to smooth labels."""

from __future__ import annotations

from minigrad import Tensor
from minigrad import functional as F
from transformer.ids import check_ids


def shift_targets(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Teacher forcing: the decoder's input, all but the last token, and its labels, all but the first.

    ids ``(B, T)`` to two tensors ``(B, T - 1)``: at each position the label is the token that follows the input
    (document 002, training). Raises ValueError for fewer than two tokens.
    """
    check_ids(ids, at_least=2)
    return ids[:, :-1], ids[:, 1:]


def smoothed_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    label_smoothing: float = 0.1,
    over: str = "all",
    ignore_index: int | None = -100,
    reduction: str = "mean",
) -> Tensor:
    """Cross-entropy with 1 - eps on the target and eps spread over "all" V classes or over the V - 1 "others".

    "all" (torch; the target keeps 1 - eps + eps/V) and "others" (document 000 section 2.13.3; the target keeps 1 - eps)
    are the same family: eps over the others is eps V / (V - 1) over all. logits ``(N, V)``, targets ``(N,)`` int.
    Raises ValueError for another `over`, or an eps that is not in [0, 1] (over others, in [0, 1 - 1/V]).
    """
    if over not in ("all", "others"):
        raise ValueError(f"smoothed_cross_entropy: over must be 'all' or 'others', got {over!r}")
    classes = logits.shape[1]
    eps = label_smoothing * classes / (classes - 1) if over == "others" and classes > 1 else label_smoothing
    return F.cross_entropy(logits, targets, ignore_index, eps, reduction)
