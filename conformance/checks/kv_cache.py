"""Checks of decoding with a KV cache: it must change the cost and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.models import build_lm, model_bound, prompt
from conformance.draw import Draw
from conformance.evidence import Evidence, close, same


def _cached(impl: Any, draw: Draw, kind: str) -> Evidence:
    """The logits of all calls against those of one uncached causal pass."""
    subject, p, config, formulas = build_lm(impl, draw, "cached_decoder_lm")
    ids = prompt(draw, low=4)
    n = ids.shape[1]
    first = draw.int("first", 2, n - 2, 2)
    chunks = {
        "steps": (1,) * n,
        "prefill": (n - 1, 1),
        "chunks": (first, n - first),
        "prefill and steps": (first,) + (1,) * (n - first),
    }[kind]
    subject(ids=ids[:, ::-1].copy(), chunks=(n,))  # what an earlier prompt left behind must not matter
    expected = formulas.logits(p, ids)
    got = subject(ids=ids, chunks=chunks)["out"]
    return close(f"logits of calls of {chunks} tokens", got, expected, model_bound(subject, config, expected))


@check("cached-steps-equal-the-full-pass", roles=("cached_decoder_lm",), examples=4)
def cached_steps(impl: Any, draw: Draw) -> Evidence:
    """Fed token by token from an empty cache, the model gives the logits of one causal pass."""
    return _cached(impl, draw, "steps")


@check("prefill-is-causal", roles=("cached_decoder_lm",), examples=4)
def cached_prefill(impl: Any, draw: Draw) -> Evidence:
    """A prompt in one call, then one token: every row of the prompt sees the tokens up to itself only."""
    return _cached(impl, draw, "prefill")


@check("chunks-extend-the-cache-causally", roles=("cached_decoder_lm",), examples=4)
def cached_chunks(impl: Any, draw: Draw) -> Evidence:
    """Several tokens appended to a cache in one call see the cache and the tokens up to themselves."""
    return _cached(impl, draw, "chunks")


@check("steps-after-a-prefill-equal-the-full-pass", roles=("cached_decoder_lm",), examples=4)
def cached_generation(impl: Any, draw: Draw) -> Evidence:
    """A prompt in one call, then single steps: what a generator does gives what uncached decoding gives."""
    return _cached(impl, draw, "prefill and steps")


@check(
    "cache-holds-the-shared-heads-only",
    roles=("cached_decoder_lm",),
    needs=("cached_decoder_lm.cache_bytes",),
    examples=3,
)
def cache_size(impl: Any, draw: Draw) -> Evidence:
    """Keys and values of n_kv_heads heads for every token and layer: 2 L n_kv d_head T numbers, once."""
    subject, _, config, _ = build_lm(impl, draw, "cached_decoder_lm")
    ids = prompt(draw)
    held = subject(ids=ids, chunks=(ids.shape[1] - 1, 1))["cache_bytes"]
    d_head = config["d_model"] // config["n_heads"]
    numbers = 2 * config["n_layers"] * config["n_kv_heads"] * d_head * ids.size
    return same("bytes of the cache", int(np.asarray(held)), numbers * subject.dtype.itemsize)
