"""How long the inputs of a model may be."""

from __future__ import annotations

from conformance.adapters.whole.calling import T
from conformance.adapters.whole.running import RunningModel

LONGEST = 256
"""Lengths above this are not tried."""


class LengthProbes(RunningModel):
    """Lengths, of a running model."""

    @property
    def free_length(self) -> bool:
        return all(one.length is None for one in self.calling.inputs) and (
            not self.calling.main.shape or None in self.calling.main.shape
        )

    @property
    def longest(self) -> int | None:
        """The longest input that it takes, up to LONGEST tokens; None when it takes those, or one length only."""
        if "longest" not in self.known:
            self.known["longest"] = self._longest() if self.free_length else None
        return self.known["longest"]

    def _longest(self) -> int | None:
        low, high = T, 2 * T
        while high <= LONGEST and self.takes(high):
            low, high = high, high * 2
        if high > LONGEST:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.takes(middle) else (low, middle)
        return low

    def takes(self, length: int) -> bool:
        """Whether it answers inputs of this length."""
        try:
            out = self(**self.example(1, length))["out"]
        except Exception:
            return False
        return not self.positions or out.shape[1] == length
