"""The interface between a program and what becomes of its ops.

    minigrad.dispatch.Eager        computes each op at once, and leaves a node on the tape where a gradient is wanted
    minigrad.dispatch.Watching     does the same, and shows every op to somebody who looks for a NaN
    minigrad.tracing.tracer.Tracer computes nothing: records a graph
    minigrad.viz.foreign.Foreign   records a graph of torch's ops, which torch computes

`state.interpreter` is the one in force in this thread. An op that is called on tensors calls its `apply`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minigrad.node import Node
    from minigrad.ops.registry import Op
    from minigrad.tensor import Tensor


class Interpreter:
    """What becomes of ops (`apply`), of changes in place (`write`) and of gradients that arrive (`own`).

    The other methods say what happens to tensors beside that. Here they stand for an interpreter that works on values,
    which has nothing to remember.
    """

    tracing = False  # are values unknown while the program runs?

    def apply(self, op: Op, tensors: Sequence[Tensor], attrs: Mapping[str, Any]) -> Any:
        """The outputs of `op` on tensors whose dtypes agree: one tensor, or a tuple of several."""
        raise NotImplementedError

    def write(self, target: Tensor, value: Tensor, root: Tensor, whole: Tensor) -> None:
        """Change `target` in place to `value`. Its base is `root`, which has the value `whole` from now on."""
        raise NotImplementedError

    def own(self, gradient: Tensor) -> Tensor:
        """A gradient without a history in memory that no other tensor shows."""
        raise NotImplementedError

    # --- memory

    def order_is_known(self, tensor: Tensor) -> bool:
        """Do the elements of `tensor` lie in memory as its array says?"""
        return True

    def perhaps_a_view(self, source: Tensor, result: Tensor) -> None:
        """`result` shows the memory of `source` or a copy: the order of elements decides, which is not known."""

    def follows_its_base(self, tensor: Tensor) -> bool:
        """Has a view the history of its base?"""
        return True

    def derived_again(self, view: Tensor, again: Tensor) -> None:
        """The base of `view` has changed in place: its value is that of `again` now."""

    # --- the tape

    def made_a_leaf(self, tensor: Tensor) -> None:
        """`tensor` was given its node."""

    def taken_from_the_tape(self, tensor: Tensor, node: Node, which: int) -> None:
        """`tensor` is input `which` (or output `~which`) of `node` as it was saved."""

    def may_free(self, node: Node) -> bool:
        """Does nobody else need what `node` has saved, after a backward pass?"""
        return True

    # --- gradients of leaves

    def reads_gradient(self, tensor: Tensor) -> None:
        """The program is about to look at `tensor.grad`."""

    def adds_gradient(self, node: Node) -> None:
        """A backward pass is about to add to the gradient of a leaf."""

    def replaces_gradient(self, node: Node) -> None:
        """The program is about to set the gradient of a leaf."""

    def forgets_gradient(self, tensor: Tensor) -> None:
        """A leaf that has no node yet, and so no gradient, is told to have none."""

    # --- random numbers

    def draws(self, generator: Any, device: str) -> None:
        """`generator` is drawn from on `device`."""

    def categories(self, weights: Tensor, num_samples: int, replacement: bool) -> Tensor | None:
        """The categories that a draw among `weights` shall give; None leaves it to the generator."""
        return None
