"""Rules that models of speech and of series need; beside each right model a real mistake of the same place.

A vector that stands for hidden steps is read where steps are hidden, and not by forward.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

WIDTH = 8


def result(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick")


# --- a parameter that another method than forward needs


class Hides(nn.Module):
    """The vector of hidden steps is its own, and a helper of forward reads it where steps are hidden."""

    def __init__(self, channels=3):
        super().__init__()
        self.enter, self.leave = nn.Linear(channels, WIDTH), nn.Linear(WIDTH, channels)
        self.unseen = nn.Parameter(torch.randn(WIDTH))

    def states(self, x, hidden=None):
        h = self.enter(x)
        if hidden is not None:
            h = torch.where(hidden.unsqueeze(-1), self.unseen, h)
        return self.leave(h.tanh() + h.tanh().mean(1, keepdim=True))

    def forward(self, x):
        return self.states(x)

    def loss(self, x, hidden):
        return (self.states(x, hidden) - x)[hidden].square().mean()


class HidesNothing(Hides):
    """It makes a vector, and no method reads it where it counts."""

    def states(self, x, hidden=None):
        h = self.enter(x) + 0.0 * self.unseen
        return self.leave(h.tanh() + h.tanh().mean(1, keepdim=True))


class Stack(Hides):
    def forward(self, x, hidden=None):
        return self.states(x, hidden)


class NeverHidesInAPart(nn.Module):
    """No method of it gives the part what the vector needs."""

    def __init__(self, channels=3):
        super().__init__()
        self.body = Stack(channels)

    def forward(self, x):
        return self.body(x)


class HidesInAPart(NeverHidesInAPart):
    def loss(self, x, hidden):
        return (self.body(x, hidden) - x)[hidden].square().mean()


@pytest.mark.parametrize(
    ("cls", "verdict"),
    [(Hides, "PASS"), (HidesNothing, "FAIL"), (HidesInAPart, "PASS"), (NeverHidesInAPart, "FAIL")],
)
def test_a_parameter_is_used_that_a_method_beside_forward_needs(cls, verdict):
    assert result(cls, "model-every-parameter-gets-a-gradient").verdict.name == verdict
