"""The engine on the GPU: training as on the CPU, memory held over many steps, other libraries, other processes."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional as F
from minigrad import cuda, nn
from minigrad.compiler import compile
from minigrad.optim import AdamW


def training(device, compiled, width=64):
    """A step of a network with dropout, and its parameters."""
    mg.manual_seed(0)
    model = nn.Sequential(nn.Embedding(97, width), nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                          nn.Dropout(0.1), nn.Linear(4 * width, 97)).to(device)  # fmt: skip
    optimizer = AdamW(model.parameters(), lr=mg.tensor(1e-3, dtype=mg.float64))

    def step(ids, targets):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids).reshape(-1, 97), targets.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    ids = np.random.default_rng(0).integers(0, 97, (2, 16, 64))
    batch = [mg.tensor(part, device=device) for part in ids]
    run = compile(step) if compiled else step
    return lambda: run(*batch)


@pytest.mark.parametrize("compiled", [False, True])
def test_training_is_the_cpus_and_repeats_bit_for_bit(compiled):
    expected, found, again = ([step().item() for _ in range(20)] for step in _each(compiled))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert again == found


def _each(compiled):
    """Made one after the other: each begins with the seed."""
    for device in ("cpu", "cuda", "cuda"):
        yield training(device, compiled)


@pytest.mark.parametrize("compiled", [False, True])
def test_memory_is_held_over_a_thousand_steps(gpu, compiled):
    step = training("cuda", compiled)
    for _ in range(10):
        step()
    used, held, asked = cuda.memory_allocated(), cuda.memory_reserved(), gpu.allocator.statistics.driver_allocations
    for _ in range(1000):
        step()
    cuda.synchronize()
    assert (cuda.memory_allocated(), cuda.memory_reserved()) == (used, held)
    assert gpu.allocator.statistics.driver_allocations == asked


def test_memory_that_is_not_there_is_one_sentence():
    with pytest.raises(cuda.OutOfMemory, match="the GPU has no memory left for"):
        mg.empty(1 << 45, device="cuda")
    assert mg.ones(4, device="cuda").sum().item() == 4


def test_torch_shares_memory_both_ways():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a build of torch with CUDA")
    x = mg.arange(6, dtype=mg.float32, device="cuda").reshape(2, 3)
    there = torch.from_dlpack(x)
    there += 1
    torch.cuda.synchronize()  # what a borrower writes is not ordered with our stream
    assert x.sum().item() == 21
    back = mg.from_dlpack(torch.ones(3, device="cuda") * 2)
    assert (back + 1).tolist() == [3.0, 3.0, 3.0]
    assert mg.as_tensor(torch.full((2,), 5.0, device="cuda")).tolist() == [5.0, 5.0]
    assert torch.as_tensor(x, device="cuda").data_ptr() == x.array.pointer


def test_cupy_shares_memory():
    cupy = pytest.importorskip("cupy")
    x = mg.ones(4, device="cuda")
    cupy.asarray(x)[...] = 3
    cupy.cuda.Device().synchronize()
    assert x.tolist() == [3, 3, 3, 3]


def _in_child(answers):
    try:
        mg.ones(2, device="cuda")
        answers.put("used")
    except cuda.CudaError as error:
        answers.put(str(error))


def test_a_forked_child_is_told_and_a_spawned_one_works():
    mg.ones(2, device="cuda")
    for method, answer in (("fork", "spawn"), ("spawn", "used")):
        context = multiprocessing.get_context(method)
        answers = context.Queue()
        child = context.Process(target=_in_child, args=(answers,))
        child.start()
        assert answer in answers.get(timeout=120)
        child.join()
