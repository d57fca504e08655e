"""A norm is RMSNorm or LayerNorm by what its code takes the mean of, whatever its class is called."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402

from conformance.adapters.torch_module import TorchModuleImplementation  # noqa: E402


class StemLayerNorm(nn.Module):
    """As T5's: called LayerNorm, and the mean stays in."""

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.gain, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x: Tensor) -> Tensor:
        squares = x * x
        return self.gain * x / torch.sqrt(torch.mean(squares, -1, keepdim=True) + self.eps)


class ForgetfulLayerNorm(StemLayerNorm):
    """A mistake: it computes the mean, and does not take it out."""

    def forward(self, x: Tensor) -> Tensor:
        spread = (x - x.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True)
        return self.gain * x * torch.rsqrt(spread + self.eps)


class UnbiasedLayerNorm(StemLayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        return self.gain * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)


@pytest.mark.parametrize(
    ("norm", "role"),
    [(StemLayerNorm, "rms_norm"), (ForgetfulLayerNorm, "layer_norm"), (UnbiasedLayerNorm, "layer_norm")],
)
def test_the_mean_that_the_code_takes_says_which_norm_it_is(norm, role):
    assert list(TorchModuleImplementation(norm).resolutions) == [role]
