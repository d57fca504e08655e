"""What tests of the page draw: a small model in training, and names that would like to be markup."""

import re

import numpy as np

import minigrad as mg
from minigrad import nn
from minigrad.state import scope


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).tanh() + x
        return self.head(x)


def training(model):
    def step(x):
        loss = (model(x) ** 2).sum()
        loss.backward()
        return loss

    return step


def traced_model():
    """A model, an input, and the graph of one training step."""
    mg.manual_seed(1)
    model = Model()
    x = mg.randn(4, 3)
    return model, x, mg.trace(training(model))(x)


def numbers(text):
    """The numbers that a text of the page holds."""
    return np.array([float(n) for n in re.findall(r"-?\d[\d.]*(?:e[+-]?\d+)?", text)])


HOSTILE = [
    '</script><script>alert("x")</script>',
    "<img src=x onerror=boom()>",
    "%SCRIPT% %DATA%",
    "\u202egnp.exe",
    "名前" * 60,
]


def hostile_graph():
    def program(x):
        for name in HOSTILE:
            with scope(name, name):
                x = (x * 2).tanh()
        return x

    return mg.trace(program)(mg.ones(2))
