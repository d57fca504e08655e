"""`minigrad warmup`: compile every CPU kernel now, so that no first step waits for it.

Kernels are compiled for the types that ops give them one by one, and for what compiled steps make of them: a training
step and a decoding step of a small GPT, with the fused kernels that any GPT of that build needs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from rich.progress import Progress

import minigrad as mg
from minigrad import functional, kernels, nn
from minigrad.compiler import compile
from minigrad.kernels.calls import Calls
from minigrad.kernels.compiler import compile_all
from minigrad.kernels.native import lower
from minigrad.ops.registry import OPS
from minigrad.optim import AdamW


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compile every CPU kernel now (less than half a minute, once), so that no first step waits for it."
    )


def run(arguments: argparse.Namespace) -> int:
    start = time.perf_counter()
    bound = [*bound_kernels()]
    together(bound)
    jobs = [*((name, calls.run) for name, calls in bound), *programs_to_compile()]
    with Progress(transient=True) as progress:
        task = progress.add_task("compiling", total=len(jobs))
        for name, compile_one in jobs:
            progress.update(task, description=f"compiling {name}")
            compile_one()
            progress.advance(task)
    count = len({name for name, _ in jobs})
    print(f"the kernels of {count} ops and steps are compiled and cached ({time.perf_counter() - start:.1f} s)")
    return 0


def bound_kernels() -> Iterator[tuple[str, Calls]]:
    """(op, calls of its kernel on one of the op's own samples) for every op that has one on the CPU."""
    for name, op in OPS.items():
        for arrays, attrs in _samples(name) if op.fast_on_cpu else ():
            metas = op.output_metas([(array.shape, array.dtype) for array in arrays], attrs)
            outputs = [np.empty(shape, dtype) for shape, dtype in metas]
            yield name, kernels.bind(op, arrays, outputs, attrs) or Calls()  # none: a sample that it does not serve


def together(bound: Iterable[tuple[str, Calls]]) -> None:
    """Compile what these calls need at once, in several processes; afterwards every kernel is only tried."""
    lowered = [lower(function, arguments, 0) for _, calls in bound for function, arguments in calls]
    compile_all([(call.kernel, call.types) for call in lowered if call])


def _samples(name: str) -> Iterator[tuple[list[np.ndarray], Mapping[str, Any]]]:
    """An op's own samples in float32; of adam's inputs step and rate stay float64."""
    samples = OPS[name].samples
    assert samples is not None
    for inputs, attrs in samples(np.random.default_rng(0)):
        arrays = [np.asarray(x) for x in inputs]
        wide = [name == "adam" and not a.ndim for a in arrays]
        yield (
            [a if w or a.dtype != np.float64 else a.astype(np.float32) for a, w in zip(arrays, wide, strict=True)],
            attrs,
        )


def programs_to_compile() -> Iterable[tuple[str, Callable[[], None]]]:
    """(name, a call that compiles a step and runs it)."""
    yield "a training step", _train
    yield "a decoding step", _decode


def _modules() -> list[nn.Module]:
    """Of a block: embedding, norm, head; heads and what joins them, and the feed-forward network."""
    linear = [nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)]
    return [nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 11, bias=False), *linear]


def _train() -> None:
    """One compiled step of a GPT block with AdamW."""
    tokens, norm, head, qkv, out, up, down = modules = _modules()
    optimizer = AdamW([parameter for module in modules for parameter in module.parameters()])

    def step(ids: mg.Tensor, targets: mg.Tensor) -> mg.Tensor:
        optimizer.zero_grad()
        x = tokens(ids)
        heads = qkv(norm(x)).view(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + out(mixed.transpose(1, 2).reshape(2, 6, 8))
        x = x + down(functional.gelu(up(norm(x))))
        loss = functional.cross_entropy(head(norm(x)).view(-1, 11), targets.view(-1))
        loss.backward()
        optimizer.step()
        return loss

    ids = mg.tensor(np.random.default_rng(0).integers(0, 11, (2, 6)))
    compile(step)(ids, ids)


def _decode() -> None:
    """One compiled step of decoding with a cache."""
    tokens, norm, head, qkv, out, up, down = _modules()
    key, value = mg.zeros(1, 2, 6, 4), mg.zeros(1, 2, 6, 4)

    def step(ids: mg.Tensor, position: mg.Tensor) -> mg.Tensor:
        x = tokens(ids)
        new = qkv(norm(x)).view(3, 2, 4)
        key[:, :, position] = new[1]
        value[:, :, position] = new[2]
        visible = (mg.arange(6) <= position).view(1, 1, 1, 6)
        mixed = functional.scaled_dot_product_attention(new[0].view(1, 2, 1, 4), key, value, attn_mask=visible)
        x = x + out(mixed.view(1, 1, 8))
        x = x + down(functional.gelu(up(norm(x))))
        return head(norm(x)).argmax(-1)

    with mg.no_grad():
        compile(step)(mg.zeros(1, 1, dtype=mg.int64), mg.tensor(0))
