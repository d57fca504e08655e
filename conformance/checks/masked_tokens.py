"""Checks of masked language modelling: which tokens are selected, what becomes of them, what is to be predicted."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, same, true
from conformance.protocol import Array

ROLE = "masked_tokens"
VOCAB, MASK, PAD, IGNORED = 1000, 1, 0, -100


def corrupted(impl: Any, draw: Draw, n_tokens: int, **config: Any) -> tuple[Array, Array, Array]:
    """Ids ``(10, n_tokens / 10)`` without padding or [MASK], what the model is given for them, and the labels."""
    ids = draw.integers("ids", (10, n_tokens // 10), 2, VOCAB)
    subject = impl.build(ROLE, {"vocab": VOCAB, "mask_id": MASK, **config})
    result = subject(ids=ids, seed=draw.int("draws", 0, 2**16, 7))
    return ids, np.asarray(result["out"]), np.asarray(result["labels"])


def scatter(share: float, count: int) -> float:
    """Six standard deviations of the share of `count` independent draws."""
    return float(6 * (share * (1 - share) / count) ** 0.5)


@check("masked-language-models-select-a-share-of-the-tokens", roles=(ROLE,), needs=(f"{ROLE}.labels",), examples=3)
def selected_share(impl: Any, draw: Draw) -> Evidence:
    """Of 10,000 tokens about 15% are selected, or whatever the rate is, other ones with every seed; never padding."""
    rate = draw.choice("rate", (0.15, 0.3, 0.5), 0.15)
    ids, _, labels = corrupted(impl, draw, 10_000, rate=rate)
    subject = impl.build(ROLE, {"vocab": VOCAB, "mask_id": MASK, "rate": 0.9, "special_ids": (PAD,)})
    padded = np.where(np.arange(20) < 12, ids[:, :20], PAD)
    first, again, other = (subject(ids=padded, seed=seed) for seed in (1, 1, 2))
    return all_of(
        close("selected", (labels != IGNORED).mean(), rate, scatter(rate, ids.size), "six standard deviations"),
        same("padding as it is given", np.asarray(first["out"])[:, 12:], padded[:, 12:]),
        same("labels of padding", np.asarray(first["labels"])[:, 12:], np.full((10, 8), IGNORED)),
        same("the same seed again", again["out"], first["out"]),
        true("another seed", not np.array_equal(other["labels"], first["labels"]), expected="another selection"),
    )


@check("masked-language-models-predict-selected-tokens-only", roles=(ROLE,), needs=(f"{ROLE}.labels",), examples=3)
def labels_of_selected(impl: Any, draw: Draw) -> Evidence:
    """Labels are the original tokens where one was selected, and nothing elsewhere, where nothing is changed."""
    rate = draw.choice("rate", (0.15, 0.5), 0.5)
    ids, given, labels = corrupted(impl, draw, 1000, rate=rate)
    selected = labels != IGNORED
    return all_of(
        true("some tokens have a label, some have not", 0 < selected.mean() < 1, got=selected.mean(), expected=rate),
        same("labels of selected tokens", labels[selected], ids[selected]),
        same("tokens that are not selected", given[~selected], ids[~selected]),
        true("the model is not given what it shall predict", (given != ids)[selected].any(), expected="corruption"),
    )


@check("masked-language-models-corrupt-by-80-10-10", roles=(ROLE,), needs=(f"{ROLE}.labels",), examples=3)
def corruption_shares(impl: Any, draw: Draw) -> Evidence:
    """Of the selected tokens 80% become [MASK], 10% another token of the vocabulary, 10% stay as they are."""
    ids, given, labels = corrupted(impl, draw, 20_000, rate=0.5)
    selected = labels != IGNORED
    before, after = ids[selected], given[selected]
    redrawn = after[(after != MASK) & (after != before)]
    shares = [(after == MASK).mean(), len(redrawn) / len(after), (after == before).mean()]
    names = ("become [MASK]", "become another token", "stay")
    # A random token is the token itself, or [MASK], once in VOCAB draws.
    bounds = [scatter(share, len(after)) + 2 / VOCAB for share in (0.8, 0.1, 0.1)]
    parts = [
        close(f"selected tokens that {name}", share, wanted, bound, "six standard deviations")
        for name, share, wanted, bound in zip(names, shares, (0.8, 0.1, 0.1), bounds, strict=True)
    ]
    middle = (VOCAB - 1) / 2
    spread = 6 * VOCAB / (12 * max(len(redrawn), 1)) ** 0.5
    parts.append(close("mean of the random tokens", redrawn.mean(), middle, spread, "six standard deviations"))
    return all_of(*parts)
