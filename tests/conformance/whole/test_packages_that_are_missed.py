"""A model that wants a package when it is called, which is not here, is refused, in whatever form it would run."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.whole.searching import calling_of  # noqa: E402


class Scanner(nn.Module):
    """Sums of what stands before, by a package that is not here; one token alone needs none."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(37, 8), nn.Linear(8, 37)

    def forward(self, ids):
        if ids.shape[1] > 1:
            from scans_that_nobody_has import scan

            return self.head(scan(self.words(ids)))
        return self.head(self.words(ids))


def test_a_package_that_is_missed_is_told():
    with pytest.raises(Unresolved, match="Scanner cannot be called: No module named 'scans_that_nobody_has'; install"):
        calling_of(Scanner())
