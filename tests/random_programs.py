"""Random programs for tests: lists of op names and operands, drawn by hypothesis, and how to run them."""

from hypothesis import strategies as st

import minigrad as mg
from minigrad import functional as F

UNARY = {
    "neg": lambda a: -a,
    "exp": lambda a: (a * 0.3).exp(),
    "tanh": lambda a: a.tanh(),
    "sigmoid": lambda a: a.sigmoid(),
    "gelu": F.gelu,
    "silu": F.silu,
    "relu": lambda a: a.relu(),
    "square": lambda a: a * a,
    "log": lambda a: (a * a + 1.0).log(),
    "sqrt": lambda a: (a * a + 0.5).sqrt(),
    "softmax": lambda a: a.softmax(-1),
    "where": lambda a: mg.where(a > 0.1, a, 0.5),
    "mean": lambda a: a - a.mean(-1, keepdim=True),
    "columns": lambda a: a * a.sum(0, keepdim=True),
    "transposed": lambda a: (a.transpose(-1, -2) * 2.0).transpose(-1, -2),
    "reshaped": lambda a: a.reshape(-1).reshape(a.shape) + 1.0,
    "sliced": lambda a: mg.cat([a[:, 1:], a[:, :1]], 1),
    "norm": lambda a: F.layer_norm(a, a.shape[-1]),
}
BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / (b * b + 1.0),
    "maximum": mg.maximum,
    "matmul": lambda a, b: (a @ b.transpose(-1, -2)) @ b * 0.1,
}

programs = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(UNARY)), st.integers(0, 99)),
        st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 99), st.integers(0, 99)),
    ),
    min_size=1,
    max_size=6,
)


def run(program, *inputs):
    values = list(inputs)
    for name, *where in program:
        operands = [values[i % len(values)] for i in where]
        values.append((UNARY if len(operands) == 1 else BINARY)[name](*operands))
    return values[-1]


def with_gradients(program):
    def function(a, b):
        loss = (run(program, a, b) * 0.1).sum()
        return loss, *mg.grad(loss, [a, b], allow_unused=True)

    return function
