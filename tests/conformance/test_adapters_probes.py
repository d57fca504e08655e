"""Probes of norms: the eps under the root is found, and one that stands elsewhere is not made up."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from conformance.adapters.inference.probes import eps_of  # noqa: E402
from conformance.adapters.inference.roles import is_norm  # noqa: E402


class BesideTheRoot(nn.LayerNorm):
    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return self.weight * centred / (x.std(-1, keepdim=True, unbiased=False) + self.eps) + self.bias


@pytest.mark.parametrize("eps", [1e-5, 1e-6, 1e-8, 1e-12])
def test_eps_is_found(eps: float) -> None:
    assert eps_of(nn.LayerNorm(24, eps), 24) == eps


@pytest.mark.parametrize("eps", [1e-5, 1e-6])
def test_an_eps_beside_the_root_is_none_under_it(eps: float) -> None:
    assert eps_of(BesideTheRoot(24, eps), 24) is None


class Turned(nn.Module):
    """A vector as parameter, and no norm: twice the input gives twice the output."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(24))

    def forward(self, x):
        return self.gain * x.flip(-1)


class Standardise(BesideTheRoot):
    """Its name says nothing."""


class LayerNormalization(Turned):
    """Its name says that it is meant as one."""


@pytest.mark.parametrize(
    ("module", "norm"),
    [(Standardise(24), True), (LayerNormalization(), True), (Turned(), False), (nn.Linear(24, 24), False)],
)
def test_a_norm_is_what_normalises_or_says_so(module: nn.Module, norm: bool) -> None:
    assert is_norm(module) is norm
