"""Random numbers: Philox's published vectors, streams and their state, distributions, creation functions."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.random import philox


def test_philox4x32_10_gives_the_published_words() -> None:
    """Known-answer vector of Random123 (Salmon et al. 2011): counter 0, key 0."""
    assert [f"{word:08x}" for word in philox(0, 0, 4)] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


def test_a_stream_does_not_depend_on_how_it_is_cut() -> None:
    whole = philox(7, 3, 40)
    np.testing.assert_array_equal(np.concatenate([philox(7, 3 + i, 4) for i in range(10)]), whole)
    assert len(set(whole.tolist())) == 40
    assert not set(philox(8, 3, 40).tolist()) & set(whole.tolist())
    assert philox(2**40 + 1, 2**40, 5).dtype == np.uint32
    assert not set(philox(7, 2**32 + 3, 40).tolist()) & set(whole.tolist())


def test_seeding_and_saved_states_repeat_the_stream() -> None:
    g = mg.Generator(5)
    first = mg.rand(3, 5, generator=g)
    state = g.get_state()
    second = mg.randn(4, generator=g)
    g.set_state(state)
    assert mg.randn(4, generator=g).tolist() == second.tolist()
    assert mg.rand(3, 5, generator=g.manual_seed(5)).tolist() == first.tolist()
    assert g.initial_seed() == 5
    assert state.tolist() == [5, 4]
    assert mg.rand(3, 5, generator=mg.Generator(6)).tolist() != first.tolist()
    mg.manual_seed(1)
    default = mg.rand(4).tolist()
    mg.manual_seed(1)
    assert mg.rand(4).tolist() == default
    with pytest.raises(ValueError, match="int64"):
        g.set_state(mg.zeros(2))


def test_threads_that_share_a_generator_draw_different_numbers() -> None:
    g = mg.Generator(0)
    drawn: list[float] = []

    def draw() -> None:
        for _ in range(100):
            drawn.extend(mg.rand(4, generator=g).tolist())

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert g.get_state().tolist() == [0, 400]
    assert len(set(drawn)) > 1590  # of 1,600 numbers with 24 bits about 0.08 pairs coincide


N = 20_000
SPREAD = 5 / N**0.5  # five standard errors


@pytest.mark.parametrize(
    ("draw", "mean", "std", "low", "high"),
    [
        (lambda g: mg.rand(N, generator=g), 0.5, 12**-0.5, 0, 1),
        (lambda g: mg.randn(N, generator=g), 0, 1, -9, 9),
        (lambda g: mg.randint(-2, 3, (N,), generator=g), 0, 2**0.5, -2, 2),
        (lambda g: mg.bernoulli(mg.full((N,), 0.3), generator=g), 0.3, 0.21**0.5, 0, 1),
        (lambda g: mg.randperm(N, generator=g), (N - 1) / 2, N / 12**0.5, 0, N - 1),
        (lambda g: mg.empty(N).uniform_(-1, 3, generator=g), 1, 4 / 12**0.5, -1, 3),
        (lambda g: mg.empty(N).normal_(2, 0.5, generator=g), 2, 0.5, -3, 7),
    ],
)
def test_distributions(draw: Any, mean: float, std: float, low: float, high: float) -> None:
    values = draw(mg.Generator(11)).double().numpy()
    assert values.mean() == pytest.approx(mean, abs=SPREAD * std)
    assert values.std() == pytest.approx(std, rel=2 * SPREAD)
    assert low <= values.min()
    assert values.max() <= high


def test_permutations_and_integers_cover_their_range() -> None:
    assert sorted(mg.randperm(50).tolist()) == list(range(50))
    assert set(mg.randint(3, size=(200,)).tolist()) == {0, 1, 2}
    with pytest.raises(ValueError, match="empty"):
        mg.randint(2, 2, (1,))
    wide = mg.randint(-(2**39), 2**39, (1000,), generator=mg.Generator(0)).numpy()
    for bit in range(40):
        assert 400 < ((wide >> bit) & 1).sum() < 600
    assert wide.min() < -(2**39) * 0.98
    assert wide.max() > 2**39 * 0.98


def test_multinomial_draws_in_proportion_and_without_repeats() -> None:
    weights = mg.tensor([[1.0, 0.0, 3.0], [5.0, 5.0, 0.0]])
    drawn = mg.multinomial(weights, 4000, replacement=True, generator=mg.Generator(2))
    shares = np.array([[(row == k).mean() for k in range(3)] for row in drawn.numpy()])
    np.testing.assert_allclose(shares, [[0.25, 0, 0.75], [0.5, 0.5, 0]], atol=0.04)
    unique = mg.multinomial(mg.tensor([1.0, 2.0, 0.0, 3.0]), 3, generator=mg.Generator(2))
    assert sorted(unique.tolist()) == [0, 1, 3]
    first = [mg.multinomial(mg.tensor([1.0, 3.0]), 1, generator=mg.Generator(i)).item() for i in range(400)]
    assert np.mean(first) == pytest.approx(0.75, abs=0.11)
    for bad in ([-1.0, 2.0], [0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]):
        with pytest.raises(ValueError, match="weights must be finite"):
            mg.multinomial(mg.tensor(bad), 1)
    with pytest.raises(ValueError, match="without replacement"):
        mg.multinomial(mg.tensor([1.0, 0.0]), 2)


def test_a_category_without_weight_is_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even by the smallest and the largest number that `rand` gives."""
    for number in (0.0, 1 - 2**-24):
        monkeypatch.setattr("minigrad.random.rand", lambda *size, u=number, **options: mg.full(size, u, mg.float64))
        for weights in ([0.0, 0.0, 1.0], [0.0, 3.0, 0.0], [0.1, 0.0, 0.0]):
            drawn = mg.multinomial(mg.tensor(weights), 2, replacement=True)
            assert drawn.tolist() == [int(np.argmax(weights))] * 2


# --- creation ---------------------------------------------------------------------------------------

CREATIONS = {
    "tensor floats": lambda t: t.tensor([[1.0, 2.0], [3.0, 4.0]]),
    "tensor ints": lambda t: t.tensor([1, 2]),
    "tensor bools": lambda t: t.tensor([True, False]),
    "tensor mixed": lambda t: t.tensor([1, 2.5]),
    "tensor number": lambda t: t.tensor(3),
    "tensor empty": lambda t: t.tensor([]),
    "tensor of array": lambda t: t.tensor(np.arange(3.0)),
    "tensor dtype": lambda t: t.tensor([1, 2], dtype=t.float64),
    "zeros": lambda t: t.zeros(2, 3),
    "ones tuple": lambda t: t.ones((2, 0)),
    "full": lambda t: t.full((2, 2), 1.5),
    "full int": lambda t: t.full((2,), 7),
    "full bool": lambda t: t.full((2,), True),
    "full inf": lambda t: t.full((2,), float("-inf")),
    "eye": lambda t: t.eye(3),
    "eye wide": lambda t: t.eye(2, 4),
    "arange": lambda t: t.arange(5),
    "arange float": lambda t: t.arange(0, 1, 0.1),
    "arange step": lambda t: t.arange(10, 0, -3),
    "arange dtype": lambda t: t.arange(3, dtype=t.float32),
    "linspace": lambda t: t.linspace(-1, 1, 7),
    "zeros_like": lambda t: t.zeros_like(t.tensor([1, 2])),
    "ones_like": lambda t: t.ones_like(t.tensor([1.0])),
    "full_like": lambda t: t.full_like(t.tensor([1.0]), 3),
    "meshgrid": lambda t: t.stack(t.meshgrid(t.arange(2), t.arange(3), indexing="ij")),
    "one_hot": lambda t: (t if t is mg else t.nn.functional).one_hot(t.tensor([0, 2]), 4),
}


@pytest.mark.parametrize("name", CREATIONS)
def test_creation_against_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    got, want = CREATIONS[name](mg), CREATIONS[name](torch)
    assert str(got.dtype) == str(want.dtype).removeprefix("torch.")
    assert got.shape == tuple(want.shape)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6, atol=1e-7)


def test_tensor_copies_and_from_numpy_shares() -> None:
    array = np.zeros(2)
    copy, shared = mg.tensor(array), mg.from_numpy(array)
    array[0] = 5
    assert copy.tolist() == [0.0, 0.0]
    assert shared.tolist() == [5.0, 0.0]
    assert mg.as_tensor(shared) is shared
    assert mg.tensor([mg.tensor(1.0), mg.tensor(2.0)]).tolist() == [1.0, 2.0]
    for bad, error in (([[1], [2, 3]], ValueError), ("text", TypeError), (1j, TypeError), ([None], TypeError)):
        with pytest.raises(error):
            mg.tensor(bad)


def test_printing() -> None:
    x = mg.tensor([1.5, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1.5, 2. ], requires_grad=True)"
    assert repr(x * 2) == "tensor([3., 4.], made_by=mul)"
    assert repr(mg.ones(1, dtype=mg.float64)) == "tensor([1.], dtype=float64)"
    assert f"{mg.tensor(1.23456):.2f}" == "1.23"
    assert f"{mg.tensor([1])}" == "tensor([1])"
