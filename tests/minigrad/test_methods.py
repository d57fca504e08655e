"""The methods of Tensor: the ops themselves, each with words and a signature that `help` shows."""

import inspect

import pytest

import minigrad as mg
from minigrad.methods import Methods

PUBLIC = sorted(name for name in dir(mg.Tensor) if not name.startswith("_") and name not in mg.Tensor.__slots__)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_method_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(mg.Tensor, name))


def test_a_method_is_the_function_of_that_name() -> None:
    """Where both exist."""
    shared = {name for name in PUBLIC if name in vars(Methods) and callable(getattr(mg, name, None))}
    assert len(shared) > 70
    for name in shared:
        assert getattr(mg.Tensor, name) is getattr(mg, name), name


def test_all_of_methods_is_taken_over() -> None:
    for name, method in vars(Methods).items():
        if callable(method):
            assert getattr(mg.Tensor, name) is method, name


def test_in_place_functions_are_named_and_signed_like_their_functions() -> None:
    assert mg.Tensor.exp_.__name__ == "exp_"  # type: ignore[attr-defined]
    assert inspect.signature(mg.Tensor.clamp_) == inspect.signature(mg.clamp)
