"""Every function that is compared with torch, in a step compiled for the simulated device: as eagerly on the CPU."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from test_against_torch import BY_NAME, OURS, Library, ours, outputs, same, values

import minigrad as mg
import minigrad.functional as mgF
from minigrad.compiler import compile
from minigrad.kernels.cuda import runtime
from minigrad.kernels.cuda.simulated import SimulatedDriver

pytest.importorskip("greenlet", reason="the simulator needs greenlet: pip install greenlet")

pytestmark = pytest.mark.slow  # each compiles its kernels for the simulator

FEW = settings(max_examples=2, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
MAKERS = ("arange", "eye", "full", "linspace", "ones", "tensor", "zeros")


class There:
    """minigrad, but new tensors are on the device."""

    def __getattr__(self, name: str) -> Any:
        return partial(getattr(mg, name), device="cuda") if name in MAKERS else getattr(mg, name)


THERE = Library(There(), mgF)


@pytest.fixture(autouse=True, scope="module")
def device() -> Iterator[None]:
    with runtime.use(SimulatedDriver()):
        yield


@pytest.mark.parametrize("name", BY_NAME)
def test_a_compiled_step_on_the_device_computes_what_the_cpu_does(name: str) -> None:
    chosen = BY_NAME[name]

    def step(library: Library, *inputs: mg.Tensor) -> list[mg.Tensor]:
        leaves = [x.detach().requires_grad_(chosen.derivatives > 0) for x in inputs]
        found = outputs(chosen.call(library, *leaves))
        lossy = [r for r in found if r.requires_grad]
        grads = mg.grad(sum((r * r).sum() for r in lossy), leaves, allow_unused=True) if lossy else []
        return [*(r.detach() for r in found), *(g for g in grads if g is not None)]

    @FEW
    @given(chosen.shapes)
    def check(shapes: Any) -> None:
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        arrays = [np.asarray(values(chosen.values, rng, shape), np.float32) for shape in shapes]
        compiled = compile(partial(step, THERE))
        for _ in range(2):  # launch by launch, then as a graph
            results = compiled(*[mg.tensor(a, device="cuda") for a in arrays])
        wanted = step(OURS, *[ours(a, False) for a in arrays])
        same([r.numpy() for r in results], [r.numpy() for r in wanted], 2e-4, 2e-5)

    check()
