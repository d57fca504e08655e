"""Every op that has a kernel on the device, on the op's own samples, for every dtype that the table names."""

import zlib

import numpy as np
import pytest
from on_device import agrees
from slow import slow_but

from minigrad import dtypes, kernels, later
from minigrad.ops.registry import OPS

CASES = sorted((name, dtype) for name, op in OPS.items() for dtype in kernels.specs(op, "cuda"))
KEPT = {"adam": 4, "flash_attention_grad": 5}  # how many inputs take the dtype; others (step, log-sum-exp) keep theirs
SLOW = ("attention", "attention_grad", "flash_attention", "flash_attention_grad")  # their last samples have it all
LONG = ("linear_cross_entropy", "linear_cross_entropy_grad", "matmul")
USUAL = ("float32", "int64", "bool")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "bool")


def converted(name, arrays, dtype):
    """Sample inputs in `dtype`: floating ones are cast; integers (indices) and conditions stay, unless all are cast."""
    target = np.dtype(dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    made = []
    for i, array in enumerate(np.asarray(a) for a in arrays):
        floating = array.dtype.kind == "f"
        first = i == 0 and name not in ("where", "random_uniform")
        if (floating or first) and i < KEPT.get(name, len(arrays)):
            if dtype in INTEGERS and floating:
                array = np.nan_to_num(array * 3)
                array = np.abs(array) + 1 if dtype == "uint8" or name in ("pow", "floor_divide", "remainder") else array
            made.append(array.astype(target))
        elif array.dtype == bool and name.startswith("bitwise") and dtype != "bool":
            made.append(array.astype(target))
        else:
            made.append(array.astype(np.float32) if floating and name != "adam" else array)
    return made


@pytest.mark.parametrize(("name", "dtype"), slow_but(CASES, lambda case: case[0] not in LONG and case[1] in USUAL))
def test_the_ops_own_samples(name, dtype):
    if name == "where":
        dtype = "float32"
    if name == "fused" and dtype == "bool":
        pytest.skip("the sample is of float32; tests of fused groups have others")
    seed = zlib.crc32(name.encode())
    samples = list(OPS[name].samples(np.random.default_rng(seed)))
    for i, (inputs, attrs) in enumerate(samples[-2 if dtype == "float32" else -1 :] if name in SLOW else samples):
        if name == "cast":
            attrs = {"dtype": np.dtype(("float32", "int64", "bool", "float64")[seed % 4])}
        if name == "take" and inputs[1].dtype == bool:
            continue  # the shape of the result depends on values: the host's work
        races = dtype in ("float32", "int64") and name not in SLOW
        twice = not races and name not in SLOW
        agrees(name, converted(name, inputs, dtype), attrs, seed=i, rtol=3e-5, atol=3e-6, twice=twice, races=races)


def test_every_elementwise_op_is_served_where_its_words_are():
    for name, dtypes_served in (
        ("exp", 4), ("add", 10), ("sub", 9), ("bitwise_xor", 6), ("gelu", 4), ("leaky_relu", 4), ("where", 1)
    ):  # fmt: skip
        assert len(kernels.specs(OPS[name], "cuda")) == dtypes_served, name


@pytest.mark.parametrize("name", OPS)
def test_every_kernel_that_an_op_names_exists(name):
    for device in ("cpu", "cuda"):
        for spec in set(kernels.specs(OPS[name], device).values()):
            assert callable(later.load(spec))
    for spec in set(OPS[name].planned.values()):
        assert callable(later.load(spec))
