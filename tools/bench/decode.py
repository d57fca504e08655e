"""Decoding 256 tokens one by one with a KV cache, batch 1: a compiled step against torch eager and compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import minigrad as mg
from minigrad import functional, nn
from minigrad.compile import compile
from tools.bench.models import SIZES, Size, build_decoder
from tools.bench.timing import Result, compare, interleaved
from tools.bench.train import gpt, weights_of

LENGTH = 256
Decode = Callable[[], list[int]]


def ours(size: Size, weights: dict[str, np.ndarray]) -> Decode:
    """The ids that greedy decoding gives from id 0, by a compiled step."""
    model = build_decoder(mg, nn, functional, size, True)
    model.load_state_dict({name: mg.tensor(value) for name, value in weights.items()})
    step = compile(model)
    positions = [mg.tensor(i) for i in range(size.length)]

    def decode() -> list[int]:
        ids = mg.zeros(1, 1, dtype=mg.int64)
        found = []
        with mg.no_grad():
            for position in positions:
                ids = step(ids, position)
                found.append(ids.item())
        return found

    return decode


def theirs(size: Size, weights: dict[str, np.ndarray], compiled: bool) -> Decode:
    """The same on torch."""
    import torch

    model = build_decoder(torch, torch.nn, torch.nn.functional, size, compiled)
    model.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in weights.items()})
    step = torch.compile(model) if compiled else model

    def decode() -> list[int]:
        ids = torch.zeros(1, 1, dtype=torch.int64)
        found = []
        with torch.no_grad():
            for i in range(size.length):
                ids = step(ids, torch.tensor(i) if compiled else i)
                found.append(int(ids.item()))
        return found

    return decode


def run(names: Sequence[str], against: Sequence[str], seconds: float) -> list[Result]:
    """Compare every size of `names`; the notes give microseconds a token. Raises RuntimeError when ids differ."""
    results = []
    for name in names:
        given = SIZES[name]
        size = Size(given.vocab, given.d_model, given.n_heads, given.n_layers, given.d_ff, 1, LENGTH)
        weights = weights_of(gpt(size))
        contenders = {"ours": ours(size, weights)}
        if "torch" in against:
            contenders["torch eager"] = theirs(size, weights, False)
        if "torch.compile" in against:
            contenders["torch.compile"] = theirs(size, weights, True)
        found = {key: decode() for key, decode in contenders.items()}
        for key, ids in found.items():
            if ids != found["ours"]:
                raise RuntimeError(f"decode {name}: the ids of {key} differ from ours")
        times = interleaved(contenders, seconds, least=3)
        notes = f"{min(times['ours']) / LENGTH * 1e3:.0f} us a token"
        results += compare(f"decode {name}", times, notes=notes)
    return results
