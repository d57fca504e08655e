"""Rows times the matrices that they choose: the kernels beside numpy's definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad import kernels
from minigrad.compiler import compile
from minigrad.kernels import threads
from minigrad.ops.chosen import chosen_linear
from minigrad.ops.stored import KINDS, to_stored


def tensors(arrays):
    return [mg.from_numpy(array) for array in arrays]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rows=st.integers(0, 5), n=st.integers(1, 40), k=st.integers(1, 40), count=st.integers(1, 5),
    kind=st.sampled_from(["float32", *KINDS]), workers=st.integers(1, 2), seed=st.integers(0, 10_000),
)  # fmt: skip
def test_plans_and_kernels_and_the_reference_are_the_definition(rows, n, k, count, kind, workers, seed):
    rng = np.random.default_rng(seed)
    matrices = [rng.standard_normal((n, k)).astype(np.float32) for _ in range(count)]
    parts = [(each,) if kind == "float32" else to_stored(each, kind) for each in matrices]
    stored, *scales = (list(group) for group in zip(*parts, strict=True))
    given = tensors(stored), tensors(scales[0]) if scales else None
    before = threads.get_num_threads()
    threads.set_num_threads(min(workers, threads.available()))
    try:
        planned = compile(lambda x, chosen: chosen_linear(x, chosen, *given))
        for _ in range(2):  # the second time with other choices, by the same plan
            x, chosen = rng.standard_normal((rows, k)).astype(np.float32), rng.integers(0, count, rows)
            found = [planned(mg.tensor(x), mg.tensor(chosen))]
            for mode in ("always", "reference"):
                with kernels.use(mode):
                    found.append(chosen_linear(mg.tensor(x), mg.tensor(chosen), *given))
            wide = [each.astype(np.float64) * (scales[0][i][:, None] if scales else 1) for i, each in enumerate(stored)]
            for i, c in enumerate(chosen):
                for each in found:
                    np.testing.assert_allclose(each[i].numpy(), wide[c] @ x[i], rtol=1e-5, atol=1e-4)
            assert all(each.shape == (rows, n) and each.dtype == mg.float32 for each in found)
    finally:
        threads.set_num_threads(before)


@pytest.mark.parametrize("mode", ["always", "reference"])
@pytest.mark.parametrize("wrong", [-1, 2])
def test_a_matrix_that_is_not_there_is_refused(mode, wrong):
    matrices = tensors([np.ones((3, 4), np.float32)] * 2)
    with kernels.use(mode), pytest.raises(IndexError):
        chosen_linear(mg.ones(2, 4), mg.tensor([1, wrong]), matrices)
