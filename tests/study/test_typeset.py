"""Formulas in mathematical notation, and where they stay in ASCII."""

import io
import subprocess
import sys

import pytest

from minigrad.ops.registry import OPS
from minigrad.study.explain import explain
from minigrad.study.typeset import can_show, typeset


@pytest.mark.parametrize(
    ("ascii_text", "printed"),
    [
        ("dL/dx = g * x_i^2", "∂L/∂x = g · xᵢ²"),
        ("e^(x_i - max x) / sum_j e^(x_j - max x)", "e^(xᵢ − max x) / Σⱼ e^(xⱼ − max x)"),
        ("y = 1 / (1 + e^-x)", "y = 1 / (1 + e⁻ˣ)"),
        ("dL = <G B^T, dA> + <-g, db>", "dL = ⟨G Bᵀ, dA⟩ + ⟨−g, db⟩"),
        ("scale * T(dS) @ query", "scale · dSᵀ query"),
        ("x / sqrt(mean(x^2) + eps) * weight", "x / √(mean(x²) + ε) · weight"),
        ("a - b floor(a / b)", "a − b ⌊a / b⌋"),
        ("v/(1-b2^t)", "v/(1-b₂ᵗ)"),
        ("dp_v = p_v (dx_v - sum_w p_w dx_w)", "dpᵥ = pᵥ (dxᵥ − Σ_w p_w dx_w)"),  # there is no small w
        ("uniform in [0, 1), multiples of 2^-24", "uniform in [0, 1), multiples of 2⁻²⁴"),
        ("3 * x**2, x**-1.5", "3 · x², x**-1.5"),
        ("x^(b-1), x^(-1/2)", "x^(b-1), x^(−1/2)"),
        ("one_hot(targets, V) and (M * E).sum()", "one_hot(targets, V) and (M · E).sum()"),
        ("sum of the elements up to and including this one", "sum of the elements up to and including this one"),
        ("the map s -> dx; a <= b where i >= j", "the map s -> dx; a ≤ b where i ≥ j"),
    ],
)
def test_what_books_print(ascii_text, printed):
    assert typeset(ascii_text) == printed


@pytest.mark.parametrize("name", list(OPS))
def test_nothing_is_printed_twice_otherwise(name):
    once = typeset(OPS[name].formula)
    assert typeset(once) == once


def test_a_stream_without_these_signs_gets_ascii(monkeypatch):
    assert can_show(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    assert not can_show(narrow)
    monkeypatch.setattr(sys, "stdout", narrow)
    assert "dL/dx = y * (g - sum(g * y, dim))" in explain("softmax")
    assert "∂L/∂x = y · (g − Σ(g · y, dim))" in explain("softmax", notation=True)


@pytest.mark.slow
def test_the_command_writes_to_a_narrow_terminal():
    command = [sys.executable, "-X", "utf8=0", "-m", "minigrad", "explain", "softmax"]
    done = subprocess.run(command, capture_output=True, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert b"dL/dx" in done.stdout
