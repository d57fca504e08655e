"""What a trace cannot know about memory, because the strides of an eager call decide it.

numpy keeps the order of dimensions of what it computes with, and a trace computes nothing. So of some tensors a trace
does not know in which order their elements lie. A reshape of such a tensor is a view in some eager calls and a copy in
others: then two storages of the trace are perhaps one. As long as nobody changes either in place, that is all the same.
If the program changes one and reads the other, its values depend on strides, and `strides_decide` says so.
"""

from __future__ import annotations

from minigrad.tensor import Storage, Tensor


class Memory:
    """The storages of a trace: whose order is not known, which are perhaps one, which have perhaps changed."""

    def __init__(self) -> None:
        self.strides_decide = False  # has the program read what has perhaps changed?
        self._without_order: set[Storage] = set()
        self._perhaps_one: dict[Storage, set[Storage]] = {}  # a storage -> all that are perhaps one with it
        self._perhaps_changed: set[Storage] = set()
        self._detached: set[Tensor] = set()

    def lose_order(self, tensor: Tensor) -> None:
        """An eager call may lay out the elements of `tensor` otherwise than row by row."""
        self._without_order.add(tensor.storage)

    def has_order(self, tensor: Tensor) -> bool:
        return tensor.storage not in self._without_order

    def join(self, source: Tensor, result: Tensor) -> None:
        """`result` is a view of `source`, or a copy."""
        self.lose_order(result)
        both = {source.storage, result.storage}
        both |= self._perhaps_one.get(source.storage, both)
        self._perhaps_one.update(dict.fromkeys(both, both))

    def change(self, storage: Storage) -> None:
        """`storage` changes in place, and with it perhaps others."""
        self._perhaps_changed |= self._perhaps_one.get(storage, set()) - {storage}

    def read(self, storage: Storage) -> None:
        """The program reads from `storage`."""
        self.strides_decide = self.strides_decide or self.has_perhaps_changed(storage)

    def has_perhaps_changed(self, storage: Storage) -> bool:
        return storage in self._perhaps_changed

    def detach(self, view: Tensor) -> None:
        """`view` shows the memory of its base, and does not have its history."""
        self._detached.add(view)

    def is_detached(self, tensor: Tensor) -> bool:
        return tensor in self._detached
