# Series of sensors, each with gaps.
#
#   values [b t c]   readings
#   seen   [b t c]   bool, True where a reading exists
#   of     (b, t)    a name that is too short to be sure of
"""A file whose comments say the shapes of what is called so in it."""

from typing import NamedTuple

from torch import Tensor, nn


class Batch(NamedTuple):
    values: Tensor
    future: Tensor  # (B, F)
    labels: Tensor  # as many as there are


class Sensors(nn.Module):
    def forward(self, values, seen, future, labels, of):
        return values
