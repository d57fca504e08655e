"""The gradients of leaves while a trace runs: what they were before, what the program has looked at, what it leaves."""

from __future__ import annotations

from minigrad.node import Node
from minigrad.tensor import Storage, Tensor


class Gradients:
    """Gradients of leaves, which are set back to what they were when the trace ends."""

    def __init__(self) -> None:
        self.looked_at: dict[Node, Tensor | None] = {}  # leaf -> what stands for its gradient of before the trace
        self._before: dict[Node, dict[int, Tensor | None] | None] = {}
        self._forgotten: set[Tensor] = set()

    def remember(self, leaf: Node) -> None:
        """The gradient of `leaf` is about to change."""
        if leaf not in self._before:
            self._before[leaf] = None if leaf.grads is None else dict(leaf.grads)

    def look(self, leaf: Node, made_inside: bool) -> None:
        """The gradient of `leaf` is about to be read. For one from before the trace stands a copy: at the next call the
        leaf may have another one, in other memory, or none."""
        if leaf in self._before:
            return
        self.remember(leaf)
        if made_inside:
            return
        gradient = None if leaf.grads is None else leaf.grads.get(0)
        if gradient is not None:
            gradient = Tensor(gradient.array.copy(), Storage(gradient.storage.device))
            leaf.grads = {0: gradient}
        self.looked_at[leaf] = gradient

    def forget(self, tensor: Tensor) -> None:
        """`tensor`, a leaf without a node, has no gradient from here on: what it had before does not matter."""
        self._forgotten.add(tensor)

    def is_forgotten(self, tensor: Tensor) -> bool:
        return tensor in self._forgotten

    def left(self) -> dict[Node, Tensor | None]:
        """The gradients of leaves now, of those that the program may have given another one."""
        return {leaf: None if leaf.grads is None else leaf.grads.get(0) for leaf in self._before}

    def restore(self) -> None:
        """Give the leaves back what they had."""
        for leaf, gradients in self._before.items():
            leaf.grads = gradients
