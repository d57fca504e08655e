"""Errors of float32 results beside torch's: a share of the table, and what the tool counts as an error."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import minigrad as mg  # noqa: E402
from tools import numerics  # noqa: E402

SHARE = (
    "sum",
    "sum over columns",
    "cumsum",
    "norm",
    "layer_norm",
    "rms_norm",
    "var",
    "cross_entropy",
    "gradient of attention",
)


@pytest.mark.parametrize("name", SHARE)
def test_a_share_of_the_table_is_within_its_bounds(name: str, monkeypatch) -> None:
    monkeypatch.setattr(numerics, "SEEDS", 2)
    found = list(numerics.rows([name], share=True))
    assert len(found) >= 2
    assert not [row for row in found if row.over]


@pytest.mark.deep
def test_the_whole_table_is_within_its_bounds() -> None:
    assert not [row for row in numerics.rows() if row.over]


def test_units_are_of_the_last_place_of_the_largest_value() -> None:
    exact = np.array([0.5, 1.0])
    assert numerics.units([exact + np.array([0.0, 2.0**-23])], [exact]) == pytest.approx(1.0)
    assert numerics.units([exact + np.array([2.0**-23, 0.0])], [exact], least=4.0) == pytest.approx(0.25)
    assert numerics.units([np.array([np.inf, 1.0])], [exact]) == float("inf")


def test_errors_above_the_bound_are_seen(monkeypatch, capsys) -> None:
    monkeypatch.setattr(numerics, "SEEDS", 1)
    monkeypatch.setattr(numerics, "LENGTHS", (7,))
    assert numerics.main(["logsumexp"]) == 0
    right = mg.Tensor.logsumexp
    monkeypatch.setattr(mg.Tensor, "logsumexp", lambda x, dim: right(x, dim) * (1 + 1e-5))
    assert numerics.main(["logsumexp", "--all"]) == 1
    assert "(over)" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        numerics.main(["no such result"])
