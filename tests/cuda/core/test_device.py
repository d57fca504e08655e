"""Tensors on the device: there and back, computed where they are, and one clear sentence where devices are mixed."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional
from minigrad import nn
from minigrad.compiler import compile
from minigrad.study.nan import NotFinite, find_nan


def test_a_tensor_goes_there_and_back(cuda):
    x = mg.randn(2, 3)
    y = x.to("cuda")
    assert (y.device.type, y.device.index, y.is_cuda, x.is_cuda) == ("cuda", 0, True, False)
    assert y.to("cuda:0") is y
    np.testing.assert_array_equal(y.cpu().numpy(), x.numpy())
    np.testing.assert_array_equal(y.T.contiguous().numpy(), x.numpy().T)
    assert "device='cuda:0'" in repr(y)


@pytest.mark.parametrize(
    "make",
    [
        lambda **d: mg.tensor([[1, 2], [3, 4]], **d),
        lambda **d: mg.zeros(2, 3, **d),
        lambda **d: mg.ones(2, 3, dtype=mg.float64, **d),
        lambda **d: mg.full((2,), True, **d),
        lambda **d: mg.arange(5, **d),
        lambda **d: mg.linspace(0, 1, 5, **d),
        lambda **d: mg.eye(3, **d),
        lambda **d: mg.from_numpy(np.arange(3.0), **d),
        lambda **d: mg.as_tensor([1.5, 2.0], **d),
    ],
)
def test_creation_on_the_device(cuda, make):
    here, there = make(), make(device="cuda")
    assert there.is_cuda
    assert there.dtype == here.dtype
    np.testing.assert_array_equal(there.numpy(), here.numpy())


def test_what_is_made_from_a_tensor_is_beside_it(cuda):
    x = mg.ones(2, 3, device="cuda")
    for made in (mg.zeros_like(x), mg.rand_like(x), mg.randn_like(x), x.clone(), x.detach(), x * 2, x[0], x.sum()):
        assert made.is_cuda
    assert copy.deepcopy(x).is_cuda
    assert pickle.loads(pickle.dumps(x)).is_cuda


def test_mixed_devices_are_an_error_that_names_the_op(cuda):
    with pytest.raises(
        RuntimeError, match=r"mul got tensors on different devices \(\[2\] on cuda:0 and \[2\] on cpu\)"
    ):
        mg.ones(2, device="cuda") * mg.ones(2)
    assert (2.0 * mg.ones(2, device="cuda") + 1).tolist() == [3.0, 3.0]


def test_other_devices_do_not_exist(cuda):
    with pytest.raises(ValueError, match=r"no device 'cuda:1'.*one GPU"):
        mg.ones(2).to("cuda:1")
    with pytest.raises(ValueError, match="does not compute on device 'mps'"):
        mg.ones(2).to("mps")


def test_changes_in_place_show_through_views(cuda):
    x = mg.zeros(2, 3, device="cuda")
    view = x[:, 1]
    view += 2
    x[0] = mg.tensor([5.0, 6.0, 7.0])
    x[mg.tensor([1]), 0] = 9.0
    assert x.tolist() == [[5, 6, 7], [9, 2, 0]]
    assert view.tolist() == [6, 2]
    x.fill_(1).mul_(3)
    assert view.tolist() == [3, 3]


OVERLAPS = {
    "rows, down": lambda x: (x[1:], x[:-1]),
    "rows, up": lambda x: (x[:-1], x[1:]),
    "columns": lambda x: (x[:, 1:], x[:, :-1]),
    "the transpose": lambda x: (x, x.t()),
    "every other": lambda x: (x[:, ::2], x[:, 1::2]),
    "a row everywhere": lambda x: (x, x[1]),
    "itself": lambda x: (x[1:], x[1:]),
}


@pytest.mark.parametrize("how", [lambda step: step, compile], ids=["eager", "compiled"])
@pytest.mark.parametrize("case", OVERLAPS)
def test_a_part_is_written_to_one_that_it_overlaps(cuda, case, how):
    def step(x):
        target, source = OVERLAPS[case](x)
        target[:] = source

    x = mg.randn(4, 4)
    there = x.to("cuda")
    step(x)
    how(step)(there)
    np.testing.assert_array_equal(there.numpy(), x.numpy())


def test_gradients_flow_between_devices(cuda):
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    w = mg.tensor([3.0, 4.0], device="cuda", requires_grad=True)
    (x.to("cuda") * w).sum().cpu().backward()
    assert x.grad.device.type == "cpu"
    assert (x.grad.tolist(), w.grad.tolist()) == ([3, 4], [1, 2])
    assert w.grad.is_cuda


def test_the_same_seed_draws_the_same_numbers_everywhere(cuda):
    def draws(device):
        mg.manual_seed(3)
        return [mg.rand(5, device=device), mg.randn(4, device=device), mg.randint(9, size=(3,), device=device)]

    for here, there in zip(draws("cpu"), draws("cuda"), strict=True):
        np.testing.assert_allclose(there.numpy(), here.numpy(), rtol=1e-6)
    mg.manual_seed(1)
    mixed = [mg.rand(4), mg.rand(4, device="cuda"), mg.rand(4)]
    mg.manual_seed(1)
    np.testing.assert_array_equal(np.concatenate([m.numpy() for m in mixed]), mg.rand(12).numpy())


def test_dropout_is_the_same_on_both_devices(cuda):
    x = mg.randn(4, 8)
    mg.manual_seed(5)
    here = nn.Dropout(0.5)(x)
    mg.manual_seed(5)
    there = nn.Dropout(0.5)(x.to("cuda"))
    np.testing.assert_array_equal(there.numpy(), here.numpy())


def test_a_scalar_of_the_host_counts_as_a_number(cuda):
    x = mg.tensor([1.0, 2.0], device="cuda", requires_grad=True)
    (x ** mg.tensor(3.0) * mg.tensor(0.5)).sum().backward()
    assert x.grad.tolist() == [1.5, 6.0]
    with pytest.raises(RuntimeError, match="different devices"):
        x * mg.tensor(2.0, requires_grad=True)  # its gradient would be on the other device


def test_the_first_nan_is_found_on_the_device(cuda):
    found = find_nan(lambda x: (x * 2).log().sum(), mg.tensor([1.0, -1.0], device="cuda"))
    assert isinstance(found, NotFinite)
    assert found.op == "log"


def test_vjps_that_make_constants_make_them_beside_the_gradient(cuda):
    """Rules of indexing, padding and choice bring arrays of their own, and so do products and norms without weights."""

    def gradient(device):
        x = mg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device, requires_grad=True)
        ids = mg.tensor([[0, 2], [1, 1]], device=device)
        y = x * 1
        y[0, 1:] = 0.5
        y[ids[:, 0] > 0] = 2.0
        parts = [y.gather(1, ids), y.scatter(1, ids[:, :1], 3.0), mg.functional.pad(x, (1, 0), 7.0)]
        parts += [x[[1, 0]], x.max(1)[0], x.var(0), x.flip(0), x.tril(), x.repeat_interleave(2, 0), x.pow(2)]
        parts += [x.prod(1), minigrad.functional.layer_norm(x, 3), minigrad.functional.rms_norm(x)]
        sum((part * part).sum() for part in parts).backward()
        return x.grad.numpy()

    np.testing.assert_allclose(gradient("cuda"), gradient("cpu"), rtol=1e-5)
