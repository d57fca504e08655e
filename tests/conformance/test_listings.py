"""The listings tool: on a document of our own, and on the documents where CONFORMANCE_DOCUMENTS names their folder."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from conformance.verdict import Result, Verdict

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
specification = importlib.util.spec_from_file_location("tools_listings", ROOT / "tools" / "listings.py")
listings = importlib.util.module_from_spec(specification)
sys.modules["tools_listings"] = listings
specification.loader.exec_module(listings)

DOCUMENT = """# A document

```python
import torch
import torch.nn as nn

class Norm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

raise SystemExit("statements are not run")
```

```python
weights = random, shape (3, 4)
```

```python
class CentredNorm(Norm):
    pass

class CentredRMSNorm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.inner = Norm(d_model)

    def forward(self, x):
        return self.inner(x - x.mean(-1, keepdim=True))
```
"""


def test_definitions_are_cut_out_and_statements_left(tmp_path):
    path = tmp_path / "document.txt"
    path.write_text(DOCUMENT)
    first, second = listings.listings(path, "x")
    assert (first.line, first.classes) == (3, ("Norm",))
    assert second.classes == ("CentredRMSNorm",)
    assert "SystemExit" not in second.source
    assert second.source.index("class Norm") < second.source.index("class CentredRMSNorm")


@pytest.mark.slow
def test_every_class_has_a_row_with_its_verdict(tmp_path, capsys):
    (tmp_path / "document.txt").write_text(DOCUMENT)
    assert listings.main([str(tmp_path), "--budget", "quick", "--markdown", str(tmp_path / "page.md")]) == 0
    printed = capsys.readouterr().out
    assert "| document | 3 | Norm | rms_norm | PASS |" in printed
    assert "| CentredRMSNorm | rms_norm | FAIL |" in printed
    assert "smallest example:" in printed
    assert "| Norm | rms_norm | PASS |" in (tmp_path / "page.md").read_text()


def test_a_folder_without_listings_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        listings.main([str(tmp_path)])
    assert stopped.value.code == 2
    assert "```python listing" in capsys.readouterr().err


@pytest.mark.skipif("CONFORMANCE_DOCUMENTS" not in os.environ, reason="CONFORMANCE_DOCUMENTS names no folder")
def test_the_documents_listings_pass_but_for_their_known_defects(tmp_path):
    rows = [
        row
        for path in sorted(Path(os.environ["CONFORMANCE_DOCUMENTS"]).glob("*.txt"))
        for listing in listings.listings(path, listings.number_of(path))
        for row in listings.run(listing, tmp_path, "quick")
    ]
    assert len(rows) == 26
    assert not list(listings.surprises(rows, listings.known_defects()))


def test_a_defect_that_no_ledger_lists_and_one_that_is_missing_are_told():
    claim = "rms-norm-formula"
    key = ("000", 1, "Norm")
    broken = [Result(claim, Verdict.FAIL)]
    known = {key: listings.Defect(("000-001",), frozenset({claim}))}
    assert not list(listings.surprises([listings.Row(*key, broken=broken)], known))
    assert f"it breaks {claim}, of which" in next(listings.surprises([listings.Row(*key, broken=broken)], {}))
    more = [*broken, Result("another-claim", Verdict.FAIL)]
    assert "it breaks another-claim, of which" in next(listings.surprises([listings.Row(*key, broken=more)], known))
    assert "(000-001)" in next(listings.surprises([listings.Row(*key)], known))
