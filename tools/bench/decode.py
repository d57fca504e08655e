"""Decoding 256 tokens one by one with a KV cache, batch 1: a compiled step against torch eager and compiled."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

import minigrad as mg
from minigrad import functional, nn
from minigrad.compiler import Compiled, compile
from minigrad.compiler.plan import Plan
from tools.bench.models import SIZES, Size, build_decoder
from tools.bench.timing import Result, compare, interleaved
from tools.bench.train import gpt, weights_of

LENGTH = 256
Decode = Callable[[], list[int]]


def size_of(name: str) -> Size:
    """A size of the benchmark with batch 1 and room for `LENGTH` tokens."""
    return replace(SIZES[name], batch=1, length=LENGTH)


def our_step(size: Size, weights: dict[str, np.ndarray]) -> Compiled:
    """The compiled step: an id and its position to the next id."""
    model = build_decoder(mg, nn, functional, size, True)
    model.load_state_dict({name: mg.tensor(value) for name, value in weights.items()})
    return compile(model)


def plan(name: str) -> Plan:
    """The plan of our step, after decoding to the end."""
    size = size_of(name)
    step = our_step(size, weights_of(gpt(size)))
    ids = mg.zeros(1, 1, dtype=mg.int64)
    with mg.no_grad():
        for position in range(size.length):
            ids = step(ids, mg.tensor(position))
    ((made, _),) = step.plans.values()
    return made


def ours(size: Size, weights: dict[str, np.ndarray]) -> Decode:
    """The ids that greedy decoding gives from id 0, by a compiled step."""
    step = our_step(size, weights)
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
    step = torch.compile(model, fullgraph=True, dynamic=False) if compiled else model
    positions = [torch.tensor(i) if compiled else i for i in range(size.length)]

    def decode() -> list[int]:
        ids = torch.zeros(1, 1, dtype=torch.int64)
        found = []
        with torch.inference_mode():
            for position in positions:
                ids = step(ids, position)
                found.append(int(ids.item()))
        return found

    return decode


def run(names: Sequence[str], against: Sequence[str], seconds: float) -> list[Result]:
    """Compare every size of `names`; the notes give microseconds a token. Raises RuntimeError when ids differ."""
    results = []
    for name in names:
        size = size_of(name)
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
        notes = f"{statistics.median(times['ours']) / LENGTH * 1e3:.0f} us a token"
        read = sum(value.nbytes for key, value in weights.items() if not key.startswith(("tokens", "positions")))
        cache = 2 * 4 * size.n_layers * size.d_model * size.length / 2  # half full on average
        results += compare(f"decode {name}", times, notes=notes, moved=LENGTH * (read + cache))
    return results
