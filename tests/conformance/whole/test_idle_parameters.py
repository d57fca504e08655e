"""Parameters that get no gradient by the suite's own sizes or calls are not blamed."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.specification import Specification  # noqa: E402
from conformance.adapters.whole.implementation import PointedImplementation  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


class Residual(nn.Module):
    """With one channel in each group the norm takes the bias before it away."""

    def __init__(self, channels=8):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, channels, 3, padding=1), nn.GroupNorm(8, channels)
        self.head = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, image):
        return image + self.head(self.norm(self.conv(image)).relu())


class Scaled(Residual):
    """A factor that nothing reads."""

    def __init__(self, channels=8):
        super().__init__(channels)
        self.gain = nn.Parameter(torch.ones(1, channels, 1, 1))


class HighFrequencies(nn.Module):
    """Its factor is of frequencies that a short series does not have."""

    def __init__(self, hidden=16):
        super().__init__()
        self.high, self.out = nn.Parameter(torch.ones(hidden)), nn.Linear(hidden, hidden)

    def forward(self, x):
        spectrum = torch.fft.rfft(x, dim=1).clone()
        spectrum[:, 5:] = 0
        low = torch.fft.irfft(spectrum, n=x.shape[1], dim=1)
        return self.out(low + self.high**2 * (x - low))


class ByKeyword(nn.Module):
    """Times are embedded where the rest of the keywords holds some."""

    def __init__(self, vocab_size=19, hidden=16):
        super().__init__()
        self.words, self.times = nn.Embedding(vocab_size, hidden), nn.Linear(1, hidden)
        self.layer = nn.TransformerEncoderLayer(hidden, 2, 32, batch_first=True)

    def forward(self, ids, **kwargs):
        x = self.words(ids)
        if kwargs.get("times") is not None:
            x = x + self.times(kwargs["times"].unsqueeze(-1))
        return self.layer(x)


class Noisy(nn.Module):
    """A router whose noise is made in training only."""

    def __init__(self, hidden=16):
        super().__init__()
        self.gate, self.noise = nn.Linear(hidden, 4), nn.Linear(hidden, 4)
        self.experts = nn.Parameter(torch.randn(4, hidden, hidden))

    def forward(self, x):
        scores = self.gate(x)
        if self.training:
            scores = scores + self.noise(x).exp() * torch.randn_like(scores)
        return torch.einsum("...e,...d,edf->...f", scores.softmax(-1), x, self.experts)


class CutOff(nn.Module):
    """What goes into a cache is detached, and read from there in training, too."""

    def __init__(self, hidden=16):
        super().__init__()
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def forward(self, x):
        keys = torch.zeros_like(x)
        keys[:] = self.key(x).detach()
        return (self.query(x) @ keys.transpose(1, 2)).softmax(-1) @ x


def test_a_gradient_that_is_cut_off_is_told_at_its_line():
    pointed = PointedImplementation(CutOff, Specification("", __name__, "CutOff"))
    told = run_check(CHECKS["model-every-parameter-gets-a-gradient"], pointed, "quick")
    assert "the answer depends on it, and the gradient is cut off" in told.diagnosis
    assert "keys[:] = self.key(x).detach()" in told.place


def test_what_runs_in_training_only_is_no_idle_part():
    pointed = PointedImplementation(Noisy, Specification("", __name__, "Noisy"))
    assert run_check(CHECKS["modules-that-are-made-run"], pointed, "quick").verdict.name != "FAIL"


@pytest.mark.parametrize(
    ("cls", "says"),
    [(Residual, "PASS"), (Scaled, "FAIL"), (HighFrequencies, "PASS"), (ByKeyword, "PASS"), (Noisy, "PASS")],
)
def test_what_sizes_and_calls_leave_without_a_gradient_is_not_blamed(cls, says):
    pointed = PointedImplementation(cls, Specification("", __name__, cls.__name__))
    assert run_check(CHECKS["model-every-parameter-gets-a-gradient"], pointed, "quick").verdict.name == says
