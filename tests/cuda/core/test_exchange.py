"""Memory lent to other libraries and borrowed from them, without a copy.

The simulated device's memory is the host's: numpy and torch can read it by the capsules that a GPU's would be lent by.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest

import minigrad as mg
from minigrad import exchange


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_numpy_reads_what_is_lent(cuda, device):
    x = mg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)
    there = np.from_dlpack(x.T)
    np.testing.assert_array_equal(there, [[1, 4], [2, 5], [3, 6]])
    x.fill_(9.0)
    assert there[2, 1] == 9.0  # the same memory
    lent = len(exchange._lent)
    del there
    gc.collect()
    assert len(exchange._lent) == lent - 1  # and given back


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int8", "uint8", "bool"])
def test_torch_reads_what_is_lent(cuda, device, dtype):
    torch = pytest.importorskip("torch")
    x = mg.tensor([[0, 1], [2, 3]], dtype=getattr(mg, dtype), device=device)
    there = torch.from_dlpack(x)
    assert str(there.dtype) == f"torch.{dtype}"
    assert there.tolist() == x.tolist()
    assert exchange.from_dlpack(there).tolist() == x.tolist()


def test_what_is_borrowed_lives_as_long_as_it_is_used():
    torch = pytest.importorskip("torch")
    lender = torch.arange(6.0).reshape(2, 3)
    x = mg.from_dlpack(lender)[1]
    lender[1, 0] = 7.0
    del lender
    gc.collect()
    assert x.tolist() == [7.0, 4.0, 5.0]


def test_a_capsule_that_nobody_takes_is_given_back(cuda):
    before = len(exchange._lent)
    capsule = mg.zeros(3, device="cuda").__dlpack__()
    assert len(exchange._lent) == before + 1
    del capsule
    gc.collect()
    assert len(exchange._lent) == before


class OnTheGpu:
    """Another library's array, as the CUDA array interface shows it."""

    def __init__(self, array, stream=None):
        self.array = array
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3, "stream": stream}


def test_the_cuda_array_interface_both_ways(cuda):
    x = mg.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda")
    facts = x.T.__cuda_array_interface__
    assert facts["data"] == (x.array.pointer, False)
    assert (facts["shape"], facts["strides"], facts["typestr"]) == ((2, 2), (4, 8), "<f4")
    assert facts["stream"] == cuda.driver.stream
    assert not hasattr(mg.zeros(2), "__cuda_array_interface__")
    assert not hasattr(x.bfloat16(), "__cuda_array_interface__")

    foreign = OnTheGpu(np.arange(4, dtype=np.int64), stream=7)
    y = mg.as_tensor(foreign)
    assert y.is_cuda
    y += 1
    np.testing.assert_array_equal(foreign.array, [1, 2, 3, 4])
    assert cuda.driver.counts["follow"] == 1  # ordered after the other library's stream


def test_lending_orders_the_borrowers_stream_after_ours(cuda):
    x = mg.zeros(2, device="cuda")
    before = cuda.driver.counts["lead"]
    x.__dlpack__(stream=5)
    assert cuda.driver.counts["lead"] == before + 1
    x.__dlpack__(stream=-1)
    assert cuda.driver.counts["lead"] == before + 1


def test_what_cannot_be_exchanged_is_refused_in_a_sentence(cuda):
    with pytest.raises(RuntimeError, match=r"requires a gradient cannot be lent.*use \.detach"):
        mg.zeros(2, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match=r"use \.clone"):
        mg.zeros(1, device="cuda").expand(3).__dlpack__()
    with pytest.raises(TypeError, match="an object with __dlpack__, got list"):
        mg.from_dlpack([1.0])
