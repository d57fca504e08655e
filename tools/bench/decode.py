"""Decoding 256 tokens one by one with a KV cache, batch 1: our public functions against torch eager and compiled."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

import minigrad as mg
from minigrad import functional, nn
from minigrad.compiler import Compiled, compile
from minigrad.compiler.plan import Plan
from tools.bench.models import SIZES, Size, build_decoder
from tools.bench.timing import Result, compare, interleaved
from tools.bench.train import gpt, weights_of
from transformer.decoding import greedy_decode, language_model
from transformer.models.gpt2 import GPT2, GPT2Config

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


def public_model(size: Size, weights: dict[str, np.ndarray]) -> GPT2:
    """The same model as our users have it: GPT-2 with a head of its own."""
    with nn.init.skipped():
        model = GPT2(
            GPT2Config(
                vocab_size=size.vocab, n_positions=size.length, n_embd=size.d_model, n_layer=size.n_layers,
                n_head=size.n_heads, n_inner=size.d_ff, activation_function="gelu", tie_word_embeddings=False,
            )
        )  # fmt: skip
    values = {}
    for name, value in weights.items():
        own = name
        for theirs, written in NAMES:
            own = own.replace(theirs, written)
        if ".qkv." in own:
            for letter, piece in zip("qkv", np.split(value, 3), strict=True):
                values[own.replace(".qkv.", f".self_attn.{letter}_proj.")] = piece
        else:
            values[own] = value
    model.load_state_dict({name: mg.tensor(value) for name, value in values.items()})
    return model.eval()


NAMES = (
    ("tokens.", "token_embedding."), ("blocks.", "layers."), (".out.", ".self_attn.out_proj."),
    (".up.", ".feed_forward.linear1."), (".down.", ".feed_forward.linear2."), ("head.", "lm_head."),
)  # fmt: skip


def ours(size: Size, weights: dict[str, np.ndarray]) -> Decode:
    """The ids that greedy decoding gives from id 0, by the functions that our users call."""
    model = public_model(size, weights)

    def decode() -> list[int]:
        begin = mg.zeros(1, 1, dtype=mg.int64)
        written = greedy_decode(language_model(model, model.new_cache()), begin, size.length)
        found: list[int] = written[0, 1:].tolist()
        return found

    return decode


@cache
def row_bandwidth() -> float:
    """GB/s at which this machine reads a matrix that one row is multiplied by, the best of ten."""
    matrix = mg.from_numpy(np.ones((16384, 4096), np.float32))
    product = compile(lambda row: row @ matrix.transpose(0, 1))
    row, best = mg.ones(1, 4096), float("inf")
    for _ in range(10):
        start = time.perf_counter()
        product(row)
        best = min(best, time.perf_counter() - start)
    return matrix.numel() * 4 / best / 1e9


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
        token = statistics.median(times["ours"]) / size.length  # milliseconds
        read = sum(value.nbytes for key, value in weights.items() if not key.startswith(("tokens", "positions")))
        kept = 2 * 4 * size.n_layers * size.d_model * size.length / 2  # half full on average
        share = (read + kept) / token / 1e6 / row_bandwidth()
        notes = f"{token * 1e3:.0f} us a token, {share:.0%} of a row times a matrix ({row_bandwidth():.0f} GB/s)"
        results += compare(f"decode {name}", times, notes=notes, moved=size.length * (read + kept))
    return results
