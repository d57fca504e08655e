"""Layers whose matrices are stored in fewer bytes than they are computed in: for models that are used, not trained."""

from __future__ import annotations

from minigrad import functional as F
from minigrad.creation import from_numpy
from minigrad.nn.module import Module, Parameter
from minigrad.ops.embedding import embedding
from minigrad.ops.stored import as_computed, to_stored
from minigrad.tensor import Tensor


class Stored(Module):
    """A matrix of bfloat16 (`scales` is None), or of int8 with float32 `scales` of its rows. Neither has gradients.

    Raises ValueError for a kind that is none of "int8" and "bfloat16", and for values that are not finite.
    """

    def __init__(self, matrix: Tensor, kind: str) -> None:
        super().__init__()
        stored, *scales = (from_numpy(array) for array in to_stored(matrix.detach().numpy(), kind))
        self.stored = Parameter(stored, requires_grad=False)
        self.scales = Parameter(scales[0], requires_grad=False) if scales else None

    @classmethod
    def of(cls, stored: Tensor, scales: Tensor | None = None) -> Stored:
        """A matrix that is stored so already: bfloat16, or int8 ``(n, k)`` with scales float32 ``(n,)``."""
        made = cls.__new__(cls)
        Module.__init__(made)
        made.stored = Parameter(stored, requires_grad=False)
        made.scales = None if scales is None else Parameter(scales, requires_grad=False)
        return made

    @property
    def weight(self) -> Tensor:
        """The matrix in float32, made anew at every look."""
        return as_computed(self.stored, self.scales)

    def extra_repr(self) -> str:
        return f"{list(self.stored.shape)}, {self.stored.dtype.name}"


class StoredLinear(Module):
    """`Linear` by a stored matrix: y = x W^T + b, computed in float32."""

    def __init__(self, matrix: Stored, bias: Parameter | None = None) -> None:
        super().__init__()
        self.matrix, self.bias = matrix, bias

    @property
    def weight(self) -> Tensor:
        """See `Stored.weight`."""
        return self.matrix.weight

    def forward(self, x: Tensor) -> Tensor:
        product = F.stored_linear(x, self.matrix.stored, self.matrix.scales)
        return product if self.bias is None else product + self.bias


class StoredEmbedding(Module):
    """`Embedding` by a stored table, such as one that is the head's matrix, too."""

    def __init__(self, matrix: Stored, padding_idx: int | None = None) -> None:
        super().__init__()
        self.matrix, self.padding_idx = matrix, padding_idx

    @property
    def weight(self) -> Tensor:
        """See `Stored.weight`."""
        return self.matrix.weight

    def forward(self, ids: Tensor) -> Tensor:
        scales = self.matrix.scales
        return as_computed(embedding(ids, self.matrix.stored), None if scales is None else scales[ids])
