"""RMSNorm with eps as a lower bound of its denominator is a convention; without any eps it is a mistake."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import conformance.checks  # noqa: E402, F401  (registers the checks)
from conformance.adapters import Specification  # noqa: E402
from conformance.adapters.torch_module import TorchModuleImplementation  # noqa: E402
from conformance.adapters.whole.implementation import PointedImplementation  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


class BoundedNorm(torch.nn.Module):
    """eps is the least that the root mean square divides by, or its square the least mean square."""

    def __init__(self, d_model: int, eps: float = 1e-6, squared: bool = False) -> None:
        super().__init__()
        self.weight, self.eps, self.squared = torch.nn.Parameter(torch.ones(d_model)), eps, squared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        square = x.pow(2).mean(-1, keepdim=True)
        root = square.clamp(min=self.eps).sqrt() if self.squared else square.sqrt().clamp(min=self.eps)
        return x / root * self.weight


class BoundedSquareNorm(BoundedNorm):
    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        super().__init__(d_model, eps, squared=True)


class NoEpsNorm(BoundedNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.pow(2).mean(-1, keepdim=True).sqrt().clamp(min=1e-30) * self.weight


@pytest.mark.parametrize(("norm", "verdict"), [(BoundedNorm, "NOTE"), (BoundedSquareNorm, "NOTE"), (NoEpsNorm, "FAIL")])
def test_eps_as_a_lower_bound_is_a_convention_and_none_at_all_is_not(norm, verdict):
    subject = TorchModuleImplementation(norm, "rms_norm")
    assert run_check(CHECKS["rms-norm-formula"], subject, "quick").verdict.name == verdict


class BesideNorm(BoundedNorm):
    """eps is added to the root."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__(d_model, eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / (x.norm(dim=-1, keepdim=True) * x.shape[-1] ** -0.5 + self.eps) * self.weight


class SumNorm(BesideNorm):
    """The mean is forgotten."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / (x.norm(dim=-1, keepdim=True) + self.eps) * self.weight


@pytest.mark.parametrize(("norm", "verdict"), [(BesideNorm, "NOTE"), (SumNorm, "FAIL")])
def test_eps_beside_the_root_is_a_convention_of_what_was_only_pointed_at(norm, verdict):
    subject = PointedImplementation(norm, Specification("model.py", "model.py", norm.__name__))
    assert run_check(CHECKS["rms-norm-formula"], subject, "quick").verdict.name == verdict
