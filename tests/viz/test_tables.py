"""Small tensors as notebooks show them: tinted tables; what is large, traced or of other shapes stays text."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.viz import style


def test_every_number_has_a_cell_tinted_by_its_size():
    shown = mg.tensor([[1.0, -2.0], [0.0, 2.0]], requires_grad=True)._repr_html_()
    assert shown.count("<td") == 4
    assert shown.count("<tr>") == 2
    assert style.tint(4.0) in shown
    assert style.tint(-4.0) in shown
    assert "[2, 2] float32, requires grad" in shown


def test_what_is_not_finite_is_an_alarm():
    shown = mg.tensor([1.0, float("nan"), float("inf")])._repr_html_()
    assert shown.count(style.ALARM) == 2


@pytest.mark.parametrize("shape", [(), (17,), (2, 17), (2, 2, 2), (0,)])
def test_other_shapes_stay_text(shape):
    assert mg.zeros(*shape)._repr_html_() is None


@pytest.mark.parametrize("dtype", [mg.bool, mg.int64, mg.float16])
def test_other_dtypes(dtype):
    assert mg.tensor(np.ones((2, 2)), dtype=dtype)._repr_html_().count("<td") == 4


def test_a_traced_tensor_has_no_numbers():
    seen = []
    mg.trace(lambda x: seen.append(x._repr_html_()) or x)(mg.ones(2))
    assert seen == [None]


def test_a_compiled_function_shows_its_passes_once_it_has_a_plan():
    step = mg.compile(lambda x: x.exp() * 2)
    assert step._repr_html_() is None
    step(mg.ones(2))
    assert "fuse_elementwise" in step._repr_html_()
