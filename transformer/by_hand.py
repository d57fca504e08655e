"""The first networks, in numpy and with gradients derived by hand: one neuron, and an MLP (document 003).

There is no engine here: `backward` is what the chain rule gives on paper, and tests hold it to what minigrad finds.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray
Gradients = dict[str, Array]


def sigmoid(z: Array) -> Array:
    """1 / (1 + e^-z), without overflow."""
    e = np.exp(-np.abs(z))
    return np.where(z >= 0, 1 / (1 + e), e / (1 + e))


class Neuron:
    """y = sigmoid(w . x + b), judged by binary cross-entropy: x ``(N, d)`` to y ``(N,)``."""

    def __init__(self, d_input: int, seed: int = 0) -> None:
        self.w, self.b = np.random.default_rng(seed).standard_normal(d_input) * d_input**-0.5, np.zeros(())

    def forward(self, x: Array) -> Array:
        return sigmoid(x @ self.w + self.b)

    def loss(self, x: Array, target: Array) -> float:
        """Mean of -t ln y - (1 - t) ln(1 - y) over targets t ``(N,)`` in {0, 1}: ln(1 + e^z) - t z."""
        z = x @ self.w + self.b
        return float(np.mean(np.logaddexp(0, z) - target * z))

    def backward(self, x: Array, target: Array) -> Gradients:
        """dL/dz = (y - t) / N, as sigmoid's slope y (1 - y) cancels that of the logarithms; dz/dw = x, dz/db = 1."""
        dz = (self.forward(x) - target) / len(x)
        return {"w": x.T @ dz, "b": dz.sum()}

    def step(self, x: Array, target: Array, lr: float) -> None:
        """One step of gradient descent."""
        gradients = self.backward(x, target)
        self.w, self.b = self.w - lr * gradients["w"], self.b - lr * gradients["b"]


class MLP:
    """Logits W2 relu(W1 x + b1) + b2, judged by cross-entropy: x ``(N, d_input)`` to ``(N, n_classes)``."""

    def __init__(self, d_input: int, d_hidden: int, n_classes: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.parameters = {
            "W1": rng.standard_normal((d_hidden, d_input)) * (2 / d_input) ** 0.5,
            "b1": np.zeros(d_hidden),
            "W2": rng.standard_normal((n_classes, d_hidden)) * d_hidden**-0.5,
            "b2": np.zeros(n_classes),
        }

    def _hidden(self, x: Array) -> Array:
        return np.maximum(x @ self.parameters["W1"].T + self.parameters["b1"], 0)

    def forward(self, x: Array) -> Array:
        return self._hidden(x) @ self.parameters["W2"].T + self.parameters["b2"]

    def _log_probabilities(self, x: Array) -> Array:
        z = self.forward(x)
        z = z - z.max(1, keepdims=True)
        return z - np.log(np.exp(z).sum(1, keepdims=True))

    def loss(self, x: Array, target: Array) -> float:
        """Mean of -ln p(target) over class ids ``(N,)``."""
        return -float(np.mean(self._log_probabilities(x)[np.arange(len(x)), target]))

    def backward(self, x: Array, target: Array) -> Gradients:
        """dz2 = (p - onehot) / N; dW2 = dz2^T h; dh = dz2 W2; dz1 = dh where z1 > 0, else 0; dW1 = dz1^T x."""
        hidden = self._hidden(x)
        dz2 = np.exp(self._log_probabilities(x))
        dz2[np.arange(len(x)), target] -= 1
        dz2 /= len(x)
        dz1 = (dz2 @ self.parameters["W2"]) * (hidden > 0)
        return {"W1": dz1.T @ x, "b1": dz1.sum(0), "W2": dz2.T @ hidden, "b2": dz2.sum(0)}

    def step(self, x: Array, target: Array, lr: float) -> None:
        """One step of gradient descent."""
        for name, gradient in self.backward(x, target).items():
            self.parameters[name] = self.parameters[name] - lr * gradient
