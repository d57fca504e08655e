"""Each operation of torch that stands for an op of minigrad gives what minigrad's gives, on all its samples."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import minigrad as mg  # noqa: E402
import transformer.models  # noqa: E402, F401 (brings every op)
from conformance.adapters.whole.mirror import OPERATIONS, Mirror  # noqa: E402
from minigrad.ops.registry import OPS  # noqa: E402
from minigrad.random import Generator  # noqa: E402

NAMES = sorted({*OPERATIONS} & {name for name, op in OPS.items() if op.samples is not None})


def same(name, results, expected):
    for result, wanted in zip(results, expected, strict=True):
        assert result.array.shape == wanted.shape, name
        assert result.array.dtype == wanted.dtype, name
        np.testing.assert_allclose(result.array, wanted, rtol=1e-9, atol=1e-9, err_msg=name)


def test_every_operation_is_of_an_op_and_nearly_all_have_samples():
    assert {*OPERATIONS} <= {*OPS}
    assert {*OPERATIONS} - {*NAMES} <= {"alias", "cast", "to_device", "within"}


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_gives_what_minigrads_gives(name):
    op = OPS[name]
    for inputs, attrs in op.samples(np.random.default_rng(0)):
        if name in ("dropout", "random_uniform") or attrs.get("dropout"):
            continue  # torch draws other numbers
        tensors = [mg.from_numpy(np.array(array)) for array in inputs]
        expected = op.evaluate([tensor.array for tensor in tensors], attrs)
        with Mirror([]).interpreting():
            found = op(*tensors, **attrs)
        results = found if isinstance(found, tuple) else (found,)
        same(name, results, expected)


def test_dropout_keeps_the_mean_and_adds_its_residual():
    x, residual = mg.ones(200, 100), mg.full((200, 100), 5.0)
    key = Generator(0).state
    with Mirror([]).interpreting():
        plain = OPS["dropout"](x, key, p=0.25).numpy()
        added = OPS["dropout"](x, key, residual, p=0.25).numpy()
    assert sorted(np.unique(plain)) == pytest.approx([0.0, 4 / 3])
    assert plain.mean() == pytest.approx(1.0, abs=0.03)
    assert sorted(np.unique(added)) == pytest.approx([5.0, 5.0 + 4 / 3])


def test_a_change_in_place_reaches_every_view():
    x = mg.zeros(3, 4)
    with Mirror([]).interpreting():
        view = x[1:]
        view[0, 0] = 7.0
        total = x.sum()
    assert total.item() == 7.0
    assert x.numpy()[1, 0] == 7.0
