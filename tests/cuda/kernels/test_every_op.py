"""Every op that has a kernel on the device, on the op's own samples, for every dtype that the table names."""

import zlib

import numpy as np
import pytest
from on_device import agrees

from minigrad import dtypes, kernels
from minigrad.kernels.cuda import expressions, table
from minigrad.ops.registry import OPS

CASES = sorted((op, dtype) for op, _, dtype in table.FAST)
KEPT = {"adam": 4, "flash_attention_grad": 5}  # how many inputs take the dtype; others (step, log-sum-exp) keep theirs
SLOW = ("attention", "attention_grad", "flash_attention", "flash_attention_grad")  # their last samples have it all
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


@pytest.mark.parametrize(("name", "dtype"), CASES)
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


def test_every_expression_is_served_and_every_served_op_has_one():
    """The table is written by hand so that nothing has to be imported to read it."""
    listed = {(op, dtype) for (op, _, dtype), spec in table.FAST.items() if ".elementwise:" in spec}
    special = {"cast", "flip", "fused", "where"}
    for dtype in ("float32", "float64", "int64", "bool"):
        expressed = set(expressions.table(dtype)) - {"where"}
        assert {op for op, d in listed if d == dtype} - special == expressed


def test_every_name_in_the_table_is_an_op_with_a_binder():
    for (op, _, _), spec in table.FAST.items():
        assert op in OPS
        assert callable(kernels.load(spec))
