"""Convolutions over frames, and the places of frames: torch's numbers, and shapes that do not fit."""

import numpy as np
import pytest

import minigrad as mg
from transformer.frames import Convolution, PlacedFrames, times

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("length", [1, 2, 7, 8])
@pytest.mark.parametrize(("width", "step"), [(3, 1), (3, 2), (5, 3), (1, 1)])
def test_a_convolution_and_its_gradients_equal_torchs(width, step, length):
    torch = pytest.importorskip("torch")
    own, frames = Convolution(4, 6, width, step).double(), RNG.standard_normal((2, 4, length))
    ours = [mg.tensor(frames, requires_grad=True), own.weight, own.bias]
    theirs = [torch.tensor(each.detach().numpy(), requires_grad=True) for each in ours]
    expected = torch.nn.functional.conv1d(*theirs, stride=step, padding=width // 2)
    got = own(ours[0])
    np.testing.assert_allclose(got.detach(), expected.detach(), rtol=1e-10, atol=1e-12)
    seed = RNG.standard_normal(tuple(expected.shape))
    expected.backward(torch.tensor(seed))
    got.backward(mg.tensor(seed))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.grad, other.grad, rtol=1e-10, atol=1e-12)


def test_an_even_width_has_no_middle():
    with pytest.raises(ValueError, match="the width must be odd, got 4"):
        Convolution(2, 3, 4)


def test_places_are_whispers_sinusoids():
    table = times(5, 6)
    np.testing.assert_allclose(table[3], [np.sin(3), np.sin(0.03), np.sin(3e-4), np.cos(3), np.cos(0.03), np.cos(3e-4)])
    for d in (2, 7):
        with pytest.raises(ValueError, match=f"d must be even and at least 4, got {d}"):
            times(5, d)


def test_every_other_frame_has_a_place():
    placed = PlacedFrames(4, 5, 6).double()
    frames = mg.tensor(RNG.standard_normal((2, 4, 10)))
    assert placed(frames).shape == (2, 5, 6)
    learned = [name for name, _ in placed.named_parameters()]
    assert sorted(learned) == ["conv1.bias", "conv1.weight", "conv2.bias", "conv2.weight"]
    with pytest.raises(ValueError, match=r"frames must be \(B, 4, 10\), got \[2, 4, 9\]"):
        placed(frames[..., :9])
